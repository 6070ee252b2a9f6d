//! Launch wrappers: one for each operation. Spans in, a launch on the recorder out.
//!
//! Every wrapper checks shapes before the launch and returns [`LaunchError`] with what it needs; it takes no memory. The
//! element and the place of each span are in its type, so host memory, or a span of another capture, does not compile.

mod decode;
pub(crate) mod early;
pub(crate) mod entries;
mod gate;
mod heads;
mod matrix;
mod narrow_floats;
mod norm;
mod paged;
mod prefill;
mod project;
mod rope;
mod rows;
mod scaled;
mod skinny;
pub(crate) mod sources;
mod stable;
mod tiled;
mod tiled_ring;
mod tiled_rows;
mod tiles;
mod unpack;
mod vector;

pub use decode::{DecodeShape, DecodeWork, paged_decode};
pub use gate::{Activation, gate};
pub use heads::project_rope_kv_write;
pub use matrix::{Matrix, MatrixFormat};
pub use narrow_floats::{Fp8, Nvfp4, PackError, pack_fp8, pack_nvfp4};
pub use norm::{add_rms_norm, residual_rms_norm, residual_rms_norm_bf16, rms_norm, rms_norm_bf16, rms_norm_wide};
pub use paged::{KvElement, PackedKv, PagedKv};
pub use prefill::{PrefillShape, paged_prefill};
pub use project::{Inputs, KERNELS_OF_MANY_ROWS, is_few, project, project_add, project_f32, project_gated};
pub use rope::{HeadNorms, RopeShape, RopeStyle, rope_angles, rope_angles_of, rope_kv_write};
pub use rows::{begin_pass, embed, gather_rows, philox, sample, softcap};
pub use scaled::{Fp8Matrix, Nvfp4Matrix, project_fp8, project_nvfp4};
pub use stable::Stable;
pub use tiled::{TiledMatrix, is_few_tiled, project_tiled, project_tiled_add, project_tiled_f32, project_tiled_gated};
pub use tiles::{TileError, Tileable, TiledFormat, Tiling, tile, tile_fp8};
pub use unpack::{embed_tiled, unpack_tiled};
pub use vector::{add, scale};

use memtier::LaunchError;

/// Refuses a span of another length.
fn expect(what: &'static str, expected: usize, found: usize) -> Result<(), LaunchError> {
    if expected == found { Ok(()) } else { Err(LaunchError::Shape { what, expected, found }) }
}

/// The product, or a shape error that names `what`.
fn product(what: &'static str, dims: &[usize]) -> Result<usize, LaunchError> {
    let overflow = LaunchError::Unsupported { what, why: "its dimensions overflow: one of them is absurd" };
    dims.iter().try_fold(1usize, |product, dim| product.checked_mul(*dim)).ok_or(overflow)
}

/// `value` as an argument of 32 bits.
fn narrow(what: &'static str, value: usize) -> Result<u32, LaunchError> {
    u32::try_from(value).map_err(|_| LaunchError::Unsupported { what, why: "it does not fit into 32 bits" })
}

/// Refuses addresses that are no multiples of `bytes`: spans may begin at any element.
fn aligned(what: &'static str, bytes: u64, addresses: &[u64]) -> Result<(), LaunchError> {
    let why = match bytes {
        16 => "a span begins between multiples of 16 bytes: split spans at multiples of 8 elements",
        _ => "a span begins between multiples of 8 bytes: split spans at multiples of 4 elements",
    };
    require(addresses.iter().all(|address| address.is_multiple_of(bytes)), what, why)
}

/// Refuses what a kernel cannot do.
pub(crate) fn require(holds: bool, what: &'static str, why: &'static str) -> Result<(), LaunchError> {
    if holds { Ok(()) } else { Err(LaunchError::Unsupported { what, why }) }
}
