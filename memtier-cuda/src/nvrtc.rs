//! NVRTC, opened from a path: compiles kernels without a toolkit and without a GPU.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    path::Path,
    ptr,
};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::error::KernelError;

type Program = *mut c_void;
type Create = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
type Destroy = unsafe extern "C" fn(*mut Program) -> c_int;
type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type Fetch = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
type Version = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
type Message = unsafe extern "C" fn(c_int) -> *const c_char;

/// The runtime compiler.
pub struct Nvrtc {
    create: Create,
    compile: Compile,
    destroy: Destroy,
    log: (Size, Fetch),
    cubin: (Size, Fetch),
    ptx: (Size, Fetch),
    message: Message,
    version: (u32, u32),
    path: String,
    // The functions above are the library's.
    _libraries: [Option<Library>; 2],
}

/// A source with the headers that it includes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'s> {
    pub(crate) name: &'s str,
    pub(crate) text: &'s str,
    pub(crate) headers: &'s [(&'s str, &'s str)],
}

/// What became of a source.
pub(crate) struct Compiled {
    /// A cubin, or PTX with its terminating zero.
    pub(crate) image: Vec<u8>,
    /// What the compiler said besides.
    pub(crate) log: String,
}

impl Nvrtc {
    /// Opens `libnvrtc.so.*` at `path`. Its builtins, which it looks for by name, are taken from beside it.
    ///
    /// # Errors
    /// [`KernelError::NoNvrtc`].
    pub fn open(path: &Path) -> Result<Self, KernelError> {
        let shown = path.display().to_string();
        let failed = |reason: String| KernelError::NoNvrtc { path: shown.clone(), reason };
        let builtins = beside(path).map(|path| {
            // SAFETY: the library's initialisers are its vendor's.
            unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) }
        });
        let builtins = builtins.transpose().map_err(|error| failed(error.to_string()))?;
        // SAFETY: as above.
        let library = unsafe { Library::open(Some(path), RTLD_NOW) }.map_err(|error| failed(error.to_string()))?;
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the function has this type since NVRTC 11, by its header.
                *unsafe { library.get($name) }.map_err(|error| failed(error.to_string()))?
            };
        }
        let version: Version = function!(b"nvrtcVersion");
        let (mut major, mut minor) = (0, 0);
        // SAFETY: writes two integers.
        unsafe { version(&mut major, &mut minor) };
        Ok(Nvrtc {
            create: function!(b"nvrtcCreateProgram"),
            compile: function!(b"nvrtcCompileProgram"),
            destroy: function!(b"nvrtcDestroyProgram"),
            log: (function!(b"nvrtcGetProgramLogSize"), function!(b"nvrtcGetProgramLog")),
            cubin: (function!(b"nvrtcGetCUBINSize"), function!(b"nvrtcGetCUBIN")),
            ptx: (function!(b"nvrtcGetPTXSize"), function!(b"nvrtcGetPTX")),
            message: function!(b"nvrtcGetErrorString"),
            version: (u32::try_from(major).unwrap_or(0), u32::try_from(minor).unwrap_or(0)),
            path: shown.clone(),
            _libraries: [Some(library), builtins],
        })
    }

    /// Its version: major, minor.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    fn words(&self, code: c_int) -> String {
        // SAFETY: gives a static string for every code.
        let text = unsafe { (self.message)(code) };
        if text.is_null() {
            return format!("code {code}");
        }
        // SAFETY: as above.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// Compiles a source for one architecture: `sm_90a` gives a cubin, `compute_120f` PTX.
    pub(crate) fn build(&self, source: Source<'_>, target: &'static str) -> Result<Compiled, KernelError> {
        let refused = |log: String| KernelError::Compile { file: source.name.to_owned(), target, log };
        let zeroed = |text: &str| CString::new(text).map_err(|error| refused(error.to_string()));
        let (text, name) = (zeroed(source.text)?, zeroed(&format!("{}.cu", source.name))?);
        let headers = source.headers.iter().map(|(name, text)| Ok((zeroed(name)?, zeroed(text)?)));
        let headers = headers.collect::<Result<Vec<_>, KernelError>>()?;
        let names: Vec<_> = headers.iter().map(|(name, _)| name.as_ptr()).collect();
        let texts: Vec<_> = headers.iter().map(|(_, text)| text.as_ptr()).collect();
        let mut program = Built { nvrtc: self, raw: ptr::null_mut() };
        // SAFETY: strings end with zero and live until the call returns; the lists are as long as their count.
        let code = unsafe {
            let count = names.len() as c_int;
            (self.create)(&mut program.raw, text.as_ptr(), name.as_ptr(), count, texts.as_ptr(), names.as_ptr())
        };
        if code != 0 {
            return Err(refused(format!("{}: {}", self.path, self.words(code))));
        }
        let options = [&format!("--gpu-architecture={target}"), "--std=c++17", "--ptxas-options=-v", "-lineinfo"];
        let options = options.into_iter().map(zeroed).collect::<Result<Vec<_>, _>>()?;
        let options: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: a live program; the options end with zero and live until the call returns.
        let code = unsafe { (self.compile)(program.raw, options.len() as c_int, options.as_ptr()) };
        let log = program.fetch(self.log).map(|log| text_of(&log)).unwrap_or_default();
        if code != 0 {
            return Err(refused(format!("{}\n{log}", self.words(code))));
        }
        let from = if target.starts_with("compute_") { self.ptx } else { self.cubin };
        let image = program.fetch(from).map_err(|code| refused(self.words(code)))?;
        Ok(Compiled { image, log })
    }
}

/// `libnvrtc-builtins` in the folder of `path`, the one that is no alternative.
fn beside(path: &Path) -> Option<std::path::PathBuf> {
    let names = std::fs::read_dir(path.parent()?).ok()?.flatten().map(|entry| entry.path());
    names.into_iter().find(|path| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name.starts_with("libnvrtc-builtins.so")
    })
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()
}

/// A program, until it is dropped.
struct Built<'n> {
    nvrtc: &'n Nvrtc,
    raw: Program,
}

impl Built<'_> {
    fn fetch(&self, (size, fetch): (Size, Fetch)) -> Result<Vec<u8>, c_int> {
        let mut bytes = 0;
        // SAFETY: a live program; writes one integer.
        match unsafe { size(self.raw, &mut bytes) } {
            0 => {}
            code => return Err(code),
        }
        let mut image = vec![0u8; bytes];
        // SAFETY: a live program; writes as many bytes as it said.
        match unsafe { fetch(self.raw, image.as_mut_ptr().cast()) } {
            0 => Ok(image),
            code => Err(code),
        }
    }
}

impl Drop for Built<'_> {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: created once, destroyed once.
            unsafe { (self.nvrtc.destroy)(&mut self.raw) };
        }
    }
}
