//! The reader of CUDA sources over what no compiler would take: it never panics, and ends.

use super::{
    check::Sides,
    parse::{Bound, parse},
};

/// A deterministic stream of numbers (splitmix64).
struct Rng(u64);

impl Rng {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % end as u64) as usize
    }
}

/// What makes up kernels, and what breaks them.
const PIECES: [&str; 58] = [
    "extern",
    "\"C\"",
    "__global__",
    "void",
    "__launch_bounds__",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "<",
    ">",
    ",",
    ";",
    "*",
    "&",
    "const",
    "float",
    "unsigned",
    "int",
    "long",
    "u32",
    "x",
    "name",
    "template",
    "typename",
    "typedef",
    "using",
    "=",
    "namespace",
    "::",
    "256",
    "0x10",
    "09",
    "1'0",
    "\"",
    "'",
    "R\"(",
    ")\"",
    "R\"x(",
    "//",
    "/*",
    "*/",
    "\\",
    "\\\n",
    "\n",
    "#",
    "\n#define A A*A\n",
    "\n#define B(x) __global__ x##B\n",
    "A",
    "...",
    "$",
    "é",
    "\u{0}",
    "\r\n",
    "__restrict__",
    "struct",
];

#[test]
fn random_pieces_are_read_to_the_end() {
    let mut rng = Rng(7);
    for _ in 0..10_000 {
        let length = rng.below(60);
        let mut source = String::new();
        for _ in 0..length {
            source += PIECES[rng.below(PIECES.len())];
            if rng.below(3) > 0 {
                source.push(' ');
            }
        }
        parse(&source);
    }
}

#[test]
fn random_bytes_are_read_to_the_end() {
    let mut rng = Rng(8);
    for _ in 0..10_000 {
        let bytes: Vec<u8> = (0..rng.below(200)).map(|_| rng.below(256) as u8).collect();
        parse(&String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn a_real_source_cut_or_changed_anywhere_is_read_to_the_end() {
    let whole = include_str!("../../../kernels/decode.cu");
    let mut rng = Rng(9);
    for _ in 0..100 {
        let start = whole.floor_char_boundary(rng.below(whole.len()));
        let end = whole.floor_char_boundary(start + rng.below(whole.len() - start));
        parse(&whole[start..end]);
        let mut changed: Vec<char> = whole.chars().collect();
        for _ in 0..8 {
            let at = rng.below(changed.len());
            changed[at] = ['(', '}', '"', '/', '\\', '<', '#', '\n'][rng.below(8)];
        }
        parse(&changed.into_iter().collect::<String>());
    }
}

#[test]
fn deep_and_long_sources_end_soon() {
    for piece in ["(", "{", "<", "[", "extern \"C\" {", "namespace a {", "__global__ ", "/*", "\"", "R\"(", "#define "]
    {
        parse(&piece.repeat(20_000));
        parse(&format!("extern \"C\" __global__ void f({}", piece.repeat(20_000)));
    }
    let doubled: String = (0..40).map(|i| format!("#define A{i} A{}*A{}\n", i + 1, i + 1)).collect();
    let source = parse(&format!("{doubled}extern \"C\" __global__ void __launch_bounds__(A0) f() {{}}"));
    assert!(matches!(source.kernels[0].bound, Bound::Unread(_)));
    let product = vec!["2"; 5000].join("*");
    let source = parse(&format!("extern \"C\" __global__ void __launch_bounds__({product}) f() {{}}"));
    assert!(matches!(source.kernels[0].bound, Bound::Unread(_)));
}

#[test]
fn comparing_with_a_hostile_source_ends_too() {
    let ours: super::signature::Declaration = syn::parse_quote!(
        unsafe fn f(a: Out<f32>, b: In<f32>, n: u64);
    );
    let params = super::signature::read(&ours, &mut Default::default()).unwrap();
    let mut rng = Rng(10);
    for _ in 0..8_000 {
        let list: Vec<&str> = (0..rng.below(30)).map(|_| PIECES[rng.below(PIECES.len())]).collect();
        let source = parse(&format!("extern \"C\" __global__ void f({}) {{}}", list.join(" ")));
        for kernel in &source.kernels {
            let sides = Sides { function: &ours.sig.ident, file: "f.cu" };
            super::check::params(&params, &source, kernel, &sides, &mut Default::default());
        }
    }
}
