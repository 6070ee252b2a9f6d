//! What the command prints, and that what it prints is true.

mod support;

use memtier_model::TensorType::{self, F16, Q8_0};
use memtier_model::write::GgufWriter;
use support::zoo::{self, *};
use support::{Folder, fits, memtier, refused};

#[test]
fn the_reference_card_gets_the_blocks_it_can_use() {
    // Qwen3-4B Q8_0 on 32,607 MiB, 8 x 4096 in fp8, blocks of 16: 2048 blocks, 2304 MiB, weights 4076 MiB.
    let folder = Folder::new();
    let model = folder.model("qwen3-4b", &qwen3(QWEN3_4B, Q8_0));
    let words = "plan @ --vram-budget 32607MiB --max-batch 8 --max-seq-len 4096 --kv-dtype fp8 --block-size 16 \
                 --library-reserve 3900 --context-reserve 1680";
    let text = fits(memtier(words, &[&model]));
    assert!(text.contains("4076.43 MiB of weights"), "{text}");
    assert!(text.contains("2304   2048 of 2048 blocks, 32768 tokens"), "{text}");
    assert!(text.contains("Fits the 32607 MiB budget"), "{text}");
}

#[test]
fn every_printed_lever_is_true() {
    let folder = Folder::new();
    let model = folder.model("m", &qwen3(QWEN3_4B, Q8_0));
    let base = "plan @ --max-batch 64 --max-seq-len 32768";
    let text = refused(memtier(&format!("{base} --vram-budget 8GiB"), &[&model]));
    for (lever, flags) in [
        ("kv_dtype f16 -> q8_0", "--kv-dtype q8_0"),
        ("gpu_layers 36 -> 31", "--gpu-layers 31"),
        ("max_seq_len 32768 -> 22528", "--max-seq-len 22528"),
    ] {
        let line = text.lines().find(|line| line.contains(lever)).unwrap_or_else(|| panic!("{lever} in\n{text}"));
        assert!(line.ends_with("fits"), "{line}");
        // The last of a repeated flag counts.
        fits(memtier(&format!("{base} --vram-budget 8GiB {flags}"), &[&model]));
    }
    let line = text.lines().find(|line| line.contains("budget 8192 MiB ->")).expect("a budget");
    let enough: u64 =
        line.split("-> ").nth(1).and_then(|rest| rest.split(' ').next()).and_then(|n| n.parse().ok()).expect("MiB");
    fits(memtier(&format!("{base} --vram-budget {enough}MiB"), &[&model]));
    refused(memtier(&format!("{base} --vram-budget {}MiB", enough - 1), &[&model]));
}

#[test]
fn a_locked_lever_is_named_and_not_pulled() {
    let folder = Folder::new();
    let model = folder.model("m", &qwen3(QWEN3_4B, Q8_0));
    let words = "plan @ --max-batch 64 --max-seq-len 32768 --vram-budget 8GiB --lock max-seq-len,kv_dtype";
    let text = refused(memtier(words, &[&model]));
    let (levers, locked) = text.split_once("locked by the user").expect("a section of its own");
    assert!(!levers.contains("max_seq_len 32768 ->") && !levers.contains("kv_dtype f16 ->"), "{text}");
    assert!(locked.contains("max_seq_len stays at 32768") && locked.contains("kv_dtype stays at f16"), "{text}");
}

#[test]
fn what_fit_finds_fits_and_one_more_does_not() {
    let folder = Folder::new();
    let model = folder.model("m", &qwen3_30b_a3b(TensorType::Q4_K));
    let number = |text: &str, before: &str| -> u64 {
        let rest = text.split(before).nth(1).unwrap_or_else(|| panic!("{before} in {text}"));
        rest.split(|letter: char| !letter.is_ascii_digit()).next().and_then(|n| n.parse().ok()).expect("a number")
    };
    let whole = |text: &str| {
        text.lines().find(|line| line.contains(" KV ")).is_some_and(|line| {
            let counts: Vec<&str> =
                line.split_whitespace().filter(|word| word.bytes().all(|byte| byte.is_ascii_digit())).collect();
            counts[1] == counts[2]
        })
    };
    let budget = "--vram-budget 24564MiB";
    let context = number(
        &fits(memtier(&format!("plan @ {budget} --max-batch 2 --fit context"), &[&model])),
        "context that fits is ",
    );
    assert!(whole(&fits(memtier(&format!("plan @ {budget} --max-batch 2 --max-seq-len {context}"), &[&model]))));
    assert!(!whole(&fits(memtier(
        &format!("plan @ {budget} --max-batch 2 --max-seq-len {}", context + 16),
        &[&model]
    ))));

    let batch = number(&fits(memtier(&format!("plan @ {budget} --fit batch"), &[&model])), "batch that fits is ");
    assert!(whole(&fits(memtier(&format!("plan @ {budget} --max-batch {batch}"), &[&model]))));
    assert!(!whole(&fits(memtier(&format!("plan @ {budget} --max-batch {}", batch + 1), &[&model]))));

    let text = fits(memtier(&format!("plan @ {budget} --max-batch 4 --max-seq-len 32768 --fit kv"), &[&model]));
    assert!(text.contains("most precise KV that fits is q8_0"), "{text}");
}

#[test]
fn auto_layers_are_a_prefix_and_more_than_the_rule_never() {
    let folder = Folder::new();
    let model = folder.model("m", &qwen3(QWEN3_4B, Q8_0));
    // 102.3 MiB a layer; 9/16 of 4096 MiB hold 22 of them.
    let text = fits(memtier("plan @ --vram-budget 4096MiB --gpu-layers auto", &[&model]));
    assert!(text.contains("weights, layers on the CPU"), "{text}");
    let json = fits(memtier("plan @ --vram-budget 4096MiB --gpu-layers auto --json", &[&model]));
    assert!(json.contains("\"gpu_layers\":22"), "{json}");
    let json = fits(memtier("plan @ --vram-budget 16GiB --gpu-layers auto --json", &[&model]));
    assert!(json.contains("\"gpu_layers\":36"), "{json}");
}

#[test]
fn several_devices_hold_all_layers_and_tensor_parts_repeat_what_is_whole() {
    let folder = Folder::new();
    let model = folder.model("m", &qwen3_30b_a3b(TensorType::Q4_K));
    let parse = |text: &str| -> serde_json::Value { serde_json::from_str(text).expect("JSON") };
    let json = parse(&fits(memtier("plan @ --vram-budget 24GiB,12GiB --json", &[&model])));
    let part = |device: usize, key: &str| json["devices"][device]["part"][key].as_u64().expect("a number");
    assert_eq!(part(0, "layers") + part(1, "layers"), 48);
    assert_eq!((part(0, "first_layer"), part(1, "first_layer")), (0, part(0, "layers")));
    assert!(part(0, "layers") > 30 && part(0, "layers") < 36, "{json}");

    let alone = parse(&fits(memtier("plan @ --vram-budget 48GiB --json", &[&model])));
    let halves = parse(&fits(memtier("plan @ --device 2xL40S --split tensor --json", &[&model])));
    let line = |json: &serde_json::Value, device: usize, name: &str| -> u64 {
        let lines = json["devices"][device]["plan"]["lines"].as_array().expect("lines");
        lines.iter().find(|line| line["name"] == name).map_or(0, |line| line["granted"].as_u64().expect("bytes"))
    };
    for name in ["weights, experts", "KV"] {
        assert_eq!(2 * line(&halves, 0, name), line(&alone, 0, name), "{name}");
    }
    // Norms and routers are on both: more than half of the rest, and not much more.
    let (half, all) = (line(&halves, 0, "weights, layers"), line(&alone, 0, "weights, layers"));
    assert!(2 * half > all && 10 * half < 6 * all, "{half} of {all}");
    assert!(line(&halves, 1, "collective buffers") == 2 * 512 * 2048 * 4);
    assert_eq!(line(&alone, 0, "collective buffers"), 0);

    // Several devices share all layers: leaving some to the host is no lever of one of them.
    let text = refused(memtier("plan @ --vram-budget 6GiB,6GiB", &[&model]));
    assert!(text.contains("max_seq_len") && !text.contains("gpu_layers"), "{text}");
    let text = refused(memtier("plan @ --vram-budget 12GiB", &[&model]));
    assert!(text.contains("gpu_layers"), "{text}");
}

#[test]
fn projectors_adapters_and_drafts_are_charged() {
    let folder = Folder::new();
    let model = folder.model("m", &gemma("gemma3", GEMMA_3_4B));
    let mut tower = GgufWriter::new();
    tower.string("general.architecture", "clip").u32("clip.vision.image_size", 896).u32("clip.vision.patch_size", 14);
    tower.u32("clip.vision.embedding_length", 1152).u32("clip.vision.feed_forward_length", 4304);
    tower.u32("clip.vision.attention.head_count", 16).u32("clip.vision.projection_dim", 2560);
    tower.hole("v.blk.0.attn_q.weight", &[1152, 1152], F16).expect("a tensor");
    let tower = folder.write("mmproj.gguf", tower.to_bytes());
    let text = fits(memtier("plan @ --mmproj @ --vram-budget 24GiB", &[&model, &tower]));
    assert!(text.contains("vision tower") && text.contains("vision scratch, one image"), "{text}");
    let text = fits(memtier("plan @ --mmproj @ --no-vision --vram-budget 24GiB", &[&model, &tower]));
    assert!(!text.contains("  vision"), "{text}");

    let mut lora = GgufWriter::new();
    lora.string("general.architecture", "gemma3").string("general.type", "adapter").string("adapter.type", "lora");
    lora.string("general.name", "pirate").hole("blk.0.attn_q.weight.lora_a", &[2560, 16], F16).expect("a tensor");
    let lora = folder.write("lora.gguf", lora.to_bytes());
    let text = fits(memtier("plan @ --lora @ --vram-budget 24GiB", &[&model, &lora]));
    assert!(text.contains("LoRA adapter pirate") && text.contains("81920 bytes"), "{text}");

    let air = folder.model("air", &glm_4_5_air());
    let without = fits(memtier("plan @ --vram-budget 300GiB", &[&air]));
    let with = fits(memtier("plan @ --vram-budget 300GiB --speculative-depth 1", &[&air]));
    assert!(!without.contains("weights, draft layers") && with.contains("weights, draft layers"), "{with}");
    let drafts = glm_4_5_air().layout().weight_bytes(|weight| weight.place == memtier_model::layout::Place::Draft);
    let json = fits(memtier("plan @ --vram-budget 300GiB --speculative-depth 1 --json", &[&air]));
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let lines = json["devices"][0]["plan"]["lines"].as_array().expect("lines");
    let line = lines.iter().find(|line| line["name"] == "weights, draft layers").expect("a line");
    assert!(drafts > 1 << 30 && line["granted"].as_u64() == Some(drafts), "{line}");
}

#[test]
fn an_unknown_architecture_is_planned_with_a_warning() {
    let folder = Folder::new();
    let mut file = GgufWriter::new();
    file.string("general.architecture", "newllm").u32("newllm.block_count", 2).u32("newllm.embedding_length", 64);
    file.u32("newllm.attention.head_count", 4).u32("newllm.attention.head_count_kv", 2);
    file.u32("newllm.feed_forward_length", 96).hole("token_embd.weight", &[64, 100], F16).expect("a tensor");
    let path = folder.write("new.gguf", file.to_bytes());
    let text = fits(memtier("plan @ --vram-budget 2GiB", &[&path]));
    assert!(text.contains("warning: architecture \"newllm\" is not known here"), "{text}");
}

#[test]
fn a_plan_is_made_in_milliseconds_and_reads_no_weights() {
    let folder = Folder::new();
    let model = folder.model("m", &deepseek_v3());
    let start = std::time::Instant::now();
    refused(memtier("plan @ --device H200 --max-batch 16", &[&model]));
    // 1.3 TB of weights; generous for a machine that does other things, and far below reading any of them.
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
    if std::env::var_os("MEMTIER_TIMES").is_some() {
        assert!(start.elapsed().as_millis() < 100, "{:?}", start.elapsed());
    }
}

#[test]
fn accounting_prints_what_other_engines_print() {
    let folder = Folder::new();
    let jamba = folder.model("jamba", &jamba_v0_1());
    let text = fits(memtier("plan @ --accounting llama.cpp --max-batch 8 --max-seq-len 4096", &[&jamba]));
    assert!(text.contains("512.00 MiB") && text.contains("133.00 MiB"), "{text}");
    let llama = folder.model("llama", &llama(LLAMA_3_2_3B, F16, true));
    let text = fits(memtier("plan @ --accounting llama.cpp --kv-dtype q8_0,f16", &[&llama]));
    assert!(text.contains("K (q8_0) 119.00, V (f16) 224.00"), "{text}");
    let qwen = folder.model("qwen", &zoo::qwen3_6_35b_a3b());
    let words = "plan @ --accounting vllm --vram-budget 5.98GiB --kv-dtype fp8 --max-seq-len 131072";
    let text = fits(memtier(words, &[&qwen]));
    assert!(text.contains("567978 tokens, 4.33 requests"), "{text}");
}

#[test]
fn two_models_are_compared_line_by_line() {
    let folder = Folder::new();
    let (a, b) = (folder.model("a", &gemma("gemma3", GEMMA_3_270M)), folder.model("b", &gemma("gemma3", GEMMA_3_4B)));
    let text = fits(memtier("compare @ @ --vram-budget 24GiB", &[&a, &b]));
    let row = |name: &str| text.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{name} in\n{text}"));
    assert!(row("KV, window of 1024").contains('+') && row("KV, window of 512").contains('-'), "{text}");
    refused(memtier("compare @ @ --vram-budget 2GiB", &[&a, &b]));
}

#[test]
fn help_completions_and_colours() {
    let help = fits(memtier("plan --help", &[]));
    for (flag, _) in memtier_cli::args::FLAGS.iter().filter(|flag| !matches!(flag.0, "help" | "version")) {
        assert!(help.contains(&format!("--{flag}")), "--{flag} is not in the help");
        for shell in ["bash", "zsh", "fish"] {
            assert!(fits(memtier(&format!("completions {shell}"), &[])).contains(flag), "{flag} in {shell}");
        }
    }
    let folder = Folder::new();
    let model = folder.model("m", &qwen3(QWEN3_0_6B, Q8_0));
    assert!(!fits(memtier("plan @ --vram-budget 4GiB", &[&model])).contains('\x1b'), "this is no terminal");
    assert!(fits(memtier("plan @ --vram-budget 4GiB --color always", &[&model])).contains("\x1b[1;32m"));
}
