//! CPU operations, as an engine's author wraps them: spans are checked in the signature, the body is safe code over slices.

use memtier::{
    BlockId, Fits, Host, Input, Is, LaunchError, Output, Place, PoolKind, Recorder, Slab, SlabMut, input, output, table,
};

/// `out[row] = embed[tokens[row]]`; an unknown token gives zeros.
///
/// # Errors
/// [`LaunchError`].
pub fn embed<P: Place<Space: Is<Host>>>(
    on: &Recorder<P>,
    out: &mut impl Output<f32, P>,
    embed: impl Input<f32, P>,
    tokens: impl Input<u32, P>,
) -> Result<(), LaunchError> {
    let mut out = out.span();
    let args = (output::<f32, _, _>(&mut out), input::<f32, _, _>(embed), input::<u32, _, _>(tokens));
    on.host_op(args, |(out, embed, tokens)| {
        let width = out.len() / tokens.len();
        for (out, token) in out.chunks_exact_mut(width).zip(tokens) {
            match embed.chunks_exact(width).nth(*token as usize) {
                Some(row) => out.copy_from_slice(row),
                None => out.fill(0.0),
            }
        }
        Ok(())
    })
}

/// `out[row] = weight * x[row]` for each of `rows` rows.
///
/// # Errors
/// [`LaunchError`].
pub fn matmul<P: Place<Space: Is<Host>>>(
    on: &Recorder<P>,
    rows: usize,
    out: &mut impl Output<f32, P>,
    weight: impl Input<f32, P>,
    x: impl Input<f32, P>,
) -> Result<(), LaunchError> {
    let mut out = out.span();
    let args = (output::<f32, _, _>(&mut out), input::<f32, _, _>(weight), input::<f32, _, _>(x));
    on.host_op(args, move |(out, weight, x)| {
        let (width, height) = (x.len() / rows, out.len() / rows);
        for (out, x) in out.chunks_exact_mut(height).zip(x.chunks_exact(width)) {
            for (out, weight) in out.iter_mut().zip(weight.chunks_exact(width)) {
                *out = weight.iter().zip(x).map(|(weight, x)| weight * x).sum();
            }
        }
        Ok(())
    })
}

/// `out += x`.
///
/// # Errors
/// [`LaunchError`].
pub fn add_assign<P: Place<Space: Is<Host>>>(
    on: &Recorder<P>,
    out: &mut impl Output<f32, P>,
    x: impl Input<f32, P>,
) -> Result<(), LaunchError> {
    on.host_op((output::<f32, _, _>(&mut out.span()), input::<f32, _, _>(x)), |(out, x)| {
        out.iter_mut().zip(x).for_each(|(out, x)| *out += x);
        Ok(())
    })
}

/// Writes each row of `values` into the first block of its sequence.
///
/// # Errors
/// [`LaunchError`].
pub fn write_kv<K: PoolKind<Element = f32>, P: Place<Space: Is<Host>>>(
    on: &Recorder<P>,
    slab: &mut SlabMut<'_, K, impl Fits<P>>,
    ids: impl Input<BlockId<K>, P>,
    values: impl Input<f32, P>,
) -> Result<(), LaunchError> {
    on.host_op((slab, table::<K, _, _>(ids), input::<f32, _, _>(values)), |(slab, table, values)| {
        let width = values.len() / table.shape.rows;
        for (row, values) in values.chunks_exact(width).enumerate() {
            let first = table.row(row).and_then(|ids| ids.first());
            let start = first.map_or(usize::MAX, |id| (*id as usize).saturating_mul(slab.block_units));
            if let Some(block) = slab.units.get_mut(start..).and_then(|block| block.get_mut(..width)) {
                block.copy_from_slice(values);
            }
        }
        Ok(())
    })
}

/// `out[row] = query[row] * kv[row]`, with the first block of each sequence as its row.
///
/// # Errors
/// [`LaunchError`].
pub fn attend<K: PoolKind<Element = f32>, P: Place<Space: Is<Host>>>(
    on: &Recorder<P>,
    out: &mut impl Output<f32, P>,
    query: impl Input<f32, P>,
    slab: &Slab<'_, K, impl Fits<P>>,
    ids: impl Input<BlockId<K>, P>,
) -> Result<(), LaunchError> {
    let mut out = out.span();
    let args = (output::<f32, _, _>(&mut out), input::<f32, _, _>(query), slab, table::<K, _, _>(ids));
    on.host_op(args, |(out, query, slab, table)| {
        let width = out.len() / table.shape.rows;
        for (row, (out, query)) in out.chunks_exact_mut(width).zip(query.chunks_exact(width)).enumerate() {
            let first = table.row(row).and_then(|ids| ids.first());
            let start = first.map_or(usize::MAX, |id| (*id as usize).saturating_mul(slab.block_units));
            match slab.units.get(start..).and_then(|block| block.get(..width)) {
                Some(kv) => out.iter_mut().zip(query).zip(kv).for_each(|((out, query), kv)| *out = query * kv),
                None => out.fill(0.0),
            }
        }
        Ok(())
    })
}

/// `out = x * x`, the first elements of both: for a block and a row of one size.
///
/// # Errors
/// [`LaunchError`].
pub fn square<P: Place<Space: Is<Host>>>(
    on: &Recorder<P>,
    out: &mut impl Output<f32, P>,
    x: impl Input<f32, P>,
) -> Result<(), LaunchError> {
    on.host_op((output::<f32, _, _>(&mut out.span()), input::<f32, _, _>(x)), |(out, x)| {
        out.iter_mut().zip(x).for_each(|(out, x)| *out = x * x);
        Ok(())
    })
}
