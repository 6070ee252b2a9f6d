//! How long things take on this device. Printed, not judged: there are bars elsewhere, against others' kernels in one run.

mod support;

use std::time::Instant;

use memtier::{
    Blocks, Bytes, Cuda, Eager, LaunchError, Recorder, ScratchFrame, StableSpanMut, Step, TableSpec, Tokens, bf16,
};
use memtier_cuda::kernels::{
    self, Activation, DecodeShape, DecodeWork, PagedKv, paged_decode, residual_rms_norm_bf16, rms_norm_bf16,
};
use support::{Rig, Rng, ToyView, pool, skipped_without_a_real_device};

/// Rounds of every measurement; the median counts.
const ROUNDS: usize = 7;

/// The time of one launch, in microseconds.
#[derive(Clone, Copy)]
struct Time {
    /// Until the device was done, over the number of launches.
    device: f64,
    /// Until the last launch returned, over the number of launches.
    queueing: f64,
}

/// Times `count` calls of `launch` on an idle stream, after one that is not counted.
fn time(
    on: &Recorder<Eager<Cuda>>,
    probe: &StableSpanMut<'_, u32, Eager<Cuda>>,
    count: usize,
    mut launch: impl FnMut() -> Result<(), LaunchError>,
) -> Result<Time, LaunchError> {
    let mut times = Vec::new();
    // A read waits for everything before it.
    let mut word = [0];
    launch()?;
    on.read::<u32>(probe, &mut word)?;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        (0..count).try_for_each(|_| launch())?;
        let queueing = start.elapsed();
        on.read::<u32>(probe, &mut word)?;
        let per = |time: std::time::Duration| time.as_secs_f64() * 1e6 / count as f64;
        times.push(Time { device: per(start.elapsed()), queueing: per(queueing) });
    }
    times.sort_by(|a, b| a.device.total_cmp(&b.device));
    Ok(times[ROUNDS / 2])
}

fn line(what: &str, bytes: usize, time: Time) {
    let Time { device, queueing } = time;
    println!("{what:<46} {device:>9.2} us {:>7.0} GB/s   queueing {queueing:>6.2} us", bytes as f64 / device / 1e3);
}

/// `count` bf16 of scratch with numbers in it.
fn filled<'f>(
    scratch: &mut ScratchFrame<'f, Eager<Cuda>>,
    on: &Recorder<Eager<Cuda>>,
    count: usize,
) -> StableSpanMut<'f, bf16, Eager<Cuda>> {
    let mut span = scratch.take::<bf16>(count).unwrap();
    let numbers = Rng(count as u64).bf16s((1 << 18).min(count));
    for at in (0..count).step_by(numbers.len()) {
        let end = (at + numbers.len()).min(count);
        on.write(&mut span.range(at..end).unwrap(), &numbers[..end - at]).unwrap();
    }
    span
}

#[test]
fn small_ops() {
    if skipped_without_a_real_device("times are taken here") {
        return;
    }
    let table = TableSpec { rows: 2, columns: 4 };
    let Some(mut rig) = Rig::new(Bytes::gib(4), pool(16, 4096, 8), table) else { return };
    let info = rig.backend.info().clone();
    println!("{}, CUDA {}, kernels for {}", info.name, info.cuda, rig.kernels.target());
    let kernels = &rig.kernels;
    let mut step = rig.engine.step(&mut rig.stream).unwrap();
    let Step { on, scratch, .. } = &mut step;
    let on = *on;
    let probe = scratch.take::<u32>(1).unwrap();
    {
        let mut scratch = scratch.nested();
        let n = 256 << 20;
        let (mut a, b) = (scratch.take::<f32>(n).unwrap(), scratch.take::<f32>(n).unwrap());
        line("copy of 1 GiB", n * 8, time(on, &probe, 10, || on.copy::<f32>(&mut a, &b)).unwrap());
        line("scale of 1 GiB", n * 8, time(on, &probe, 10, || kernels::scale(on, kernels, &mut a, &b, 2.0)).unwrap());
    }
    {
        let mut scratch = scratch.nested();
        let (mut a, b) = (scratch.take::<f32>(256).unwrap(), scratch.take::<f32>(256).unwrap());
        let tiny = time(on, &probe, 2000, || kernels::scale(on, kernels, &mut a, &b, 2.0));
        line("launch of a tiny kernel", 2048, tiny.unwrap());
    }
    for (rows, hidden) in [(65_536, 4096), (8, 4096), (65_536, 576)] {
        let mut scratch = scratch.nested();
        let (n, of, numbers) = (rows * hidden, format!("{rows} x {hidden}"), (rows, 1e-5));
        let (mut x, w, delta) =
            (filled(&mut scratch, on, n), filled(&mut scratch, on, hidden), filled(&mut scratch, on, n));
        let mut out = scratch.take::<bf16>(n).unwrap();
        let norm = time(on, &probe, 20, || rms_norm_bf16(on, kernels, &mut out, &x, &w, numbers));
        line(&format!("rms_norm {of}"), n * 4, norm.unwrap());
        let norm = time(on, &probe, 20, || residual_rms_norm_bf16(on, kernels, &mut out, &mut x, &delta, &w, numbers));
        line(&format!("residual_rms_norm {of}"), n * 8, norm.unwrap());
    }
    let (rows, columns) = (16_384, 14_336);
    let x = filled(scratch, on, rows * columns * 2);
    let mut out = scratch.take::<bf16>(rows * columns).unwrap();
    let gate = time(on, &probe, 20, || kernels::gate(on, kernels, &mut out, &x, columns, Activation::Silu));
    line(&format!("silu gate {rows} x {columns}"), rows * columns * 6, gate.unwrap());
}

#[test]
fn decode() {
    if skipped_without_a_real_device("times are taken here") {
        return;
    }
    let cases = [
        (32, 4096, 8, 4, 128),
        (128, 1024, 8, 4, 128),
        (8, 4096, 8, 4, 128),
        (1, 8192, 8, 8, 128),
        (32, 4096, 3, 3, 64),
    ];
    for (batch, context, kv_heads, group, head_dim) in cases {
        let (page, heads) = (64, kv_heads * group);
        let columns = context / page;
        let layer = 2 * kv_heads * page * head_dim;
        let kv = PagedKv { layer_base: 0, kv_heads, head_dim, packed: None };
        let spec = TableSpec { rows: batch, columns };
        let Some(mut rig) = Rig::new(Bytes::gib(1), pool(page, layer, batch * columns), spec) else { return };
        let handle = rig.engine.bundle().kv.handle();
        let mut tickets: Vec<_> = (0..batch).map(|_| handle.open(Tokens::new(context as u64))).collect();
        let content = Rng(7).bf16s(layer * 16);
        {
            let mut step = rig.engine.step(&mut rig.stream).unwrap();
            let on = step.on;
            // Pages of a sequence lie apart from each other.
            for _ in 0..columns {
                tickets.iter_mut().for_each(|ticket| ticket.push(Blocks::new(1)).unwrap());
            }
            for (row, ticket) in tickets.iter_mut().enumerate() {
                step.buffers.table.set(on, row, ticket).unwrap();
                for index in 0..columns {
                    let from = (row + index) % 16 * layer;
                    let mut block = step.buffers.kv.block_mut(ticket, index).unwrap();
                    on.write(&mut block, &content[from..from + layer]).unwrap();
                }
            }
            step.finish().unwrap().wait().unwrap();
        }
        let scale = 1.0 / (head_dim as f32).sqrt();
        let chosen = DecodeShape::shares_for(&rig.kernels, &kv, heads, batch, context);
        let kernels = &rig.kernels;
        let mut step = rig.engine.step(&mut rig.stream).unwrap();
        let Step { buffers: ToyView { kv: pool, table, .. }, on, scratch, .. } = &mut step;
        let on = *on;
        let probe = scratch.take::<u32>(1).unwrap();
        let q = filled(scratch, on, batch * heads * head_dim);
        let mut out = scratch.take::<bf16>(batch * heads * head_dim).unwrap();
        let most = DecodeShape { heads, scale, window: None, softcap: None, shares: 128 };
        let mut partial = scratch.take::<f32>(most.partial_units(batch, head_dim).unwrap()).unwrap();
        let counters = most.counters(batch, kv_heads).unwrap();
        let mut arrived = scratch.take::<u32>(counters).unwrap();
        on.write(&mut arrived, &vec![0; counters]).unwrap();
        let (mut rows, mut lengths) = (scratch.take::<u32>(batch).unwrap(), scratch.take::<u32>(batch).unwrap());
        on.write(&mut rows, &(0..batch as u32).collect::<Vec<_>>()).unwrap();
        on.write(&mut lengths, &vec![context as u32; batch]).unwrap();
        for shares in [chosen, 1, 2, 4, 8, 16, 33] {
            let shape = DecodeShape { shares, ..most };
            let time = time(on, &probe, 50, || {
                let work = DecodeWork { partial: &mut partial, arrived: &mut arrived };
                let (slab, inputs) = (pool.slab(), [&rows, &lengths]);
                paged_decode(on, kernels, &mut out, work, &q, &slab, table.ids(), inputs, (kv, shape))
            });
            let what = format!("decode B={batch}, {context}, {heads}/{kv_heads}, D={head_dim}, {shares} shares");
            line(&what, batch * context * kv_heads * head_dim * 4, time.unwrap());
        }
    }
}
