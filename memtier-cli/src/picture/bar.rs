//! A bar of one card: every line of the plan, tiers in their colours, and what is left or over.

use memtier::Bytes;
use memtier::plan::{Charge, Need, PlanLine, Tier};

use super::draw::{Canvas, MARGIN};
use crate::planned::OnDevice;
use crate::text::part;

const HEIGHT: u32 = 44;
/// Names are written into parts at least this wide.
const NAMED: f64 = 90.0;

pub(super) fn draw(canvas: &mut Canvas, on: &OnDevice) {
    let budget = on.device.budget;
    // A refusal's lines are what was asked for, and may go past the budget.
    let (lines, total, of): (_, Bytes, fn(&PlanLine) -> Bytes) = match &on.result {
        Ok(plan) => (plan.lines(), plan.total(), |line| line.granted),
        Err(failure) => (failure.lines(), failure.requested(), |line| line.asked),
    };
    let scale = f64::from(canvas.inner()) / (budget.max(total).count().max(1) as f64);
    canvas.y += 26;
    let said = match &on.result {
        Ok(plan) => format!(
            "{}: {} of {} MiB, {} MiB left",
            part(on),
            total.in_mib(),
            budget.in_mib(),
            plan.left().count() >> 20
        ),
        Err(failure) => format!(
            "{}: {} MiB asked of {} MiB, over by {} MiB",
            part(on),
            total.in_mib(),
            budget.in_mib(),
            failure.shortfall().in_mib()
        ),
    };
    canvas.text(MARGIN.into(), canvas.y.into(), &said, "t", "start");
    canvas.y += 8;
    let (top, mut x) = (f64::from(canvas.y), f64::from(MARGIN));
    for tier in Tier::ALL {
        let charged = |line: &&PlanLine| {
            line.tier == tier
                && line.charge == Charge::Device
                && (on.result.is_ok() || line.need != Need::OptionalCache)
        };
        for line in lines.iter().filter(charged) {
            let width = of(line).count() as f64 * scale;
            let told = format!("{}: {} MiB ({tier})", line.name, of(line).in_mib());
            canvas.rect([x, top, width, HEIGHT.into()], tier.name(), &told);
            if width > NAMED {
                canvas.text(x + 6.0, top + 18.0, &fitted(&line.name, width), "n", "start");
                canvas.text(x + 6.0, top + 34.0, &format!("{} MiB", of(line).in_mib()), "s", "start");
            }
            x += width;
        }
    }
    let edge = f64::from(MARGIN) + budget.count() as f64 * scale;
    if x < edge {
        canvas.rect(
            [x, top, edge - x, HEIGHT.into()],
            "left",
            &format!("left: {} MiB", budget.beyond(total).count() >> 20),
        );
    } else if total > budget {
        canvas.rect([edge, top + f64::from(HEIGHT) + 2.0, x - edge, 4.0], "over", "over the budget");
        canvas.line([edge, top - 4.0, edge, top + f64::from(HEIGHT) + 6.0], "budget");
    }
    canvas.y += HEIGHT + 10;
}

/// A name cut to a width in which a letter takes about seven.
fn fitted(name: &str, width: f64) -> String {
    let letters = (width / 7.0) as usize;
    if name.chars().count() <= letters {
        return name.to_owned();
    }
    name.chars().take(letters.saturating_sub(1)).chain(['…']).collect()
}

pub(super) fn legend(canvas: &mut Canvas) {
    canvas.y += 16;
    let mut x = f64::from(MARGIN);
    for tier in Tier::ALL.into_iter().filter(|tier| !tier.is_host()) {
        canvas.rect([x, f64::from(canvas.y) - 9.0, 10.0, 10.0], tier.name(), tier.name());
        canvas.text(x + 16.0, canvas.y.into(), tier.name(), "small", "start");
        x += 130.0;
    }
    canvas.y += 12;
}
