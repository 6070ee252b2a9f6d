//! The command as its users run it: what is wrong is one line with the value and the remedy, and nothing panics.

mod common;

use std::{
    path::Path,
    process::{Command, Output},
};

use common::{SMOLLM2, Temporary};
use memtier_model::write::{GgufWriter, TinyModel};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_memtier-engine")).args(args).output().unwrap()
}

/// The one line on standard error of a run that must fail.
fn refused(args: &[&str]) -> String {
    let Output { status, stderr, .. } = run(args);
    let text = String::from_utf8(stderr).unwrap();
    assert!(!status.success(), "{args:?} succeeded");
    assert!(status.code().is_some_and(|code| code != 101) && !text.contains("panicked"), "{args:?}: {text}");
    assert_eq!(text.trim_end().lines().count(), 1, "{args:?}: {text}");
    text
}

fn tiny() -> Vec<u8> {
    TinyModel::llama(5).to_gguf().unwrap().to_bytes()
}

/// Heads of 32: what types with scales want.
fn wide() -> Vec<u8> {
    TinyModel { head_dim: 32, ..TinyModel::llama(5) }.to_gguf().unwrap().to_bytes()
}

#[test]
fn without_a_gpu_its_flag_is_refused_in_one_line() {
    if Path::new("/dev/nvidia0").exists() {
        println!("skipped: there is a GPU here");
        return;
    }
    let file = Temporary::new("no-gpu.gguf", &tiny());
    for command in ["demo", "plan", "bench"] {
        let said = refused(&[command, "--model-file", file.text(), "--device", "cuda:0"]);
        let remedy = if cfg!(feature = "cuda") { "Install the NVIDIA driver" } else { "build it with --features cuda" };
        assert!(said.contains(remedy), "{said}");
    }
}

#[test]
fn a_tiny_model_answers_and_allocates_nothing_while_serving() {
    let split = ["--gpu-layers", "1", "--vram-budget", "64MiB"];
    let (llama, gemma) = (TinyModel::llama(5), TinyModel::gemma3(5));
    let graphs = ["--graphs", "2"];
    let runs: [(_, _, &[&str]); 4] =
        [("llama", &llama, &[]), ("gemma3", &gemma, &[]), ("split", &llama, &split), ("graphs", &gemma, &graphs)];
    for (name, model, more) in runs {
        let file = Temporary::new(&format!("{name}.gguf"), &model.to_gguf().unwrap().to_bytes());
        let json = Temporary::new(&format!("{name}.json"), b"");
        let prompt = "ab ".repeat(30);
        // The machine is looked at as often as can be set, so that the watcher reads while tokens are made.
        let pressure = Temporary::new(&format!("{name}.pressure"), b"poll = 10 ms\n");
        let size = ["--max-seq-len", "1024", "--prefill-chunk", "16", "--threads", "2"];
        let mut args = vec!["demo", "--model-file", file.text(), "--raw", "--prompt", &prompt, "--json", json.text()];
        args.extend(["--prompt", "c", "--max-tokens", "400", "--pressure-config", pressure.text()]);
        args.extend(size);
        args.extend(more);
        let Output { status, stdout, stderr } = run(&args);
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
        let text = String::from_utf8(stdout).unwrap();
        assert!(text.ends_with("allocations while serving: device 0, pinned 0, host heap 0\n"), "{text}");
        let figures: serde_json::Value = serde_json::from_slice(&std::fs::read(json.path()).unwrap()).unwrap();
        assert_eq!(figures["devices"].as_array().map(Vec::len), Some(1 + usize::from(name == "split")));
        assert!(name != "split" || text.contains("device: layer 0\n"), "{text}");
        assert_eq!(figures["answers"].as_array().map(Vec::len), Some(2));
        assert!(figures["decode_tokens"].as_u64() >= Some(399));
    }
}

#[test]
fn requests_of_eight_bits_allocate_nothing_either() {
    let Ok(meminfo) = std::fs::read_to_string("/proc/meminfo") else { return println!("skipped: no /proc/meminfo") };
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
    let available: u64 = line.split_whitespace().next().unwrap().parse().unwrap();
    // Most of what there is, as the reserve: less than that is left, which is WATCH.
    let text = format!("poll = 10 ms\nhost.reserve = {} KiB\nhost.tight_divisor = 1000000\n", available / 10 * 7);
    let (file, pressure) = (Temporary::new("eight.gguf", &wide()), Temporary::new("eight.pressure", text.as_bytes()));
    let args = ["demo", "--model-file", file.text(), "--raw", "--prompt", "ab", "--prompt", "c", "--max-tokens", "300"];
    let more = ["--max-seq-len", "512", "--threads", "2", "--kv-low", "q8_0", "--pressure-config", pressure.text()];
    let Output { status, stdout, stderr } = run(&[&args[..], &more[..]].concat());
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    let text = String::from_utf8(stdout).unwrap();
    assert!(text.contains("new KV f16 -> q8_0"), "{text}");
    assert!(text.ends_with("allocations while serving: device 0, pinned 0, host heap 0\n"), "{text}");
}

#[test]
fn smaller_types_and_sequences_that_run_on_allocate_nothing_either() {
    let file = Temporary::new("on.gguf", &wide());
    let args = ["demo", "--model-file", file.text(), "--raw", "--prompt", "ab", "--prompt", "c", "--max-tokens", "900"];
    let more = ["--max-seq-len", "128", "--threads", "2", "--kv-type", "q4_0", "--kv-type-layers", "0=fp8"];
    let on = ["--stream-window", "64", "--stream-sinks", "16"];
    let Output { status, stdout, stderr } = run(&[&args[..], &more[..], &on[..]].concat());
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    let text = String::from_utf8(stdout).unwrap();
    assert!(text.ends_with("allocations while serving: device 0, pinned 0, host heap 0\n"), "{text}");
}

#[test]
fn what_the_memory_policy_decided_has_a_line_each_and_nothing_else_does() {
    let file = Temporary::new("decided.gguf", &tiny());
    let args =
        ["--raw", "--prompt", "a", "--prompt", "b", "--prompt", "c", "--max-tokens", "3", "--max-seq-len", "256"];
    let limited = ["--max-slots", "1", "--vram-budget", "64MiB"];
    let of = |command, more: &[&str]| run(&[&[command, "--model-file", file.text()], &args[..], more].concat());
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let demo = text(of("demo", &[]).stdout);
    // Whatever the machine is going through, nothing was decided for want of slots or budget.
    assert!(!demo.contains("waits") && !demo.contains("by --vram-budget"), "{demo}");
    let refused = text(of("demo", &["--vram-budget", "0"]).stderr);
    assert!(refused.contains("Cannot fit this configuration in the 0 MiB budget"), "{refused}");
    let demo = text(of("demo", &limited).stdout);
    for line in ["Memory policy", "budget: 64 MiB, by --vram-budget", "request 1: waits, all 1 slots are taken"] {
        assert!(demo.contains(line), "{line}: {demo}");
    }
    let (all, one) = (of("generate", &[]), of("generate", &limited));
    assert_eq!(text(all.stdout), text(one.stdout), "the answers do not change");
    assert!(text(one.stderr).contains("request 2: waits, all 1 slots are taken"));
}

#[test]
fn files_of_the_memory_policy_that_are_wrong_are_one_line() {
    let file = Temporary::new("wrong.gguf", &tiny());
    let bad = Temporary::new("bad.pressure", b"host.resreve = 2 GiB\npoll = 1 ms\nkv.at\n");
    let kv = Temporary::new("kv.pressure", b"kv.to = q5_0\n");
    let costs = Temporary::new("bad.costs", b"512 64MiB\n512 65MiB\n");
    for (flag, path, says) in [
        ("--pressure-config", bad.text(), "did you mean `host.reserve`?"),
        ("--pressure-config", bad.text(), "line 3: `kv.at` is no setting"),
        ("--pressure-config", kv.text(), "kv.to is q5_0"),
        ("--cost-anchors", costs.text(), "lengths have to ascend"),
    ] {
        let line = refused(&["demo", "--model-file", file.text(), flag, path]);
        assert!(line.contains(says), "{says}: {line}");
    }
}

#[test]
fn anchors_are_measured_and_can_be_read_back() {
    let file = Temporary::new("anchors.gguf", &tiny());
    let Output { status, stdout, stderr } =
        run(&["measure-anchors", "--model-file", file.text(), "--max-seq-len", "512", "--threads", "1"]);
    let error = String::from_utf8_lossy(&stderr);
    if error.contains("measured on Linux") {
        return println!("skipped: {error}");
    }
    assert!(status.success(), "{error}");
    let text = String::from_utf8(stdout).unwrap();
    assert_eq!(text.lines().filter(|line| !line.starts_with('#')).count(), 3, "{text}");
    let costs = Temporary::new("measured.costs", text.as_bytes());
    let read =
        run(&["generate", "--model-file", file.text(), "--raw", "--prompt", "a", "--cost-anchors", costs.text()]);
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
}

#[test]
fn broken_files_are_one_line() {
    let good = tiny();
    let cut = Temporary::new("cut.gguf", &good[..good.len() / 2]);
    let header = Temporary::new("header.gguf", &good[..40]);
    let empty = Temporary::new("empty.gguf", b"");
    let magic = Temporary::new("magic.gguf", b"GGML and then some more bytes");
    let mut unknown = GgufWriter::new();
    unknown.string("general.architecture", "perceptron");
    let unknown = Temporary::new("unknown.gguf", &unknown.to_bytes());
    for (path, says) in [
        (cut.text(), "the download is incomplete"),
        (header.text(), "header.gguf"),
        (empty.text(), "empty.gguf"),
        (magic.text(), "magic"),
        (unknown.text(), "perceptron"),
        ("/nowhere/at/all.gguf", "/nowhere/at/all.gguf"),
    ] {
        for command in ["demo", "plan", "generate"] {
            let line = refused(&[command, "--model-file", path]);
            assert!(line.contains(says), "{path}: {line}");
        }
    }
}

#[test]
fn absurd_flags_are_one_line() {
    let file = Temporary::new("flags.gguf", &tiny());
    let most = usize::MAX.to_string();
    for (flag, values) in [
        ("--threads", &["0", "100000", "-1", "two", &most][..]),
        ("--max-batch", &["0", "100000", "x", &most]),
        ("--max-seq-len", &["0", &most, "1.5"]),
        ("--prefill-chunk", &["0", &most]),
        ("--block-tokens", &["0", "7", &most]),
        ("--max-tokens", &["0", "-3"]),
        ("--budget", &["0", "12 parsecs", "99999999999999999GiB", "-1MiB"]),
        ("--temperature", &["-1", "NaN", "hot"]),
        ("--top-p", &["0", "1.5"]),
        ("--gpu-layers", &["-1", "most", "1.5"]),
        ("--lock", &["everything"]),
        ("--vram-budget", &["much", "-1MiB"]),
        ("--max-slots", &["0", "5", "x", &most]),
        ("--queue", &["0", &most]),
        ("--graphs", &["-1", &most]),
        ("--kv-low", &["f16", "q4_0", "int8", ""]),
        ("--kv-type", &["q4_0", "q5_1", "int8", ""]),
        ("--kv-type-layers", &["0", "2=f16", "1-0=f16", "0=q8_0", ""]),
        ("--stream-window", &["0", "2048", "x", &most]),
        ("--weights", &["bf16", "int4", ""]),
        ("--cut-to", &["0", "x"]),
        ("--pressure-config", &["/nowhere/at/all"]),
        ("--cost-anchors", &["/nowhere/at/all"]),
        ("--prompt", &[""]),
    ] {
        for value in values {
            let line = refused(&["demo", "--model-file", file.text(), &format!("{flag}={value}")]);
            assert!(line.len() > 20, "{flag} {value}: {line}");
        }
    }
    assert!(refused(&["demo", "--model-file", file.text(), "--max-tokns", "3"]).contains("--max-tokens"));
}

#[test]
fn a_prompt_longer_than_the_context_is_refused_with_both_lengths() {
    let file = Temporary::new("long.gguf", &tiny());
    let prompt = "a".repeat(500);
    let line = refused(&["demo", "--model-file", file.text(), "--raw", "--prompt", &prompt, "--max-seq-len", "64"]);
    assert!(line.contains("64") && line.contains("--max-seq-len"), "{line}");
}

/// The first lever of a refusal, as flags.
fn first_lever(report: &str) -> Vec<String> {
    let line = report.lines().find(|line| line.contains(" -> ")).unwrap_or_else(|| panic!("no lever in {report}"));
    let mut words = line.split_whitespace();
    let name = words.next().unwrap().replace('_', "-");
    let value = line.split(" -> ").nth(1).unwrap().split_whitespace().next().unwrap();
    let unit = if name == "budget" { "MiB" } else { "" };
    vec![format!("--{name}"), format!("{value}{unit}")]
}

fn plan(model: &Path, more: &[String]) -> Output {
    let mut args = vec!["plan".to_owned(), "--model-file".to_owned(), model.display().to_string()];
    args.extend_from_slice(more);
    run(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn a_plan_that_cannot_fit_is_itemised_and_its_first_lever_is_true() {
    let Some(model) = SMOLLM2.path() else { return };
    // Weights alone are more than 64 MiB; 120 MiB hold them and a shorter context.
    for (budget, first) in [("64MiB", "budget"), ("120MiB", "max")] {
        let refused = plan(&model, &["--budget".into(), budget.into()]);
        assert!(!refused.status.success());
        let report = String::from_utf8(refused.stderr).unwrap();
        println!("{report}");
        for part in ["Weights", "total", "over by", "frees"] {
            assert!(report.contains(part), "no `{part}` in:\n{report}");
        }
        let lever = first_lever(&report);
        assert!(lever[0].contains(first), "{lever:?}");
        let mut more = vec!["--budget".to_owned(), budget.to_owned()];
        more.extend(lever.clone());
        let fits = plan(&model, &more);
        assert!(fits.status.success(), "{lever:?}: {}", String::from_utf8_lossy(&fits.stderr));
    }
}

#[test]
fn a_start_measures_its_reserve_and_the_next_one_plans_with_it() {
    let file = Temporary::new("reserve.gguf", &tiny());
    let reserve = Temporary::new("reserve", b"");
    std::fs::remove_file(reserve.path()).unwrap();
    let start = || {
        let size = ["--max-seq-len", "128", "--prefill-chunk", "16", "--threads", "2", "--max-tokens", "4"];
        let args = ["demo", "--model-file", file.text(), "--raw", "--prompt", "a", "--reserve-file", reserve.text()];
        let Output { status, stdout, stderr } = run(&[&args[..], &size].concat());
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).unwrap()
    };
    let first = start();
    if !first.contains("library reserve: ") {
        return println!("skipped: the system does not say what is resident");
    }
    assert!(first.contains("measured, kept for the next start") && !first.contains("(remembered)"), "{first}");
    let kept = std::fs::read_to_string(reserve.path()).unwrap();
    let bytes: u64 = kept.lines().nth(1).and_then(|line| line.rsplit('\t').next()?.parse().ok()).expect("an entry");
    // Two threads and a heap: something, and far from what the model takes on a real machine.
    assert!((4096..64 << 20).contains(&bytes), "{kept}");
    let second = start();
    assert!(second.contains("library reserve (remembered)") && second.contains(" planned"), "{second}");
    // A file that was damaged is said to be, ignored, and written anew.
    std::fs::write(reserve.path(), kept.replace('\t', " ")).unwrap();
    let third = start();
    assert!(third.contains("warning: reserve file") && third.contains("kept for the next start"), "{third}");
    assert!(start().contains("library reserve (remembered)"));
    // Where it cannot be kept, who asks is answered all the same.
    let size = ["--max-seq-len", "128", "--prefill-chunk", "16", "--threads", "2", "--max-tokens", "4"];
    let args = ["demo", "--model-file", file.text(), "--raw", "--prompt", "a", "--reserve-file", "/nowhere/reserve"];
    let Output { status, stdout, stderr } = run(&[&args[..], &size].concat());
    let (said, warned) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success() && said.contains("allocations while serving"), "{said}{warned}");
    assert!(warned.contains("/nowhere/reserve: cannot be written") && warned.contains("name a file"), "{warned}");
}

#[test]
fn absurd_values_are_refused_before_anything_is_loaded() {
    let absurd = usize::MAX.to_string();
    let Output { status, stderr, .. } = run(&["bench", "--model-file", "/nowhere.gguf", "--prefill", &absurd]);
    let said = String::from_utf8_lossy(&stderr);
    assert!(status.code() == Some(1) && said.contains(&absurd) && said.contains("raise --max-seq-len"), "{said}");
    for (flag, value) in [("--temperature", "nan"), ("--temperature", "-1"), ("--top-p", "0"), ("--top-p", "inf")] {
        let said = refused(&["demo", "--model-file", "/nowhere.gguf", flag, value]);
        assert!(said.contains(flag.trim_start_matches('-')) && said.contains(": use "), "{said}");
    }
    let file = Temporary::new("absurd.gguf", &tiny());
    let size = ["--max-seq-len", "64", "--prefill-chunk", "16", "--threads", "1", "--raw", "--prompt", "a"];
    let demo = |more: &[&str]| run(&[&["demo", "--model-file", file.text()][..], &size, more].concat());
    // As much as there is room for.
    let Output { status, stderr, .. } = demo(&["--max-tokens", &absurd]);
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
}
