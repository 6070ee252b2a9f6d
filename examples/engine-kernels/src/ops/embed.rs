//! Embedding lookup.

use crate::error::{KernelError, expect, product};
use crate::isa::Isa;
use crate::packed::{Packed, dequantize_row};
use crate::threads::{Shares, Threads, spread};

/// `out[i] = factor * table[tokens[i]]`: one row of `table.cols()` for each token.
///
/// # Errors
///
/// [`KernelError`] where a token is no row of the table or `out` has the wrong length; `out` is then untouched.
pub fn embed(
    threads: &Threads,
    isa: Isa,
    table: &Packed<'_>,
    tokens: &[u32],
    factor: f32,
    out: &mut [f32],
) -> Result<(), KernelError> {
    let cols = table.cols();
    expect("embeddings", product("embeddings", tokens.len(), cols)?, out.len())?;
    if let Some(token) = tokens.iter().find(|token| **token as usize >= table.rows()) {
        return Err(KernelError::Index { what: "token", limit: table.rows() as u64, found: u64::from(*token) });
    }
    let shares = Shares::new(out);
    spread(threads, tokens.len(), 4, true, &|range| {
        for index in range {
            // SAFETY: ranges do not overlap, nor do the rows behind their indices.
            let out = unsafe { shares.part(index * cols, cols) };
            // Cannot fail: token and length were checked above.
            let _ = dequantize_row(table, tokens[index] as usize, out);
            if factor != 1.0 {
                super::scale(isa, out, factor);
            }
        }
    });
    Ok(())
}
