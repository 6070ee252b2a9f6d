//! Kernels of other crates: modules that their authors compiled, entries with the types that `#[kernel(..)]` gave them,
//! and the launch that its wrappers call.

use std::{fmt, marker::PhantomData, sync::Arc};

use memtier::{LaunchError, Place, Recorder, bf16, f16};

use crate::{
    CudaBackend,
    error::KernelError,
    launch::{self, Function, Grid},
    module::{Module, function, load},
};

/// A kernel by its name, as the type that [`kernel`](macro@crate::kernel) generates beside a wrapper. Not written by hand.
pub trait KernelEntry: 'static {
    /// Its name in the compiled module.
    const ENTRY: &'static str;
    /// The text of the source that its wrapper was compared with: what to compile.
    const SOURCE: &'static str;
    #[doc(hidden)]
    const PARAMS: &'static [usize];
    /// Threads of a block: the attribute's, or the most that the source allows.
    const THREADS: u32;
    #[doc(hidden)]
    const EXACT: bool;
}

/// What messages call a module that came without a path.
const MODULE: &str = "a kernel module";

/// A compiled CUDA source on one device. A name: clones share the loaded code.
#[derive(Clone)]
pub struct KernelModule(Arc<Module>);

impl KernelModule {
    /// Loads a cubin, or PTX.
    ///
    /// # Errors
    /// [`KernelError::Mismatch`]: it is for another device, or of a newer CUDA. [`KernelError::Damaged`]: it is neither.
    ///
    /// # Safety
    /// It was compiled from the [`SOURCE`](KernelEntry::SOURCE) of every kernel that is taken from it: wrappers were compared
    /// with that, and the driver runs what it is given.
    ///
    /// # Example
    /// ```no_run
    /// # mod kernels {
    /// #     use memtier_cuda::kernel;
    /// #     #[kernel("../kernels/vector.cu", "scale_f32")]
    /// #     pub unsafe fn scale(out: Out<f32>, x: In<f32>, factor: f32, n: u64);
    /// # }
    /// use kernels::scale;
    /// use memtier_cuda::{CudaBackend, CudaOptions, KernelModule};
    ///
    /// let backend = CudaBackend::with(CudaOptions::default())?;
    /// let image = std::fs::read("vector.cubin")?;
    /// // SAFETY: our build script compiles it from the source that `scale` names.
    /// let module = unsafe { KernelModule::load(&backend, &image) }?;
    /// let scale = module.get::<scale>()?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn load(backend: &CudaBackend, image: &[u8]) -> Result<Self, KernelError> {
        let context = backend.context();
        context.bind()?;
        // PTX is text that ends with zero; a cubin does not mind.
        let mut image = image.to_vec();
        image.push(0);
        Ok(KernelModule(Arc::new(load(context, &image, &MODULE)?)))
    }

    /// The kernel of this name, ready to be launched: nothing is loaded later.
    ///
    /// # Errors
    /// [`KernelError::NoEntry`] when there is none, [`KernelError::Signature`] when it takes arguments of other sizes.
    pub fn get<E: KernelEntry>(&self) -> Result<LoadedKernel<E>, KernelError> {
        self.0.context().bind()?;
        let function = function(&self.0, E::ENTRY, E::PARAMS, &MODULE)?;
        Ok(LoadedKernel { function, module: self.clone(), entry: PhantomData })
    }
}

impl fmt::Debug for KernelModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KernelModule")
    }
}

/// A kernel that is loaded: what its wrapper takes, and no other's.
pub struct LoadedKernel<E> {
    function: Function,
    // Unloaded behind everything that uses the function; recorded graphs keep it, too.
    module: KernelModule,
    entry: PhantomData<fn(E) -> E>,
}

impl<E> Clone for LoadedKernel<E> {
    fn clone(&self) -> Self {
        LoadedKernel { function: self.function, module: self.module.clone(), entry: PhantomData }
    }
}

impl<E: KernelEntry> fmt::Debug for LoadedKernel<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LoadedKernel({})", E::ENTRY)
    }
}

/// How many blocks run, of how many threads, with how many bytes of shared memory.
///
/// ```
/// use memtier_cuda::LaunchGrid;
///
/// let grid = LaunchGrid::new(12).by(4, 1).shared(1024);
/// assert_eq!((grid.blocks(), grid.threads()), (48, 0));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaunchGrid(Grid);

impl LaunchGrid {
    /// So many blocks in a row, each with the threads that the kernel's declaration says.
    pub const fn new(blocks: u32) -> Self {
        LaunchGrid(Grid { blocks: (blocks, 1, 1), threads: 0, shared: 0 })
    }

    /// As many blocks as it takes to have one of `threads` threads for each of `items`.
    pub fn over(items: usize, threads: u32) -> Self {
        let blocks = items.div_ceil(threads.max(1) as usize);
        LaunchGrid::new(u32::try_from(blocks).unwrap_or(i32::MAX as u32))
    }

    /// The same in two more dimensions.
    #[must_use]
    pub const fn by(self, y: u32, z: u32) -> Self {
        let Grid { blocks, threads, shared } = self.0;
        LaunchGrid(Grid { blocks: (blocks.0, y, z), threads, shared })
    }

    /// Fewer threads in a block than the source allows.
    #[must_use]
    pub const fn with_threads(self, threads: u32) -> Self {
        let Grid { blocks, shared, .. } = self.0;
        LaunchGrid(Grid { blocks, threads, shared })
    }

    /// Bytes of dynamic shared memory for each block.
    #[must_use]
    pub const fn shared(self, bytes: u32) -> Self {
        let Grid { blocks, threads, .. } = self.0;
        LaunchGrid(Grid { blocks, threads, shared: bytes })
    }

    /// All blocks.
    pub fn blocks(&self) -> u64 {
        let (x, y, z) = self.0.blocks;
        u64::from(x).saturating_mul(u64::from(y)).saturating_mul(u64::from(z))
    }

    /// Threads of a block; zero: what the kernel's declaration says (in a `requires(..)` it is that number).
    pub fn threads(&self) -> u32 {
        self.0.threads
    }

    /// Bytes of dynamic shared memory of a block.
    pub fn shared_bytes(&self) -> u32 {
        self.0.shared
    }
}

/// The grid with threads that the kernel can have.
#[doc(hidden)]
pub fn fitted<E: KernelEntry>(grid: LaunchGrid) -> Result<LaunchGrid, LaunchError> {
    let why = match grid.threads() {
        0 => return Ok(grid.with_threads(E::THREADS)),
        threads if threads == E::THREADS => return Ok(grid),
        threads if !E::EXACT && threads < E::THREADS => return Ok(grid),
        _ if E::EXACT => "its declaration says how many threads a block has, and the grid says another number",
        _ => "the grid has more threads in a block than the source's `__launch_bounds__`",
    };
    Err(LaunchError::Unsupported { what: E::ENTRY, why })
}

/// A value as an argument: the low bytes of a word.
#[doc(hidden)]
pub trait Scalar: Copy {
    #[doc(hidden)]
    fn word(self) -> u64;
}

macro_rules! scalars { ($($ty:ty: $value:ident => $word:expr;)*) => { $(
    impl Scalar for $ty {
        #[inline]
        fn word(self) -> u64 {
            let $value = self;
            $word
        }
    }
)* } }
scalars! {
    u8: value => u64::from(value);
    u16: value => u64::from(value);
    u32: value => u64::from(value);
    u64: value => value;
    i8: value => u64::from(value.cast_unsigned());
    i16: value => u64::from(value.cast_unsigned());
    i32: value => u64::from(value.cast_unsigned());
    i64: value => value.cast_unsigned();
    f32: value => u64::from(value.to_bits());
    f64: value => value.to_bits();
    f16: value => u64::from(value.to_bits());
    bf16: value => u64::from(value.to_bits());
    bool: value => u64::from(value);
}

/// How long a span is, in a `requires(..)`.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Length(usize);

impl Length {
    #[doc(hidden)]
    pub fn of(units: usize) -> Self {
        Length(units)
    }

    /// The number of stored units.
    #[allow(clippy::len_without_is_empty, reason = "for conditions")]
    pub fn len(self) -> usize {
        self.0
    }
}

/// Launches `kernel` on `on`; no blocks are no launch.
///
/// # Safety
/// The words are the arguments that `E` was compared for, in order; addresses are of spans that belong to `streams` and whose
/// borrows the caller passed through its own signature, mutable where the kernel writes. With this grid, which is
/// [`fitted`], the kernel stays inside of them.
#[doc(hidden)]
#[inline]
pub unsafe fn launch<E: KernelEntry, P: Place, const S: usize, const N: usize>(
    on: &Recorder<P>,
    kernel: &LoadedKernel<E>,
    grid: LaunchGrid,
    streams: [u32; S],
    words: [u64; N],
) -> Result<(), LaunchError> {
    on.launch_keeping(&streams, kernel, move |queue, kernel| {
        if grid.blocks() == 0 {
            return Ok(());
        }
        // SAFETY: the module lives as long as `kernel`; the rest by the caller.
        unsafe { launch::launch(queue, kernel.function, grid.0, &words) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    enum Bounded {}
    impl KernelEntry for Bounded {
        const ENTRY: &'static str = "bounded";
        const SOURCE: &'static str = "";
        const PARAMS: &'static [usize] = &[];
        const THREADS: u32 = 256;
        const EXACT: bool = false;
    }

    enum Exact {}
    impl KernelEntry for Exact {
        const EXACT: bool = true;
        const ENTRY: &'static str = "exact";
        const SOURCE: &'static str = "";
        const PARAMS: &'static [usize] = &[];
        const THREADS: u32 = 128;
    }

    #[test]
    fn grids_get_the_threads_that_the_kernel_can_have() {
        let threads = |grid: Result<LaunchGrid, LaunchError>| grid.map(|grid| grid.threads());
        assert_eq!(threads(fitted::<Bounded>(LaunchGrid::new(1))), Ok(256));
        assert_eq!(threads(fitted::<Bounded>(LaunchGrid::new(1).with_threads(32))), Ok(32));
        assert!(fitted::<Bounded>(LaunchGrid::new(1).with_threads(257)).is_err());
        assert_eq!(threads(fitted::<Exact>(LaunchGrid::new(1))), Ok(128));
        assert!(fitted::<Exact>(LaunchGrid::new(1).with_threads(64)).is_err());
    }

    #[test]
    fn a_grid_over_items_covers_them() {
        assert_eq!(LaunchGrid::over(0, 256).blocks(), 0);
        assert_eq!(LaunchGrid::over(257, 256).blocks(), 2);
        assert_eq!(LaunchGrid::new(u32::MAX).by(u32::MAX, u32::MAX).blocks(), u64::MAX);
        assert_eq!(LaunchGrid::new(2).shared(8).shared_bytes(), 8);
    }

    #[test]
    fn values_are_the_low_bytes_of_words() {
        assert_eq!((-1i32).word(), 0xffff_ffff);
        assert_eq!((-2i8).word(), 0xfe);
        assert_eq!(1.0f32.word(), 0x3f80_0000);
        assert_eq!(bf16::from_f32(1.0).word(), 0x3f80);
        assert_eq!(true.word(), 1);
    }
}
