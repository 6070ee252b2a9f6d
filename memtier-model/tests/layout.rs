//! What layers keep, where files say it in a way of their own or not at all.

mod zoo;

use memtier_model::layout::{LayoutError, LayoutWarning, ModelLayout, known_architectures};
use memtier_model::write::{GgufWriter, TinyModel};
use memtier_model::{Gguf, ModelDescription};
use zoo::Model;

/// Small attention of an architecture: `layers` of 4 heads of 16, 2 of them key-value heads.
fn small(arch: &'static str, layers: u64) -> Model {
    let mut model = Model::new(arch, layers, 64, 100, 4096);
    model.heads(4, 2, 16, 16).number("feed_forward_length", 96);
    model
}

fn refused(model: &Model) -> LayoutError {
    zoo::layout(&model.file).expect_err("refused")
}

/// Which layers cache, and which of those have a window.
fn caches(layout: &ModelLayout) -> String {
    let letter = |layer: &memtier_model::layout::LayerMemory| match (layer.cache, layer.state) {
        (Some(cache), None) if cache.window.is_some() => 'w',
        (Some(_), None) => 'f',
        (None, Some(_)) => 'r',
        (Some(_), Some(_)) => 'b',
        (None, None) => '-',
    };
    layout.layers.iter().map(letter).collect()
}

#[test]
fn the_engine_and_the_planner_read_the_same_layers() {
    for tiny in [TinyModel { layers: 5, ..TinyModel::llama(1) }, TinyModel::gemma3(2)] {
        let bytes = tiny.to_gguf().expect("a model").to_bytes();
        let file = Gguf::from_bytes(&bytes).expect("sound");
        let (engine, planner) =
            (ModelDescription::from_gguf(&file).expect("known"), ModelLayout::from_gguf(&file).expect("known"));
        assert_eq!(engine.kv_elements_per_token(), planner.kv_elements_per_token());
        for (layer, memory) in engine.layers.iter().zip(&planner.layers) {
            let window = match layer.attention().expect("it attends").span {
                memtier_model::describe::AttentionSpan::Window { tokens } => Some(u64::from(tokens)),
                _ => None,
            };
            assert_eq!(memory.cache.expect("it caches").window, window);
        }
        assert_eq!(planner.vocab_size, u64::from(engine.vocab_size));
    }
}

#[test]
fn layers_that_read_anothers_keys_cache_nothing() {
    let mut model = small("gemma3n", 30);
    model.number("attention.sliding_window", 512);
    // Every fifth sees everything; the last ten have no cache of their own.
    assert_eq!(caches(&model.layout()), format!("{}{}", "wwwwf".repeat(4), "-".repeat(10)));
    model.number("attention.shared_kv_layers", 28);
    assert_eq!(caches(&model.layout()), format!("ww{}", "-".repeat(28)));

    let mut model = small("gemma4", 6);
    model.number("attention.sliding_window", 512).number("attention.shared_kv_layers", 2);
    model.flags("attention.sliding_window_pattern", &[true, true, false, true, true, false]);
    assert_eq!(caches(&model.layout()), "wwfw--");
}

#[test]
fn layers_that_draft_are_apart_and_attend() {
    let mut model = small("qwen35", 9);
    model.number("nextn_predict_layers", 1).number("ssm.inner_size", 64).number("ssm.state_size", 8);
    model.number("ssm.conv_kernel", 4).number("ssm.group_count", 2);
    let layout = model.layout();
    assert_eq!(caches(&layout), "rrrfrrrf");
    assert_eq!(layout.draft_layers.len(), 1);
    assert!(layout.draft_layers[0].cache.is_some() && layout.draft_layers[0].state.is_none());
    // A list may leave the drafts out.
    model.flags("attention.recurrent_layers", &[true, false, true, false, true, false, true, false]);
    let layout = model.layout();
    assert_eq!(caches(&layout), "rfrfrfrf");
    assert!(layout.draft_layers[0].cache.is_some());
    // A model of drafts alone is none.
    let mut model = small("qwen3", 2);
    model.number("nextn_predict_layers", 2);
    assert!(matches!(refused(&model), LayoutError::Inconsistent { .. }));
}

#[test]
fn per_layer_values_are_read_layer_by_layer() {
    let mut model = Model::new("deci", 4, 64, 100, 4096);
    model.numbers("attention.head_count", &[4, 0, 8, 4]).numbers("attention.head_count_kv", &[4, 0, 2, 1]);
    model.number("attention.key_length", 16).number("attention.value_length", 16);
    let kv: Vec<_> = model.layout().layers.iter().map(|layer| layer.cache.map(|cache| cache.kv_heads)).collect();
    assert_eq!(kv, [Some(4), None, Some(2), Some(1)]);
    // A key's length that nobody states is the hidden size shared out over the first heads there are.
    let mut model = Model::new("llama", 2, 64, 100, 4096);
    model.number("attention.head_count", 4);
    let cache = model.layout().layers[0].cache.expect("it attends");
    assert_eq!((cache.kv_heads, cache.key_dim, cache.value_dim), (4, 16, 16));
    model.numbers("attention.head_count_kv", &[2, 2, 2]);
    assert!(refused(&model).to_string().contains("3 values for 2 layers"));
}

#[test]
fn kimi_keeps_squares_and_latents() {
    let mut model = Model::new("kimi-linear", 4, 64, 100, 4096);
    model.number("attention.head_count", 4).numbers("attention.head_count_kv", &[0, 0, 0, 1]);
    model.number("kda.head_dim", 8).number("ssm.conv_kernel", 4).number("attention.key_length_mla", 12);
    model.number("attention.key_length", 40).number("attention.kv_lora_rank", 32);
    let layout = model.layout();
    assert_eq!(caches(&layout), "rrrf");
    let state = layout.layers[0].state.expect("it recurs");
    assert_eq!((state.conv, state.state), (3 * 3 * 32, 4 * 8 * 8));
    let cache = layout.layers[3].cache.expect("it attends");
    assert_eq!((cache.kv_heads, cache.key_dim, cache.value_dim), (1, 40, 0));
}

#[test]
fn an_index_is_in_the_layers_that_have_one() {
    let dsa = || {
        let mut model = Model::new("glm-dsa", 4, 64, 100, 4096);
        model.heads(4, 1, 40, 32).number("attention.key_length_mla", 24).number("attention.indexer.key_length", 16);
        model
    };
    let own =
        |model: &Model| model.layout().layers.iter().map(|l| l.cache.map_or(0, |c| c.indexer)).collect::<Vec<_>>();
    assert_eq!(own(&dsa()), [16; 4]);
    let mut model = dsa();
    model.vector("blk.2.indexer.k_norm.weight", 16);
    assert_eq!(own(&model), [0, 0, 16, 0]);
    let mut model = dsa();
    model.numbers("attention.indexer.types", &[1, 0, 0, 1]);
    assert_eq!(own(&model), [16, 0, 0, 16]);
}

#[test]
fn unknown_architectures_are_planned_when_they_explain_themselves() {
    let warned = |model: &Model| model.layout().warnings;
    let unknown = LayoutWarning::UnknownArchitecture { name: "newllm".into() };
    assert_eq!(warned(&small("newllm", 2)), std::slice::from_ref(&unknown));
    let mut model = small("newllm", 2);
    model.number("attention.sliding_window", 64);
    assert_eq!(warned(&model), [unknown, LayoutWarning::WindowIgnored { window: 64 }]);
    assert_eq!(caches(&model.layout()), "ff");
    model.flags("attention.sliding_window_pattern", &[true, false]);
    assert_eq!(caches(&model.layout()), "wf");

    // Recurrent layers by their tensors, by a list, or by key-value heads of zero.
    let ssm = |model: &mut Model| {
        model.number("ssm.inner_size", 64).number("ssm.state_size", 8).number("ssm.conv_kernel", 4);
    };
    let mut model = small("newllm", 3);
    ssm(&mut model);
    assert!(refused(&model).to_string().contains("does not say in which layers"));
    model.vector("blk.1.ssm_a", 4);
    assert_eq!(caches(&model.layout()), "frf");
    model.flags("attention.recurrent_layers", &[true, true, false]);
    assert_eq!(caches(&model.layout()), "rrf");
    let mut model = Model::new("newllm", 3, 64, 100, 4096);
    model.number("attention.head_count", 4).numbers("attention.head_count_kv", &[0, 2, 0]);
    ssm(&mut model);
    assert_eq!(caches(&model.layout()), "rfr");

    // What they cannot explain.
    for (key, reason) in [("attention.kv_lora_rank", "latent"), ("wkv.head_size", "recurrent state")] {
        let mut model = small("newllm", 2);
        model.number(key, 64);
        let text = refused(&model).to_string();
        assert!(text.contains("newllm") && text.contains(reason) && text.contains("qwen3next"), "{text}");
    }
}

#[test]
fn absurd_hyperparameters_are_errors() {
    for (key, value) in
        [("block_count", 0), ("block_count", 5000), ("embedding_length", 0), ("attention.key_length", u32::MAX)]
    {
        let mut file = GgufWriter::new();
        file.string("general.architecture", "llama").u32("llama.attention.head_count", 4);
        for (name, sound) in [("block_count", 2), ("embedding_length", 64)] {
            if name != key {
                file.u32(&format!("llama.{name}"), sound);
            }
        }
        file.u32(&format!("llama.{key}"), value);
        let error = zoo::layout(&file).expect_err("refused").to_string();
        assert!(error.contains(&format!("llama.{key}")) && error.contains("out of range"), "{error}");
    }
    let mut file = GgufWriter::new();
    file.string("general.architecture", "llama").string("llama.block_count", "two");
    assert!(zoo::layout(&file).expect_err("refused").to_string().contains("llama.block_count"));
}

#[test]
fn known_architectures_are_listed_once() {
    let mut names: Vec<_> = known_architectures().collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
    assert!(zoo::ALL.iter().all(|(name, model)| names.contains(&model().arch) || panic!("{name}")));
}
