//! What a KV cache costs in memtier's own paged layout.

/// Element type of a KV cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum KvDtype {
    /// 32-bit floats.
    F32,
    /// 16-bit floats.
    F16,
    /// 16-bit brain floats.
    Bf16,
    /// 8-bit floats without scales.
    Fp8,
    /// GGUF `Q8_0`: 32 elements in 34 bytes.
    Q8_0,
    /// GGUF `Q4_0`: 32 elements in 18 bytes.
    Q4_0,
}

impl KvDtype {
    /// Every element type, largest first.
    pub const ALL: [KvDtype; 6] =
        [KvDtype::F32, KvDtype::F16, KvDtype::Bf16, KvDtype::Q8_0, KvDtype::Fp8, KvDtype::Q4_0];
}
