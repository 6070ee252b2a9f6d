//! The picture of a plan: a bar of each card by tier, and what the configuration takes against context and batch.

mod bar;
mod curve;
mod draw;

use crate::planned::Planned;
use crate::text;

use draw::Canvas;

/// Elements of width that everything is laid out in.
const WIDTH: u32 = 960;

/// The picture, as one SVG.
pub fn svg(planned: &Planned<'_>) -> String {
    let mut canvas = Canvas::new(WIDTH);
    canvas.heading(&text::headline(planned.pricing.layout()));
    for on in &planned.devices {
        bar::draw(&mut canvas, on);
    }
    bar::legend(&mut canvas);
    for on in &planned.devices {
        curve::draw(&mut canvas, planned, on);
    }
    canvas.finish()
}

/// A page with the picture and the text, complete in itself.
pub fn html(planned: &Planned<'_>) -> String {
    let title = draw::escaped(&text::headline(planned.pricing.layout()));
    let plain = draw::escaped(&text::plan(planned, text::Paint(false)));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>memtier plan: {title}</title>\n\
         <style>\n:root {{ color-scheme: light dark; }}\nbody {{ margin: 2rem auto; max-width: 60rem; padding: 0 1rem; \
         font: 15px/1.5 system-ui, sans-serif; }}\npre {{ overflow-x: auto; font: 13px/1.45 ui-monospace, monospace; }}\n\
         svg {{ width: 100%; height: auto; }}\n</style>\n</head>\n<body>\n{}\n<pre>{plain}</pre>\n</body>\n</html>\n",
        svg(planned)
    )
}
