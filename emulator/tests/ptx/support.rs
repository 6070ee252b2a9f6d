//! Kernels of a few lines, and memory for them.

use memtier_emulator::ptx::{Counts, Fault, Launch, Memory, Module, Options, run};

/// All of this process's buffers that a launch may touch: first address, bytes.
#[derive(Default)]
pub(crate) struct Buffers(pub(crate) Vec<(u64, u64)>);

impl Buffers {
    pub(crate) fn add<T>(&mut self, values: &mut [T]) -> u64 {
        let address = values.as_mut_ptr() as u64;
        self.0.push((address, size_of_val(values) as u64));
        address
    }
}

impl Memory for Buffers {
    fn range(&self, address: u64, bytes: usize) -> Option<(u64, u64, bool)> {
        let inside = |(first, length): &(u64, u64)| address >= *first && address + bytes as u64 <= first + length;
        self.0.iter().copied().find(inside).map(|(first, length)| (first, length, true))
    }
}

pub(crate) fn options() -> Options {
    Options { racecheck: false, steps: 100_000_000, workers: 2 }
}

pub(crate) fn racecheck() -> Options {
    Options { racecheck: true, ..options() }
}

/// A kernel `k` with this body and these parameters; `%out` and `%in` hold the first two.
pub(crate) fn text(declarations: &str, body: &str) -> String {
    format!(
        ".version 8.8\n.target sm_120f\n.address_size 64\n.extern .shared .align 16 .b8 dynamic[];\n\
         .visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1)\n{{\n.reg .b64 %out, %in, %at;\n\
         .reg .b32 %tid, %lane4;\n.reg .pred %p<9>;\n.reg .b16 %h<20>;\n.reg .b32 %r<40>;\n.reg .f32 %f<40>;\n\
         .reg .b64 %rd<40>;\n.reg .f64 %fd<9>;\n{declarations}\nld.param.u64 %out, [k_param_0];\n\
         ld.param.u64 %in, [k_param_1];\nmov.u32 %tid, %tid.x;\n{body}\nret;\n}}\n"
    )
}

/// Runs one block of it: `out` and `input` are the parameters.
pub(crate) fn launch<O, I>(
    text: &str,
    threads: u32,
    out: &mut [O],
    input: &mut [I],
    options: &Options,
) -> Result<Counts, Fault> {
    grid(text, [1, 1, 1], threads, out, input, options)
}

/// Runs several blocks of it.
pub(crate) fn grid<O, I>(
    text: &str,
    grid: [u32; 3],
    threads: u32,
    out: &mut [O],
    input: &mut [I],
    options: &Options,
) -> Result<Counts, Fault> {
    let module = Module::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut memory = Buffers::default();
    let params = [memory.add(out), memory.add(input)];
    let params: Vec<u8> = params.iter().flat_map(|it| it.to_le_bytes()).collect();
    let function = module.function("k").expect("the kernel");
    let launch = Launch { grid, block: [threads, 1, 1], dynamic_shared: 4096, params: &params, globals: &[] };
    // SAFETY: the buffers live until the launch has ended, and are borrowed by nobody else.
    unsafe { run(&module, function, &launch, &memory, options) }
}

/// Each thread's results of a body that leaves them in `%r0`, as 32 bits.
pub(crate) fn each32(threads: u32, declarations: &str, body: &str, input: &mut [u32]) -> Vec<u32> {
    let mut out = vec![0xdead_beef_u32; threads as usize];
    let body = format!("mul.wide.u32 %at, %tid, 4;\nadd.s64 %out, %out, %at;\n{body}\nst.global.u32 [%out], %r0;");
    launch(&text(declarations, &body), threads, &mut out, input, &options()).unwrap_or_else(|fault| panic!("{fault}"));
    out
}
