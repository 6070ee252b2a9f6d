//! Measures the kernels on the shapes of two small models, next to what the memory gives in the same run.
//!
//! `cargo run --release -p engine-kernels --example kernel_bench [-- threads [avx512|avx2|portable [section…]]]`, sections
//! being `step`, `matmul`, `format`, `attention` and `small`; all of them by default.

use std::hint::black_box;
use std::time::{Duration, Instant};

use engine_kernels::{
    Activation, AttentionParams, Format, Input, Isa, KvCache, KvCell, KvFormat, KvSequence, KvShape, Level, Norm,
    Packed, Projection, QuantRows, Query, RopeParams, RopeStyle, Threads, argmax, attend, kv_write, matmul,
    matmul_gated_quantize, matmul_many, pack_parallel, packed_bytes, quantize_rows, residual_norm_quantize, rope,
    rope_angles,
};

/// The best of as many runs as fit into a while: other processes only ever add time.
fn best(mut body: impl FnMut()) -> f64 {
    body();
    let (mut best, start) = (Duration::MAX, Instant::now());
    for run in 0.. {
        if run >= 5 && start.elapsed() > Duration::from_millis(400) {
            break;
        }
        let start = Instant::now();
        body();
        best = best.min(start.elapsed());
    }
    best.as_secs_f64()
}

struct Machine {
    threads: Threads,
    isa: Isa,
}

/// Copies of one matrix, enough of them that a pass over all comes from memory and not from a cache.
struct Layers {
    format: Format,
    rows: usize,
    cols: usize,
    bytes: Vec<Vec<u8>>,
}

impl Layers {
    fn new(machine: &Machine, format: Format, rows: usize, cols: usize) -> Layers {
        let mut seed = 1u32;
        let mut raw = vec![0u8; rows * format.row_bytes(cols).unwrap()];
        for byte in &mut raw {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Small bytes: every f16 or f32 among them is a modest number.
            *byte = (seed >> 24) as u8 & 0x3b;
        }
        let len = packed_bytes(format, rows, cols).unwrap() as usize;
        let mut packed = vec![0; len];
        pack_parallel(&machine.threads, format, rows, cols, &raw, &mut packed).unwrap();
        let copies = ((192 << 20) / len).clamp(1, 400);
        Layers { format, rows, cols, bytes: vec![packed; copies] }
    }

    fn weights(&self, copy: usize) -> Packed<'_> {
        Packed::new(self.format, self.rows, self.cols, &self.bytes[copy]).unwrap()
    }

    /// Seconds for one copy.
    fn time(&self, machine: &Machine, m: usize) -> f64 {
        let x = numbers(m * self.cols);
        let mut bytes = vec![0; QuantRows::bytes(m, self.cols).unwrap_or(0)];
        let input = if self.format.is_float() {
            Input::Float { x: &x, rows: m, cols: self.cols }
        } else {
            quantize_rows(&machine.threads, machine.isa, &x, m, self.cols, &mut bytes).unwrap().into()
        };
        let mut out = vec![0.0; m * self.rows];
        let copies = if m == 1 { self.bytes.len() } else { (400 / m).clamp(1, self.bytes.len()) };
        let time = best(|| {
            for copy in 0..copies {
                matmul(&machine.threads, machine.isa, &self.weights(copy), input, &mut out).unwrap();
            }
        });
        time / copies as f64
    }
}

fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i % 1000) as f32 * 0.37).sin()).collect()
}

/// Bytes per second that reading a large buffer on all threads gives.
fn read_bandwidth(machine: &Machine) -> f64 {
    let buffer: Vec<u64> = (0..32 << 20).collect();
    let pieces = 64;
    let time = best(|| {
        machine.threads.pieces(pieces, &|piece| {
            let share = &buffer[buffer.len() / pieces * piece..][..buffer.len() / pieces];
            let mut lanes = [0u64; 32];
            for chunk in share.as_chunks::<32>().0 {
                for (lane, word) in lanes.iter_mut().zip(chunk) {
                    *lane ^= word;
                }
            }
            black_box(lanes);
        });
    });
    size_of_val(&buffer[..]) as f64 / time
}

fn matmuls(machine: &Machine, name: &str, shapes: &[(&str, Format, usize, usize)]) {
    println!("\n{name}: GB/s of packed weights for one row, billions of operations per second for more");
    println!(
        "{:<12} {:<5} {:>13} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7}",
        "", "", "rows x cols", "m=1", "m=4", "m=8", "m=16", "m=64", "m=512"
    );
    for (name, format, rows, cols) in shapes {
        let layers = Layers::new(machine, *format, *rows, *cols);
        let operations = 2.0 * *rows as f64 * *cols as f64;
        print!("{name:<12} {format:<5} {:>13}", format!("{rows} x {cols}"));
        print!(" {:>7.1}", layers.bytes[0].len() as f64 / layers.time(machine, 1) / 1e9);
        for m in [4, 8, 16, 64, 512] {
            if m == 512 && *rows > 10_000 {
                break;
            }
            print!(" {:>7.0}", operations * m as f64 / layers.time(machine, m) / 1e9);
        }
        println!();
    }
}

fn attention(machine: &Machine, name: &str, heads: usize, shape: KvShape, layers: usize) {
    println!("\n{name}: attention, microseconds for one layer");
    let (tokens, row) = (4096usize, shape.kv_heads * shape.head_dim);
    let elements = shape.block_units().unwrap();
    let blocks: Vec<u32> = (0..(tokens / shape.block_tokens) as u32).collect();
    let mut slab = vec![0u16; elements * blocks.len() * layers];
    let cells: Vec<KvCell> = (0..tokens as u32)
        .map(|p| KvCell { block: p / shape.block_tokens as u32, slot: p % shape.block_tokens as u32 })
        .collect();
    let rows = numbers(tokens * row);
    for layer in 0..layers {
        let base = layer * blocks.len() * elements;
        kv_write(&machine.threads, machine.isa, &mut slab, base, elements, shape, &cells, &rows, &rows).unwrap();
    }
    let write = best(|| {
        let (cells, rows) = (&cells[..512], &rows[..512 * row]);
        kv_write(&machine.threads, machine.isa, &mut slab, 0, elements, shape, cells, rows, rows).unwrap();
    });
    println!("  write 512 tokens            {:9.1}", write * 1e6);
    let params = AttentionParams { heads, scale: 0.1, window: None, softcap: None };
    for (label, first, count) in [
        ("prefill 512", 0, 512),
        ("prefill 512 after 3584", 3584, 512),
        ("decode at 128", 127, 1),
        ("decode at 512", 511, 1),
        ("decode at 4096", 4095, 1),
    ] {
        let queries: Vec<Query> = (first..first + count).map(|position| Query { sequence: 0, position }).collect();
        let q = numbers(queries.len() * heads * shape.head_dim);
        let mut out = vec![0.0; q.len()];
        let sequences = [KvSequence { blocks: &blocks, tokens: tokens as u32 }];
        let time = best(|| {
            for layer in 0..layers {
                let cache = KvCache { slab: &slab, base: layer * blocks.len() * elements, stride: elements, shape };
                attend(&machine.threads, machine.isa, params, cache, &sequences, &queries, &q, &mut out).unwrap();
            }
        });
        println!("  {label:<27} {:9.1}", time / layers as f64 * 1e6);
    }
}

fn small_operations(machine: &Machine) {
    println!("\nsmall operations, microseconds");
    let show = |name: &str, time: f64| println!("  {name:<40} {:9.2}", time * 1e6);
    show("empty region", best(|| (0..100).for_each(|_| machine.threads.run(&|_, _| {}))) / 100.0);
    for (m, cols) in [(1usize, 576usize), (512, 576), (1, 640), (512, 640)] {
        let weight = numbers(cols);
        let norm = Norm { weight: &weight, epsilon: 1e-5 };
        let (delta, mut residual) = (numbers(m * cols), numbers(m * cols));
        let mut dst = vec![0; QuantRows::bytes(m, cols).unwrap()];
        let time = best(|| {
            let (threads, isa) = (&machine.threads, machine.isa);
            residual_norm_quantize(threads, isa, &mut residual, &delta, None, norm, m, &mut dst).unwrap();
        });
        show(&format!("residual + norm + quantise {m} x {cols}"), time);
        let time = best(|| {
            quantize_rows(&machine.threads, machine.isa, &delta, m, cols, &mut dst).unwrap();
        });
        show(&format!("quantise {m} x {cols}"), time);
    }
    for (rows, style, heads, dim) in [
        (1usize, RopeStyle::Interleaved, 9usize, 64usize),
        (512, RopeStyle::Interleaved, 9, 64),
        (512, RopeStyle::Halves, 4, 256),
    ] {
        let positions: Vec<u32> = (0..rows as u32).collect();
        let mut table = vec![0.0; rows * dim];
        let params = RopeParams { dims: dim, base: 1e5, scale: 1.0, factors: None };
        let time = best(|| {
            rope_angles(&machine.threads, params, &positions, &mut table).unwrap();
        });
        show(&format!("angles {rows} x {dim}"), time);
        let angles = rope_angles(&machine.threads, params, &positions, &mut table).unwrap();
        let mut x = numbers(rows * heads * dim);
        let time = best(|| rope(&machine.threads, machine.isa, style, angles, &mut x, heads, dim).unwrap());
        show(&format!("rope {rows} x {heads} x {dim}, {style:?}"), time);
    }
    let logits = numbers(262_144);
    let time = best(|| {
        black_box(argmax(machine.isa, &logits));
    });
    show("argmax of 262144", time);
}

/// A forward pass without attention, from memory, as an engine would run it: `dims` are hidden, query, key/value,
/// feed-forward and vocabulary; `formats` those of q, k, v, of the attention output, gate and up, down, and the head.
fn step(machine: &Machine, name: &str, layers: usize, dims: [usize; 5], formats: [Format; 5]) {
    let [hidden, q, kv, ffn, vocab] = dims;
    let [f_qkv, f_o, f_up, f_down, f_head] = formats;
    let make = |format, rows, cols| {
        let mut all = Layers::new(machine, format, rows, cols);
        let first = all.bytes[0].clone();
        all.bytes.resize(layers, first);
        all
    };
    let (wq, wk, wv) = (make(f_qkv, q, hidden), make(f_qkv, kv, hidden), make(f_qkv, kv, hidden));
    let (wo, wg, wu, wd) =
        (make(f_o, hidden, q), make(f_up, ffn, hidden), make(f_up, ffn, hidden), make(f_down, hidden, ffn));
    let head = Layers::new(machine, f_head, vocab, hidden);
    let mut total = head.bytes[0].len();
    for layers in [&wq, &wk, &wv, &wo, &wg, &wu, &wd] {
        total += layers.bytes.iter().map(Vec::len).sum::<usize>();
    }
    let (threads, isa) = (&machine.threads, machine.isa);
    for m in [1usize, 512] {
        let weight = numbers(hidden);
        let norm = Norm { weight: &weight, epsilon: 1e-5 };
        let mut residual = numbers(m * hidden);
        let zeros = vec![0.0; m * hidden];
        let mut narrow = vec![0; QuantRows::bytes(m, hidden).unwrap()];
        let mut wide = vec![0; QuantRows::bytes(m, ffn.max(q)).unwrap()];
        let [mut oq, mut ok, mut ov] = [q, kv, kv].map(|n| vec![0.0; m * n]);
        let mut logits = vec![0.0; vocab];
        let mut body = || {
            for layer in 0..layers {
                let x =
                    residual_norm_quantize(threads, isa, &mut residual, &zeros, None, norm, m, &mut narrow).unwrap();
                let projections = &mut [
                    Projection { weights: wq.weights(layer), out: &mut oq, add: false },
                    Projection { weights: wk.weights(layer), out: &mut ok, add: false },
                    Projection { weights: wv.weights(layer), out: &mut ov, add: false },
                ];
                matmul_many(threads, isa, x.into(), projections).unwrap();
                let bytes = &mut wide[..QuantRows::bytes(m, q).unwrap()];
                let x = quantize_rows(threads, isa, &oq, m, q, bytes).unwrap();
                matmul(threads, isa, &wo.weights(layer), x.into(), &mut residual).unwrap();
                let x =
                    residual_norm_quantize(threads, isa, &mut residual, &zeros, None, norm, m, &mut narrow).unwrap();
                let (gate, up) = (wg.weights(layer), wu.weights(layer));
                let bytes = &mut wide[..QuantRows::bytes(m, ffn).unwrap()];
                let x = matmul_gated_quantize(threads, isa, &gate, &up, Activation::Silu, x.into(), bytes).unwrap();
                matmul(threads, isa, &wd.weights(layer), x.into(), &mut residual).unwrap();
            }
            let last = &residual[(m - 1) * hidden..];
            let bytes = &mut narrow[..QuantRows::bytes(1, hidden).unwrap()];
            let x = quantize_rows(threads, isa, last, 1, hidden, bytes).unwrap();
            matmul(threads, isa, &head.weights(0), x.into(), &mut logits).unwrap();
        };
        let time = best(&mut body);
        println!(
            "{name}, m = {m}: {:.3} ms without attention, {:.0} tokens/s, {:.1} GB/s of weights",
            time * 1e3,
            m as f64 / time,
            total as f64 / time / 1e9
        );
    }
}

fn models(machine: &Machine) {
    matmuls(
        machine,
        "SmolLM2-135M",
        &[
            ("q, o", Format::Q4_1, 576, 576),
            ("k, v", Format::Q4_1, 192, 576),
            ("gate, up", Format::Q4_1, 1536, 576),
            ("down", Format::Q4_1, 576, 1536),
            ("head", Format::Q8_0, 49152, 576),
        ],
    );
    matmuls(
        machine,
        "Gemma-3-270M",
        &[
            ("q", Format::Q5_0, 1024, 640),
            ("k, v", Format::Q5_0, 256, 640),
            ("v", Format::Q8_0, 256, 640),
            ("o", Format::Q4_K, 640, 1024),
            ("gate, up", Format::Q5_0, 2048, 640),
            ("down", Format::Q4_K, 640, 2048),
            ("down", Format::Q6_K, 640, 2048),
            ("head", Format::Q8_0, 262_144, 640),
        ],
    );
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let count = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(cores);
    let isa = match arguments.next().as_deref() {
        Some("avx512") => Isa::new(Level::Avx512),
        Some("avx2") => Isa::new(Level::Avx2),
        Some("portable") => Some(Isa::portable()),
        _ => Some(Isa::detect()),
    };
    let Some(isa) = isa else { return eprintln!("this machine lacks that level") };
    let machine = Machine { threads: Threads::new(count).expect("threads start"), isa };
    let bandwidth = read_bandwidth(&machine);
    println!("{count} threads, {:?}; reading memory: {:.1} GB/s", isa.level(), bandwidth / 1e9);

    let sections: Vec<String> = arguments.collect();
    let wanted = |section: &str| sections.is_empty() || sections.iter().any(|wanted| wanted == section);
    if wanted("step") {
        let (small, gemma) = (Format::Q4_1, Format::Q5_0);
        step(&machine, "SmolLM2-135M", 30, [576, 576, 192, 1536, 49152], [small, small, small, small, Format::Q8_0]);
        let formats = [gemma, Format::Q4_K, gemma, Format::Q6_K, Format::Q8_0];
        step(&machine, "Gemma-3-270M", 18, [640, 1024, 256, 2048, 262_144], formats);
    }
    if wanted("matmul") {
        models(&machine);
    }
    if wanted("format") {
        matmuls(&machine, "Every format", &Format::ALL.map(|format| ("", format, 2048, 2048)));
    }
    if wanted("attention") {
        attention(
            &machine,
            "SmolLM2-135M",
            9,
            KvShape { kv_heads: 3, head_dim: 64, block_tokens: 16, format: KvFormat::F16 },
            30,
        );
        attention(
            &machine,
            "Gemma-3-270M",
            4,
            KvShape { kv_heads: 1, head_dim: 256, block_tokens: 16, format: KvFormat::F16 },
            18,
        );
    }
    if wanted("small") {
        small_operations(&machine);
    }
    println!("\nreading memory again: {:.1} GB/s", read_bandwidth(&machine) / 1e9);
}
