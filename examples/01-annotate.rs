//! Annotate a struct of buffers: it is priced, owned, and knows its fields.

use memtier::{Packed, PackedFormat, Q4_1, Storage, bf16, tier};

/// The numbers that shapes are made of.
#[derive(Clone, Copy)]
struct Dims {
    hidden: usize,
    heads: usize,
    head_dim: usize,
    layers: usize,
    vocab: usize,
    max_batch: usize,
    head: Head,
}

/// A format that only the model file knows.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Head {
    F32,
    Bytes,
}

impl PackedFormat for Head {
    fn bytes(&self, shape: &[usize]) -> Option<memtier::Bytes> {
        let elements = shape.iter().try_fold(1u64, |product, dim| product.checked_mul(*dim as u64))?;
        let bytes = elements.checked_mul(match self {
            Head::F32 => 4,
            Head::Bytes => 1,
        })?;
        Some(memtier::Bytes::new(bytes))
    }
}

/// One layer. Block types are sized in blocks: 32 elements in 20 bytes.
#[tier(ModelResident, dims = Dims)]
struct Layer {
    #[shape(hidden)]
    norm: f32,
    #[shape(heads * head_dim, hidden)]
    query: Q4_1,
}

/// A model: nested storages, as many as the dims say.
#[tier(ModelResident, dims = Dims)]
struct Weights {
    #[shape(vocab, hidden)]
    #[format(head)]
    embed: Packed<Head>,
    layers: [Layer; layers],
}

/// What steps write.
#[tier(EnginePersistent, dims = Dims)]
struct Workspace {
    #[shape(max_batch, hidden)]
    hidden: bf16,
    #[shape(max_batch, vocab)]
    #[align(512)]
    logits: f32,
}

fn main() -> Result<(), memtier::SizeError> {
    let dims = Dims { hidden: 576, heads: 9, head_dim: 64, layers: 2, vocab: 1000, max_batch: 4, head: Head::Bytes };
    println!("Weights: {}, Workspace: {}", Weights::price(&dims)?, Workspace::price(&dims)?);
    for field in <Weights as Storage>::fields(&dims)? {
        println!("  {:<18} {:<6} {:?} at {}: {}", field.name, field.element, field.shape, field.offset, field.bytes);
    }
    // The format is part of the price.
    let plain = Dims { head: Head::F32, ..dims };
    assert!(Weights::price(&plain)? > Weights::price(&dims)?);
    // A size that cannot be is an error that names the field, wherever it hides.
    let absurd = Dims { vocab: usize::MAX, ..dims };
    println!("absurd: {}", Weights::price(&absurd).unwrap_err());
    Ok(())
}
