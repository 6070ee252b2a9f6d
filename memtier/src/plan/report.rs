//! The operator's text. All sizes are MiB; a column adds up to its total as printed.

use std::fmt::{self, Write as _};

use super::accepted::{Charge, MemoryPlan, PlanLine};
use super::failure::{PlanFailure, Refusal};
use super::input::{Name, Need, Tier};
use super::levers::{Knob, Lever};
use crate::units::{Blocks, Bytes};

const MIB: u64 = 1 << 20;

/// Rows of a column in MiB whose printed figures add up to the printed total: each row is what the running sum, rounded
/// up, grows by.
#[derive(Default)]
struct Column {
    exact: u128,
    printed: u128,
}

impl Column {
    fn row(&mut self, bytes: Bytes) -> u128 {
        self.exact += u128::from(bytes.count());
        let printed = self.exact.div_ceil(MIB.into());
        let row = printed - self.printed;
        self.printed = printed;
        row
    }
}

/// The exact size behind a row too small for MiB.
fn small(bytes: Bytes) -> String {
    if bytes.is_zero() || bytes.count() >= MIB { String::new() } else { format!("{bytes}") }
}

fn count_of_blocks(line: &PlanLine) -> Option<String> {
    let blocks = line.blocks?;
    let mut text = format!("{} of {}", blocks.granted.count(), blocks.most);
    if let Ok(tokens) = blocks.capacity()
        && !tokens.is_zero()
    {
        let _ = write!(text, ", {tokens}");
    }
    Some(text)
}

fn joined(notes: impl IntoIterator<Item = Option<String>>) -> String {
    let notes: Vec<String> = notes.into_iter().flatten().filter(|note| !note.is_empty()).collect();
    if notes.is_empty() { String::new() } else { format!("   {}", notes.join("; ")) }
}

fn width_of<'a>(lines: impl Iterator<Item = &'a PlanLine>) -> usize {
    lines.map(|line| line.name.chars().count()).max().unwrap_or(0).max(32)
}

impl fmt::Display for MemoryPlan {
    /// The table of an accepted plan: who gets how much, by tier, and what is left.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = width_of(self.lines().iter());
        writeln!(
            f,
            "Fits the {} MiB budget: {} MiB planned, {} MiB left.\n",
            self.budget().in_mib(),
            self.total().in_mib(),
            self.left().count() / MIB
        )?;
        writeln!(f, "  {:<18} {:<width$} {:>8}", "tier", "what", "MiB")?;
        let mut column = Column::default();
        for tier in Tier::ALL {
            let lines = self.lines().iter().filter(|line| line.tier == tier && line.charge == Charge::Device);
            let mut label = tier.name();
            for line in lines.filter(|line| !left_out(line)) {
                let notes = joined([count_of_blocks(line), Some(small(line.granted))]);
                writeln!(f, "  {label:<18} {:<width$} {:>8}{notes}", line.name, column.row(line.granted))?;
                label = "";
            }
        }
        writeln!(f, "  {:<18} {:<width$} {:>8}", "total", "", column.printed)?;
        self.beside(f, width)
    }
}

fn left_out(line: &PlanLine) -> bool {
    line.need == Need::OptionalCache && line.granted.is_zero() && !line.asked.is_zero()
}

impl MemoryPlan {
    /// What is not in the total: the load, the host, and what had no room.
    fn beside(&self, f: &mut fmt::Formatter<'_>, width: usize) -> fmt::Result {
        if !self.transient().is_zero() {
            writeln!(f, "\n  while loading, in memory that pools and optional caches get afterwards")?;
            for line in self.lines().iter().filter(|line| line.charge == Charge::LoadOnly) {
                writeln!(f, "  {:<18} {:<width$} {:>8}", line.tier, line.name, line.granted.in_mib())?;
            }
            writeln!(f, "  {:<18} {:<width$} {:>8}", "load peak", "", self.load_peak().in_mib())?;
        }
        if self.lines().iter().any(|line| line.charge == Charge::Host) {
            writeln!(f, "\n  host memory, outside the budget")?;
            let mut column = Column::default();
            for line in self.lines().iter().filter(|line| line.charge == Charge::Host) {
                let notes = joined([count_of_blocks(line), Some(small(line.granted))]);
                writeln!(f, "  {:<18} {:<width$} {:>8}{notes}", line.tier, line.name, column.row(line.granted))?;
            }
        }
        for line in self.lines().iter().filter(|line| left_out(line)) {
            writeln!(f, "\n  no room for {} ({} MiB): left out", line.name, line.asked.in_mib())?;
        }
        if let Some((pool, short, bytes)) = self.displaced() {
            let (batch, length) = (self.config().max_batch, self.config().max_seq_len);
            writeln!(
                f,
                "\n  {pool} is {short} short of what {batch} sequences of {length} can use; optional caches hold"
            )?;
            writeln!(f, "  {} MiB, which weight_caches off gives to it", bytes.in_mib())?;
        }
        Ok(())
    }

    /// A pool that could use more, how much, and what optional caches hold.
    fn displaced(&self) -> Option<(&Name, Blocks, Bytes)> {
        let caches = self.lines().iter().filter(|line| line.need == Need::OptionalCache);
        let bytes = Bytes::new(caches.map(|line| line.charged().count()).sum());
        let mut pools = self.lines().iter().filter(|line| line.tier == Tier::Pooled && line.need == Need::Mandatory);
        let (pool, short) = pools.find_map(|line| {
            let short = line.blocks.map(|blocks| blocks.most.beyond(blocks.granted))?;
            (!short.is_zero()).then_some((&line.name, short))
        })?;
        (!bytes.is_zero()).then_some((pool, short, bytes))
    }
}

impl PlanFailure {
    pub(super) fn sentence(&self) -> String {
        let (requested, budget, over) = (self.requested().in_mib(), self.budget().in_mib(), self.shortfall().in_mib());
        match self.refusal() {
            Refusal::Overflow(name) => format!(
                "cannot plan this configuration: the size of `{name}`, or the sum up to it, left the range of 64 bits; \
                 one of its factors is absurd, check shapes, counts and limits"
            ),
            Refusal::Device => format!(
                "cannot fit this configuration: {requested} MiB requested of a budget of {budget} MiB, over by {over} MiB"
            ),
            Refusal::Load => format!(
                "cannot load this configuration: the load needs {requested} MiB at its peak of a budget of {budget} MiB, \
                 over by {over} MiB"
            ),
            Refusal::Host => format!(
                "cannot fit this configuration: {requested} MiB of host memory requested of a budget of {budget} MiB, \
                 over by {over} MiB"
            ),
        }
    }

    /// The text for the operator: what was requested line by line, by how much it is over, and what to change.
    pub fn report(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write_report(&mut text);
        text
    }

    fn write_report(&self, out: &mut String) -> fmt::Result {
        let budget = self.budget().in_mib();
        match self.refusal() {
            Refusal::Overflow(_) => return writeln!(out, "{}.", self.sentence()),
            Refusal::Device => writeln!(out, "Cannot fit this configuration in the {budget} MiB budget.\n")?,
            Refusal::Load => writeln!(out, "Cannot load this configuration in the {budget} MiB budget.\n")?,
            Refusal::Host => writeln!(out, "Cannot fit this configuration in the {budget} MiB of host memory.\n")?,
        }
        self.write_request(out)?;
        for line in self.below_floor() {
            let Some(blocks) = line.blocks else { continue };
            let (name, granted, floor) = (&line.name, blocks.granted, blocks.floor);
            writeln!(
                out,
                "\n  {name} would get {granted} and is refused below {floor}: it could not hold what is advertised"
            )?;
        }
        self.write_levers(out)
    }

    fn write_request(&self, out: &mut String) -> fmt::Result {
        let wanted = |line: &&PlanLine| {
            line.need != Need::OptionalCache
                && match self.refusal() {
                    Refusal::Host => line.charge == Charge::Host,
                    // Pools are opened when the load is over.
                    Refusal::Load => {
                        line.charge == Charge::LoadOnly || (line.charge == Charge::Device && line.tier != Tier::Pooled)
                    }
                    _ => line.charge == Charge::Device,
                }
        };
        let width = width_of(self.lines().iter());
        writeln!(out, "  {:<w$} {:>8}", "requested", "MiB", w = width + 2)?;
        let mut column = Column::default();
        for line in self.lines().iter().filter(wanted) {
            let blocks = line.blocks.map(|blocks| {
                let mut note = format!("at least {}", blocks.floor);
                if let Ok(tokens) = blocks.tokens.times(blocks.floor.count())
                    && !tokens.is_zero()
                {
                    let _ = write!(note, ", {tokens}");
                }
                note
            });
            let notes = joined([blocks, Some(small(line.asked))]);
            writeln!(out, "    {:<width$} {:>8}{notes}", line.name, column.row(line.asked))?;
        }
        writeln!(out, "    {:<width$} {:>8}", "", "--------")?;
        let over = self.shortfall().in_mib();
        writeln!(out, "    {:<width$} {:>8}   over by {over} MiB", "total", column.printed)?;
        let beside = self.lines().iter().filter(|line| !wanted(line) && !line.asked.is_zero());
        for line in beside.filter(|line| line.charge != Charge::Host && *self.refusal() != Refusal::Host) {
            let why = match line.need {
                Need::OptionalCache => "optional",
                Need::Transient => "while loading only",
                Need::Mandatory => "after loading only",
            };
            writeln!(out, "    not in the total: {}, {} MiB, {why}", line.name, line.asked.in_mib())?;
        }
        Ok(())
    }

    fn write_levers(&self, out: &mut String) -> fmt::Result {
        let (locked, free): (Vec<&Lever>, Vec<&Lever>) = self.levers().iter().partition(|lever| lever.locked);
        if !free.is_empty() {
            writeln!(out, "\n  the largest levers")?;
        }
        for lever in &free {
            let verb = if is_budget(lever.knob) { "adds " } else { "frees" };
            let fits = if lever.fits { "   fits" } else { "" };
            writeln!(out, "    {:<40} {verb} {:>7} MiB{fits}", change(lever), whole(lever))?;
        }
        if let Some(pair) = self.pair() {
            let [first, second] = &pair.levers;
            writeln!(out, "\n  no single lever is enough; these two together are")?;
            let both = format!("{} and {}", change(first), change(second));
            writeln!(out, "    {both:<40} frees {:>7} MiB   fits", freed(pair.frees))?;
        }
        if let Some(all) = self.combination() {
            writeln!(out, "\n  no two levers are enough; these together free {} MiB and fit", freed(all.frees))?;
            for lever in &all.levers {
                writeln!(out, "    {:<40} frees {:>7} MiB", change(lever), whole(lever))?;
            }
        }
        if let Some(bottom) = self.bottom() {
            let (bottom, over) = (bottom.in_mib(), bottom.beyond(self.budget()).in_mib());
            writeln!(
                out,
                "\n  no combination is enough; with all levers at their end the request is {bottom} MiB, over by {over} MiB"
            )?;
        }
        if !locked.is_empty() {
            writeln!(out, "\n  locked by the user, {} MiB short", self.shortfall().in_mib())?;
        }
        for lever in &locked {
            let effect = match (is_budget(lever.knob), lever.fits) {
                (true, _) => format!("{} would fit", change(lever)),
                (false, true) => format!("unlocked, {} would free {} MiB and fit", change(lever), whole(lever)),
                (false, false) => format!("unlocked, {} would free {} MiB", change(lever), whole(lever)),
            };
            writeln!(out, "    {} stays at {}; {effect}", lever.knob, lever.from)?;
        }
        Ok(())
    }
}

fn is_budget(knob: Knob) -> bool {
    matches!(knob, Knob::Budget | Knob::HostBudget)
}

fn change(lever: &Lever) -> String {
    format!("{} {} -> {}", lever.knob, lever.from, lever.to)
}

/// Whole MiB: what is freed rounds down, what must be added rounds up.
fn whole(lever: &Lever) -> String {
    if is_budget(lever.knob) { lever.frees.in_mib().to_string() } else { freed(lever.frees) }
}

fn freed(bytes: Bytes) -> String {
    match bytes.count() / MIB {
        0 => "< 1".to_owned(),
        whole => whole.to_string(),
    }
}
