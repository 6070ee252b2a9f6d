//! Help and completions.

use std::fmt::Write as _;

use crate::args::{COMMANDS, FLAGS, KNOBS};

/// `memtier --help`
pub const GENERAL: &str = "\
memtier: whether a model fits, decided from its header

usage
  memtier plan MODEL [flags]        whether it fits, who gets how much, or what to change
  memtier compare A B [flags]       two models under one configuration, side by side
  memtier devices                   the cards that --device knows
  memtier schema                    the JSON schema of --json
  memtier completions SHELL         for bash, zsh or fish

MODEL is a .gguf file, any part of a split one, or a folder of safetensors with a config.json. Only headers are read.
The exit code is 0 when it fits, 1 when it does not, 2 when the question was wrong.

  memtier plan --help               all flags and more examples
";

/// `memtier plan --help`
pub const PLAN: &str = "\
usage: memtier plan MODEL [flags]

examples
  memtier plan model.gguf --vram-budget 32607MiB --max-batch 8 --max-seq-len 4096
  memtier plan model.gguf --device \"RTX 4090\" --fit context --lock kv-dtype
  memtier plan big-00001-of-00004.gguf --device \"2x H100 80GB\" --split tensor --max-batch 32
  memtier plan model.gguf --device this --gpu-layers auto
  memtier plan checkpoint/ --vram-budget 24GiB --kv-dtype fp8 --json
  memtier plan model.gguf --max-batch 4 --max-seq-len 8192 --accounting llama.cpp

the machine
  --vram-budget SIZE[,SIZE…]   what the plan may use of each device, reserves included
  --device CARD                a card by name, \"2x CARD\", or this; may be repeated
  --platform linux|windows     whose driver keeps what for itself
  --split layer|tensor         how several devices share the model (layer)
  --context-reserve MIB        driver and primary context
  --library-reserve MIB        what vendor libraries claim on first use
  --held SIZE                  what other processes hold
  --host-budget SIZE           host memory for what is not on the device
  --gpu-layers N|auto          layers on the device, the first ones; the rest on the CPU

the configuration
  --max-batch N                sequences served at once (1)
  --max-seq-len N              tokens of one sequence (4096, or what the model was trained on)
  --kv-dtype TYPE[,TYPE]       of keys, and of values where they differ (f16)
  --block-size N               tokens of one KV block (16)
  --prefill-chunk N            prompt tokens of one pass (512); llama.cpp's ubatch
  --speculative-depth N        draft tokens of one step (0)
  --host-cache SIZE            pinned memory for blocks of finished sequences
  --mmproj FILE                a vision projector; --no-vision leaves out a tower in the model itself
  --lora FILE                  an adapter; may be repeated

the question
  --lock KNOB[,KNOB…]          what must stay: budget, gpu-layers, kv-dtype, max-batch, max-seq-len,
                               prefill-chunk, speculative-depth, vision
  --fit batch|context|kv       the most sequences, the longest, or the most precise cache that fits whole
  --accounting memtier|llama.cpp|vllm
                               what another engine would allocate for its cache
  --unified, --swa-full, --cell-padding N
                               llama.cpp's --kv-unified and --swa-full; 32 for builds that padded less

the answer
  --json                       for programs; see memtier schema
  --html FILE, --svg FILE      a picture: each card by tier, and where context and batch stop fitting
  --weights, --layers          every tensor; what every layer keeps
  --color auto|always|never    auto: only on terminals, and not with NO_COLOR

Sizes have a unit: MiB or GiB. A card sold as 24 GB has 24GiB.
";

/// A script that completes commands, flags and the words that flags take.
pub fn completions(shell: &str) -> String {
    match shell {
        "zsh" => zsh(),
        "fish" => fish(),
        _ => bash(),
    }
}

/// Flags that take one of a few words.
fn words(flag: &str) -> Option<String> {
    Some(match flag {
        "accounting" => "memtier llama.cpp vllm".to_owned(),
        "color" => "auto always never".to_owned(),
        "fit" => "batch context kv".to_owned(),
        "gpu-layers" => "auto".to_owned(),
        "kv-dtype" => memtier::plan::KvDtype::ALL.map(memtier::plan::KvDtype::name).join(" "),
        "lock" => KNOBS.join(" "),
        "platform" => "linux windows".to_owned(),
        "split" => "layer tensor".to_owned(),
        _ => return None,
    })
}

fn bash() -> String {
    let flags: Vec<String> = FLAGS.iter().map(|flag| format!("--{}", flag.0)).collect();
    let mut cases = String::new();
    for (flag, _) in FLAGS {
        if let Some(words) = words(flag) {
            let _ = writeln!(cases, "    --{flag}) COMPREPLY=($(compgen -W \"{words}\" -- \"$current\")); return;;");
        }
    }
    format!(
        "_memtier() {{\n  local current=\"${{COMP_WORDS[COMP_CWORD]}}\" previous=\"${{COMP_WORDS[COMP_CWORD-1]}}\"\n  \
         case \"$previous\" in\n{cases}  esac\n  if [[ $COMP_CWORD -eq 1 ]]; then\n    \
         COMPREPLY=($(compgen -W \"{}\" -- \"$current\"))\n  elif [[ $current == -* ]]; then\n    \
         COMPREPLY=($(compgen -W \"{}\" -- \"$current\"))\n  else\n    COMPREPLY=($(compgen -f -- \"$current\"))\n  fi\n}}\n\
         complete -o filenames -F _memtier memtier\n",
        COMMANDS.join(" "),
        flags.join(" ")
    )
}

fn zsh() -> String {
    let mut text = String::from("#compdef memtier\n_memtier() {\n  if (( CURRENT == 2 )); then\n");
    let _ = writeln!(text, "    compadd {}\n    return\n  fi\n  _arguments '*:model:_files' \\", COMMANDS.join(" "));
    for (flag, takes) in FLAGS {
        let _ = match (takes, words(flag)) {
            (true, Some(words)) => writeln!(text, "    '*--{flag}[{flag}]:{flag}:({words})' \\"),
            (true, None) => writeln!(text, "    '*--{flag}[{flag}]:{flag}:_files' \\"),
            (false, _) => writeln!(text, "    '--{flag}[{flag}]' \\"),
        };
    }
    text.push_str("    && return\n}\ncompdef _memtier memtier\n");
    text
}

fn fish() -> String {
    let mut text = format!("complete -c memtier -n __fish_use_subcommand -f -a \"{}\"\n", COMMANDS.join(" "));
    for (flag, takes) in FLAGS {
        let _ = match (takes, words(flag)) {
            (true, Some(words)) => writeln!(text, "complete -c memtier -l {flag} -x -a \"{words}\""),
            (true, None) => writeln!(text, "complete -c memtier -l {flag} -r"),
            (false, _) => writeln!(text, "complete -c memtier -l {flag}"),
        };
    }
    text
}
