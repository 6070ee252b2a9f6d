//! Random numbers that are a function: of a key and a counter, and of nothing that came before.
//!
//! Philox4x32-10 of J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, *Parallel random numbers: as easy as 1, 2, 3*, SC 2011:
//! ten rounds of two 32-bit products, with the constants of that paper and of its library Random123. `kernels/random.cuh` is the same
//! for CUDA.

/// What the numbers at a position are for. Each purpose has numbers of its own, whatever the others take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Purpose {
    /// The choice of the token at the position.
    Token = 0,
}

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// What the key grows by from round to round: the golden ratio and the root of three.
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// Philox4x32-10: 128 random bits of a counter under a key.
pub const fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let ([mut a, mut b, mut c, mut d], [mut k, mut l]) = (counter, key);
    let mut round = 0;
    while round < ROUNDS {
        let first = MULTIPLIERS[0] as u64 * a as u64;
        let second = MULTIPLIERS[1] as u64 * c as u64;
        (a, b, c, d) = ((second >> 32) as u32 ^ b ^ k, second as u32, (first >> 32) as u32 ^ d ^ l, first as u32);
        (k, l) = (k.wrapping_add(WEYL[0]), l.wrapping_add(WEYL[1]));
        round += 1;
    }
    [a, b, c, d]
}

/// A fraction from 0 to below 1, a multiple of 2^-24: what `seed` gives for `purpose` at a position of a sequence. Position and purpose are
/// the first two words of the counter, the seed is the key, its low word first.
pub const fn uniform(seed: u64, position: u32, purpose: Purpose) -> f32 {
    let [word, ..] = philox4x32([position, purpose as u32, 0, 0], [seed as u32, (seed >> 32) as u32]);
    // 24 bits are what an f32 has, so nothing rounds up to 1.
    (word >> 8) as f32 / 16_777_216.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines `philox4x32 10` of `tests/kat_vectors` in Random123 1.14.0: counter, key, result.
    const KNOWN: [([u32; 4], [u32; 2], [u32; 4]); 3] = [
        ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
        ([!0; 4], [!0; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
        (
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        ),
    ];

    #[test]
    fn answers_are_the_known_ones() {
        for (counter, key, result) in KNOWN {
            assert_eq!(philox4x32(counter, key), result);
        }
    }

    #[test]
    fn a_fraction_is_the_first_word_of_its_counter() {
        let (seed, position) = (0x299f_31d0_a409_3822, 77);
        let [word, ..] = philox4x32([position, 0, 0, 0], [0xa409_3822, 0x299f_31d0]);
        assert_eq!(uniform(seed, position, Purpose::Token).to_bits(), ((word >> 8) as f32 * 2f32.powi(-24)).to_bits());
        // The largest word stays below 1.
        assert!((u32::MAX >> 8) as f32 / 16_777_216.0 < 1.0);
    }

    /// Pearson's statistic of counts that should be equal.
    fn chi_square(counts: &[u32]) -> f64 {
        let expected = f64::from(counts.iter().sum::<u32>()) / counts.len() as f64;
        counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum()
    }

    /// 255 degrees of freedom: mean 255, deviation 22.6. A fair generator leaves this range once in 1e5 to 1e6.
    const FAIR: std::ops::Range<f64> = 165.0..365.0;

    #[test]
    fn fractions_are_spread_evenly_over_positions_and_over_seeds() {
        let count = |fractions: &mut dyn Iterator<Item = f32>| {
            let mut counts = [0u32; 256];
            fractions.for_each(|fraction| counts[(fraction * 256.0) as usize] += 1);
            chi_square(&counts)
        };
        for fixed in [0u32, 1, 7, 0xffff_ffff] {
            let of_positions = count(&mut (0..65_536).map(|at| uniform(u64::from(fixed), at, Purpose::Token)));
            let of_seeds = count(&mut (0..65_536).map(|seed| uniform(seed, fixed, Purpose::Token)));
            let of_high_words = count(&mut (0..65_536).map(|seed| uniform(seed << 32, fixed, Purpose::Token)));
            let all = [of_positions, of_seeds, of_high_words];
            assert!(all.iter().all(|found| FAIR.contains(found)), "{fixed}: {all:.1?}");
        }
    }

    #[test]
    fn neighbours_say_nothing_of_each_other() {
        // Pairs of two positions, and of two seeds, that follow each other: in a square of 16 by 16 as often anywhere.
        let pairs = |of: &dyn Fn(u32) -> f32| {
            let mut counts = [0u32; 256];
            (0..65_536).for_each(|at| {
                let [a, b] = [of(2 * at), of(2 * at + 1)].map(|fraction| (fraction * 16.0) as usize);
                counts[a * 16 + b] += 1;
            });
            chi_square(&counts)
        };
        let positions = pairs(&|at| uniform(42, at, Purpose::Token));
        let seeds = pairs(&|seed| uniform(u64::from(seed), 42, Purpose::Token));
        assert!(FAIR.contains(&positions) && FAIR.contains(&seeds), "{positions:.1} {seeds:.1}");
    }
}
