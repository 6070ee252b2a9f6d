//! How many rows of a prompt pay for what: products by this crate's kernels beside cuBLASLt's, and with weights of few bits as they are
//! beside the same unpacked in front of the product.

use std::ops::RangeInclusive;

use memtier_cuda::{
    CublasLt, LtOutput, LtPlans, LtShape,
    kernels::{Activation, KERNELS_OF_MANY_ROWS, Tiling},
};

use crate::{
    bench::Found,
    work::{By, Case, Left, WORKSPACE},
};

/// Rows of the sweep.
const ROWS: [usize; 10] = [17, 33, 64, 65, 96, 128, 192, 256, 384, 512];
/// Rows of decodes, for which there is nothing to unpack.
const FEW: [usize; 4] = [1, 4, 8, 16];

/// A product of a model.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    name: &'static str,
    columns: usize,
    outputs: &'static [usize],
    left: Left,
}

const fn shape(name: &'static str, columns: usize, outputs: &'static [usize], left: Left) -> Shape {
    Shape { name, columns, outputs, left }
}

/// SmolLM2-135M's and Gemma 3 270M's, as the engine has them: Gemma normalises what comes back before it is added.
pub(crate) const SHAPES: [Shape; 8] = [
    shape("smollm2-qkv", 576, &[576, 192, 192], Left::Bf16),
    shape("smollm2-o", 576, &[576], Left::Add),
    shape("smollm2-gated", 576, &[1536, 1536], Left::Gated(Activation::Silu)),
    shape("smollm2-down", 1536, &[576], Left::Add),
    shape("gemma3-qkv", 640, &[1024, 256, 256], Left::Bf16),
    shape("gemma3-o", 1024, &[640], Left::F32),
    shape("gemma3-gated", 640, &[2048, 2048], Left::Gated(Activation::GeluTanh)),
    shape("gemma3-down", 2048, &[640], Left::F32),
];

/// Of a Llama of 8 billion weights, in bf16 only.
const LARGE: [Shape; 4] = [
    shape("llama-8b-qkv", 4096, &[4096, 1024, 1024], Left::Bf16),
    shape("llama-8b-o", 4096, &[4096], Left::Add),
    shape("llama-8b-gated", 4096, &[14_336, 14_336], Left::Gated(Activation::Silu)),
    shape("llama-8b-down", 14_336, &[4096], Left::Add),
];

/// What their files have most of.
const TILING: Tiling = Tiling::Q4;

impl Shape {
    fn case(&self, form: &str, rows: usize, by: By) -> Case {
        let Shape { name, columns, outputs, left } = *self;
        let (name, outputs) = (format!("{name}-{form} {rows}"), outputs.to_vec());
        Case { name, rows, columns, outputs, left, by, invariant: false }
    }

    fn of_library(&self) -> LtShape {
        let output = match self.left {
            Left::F32 => LtOutput::F32,
            Left::Add => LtOutput::AddF32,
            Left::Bf16 | Left::Gated(_) | Left::Normed => LtOutput::Bf16,
        };
        LtShape { columns: self.columns, outputs: self.outputs.iter().sum(), output }
    }
}

/// Every form at these rows.
fn forms(shape: Shape, rows: usize, plans: Option<&LtPlans>) -> Vec<Case> {
    let mut forms = vec![("own", By::Own(None)), ("tiles", By::Tiles(TILING))];
    if rows > FEW[FEW.len() - 1] {
        forms.push(("unpacked", By::Unpacked(TILING, None)));
        if let Some(plans) = plans {
            forms.push(("cublaslt", By::Plans(plans.clone())));
            forms.push(("unpacked-cublaslt", By::Unpacked(TILING, Some(plans.clone()))));
        }
    }
    forms.into_iter().map(|(form, by)| shape.case(form, rows, by)).collect()
}

fn plans(library: &CublasLt, rows: RangeInclusive<usize>) -> LtPlans {
    let shapes: Vec<_> = SHAPES.iter().chain(&LARGE).map(Shape::of_library).collect();
    library.plans(&shapes, rows, WORKSPACE).unwrap()
}

pub(crate) fn cases(library: Option<&CublasLt>) -> Vec<Case> {
    let plans = library.map(|library| plans(library, ROWS[0]..=ROWS[ROWS.len() - 1]));
    if let Some(plans) = &plans {
        println!("{plans}");
        plans.refused().iter().for_each(|error| println!("{error}"));
    }
    let all = |shape: &Shape| {
        let rows = FEW.into_iter().chain(ROWS);
        rows.flat_map(|rows| forms(*shape, rows, plans.as_ref())).collect::<Vec<_>>()
    };
    let bf16 = |shape: &Shape| {
        let all = ROWS.into_iter().flat_map(|rows| forms(*shape, rows, plans.as_ref()));
        all.filter(|case| case.tiling().is_none()).collect::<Vec<_>>()
    };
    SHAPES.iter().flat_map(all).chain(LARGE.iter().flat_map(bf16)).collect()
}

/// A launch of every form for some of the shapes, each kernel for many rows among them.
pub(crate) fn few_cases(shapes: &[Shape], rows: &[usize], library: Option<&CublasLt>) -> Vec<Case> {
    let plans = library.map(|library| plans(library, 17..=512));
    let all = |shape: &Shape| rows.iter().flat_map(|rows| forms(*shape, *rows, plans.as_ref())).collect::<Vec<_>>();
    let mut cases: Vec<_> = shapes.iter().flat_map(all).collect();
    cases.extend((0..KERNELS_OF_MANY_ROWS).map(|number| of_kernel(&shapes[0], rows[rows.len() - 1], number)));
    cases
}

/// Says for each shape where one form begins to be faster than another for all rows that were measured from there on.
pub(crate) fn meet(found: &[Found]) {
    for Shape { name, .. } in SHAPES.into_iter().chain(LARGE) {
        let us = |form: &str, rows: usize| {
            let name = format!("{name}-{form} {rows}");
            found.iter().find(|it| it.name == name && it.taken).map(|it| it.us)
        };
        let with =
            |library: &str, ours: &str, rows| us(library, rows).into_iter().chain(us(ours, rows)).reduce(f64::min);
        say(name, "cuBLASLt", "our kernels", &|rows| (us("cublaslt", rows), us("own", rows)));
        if LARGE.iter().any(|large| large.name == name) {
            continue;
        }
        say(name, "weights of 4 bits, unpacked", "as they are", &|rows| {
            (with("unpacked-cublaslt", "unpacked", rows), us("tiles", rows))
        });
        say(name, "weights of bf16", "of 4 bits in their fastest form", &|rows| {
            let few = with("unpacked-cublaslt", "unpacked", rows).into_iter().chain(us("tiles", rows)).reduce(f64::min);
            (with("cublaslt", "own", rows), few)
        });
    }
}

fn say(name: &str, one: &str, other: &str, us: &dyn Fn(usize) -> (Option<f64>, Option<f64>)) {
    let ratios: Vec<_> = ROWS.iter().filter_map(|rows| Some((*rows, us(*rows).0? / us(*rows).1?))).collect();
    let from = from_where(&ratios);
    let of = |(rows, ratio): &(usize, f64)| format!("{ratio:.2} x at {rows}");
    let all = ratios.iter().map(of).collect::<Vec<_>>().join(", ");
    match (ratios.is_empty(), from) {
        (true, _) => println!("{name}: {one} against {other} was not measured"),
        (_, Some(rows)) => println!("{name}: {one} faster than {other} from {rows} rows on: {all}"),
        (_, None) => println!("{name}: {one} not faster than {other} at the most rows: {all}"),
    }
}

/// The fewest rows from which on every ratio is below one.
pub(crate) fn from_where(ratios: &[(usize, f64)]) -> Option<usize> {
    ratios.iter().rev().take_while(|(_, ratio)| *ratio < 1.0).last().map(|(rows, _)| *rows)
}

/// Rows and outputs of the blocks of each kernel for many rows, in the order of `KERNELS_OF_MANY_ROWS`.
const KERNELS: [&str; KERNELS_OF_MANY_ROWS] =
    ["32x64", "64x64", "64x96", "64x128", "128x64", "128x96", "128x128", "192x192"];

fn of_kernel(shape: &Shape, rows: usize, number: usize) -> Case {
    let case = shape.case(KERNELS[number], rows, By::Own(Some(number)));
    Case { name: format!("kernel-{}", case.name), ..case }
}

/// Each kernel for many rows by itself, whichever would be chosen: SmolLM2's shapes, and the large one by the kernels for many outputs.
pub(crate) fn each_kernel() -> Vec<Case> {
    let mut cases = Vec::new();
    for rows in [512, 8192] {
        for shape in &SHAPES[..4] {
            cases.extend((0..KERNELS_OF_MANY_ROWS).map(|number| of_kernel(shape, rows, number)));
        }
    }
    let large = shape("8192-8192", 8192, &[8192], Left::Bf16);
    cases.extend((4..KERNELS_OF_MANY_ROWS).map(|number| of_kernel(&large, 8192, number)));
    cases
}
