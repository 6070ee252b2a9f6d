//! Pairs of functions that do the same, once through memtier's types and once with raw pointers. `tests/zero_cost.rs` compiles
//! them optimised and compares their instructions.

use memtier::{
    Bytes, Eager, Host, HostArg, Input, LaunchError, Recorder, ScratchFrame, ScratchFull, StableSpan, StableSpanMut,
    input, output,
};

type Here = Eager<Host>;

/// What a raw program keeps of an array.
#[derive(Clone, Copy)]
pub struct Array {
    pub data: *mut f32,
    pub len: usize,
}

// ------------------------------------------------------------------------------------ packing the arguments of a launch

/// As `#[kernel]` writes it: outputs and inputs become addresses, values become words.
#[unsafe(no_mangle)]
pub fn pack_typed(
    on: &Recorder<Here>,
    out: &mut StableSpanMut<'_, f32, Here>,
    x: &StableSpanMut<'_, f32, Here>,
    weight: &StableSpan<'_, f32, Here>,
    rows: u32,
    words: &mut [u64; 4],
) {
    let out = StableSpanMut::output::<f32, Here>(out, on);
    let x = Input::<f32, Here>::input(x);
    let weight = Input::<f32, Here>::input(weight);
    *words = [out.addr(), x.addr(), weight.addr(), u64::from(rows)];
}

#[unsafe(no_mangle)]
pub fn pack_raw(_on: &u64, out: &mut Array, x: &Array, weight: &Array, rows: u32, words: &mut [u64; 4]) {
    *words = [out.data as u64, x.data as u64, weight.data as u64, u64::from(rows)];
}

// ------------------------------------------------------------------------------------------ a span in a CPU operation

/// What `host_op` does between its checks and the body: spans in, slices out.
#[inline(always)]
fn slices<A: HostArg<Here>>(argument: A, on: &Recorder<Here>) -> A::Raw {
    argument.into_raw(on)
}

#[inline(always)]
fn axpy(out: &mut [f32], x: &[f32], factor: f32) {
    out.iter_mut().zip(x).for_each(|(out, x)| *out += factor * x);
}

#[inline(always)]
fn slice<'x, A: HostArg<Here>>(raw: &'x A::Raw, _of: fn() -> Option<A>) -> A::Slice<'x> {
    // SAFETY: compiled only, never run.
    unsafe { A::slice(raw) }
}

fn kind<A>(_: &A) -> fn() -> Option<A> {
    || None
}

#[unsafe(no_mangle)]
pub fn access_typed(
    on: &Recorder<Here>,
    out: &mut StableSpanMut<'_, f32, Here>,
    x: &StableSpanMut<'_, f32, Here>,
    factor: f32,
) {
    let (out, x) = (output::<f32, _, _>(out), input::<f32, Here, _>(x));
    let (of_out, of_x) = (kind(&out), kind(&x));
    let (out, x) = (slices(out, on), slices(x, on));
    axpy(slice(&out, of_out), slice(&x, of_x), factor);
}

#[unsafe(no_mangle)]
pub fn access_raw(_on: &u64, out: &mut Array, x: &Array, factor: f32) {
    // SAFETY: compiled only, never run.
    let (out, x) =
        unsafe { (std::slice::from_raw_parts_mut(out.data, out.len), std::slice::from_raw_parts(x.data, x.len)) };
    axpy(out, x, factor);
}

// ------------------------------------------------------------------------------------------ a whole CPU operation

#[inline(never)]
pub fn body(out: &mut [f32], x: &[f32]) {
    out.copy_from_slice(x);
}

/// The same with the checks around it.
#[unsafe(no_mangle)]
pub fn operation_typed(
    on: &Recorder<Here>,
    out: &mut StableSpanMut<'_, f32, Here>,
    x: &StableSpanMut<'_, f32, Here>,
) -> Result<(), LaunchError> {
    on.host_op((output::<f32, _, _>(out), input::<f32, _, _>(x)), |(out, x)| {
        body(out, x);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub fn operation_raw(_on: &u64, out: &mut Array, x: &Array) -> Result<(), LaunchError> {
    // SAFETY: compiled only, never run.
    let (out, x) =
        unsafe { (std::slice::from_raw_parts_mut(out.data, out.len), std::slice::from_raw_parts(x.data, x.len)) };
    body(out, x);
    Ok(())
}

// ---------------------------------------------------------------------------------------------- a scratch take

#[unsafe(no_mangle)]
pub fn take_typed<'f>(
    frame: &mut ScratchFrame<'f, Here>,
    len: usize,
) -> Result<StableSpanMut<'f, f32, Here>, ScratchFull> {
    frame.take(len)
}

/// A bump allocator by hand, with the same question: does it fit?
pub struct Bump {
    pub top: u64,
    pub end: u64,
    pub stream: u32,
    pub capacity: Bytes,
}

/// What it hands out: as much as a span carries.
pub struct Taken {
    pub data: *mut f32,
    pub len: usize,
    pub stream: u32,
}

#[cold]
#[inline(never)]
fn full(bump: &Bump, bytes: Option<u64>) -> ScratchFull {
    let needed = bytes.map_or(Bytes::MAX, Bytes::new);
    ScratchFull { needed, left: Bytes::new(bump.end - bump.top), capacity: bump.capacity }
}

#[unsafe(no_mangle)]
pub fn take_raw(bump: &mut Bump, len: usize) -> Result<Taken, ScratchFull> {
    let bytes = (len as u64).checked_mul(4).and_then(|bytes| bytes.checked_next_multiple_of(256));
    match bytes {
        Some(bytes) if bytes <= bump.end - bump.top => {
            let data = std::ptr::with_exposed_provenance_mut(bump.top as usize);
            bump.top += bytes;
            Ok(Taken { data, len, stream: bump.stream })
        }
        _ => Err(full(bump, bytes)),
    }
}
