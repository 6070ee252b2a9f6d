//! The choice of the next token, on the device: one number a sequence comes back, not a row of logits.

use engine_kernels as kernels;
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

/// Chooses a token for each row of `logits` (rows x vocabulary). `how` has temperature and top-p a row, `random` top-k and
/// 64 random bits. Temperature 0 takes the largest logit, the first of equals.
pub fn sample<P: Place<Space: Is<Host>>>(
    on: &Recorder<P>,
    cpu: &Cpu,
    sampled: &mut StableSpanMut<'_, impl SameElement<u32>, impl Fits<P>>,
    logits: impl Input<f32, P>,
    how: impl Input<f32, P>,
    random: impl Input<u32, P>,
    vocab: usize,
) -> Result<(), LaunchError> {
    let cpu = cpu.clone();
    let args =
        (output::<u32, _, _>(sampled), input::<f32, _, _>(logits), input::<f32, _, _>(how), input::<u32, _, _>(random));
    on.host_op(args, move |(sampled, logits, how, random)| {
        let rows = logits.chunks_exact(vocab).zip(how.as_chunks::<2>().0).zip(random.as_chunks::<3>().0);
        for (sampled, ((logits, [temperature, top_p]), [top_k, low, high])) in sampled.iter_mut().zip(rows) {
            *sampled = match *temperature > 0.0 {
                false => kernels::argmax(cpu.isa, logits).unwrap_or(0) as u32,
                true => {
                    let bits = u64::from(*high) << 32 | u64::from(*low);
                    draw(logits, *temperature, *top_p, *top_k as usize, bits)
                }
            };
        }
        Ok(())
    })
}

/// One token by top-k, then top-p, then temperature.
fn draw(logits: &[f32], temperature: f32, top_p: f32, top_k: usize, random: u64) -> u32 {
    let wanted = if top_k == 0 { MOST } else { top_k.min(MOST) }.min(logits.len());
    // The largest `wanted`, in falling order, on the stack.
    let mut best = [(f32::NEG_INFINITY, 0u32); MOST];
    let mut found = 0;
    for (token, logit) in logits.iter().enumerate() {
        if found == wanted && *logit <= best[found - 1].0 {
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
    // 53 bits make a fraction of one.
    let mut left = (random >> 11) as f64 / (1u64 << 53) as f64 * kept;
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
        assert_eq!(draw(&[0.0, 3.0, 1.0], 1.0, 1.0, 1, u64::MAX), 1);
    }

    #[test]
    fn a_small_top_p_keeps_the_largest_only() {
        assert!((0..64).all(|seed| draw(&[5.0, 0.0, 0.0], 1.0, 0.5, 0, seed << 58) == 0));
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let logits = [0.0, (3.0f32).ln()];
        let ones = (0..4000u64).filter(|n| draw(&logits, 1.0, 1.0, 0, n * (u64::MAX / 4000)) == 1).count();
        assert!((2950..3050).contains(&ones), "{ones} of 4000, 3000 expected");
    }
}
