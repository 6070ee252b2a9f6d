//! A comparison as text: ours, the peer's, the ratio.

use super::json::Json;

/// One comparison.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    /// What was measured.
    pub(super) what: String,
    /// Of what the two numbers are: `tok/s`, `ns`.
    pub(super) unit: String,
    /// Whether a larger number is better (a speed) or worse (a time).
    pub(super) larger_is_better: bool,
    /// Ours; `None` when only the peer was measured.
    pub(super) ours: Option<Measured>,
    /// Who the peer is, and its number; `None` when nobody else does this.
    pub(super) peer: Option<(String, Measured)>,
}

/// A median with the spread it came from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Measured {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Measured {
    /// From at least one sample; `None` without any.
    pub(super) fn of(mut samples: Vec<f64>) -> Option<Self> {
        samples.sort_by(f64::total_cmp);
        let (least, most) = (*samples.first()?, *samples.last()?);
        let middle = samples.len() / 2;
        let median = match samples.len() % 2 {
            0 => (samples[middle - 1] + samples[middle]) / 2.0,
            _ => samples[middle],
        };
        Some(Self { median, least, most })
    }

    fn json(&self) -> Json {
        Json::object([
            ("median", Json::Number(self.median)),
            ("least", Json::Number(self.least)),
            ("most", Json::Number(self.most)),
        ])
    }

    fn text(&self) -> String {
        let places = if self.most < 10.0 { 2 } else { 1 };
        let Self { median, least, most } = self;
        format!("{median:.places$} ({least:.places$}..{most:.places$})")
    }
}

impl Row {
    /// How many times better ours is: above 1 is better, whatever the unit.
    pub(super) fn ratio(&self) -> Option<f64> {
        let (ours, theirs) = (self.ours?.median, self.peer.as_ref()?.1.median);
        Some(if self.larger_is_better { ours / theirs } else { theirs / ours })
    }

    /// As JSON.
    pub(super) fn json(&self) -> Json {
        Json::object([
            ("what", Json::text(&self.what)),
            ("unit", Json::text(&self.unit)),
            ("memtier", self.ours.map_or(Json::Null, |ours| ours.json())),
            ("peer", self.peer.as_ref().map_or(Json::Null, |(who, _)| Json::text(who))),
            ("theirs", self.peer.as_ref().map_or(Json::Null, |(_, theirs)| theirs.json())),
            ("ratio", self.ratio().map_or(Json::Null, Json::Number)),
        ])
    }
}

/// The rows as an aligned table.
pub(super) fn render(rows: &[Row]) -> String {
    let header = ["", "unit", "memtier", "peer", "peer's", "times better"].map(str::to_owned);
    let lines = rows.iter().map(|row| {
        let none = || "-".to_owned();
        let ours = row.ours.map_or_else(none, |ours| ours.text());
        let (who, theirs) = row.peer.as_ref().map_or_else(|| (none(), none()), |(who, n)| (who.clone(), n.text()));
        let ratio = row.ratio().map_or_else(none, |ratio| format!("{ratio:.2}"));
        [row.what.clone(), row.unit.clone(), ours, who, theirs, ratio]
    });
    let lines: Vec<[String; 6]> = std::iter::once(header).chain(lines).collect();
    let widths: Vec<usize> =
        (0..6).map(|i| lines.iter().map(|line| line[i].chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        text += &format!("  {}\n", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_needs_a_sample_and_keeps_the_spread() {
        assert_eq!(Measured::of(Vec::new()), None);
        let measured = Measured::of(vec![4.0, 1.0, 2.0, 9.0]).unwrap();
        assert_eq!((measured.median, measured.least, measured.most), (3.0, 1.0, 9.0));
    }

    #[test]
    fn a_ratio_above_one_is_better_for_speeds_and_for_times() {
        let measured = |x| Measured { median: x, least: x, most: x };
        let row = |larger_is_better, ours, theirs| Row {
            what: "decode".into(),
            unit: "tok/s".into(),
            larger_is_better,
            ours: Some(measured(ours)),
            peer: Some(("llama.cpp".into(), measured(theirs))),
        };
        assert_eq!(row(true, 80.0, 40.0).ratio(), Some(2.0));
        assert_eq!(row(false, 5.0, 40.0).ratio(), Some(8.0));
        let text = render(&[row(true, 80.0, 40.0), Row { ours: None, ..row(true, 1.0, 40.0) }]);
        assert!(text.contains("80.0 (80.0..80.0)") && text.lines().nth(2).unwrap().ends_with('-'), "{text}");
    }
}
