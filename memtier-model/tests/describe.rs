//! What descriptions say: small files written here, and the two real models where they are at hand.

use std::path::PathBuf;

use memtier_model::describe::*;
use memtier_model::write::{GgufWriter, TinyModel};
use memtier_model::{Gguf, MetadataError};

fn describe(file: &GgufWriter) -> Result<ModelDescription, DescribeError> {
    let bytes = file.to_bytes();
    ModelDescription::from_gguf(&Gguf::from_bytes(&bytes).expect("the file itself is sound"))
}

fn tiny(model: &TinyModel) -> GgufWriter {
    model.to_gguf().unwrap()
}

/// A llama of the smallest size, with keys of the test's own.
fn llama(keys: impl Fn(&mut GgufWriter)) -> Result<ModelDescription, DescribeError> {
    let mut file = GgufWriter::new();
    file.string("general.architecture", "llama");
    keys(&mut file);
    describe(&file)
}

#[test]
fn a_llama_is_described_layer_by_layer() {
    let model = describe(&tiny(&TinyModel::llama(1))).unwrap();
    assert_eq!(model.architecture, Architecture::Llama);
    assert_eq!((model.vocab_size, model.hidden_size, model.context_length), (288, 64, 256));
    assert!(model.tied_embeddings);
    assert_eq!(model.embedding_scale, 1.0);
    assert_eq!(model.layers.len(), 2);
    let attention = model.layers[1].attention().unwrap();
    assert_eq!((attention.heads, attention.kv_heads, attention.key_dim, attention.value_dim), (4, 2, 16, 16));
    assert_eq!(attention.span, AttentionSpan::Full);
    assert_eq!(attention.rope.layout, RopeLayout::Interleaved);
    assert_eq!(attention.scale, 0.25);
    assert_eq!(model.kv_elements_per_token(), 2 * 2 * 32);
}

#[test]
fn gemma_3_has_a_window_on_all_but_every_sixth_layer_without_saying_so() {
    let model = describe(&tiny(&TinyModel::gemma3(1))).unwrap();
    let spans: Vec<_> = model.layers.iter().map(|layer| layer.attention().unwrap().span).collect();
    let window = AttentionSpan::Window { tokens: 8 };
    assert_eq!(spans, [window, window, window, window, window, AttentionSpan::Full, window]);
    let base = |layer: usize| model.layers[layer].attention().unwrap().rope.base;
    assert_eq!((base(0), base(5)), (10_000.0, 10_000.0));
    assert_eq!(model.embedding_scale, 8.0);
    assert_eq!(model.norm_placement, NormPlacement::PreAndPost);
}

#[test]
fn a_window_pattern_is_read_as_a_period_or_layer_by_layer() {
    let spans = |keys: &dyn Fn(&mut GgufWriter)| {
        let mut file = tiny(&TinyModel { layers: 4, ..TinyModel::gemma3(1) });
        keys(&mut file);
        let full = |layer: &Layer| layer.attention().unwrap().span == AttentionSpan::Full;
        describe(&file).map(|model| model.layers.iter().map(full).collect::<Vec<_>>())
    };
    const KEY: &str = "gemma3.attention.sliding_window_pattern";
    assert_eq!(
        spans(&|file| {
            file.u32(KEY, 2);
        })
        .unwrap(),
        [false, true, false, true]
    );
    assert_eq!(
        spans(&|file| {
            file.bools(KEY, &[false, true, true, false]);
        })
        .unwrap(),
        [true, false, false, true]
    );
    let short = spans(&|file| {
        file.bools(KEY, &[false]);
    });
    let expected = MetadataError::NotPerLayer { key: KEY.into(), found: 1, layers: 4 };
    assert_eq!(short, Err(DescribeError::Metadata(expected)));
}

#[test]
fn missing_tensors_are_all_named_and_wrong_shapes_too() {
    let result = llama(|file| {
        for (key, value) in [("block_count", 1), ("embedding_length", 4), ("feed_forward_length", 8)] {
            file.u32(&format!("llama.{key}"), value);
        }
        file.u32("llama.attention.head_count", 2).u32("llama.context_length", 16);
        file.f32("llama.attention.layer_norm_rms_epsilon", 1e-5).u32("llama.vocab_size", 3);
        file.tensor_f32("blk.0.attn_norm.weight", &[5], &[0.0; 5]).unwrap();
    });
    let Err(error @ DescribeError::Tensors { .. }) = result else { panic!("{result:?}") };
    let text = error.to_string();
    // Key length 2 is derived from 4 elements over 2 heads, key-value heads from query heads.
    assert!(text.contains("\"token_embd.weight\" [4, 3] is missing"), "{text}");
    assert!(text.contains("\"blk.0.attn_norm.weight\" is [5] where [4] belongs"), "{text}");
    assert!(text.contains("\"blk.0.attn_q.weight\" [4, 4] is missing"), "{text}");
    let DescribeError::Tensors { problems, .. } = error else { unreachable!() };
    assert_eq!(problems.len(), 11);
}

#[test]
fn keys_that_are_missing_or_out_of_range_are_named() {
    let missing = |key: &str| Err(DescribeError::Metadata(MetadataError::Missing { key: key.into() }));
    assert_eq!(describe(&GgufWriter::new()), missing("general.architecture"));
    assert_eq!(llama(|_| ()), missing("llama.block_count"));
    let text = llama(|file| {
        file.u32("llama.block_count", u32::MAX);
    })
    .unwrap_err()
    .to_string();
    assert!(text.contains("llama.block_count") && text.contains("4294967295"), "{text}");
    let text = llama(|file| {
        file.u32("llama.expert_count", 8);
    })
    .unwrap_err()
    .to_string();
    assert!(text.contains("mixture of experts"), "{text}");
    let text = describe(&tiny(&TinyModel { heads: 3, ..TinyModel::llama(1) })).unwrap_err().to_string();
    assert!(text.contains("head_count 3 of layer 0") && text.contains("head_count_kv 2"), "{text}");
}

#[test]
fn an_unknown_architecture_names_itself_and_those_that_are_known() {
    let error = describe(GgufWriter::new().string("general.architecture", "rwkv9")).unwrap_err();
    assert_eq!(error, DescribeError::UnknownArchitecture { name: "rwkv9".into(), supported: vec!["gemma3", "llama"] });
}

/// The real model of this file name, or `None` with a line that says why the test is skipped.
fn real(file: &str) -> Option<ModelDescription> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/memtier"));
    let path = std::env::var_os("MEMTIER_CACHE").map(PathBuf::from).or_else(home)?.join(file);
    if !path.exists() {
        println!("skipped: {} is not there (cargo xtask demo fetches it)", path.display());
        return None;
    }
    let start = std::time::Instant::now();
    let model = Gguf::open(&path).unwrap();
    println!("{file}: header of {} bytes read in {:?}", model.parts()[0].header_len(), start.elapsed());
    Some(ModelDescription::from_gguf(&model).unwrap())
}

#[test]
fn smollm2_135m_is_described() {
    let Some(model) = real("smollm2-135m-instruct-q4_1.gguf") else { return };
    assert_eq!((model.vocab_size, model.hidden_size, model.context_length), (49_152, 576, 8192));
    assert_eq!(model.layers.len(), 30);
    let attention = model.layers[29].attention().unwrap();
    assert_eq!((attention.heads, attention.kv_heads, attention.key_dim), (9, 3, 64));
    assert_eq!(attention.rope.base, 100_000.0);
    assert!(model.tied_embeddings);
}

#[test]
fn gemma_3_270m_is_described() {
    let Some(model) = real("gemma-3-270m-q4_k_m.gguf") else { return };
    assert_eq!((model.vocab_size, model.hidden_size, model.layers.len()), (262_144, 640, 18));
    let full: Vec<_> =
        (0..18).filter(|&layer| model.layers[layer].attention().unwrap().span == AttentionSpan::Full).collect();
    assert_eq!(full, [5, 11, 17]);
    let rope = |layer: usize| model.layers[layer].attention().unwrap().rope;
    assert_eq!((rope(0).base, rope(5).base, rope(5).dims), (10_000.0, 1_000_000.0, 256));
    assert_eq!(model.layers[0].attention().unwrap().span, AttentionSpan::Window { tokens: 512 });
    assert_eq!(model.layers[0].attention().unwrap().scale, 1.0 / 16.0);
}
