//! Compiled kernels, loaded for one device.

use std::{
    ffi::CString,
    fmt::Display,
    fs,
    path::{Path, PathBuf},
    ptr,
    sync::Arc,
};

use cudarc::driver::sys;

use crate::{
    CudaBackend,
    compile::{MANIFEST, TITLE},
    driver::{Context, DeviceInfo, check},
    error::{INVALID_IMAGE, KernelError, MISMATCH, NOT_FOUND},
    kernels::{
        early::starts_early,
        entries::{ENTRIES, Kernel},
        sources::{SOURCES, fingerprint},
    },
    launch::Function,
    self_test,
};

/// The kernels of this crate on one device. A name: clones share the loaded code, and recorded graphs keep it.
#[derive(Clone)]
pub struct Kernels {
    loaded: Arc<Loaded>,
    batch_invariant: bool,
    tile: Option<usize>,
}

struct Loaded {
    functions: Vec<Function>,
    multiprocessors: u32,
    target: &'static str,
    /// The suffix of its images.
    kind: &'static str,
    // Unloaded behind everything that uses the functions.
    _modules: Vec<Module>,
}

pub(crate) struct Module {
    context: Arc<Context>,
    raw: sys::CUmodule,
}

// SAFETY: the handle is only passed to the driver, which takes it from any thread.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: loaded once, unloaded once. Streams that ran its functions finish first: the driver waits.
            let _ = unsafe { sys::cuModuleUnload(self.raw) };
        }
    }
}

/// The targets for a device, the best first, with the suffix of their images.
fn targets((major, minor): (u32, u32)) -> &'static [(&'static str, &'static str)] {
    match (major, minor) {
        // The PTX is for an emulated device: nobody stages it for others.
        (9, 0) => &[("sm_90a", "cubin"), ("compute_90a", "ptx")],
        (12, 0) => &[("sm_120a", "cubin"), ("sm_120f", "cubin"), ("compute_120f", "ptx")],
        (12, _) => &[("sm_120f", "cubin"), ("compute_120f", "ptx")],
        _ => &[],
    }
}

/// Whether code for this target is that of `sm_90a`: machine code, or PTX for an emulated device.
pub(crate) fn is_90(target: &str) -> bool {
    target.ends_with("_90a")
}

impl Kernels {
    /// Loads the kernels that `compile-kernels` put into `folder`, all of them and at once: nothing is loaded, and no memory
    /// taken for it, at a launch.
    ///
    /// # Errors
    /// [`KernelError`]: there are none, or none for this device, they are of other sources or damaged, or the driver refuses them.
    pub fn load(backend: &CudaBackend, folder: &Path) -> Result<Self, KernelError> {
        let context = backend.context();
        let capability = context.info.capability;
        let manifest = current(folder)?;
        let missing = || KernelError::NoTarget { capability, folder: folder.display().to_string() };
        let found =
            targets(capability).iter().find(|(target, kind)| image(folder, target, SOURCES[0].0, kind).exists());
        let (target, kind) = found.ok_or_else(missing)?;
        context.bind()?;
        let mut modules = Vec::new();
        for (name, _) in SOURCES {
            let path = image(folder, target, name, kind);
            let mut bytes = whole(&path, listed(&manifest, target, name, kind))?;
            // PTX is text that ends with zero; a cubin does not mind.
            bytes.push(0);
            modules.push(load(context, &bytes, &path.display())?);
        }
        let functions = ENTRIES.iter().map(|entry| {
            let index = SOURCES.iter().position(|(name, _)| *name == entry.file).ok_or_else(missing)?;
            let params: Vec<usize> = entry.params.iter().map(|param| param.bytes()).collect();
            let path = image(folder, target, entry.file, kind);
            let function = function(&modules[index], entry.name, &params, &path.display())?;
            Ok(Function { early: starts_early(entry.name), ..function })
        });
        let functions = functions.collect::<Result<_, KernelError>>()?;
        let multiprocessors = context.info.multiprocessors;
        let loaded = Arc::new(Loaded { functions, multiprocessors, target, kind, _modules: modules });
        let kernels = Kernels { loaded, batch_invariant: false, tile: None };
        if !is_90(target) {
            self_test::nvfp4(&kernels, context)?;
        }
        Ok(kernels)
    }

    /// Compares the instructions that only some devices have with what stands in for them on others. [`load`](Self::load) does so on
    /// a device that has them.
    ///
    /// # Errors
    /// [`KernelError::Instruction`] when they differ.
    pub fn self_test(&self, backend: &CudaBackend) -> Result<(), KernelError> {
        self_test::nvfp4(self, backend.context())
    }

    pub(crate) fn function(&self, kernel: Kernel) -> Function {
        self.loaded.functions[kernel as usize]
    }

    /// The same kernels, chosen so that a row of a projection's inputs gives the same bits whatever the number of rows beside it: all
    /// of them are multiplied by kernels that take a row's elements in one order. Attention, norms and what else works row by row do so
    /// anyway. Inputs have to be [normalised on the way](crate::kernels::Inputs::Normed) always or never. What it costs: `docs/gpu-measured.md`.
    ///
    /// ```no_run
    /// # use memtier_cuda::{CudaBackend, Kernels};
    /// # fn open(backend: &CudaBackend) -> Result<(), Box<dyn std::error::Error>> {
    /// let kernels = Kernels::load(backend, "kernels".as_ref())?.batch_invariant(true);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn batch_invariant(self, yes: bool) -> Self {
        Kernels { batch_invariant: yes, ..self }
    }

    /// Whether they are [batch-invariant](Self::batch_invariant).
    pub fn is_batch_invariant(&self) -> bool {
        self.batch_invariant
    }

    /// Takes the kernel of this number for all [projections](crate::kernels::project) of bf16 that are not normalised on the way, whatever would be
    /// faster: for tests and measurements of each. [`KERNELS_OF_MANY_ROWS`](crate::kernels::KERNELS_OF_MANY_ROWS) is how many there are.
    #[doc(hidden)]
    #[must_use]
    pub fn with_tile(self, number: usize) -> Self {
        Kernels { tile: Some(number), ..self }
    }

    pub(crate) fn tile(&self) -> Option<usize> {
        self.tile
    }

    /// The device's multiprocessors: what grids are sized by.
    pub fn multiprocessors(&self) -> u32 {
        self.loaded.multiprocessors
    }

    /// Where `folder` has the image of another source for this device, by the name of the source: what
    /// [`compile_source`](crate::compile_source) put there, to be loaded with [`KernelModule::load`](crate::KernelModule::load).
    pub fn image(&self, folder: &Path, name: &str) -> PathBuf {
        image(folder, self.loaded.target, name, self.loaded.kind)
    }

    /// The architecture that they were compiled for.
    pub fn target(&self) -> &'static str {
        self.loaded.target
    }
}

impl std::fmt::Debug for Kernels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kernels({}, {} of them)", self.loaded.target, self.loaded.functions.len())
    }
}

fn image(folder: &Path, target: &str, name: &str, kind: &str) -> PathBuf {
    folder.join(target).join(format!("{name}.{kind}"))
}

/// The manifest of images that were compiled from the sources that this crate was built with.
fn current(folder: &Path) -> Result<String, KernelError> {
    let path = folder.join(MANIFEST);
    let shown = || path.display().to_string();
    let manifest =
        fs::read(&path).map_err(|error| KernelError::NoKernels { path: shown(), reason: error.to_string() })?;
    let manifest = String::from_utf8_lossy(&manifest).into_owned();
    let mut lines = manifest.lines();
    let ours = format!("sources {:016x}", fingerprint());
    match (lines.next(), lines.next()) {
        (Some(TITLE), Some(sources)) if sources == ours => Ok(manifest),
        _ => Err(KernelError::Stale { path: shown() }),
    }
}

/// How long the manifest says that an image is.
fn listed(manifest: &str, target: &str, name: &str, kind: &str) -> Option<usize> {
    let head = format!("image {target} {name}.{kind} ");
    let line = manifest.lines().find_map(|line| line.strip_prefix(&head))?;
    line.split(' ').next()?.parse().ok()
}

/// An image as long as the manifest says. The driver is not told where one ends: what was cut off it would read past.
fn whole(path: &Path, listed: Option<usize>) -> Result<Vec<u8>, KernelError> {
    let damaged = |reason: String| KernelError::Damaged { path: path.display().to_string(), reason };
    let bytes = fs::read(path).map_err(|error| damaged(error.to_string()))?;
    match listed {
        Some(listed) if listed == bytes.len() => Ok(bytes),
        Some(listed) => Err(damaged(format!("it has {} bytes, and the manifest says {listed}", bytes.len()))),
        None => Err(damaged("the manifest does not name it".to_owned())),
    }
}

/// Loads an image that ends with zero; `path` is for messages.
pub(crate) fn load(context: &Arc<Context>, image: &[u8], path: &dyn Display) -> Result<Module, KernelError> {
    let mut raw = ptr::null_mut();
    let loaded = context.acquire("cuModuleLoadData", || {
        // SAFETY: the image is a whole file, and ends with zero; the driver checks what is in it.
        unsafe { sys::cuModuleLoadData(&mut raw, image.as_ptr().cast()) }
    });
    let DeviceInfo { cuda, capability, .. } = context.info;
    loaded.map_err(|error| match error.code {
        code if MISMATCH.contains(&code) => {
            KernelError::Mismatch { path: path.to_string(), name: error.name, cuda, capability }
        }
        INVALID_IMAGE => KernelError::Damaged { path: path.to_string(), reason: error.to_string() },
        _ => KernelError::Driver(error),
    })?;
    Ok(Module { context: context.clone(), raw })
}

/// The function of that name, checked for parameters of these sizes; `path` is for messages.
pub(crate) fn function(
    module: &Module,
    entry: &'static str,
    params: &[usize],
    path: &dyn Display,
) -> Result<Function, KernelError> {
    let name = CString::new(entry).unwrap_or_default();
    let mut raw = ptr::null_mut();
    // SAFETY: a loaded module; the name ends with zero.
    let found = unsafe { sys::cuModuleGetFunction(&mut raw, module.raw, name.as_ptr()) };
    check("cuModuleGetFunction", found).map_err(|error| match error.code {
        NOT_FOUND => KernelError::NoEntry { entry, path: path.to_string() },
        _ => KernelError::Driver(error),
    })?;
    // SAFETY: a function of a loaded module.
    check("cuFuncLoad", unsafe { sys::cuFuncLoad(raw) })?;
    signature(raw, entry, params)?;
    use sys::CUfunction_attribute as A;
    let (mut own, most) = (0, A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
    // SAFETY: a live function; writes one integer.
    let result = unsafe { sys::cuFuncGetAttribute(&mut own, A::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, raw) };
    check("cuFuncGetAttribute", result)?;
    let dynamic = module.context.info.shared as i32 - own;
    // SAFETY: a live function.
    check("cuFuncSetAttribute", unsafe { sys::cuFuncSetAttribute(raw, most, dynamic) })?;
    Ok(Function { raw, early: false })
}

/// Whether the compiled kernel takes what its wrapper passes.
fn signature(raw: sys::CUfunction, entry: &'static str, params: &[usize]) -> Result<(), KernelError> {
    let size = |index: usize| {
        let (mut offset, mut bytes) = (0, 0);
        // SAFETY: a live function; writes two integers.
        let result = unsafe { sys::cuFuncGetParamInfo(raw, index, &mut offset, &mut bytes) };
        check("cuFuncGetParamInfo", result).ok().map(|()| bytes)
    };
    let wanted = |index: usize| params.get(index).copied().unwrap_or(0);
    // Not past the last one: asking for that is an error to tools that watch the driver. The sources were compared already.
    for index in 0..params.len() {
        let found = size(index);
        if found.unwrap_or(0) != wanted(index) {
            let found = found.map_or_else(|| "nothing".to_owned(), |bytes| format!("{bytes} bytes"));
            return Err(KernelError::Signature { entry, index, found, wanted: wanted(index) });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_takes_only_images_that_it_can_run() {
        assert_eq!(targets((9, 0)), [("sm_90a", "cubin"), ("compute_90a", "ptx")]);
        assert_eq!(targets((12, 1))[0].0, "sm_120f");
        assert!(targets((8, 0)).is_empty());
    }

    #[test]
    fn kernels_of_other_sources_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::write(folder.join(MANIFEST), format!("{TITLE}\nsources 0000000000000000\n")).unwrap();
        let stale = current(folder).unwrap_err();
        assert!(matches!(stale, KernelError::Stale { .. }));
        fs::write(folder.join(MANIFEST), format!("{TITLE}\nsources {:016x}\n", fingerprint())).unwrap();
        current(folder).unwrap();
        // A byte that is no text is no panic.
        fs::write(folder.join(MANIFEST), [0xff; 40]).unwrap();
        assert!(matches!(current(folder), Err(KernelError::Stale { .. })));
        fs::remove_file(folder.join(MANIFEST)).unwrap();
        let missing = current(folder).unwrap_err();
        assert!(matches!(missing, KernelError::NoKernels { .. }) && missing.to_string().contains("compile-kernels"));
    }

    #[test]
    fn an_image_that_was_cut_off_does_not_reach_the_driver() {
        let folder = tempfile::tempdir().unwrap();
        let (path, manifest) = (folder.path().join("gate.cubin"), "x\nimage sm_90a gate.cubin 5 nvrtc 13.1\n");
        let length = |name| listed(manifest, "sm_90a", name, "cubin");
        assert_eq!([length("gate"), length("norm"), listed(manifest, "sm_90", "gate", "cubin")], [Some(5), None, None]);
        let error = |listed| whole(&path, listed).unwrap_err().to_string();
        assert!(error(Some(5)).contains("gate.cubin is no compiled kernel"));
        fs::write(&path, b"four").unwrap();
        assert!(error(Some(5)).contains("it has 4 bytes, and the manifest says 5; compile the kernels again"));
        assert!(error(None).contains("does not name it"));
        assert_eq!(whole(&path, Some(4)).unwrap(), b"four");
    }
}
