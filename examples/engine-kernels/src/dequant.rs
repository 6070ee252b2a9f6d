//! Dequantisation of raw rows, as they lie in the file.

use crate::blocks::Block;
use crate::error::{KernelError, expect};
use crate::format::Format;
use crate::half::{bf16_to_f32, f16_to_f32};

/// Writes the values of one raw row of `format` into `out` (its columns), exactly as ggml's reference code does.
///
/// # Errors
///
/// [`KernelError`] where `out` is no whole number of blocks or `src` is not as long as such a row.
pub fn dequantize_raw_row(format: Format, src: &[u8], out: &mut [f32]) -> Result<(), KernelError> {
    expect("bytes of a raw row", format.checked_row_bytes(out.len())?, src.len())?;
    match format {
        Format::F32 => {
            for (out, raw) in out.iter_mut().zip(src.chunks_exact(4)) {
                *out = f32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]);
            }
        }
        Format::F16 => {
            for (out, raw) in out.iter_mut().zip(src.chunks_exact(2)) {
                *out = f16_to_f32(u16::from_le_bytes([raw[0], raw[1]]));
            }
        }
        Format::BF16 => {
            for (out, raw) in out.iter_mut().zip(src.chunks_exact(2)) {
                *out = bf16_to_f32(u16::from_le_bytes([raw[0], raw[1]]));
            }
        }
        _ => {
            let mut block = Block::new();
            let blocks = out.chunks_exact_mut(format.block_elements());
            for (out, raw) in blocks.zip(src.chunks_exact(format.block_bytes())) {
                block.read(format, raw);
                block.values(format, out);
            }
        }
    }
    Ok(())
}
