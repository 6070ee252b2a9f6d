//! How much an allocation cache may hold: a decision over what the card has left.

use crate::units::Bytes;

/// The most that is held however much is free: 1 GiB.
///
/// Far more than a decode step works with. It used to be the whole policy of the cache that this one learns from, and on a
/// card with 262 MiB left it was four times what there was: a bound that cannot be reached is no bound.
pub const CEILING: Bytes = Bytes::gib(1);
/// Below this a cache is too small to recycle a step's tensors: 64 MiB, unless that is more than half of what is free.
pub const FLOOR: Bytes = Bytes::mib(64);
/// The share of free memory that is held between floor and ceiling: one eighth.
const SHARE: u64 = 8;
/// The floor never takes more than this share of free memory: one half.
const MOST: u64 = 2;
/// How many steps pass before the bound is computed again: the KV cache grows meanwhile, and what is free shrinks.
pub const REARM_STEPS: u64 = 64;

/// How much an [`AllocCache`](super::AllocCache) may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Capacity {
    /// At most so much.
    Bounded(Bytes),
    /// Whatever is filed, until the device is full. For comparing against only.
    Unbounded,
}

impl Capacity {
    /// What eviction goes down to: three quarters of a bound.
    ///
    /// Evicting to the bound itself would evict again at the next buffer filed. A quarter of the bound is, at the smallest
    /// bound of 64 MiB, one step of the workload this was measured on (12.8 MiB filed a step). Ours: the cache this one
    /// learns from has a low-water mark as well and does not say where.
    pub fn low_water(self) -> Option<Bytes> {
        match self {
            Capacity::Bounded(most) => Some(Bytes::new(most.count() - most.count() / 4)),
            Capacity::Unbounded => None,
        }
    }
}

/// What the operator said about the capacity.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Override {
    /// Nothing: the policy decides.
    #[default]
    Auto,
    /// At most so much, whatever is free.
    Fixed(Bytes),
    /// No bound.
    Unbounded,
}

/// An override that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is no capacity: write whole MiB, 0 for no bound at all, or `auto`")]
pub struct BadOverride(pub String);

impl Override {
    /// Reads what a person wrote, in MiB: nothing or `auto` for the policy, `0` for no bound, anything else a number.
    ///
    /// # Errors
    /// [`BadOverride`]: a typo is never "no bound", and never silently the policy either.
    pub fn parse(text: Option<&str>) -> Result<Self, BadOverride> {
        let Some(text) = text else { return Ok(Override::Auto) };
        let bad = || BadOverride(text.to_owned());
        match text.trim() {
            "auto" => Ok(Override::Auto),
            "0" => Ok(Override::Unbounded),
            digits if !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit()) => {
                let mib = digits.parse().map_err(|_| bad())?;
                let bytes = Bytes::mib(1).times(mib).map_err(|_| bad())?;
                // `00` is a typo as well.
                if bytes.is_zero() { Err(bad()) } else { Ok(Override::Fixed(bytes)) }
            }
            _ => Err(bad()),
        }
    }
}

/// What may be held when `free` is free: min(1 GiB, min(free/2, max(64 MiB, free/8))).
///
/// ```
/// use memtier::{Bytes, cache::capacity_for};
///
/// assert_eq!(capacity_for(Bytes::mib(262)), Bytes::mib(64));
/// assert_eq!(capacity_for(Bytes::gib(20)), Bytes::gib(1));
/// assert_eq!(capacity_for(Bytes::mib(40)), Bytes::mib(20));
/// ```
pub fn capacity_for(free: Bytes) -> Bytes {
    let share = FLOOR.max(Bytes::new(free.count() / SHARE));
    CEILING.min(share.min(Bytes::new(free.count() / MOST)))
}

/// The capacity: an override wins, then the policy over what is free, and without a reading it stays what it was.
pub fn plan_capacity(operator: Override, free: Option<Bytes>, now: Capacity) -> Capacity {
    match (operator, free) {
        (Override::Fixed(most), _) => Capacity::Bounded(most),
        (Override::Unbounded, _) => Capacity::Unbounded,
        (Override::Auto, Some(free)) => Capacity::Bounded(capacity_for(free)),
        (Override::Auto, None) => now,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_measured_legs_have_their_capacities() {
        let table = [
            (Bytes::ZERO, Bytes::ZERO),
            (Bytes::new(1), Bytes::ZERO),
            (Bytes::mib(100), Bytes::mib(50)),
            (Bytes::mib(128), Bytes::mib(64)),
            // The leg that died at step 19, holding 236.9 MiB under a bound of 1024.
            (Bytes::mib(262), Bytes::mib(64)),
            (Bytes::mib(512), Bytes::mib(64)),
            // An earlier leg: 884,998,144 bytes free, of which 774,373,376 stay free.
            (Bytes::mib(844), Bytes::new(110_624_768)),
            (Bytes::gib(8), Bytes::gib(1)),
            (Bytes::new((8 << 30) - 8), Bytes::new((1 << 30) - 1)),
            (Bytes::gib(8).plus(Bytes::new(1)).unwrap(), Bytes::gib(1)),
            (Bytes::gib(80), Bytes::gib(1)),
            (Bytes::MAX, Bytes::gib(1)),
        ];
        for (free, capacity) in table {
            assert_eq!(capacity_for(free), capacity, "{free}");
        }
        assert_eq!(capacity_for(Bytes::mib(844)).count() >> 20, 105);
        assert!(capacity_for(Bytes::mib(262)) < Bytes::new(236_900 << 10));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_bound_is_reachable_and_grows_with_what_is_free(free in any::<u64>(), more in any::<u64>()) {
            let capacity = capacity_for(Bytes::new(free));
            prop_assert!(capacity.count() <= free / 2, "more than half of what is free");
            prop_assert!(capacity_for(Bytes::new(free.saturating_add(more))) >= capacity);
        }
    }

    #[test]
    fn an_override_wins_and_a_missing_reading_keeps_the_bound() {
        let (now, free) = (Capacity::Bounded(Bytes::mib(7)), Some(Bytes::mib(262)));
        let fixed = Override::Fixed(Bytes::gib(3));
        assert_eq!(plan_capacity(fixed, free, now), Capacity::Bounded(Bytes::gib(3)));
        assert_eq!(plan_capacity(fixed, None, now), Capacity::Bounded(Bytes::gib(3)));
        assert_eq!(plan_capacity(Override::Unbounded, free, now), Capacity::Unbounded);
        assert_eq!(plan_capacity(Override::Auto, free, now), Capacity::Bounded(Bytes::mib(64)));
        assert_eq!(plan_capacity(Override::Auto, None, now), now);
        assert_eq!(plan_capacity(Override::Auto, None, Capacity::Unbounded), Capacity::Unbounded);
    }

    #[test]
    fn a_typo_is_an_error_and_not_unbounded() {
        assert_eq!(Override::parse(None), Ok(Override::Auto));
        assert_eq!(Override::parse(Some("auto")), Ok(Override::Auto));
        assert_eq!(Override::parse(Some("0")), Ok(Override::Unbounded));
        assert_eq!(Override::parse(Some(" 256 ")), Ok(Override::Fixed(Bytes::mib(256))));
        for typo in [
            "",
            "o",
            "off",
            "none",
            "-1",
            "256MB",
            "1.5",
            "00",
            "0x10",
            "1e3",
            "99999999999999999999",
            "17592186044416",
        ] {
            assert_eq!(Override::parse(Some(typo)), Err(BadOverride(typo.into())), "{typo}");
        }
    }
}
