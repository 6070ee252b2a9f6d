//! The CUDA sources, as they were when the crate was built.

/// Every source: its name without `.cu`, and its text.
pub(crate) const SOURCES: &[(&str, &str)] = &[
    ("vector", include_str!("../../../kernels/vector.cu")),
    ("norm", include_str!("../../../kernels/norm.cu")),
    ("gate", include_str!("../../../kernels/gate.cu")),
    ("rope", include_str!("../../../kernels/rope.cu")),
    ("decode", include_str!("../../../kernels/decode.cu")),
    ("prefill", include_str!("../../../kernels/prefill.cu")),
    ("skinny", include_str!("../../../kernels/skinny.cu")),
    ("gemm", include_str!("../../../kernels/gemm.cu")),
    ("quant", include_str!("../../../kernels/quant.cu")),
    ("quant_ring", include_str!("../../../kernels/quant_ring.cu")),
    ("quant_ring4", include_str!("../../../kernels/quant_ring4.cu")),
    ("quant_rows", include_str!("../../../kernels/quant_rows.cu")),
    ("unpack", include_str!("../../../kernels/unpack.cu")),
    ("scaled", include_str!("../../../kernels/scaled.cu")),
    ("heads", include_str!("../../../kernels/heads.cu")),
    ("rows", include_str!("../../../kernels/rows.cu")),
];

/// What they include.
pub(crate) const HEADERS: &[(&str, &str)] = &[
    ("common.cuh", include_str!("../../../kernels/common.cuh")),
    ("mma.cuh", include_str!("../../../kernels/mma.cuh")),
    ("outputs.cuh", include_str!("../../../kernels/outputs.cuh")),
    ("leave.cuh", include_str!("../../../kernels/leave.cuh")),
    ("cache.cuh", include_str!("../../../kernels/cache.cuh")),
    ("decode_tile.cuh", include_str!("../../../kernels/decode_tile.cuh")),
    ("prefill_tile.cuh", include_str!("../../../kernels/prefill_tile.cuh")),
    ("random.cuh", include_str!("../../../kernels/random.cuh")),
    ("finish.cuh", include_str!("../../../kernels/finish.cuh")),
    ("ring.cuh", include_str!("../../../kernels/ring.cuh")),
    ("tiles.cuh", include_str!("../../../kernels/tiles.cuh")),
];

/// The header of this name.
#[cfg(test)]
pub(crate) fn header(name: &str) -> Option<&'static str> {
    HEADERS.iter().find(|(header, _)| *header == name).map(|(_, text)| *text)
}

/// A number for all of it, FNV-1a: images that were compiled from something else are recognised.
pub(crate) fn fingerprint() -> u64 {
    let texts = SOURCES.iter().chain(HEADERS).flat_map(|(name, text)| [*name, *text]);
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    texts.fold(0xcbf2_9ce4_8422_2325, |hash, text| text.bytes().chain([0]).fold(hash, fold))
}
