//! A timing loop: contenders take turns, so that a noisy moment hits all of them, and each is judged by its median.

use std::fmt;
use std::time::{Duration, Instant};

/// Samples of each contender.
const SAMPLES: usize = 41;
/// A sample lasts at least this long: far above the clock's resolution, far below a scheduler's patience.
const SAMPLE: Duration = Duration::from_millis(2);

/// One comparison.
pub(crate) struct Bench {
    /// What is measured.
    pub(crate) what: &'static str,
    contenders: Vec<Contender>,
}

/// One of those compared.
struct Contender {
    who: &'static str,
    /// Does the operation this many times and tells how long that took. The loop is inside, so that it is compiled
    /// together with the operation.
    run: Box<dyn FnMut(u64) -> Duration>,
}

/// Nanoseconds per operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Line {
    what: &'static str,
    who: &'static str,
    median: f64,
    least: f64,
    most: f64,
}

impl Bench {
    /// A comparison without contenders yet.
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, contenders: Vec::new() }
    }

    /// Adds a contender. `run(n)` does the operation `n` times.
    pub(crate) fn with(self, who: &'static str, mut run: impl FnMut(u64) + 'static) -> Self {
        self.with_clock(who, move |n| {
            let start = Instant::now();
            run(n);
            start.elapsed()
        })
    }

    /// Adds a contender that does the operation `n` times and knows itself how long that took: there is work between
    /// the operations that does not count.
    pub(crate) fn with_clock(mut self, who: &'static str, run: impl FnMut(u64) -> Duration + 'static) -> Self {
        self.contenders.push(Contender { who, run: Box::new(run) });
        self
    }

    /// Measures.
    pub(crate) fn run(mut self) -> Vec<Line> {
        let counts: Vec<u64> = self.contenders.iter_mut().map(Contender::operations_per_sample).collect();
        let mut samples = vec![Vec::with_capacity(SAMPLES); counts.len()];
        for _ in 0..SAMPLES {
            for ((contender, &count), samples) in self.contenders.iter_mut().zip(&counts).zip(&mut samples) {
                samples.push((contender.run)(count).as_secs_f64() * 1e9 / count as f64);
            }
        }
        let lines = self.contenders.iter().zip(samples);
        lines.map(|(contender, samples)| Line::of(self.what, contender.who, samples)).collect()
    }
}

impl Contender {
    /// Doubles the count until a sample is long enough. Also the warm-up.
    fn operations_per_sample(&mut self) -> u64 {
        let mut count = 1;
        while (self.run)(count) < SAMPLE {
            count *= 2;
        }
        count
    }
}

impl Line {
    fn of(what: &'static str, who: &'static str, mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        Self { what, who, median: samples[SAMPLES / 2], least: samples[0], most: samples[SAMPLES - 1] }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, who, median, least, most } = self;
        write!(
            f,
            "{{\"what\": \"{what}\", \"who\": \"{who}\", \"unit\": \"ns\", \"median\": {median:.3}, \
             \"least\": {least:.3}, \"most\": {most:.3}}}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_the_median_with_its_spread() {
        let mut samples: Vec<f64> = (0..SAMPLES).map(|i| i as f64).collect();
        samples.reverse();
        let line = Line::of("x", "y", samples);
        assert_eq!((line.median, line.least, line.most), (20.0, 0.0, 40.0));
        assert!(line.to_string().starts_with(r#"{"what": "x", "who": "y", "unit": "ns", "median": 20.000"#));
    }

    #[test]
    fn contenders_take_turns() {
        let bench = Bench::new("sleep").with("a", |n| {
            for i in 0..n {
                std::hint::black_box(i);
            }
        });
        let lines = bench.run();
        assert!(lines.len() == 1 && lines[0].least <= lines[0].median && lines[0].median <= lines[0].most);
    }
}
