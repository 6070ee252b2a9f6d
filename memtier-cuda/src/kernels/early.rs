//! Which kernels may start before the one in front of them is done (programmatic launch).
//!
//! Of one request's pass most kernels are shorter than what a launch takes. A kernel here is launched with leave to start early: its
//! blocks get ready, and weights are on their way, while the one in front still runs; then it waits. Of kernels for many rows only products are
//! here: at 64 requests the others cost more than they save. Nor is a product of matrices that a kernel may have written
//! ([`Matrix::at_rest`](super::Matrix::at_rest), [`TiledMatrix::at_rest`](super::TiledMatrix::at_rest)): its weights are read before it waits.

/// Whether the kernel of this name waits for earlier ones itself.
pub(crate) fn starts_early(name: &str) -> bool {
    const STARTS: [&str; 14] = [
        "project_",
        "gemm_bf16_",
        "rope_",
        "paged_decode_",
        "rms_norm_",
        "residual_rms_norm_",
        "add_rms_norm",
        "begin_pass",
        "quant_",
        "unpack_q",
        "embed_q",
        "gather_f32",
        "sample_f32",
        "philox4x32_10",
    ];
    // Of `quant.cu`, those for up to 8 rows.
    STARTS.iter().any(|start| name.starts_with(start)) && !(name.starts_with("quant_q") && name.contains("_n2_"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::{
        entries::ENTRIES,
        sources::{HEADERS, SOURCES},
    };

    #[test]
    fn kernels_that_start_early_wait_and_no_others_need_to() {
        let early: Vec<_> = ENTRIES.iter().filter(|entry| starts_early(entry.name)).collect();
        assert!(early.len() > 10);
        for entry in early {
            let source = SOURCES.iter().find(|(file, _)| *file == entry.file).expect("a source of that name").1;
            // Itself, or in what it shares with others of its kind; `common.cuh` only says how.
            let included = HEADERS.iter().filter(|(name, _)| *name != "common.cuh" && source.contains(name));
            let mut waits = std::iter::once(source).chain(included.map(|(_, text)| *text));
            let found = waits.any(|text| text.contains("wait_for_earlier();"));
            assert!(found, "{}.cu: {} never waits", entry.file, entry.name);
        }
    }
}
