//! The cases of the bars, and of the tables of `docs/gpu-measured.md`.

use memtier_cuda::{
    CublasLt, LtOutput, LtShape,
    kernels::{Activation, Tiling},
};

use crate::work::{By, Case, Left, WORKSPACE};

const SILU: Left = Left::Gated(Activation::Silu);

pub(crate) fn cases(library: Option<&CublasLt>) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut put = |name: String, rows, columns, outputs: &[usize], (left, by)| {
        cases.push(Case { name, rows, columns, outputs: outputs.to_vec(), left, by, invariant: false });
    };
    let own = |left| (left, By::Own(None));
    let large = [(8192, 8192), (14_336, 4096), (4096, 14_336)];
    for (outputs, columns) in large {
        for rows in [1, 4, 16] {
            put(format!("gemm {rows} {outputs} {columns}"), rows, columns, &[outputs], own(Left::Bf16));
        }
    }
    for (outputs, columns) in large {
        for tiling in [Tiling::Q4, Tiling::Q5, Tiling::Q6, Tiling::Q8, Tiling::F8] {
            for rows in [1, 4, 16] {
                let tiles = (Left::F32, By::Tiles(tiling));
                put(format!("{tiling:?} {rows} {outputs} {columns}"), rows, columns, &[outputs], tiles);
            }
        }
    }
    // SmolLM2-135M's.
    for rows in [1, 4, 8, 16, 64] {
        put(format!("normed-qkv {rows}"), rows, 576, &[576, 192, 192], own(Left::Normed));
        put(format!("gemm-qkv {rows}"), rows, 576, &[576, 192, 192], own(Left::Bf16));
        put(format!("gemm-o {rows}"), rows, 576, &[576], own(Left::Add));
        put(format!("gemm-gated {rows}"), rows, 576, &[1536, 1536], own(SILU));
        put(format!("gemm-down {rows}"), rows, 1536, &[576], own(Left::Add));
        put(format!("gemm-head {rows}"), rows, 576, &[49_152], own(Left::F32));
    }
    for rows in [65, 512, 8192] {
        put(format!("gemm-qkv {rows}"), rows, 576, &[576, 192, 192], own(Left::Bf16));
        put(format!("gemm-gated {rows}"), rows, 576, &[1536, 1536], own(SILU));
        put(format!("gemm-down {rows}"), rows, 1536, &[576], own(Left::Bf16));
        put(format!("gemm-o {rows}"), rows, 576, &[576], own(Left::Add));
        put(format!("gemm-down-added {rows}"), rows, 1536, &[576], own(Left::Add));
    }
    if let Some(library) = library {
        // As the engine has them.
        let of = |columns, outputs, output| LtShape { columns, outputs, output };
        let shapes = [
            of(576, 960, LtOutput::Bf16),
            of(576, 3072, LtOutput::Bf16),
            of(1536, 576, LtOutput::Bf16),
            of(576, 576, LtOutput::AddF32),
            of(1536, 576, LtOutput::AddF32),
        ];
        let plans = library.plans(&shapes, 65..=8192, WORKSPACE).unwrap();
        for rows in [65, 512, 8192] {
            let prompt = |left| (left, By::Plans(plans.clone()));
            put(format!("cublaslt-qkv {rows}"), rows, 576, &[576, 192, 192], prompt(Left::Bf16));
            put(format!("cublaslt-gated {rows}"), rows, 576, &[1536, 1536], prompt(SILU));
            put(format!("cublaslt-down {rows}"), rows, 1536, &[576], prompt(Left::Bf16));
            put(format!("cublaslt-o {rows}"), rows, 576, &[576], prompt(Left::Add));
            put(format!("cublaslt-down-added {rows}"), rows, 1536, &[576], prompt(Left::Add));
        }
    }
    // What the batch-invariant mode costs.
    let of_mode = |case: &Case| case.name.starts_with("gemm") && (case.rows <= 64 || case.columns < 8192);
    let plain = cases.clone().into_iter().filter(of_mode);
    let invariant: Vec<_> =
        plain.map(|case| Case { name: format!("invariant-{}", case.name), invariant: true, ..case }).collect();
    cases.extend(invariant);
    cases
}

/// The largest product of the bars, by the library and by the kernel of this crate.
pub(crate) fn largest(library: Option<&CublasLt>) -> Vec<Case> {
    let case = |name: &str, by| Case {
        name: format!("{name} 8192 8192 8192"),
        rows: 8192,
        columns: 8192,
        outputs: vec![8192],
        left: Left::Bf16,
        by,
        invariant: false,
    };
    let product = library.map(|library| library.product((8192, 8192, 8192), WORKSPACE).unwrap());
    let by_library = product.map(|product| case("cublaslt", By::Product(product)));
    by_library.into_iter().chain([case("gemm", By::Own(None))]).collect()
}
