//! How much of the device may be used.

use memtier::{
    Bytes,
    account::{Budget, BudgetDecision, DeviceMemory, decide_budget},
};

use super::Decision;
use crate::config::Settings;

/// The budget of the engine's device. The host backend has no memory of its own to be asked about, so nothing limits it
/// until `--vram-budget` does.
pub fn device_budget(settings: &Settings) -> BudgetDecision {
    decide_budget(settings.vram_budget, &DeviceMemory::NoDevice)
}

/// What the plan may take: `--budget`, and never more than the device's budget. With it, what was decided.
pub fn plan_budget(settings: &Settings) -> (Bytes, Option<Decision>) {
    let decided = device_budget(settings);
    match decided.budget {
        Budget::Limited(device) if device <= settings.budget => (device, Some(Decision::Budget { device })),
        _ => (settings.budget, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_of_both_budgets_counts_and_is_said() {
        let settings = |vram| Settings { budget: Bytes::mib(100), vram_budget: vram, ..Settings::default() };
        let of = |vram| plan_budget(&settings(vram));
        assert_eq!(of(None), (Bytes::mib(100), None));
        assert_eq!(of(Some(Bytes::mib(200))), (Bytes::mib(100), None));
        let device = Bytes::mib(60);
        assert_eq!(of(Some(device)), (device, Some(Decision::Budget { device })));
        // A zero is a budget of zero: everything is refused, with the plan's own report.
        assert_eq!(of(Some(Bytes::ZERO)).0, Bytes::ZERO);
    }
}
