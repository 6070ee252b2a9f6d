//! Compiles every kernel for every target, without a GPU.

use std::{path::PathBuf, process::ExitCode};

use memtier_cuda::{KernelError, Nvrtc, compile_kernels, compile_source};

const USAGE: &str = "\
compile-kernels --nvrtc PATH [--ptx-nvrtc PATH] [--also SOURCE.cu]... --out FOLDER

  --nvrtc PATH       libnvrtc.so.*, 13.1 or newer: the machine code
  --ptx-nvrtc PATH   libnvrtc.so.* of CUDA 12.9: the PTX, which older drivers take; default: the same
  --also SOURCE.cu   a source of your own, compiled beside them; may be given again
  --out FOLDER       where images and manifest.txt go

MEMTIER_NVRTC and MEMTIER_PTX_NVRTC stand for the first two.
kernels/fetch-nvrtc.sh fetches both libraries.
";

struct Asked {
    nvrtc: PathBuf,
    ptx: PathBuf,
    also: Vec<PathBuf>,
    out: PathBuf,
}

fn asked() -> Option<Asked> {
    let (mut nvrtc, mut ptx, mut out) =
        (std::env::var_os("MEMTIER_NVRTC"), std::env::var_os("MEMTIER_PTX_NVRTC"), None);
    let mut also = Vec::new();
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
            _ => return None,
        };
        *place = Some(arguments.next()?);
    }
    let nvrtc = PathBuf::from(nvrtc?);
    Some(Asked { ptx: ptx.map_or_else(|| nvrtc.clone(), PathBuf::from), nvrtc, also, out: PathBuf::from(out?) })
}

fn run(Asked { nvrtc, ptx, also, out }: &Asked) -> Result<(), KernelError> {
    let nvrtc = Nvrtc::open(nvrtc)?;
    let for_ptx = Nvrtc::open(ptx)?;
    let uses = compile_kernels(&nvrtc, &for_ptx, out)?;
    also.iter().try_for_each(|source| compile_source(&nvrtc, &for_ptx, source, out))?;
    println!("{:<10} {:<34} {:>9} {:>6} {:>6} {:>6}", "target", "kernel", "registers", "stack", "spills", "shared");
    for it in &uses {
        println!(
            "{:<10} {:<34} {:>9} {:>6} {:>6} {:>6}",
            it.target, it.kernel, it.registers, it.stack, it.spills, it.shared
        );
    }
    let version = |nvrtc: &Nvrtc| format!("{}.{}", nvrtc.version().0, nvrtc.version().1);
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
