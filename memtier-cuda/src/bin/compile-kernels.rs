//! Compiles every kernel for every target, without a GPU.

use std::{path::PathBuf, process::ExitCode};

use memtier_cuda::{
    KernelError, Nvrtc, compile_for_emulation, compile_kernels, compile_source, compile_source_for_emulation,
};

const USAGE: &str = "\
compile-kernels --nvrtc PATH [--ptx-nvrtc PATH] [--also SOURCE.cu]... [--emulated] --out FOLDER

  --nvrtc PATH       libnvrtc.so.*, 13.1 or newer: the machine code
  --ptx-nvrtc PATH   libnvrtc.so.* of CUDA 12.9: the PTX, which older drivers take; default: the same
  --also SOURCE.cu   a source of your own, compiled beside them; may be given again
  --emulated         only PTX, for the emulated device (emulator/ in the repository)
  --out FOLDER       where images and manifest.txt go

MEMTIER_NVRTC and MEMTIER_PTX_NVRTC stand for the first two.
kernels/fetch-nvrtc.sh fetches both libraries.
";

struct Asked {
    nvrtc: PathBuf,
    ptx: PathBuf,
    also: Vec<PathBuf>,
    emulated: bool,
    out: PathBuf,
}

fn asked() -> Option<Asked> {
    let (mut nvrtc, mut ptx, mut out) =
        (std::env::var_os("MEMTIER_NVRTC"), std::env::var_os("MEMTIER_PTX_NVRTC"), None);
    let (mut also, mut emulated) = (Vec::new(), false);
    let mut arguments = std::env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        let place = match argument.to_str()? {
            "--nvrtc" => &mut nvrtc,
            "--ptx-nvrtc" => &mut ptx,
            "--out" => &mut out,
            "--also" => {
                also.push(arguments.next()?.into());
                continue;
            }
            "--emulated" => {
                emulated = true;
                continue;
            }
            _ => return None,
        };
        *place = Some(arguments.next()?);
    }
    let nvrtc = PathBuf::from(nvrtc?);
    let ptx = ptx.map_or_else(|| nvrtc.clone(), PathBuf::from);
    Some(Asked { ptx, nvrtc, also, emulated, out: PathBuf::from(out?) })
}

fn run(Asked { nvrtc, ptx, also, emulated, out }: &Asked) -> Result<(), KernelError> {
    let version = |nvrtc: &Nvrtc| format!("{}.{}", nvrtc.version().0, nvrtc.version().1);
    let for_ptx = Nvrtc::open(ptx)?;
    if *emulated {
        compile_for_emulation(&for_ptx, out)?;
        also.iter().try_for_each(|source| compile_source_for_emulation(&for_ptx, source, out))?;
        println!("PTX for the emulated device by NVRTC {}, in {}", version(&for_ptx), out.display());
        return Ok(());
    }
    let nvrtc = Nvrtc::open(nvrtc)?;
    let uses = compile_kernels(&nvrtc, &for_ptx, out)?;
    also.iter().try_for_each(|source| compile_source(&nvrtc, &for_ptx, source, out))?;
    println!("{:<10} {:<34} {:>9} {:>6} {:>6} {:>6}", "target", "kernel", "registers", "stack", "spills", "shared");
    for it in &uses {
        println!(
            "{:<10} {:<34} {:>9} {:>6} {:>6} {:>6}",
            it.target, it.kernel, it.registers, it.stack, it.spills, it.shared
        );
    }
    println!("machine code by NVRTC {}, PTX by {}, in {}", version(&nvrtc), version(&for_ptx), out.display());
    Ok(())
}

fn main() -> ExitCode {
    let Some(asked) = asked() else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&asked) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
