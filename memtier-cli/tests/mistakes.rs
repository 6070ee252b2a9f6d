//! Wrong uses: each is one line that names the value and the remedy, and exit code 2.

mod support;

use memtier_model::TensorType;
use support::zoo::{self, QWEN3_0_6B};
use support::{Folder, error, memtier};

fn one_line(text: &str, parts: &[&str]) {
    assert!(!text.trim_end().contains('\n'), "{text}");
    for part in parts {
        assert!(text.contains(part), "{text:?} lacks {part:?}");
    }
}

#[test]
fn flags_and_values_are_corrected() {
    let folder = Folder::new();
    let model = folder.model("m", &zoo::qwen3(QWEN3_0_6B, TensorType::Q8_0));
    let rows: &[(&str, &[&str])] = &[
        ("plan @ --max-bach 4", &["--max-bach", "did you mean --max-batch"]),
        ("plan @ --max-batch 0", &["--max-batch", "\"0\"", "1 or more"]),
        ("plan @ --max-batch -3", &["--max-batch", "-3"]),
        ("plan @ --max-batch 99999999999999999999", &["--max-batch", "64 bits"]),
        ("plan @ --max-seq-len 32k", &["--max-seq-len", "32768"]),
        ("plan @ --vram-budget 32GB", &["32GB", "32GiB", "30517MiB"]),
        ("plan @ --vram-budget 32607", &["32607", "32607MiB"]),
        ("plan @ --vram-budget 0MiB", &["0MiB", "above 0"]),
        ("plan @ --kv-dtype fp4", &["fp4", "fp8"]),
        ("plan @ --kv-dtype q8", &["q8", "q8_0"]),
        ("plan @ --lock max-seq-length", &["max-seq-length", "max-seq-len"]),
        ("plan @ --device RTX~4900", &["RTX 4900", "RTX 4090"]),
        ("plan @ --fit contxt", &["contxt", "context"]),
        ("plan @ --gpu-layers most", &["most", "auto"]),
        ("plan @ --vram-budget", &["--vram-budget", "value"]),
        ("plan @ --vram-budget 8GiB --fit batch --lock max-batch", &["--fit", "--lock"]),
        ("plan @ --device H200 --vram-budget 8GiB,8GiB,8GiB", &["1 devices", "3 budgets"]),
        ("plan @ --vram-budget 8GiB,8GiB --gpu-layers 3", &["--gpu-layers", "one device"]),
        ("plan @ --accounting vllm", &["vllm", "--vram-budget"]),
        ("plan @ --accounting lama.cpp", &["lama.cpp", "llama.cpp"]),
        ("plan", &["0 models", "memtier plan MODEL"]),
        ("plan @ @", &["2 models", "memtier plan MODEL"]),
        ("compare @", &["1 models", "memtier compare A B"]),
        ("plann @", &["plann", "plan"]),
        ("--json", &["--json", "memtier plan MODEL"]),
        ("completions tcsh", &["tcsh", "bash, zsh, fish"]),
    ];
    for (words, parts) in rows {
        one_line(&error(memtier(words, &[&model, &model])), parts);
    }
}

#[test]
fn paths_are_said_to_be_what_they_are() {
    let folder = Folder::new();
    folder.model("model", &zoo::qwen3(QWEN3_0_6B, TensorType::Q8_0));
    let page = folder.write("page.gguf", "<!DOCTYPE html><html>403 Forbidden</html>");
    let pointer = folder.write("pointer.gguf", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n");
    let empty = folder.write("empty.gguf", "");
    let archive = folder.write("model.zip", b"PK\x03\x04rest of an archive");
    let cut = folder.model("cut", &zoo::qwen3(QWEN3_0_6B, TensorType::Q8_0));
    std::fs::File::options().write(true).open(&cut).and_then(|file| file.set_len(1 << 20)).expect("cut short");
    let shard = folder.write("model-00001.safetensors", "x");
    let nothing = folder.join("nothing");
    std::fs::create_dir(&nothing).expect("a folder");

    let rows: &[(&std::path::Path, &[&str])] = &[
        (&folder.join("modell.gguf"), &["modell.gguf", "did you mean", "model.gguf"]),
        (&folder.join("zzzzzz"), &["zzzzzz", "check the path"]),
        (folder.path(), &["is a folder", ".gguf"]),
        (&nothing, &["config.json"]),
        (&page, &["web page", "page.gguf"]),
        (&pointer, &["Git LFS", "git lfs pull"]),
        (&empty, &["empty.gguf", "truncated"]),
        (&archive, &["zip archive"]),
        (&cut, &["cut.gguf", "incomplete", "fetch"]),
        (&shard, &["give its folder"]),
    ];
    for (path, parts) in rows {
        one_line(&error(memtier("plan @", &[path])), parts);
    }
}

#[test]
fn a_missing_part_of_a_split_model_is_named() {
    let folder = Folder::new();
    let mut model = zoo::qwen3(QWEN3_0_6B, TensorType::Q8_0);
    let tensors = 11 * 28 + 2;
    model.file.u32("split.no", 0).u32("split.count", 2).u32("split.tensors.count", tensors + 1);
    let first = folder.model("m-00001-of-00002", &model);
    one_line(&error(memtier("plan @", &[&first])), &["m-00002-of-00002.gguf", "No such file"]);
    let renamed = folder.model("m", &model);
    one_line(&error(memtier("plan @", &[&renamed])), &["part 1 of 2", "-00001-of-00002.gguf"]);

    let mut second = memtier_model::write::GgufWriter::new();
    second.u32("split.no", 1).u32("split.count", 2).u32("split.tensors.count", tensors + 1);
    second.hole("blk.0.extra.weight", &[32], TensorType::F32).expect("a tensor");
    folder.write("m-00002-of-00002.gguf", second.to_bytes());
    let text = support::fits(memtier("plan @ --vram-budget 4GiB", &[&first]));
    assert!(text.contains(&format!("{} tensors", tensors + 1)), "{text}");
}

#[test]
fn files_that_are_no_model_say_where_they_belong() {
    let folder = Folder::new();
    let model = folder.model("m", &zoo::qwen3(QWEN3_0_6B, TensorType::Q8_0));
    let mut projector = memtier_model::write::GgufWriter::new();
    projector.string("general.architecture", "clip").string("general.type", "mmproj");
    let projector = folder.write("mmproj.gguf", projector.to_bytes());
    one_line(&error(memtier("plan @", &[&projector])), &["vision projector", "--mmproj"]);
    one_line(&error(memtier("plan @ --mmproj @", &[&model, &model])), &["--mmproj", "qwen3"]);
    one_line(&error(memtier("plan @ --lora @", &[&model, &projector])), &["--lora", "lora"]);

    let mut odd = memtier_model::write::GgufWriter::new();
    odd.string("general.architecture", "rwkv9").u32("rwkv9.block_count", 4).u32("rwkv9.embedding_length", 64);
    let odd = folder.write("odd.gguf", odd.to_bytes());
    one_line(&error(memtier("plan @", &[&odd])), &["rwkv9", "no attention heads", "llama"]);
}
