//! The choice of the next token, on the device: one number a sequence comes back, not a row of logits.

use engine_kernels::{self as kernels, Purpose};
use memtier::{Fits, Host, Input, Is, LaunchError, Place, Recorder, SameElement, StableSpanMut, input, output};

use super::Cpu;

/// The most candidates that sampling looks at; a larger top-k is this one.
const MOST: usize = 256;

/// `logits = cap * tanh(logits / cap)`.
pub fn softcap<P: Place<Space: Is<Host>>>(
    on: &Recorder<P>,
    cpu: &Cpu,
    logits: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    cap: f32,
) -> Result<(), LaunchError> {
    let cpu = cpu.clone();
    on.host_op((output::<f32, _, _>(logits),), move |(logits,)| {
        kernels::softcap(&cpu.threads, cpu.isa, logits, cap);
        Ok(())
    })
}

/// Chooses a token for each row of `logits` (picks x vocabulary). `at` has `[picks, rows, positions]`: the token of the pass that each row
/// is of, and of each token of the pass its sequence and its position there. `how` has temperature and top-p of each sequence, `seeds` top-k
/// and the seed, its low word first.
///
/// Temperature 0 takes the largest logit, the first of equals. Another draws with the random number of the seed at the new token's
/// position, which is one behind that of the row's token: whatever runs beside, and however the sequence came here, a token with the
/// same logits is the same.
pub fn sample<P: Place<Space: Is<Host>>>(
    on: &Recorder<P>,
    cpu: &Cpu,
    sampled: &mut StableSpanMut<'_, impl SameElement<u32>, impl Fits<P>>,
    logits: impl Input<f32, P>,
    (how, seeds): (impl Input<f32, P>, impl Input<u32, P>),
    [picks, rows, positions]: [impl Input<u32, P>; 3],
    vocab: usize,
) -> Result<(), LaunchError> {
    let cpu = cpu.clone();
    let args = (
        output::<u32, _, _>(sampled),
        input::<f32, _, _>(logits),
        input::<f32, _, _>(how),
        input::<u32, _, _>(seeds),
        input::<u32, _, _>(picks),
        input::<u32, _, _>(rows),
        input::<u32, _, _>(positions),
    );
    on.host_op(args, move |(sampled, logits, how, seeds, picks, rows, positions)| {
        let (hows, seeds) = (how.as_chunks::<2>().0, seeds.as_chunks::<3>().0);
        for (sampled, (logits, pick)) in sampled.iter_mut().zip(logits.chunks_exact(vocab).zip(picks)) {
            let token = rows.get(*pick as usize).zip(positions.get(*pick as usize));
            let token = token.ok_or(LaunchError::Index {
                what: "a token that wants logits",
                limit: rows.len() as u64,
                found: u64::from(*pick),
            });
            let (row, position) = token?;
            let how = hows.get(*row as usize).zip(seeds.get(*row as usize));
            let how = how.ok_or(LaunchError::Index {
                what: "the sequence of a token",
                limit: hows.len() as u64,
                found: u64::from(*row),
            });
            let ([temperature, top_p], [top_k, low, high]) = how?;
            *sampled = match *temperature > 0.0 {
                false => kernels::argmax(cpu.isa, logits).unwrap_or(0) as u32,
                true => {
                    let seed = u64::from(*high) << 32 | u64::from(*low);
                    let fraction = kernels::uniform(seed, position.wrapping_add(1), Purpose::Token);
                    draw(logits, *temperature, *top_p, *top_k as usize, fraction)
                }
            };
        }
        Ok(())
    })
}

/// One token: of the largest `top_k` logits the largest that make up `top_p` at this temperature, the one that `fraction`, from 0 to
/// below 1, falls on.
fn draw(logits: &[f32], temperature: f32, top_p: f32, top_k: usize, fraction: f32) -> u32 {
    let wanted = if top_k == 0 { MOST } else { top_k.min(MOST) }.min(logits.len());
    // The largest `wanted`, in falling order, on the stack.
    let mut best = [(f32::NEG_INFINITY, 0u32); MOST];
    let mut found = 0;
    for (token, logit) in logits.iter().enumerate() {
        // What is no number is no candidate.
        if logit.is_nan() || (found == wanted && *logit <= best[found - 1].0) {
            continue;
        }
        let place = best[..found].partition_point(|(other, _)| *other >= *logit);
        found = (found + 1).min(wanted);
        best.copy_within(place..found - 1, place + 1);
        best[place] = (*logit, token as u32);
    }
    let best = &best[..found];
    let Some((largest, first)) = best.first().copied() else { return 0 };
    let weight = |logit: f32| f64::from((logit - largest) / temperature).exp();
    let total: f64 = best.iter().map(|(logit, _)| weight(*logit)).sum();
    let mut kept = 0.0;
    let mut candidates = 0;
    for (logit, _) in best {
        kept += weight(*logit);
        candidates += 1;
        if kept >= f64::from(top_p) * total {
            break;
        }
    }
    let mut left = f64::from(fraction) * kept;
    for (logit, token) in &best[..candidates] {
        left -= weight(*logit);
        if left < 0.0 {
            return *token;
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::draw;

    #[test]
    fn top_k_of_one_is_the_largest() {
        assert_eq!(draw(&[0.0, 3.0, 1.0], 1.0, 1.0, 1, 0.999), 1);
    }

    #[test]
    fn a_small_top_p_keeps_the_largest_only() {
        assert!((0..64u8).all(|part| draw(&[5.0, 0.0, 0.0], 1.0, 0.5, 0, f32::from(part) / 64.0) == 0));
    }

    #[test]
    fn what_is_no_number_is_never_drawn() {
        assert!((0..64u8).all(|part| draw(&[f32::NAN, 0.0, f32::NAN], 1.0, 1.0, 2, f32::from(part) / 64.0) == 1));
        assert_eq!(draw(&[f32::NAN; 3], 1.0, 1.0, 0, 0.5), 0);
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let logits = [0.0, (3.0f32).ln()];
        let ones = (0..4000u16).filter(|n| draw(&logits, 1.0, 1.0, 0, f32::from(*n) / 4000.0) == 1).count();
        assert!((2995..3005).contains(&ones), "{ones} of 4000, 3000 expected");
    }

    #[test]
    fn a_temperature_divides_the_logits() {
        // 9 to 1 at temperature 1, 3 to 1 at 2, 81 to 1 at a half.
        let logits = [(9.0f32).ln(), 0.0];
        for (temperature, share) in [(1.0, 0.9), (2.0, 0.75), (0.5, 81.0 / 82.0)] {
            let first =
                (0..4000u16).filter(|n| draw(&logits, temperature, 1.0, 0, f32::from(*n) / 4000.0) == 0).count();
            assert!((first as f64 - 4000.0 * share).abs() < 5.0, "{first} at {temperature}");
        }
        // The share that top-p speaks of is of the flattened distribution: at 2 the first alone is no 0.8.
        assert_eq!(draw(&logits, 1.0, 0.8, 0, 0.999), 0);
        assert_eq!(draw(&logits, 2.0, 0.8, 0, 0.999), 1);
    }
}
