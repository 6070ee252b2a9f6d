//! No kernel allocates: every allocation of the process is counted, on all threads.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Matrix, Rng};
use engine_kernels::*;

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn expect_none(what: &str, body: impl FnOnce() -> Result<(), KernelError>) {
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    let result = body();
    let after = ALLOCATIONS.load(Ordering::SeqCst);
    result.unwrap();
    assert_eq!(after - before, 0, "{what} allocates");
}

#[test]
fn kernels_do_not_allocate() {
    let mut rng = Rng::new(50);
    let threads = Threads::new(3).unwrap();
    let (m, hidden, heads, kv_heads, head_dim) = (20usize, 256usize, 4usize, 2usize, 64usize);
    let matrices: Vec<Matrix> =
        Format::ALL.iter().map(|format| Matrix::random(&mut rng, *format, hidden, hidden)).collect();
    let find = |format| matrices.iter().find(|matrix| matrix.format == format).unwrap();
    let mut repacked = find(Format::Q4_K).bytes.clone();
    let shape = KvShape { kv_heads, head_dim, block_tokens: 16, format: KvFormat::F16 };
    let elements = shape.block_units().unwrap();
    let mut slab = vec![0u16; elements * 4];
    let cells: Vec<KvCell> = (0..m as u32).map(|p| KvCell { block: p / 16, slot: p % 16 }).collect();
    let queries: Vec<Query> = (0..m as u32).map(|position| Query { sequence: 0, position }).collect();
    let blocks = [0, 1, 2];
    let (x, weight) = (rng.activations(m * hidden), rng.activations(hidden));
    let (keys, values) = (rng.activations(m * 128), rng.activations(m * 128));
    let norm = Norm { weight: &weight, epsilon: 1e-5 };
    let (mut a, mut b, mut c) = (x.clone(), x.clone(), x.clone());
    let mut bytes = vec![0; QuantRows::bytes(m, hidden).unwrap()];
    let mut gated = bytes.clone();
    let mut table = vec![0.0; m * head_dim];
    let positions: Vec<u32> = (0..m as u32).collect();
    // The first region of a thread may set up what the system keeps for it.
    threads.run(&|_, _| {});

    for isa in Isa::available() {
        for matrix in &matrices {
            let float = matrix.format.is_float();
            let (threads, weights) = (&threads, matrix.packed());
            expect_none(matrix.format.name(), || {
                let input = match float {
                    true => Input::Float { x: &x, rows: m, cols: hidden },
                    false => quantize_rows(threads, isa, &x, m, hidden, &mut bytes)?.into(),
                };
                matmul(threads, isa, &weights, input, &mut a)?;
                matmul_gated(threads, isa, &weights, &weights, Activation::Silu, input, &mut b)?;
                matmul_gated_quantize(threads, isa, &weights, &weights, Activation::Silu, input, &mut gated)?;
                let add = Projection { weights, out: &mut a, add: true };
                let set = Projection { weights, out: &mut b, add: false };
                matmul_many(threads, isa, input, &mut [add, set])?;
                dequantize_row(&weights, 3, &mut c[..hidden])?;
                embed(threads, isa, &weights, &[1, 2, 3, 4, 5, 6, 7, 8], 2.0, &mut c[..8 * hidden])
            });
        }
        expect_none("norms", || {
            rms_norm(&threads, isa, norm, &x, m, &mut a)?;
            rms_norm_in_place(&threads, isa, norm, &mut a, m)?;
            rms_norm_quantize(&threads, isa, norm, &x, m, &mut bytes)?;
            residual_norm(&threads, isa, &mut a, &x, Some(norm), norm, m, &mut b)?;
            residual_norm_quantize(&threads, isa, &mut a, &x, None, norm, m, &mut bytes).map(|_| ())
        });
        expect_none("elementwise", || {
            engine_kernels::gated(&threads, isa, Activation::GeluTanh, &mut a, &x)?;
            add(isa, &mut a, &x)?;
            scale(isa, &mut a, 0.5);
            softcap(&threads, isa, &mut a, 30.0);
            assert!(argmax(isa, &x).is_some());
            Ok(())
        });
        expect_none("positions", || {
            let params = RopeParams { dims: head_dim, base: 1e5, scale: 1.0, factors: None };
            let angles = rope_angles(&threads, params, &positions, &mut table)?;
            rope(&threads, isa, RopeStyle::Halves, angles, &mut a, heads, head_dim)
        });
        expect_none("attention", || {
            kv_write(&threads, isa, &mut slab, 0, elements, shape, &cells, &keys, &values)?;
            let cache = KvCache { slab: &slab, base: 0, stride: elements, shape };
            let params = AttentionParams { heads, scale: 0.125, window: Some(20), softcap: Some(50.0) };
            let sequence = KvSequence { blocks: &blocks, tokens: m as u32 };
            attend(&threads, isa, params, cache, &[sequence], &queries, &x, &mut a)
        });
    }
    expect_none("packing", || {
        let matrix = find(Format::Q4_K);
        pack_parallel(&threads, matrix.format, hidden, hidden, &matrix.raw, &mut repacked)?;
        pack(matrix.format, hidden, hidden, &matrix.raw, &mut repacked)?;
        dequantize_raw_row(matrix.format, &matrix.raw[..144], &mut c[..256])
    });
}
