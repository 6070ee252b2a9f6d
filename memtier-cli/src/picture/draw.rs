//! A canvas that grows downwards, and the few shapes that are needed.

use std::fmt::Write as _;

/// An SVG under construction.
pub(super) struct Canvas {
    body: String,
    width: u32,
    /// Where the next thing goes.
    pub(super) y: u32,
}

/// Left and right of everything.
pub(super) const MARGIN: u32 = 24;

impl Canvas {
    pub(super) fn new(width: u32) -> Canvas {
        Canvas { body: String::new(), width, y: MARGIN }
    }

    /// What is between the margins.
    pub(super) fn inner(&self) -> u32 {
        self.width - 2 * MARGIN
    }

    pub(super) fn heading(&mut self, text: &str) {
        self.y += 8;
        self.text(MARGIN.into(), self.y.into(), text, "h", "start");
        self.y += 20;
    }

    pub(super) fn text(&mut self, x: f64, y: f64, text: &str, class: &str, anchor: &str) {
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\" text-anchor=\"{anchor}\">{}</text>",
            escaped(text)
        );
    }

    /// A rectangle with what a pointer resting on it is told.
    pub(super) fn rect(&mut self, [x, y, width, height]: [f64; 4], class: &str, told: &str) {
        let _ = writeln!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"{class}\"><title>{}</title></rect>",
            escaped(told)
        );
    }

    pub(super) fn line(&mut self, [x1, y1, x2, y2]: [f64; 4], class: &str) {
        let _ = writeln!(
            self.body,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"
        );
    }

    pub(super) fn path(&mut self, points: &[(f64, f64)], class: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(self.body, "<polyline points=\"{}\" class=\"{class}\"/>", points.join(" "));
    }

    pub(super) fn finish(self) -> String {
        let (width, height) = (self.width, self.y + MARGIN);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             aria-label=\"Memory plan\">\n<style>\n{STYLE}</style>\n{}</svg>\n",
            self.body
        )
    }
}

/// Colours that are told apart without red and green, and text that follows the page.
const STYLE: &str = "\
text { font: 12px system-ui, sans-serif; fill: currentColor; }
rect { stroke: #fff; stroke-opacity: .7; stroke-width: .8; }
.n, .s { fill: #fff; }
.s { font-size: 11px; }
.h { font-weight: 600; font-size: 14px; }
.small { font-size: 11px; opacity: .75; }
.reserve { fill: #7f7f7f; }
.engine-persistent { fill: #b07aa1; }
.model-resident { fill: #4e79a7; }
.forward-scratch { fill: #e0a030; }
.pooled { fill: #59a89c; }
.left { fill: none; stroke: currentColor; stroke-opacity: .35; stroke-dasharray: 4 3; }
.over { fill: #c8452f; }
.axis { stroke: currentColor; stroke-opacity: .35; }
.budget { stroke: #c8452f; stroke-dasharray: 6 4; }
.need { fill: none; stroke: #4e79a7; stroke-width: 2; }
.stop { stroke: #c8452f; stroke-opacity: .6; }
";

/// Text within SVG and HTML. Control characters, which neither may hold, become spaces.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push('\n'),
            control if control.is_control() => out.push(' '),
            other => out.push(other),
        }
    }
    out
}
