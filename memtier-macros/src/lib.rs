//! The attribute macros of memtier: [`#[tier(..)]`](macro@tier) and [`#[graph_captured]`](macro@graph_captured). Use them through
//! `memtier`, which re-exports them, and [`#[kernel(..)]`](macro@kernel) through `memtier-cuda`.
//!
//! How an expansion runs, a file a step:
//!
//! | File | Step |
//! |---|---|
//! | `handoff` | the attribute: gives the struct its final form, notes what it knew, hands over to a derive |
//! | `attr` | reads what the attributes say |
//! | `model` | the declaration as a whole, with a guess in place of what is wrong |
//! | `check` | what one attribute alone cannot tell |
//! | `bounds` | bounds that say once, at a field's type, that it is the wrong type |
//! | `expand` | writes the code |
//! | `fallback` | what becomes of an item that no storage can be made of |
//! | `kernel` | the launch wrappers, with steps of their own |
//! | `report` | collects errors, guesses what was meant |
#![forbid(unsafe_code)]

mod attr;
mod bounds;
mod check;
mod expand;
mod fallback;
mod handoff;
mod kernel;
mod model;
mod report;
#[cfg(test)]
mod tests;

use proc_macro::TokenStream;

/// Makes a struct of device arrays a storage: priced by one checked function, carved by the same one, and seen through typed
/// views.
///
/// ```
/// use memtier::{Packed, PackedFormat, bf16, tier};
/// # #[derive(Clone, Copy, PartialEq, Debug)]
/// # pub struct Weight(u64);
/// # impl PackedFormat for Weight {
/// #     fn bytes(&self, shape: &[usize]) -> Option<memtier::Bytes> {
/// #         Some(memtier::Bytes::new(shape.iter().product::<usize>() as u64 * self.0))
/// #     }
/// # }
///
/// #[derive(Clone, Copy)]
/// pub struct Dims {
///     pub hidden: usize,
///     pub heads: usize,
///     pub head_dim: usize,
///     pub layers: usize,
///     pub vocab: usize,
///     pub vision: bool,
/// }
///
/// #[derive(Clone, Copy)]
/// pub struct LayerDims {
///     pub hidden: usize,
///     pub ffn: usize,
///     pub up_format: Weight,
/// }
///
/// impl Dims {
///     fn layer(&self, index: usize) -> LayerDims {
///         LayerDims { hidden: self.hidden, ffn: 4 * self.hidden, up_format: Weight(1 + index as u64 % 2) }
///     }
/// }
///
/// #[tier(ModelResident, dims = LayerDims)]
/// pub struct LayerWeights {
///     #[shape(hidden, hidden)]
///     pub query: bf16,
///     #[shape(ffn, hidden)]
///     #[format(up_format)]
///     pub up: Packed<Weight>,
/// }
///
/// #[tier(ModelResident, dims = Dims)]
/// pub struct Tower {
///     #[shape(14 * 14, hidden)]
///     pub patches: bf16,
/// }
///
/// #[tier(ModelResident, dims = Dims)]
/// pub struct LlamaWeights {
///     #[shape(vocab, hidden, align = 4096)]
///     pub embed: bf16,
///     #[dims(layer(index))]
///     pub layers: [LayerWeights; layers],
///     #[when(vision)]
///     pub tower: Tower,
/// }
///
/// let dims = Dims { hidden: 64, heads: 4, head_dim: 16, layers: 2, vocab: 100, vision: false };
/// let price = LlamaWeights::price(&dims)?;
/// let fields = LlamaWeights::fields(&dims)?;
/// assert_eq!(fields.len(), 1 + 2 * 2);
/// assert_eq!(fields[4].name, "layers[1].up");
/// assert!(fields.iter().all(|field| field.offset.count() + field.bytes.count() <= price.count()));
/// # Ok::<_, memtier::SizeError>(())
/// ```
///
/// # Arguments
///
/// | Argument | Meaning |
/// |---|---|
/// | `ModelResident` or `EnginePersistent` | how long it lives; first |
/// | `dims = Type` | the struct whose numbers the shapes are made of; `()` when every shape is constant |
/// | `space = Type` | the memory space: a type parameter of the struct, or a fixed one (`Cuda`). Without it the macro adds a parameter, last, that is `Host` by default: `LlamaWeights<Cuda>` is the same struct in device memory |
/// | `crate = path` | where `memtier` is, when that is not `::memtier`: its own path or a re-export of all of it. A module with other things of the same names does not compile, or changes nothing that memory safety rests on |
///
/// # Fields
///
/// | Field | Is |
/// |---|---|
/// | `#[shape(rows, columns)] name: f32` | a row-major array of an `Element`; the last dimension is contiguous |
/// | `.. #[align(256)]`, or `#[shape(.., align = 256)]` | at an address that is a multiple of this: a power of two, at most 4096. Every field is aligned to 256 without it |
/// | `.. #[format(expression)]`, or `#[shape(.., format = expression)]` | how a `Packed<Format>` field is stored, known at run time |
/// | `name: Storage` | a nested storage of the same tier, in the same space |
/// | `name: [Storage; count]` | an array of them |
/// | `.. #[dims(expression)]` | the dims of a nested storage, or of each item of an array (where `index` is its number), by value or by reference; without it they are the outer dims |
/// | `.. #[when(condition)]` | a field of any kind that the configuration may leave out: its views are an `Option` |
///
/// `#[shape(..), align(256)]` in one pair of brackets is no attribute in Rust's grammar: the compiler refuses it.
///
/// Visibilities, documentation, lint levels, `cfg` and `cfg_attr` (also around these attributes) work as on any field. The struct's
/// own fields are private: views are its interface.
///
/// # Expressions
///
/// In all of these places an expression is over the dims:
///
/// - A name that starts in lower case is a field of the dims: `hidden` is `dims.hidden`, `rope.dim` is `dims.rope.dim`. So is the
///   receiver of a method: `heads.max(kv_heads)`.
/// - A function of such a name is a method of the dims: `layer(index)` is `dims.layer(index)`.
/// - `dims` alone is the whole value.
/// - Everything else stays: literals, constants in upper case, const parameters of the struct, types, paths with `::` (`self::f(hidden)`
///   calls a function), and names that the expression binds itself.
///
/// Arithmetic is checked: `+ - * / % << >>` and `pow`, `div_ceil`, `next_multiple_of`, `next_power_of_two` take numbers of one type,
/// and what leaves its range is a `SizeError::Overflow` with the name of the field. A constant expression is evaluated by the compiler:
/// overflow, and a dimension that is zero, do not compile (for an expression with const parameters, when it is built with them).
/// Inside closures, macros and methods of the dims, arithmetic is what it is in Rust.
///
/// An expression has a value and nothing else comes out of it: `return`, `?` and `.await` are refused, and what a macro in it returns is
/// its value.
///
/// # What is generated
///
/// For `LlamaWeights`: the views `LlamaWeightsRef` (`Copy`) and `LlamaWeightsMut` with the fields' names and visibilities, the
/// `Storage` impl, and `LlamaWeights::price` and `LlamaWeights::fields`. It compiles under `forbid(unsafe_code)` and
/// `deny(missing_docs)`.
///
/// A derive of `Debug` is passed on; `Clone`, `Copy` and `Default` are refused: memory is carved from a plan, once.
#[proc_macro_attribute]
pub fn tier(args: TokenStream, item: TokenStream) -> TokenStream {
    handoff::storage(args.into(), item.into()).into()
}

/// Makes a struct of parts a bundle: what an engine owns for one model, and all that its graphs may bake in.
///
/// A part is a storage, a pool, a page table, or an `Option`, `Vec` or array of one.
///
/// ```
/// use memtier::{BlockPool, Blocks, Bundle, GlobalKv, PageTable, PoolSpec, SwaKv, TableSpec, Tokens, f16, graph_captured, tier};
///
/// #[derive(Clone, Copy)]
/// pub struct Dims {
///     pub hidden: usize,
///     pub max_batch: usize,
/// }
///
/// #[tier(ModelResident, dims = Dims)]
/// pub struct Weights {
///     #[shape(hidden, hidden)]
///     pub query: f32,
/// }
///
/// #[tier(EnginePersistent, dims = Dims)]
/// pub struct Workspace {
///     #[shape(max_batch, hidden)]
///     pub rows: f32,
/// }
///
/// #[graph_captured]
/// pub struct Llama {
///     pub weights: Weights,
///     pub work: Workspace,
///     pub kv: BlockPool<GlobalKv<f16>>,
///     pub window: Option<BlockPool<SwaKv<f16>>>,
///     pub table: PageTable<GlobalKv<f16>>,
/// }
///
/// let dims = Dims { hidden: 64, max_batch: 4 };
/// let spec = LlamaSpec {
///     weights: dims,
///     work: dims,
///     kv: PoolSpec::fixed(Tokens::new(16), 16 * 2 * 64, Blocks::new(32)),
///     window: None,
///     table: TableSpec { rows: 4, columns: 8 },
/// };
/// assert_eq!(Llama::demands(&spec)?.len(), 4);
/// # Ok::<_, memtier::SizeError>(())
/// ```
///
/// # What is generated
///
/// The struct stays as it is written. Beside it, with a field for each part:
///
/// | Struct | Is |
/// |---|---|
/// | `LlamaSpec` | what it is declared from: the size of each part |
/// | `LlamaLines` | the plan lines that it is carved from |
/// | `LlamaView` | what a step or a capture gets of each part |
/// | `LlamaLoadView` | what a loader gets: write views |
/// | `LlamaKept` | what a model swap leaves of each part |
///
/// # The memory space
///
/// The parts of a bundle are in the memory space of its stream, or in `Host` memory beside it where that is a device: a cold tier,
/// offloaded layers. Those are reached by `copy_across` of the recorder, and by nothing else.
///
/// The stream's space is that of the first part that is as visible as the bundle, unless the bundle is generic over it: then it is the
/// type parameter with the bound `Space`, and views know it by their place.
///
/// ```
/// use memtier::{BlockPool, GlobalKv, Host, Space, f16, graph_captured};
///
/// #[graph_captured]
/// pub struct Model<S: Space = Host> {
///     pub kv: BlockPool<GlobalKv<f16>, S>,
/// }
/// ```
///
/// # Arguments
///
/// `space = S` says which parameter it is, or names a space, where that is not clear; `crate = path` says where `memtier` is, when that
/// is not `::memtier`.
///
/// A part is told by its name from what is often taken for one (`Stream<..>`, `Ticket<..>`, `Arc<..>`): a storage of yours that has such a name
/// and an argument is written with its path, `self::Stream<S>`.
#[proc_macro_attribute]
pub fn graph_captured(args: TokenStream, item: TokenStream) -> TokenStream {
    handoff::bundle(args.into(), item.into()).into()
}

/// Makes the declaration of a CUDA kernel its launch wrapper, compared with the source when it is compiled.
///
/// ```
/// use memtier_cuda::kernel;
///
/// /// `out[i] = factor * x[i]`.
/// ///
/// /// # Safety
/// /// `n` elements are in `out` and in `x`.
/// #[kernel("../kernels/vector.cu", "scale_f32")]
/// pub unsafe fn scale(out: Out<f32>, x: In<f32>, factor: f32, n: u64);
///
/// /// `out[i] = a[i] + b[i]`; safe, because of what it requires.
/// #[kernel("../kernels/vector.cu", "add_f32", threads = 256, unsafe(requires(
///     out.len() as u64 == n,
///     a.len() == out.len(),
///     b.len() == out.len(),
/// )))]
/// pub fn add(out: Out<f32>, a: In<f32>, b: In<f32>, n: u64);
/// # fn main() {}
/// ```
///
/// The source is named from the folder of the crate's Cargo.toml; an edit of it builds the crate again. CUDA is not needed
/// for it: the macro reads the source itself.
///
/// # Parameters
///
/// | Here | In the source |
/// |---|---|
/// | `out: Out<f32>` | `float *out`: written, or read and written |
/// | `x: In<f32>` | `const float *x` |
/// | `n: u64` | `unsigned long long n`: a number, `bool`, or a half float, by value |
///
/// They stand in the source's order, all of them. Elements are those of device memory; the source calls them by their names in
/// C (`unsigned int`), in CUDA's headers (`uint32_t`, `__half`, `__nv_bfloat16`, `__nv_fp8_e4m3`), in kernels that do without headers
/// (`u32`, `bf16`), or by a `typedef` of one in the same file. 16 bits (`u16`) may hold `bf16` and `f16`, bytes also packed
/// formats and blocks. `Out` and `In` are words of the macro, not imported.
///
/// Everything that differs (number, order by name, address or value, `const`, element, type, launch bounds) is an error at the
/// parameter, with both sides.
///
/// # Arguments
///
/// | Argument | Meaning |
/// |---|---|
/// | `"file.cu", "entry"` | the source, and an `extern "C" __global__` function in it; first |
/// | `threads = 256` | threads of every block; without it they are the most that `__launch_bounds__` allows, or fewer, as the grid says |
/// | `unsafe(requires(condition, ..))` | the author's word, see below |
/// | `crate = path` | where `memtier_cuda` is, when that is not `::memtier_cuda` |
///
/// # Who vouches for what
///
/// No signature says how far a kernel reads and writes, so somebody has to. Either way there is the word `unsafe` in the author's
/// own code, which `forbid(unsafe_code)` refuses.
///
/// - On an `unsafe fn` every caller does: that with the grid and values of the call, the kernel touches nothing but the
///   elements of its spans. The duty goes under `# Safety` (a general one is generated).
/// - With `unsafe(requires(..))` the author does, once, for all calls for which the conditions hold. The wrapper is safe: it
///   checks them before every launch, and answers `LaunchError::Unsupported` with the one that does not hold. In a condition
///   spans have a `len()`, values are themselves, and `grid` has `blocks()`, `threads()` and `shared_bytes()`. Arithmetic there
///   is Rust's: compare lengths, or use `checked_mul`.
///
/// Whoever loads the module vouches that it was compiled from this source (`KernelModule::load`); that the compiled kernel
/// takes arguments of these sizes is checked there.
///
/// What the preprocessor does is not known to the macro: kernels that a macro writes are not found, one that is declared twice
/// with a difference is refused, and headers are not read.
///
/// # What is generated
///
/// A function `scale(on, kernel, grid, ..)` with the parameters behind these three: `&mut` write spans for `Out`, read spans for `In`,
/// all in device memory and of the recorder's place. It takes no memory, and runs eagerly or is recorded. And a type `scale`,
/// the kernel's name: `module.get::<scale>()` gives the handle that this wrapper takes, and no other.
///
/// ```no_run
/// # mod kernels {
/// #     #[memtier_cuda::kernel("../kernels/vector.cu", "scale_f32")]
/// #     pub unsafe fn scale(out: Out<f32>, x: In<f32>, factor: f32, n: u64);
/// # }
/// # use kernels::scale;
/// use memtier::{Eager, Cuda, LaunchError, Recorder, StableSpan, StableSpanMut};
/// use memtier_cuda::{LaunchGrid, LoadedKernel};
///
/// fn halve(
///     on: &Recorder<Eager<Cuda>>,
///     kernel: &LoadedKernel<scale>,
///     out: &mut StableSpanMut<'_, f32, Eager<Cuda>>,
///     x: StableSpan<'_, f32, Eager<Cuda>>,
/// ) -> Result<(), LaunchError> {
///     assert_eq!(out.len(), x.len());
///     let (grid, n) = (LaunchGrid::over(x.len(), 256), x.len() as u64);
///     // SAFETY: as many elements as it is told.
///     unsafe { scale(on, kernel, grid, out, x, 0.5, n) }
/// }
/// # fn main() {}
/// ```
#[proc_macro_attribute]
pub fn kernel(args: TokenStream, item: TokenStream) -> TokenStream {
    kernel::expand(args.into(), item.into()).into()
}

/// The second stage of `#[tier(..)]`: a derive, because a derive sees `cfg` evaluated.
#[doc(hidden)]
#[proc_macro_derive(__MtStorage, attributes(__mt_tier, __mt_field, __mt_attr))]
pub fn storage(item: TokenStream) -> TokenStream {
    expand::storage(item.into()).into()
}

/// The second stage of `#[graph_captured]`.
#[doc(hidden)]
#[proc_macro_derive(__MtBundle, attributes(__mt_bundle, __mt_attr))]
pub fn bundle(item: TokenStream) -> TokenStream {
    expand::bundle(item.into()).into()
}
