//! Modules: PTX that was loaded, and its kernels. Machine code is for other devices.

use std::{
    collections::BTreeMap,
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use cudarc::driver::sys::{CUfunction, CUfunction_attribute as A, CUmodule, CUresult as R};

use crate::ptx;

use super::{
    calls::{Driver, Inside, in_context, pointer, put},
    error::{Outcome, ensure},
    settings::{MOST_THREADS, SHARED},
    space::Kind,
};

/// How machine code begins: ELF, and a container of several images.
const MACHINE_CODE: [[u8; 4]; 2] = [*b"\x7fELF", [0x50, 0xed, 0x55, 0xba]];
/// Loaded code takes device memory in pieces of so many bytes.
const PIECE_BYTES: u64 = 64 << 10;
/// Its variables take it in pieces of so many.
const VARIABLE_BYTES: u64 = 256;

/// Code that was loaded.
pub(super) struct Loaded {
    pub(super) code: ptx::Module,
    /// Where its variables lie.
    pub(super) globals: Vec<u64>,
    gone: AtomicBool,
}

impl Loaded {
    /// Whether it was unloaded: a graph may still name it.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

struct Module {
    loaded: Arc<Loaded>,
    charged: u64,
}

/// A kernel of a loaded module.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) loaded: Arc<Loaded>,
    module: u64,
    pub(super) name: String,
    /// The most dynamic shared memory that a launch may ask for, in bytes.
    pub(super) dynamic: u32,
}

impl Entry {
    pub(super) fn function(&self) -> Outcome<&ptx::Function> {
        self.loaded.code.function(&self.name).ok_or(R::CUDA_ERROR_NOT_FOUND.into())
    }

    /// The most threads of a block.
    pub(super) fn most_threads(&self) -> Outcome<u32> {
        let most = self.function()?.max_threads().map(|[x, y, z]| x.saturating_mul(y).saturating_mul(z));
        Ok(most.map_or(MOST_THREADS, |most| most.clamp(1, MOST_THREADS)))
    }
}

/// Everything that is loaded.
#[derive(Default)]
pub(super) struct Modules {
    modules: BTreeMap<u64, Module>,
    entries: BTreeMap<u64, Entry>,
}

impl Modules {
    pub(super) fn entry(&self, function: CUfunction) -> Outcome<&Entry> {
        self.entries.get(&(function.addr() as u64)).ok_or(R::CUDA_ERROR_INVALID_HANDLE.into())
    }

    pub(super) fn clear(&mut self) {
        self.modules.values().for_each(|module| module.loaded.gone.store(true, Ordering::Release));
        *self = Modules::default();
    }
}

/// A version as two numbers, behind a word at the start of a line.
fn version(text: &str) -> Option<(u32, u32)> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(".version"))?;
    let (major, minor) = line.trim().split_once('.')?;
    Some((major.parse().ok()?, minor.trim().parse().ok()?))
}

/// Whether a device of this capability runs code for `target`, such as `sm_80`, `sm_90a` or `sm_120f`.
fn runs(target: &str, (major, minor): (u32, u32)) -> bool {
    let number = target.trim_start_matches("sm_").trim_start_matches("compute_");
    let (digits, kind) = number.split_at(number.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len());
    let Ok(of) = digits.parse::<u32>() else { return false };
    let device = major * 10 + minor;
    match kind {
        // Exactly this one; the later ones of its family; every later one.
        "a" => of == device,
        "f" => of / 10 == major && of <= device,
        _ => of <= device,
    }
}

/// What is in an image.
///
/// # Safety
/// It is machine code, or text that ends with zero.
unsafe fn text<'a>(image: *const c_void) -> Outcome<&'a str> {
    ensure(!image.is_null(), R::CUDA_ERROR_INVALID_VALUE)?;
    for magic in MACHINE_CODE {
        // One byte after the other: a short text ends before the fourth.
        // SAFETY: by the caller; a text has no zero where the magic has none, so none is passed.
        let same = (0..4).all(|at| unsafe { image.cast::<u8>().add(at).read() } == magic[at]);
        ensure(!same, R::CUDA_ERROR_NO_BINARY_FOR_GPU)?;
    }
    // SAFETY: by the caller.
    let text = unsafe { CStr::from_ptr(image.cast::<c_char>()) };
    text.to_str().map_err(|_| R::CUDA_ERROR_INVALID_IMAGE.into())
}

fn parse(text: &str, driver: &Driver) -> Outcome<ptx::Module> {
    let written = version(text).ok_or(R::CUDA_ERROR_INVALID_PTX)?;
    // CUDA 12.x has PTX 8.x, and 13.x has 9.x.
    let known = (driver.settings.cuda as u32 / 1000).saturating_sub(4);
    ensure(written.0 <= known, R::CUDA_ERROR_UNSUPPORTED_PTX_VERSION)?;
    let module = ptx::Module::parse(text).map_err(|error| {
        eprintln!("memtier emulated GPU: {error}");
        R::CUDA_ERROR_INVALID_PTX
    })?;
    ensure(runs(module.target(), driver.settings.capability), R::CUDA_ERROR_INVALID_PTX)?;
    Ok(module)
}

/// Memory for a module's variables, with what they start as.
fn variables(inside: &mut Inside, code: &ptx::Module) -> Outcome<Vec<u64>> {
    let mut places = Vec::new();
    for global in code.globals() {
        let (state, driver) = inside.parts();
        match state.books.allocate(&driver.space, (global.size as u64).max(1), Kind::Device, VARIABLE_BYTES) {
            Ok(at) => {
                let to = std::ptr::with_exposed_provenance_mut::<u8>(at as usize);
                // SAFETY: as many bytes were taken a moment ago, and nobody knows them yet.
                unsafe { to.copy_from_nonoverlapping(global.initial.as_ptr(), global.initial.len().min(global.size)) };
                places.push(at);
            }
            Err(failure) => {
                forget(inside, &places);
                return Err(failure);
            }
        }
    }
    Ok(places)
}

fn forget(inside: &mut Inside, places: &[u64]) {
    let (state, driver) = inside.parts();
    for at in places {
        // They are there: they were taken with the module.
        let _ = state.books.forget(&driver.space, *at);
    }
}

/// # Safety
/// `module` is null, or valid for a write. `image` is null, machine code, or text that ends with zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void) -> u32 {
    in_context("cuModuleLoadData", |inside| {
        ensure(!module.is_null(), R::CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: by the caller.
        let text = unsafe { text(image) }?;
        let code = parse(text, inside.driver)?;
        let charged = (text.len() as u64).next_multiple_of(PIECE_BYTES);
        inside.books.charge(charged)?;
        let globals = variables(inside, &code).inspect_err(|_| inside.books.refund(charged))?;
        let loaded = Arc::new(Loaded { code, globals, gone: AtomicBool::new(false) });
        let handle = inside.handle();
        inside.modules.modules.insert(handle, Module { loaded, charged });
        // SAFETY: by the caller.
        unsafe { put(module, pointer(handle)) }
    })
}

/// # Safety
/// Nothing of the module is launched any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleUnload(module: CUmodule) -> u32 {
    in_context("cuModuleUnload", |inside| {
        let handle = module.addr() as u64;
        ensure(inside.modules.modules.contains_key(&handle), R::CUDA_ERROR_INVALID_HANDLE)?;
        inside.drain_all();
        let Some(module) = inside.modules.modules.remove(&handle) else { return Ok(()) };
        module.loaded.gone.store(true, Ordering::Release);
        inside.modules.entries.retain(|_, entry| entry.module != handle);
        forget(inside, &module.loaded.globals);
        inside.books.refund(module.charged);
        inside.sweep();
        Ok(())
    })
}

/// # Safety
/// `function` is null, or valid for a write; `name` is null, or text that ends with zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) -> u32 {
    in_context("cuModuleGetFunction", |inside| {
        ensure(!function.is_null() && !name.is_null(), R::CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: by the caller.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        let of = module.addr() as u64;
        let loaded = &inside.modules.modules.get(&of).ok_or(R::CUDA_ERROR_INVALID_HANDLE)?.loaded;
        let found = loaded.code.function(&name).ok_or(R::CUDA_ERROR_NOT_FOUND)?;
        let dynamic = SHARED.saturating_sub(found.static_shared());
        let entry = Entry { loaded: loaded.clone(), module: of, name, dynamic };
        let known = inside.modules.entries.iter().find(|(_, had)| had.module == of && had.name == entry.name);
        let handle = match known.map(|(handle, _)| *handle) {
            Some(handle) => handle,
            None => {
                let handle = inside.handle();
                inside.modules.entries.insert(handle, entry);
                handle
            }
        };
        // SAFETY: by the caller.
        unsafe { put(function, pointer(handle)) }
    })
}

/// # Safety
/// None is needed: what is no function is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncLoad(function: CUfunction) -> u32 {
    in_context("cuFuncLoad", |inside| inside.modules.entry(function).map(drop))
}

/// # Safety
/// The pointers are null, or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetParamInfo(
    function: CUfunction,
    index: usize,
    offset: *mut usize,
    bytes: *mut usize,
) -> u32 {
    in_context("cuFuncGetParamInfo", |inside| {
        let params = inside.modules.entry(function)?.function()?.params();
        let param = params.get(index).ok_or(R::CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: by the caller.
        unsafe {
            put(offset, param.offset)?;
            if bytes.is_null() { Ok(()) } else { put(bytes, param.size) }
        }
    })
}

/// # Safety
/// `value` is null, or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetAttribute(value: *mut c_int, attribute: c_uint, function: CUfunction) -> u32 {
    in_context("cuFuncGetAttribute", |inside| {
        let entry = inside.modules.entry(function)?;
        let (code, (major, minor)) = (entry.function()?, inside.driver.settings.capability);
        let table = [
            (A::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, entry.most_threads()?),
            (A::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, code.static_shared()),
            (A::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, code.local_bytes()),
            (A::CU_FUNC_ATTRIBUTE_BINARY_VERSION, major * 10 + minor),
            (A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, entry.dynamic),
        ];
        let found = table.iter().find(|(known, _)| *known as u32 == attribute);
        // Of registers, for one, an interpreter knows nothing.
        let (_, found) = found.ok_or(R::CUDA_ERROR_NOT_SUPPORTED)?;
        // SAFETY: by the caller.
        unsafe { put(value, *found as c_int) }
    })
}

/// # Safety
/// None is needed: what is no function is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncSetAttribute(function: CUfunction, attribute: c_uint, value: c_int) -> u32 {
    in_context("cuFuncSetAttribute", |inside| {
        let dynamic = A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as u32;
        ensure(attribute == dynamic, R::CUDA_ERROR_NOT_SUPPORTED)?;
        let most = inside.driver.settings.most_shared();
        let own = inside.modules.entry(function)?.function()?.static_shared();
        let value = u32::try_from(value).map_err(|_| R::CUDA_ERROR_INVALID_VALUE)?;
        ensure(value.saturating_add(own) <= most, R::CUDA_ERROR_INVALID_VALUE)?;
        if let Some(entry) = inside.modules.entries.get_mut(&(function.addr() as u64)) {
            entry.dynamic = value;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_for_a_device_by_its_target() {
        assert!(runs("sm_80", (12, 0)) && runs("sm_120f", (12, 1)) && runs("sm_90a", (9, 0)));
        assert!(!runs("sm_120f", (9, 0)) && !runs("sm_90a", (12, 0)) && !runs("sm_121", (12, 0)) && !runs("x", (9, 0)));
        assert_eq!(version("// a\n.version 8.8\n.target sm_90"), Some((8, 8)));
        assert_eq!(version("no text of ours"), None);
    }
}
