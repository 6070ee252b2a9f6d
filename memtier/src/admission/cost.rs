//! What a prompt costs in memory before it is known to fit.

use crate::units::{Bytes, Tokens};

/// KV state of one token in Q4, for a Qwen3.5 mixture-of-experts model: about 5.76 KiB, or 4.6 bits for each of the 10,240
/// values that a token has there. An engine with another model computes its own, see [`plan::kv`](crate::plan::kv).
pub const KV_BYTES_PER_TOKEN_Q4: Bytes = Bytes::new(5898);
/// The same 10,240 values in FP32: 40 KiB.
pub const KV_BYTES_PER_TOKEN_FP32: Bytes = Bytes::kib(40);

/// The activation peak of a prefill on the host by prompt length, from measurements, interpolated.
///
/// On the CPU the attention scores dominate, which grow with the square of the length; on a device they stay in tiles of
/// fixed size, and device-resident requests are not charged any of this.
///
/// Between two measurements the peak is on the line between them. That is never below a curve that bends upwards, so it
/// refuses a little early and never late. Below the first measurement the peak is the first one's; above the last it grows
/// with the square of the length.
///
/// ```
/// use memtier::{Bytes, Tokens, admission::CostModel};
///
/// let model = CostModel::parse("
///     512   64MiB   # measured with four threads
///     4096  1.5GiB
/// ").unwrap();
/// assert_eq!(model.activation_peak(Tokens::new(2304)), Bytes::mib(800));
/// assert_eq!(model.activation_peak(Tokens::new(8192)), Bytes::gib(6));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CostModel {
    /// Lengths ascend, peaks never fall.
    anchors: Vec<(Tokens, Bytes)>,
}

/// Measurements that make no model.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadAnchors {
    /// None at all.
    #[error("no measurements: give at least one line `TOKENS PEAK`, such as `4096 1.5GiB`")]
    None,
    /// A line that is none.
    #[error("line {line}: `{text}` is no measurement: write `TOKENS PEAK`, such as `4096 1.5GiB`")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What stands there.
        text: String,
    },
    /// A length that is zero or not above the one before.
    #[error("{tokens} after {before}: lengths have to ascend from at least 1")]
    Order {
        /// The length.
        tokens: Tokens,
        /// The one before it.
        before: Tokens,
    },
    /// A longer prompt that costs less.
    #[error("{tokens} with {peak} cost less than a shorter prompt: such a measurement is noise, take the larger one")]
    Falls {
        /// The length.
        tokens: Tokens,
        /// Its peak.
        peak: Bytes,
    },
}

impl CostModel {
    /// A model from measurements.
    ///
    /// # Errors
    /// [`BadAnchors`], every one.
    pub fn new(anchors: impl Into<Vec<(Tokens, Bytes)>>) -> Result<Self, Vec<BadAnchors>> {
        let anchors = anchors.into();
        let mut errors = Vec::new();
        if anchors.is_empty() {
            errors.push(BadAnchors::None);
        }
        let (mut before, mut highest) = (Tokens::ZERO, Bytes::ZERO);
        for (tokens, peak) in &anchors {
            if *tokens <= before {
                errors.push(BadAnchors::Order { tokens: *tokens, before });
            }
            if *peak < highest {
                errors.push(BadAnchors::Falls { tokens: *tokens, peak: *peak });
            }
            (before, highest) = (*tokens, *peak);
        }
        if errors.is_empty() { Ok(CostModel { anchors }) } else { Err(errors) }
    }

    /// Reads measurements from a text: one `TOKENS PEAK` a line, `#` starts a comment.
    ///
    /// # Errors
    /// [`BadAnchors`], every one.
    pub fn parse(text: &str) -> Result<Self, Vec<BadAnchors>> {
        let (mut anchors, mut errors) = (Vec::new(), Vec::new());
        for (index, line) in text.lines().enumerate() {
            let content = line.split('#').next().unwrap_or_default().trim();
            if content.is_empty() {
                continue;
            }
            let parsed = content.split_once(char::is_whitespace).and_then(|(tokens, peak)| {
                let digits = tokens.bytes().all(|digit| digit.is_ascii_digit()).then_some(tokens)?;
                Some((Tokens::new(digits.parse().ok()?), crate::account::parse_size(peak).ok()?))
            });
            match parsed {
                Some(anchor) => anchors.push(anchor),
                None => errors.push(BadAnchors::Line { line: index + 1, text: content.to_owned() }),
            }
        }
        if errors.is_empty() { Self::new(anchors) } else { Err(errors) }
    }

    /// A model for an engine that was not measured yet: FP32 attention scores of one layer, `heads` × n × n, and four rows
    /// of `hidden` FP32 values a token, at six lengths from 512 to 16,384. Arithmetic, not a measurement: replace it.
    ///
    /// # Errors
    /// [`Overflow`](crate::Overflow) for shapes that no model has.
    pub fn from_shape(heads: u64, hidden: u64) -> Result<Self, crate::Overflow> {
        let anchors = [512u64, 1024, 2048, 4096, 8192, 16_384].map(|tokens| {
            let scores = Bytes::new(4).times(heads)?.times(tokens * tokens)?;
            let rows = Bytes::new(16).times(hidden)?.times(tokens)?;
            Ok((Tokens::new(tokens), scores.plus(rows)?))
        });
        Ok(CostModel { anchors: anchors.into_iter().collect::<Result<_, crate::Overflow>>()? })
    }

    /// A model that charges nothing: for an engine whose requests are all device-resident.
    pub fn free() -> Self {
        CostModel { anchors: Vec::new() }
    }

    /// The activation peak of a prompt of `tokens`. Never falls with the length; [`Bytes::MAX`] past 64 bits.
    pub fn activation_peak(&self, tokens: Tokens) -> Bytes {
        let after = self.anchors.partition_point(|(at, _)| *at < tokens);
        let wide = |count: u64| u128::from(count);
        let peak = match (after.checked_sub(1).and_then(|before| self.anchors.get(before)), self.anchors.get(after)) {
            (None, Some((_, first))) => Some(wide(first.count())),
            (Some((from, low)), Some((to, high))) => {
                let (run, rise) = (to.beyond(*from).count().max(1), high.beyond(*low).count());
                // At most 2^64 x 2^64; rounded up, so that the next length is never cheaper.
                let part = (wide(rise) * wide(tokens.beyond(*from).count())).div_ceil(wide(run));
                Some(wide(low.count()) + part)
            }
            (Some((last, peak)), None) => {
                let square = |tokens: Tokens| wide(tokens.count()) * wide(tokens.count());
                wide(peak.count()).checked_mul(square(tokens)).map(|area| area.div_ceil(square(*last).max(1)))
            }
            (None, None) => Some(0),
        };
        Bytes::new(peak.and_then(|peak| u64::try_from(peak).ok()).unwrap_or(u64::MAX))
    }

    /// What a prompt of `tokens` costs on the host: its KV state and its activation peak; [`Bytes::MAX`] past 64 bits.
    pub fn host_cost(&self, tokens: Tokens, kv_per_token: Bytes) -> Bytes {
        let kv = kv_per_token.times(tokens.count());
        kv.and_then(|kv| kv.plus(self.activation_peak(tokens))).unwrap_or(Bytes::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn model() -> CostModel {
        CostModel::new([
            (Tokens::new(100), Bytes::new(1000)),
            (Tokens::new(200), Bytes::new(3000)),
            (Tokens::new(400), Bytes::new(3000)),
            (Tokens::new(800), Bytes::new(20_000)),
        ])
        .unwrap()
    }

    #[test]
    fn anchors_are_met_and_what_lies_between_is_on_the_line() {
        let table = [
            (0, 1000),
            (1, 1000),
            (100, 1000),
            (150, 2000),
            (200, 3000),
            (300, 3000),
            (400, 3000),
            (600, 11_500),
            (800, 20_000),
            (1600, 80_000),
            (2400, 180_000),
        ];
        for (tokens, peak) in table {
            assert_eq!(model().activation_peak(Tokens::new(tokens)), Bytes::new(peak), "{tokens}");
        }
        assert_eq!(model().activation_peak(Tokens::MAX), Bytes::MAX);
    }

    #[test]
    fn the_measured_kv_costs() {
        let tokens = Tokens::new(1000);
        let q4 = model().host_cost(tokens, KV_BYTES_PER_TOKEN_Q4).beyond(model().activation_peak(tokens));
        let fp32 = model().host_cost(tokens, KV_BYTES_PER_TOKEN_FP32).beyond(model().activation_peak(tokens));
        assert_eq!((q4, fp32), (Bytes::new(5_898_000), Bytes::new(40_960_000)));
        assert_eq!(model().host_cost(Tokens::MAX, KV_BYTES_PER_TOKEN_Q4), Bytes::MAX);
    }

    #[test]
    fn bad_measurements_are_named_with_their_line() {
        let said = |text: &str| {
            let errors: Vec<_> = CostModel::parse(text).unwrap_err().iter().map(ToString::to_string).collect();
            errors.join("\n")
        };
        assert!(said("").starts_with("no measurements"));
        assert!(said("# nothing\n\n").starts_with("no measurements"));
        let two = said("512 64MiB\n4096\n-1 1MiB\n1e3 1MiB\n8192 lots\n");
        assert_eq!(two.lines().count(), 4, "{two}");
        assert!(two.starts_with("line 2: `4096` is no measurement"), "{two}");
        assert!(said("512 64MiB\n512 65MiB").contains("lengths have to ascend"));
        assert!(said("0 64MiB").contains("lengths have to ascend"));
        assert!(said("512 64MiB\n1024 63MiB").contains("noise"));
        assert!(CostModel::from_shape(u64::MAX, 1).is_err());
        let shape = CostModel::from_shape(32, 4096).unwrap();
        assert_eq!(shape.activation_peak(Tokens::new(4096)), Bytes::new((4 * 32 * 4096 + 16 * 4096) * 4096));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_longer_prompt_never_costs_less(
            steps in prop::collection::vec((1u64..u64::MAX / 8, 0u64..u64::MAX / 8), 1..8),
            one in any::<u64>(), two in any::<u64>(), kv in any::<u32>(),
        ) {
            let (mut tokens, mut bytes) = (0, 0);
            let anchors: Vec<_> = steps.into_iter().map(|(more_tokens, more_bytes)| {
                (tokens, bytes) = (tokens + more_tokens, bytes + more_bytes);
                (Tokens::new(tokens), Bytes::new(bytes))
            }).collect();
            let model = CostModel::new(anchors).unwrap();
            let cost = |tokens| model.host_cost(Tokens::new(tokens), Bytes::new(u64::from(kv)));
            prop_assert!(cost(one.min(two)) <= cost(one.max(two)));
        }

        #[test]
        fn texts_do_not_panic(text in "[0-9 .#A-Za-z\\n-]{0,80}") {
            let _ = CostModel::parse(&text);
        }
    }
}
