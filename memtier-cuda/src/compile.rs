//! Compiling every kernel for every target, with a manifest of what came out.

use std::{fmt::Write as _, fs, path::Path};

use crate::{
    error::KernelError,
    kernels::sources::{HEADERS, SOURCES, fingerprint},
    nvrtc::{Nvrtc, Source},
};

/// The first line of a manifest.
pub(crate) const TITLE: &str = "memtier kernels 1";
/// The name of the manifest in the folder of compiled kernels.
pub(crate) const MANIFEST: &str = "manifest.txt";

/// The architectures that get machine code.
pub(crate) const CUBINS: [&str; 3] = ["sm_90a", "sm_120a", "sm_120f"];
/// The architecture that gets PTX, for drivers that compile for what came later.
pub(crate) const PTX: &str = "compute_120f";
/// The one that gets PTX for the emulated device, beside that.
pub(crate) const PTX_90: &str = "compute_90a";

/// What the compiler used for one kernel on one target.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct KernelUse {
    /// The kernel.
    pub kernel: String,
    /// The architecture.
    pub target: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of local memory of a thread.
    pub stack: u32,
    /// Bytes written to and read from local memory because registers ran out.
    pub spills: u32,
    /// Bytes of shared memory that the kernel declares itself.
    pub shared: u32,
}

/// Targets with what compiles for each and what comes out.
type Targets<'n> = Vec<(&'static str, &'n Nvrtc, &'static str)>;

/// What devices take: machine code, and PTX.
fn for_devices<'n>(nvrtc: &'n Nvrtc, for_ptx: &'n Nvrtc) -> Targets<'n> {
    let targets = CUBINS.map(|target| (target, nvrtc, "cubin"));
    targets.into_iter().chain([(PTX, for_ptx, "ptx")]).collect()
}

/// What an emulated device takes, which interprets PTX: for each capability that it can have.
fn for_emulation(for_ptx: &Nvrtc) -> Targets<'_> {
    [PTX, PTX_90].map(|target| (target, for_ptx, "ptx")).into()
}

/// Compiles every kernel into `folder`: machine code with `nvrtc`, and PTX with `for_ptx`, which should be an older one,
/// because a driver refuses PTX that is newer than itself. Writes a manifest beside them.
///
/// # Errors
/// [`KernelError::Compile`] with the compiler's words, or [`KernelError::File`].
pub fn compile_kernels(nvrtc: &Nvrtc, for_ptx: &Nvrtc, folder: &Path) -> Result<Vec<KernelUse>, KernelError> {
    compile_all(for_devices(nvrtc, for_ptx), folder)
}

/// Compiles every kernel into `folder` for the emulated device of `emulator/` in the repository: as PTX only, which takes a tenth of the
/// time. A real device does not take them: nothing there is tuned or checked by the assembler.
///
/// # Errors
/// As of [`compile_kernels`].
pub fn compile_for_emulation(for_ptx: &Nvrtc, folder: &Path) -> Result<(), KernelError> {
    compile_all(for_emulation(for_ptx), folder).map(drop)
}

fn compile_all(targets: Targets<'_>, folder: &Path) -> Result<Vec<KernelUse>, KernelError> {
    // A thread a target: the compiler takes a while.
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = targets
            .into_iter()
            .map(|(target, nvrtc, kind)| scope.spawn(move || compile_target(nvrtc, target, kind, folder)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let mut uses = Vec::new();
    let mut manifest = format!("{TITLE}\nsources {:016x}\n", fingerprint());
    for result in results {
        let (images, of_target) = result?;
        manifest += &images;
        uses.extend(of_target);
    }
    for KernelUse { kernel, target, registers, stack, spills, shared } in &uses {
        let _ = writeln!(
            manifest,
            "kernel {target} {kernel} registers {registers} stack {stack} spills {spills} shared {shared}"
        );
    }
    let path = folder.join(MANIFEST);
    fs::write(&path, manifest).map_err(|error| file(&path, &error))?;
    Ok(uses)
}

/// Compiles a source of somebody else's, for every target, into `folder` beside the others: `PATH/axpy.cu` becomes `sm_90a/axpy.cubin`
/// and so on. It may include the headers of this crate's kernels. What comes out is loaded with
/// [`KernelModule::load`](crate::KernelModule::load).
///
/// # Errors
/// [`KernelError::Compile`] with the compiler's words, or [`KernelError::File`].
pub fn compile_source(nvrtc: &Nvrtc, for_ptx: &Nvrtc, source: &Path, folder: &Path) -> Result<(), KernelError> {
    compile_one(for_devices(nvrtc, for_ptx), source, folder)
}

/// The same for the emulated device: `PATH/axpy.cu` becomes `compute_120f/axpy.ptx` and `compute_90a/axpy.ptx`.
///
/// # Errors
/// As of [`compile_source`].
pub fn compile_source_for_emulation(for_ptx: &Nvrtc, source: &Path, folder: &Path) -> Result<(), KernelError> {
    compile_one(for_emulation(for_ptx), source, folder)
}

fn compile_one(targets: Targets<'_>, source: &Path, folder: &Path) -> Result<(), KernelError> {
    let text = fs::read_to_string(source).map_err(|error| file(source, &error))?;
    let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    for (target, nvrtc, kind) in targets {
        let place = folder.join(target);
        fs::create_dir_all(&place).map_err(|error| file(&place, &error))?;
        let compiled = nvrtc.build(Source { name: &name, text: &text, headers: HEADERS }, target)?;
        let path = place.join(format!("{name}.{kind}"));
        fs::write(&path, &compiled.image).map_err(|error| file(&path, &error))?;
    }
    Ok(())
}

/// Compiles every source for one target; gives the manifest's lines and what the compiler used.
fn compile_target(
    nvrtc: &Nvrtc,
    target: &'static str,
    kind: &str,
    folder: &Path,
) -> Result<(String, Vec<KernelUse>), KernelError> {
    let (major, minor) = nvrtc.version();
    let place = folder.join(target);
    fs::create_dir_all(&place).map_err(|error| file(&place, &error))?;
    let (mut images, mut uses) = (String::new(), Vec::new());
    for (name, text) in SOURCES {
        let compiled = nvrtc.build(Source { name, text, headers: HEADERS }, target)?;
        let path = place.join(format!("{name}.{kind}"));
        fs::write(&path, &compiled.image).map_err(|error| file(&path, &error))?;
        let _ = writeln!(images, "image {target} {name}.{kind} {} nvrtc {major}.{minor}", compiled.image.len());
        uses.extend(uses_of(&compiled.log, target));
    }
    Ok((images, uses))
}

pub(crate) fn file(path: &Path, error: &std::io::Error) -> KernelError {
    KernelError::File { path: path.display().to_string(), reason: error.to_string() }
}

/// The lines that ptxas prints for each kernel.
fn uses_of(log: &str, target: &str) -> Vec<KernelUse> {
    let mut uses: Vec<KernelUse> = Vec::new();
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let kernel = rest.split('\'').next().unwrap_or_default().to_owned();
            let target = target.to_owned();
            uses.push(KernelUse { kernel, target, registers: 0, stack: 0, spills: 0, shared: 0 });
        }
        let Some(last) = uses.last_mut() else { continue };
        if let Some(stack) = before(line, " bytes stack frame") {
            last.stack = stack;
            last.spills =
                before(line, " bytes spill stores").unwrap_or(0) + before(line, " bytes spill loads").unwrap_or(0);
        }
        if let Some(registers) = before(line, " registers") {
            last.registers = registers;
            last.shared = before(line, " bytes smem").unwrap_or(0);
        }
    }
    uses
}

/// The number in front of `what`.
fn before(line: &str, what: &str) -> Option<u32> {
    let (head, _) = line.split_once(what)?;
    head.rsplit([' ', ',']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::early::{reads_before_the_wait, starts_early};

    #[test]
    fn the_words_of_ptxas_are_understood() {
        let log = "ptxas info    : 0 bytes gmem\n\
                   ptxas info    : Compiling entry function 'scale_f32' for 'sm_90a'\n\
                   ptxas info    : Function properties for scale_f32\n\
                   \x20   8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n\
                   ptxas info    : Used 24 registers, used 1 barriers, 48 bytes smem, 380 bytes cmem[0]\n";
        let uses = uses_of(log, "sm_90a");
        let expected = KernelUse {
            kernel: "scale_f32".into(),
            target: "sm_90a".into(),
            registers: 24,
            stack: 8,
            spills: 16,
            shared: 48,
        };
        assert_eq!(uses, [expected]);
    }

    /// An image as text.
    fn disassembled(nvdisasm: &std::ffi::OsStr, image: &Path) -> String {
        let output = std::process::Command::new(nvdisasm).arg("-c").arg(image).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The kernels of an image that may start early, each with its loads of global memory in front of `griddepcontrol.wait`: the assembler
    /// moves those of memory that is said never to change (`CONSTANT`) past it, both ways.
    fn loads_before_the_wait(text: &str) -> Vec<(String, Vec<String>)> {
        let kernels = text.split("\n.text.").skip(1).map(|kernel| kernel.split_once(':').unwrap());
        let early = kernels.filter(|(name, _)| starts_early(name));
        let loads = early.map(|(name, code)| {
            let (before, _) = code.split_once("ACQBULK").unwrap_or_else(|| panic!("{name} does not wait"));
            let words = before.split_whitespace().filter(|word| word.starts_with("LDG.") || word.starts_with("LDGSTS"));
            (name.to_owned(), words.map(str::to_owned).collect())
        });
        loads.collect()
    }

    /// Copies whose policy the assembler forgot, as that of CUDA 13.1 may where their shared address has a part in a uniform register: the policy's
    /// register is one that nothing wrote, and the copy an illegal instruction (seen on an H200).
    fn copies_without_their_policy(code: &str) -> Vec<&str> {
        let copies = code.lines().filter(|line| line.contains("LDGSTS"));
        copies.filter(|line| line.contains("+UR") || line.contains("desc[UR1]")).collect()
    }

    #[test]
    fn a_copy_whose_policy_was_forgotten_is_found() {
        let line =
            |address, policy| format!("/*08a0*/ LDGSTS.E.BYPASS.LTC128B.128 [{address}], desc[{policy}][R14.64] ;");
        let code = [line("R3+UR0+0x600", "UR1"), line("R3+0x600", "UR4"), line("R3", "UR10")].join("\n");
        assert_eq!(copies_without_their_policy(&code), [line("R3+UR0+0x600", "UR1")]);
    }

    /// What is copied or read early are weights: of the inputs, which the kernel in front may still write, the instructions look alike.
    fn only_weights_are_read_early(folder: &Path) {
        for name in ["skinny", "gemm", "quant", "quant_ring", "quant_ring4", "quant_rows"] {
            let ptx = fs::read_to_string(folder.join(format!("{name}.ptx"))).unwrap();
            let kernels = reads_before_the_wait(&ptx);
            let early: Vec<_> = kernels.iter().filter(|(kernel, _)| starts_early(kernel)).collect();
            assert!(early.iter().any(|(_, reads)| !reads.is_empty()), "{name} reads nothing early");
            for (kernel, code, from) in
                early.iter().flat_map(|(kernel, reads)| reads.iter().map(move |(code, from)| (kernel, code, from)))
            {
                // out, x, w0, w1, w2
                assert!(
                    from.iter().any(|argument| (2..5).contains(argument)),
                    "{kernel}: `{code}` is of arguments {from:?}"
                );
            }
        }
    }

    /// The instructions of an image, by name, with how often they are there.
    fn opcodes(text: &str) -> std::collections::BTreeMap<String, usize> {
        let mut counts = std::collections::BTreeMap::new();
        for line in text.lines() {
            // An address in a comment, a predicate perhaps, and the instruction with its suffixes.
            let Some((_, code)) = line.split_once("*/") else { continue };
            let code = code.trim().trim_start_matches('@');
            let word = code.split_whitespace().find(|word| !word.trim_start_matches('!').starts_with("P"));
            let name = word.and_then(|word| word.trim_end_matches(';').split('.').next()).unwrap_or_default();
            *counts.entry(name.to_owned()).or_insert(0) += 1;
        }
        counts
    }

    /// Needs no GPU, but NVRTC: `MEMTIER_NVRTC` names the library, `MEMTIER_NVDISASM` the disassembler.
    #[test]
    fn every_kernel_compiles_for_every_target_into_what_is_meant() {
        let Some(path) = std::env::var_os("MEMTIER_NVRTC") else {
            println!("skipped: MEMTIER_NVRTC does not name a libnvrtc");
            return;
        };
        let nvrtc = Nvrtc::open(Path::new(&path)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let uses = compile_kernels(&nvrtc, &nvrtc, folder).unwrap();
        assert_eq!(uses.len(), crate::kernels::entries::ENTRIES.len() * CUBINS.len());
        for KernelUse { kernel, target, registers, stack, spills, shared } in uses {
            assert_eq!((stack, spills), (0, 0), "{kernel} on {target}");
            assert!(registers > 0 && registers <= 255 && shared <= 4096, "{kernel} on {target}: {registers} registers");
        }
        match std::env::var_os("MEMTIER_NVDISASM") {
            None => println!("skipped: MEMTIER_NVDISASM does not name a nvdisasm; instructions were not looked at"),
            Some(nvdisasm) => {
                for (target, (name, _)) in CUBINS.iter().flat_map(|target| SOURCES.iter().map(move |it| (target, it))) {
                    let code = disassembled(&nvdisasm, &folder.join(target).join(format!("{name}.cubin")));
                    let found = opcodes(&code);
                    let has = |name: &str| found.contains_key(name);
                    assert!(has("EXIT") && !has("LDL") && !has("STL"), "{name} on {target}: {found:?}");
                    if ["decode", "prefill", "gemm"].contains(name) {
                        // Tensor cores, matrix loads, and copies that bypass the registers.
                        assert!(has("HMMA") && has("LDSM") && has("LDGSTS"), "{name} on {target}: {found:?}");
                    }
                    if *name == "scaled" {
                        // Products of four and eight bits are the hardware's own where it has them.
                        let own = has("OMMA") && has("QMMA");
                        assert!(
                            own == target.starts_with("sm_120") && has("LDSM") && has("LDGSTS"),
                            "{target}: {found:?}"
                        );
                    }
                    if *name == "quant" {
                        // Weights go straight from memory into the tensor cores.
                        assert!(has("HMMA") && has("LDG") && !has("LDGSTS"), "{name} on {target}: {found:?}");
                    }
                    assert_eq!(copies_without_their_policy(&code), [""; 0], "{name} on {target}");
                    for (kernel, loads) in loads_before_the_wait(&code) {
                        let weights = |load: &String| load.starts_with("LDGSTS") || load.contains(".NA");
                        match *name {
                            // Weights are on their way before the wait for earlier kernels, and nothing else is.
                            "skinny" | "quant_ring" | "quant_ring4" | "quant_rows" => {
                                assert!(has("HMMA") && has("LDG") && has("LDGSTS"), "{name} on {target}: {found:?}");
                                assert!(loads.iter().any(weights), "{kernel} on {target} reads no weights early");
                                assert!(loads.iter().all(weights), "{kernel} on {target} reads early: {loads:?}");
                            }
                            // Hints of which tiles come first, from rows that may be stale: `ld.cg`.
                            "decode" => {
                                assert!(loads.iter().all(|load| load.contains("STRONG")), "{kernel}: {loads:?}")
                            }
                            "gemm" => assert!(
                                !loads.is_empty() && loads.iter().all(|load| load.starts_with("LDGSTS")),
                                "{kernel} on {target} reads early: {loads:?}"
                            ),
                            "quant" => assert!(loads.iter().all(weights), "{kernel} on {target}: {loads:?}"),
                            _ => assert!(loads.is_empty(), "{kernel} on {target} reads early: {loads:?}"),
                        }
                    }
                }
            }
        }
        only_weights_are_read_early(&folder.join(PTX));
    }

    #[test]
    fn a_missing_nvrtc_says_where_it_comes_from() {
        let error = Nvrtc::open(Path::new("/nowhere/libnvrtc.so.13")).err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.contains("nvidia-cuda-nvrtc") && error.contains("/nowhere")));
    }
}
