//! What the configuration takes against context and against batch, and where it stops fitting.

use memtier::plan::{Amount, Config, Need};
use memtier::{Bytes, Overflow, Tokens};

use super::draw::{Canvas, MARGIN};
use crate::device::SPACE;
use crate::planned::{OnDevice, Planned};

const HEIGHT: f64 = 190.0;
const GAP: f64 = 40.0;
/// Points of a curve.
const STEPS: u64 = 96;
/// Below the curves: ticks and their labels.
const FOOT: u32 = 44;

/// What one device takes when every pool gets all that the configuration can use.
pub(super) fn need(planned: &Planned<'_>, on: &OnDevice, config: &Config) -> Result<Bytes, Overflow> {
    let demands = match &on.portion {
        Some(portion) => planned.pricing.demands_of(portion, config)?,
        None => planned.pricing.demands(config)?,
    };
    let mut sum = on.limits.context.plus(on.limits.library_reserve)?.plus(on.limits.held)?;
    let charged = demands.iter().filter(|demand| demand.space == SPACE && !demand.tier.is_host());
    for demand in charged.filter(|demand| demand.need == Need::Mandatory) {
        sum = sum.plus(match demand.amount {
            Amount::Bytes(bytes) => bytes,
            Amount::Blocks { block, floor, most, .. } => block.times(most.max(floor).count())?,
        })?;
    }
    Ok(sum)
}

struct Axis<'a> {
    title: String,
    most: u64,
    with: &'a dyn Fn(u64) -> Config,
    now: u64,
}

pub(super) fn draw(canvas: &mut Canvas, planned: &Planned<'_>, on: &OnDevice) {
    let config = planned.config;
    let trained = planned.pricing.layout().context_length.unwrap_or(0);
    let context = Axis {
        title: format!("{}: by context, batch of {}", on.device.name, config.max_batch),
        most: trained.max(config.max_seq_len.count()).min(1 << 24),
        with: &|tokens| Config { max_seq_len: Tokens::new(tokens), ..config },
        now: config.max_seq_len.count(),
    };
    let batch = Axis {
        title: format!("by batch, {} tokens each", config.max_seq_len.count()),
        most: config.max_batch.saturating_mul(4).clamp(16, 1 << 16),
        with: &|sequences| Config { max_batch: sequences, ..config },
        now: config.max_batch,
    };
    canvas.y += 30;
    let width = (f64::from(canvas.inner()) - GAP) / 2.0;
    one(canvas, planned, on, &context, f64::from(MARGIN), width);
    one(canvas, planned, on, &batch, f64::from(MARGIN) + width + GAP, width);
    canvas.y += HEIGHT as u32 + FOOT;
}

fn one(canvas: &mut Canvas, planned: &Planned<'_>, on: &OnDevice, axis: &Axis<'_>, left: f64, width: f64) {
    let value = |step: u64| (u128::from(axis.most) * u128::from(step) / u128::from(STEPS)).max(1) as u64;
    let points: Vec<(u64, Bytes)> = (0..=STEPS)
        .map(value)
        .map_while(|at| need(planned, on, &(axis.with)(at)).ok().map(|bytes| (at, bytes)))
        .collect();
    let budget = on.device.budget;
    let top = points.iter().map(|point| point.1).max().unwrap_or(budget).max(budget).count().max(1) as f64 * 1.05;
    let base = f64::from(canvas.y) + HEIGHT;
    let x = |at: u64| left + at as f64 / axis.most.max(1) as f64 * width;
    let y = |bytes: Bytes| base - bytes.count() as f64 / top * (HEIGHT - 24.0);

    canvas.text(left, base - HEIGHT + 10.0, &axis.title, "t", "start");
    canvas.line([left, base, left + width, base], "axis");
    canvas.line([left, y(budget), left + width, y(budget)], "budget");
    canvas.text(left + width, y(budget) - 5.0, &format!("budget {} MiB", budget.in_mib()), "small", "end");
    let drawn: Vec<(f64, f64)> = points.iter().map(|&(at, bytes)| (x(at), y(bytes))).collect();
    canvas.path(&drawn, "need");
    canvas.line([x(axis.now), base, x(axis.now), base + 5.0], "axis");
    canvas.text(x(axis.now), base + 16.0, &format!("{}", axis.now), "small", "middle");
    canvas.text(left + width, base + 30.0, &format!("{}", axis.most), "small", "end");
    let said = match stop(planned, on, axis) {
        Some(0) => "does not fit at all".to_owned(),
        Some(last) => {
            canvas.line([x(last), base, x(last), y(budget)], "stop");
            format!("fits up to {last}")
        }
        None => "fits all the way".to_owned(),
    };
    canvas.text(left, base + 30.0, &said, "small", "start");
}

/// The last value that fits, or `None` when all do.
fn stop(planned: &Planned<'_>, on: &OnDevice, axis: &Axis<'_>) -> Option<u64> {
    let fits = |at: u64| need(planned, on, &(axis.with)(at)).is_ok_and(|bytes| bytes <= on.device.budget);
    if fits(axis.most) {
        return None;
    }
    let (mut good, mut bad) = (0, axis.most);
    while good + 1 < bad {
        let middle = good + (bad - good) / 2;
        if fits(middle) { good = middle } else { bad = middle }
    }
    Some(good)
}
