//! Notices buffers that are filed and never asked for again.

use std::collections::BTreeMap;

use crate::units::Bytes;

/// For how many steps in a row something must be filed in vain before it is reported. Ours: longer than the warm-up of a
/// serve loop, in which new sizes are the rule, and soon enough to be read before 262 MiB are full at 13 MiB a step.
pub const VAIN_STEPS: u64 = 8;

/// Recycling that does not recycle: the cure is to plan the buffer once, at its largest, and write it in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Warning {
    /// Each step files sizes that were never seen before and are never asked for again, which is what a tensor that is one
    /// token longer each step does. Such an entry caches nothing: it is a free that was put off.
    #[error(
        "for {steps} steps every step has filed new sizes, the last one {sizes} of them with {bytes}, and none is ever asked \
         for again: something grows with each step. Plan it once at its largest and write it in place"
    )]
    NewSizesEachStep {
        /// Steps in a row.
        steps: u64,
        /// New sizes of the last step.
        sizes: u64,
        /// Their bytes.
        bytes: Bytes,
    },
    /// One size is filed each step and was never asked for.
    #[error(
        "for {steps} steps every step has filed a buffer of {size} and none has asked for one: it is created somewhere else. \
         Plan it once and write it in place"
    )]
    FiledInVain {
        /// Steps in a row.
        steps: u64,
        /// The size.
        size: Bytes,
    },
}

/// What one size did since it was seen first.
#[derive(Clone, Copy)]
struct Seen {
    /// The step it was filed in first.
    first: u64,
    /// The step it was filed in last, and for how many steps in a row by then.
    last: u64,
    run: u64,
    asked: bool,
    /// The step it was filed or asked for in last.
    touched: u64,
}

/// One step's new sizes that nobody asked for yet.
#[derive(Clone, Copy, Default)]
struct Fresh {
    sizes: u64,
    bytes: u64,
}

/// Remembers sizes while they are held and for [`VAIN_STEPS`] steps, evicted ones included: a size that is asked for after
/// it was evicted is wanted, and the bound is what is too small.
#[derive(Default)]
pub(super) struct Growth {
    seen: BTreeMap<Bytes, Seen>,
    fresh: BTreeMap<u64, Fresh>,
    warned_growth: bool,
    warned_size: bool,
}

impl Growth {
    /// A buffer of `size` was filed in `step`.
    pub(super) fn filed(&mut self, size: Bytes, step: u64) {
        let seen = self.seen.entry(size).or_insert_with(|| {
            let fresh = self.fresh.entry(step).or_default();
            fresh.sizes += 1;
            fresh.bytes = fresh.bytes.saturating_add(size.count());
            Seen { first: step, last: step, run: 1, asked: false, touched: step }
        });
        if seen.last != step {
            seen.run = if seen.last + 1 == step { seen.run + 1 } else { 1 };
            seen.last = step;
        }
        seen.touched = step;
    }

    /// Somebody asked for `size`, successfully or not.
    pub(super) fn asked(&mut self, size: Bytes, step: u64) {
        let Some(seen) = self.seen.get_mut(&size) else { return };
        seen.touched = step;
        if seen.asked {
            return;
        }
        seen.asked = true;
        if let Some(fresh) = self.fresh.get_mut(&seen.first) {
            fresh.sizes = fresh.sizes.saturating_sub(1);
            fresh.bytes = fresh.bytes.saturating_sub(size.count());
        }
    }

    /// `step` is over, and the sizes that `held` knows are still filed. Each kind of warning is given once until its cause is
    /// gone.
    pub(super) fn end_step(&mut self, step: u64, held: impl Fn(Bytes) -> bool) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let oldest = (step + 1).saturating_sub(VAIN_STEPS);
        let in_vain = self.seen.iter().find(|(_, seen)| !seen.asked && seen.last == step && seen.run >= VAIN_STEPS);
        match in_vain {
            Some((size, seen)) if !self.warned_size => {
                self.warned_size = true;
                warnings.push(Warning::FiledInVain { steps: seen.run, size: *size });
            }
            Some(_) => {}
            None => self.warned_size = false,
        }
        let steps = self.fresh.range(oldest..).filter(|(_, fresh)| fresh.sizes > 0).count() as u64;
        match self.fresh.get(&step) {
            Some(fresh) if steps >= VAIN_STEPS && !self.warned_growth => {
                self.warned_growth = true;
                let Fresh { sizes, bytes } = *fresh;
                warnings.push(Warning::NewSizesEachStep { steps, sizes, bytes: Bytes::new(bytes) });
            }
            _ if steps < VAIN_STEPS => self.warned_growth = false,
            _ => {}
        }
        self.fresh = self.fresh.split_off(&oldest);
        self.seen.retain(|size, seen| seen.touched >= oldest || held(*size));
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(steps: u64, mut each: impl FnMut(&mut Growth, u64)) -> Vec<(u64, Warning)> {
        let mut growth = Growth::default();
        let mut all = Vec::new();
        for step in 0..steps {
            each(&mut growth, step);
            all.extend(growth.end_step(step, |_| false).into_iter().map(|warning| (step, warning)));
        }
        all
    }

    #[test]
    fn a_tensor_that_grows_each_step_is_reported_once() {
        let all = warnings(100, |growth, step| {
            (0..10).for_each(|tensor| {
                growth.asked(Bytes::new((1 << 20) | (step << 8) | tensor), step);
                growth.filed(Bytes::new((1 << 20) | (step << 8) | tensor), step);
            });
        });
        assert_eq!(all.len(), 1);
        assert!(matches!(all[0], (7, Warning::NewSizesEachStep { steps: 8, sizes: 10, .. })), "{all:?}");
    }

    #[test]
    fn a_size_filed_each_step_that_nobody_wants_is_reported_once() {
        let all = warnings(100, |growth, step| growth.filed(Bytes::kib(4), step));
        assert_eq!(all, [(7, Warning::FiledInVain { steps: 8, size: Bytes::kib(4) })]);
    }

    #[test]
    fn steady_work_and_a_bound_that_is_too_small_are_not_reported() {
        let steady = warnings(100, |growth, step| {
            growth.asked(Bytes::kib(4), step);
            growth.filed(Bytes::kib(4), step);
        });
        assert_eq!(steady, []);
        // Two sizes in turn, each evicted before it is wanted again: asked for all the same.
        let thrash = warnings(100, |growth, step| {
            growth.asked(Bytes::kib(4 + (step & 1)), step);
            growth.filed(Bytes::kib(4 + (step & 1)), step);
        });
        assert_eq!(thrash, []);
    }

    #[test]
    fn a_size_that_is_held_for_long_is_not_new_when_it_comes_back() {
        let mut growth = Growth::default();
        let mut all = Vec::new();
        for step in 0..100 {
            // A pause in between, in which the warning's cause is gone.
            if !(20..40).contains(&step) {
                let size = Bytes::new(1000 + step % 20);
                growth.asked(size, step);
                growth.filed(size, step);
            }
            all.extend(growth.end_step(step, |_| true).into_iter().map(|_| step));
        }
        assert_eq!(all, [7], "new in the first twenty steps only");
    }

    #[test]
    fn a_warning_comes_again_after_its_cause_was_gone() {
        let all = warnings(60, |growth, step| {
            if !(20..40).contains(&step) {
                growth.filed(Bytes::new(1000 + step), step);
            }
        });
        assert_eq!(all.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [7, 47]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut growth = Growth::default();
        for step in 0..10_000 {
            (0..10).for_each(|tensor| growth.filed(Bytes::new(step * 10 + tensor), step));
            growth.end_step(step, |_| false);
        }
        assert!(growth.seen.len() <= 10 * VAIN_STEPS as usize && growth.fresh.len() <= VAIN_STEPS as usize);
    }
}
