//! Every kernel: its source, its name, and the arguments that its wrapper passes.

/// The kind of an argument, by its size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Param {
    /// A pointer to memory that is written.
    Out,
    /// A pointer to memory that is read.
    In,
    U32,
    U64,
    F32,
}

impl Param {
    /// Bytes of the argument.
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Param::Out | Param::In | Param::U64 => 8,
            Param::U32 | Param::F32 => 4,
        }
    }
}

/// A kernel of one of the sources.
pub(crate) struct Entry {
    /// The source, without `.cu`.
    pub(crate) file: &'static str,
    /// Its name there.
    pub(crate) name: &'static str,
    pub(crate) params: &'static [Param],
}

macro_rules! entries { ($($kernel:ident = $file:literal $name:literal ($($param:ident)*);)*) => {
    /// The kernels, by what they do.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) enum Kernel { $($kernel),* }

    /// In the order of [`Kernel`].
    pub(crate) const ENTRIES: &[Entry] = &[
        $(Entry { file: $file, name: $name, params: &[$(Param::$param),*] }),*
    ];
} }

entries! {
    ScaleF32 = "vector" "scale_f32" (Out In F32 U64);
    AddF32 = "vector" "add_f32" (Out In In U64);
    RmsNormF32 = "norm" "rms_norm_f32" (Out In In U32 F32 U32);
    RmsNormBf16 = "norm" "rms_norm_bf16" (Out In In U32 F32 U32);
    ResidualRmsNormF32 = "norm" "residual_rms_norm_f32" (Out Out In In U32 F32 U32);
    ResidualRmsNormBf16 = "norm" "residual_rms_norm_bf16" (Out Out In In U32 F32 U32);
    RmsNormWide = "norm" "rms_norm_wide" (Out In In U32 F32 U32);
    AddRmsNorm = "norm" "add_rms_norm_f32" (Out In In U32 F32 U32);
    SiluGateBf16 = "gate" "silu_gate_bf16" (Out In U32 U64);
    GeluGateBf16 = "gate" "gelu_gate_bf16" (Out In U32 U64);
    RopeAngles = "rope" "rope_angles" (Out In In U32 U64);
    RopeAnglesOf = "rope" "rope_angles_of" (Out In In U64 U64 U32 U64);
    RopeKvWriteBf16 = "rope" "rope_kv_write_bf16"
        (Out Out In In In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 U32 U32 F32 U64);
    RopeKvWriteF16 = "rope" "rope_kv_write_f16"
        (Out Out In In In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 U32 U32 F32 U64);
    RopeKvWriteF8 = "rope" "rope_kv_write_f8"
        (Out Out In In In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 U32 U32 F32 U64);
    RopeKvWriteI8 = "rope" "rope_kv_write_i8"
        (Out Out In In In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 U32 U32 F32 U64);
    RopeKvWriteF4 = "rope" "rope_kv_write_f4x2"
        (Out Out In In In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 U32 U32 F32 U64);
    DecodeD64 = "decode" "paged_decode_bf16_d64"
        (Out Out Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32);
    DecodeD128 = "decode" "paged_decode_bf16_d128"
        (Out Out Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32);
    DecodeD256 = "decode" "paged_decode_bf16_d256"
        (Out Out Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32);
    DecodeF16D64 = "decode" "paged_decode_f16_d64"
        (Out Out Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32);
    DecodeF16D128 = "decode" "paged_decode_f16_d128"
        (Out Out Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32);
    DecodeF16D256 = "decode" "paged_decode_f16_d256"
        (Out Out Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32);
    DecodeF8D64 = "decode" "paged_decode_f8_d64"
        (Out Out Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32);
    DecodeF8D128 = "decode" "paged_decode_f8_d128"
        (Out Out Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32);
    DecodeF8D256 = "decode" "paged_decode_f8_d256"
        (Out Out Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32);
    DecodeI8D64 = "decode" "paged_decode_i8_d64"
        (Out Out Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32);
    DecodeI8D128 = "decode" "paged_decode_i8_d128"
        (Out Out Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32);
    DecodeI8D256 = "decode" "paged_decode_i8_d256"
        (Out Out Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32);
    DecodeF4D64 = "decode" "paged_decode_f4x2_d64"
        (Out Out Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32);
    DecodeF4D128 = "decode" "paged_decode_f4x2_d128"
        (Out Out Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32);
    DecodeF4D256 = "decode" "paged_decode_f4x2_d256"
        (Out Out Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32);
    DecodeWide = "decode" "paged_decode_bf16_d128_wide"
        (Out Out Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32);
    DecodeF16Wide = "decode" "paged_decode_f16_d128_wide"
        (Out Out Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32);
    DecodeF8Wide = "decode" "paged_decode_f8_d128_wide"
        (Out Out Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32);
    DecodeI8Wide = "decode" "paged_decode_i8_d128_wide"
        (Out Out Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32);
    DecodeF4Wide = "decode" "paged_decode_f4x2_d128_wide"
        (Out Out Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32);
    DecodeF4D64Four = "decode" "paged_decode_f4x2_d64_four"
        (Out Out Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32);
    DecodeF4D128Four = "decode" "paged_decode_f4x2_d128_four"
        (Out Out Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32);
    DecodeF4D256Four = "decode" "paged_decode_f4x2_d256_four"
        (Out Out Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32);
    PrefillD64 = "prefill" "paged_prefill_bf16_d64"
        (Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32 U32);
    PrefillD128 = "prefill" "paged_prefill_bf16_d128"
        (Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32 U32);
    PrefillD256 = "prefill" "paged_prefill_bf16_d256"
        (Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32 U32);
    PrefillF16D64 = "prefill" "paged_prefill_f16_d64"
        (Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32 U32);
    PrefillF16D128 = "prefill" "paged_prefill_f16_d128"
        (Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32 U32);
    PrefillF16D256 = "prefill" "paged_prefill_f16_d256"
        (Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32 U32);
    PrefillF8D64 = "prefill" "paged_prefill_f8_d64"
        (Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32 U32);
    PrefillF8D128 = "prefill" "paged_prefill_f8_d128"
        (Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32 U32);
    PrefillF8D256 = "prefill" "paged_prefill_f8_d256"
        (Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32 U32);
    PrefillI8D64 = "prefill" "paged_prefill_i8_d64"
        (Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32 U32);
    PrefillI8D128 = "prefill" "paged_prefill_i8_d128"
        (Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32 U32);
    PrefillI8D256 = "prefill" "paged_prefill_i8_d256"
        (Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32 U32);
    PrefillF4D64 = "prefill" "paged_prefill_f4x2_d64"
        (Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32 U32);
    PrefillF4D128 = "prefill" "paged_prefill_f4x2_d128"
        (Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32 U32);
    PrefillF4D256 = "prefill" "paged_prefill_f4x2_d256"
        (Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32 U32);
    ProjectN1 = "skinny" "project_n1" (Out In In In In U32 U32 U32 U32 U32 U32);
    ProjectN2 = "skinny" "project_n2" (Out In In In In U32 U32 U32 U32 U32 U32);
    ProjectN1Deep = "skinny" "project_n1_deep" (Out In In In In U32 U32 U32 U32 U32 U32);
    ProjectN4 = "skinny" "project_n4" (Out In In In In U32 U32 U32 U32 U32 U32);
    ProjectNormedN1 = "skinny" "project_normed_n1"
        (Out In In In In In U32 U32 U32 U32 U32 U32 F32);
    ProjectNormedN2 = "skinny" "project_normed_n2"
        (Out In In In In In U32 U32 U32 U32 U32 U32 F32);
    ProjectN2Side = "skinny" "project_n2_side" (Out In In In In U32 U32 U32 U32 U32 U32);
    RingN1Deep = "skinny" "project_ring_n1_deep" (Out In In In In U32 U32 U32 U32 U32 U32);
    RingN1 = "skinny" "project_ring_n1" (Out In In In In U32 U32 U32 U32 U32 U32);
    RingN2 = "skinny" "project_ring_n2" (Out In In In In U32 U32 U32 U32 U32 U32);
    RingN2Side = "skinny" "project_ring_n2_side" (Out In In In In U32 U32 U32 U32 U32 U32);
    TilesN1 = "skinny" "project_tiles_n1" (Out In In In In U32 U32 U32 U32 U32 U32);
    TilesN2 = "skinny" "project_tiles_n2" (Out In In In In U32 U32 U32 U32 U32 U32);
    Gemm32x64 = "gemm" "gemm_bf16_32x64" (Out In In In In U32 U32 U32 U32 U32 U32);
    Gemm64x64 = "gemm" "gemm_bf16_64x64" (Out In In In In U32 U32 U32 U32 U32 U32);
    Gemm64x96 = "gemm" "gemm_bf16_64x96" (Out In In In In U32 U32 U32 U32 U32 U32);
    Gemm64x128 = "gemm" "gemm_bf16_64x128" (Out In In In In U32 U32 U32 U32 U32 U32);
    Gemm128x64 = "gemm" "gemm_bf16_128x64" (Out In In In In U32 U32 U32 U32 U32 U32);
    Gemm128x96 = "gemm" "gemm_bf16_128x96" (Out In In In In U32 U32 U32 U32 U32 U32);
    Gemm128x128 = "gemm" "gemm_bf16_128x128" (Out In In In In U32 U32 U32 U32 U32 U32);
    Gemm192x192 = "gemm" "gemm_bf16_192x192" (Out In In In In U32 U32 U32 U32 U32 U32);
    GemmInOrder = "gemm" "gemm_in_order" (Out In In In In U32 U32 U32 U32 U32 U32);
    GemmInRings = "gemm" "gemm_in_rings" (Out In In In In U32 U32 U32 U32 U32 U32);
    Quant4N1Few = "quant" "quant_q4_n1_m1_w8_s1_a0" (Out In In In In U32 U32 U32 U32 U32 U32);
    Quant5N1Few = "quant" "quant_q5_n1_m1_w8_s1_a0" (Out In In In In U32 U32 U32 U32 U32 U32);
    Quant6N1Few = "quant" "quant_q6_n1_m1_w8_s1_a0" (Out In In In In U32 U32 U32 U32 U32 U32);
    Quant8N1Few = "quant" "quant_q8_n1_m1_w8_s1_a0" (Out In In In In U32 U32 U32 U32 U32 U32);
    Quant4N1 = "quant" "quant_q4_n1_m2_w8_s1_a1" (Out In In In In U32 U32 U32 U32 U32 U32);
    Quant5N1 = "quant" "quant_q5_n1_m2_w8_s1_a1" (Out In In In In U32 U32 U32 U32 U32 U32);
    Quant6N1 = "quant" "quant_q6_n1_m2_w8_s1_a1" (Out In In In In U32 U32 U32 U32 U32 U32);
    Quant8N1 = "quant" "quant_q8_n1_m2_w8_s1_a1" (Out In In In In U32 U32 U32 U32 U32 U32);
    Quant4N1Long = "quant" "quant_q4_n1_m2_w16_s1_a1" (Out In In In In U32 U32 U32 U32 U32 U32);
    Quant8N1Long = "quant" "quant_q8_n1_m2_w16_s1_a1" (Out In In In In U32 U32 U32 U32 U32 U32);
    Quant4N1Many = "quant" "quant_q4_n1_m4_w8_s1_a0" (Out In In In In U32 U32 U32 U32 U32 U32);
    Quant8N1Many = "quant" "quant_q8_n1_m2_w8_s1_a0" (Out In In In In U32 U32 U32 U32 U32 U32);
    Quant4N2 = "quant" "quant_q4_n2_m2_w8_s1_a1" (Out In In In In U32 U32 U32 U32 U32 U32);
    Quant8N2 = "quant" "quant_q8_n2_m2_w8_s1_a1" (Out In In In In U32 U32 U32 U32 U32 U32);
    Quant4N2Many = "quant" "quant_q4_n2_m2_w8_s2_a1" (Out In In In In U32 U32 U32 U32 U32 U32);
    Quant8N2Many = "quant" "quant_q8_n2_m2_w8_s2_a1" (Out In In In In U32 U32 U32 U32 U32 U32);
    Quant5N2 = "quant" "quant_q5_n2_m2_w8_s2_a1" (Out In In In In U32 U32 U32 U32 U32 U32);
    Quant6N2 = "quant" "quant_q6_n2_m2_w8_s2_a1" (Out In In In In U32 U32 U32 U32 U32 U32);
    Quant9N1Few = "quant" "quant_q9_n1_m1_w8_s1_a0" (Out In In In In U32 U32 U32 U32 U32 U32);
    Quant9N1 = "quant" "quant_q9_n1_m2_w8_s1_a1" (Out In In In In U32 U32 U32 U32 U32 U32);
    Quant9N2 = "quant" "quant_q9_n2_m2_w8_s1_a1" (Out In In In In U32 U32 U32 U32 U32 U32);
    QuantNormed4Few = "quant" "quant_normed_q4_m1"
        (Out In In In In In U32 U32 U32 U32 U32 U32 F32);
    QuantNormed4 = "quant" "quant_normed_q4_m2"
        (Out In In In In In U32 U32 U32 U32 U32 U32 F32);
    QuantNormed5Few = "quant" "quant_normed_q5_m1"
        (Out In In In In In U32 U32 U32 U32 U32 U32 F32);
    QuantNormed5 = "quant" "quant_normed_q5_m2"
        (Out In In In In In U32 U32 U32 U32 U32 U32 F32);
    QuantNormed6Few = "quant" "quant_normed_q6_m1"
        (Out In In In In In U32 U32 U32 U32 U32 U32 F32);
    QuantNormed6 = "quant" "quant_normed_q6_m2"
        (Out In In In In In U32 U32 U32 U32 U32 U32 F32);
    QuantNormed8Few = "quant" "quant_normed_q8_m1"
        (Out In In In In In U32 U32 U32 U32 U32 U32 F32);
    QuantNormed8 = "quant" "quant_normed_q8_m2"
        (Out In In In In In U32 U32 U32 U32 U32 U32 F32);
    Ring4N1Pair = "quant_ring" "quant_ring_q4_n1_pair" (Out In In In In U32 U32 U32 U32 U32 U32);
    Ring4N1Quad = "quant_ring" "quant_ring_q4_n1_quad" (Out In In In In U32 U32 U32 U32 U32 U32);
    Ring4N1Many = "quant_ring" "quant_ring_q4_n1_many" (Out In In In In U32 U32 U32 U32 U32 U32);
    Ring4N2Pair = "quant_ring" "quant_ring_q4_n2_pair" (Out In In In In U32 U32 U32 U32 U32 U32);
    Ring4N2Quad = "quant_ring" "quant_ring_q4_n2_quad" (Out In In In In U32 U32 U32 U32 U32 U32);
    Ring4N2Many = "quant_ring" "quant_ring_q4_n2_many" (Out In In In In U32 U32 U32 U32 U32 U32);
    Ring5N1Pair = "quant_ring" "quant_ring_q5_n1_pair" (Out In In In In U32 U32 U32 U32 U32 U32);
    Ring5N1Quad = "quant_ring" "quant_ring_q5_n1_quad" (Out In In In In U32 U32 U32 U32 U32 U32);
    Ring5N1Many = "quant_ring" "quant_ring_q5_n1_many" (Out In In In In U32 U32 U32 U32 U32 U32);
    Ring5N2Pair = "quant_ring" "quant_ring_q5_n2_pair" (Out In In In In U32 U32 U32 U32 U32 U32);
    Ring5N2Quad = "quant_ring" "quant_ring_q5_n2_quad" (Out In In In In U32 U32 U32 U32 U32 U32);
    Ring5N2Many = "quant_ring" "quant_ring_q5_n2_many" (Out In In In In U32 U32 U32 U32 U32 U32);
    Ring6N1Pair = "quant_ring" "quant_ring_q6_n1_pair" (Out In In In In U32 U32 U32 U32 U32 U32);
    Ring6N1Quad = "quant_ring" "quant_ring_q6_n1_quad" (Out In In In In U32 U32 U32 U32 U32 U32);
    Ring6N1Many = "quant_ring" "quant_ring_q6_n1_many" (Out In In In In U32 U32 U32 U32 U32 U32);
    Ring6N2Pair = "quant_ring" "quant_ring_q6_n2_pair" (Out In In In In U32 U32 U32 U32 U32 U32);
    Ring6N2Quad = "quant_ring" "quant_ring_q6_n2_quad" (Out In In In In U32 U32 U32 U32 U32 U32);
    Ring6N2Many = "quant_ring" "quant_ring_q6_n2_many" (Out In In In In U32 U32 U32 U32 U32 U32);
    Ring8N1Pair = "quant_ring" "quant_ring_q8_n1_pair" (Out In In In In U32 U32 U32 U32 U32 U32);
    Ring8N1Quad = "quant_ring" "quant_ring_q8_n1_quad" (Out In In In In U32 U32 U32 U32 U32 U32);
    Ring8N1Many = "quant_ring" "quant_ring_q8_n1_many" (Out In In In In U32 U32 U32 U32 U32 U32);
    Ring8N2Pair = "quant_ring" "quant_ring_q8_n2_pair" (Out In In In In U32 U32 U32 U32 U32 U32);
    Ring8N2Quad = "quant_ring" "quant_ring_q8_n2_quad" (Out In In In In U32 U32 U32 U32 U32 U32);
    Ring8N2Many = "quant_ring" "quant_ring_q8_n2_many" (Out In In In In U32 U32 U32 U32 U32 U32);
    Ring9N1Pair = "quant_ring" "quant_ring_q9_n1_pair" (Out In In In In U32 U32 U32 U32 U32 U32);
    Ring9N1Quad = "quant_ring" "quant_ring_q9_n1_quad" (Out In In In In U32 U32 U32 U32 U32 U32);
    Ring9N1Many = "quant_ring" "quant_ring_q9_n1_many" (Out In In In In U32 U32 U32 U32 U32 U32);
    Ring9N2Pair = "quant_ring" "quant_ring_q9_n2_pair" (Out In In In In U32 U32 U32 U32 U32 U32);
    Ring9N2Quad = "quant_ring" "quant_ring_q9_n2_quad" (Out In In In In U32 U32 U32 U32 U32 U32);
    Ring9N2Many = "quant_ring" "quant_ring_q9_n2_many" (Out In In In In U32 U32 U32 U32 U32 U32);
    Two4N1Pair = "quant_ring4" "quant_ring4_n1_pair" (Out In In In In U32 U32 U32 U32 U32 U32);
    Two4N1Quad = "quant_ring4" "quant_ring4_n1_quad" (Out In In In In U32 U32 U32 U32 U32 U32);
    Two4N2Pair = "quant_ring4" "quant_ring4_n2_pair" (Out In In In In U32 U32 U32 U32 U32 U32);
    Two4N2Quad = "quant_ring4" "quant_ring4_n2_quad" (Out In In In In U32 U32 U32 U32 U32 U32);
    Rows4Few = "quant_rows" "quant_rows_q4_few" (Out In In In In U32 U32 U32 U32 U32 U32);
    Rows4Even = "quant_rows" "quant_rows_q4_even" (Out In In In In U32 U32 U32 U32 U32 U32);
    Rows4Head = "quant_rows" "quant_rows_q4_head" (Out In In In In U32 U32 U32 U32 U32 U32);
    Rows5Few = "quant_rows" "quant_rows_q5_few" (Out In In In In U32 U32 U32 U32 U32 U32);
    Rows5Even = "quant_rows" "quant_rows_q5_even" (Out In In In In U32 U32 U32 U32 U32 U32);
    Rows5Head = "quant_rows" "quant_rows_q5_head" (Out In In In In U32 U32 U32 U32 U32 U32);
    Rows6Few = "quant_rows" "quant_rows_q6_few" (Out In In In In U32 U32 U32 U32 U32 U32);
    Rows6Even = "quant_rows" "quant_rows_q6_even" (Out In In In In U32 U32 U32 U32 U32 U32);
    Rows6Head = "quant_rows" "quant_rows_q6_head" (Out In In In In U32 U32 U32 U32 U32 U32);
    Rows8Few = "quant_rows" "quant_rows_q8_few" (Out In In In In U32 U32 U32 U32 U32 U32);
    Rows8Even = "quant_rows" "quant_rows_q8_even" (Out In In In In U32 U32 U32 U32 U32 U32);
    Rows8Head = "quant_rows" "quant_rows_q8_head" (Out In In In In U32 U32 U32 U32 U32 U32);
    Unpack4 = "unpack" "unpack_q4" (Out In In In U32 U32 U32 U32 U64);
    Unpack5 = "unpack" "unpack_q5" (Out In In In U32 U32 U32 U32 U64);
    Unpack6 = "unpack" "unpack_q6" (Out In In In U32 U32 U32 U32 U64);
    Unpack8 = "unpack" "unpack_q8" (Out In In In U32 U32 U32 U32 U64);
    EmbedTiled4 = "unpack" "embed_q4" (Out In In U32 U32 F32 U64);
    EmbedTiled5 = "unpack" "embed_q5" (Out In In U32 U32 F32 U64);
    EmbedTiled6 = "unpack" "embed_q6" (Out In In U32 U32 F32 U64);
    EmbedTiled8 = "unpack" "embed_q8" (Out In In U32 U32 F32 U64);
    GemmFp8 = "scaled" "gemm_fp8" (Out In In In In U32 U32 U32 F32);
    GemmNvfp4 = "scaled" "gemm_nvfp4" (Out In In In In U32 U32 U32 F32);
    Nvf4BothWays = "scaled" "nvf4_both_ways" (Out Out In);
    ProjectHeads = "heads" "project_heads_f16"
        (Out Out In In In In In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 U32 U32 U32 F32);
    BeginPass = "rows" "begin_pass" (Out Out In U32 U32);
    Embed = "rows" "embed_bf16" (Out In In U32 U32 F32 U64);
    Gather = "rows" "gather_f32" (Out In In U32 U32 U64);
    Softcap = "rows" "softcap_f32" (Out F32 U64);
    Sample = "rows" "sample_f32" (Out In In In In In In U32 U32 U32);
    Philox = "rows" "philox4x32_10" (Out In U64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::sources::{SOURCES, header};

    /// The arguments of `name` as the source declares them, or the macro that it is made by.
    fn declared(source: &str, name: &str) -> Option<Vec<Param>> {
        // What a macro makes of its arguments, and what stands in its definition.
        let made = [
            ("paged_decode_", "paged_decode_##KV##_##NAME"),
            ("paged_prefill_", "paged_prefill_##KV##_d##DIM"),
            ("rope_kv_write_", "rope_kv_write_##KV"),
            ("project_n1", "project_##NAME"),
            ("project_n2", "project_##NAME"),
            ("project_n4", "project_##NAME"),
            ("project_ring", "project_##NAME"),
            ("project_tiles", "project_##NAME"),
            ("gemm_bf16_", "gemm_##NAME"),
            ("gemm_in_", "gemm_##NAME"),
            ("quant_normed_q", "quant_normed_q##F##_m##MT"),
            ("quant_ring_q", "quant_ring_q##F##_n##NT##_##SIZE"),
            ("quant_ring4_n", "quant_ring4_n##NT##_##SIZE"),
            ("quant_rows_q", "quant_rows_q##F##_##NAME"),
            ("quant_q", "quant_q##F##_n##NT##_m##MT##_w##WARPS##_s##SIDE##_a##AHEAD"),
            ("unpack_q", "unpack_q##F"),
            ("embed_q", "embed_q##F"),
        ];
        let name = made.iter().find(|(start, _)| name.starts_with(start)).map_or(name, |(_, defined)| defined);
        let after = source.split_once(&format!(" {name}("))?.1;
        let list = after.split_once(") {")?.0.replace('\\', " ");
        let param = |text: &str| {
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            match (text.contains('*'), text.starts_with("const ")) {
                (true, true) => Param::In,
                (true, false) => Param::Out,
                _ if text.starts_with("u32 ") => Param::U32,
                _ if text.starts_with("u64 ") => Param::U64,
                _ if text.starts_with("float ") => Param::F32,
                _ => panic!("{name}: `{text}` is no argument that a wrapper can pass"),
            }
        };
        Some(list.split(',').map(param).collect())
    }

    #[test]
    fn every_wrapper_passes_what_its_source_declares() {
        for entry in ENTRIES {
            let source = SOURCES.iter().find(|(file, _)| *file == entry.file).expect("a source of that name").1;
            let declared = declared(source, entry.name).unwrap_or_else(|| panic!("{} is not declared", entry.name));
            assert_eq!(declared, entry.params, "{}", entry.name);
            assert!(entry.params.len() <= crate::launch::MOST_ARGS);
        }
    }

    #[test]
    fn every_kernel_of_the_sources_has_an_entry() {
        for (file, source) in SOURCES {
            let count = |text: &str| text.matches("extern \"C\" __global__").count();
            let kernels = count(source);
            // What is in a macro is there once for each use of it.
            let mut all = kernels;
            for name in ["ENTRY(", "NORMED_ENTRY(", "HALVES_ENTRY("] {
                let defined = source.split_once(&format!("#define {name}")).map_or("", |(_, rest)| rest);
                let in_macro = defined.split_inclusive('\n').scan(true, |more, line| {
                    let this = *more;
                    *more = line.ends_with("\\\n");
                    this.then_some(count(line))
                });
                let in_macro: usize = in_macro.sum();
                let uses = source.lines().filter(|line| line.starts_with(name)).count();
                all = all - in_macro + uses * in_macro;
            }
            let known = ENTRIES.iter().filter(|entry| entry.file == *file).count();
            assert_eq!(known, all, "{file}.cu");
            assert!(source.contains("#include \"common.cuh\"") && header("common.cuh").is_some());
        }
    }
}
