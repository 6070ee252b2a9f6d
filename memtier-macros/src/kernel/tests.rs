//! What an author is told when the two declarations differ, and what is understood of sources.

use std::fs;

use proc_macro2::{TokenStream, TokenTree};
use syn::LitStr;
use tempfile::TempDir;

use super::{
    expand_in,
    parse::{Bound, Ty, parse},
};

const VECTOR: &str = r#"// A comment with extern "C" __global__ void not_me(int x) {}
#include "common.cuh"
#define THREADS 256
typedef unsigned short half_bits;
extern "C" __global__ void __launch_bounds__(THREADS) scale_f32(float *out, const float *x, float factor, u64 n) {
    if (n) { out[0] = x[0]; } // scale_f64(
}
extern "C" __global__ void __launch_bounds__(128, 2)
    mixed(bf16 *__restrict__ out, const __half* x, const half_bits *bits, unsigned n, const unsigned char w[]) {}
extern "C" __global__ void free(float *out) {}
template <int N> __global__ void many(float *out) {}
__global__ void mangled(float *out) {}
extern "C" __global__ void __launch_bounds__(32) odd(void *p, float4 *v, float **pp, Args a, long l, int &r, Tensor<float, 2> t, bool *b) {}
extern "C" __global__ void __launch_bounds__(N + 1) unread(float *out) {}
#if A
extern "C" __global__ void __launch_bounds__(32) twice(float *out) {}
#else
extern "C" __global__ void __launch_bounds__(32) twice(double *out) {}
#endif
"#;

/// A folder with the source in it.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("kernels")).unwrap();
    fs::write(folder.path().join("kernels/vector.cu"), VECTOR).unwrap();
    folder
}

fn messages(tokens: TokenStream) -> Vec<String> {
    let mut found = Vec::new();
    let mut error = false;
    for tree in tokens {
        match tree {
            TokenTree::Ident(ident) => error = ident == "compile_error",
            TokenTree::Group(group) if error => {
                found.extend(syn::parse2::<LitStr>(group.stream()).map(|text| text.value()));
                error = false;
            }
            TokenTree::Group(group) => found.extend(messages(group.stream())),
            _ => {}
        }
    }
    found
}

/// The messages for a declaration; `function` and `type` must be there in any case.
fn told(args: &str, item: &str) -> Vec<String> {
    told_in(&folder(), args, item)
}

/// The same where there are other sources.
fn told_in(folder: &TempDir, args: &str, item: &str) -> Vec<String> {
    let expansion = expand_in(folder.path(), args.parse().unwrap(), item.parse().unwrap());
    if item.contains("fn ") && !item.contains("mod ") {
        let file: syn::File = syn::parse2(expansion.clone()).unwrap_or_else(|error| panic!("{error}: {expansion}"));
        let functions = file.items.iter().filter(|item| matches!(item, syn::Item::Fn(_))).count();
        let types = file.items.iter().filter(|item| matches!(item, syn::Item::Enum(_))).count();
        assert_eq!((functions, types), (1, 1), "{expansion}");
    }
    messages(expansion)
}

/// For `unsafe fn f(params);` on an entry of the source.
fn of(entry: &str, params: &str) -> Vec<String> {
    told(&format!("\"kernels/vector.cu\", \"{entry}\""), &format!("pub unsafe fn f({params});"))
}

/// Exactly one message, with these words.
#[track_caller]
fn one(messages: &[String], words: &[&str]) {
    assert_eq!(messages.len(), 1, "{messages:#?}");
    for word in words {
        assert!(messages[0].contains(word), "`{word}` is not in: {}", messages[0]);
    }
}

#[test]
fn what_is_the_same_is_accepted() {
    assert!(of("scale_f32", "out: Out<f32>, x: In<f32>, factor: f32, n: u64").is_empty());
    assert!(of("scale_f32", "y: kernel::Out<f32>, r#in: In<core::primitive::f32>, f: f32, n: u64,").is_empty());
    assert!(of("mixed", "out: Out<bf16>, x: In<f16>, bits: In<bf16>, n: u32, w: In<Q4_K>").is_empty());
    assert!(of("mixed", "out: Out<bf16>, x: In<f16>, bits: In<u16>, n: u32, w: In<Packed<Format>>").is_empty());
    assert!(told("\"kernels/vector.cu\", \"free\", threads = 64", "unsafe fn f(out: Out<f32>);").is_empty());
}

#[test]
fn every_kind_of_difference_names_both_sides() {
    one(
        &of("mixed", "out: Out<bf16>, x: In<f32>, bits: In<bf16>, n: u32, w: In<u8>"),
        &[
            "parameter 2 `x`: `In<f32>` here, `const __half *x` in kernels/vector.cu line 9: ",
            "the elements are `f16` there; write `In<f16>`",
        ],
    );
    let scale = |out: &str, x: &str, factor: &str, n: &str| {
        of("scale_f32", &format!("out: {out}, x: {x}, factor: {factor}, n: {n}"))
    };
    let good = ("Out<f32>", "In<f32>", "f32", "u64");
    one(
        &scale("In<f32>", good.1, good.2, good.3),
        &[
            "parameter 1 `out`: `In<f32>` here, `float *out`",
            "may write there; write `Out<f32>`, or `const` in the source",
        ],
    );
    one(&scale(good.0, "Out<f32>", good.2, good.3), &["`const float *x`", "only reads it; write `In<f32>`"]);
    one(
        &scale(good.0, "Out<bf16>", good.2, good.3),
        &["only reads it, and the elements are `f32` there; write `In<f32>`"],
    );
    one(&scale(good.0, "f32", good.2, good.3), &["takes an address; write `In<f32>`"]);
    one(
        &scale(good.0, good.1, "In<f32>", good.3),
        &["`float factor` in kernels/vector.cu line 5: the kernel takes a value; write `f32`"],
    );
    one(&scale(good.0, good.1, good.2, "u32"), &["`u64 n`", "the kernel takes `u64`; write `u64`"]);
    one(&scale(good.0, good.1, "u32", good.3), &["the kernel takes `f32`; write `f32`"]);
}

#[test]
fn all_differences_are_reported_at_once() {
    let seen = of("scale_f32", "out: In<u8>, x: Out<f16>, factor: u64, n: f32");
    assert_eq!(seen.len(), 4, "{seen:#?}");
    let seen = told("\"kernels/vector.cu\", \"scale_f32\", threads = 512", "fn f(out: In<f32>, x: In<f32>, n: u64);");
    let words = ["`threads = 512` here", "safe to call", "parameter 1 `out`", "`float factor`"];
    assert_eq!(seen.len(), words.len(), "{seen:#?}");
    assert!(words.iter().all(|word| seen.iter().any(|message| message.contains(word))), "{seen:#?}");
}

#[test]
fn a_forgotten_parameter_is_one_mistake() {
    one(
        &of("scale_f32", "out: Out<f32>, x: In<f32>, n: u64"),
        &["nothing behind `x` here, `float factor` in kernels/vector.cu line 5, parameter 3 of 4: write `factor: f32`"],
    );
    one(
        &of("scale_f32", "x: In<f32>, factor: f32, n: u64"),
        &["nothing in front here, `float *out`", "write `out: Out<f32>`"],
    );
    one(
        &of("scale_f32", "out: Out<f32>, x: In<f32>, y: In<f32>, factor: f32, n: u64"),
        &["parameter 3 `y`: `In<f32>` here, nothing in kernels/vector.cu line 5: `scale_f32` takes 4 parameters there"],
    );
    assert_eq!(of("scale_f32", "").len(), 4);
}

#[test]
fn names_in_another_order_are_suspicious() {
    let order = "\"kernels/add.cu\", \"add\"";
    let folder = folder();
    fs::write(
        folder.path().join("kernels/add.cu"),
        "extern \"C\" __global__ void __launch_bounds__(1) add(float *o, const float *a, const float *b) {}",
    )
    .unwrap();
    assert!(told_in(&folder, order, "unsafe fn f(o: Out<f32>, x: In<f32>, y: In<f32>);").is_empty());
    let seen = told_in(&folder, order, "unsafe fn f(o: Out<f32>, b: In<f32>, a: In<f32>);");
    assert_eq!(seen.len(), 2, "{seen:#?}");
    assert!(
        seen[0].contains("parameter 2 is called `b` here, and `a` in kernels/add.cu line 1, where `b` is parameter 3")
    );
}

#[test]
fn what_no_wrapper_passes_says_what_to_do_in_the_source() {
    let seen = of("odd", "p: Out<f32>, v: Out<f32>, pp: Out<f32>, a: u32, l: i64, r: i32, t: f32, b: Out<u8>");
    let words = [
        "`void` says nothing",
        "`float4` must be aligned",
        "pointers in device memory",
        "nothing is known of a type `Args`",
        "32 or 64 bits",
        "reference to host memory",
        "`Tensor<float, 2> t`",
        "`unsigned char` in the source",
    ];
    assert_eq!(seen.len(), words.len(), "{seen:#?}");
    for (message, word) in seen.iter().zip(words) {
        assert!(message.contains(word), "`{word}` is not in: {message}");
    }
}

#[test]
fn missing_files_and_entries_say_what_is_there() {
    let file = |name: &str| told(&format!("\"{name}\", \"scale_f32\""), "unsafe fn f(n: u32);");
    one(
        &file("kernels/vectr.cu"),
        &["no file `kernels/vectr.cu` beside this crate's Cargo.toml; did you mean `vector.cu`?"],
    );
    one(&file("kernels/other.cu"), &["(in `kernels` there is `", "`vector.cu`"]);
    one(&file("kernel/vector.cu"), &["did you mean `kernels`?"]);
    one(&file("kernels"), &["`kernels` could not be read"]);
    one(&of("scale_f23", ""), &["no kernel `scale_f23` in kernels/vector.cu; did you mean `scale_f32`?", "`mixed`"]);
    one(&of("not_me", ""), &["no kernel `not_me`"]);
    one(
        &of("many", "out: Out<f32>"),
        &["`many` is a template (kernels/vector.cu line 11)", "an `extern \"C\"` kernel that calls it"],
    );
    one(&of("mangled", "out: Out<f32>"), &["C++ name", "line 12", "write `extern \"C\"` in front"]);
    one(&of("twice", "out: Out<f32>"), &["declared twice, differently", "lines 16 and 18"]);
}

#[test]
fn launch_bounds_are_kept() {
    let threads = |entry: &str, option: &str| {
        told(&format!("\"kernels/vector.cu\", \"{entry}\"{option}"), "unsafe fn f(out: Out<f32>);")
    };
    let over = told(
        "\"kernels/vector.cu\", \"scale_f32\", threads = 257",
        "unsafe fn f(out: Out<f32>, x: In<f32>, factor: f32, n: u64);",
    );
    one(
        &over,
        &["`threads = 257` here, `__launch_bounds__(256)` at `scale_f32` in kernels/vector.cu line 5", "at most 256"],
    );
    one(&threads("free", ""), &["neither here nor in kernels/vector.cu line 10", "write `threads = 256`"]);
    one(&threads("free", ", threads = 2048"), &["1 to 1024 threads"]);
    one(&threads("unread", ""), &["`__launch_bounds__(N + 1)`", "write a number there"]);
    one(&threads("unread", ", threads = 32"), &["takes a C++ compiler to read"]);
}

#[test]
fn the_attribute_itself_is_checked() {
    let args = |args: &str| told(args, "unsafe fn f(out: Out<f32>);");
    one(
        &args(""),
        &["the source and the kernel in it are missing: write `#[kernel(\"kernels/vector.cu\", \"scale_f32\")]`"],
    );
    one(&args("\"kernels/vector.cu\""), &["the kernel's name in the source is missing"]);
    let free = "\"kernels/vector.cu\", \"free\", threads = 1";
    one(&args(&format!("{free}, \"third\"")), &["and no third"]);
    one(&args(&format!("{free}, thread = 2")), &["no option `thread`; did you mean `threads`?"]);
    one(&args(&format!("{free}, threads = 2")), &["`threads` is given twice"]);
    one(&args("\"kernels/vector.cu\", \"free\", threads(1)"), &["`threads` takes a number: write `threads = 256`"]);
    one(&args(&format!("{free}, unsafe")), &["what is vouched for is missing"]);
    one(&args(&format!("{free}, unsafe(bounds)")), &["is written `unsafe(requires("]);
    one(&args(&format!("{free}, unsafe(requires(true))")), &["take one away"]);
}

#[test]
fn somebody_vouches() {
    let free =
        |option: &str| told(&format!("\"kernels/vector.cu\", \"free\", threads = 1{option}"), "fn f(out: Out<f32>);");
    one(&free(""), &["`f` would be safe to call", "write `unsafe fn f`", "`unsafe(requires("]);
    one(&free(", unsafe(requires())"), &["nothing is required"]);
    assert!(free(", unsafe(requires(out.len() == 4, grid.blocks() < 9))").is_empty());
}

#[test]
fn rust_types_that_no_kernel_takes_say_what_to_write() {
    let free = |ty: &str| told("\"kernels/vector.cu\", \"free\", threads = 1", &format!("unsafe fn f(out: {ty});"));
    one(&free("&mut [f32]"), &["not host memory: write `Out<f32>`"]);
    one(&free("&[f32]"), &["write `In<f32>`"]);
    one(&free("*mut f32"), &["a bare pointer", "write `Out<f32>`"]);
    one(&free("usize"), &["write `u64`"]);
    one(&free("InOut<f32>"), &["reads and writes, is an `Out<..>`"]);
    one(&free("StableSpan<f32>"), &["is an `In<..>`"]);
    one(&free("Uot<f32>"), &["did you mean `Out`?"]);
    one(&free("Out"), &["Write `Out<f32>`"]);
    one(&free("Out<f32, u8>"), &["one element type"]);
    one(&free("Out<fp32>"), &["no `fp32`; did you mean `f32`?"]);
    one(&free("Out<bool>"), &["device memory holds no `bool`"]);
    one(&free("(f32, f32)"), &["a kernel takes no `(f32, f32)`"]);
}

#[test]
fn rust_signatures_that_no_kernel_has_are_refused() {
    let item = |item: &str| told("\"kernels/vector.cu\", \"free\", threads = 1", item);
    one(&item("unsafe fn f(out: Out<f32>) {}"), &["the body is generated"]);
    one(&item("unsafe fn f(out: Out<f32>) -> u32;"), &["a kernel returns nothing"]);
    one(&item("unsafe fn f<T>(out: Out<f32>);"), &["no generics here"]);
    one(&item("async unsafe fn f(out: Out<f32>);"), &["no `async` here"]);
    one(&item("const unsafe fn f(out: Out<f32>);"), &["no `const` here"]);
    one(&item("unsafe extern \"C\" fn f(out: Out<f32>);"), &["no ABI here"]);
    one(&item("unsafe fn f(&self);"), &["no `self` here"]);
    one(&item("unsafe fn f(grid: Out<f32>);"), &["a parameter `grid` of its own"]);
    one(&item("unsafe fn f((a, b): Out<f32>);"), &["a plain name"]);
    one(&item("unsafe fn f(#[cfg(a)] out: Out<f32>);"), &["no attributes on parameters"]);
    one(&item("struct W;"), &["`#[kernel]` stands on a function without a body"]);
    let again = expand_in(folder().path(), "".parse().unwrap(), "struct W;".parse().unwrap()).to_string();
    assert!(again.contains("struct W ;"), "the item is still there");
}

#[test]
fn kernels_are_found_wherever_c_plus_plus_lets_them_be() {
    let source = parse(
        "namespace a::b { struct S { void f() { int x = '}'; } }; extern \"C\" {\n\
         __global__ void __cluster_dims__(2, 1, 1) one(const unsigned long long int *const x, int (*f)(int)) { }\n\
         } } inline namespace v { static const char *s = R\"x(} __global__ )\" )x\"; }\n\
         ENTRY(64) extern \"C\" __launch_bounds__(2 * 64) __global__ void two(void);\n\
         [[maybe_unused]] extern \"C\" __global__ void three(std::uint32_t, float const *__restrict__ const y);",
    );
    let names: Vec<_> =
        source.kernels.iter().map(|kernel| (kernel.name.as_str(), kernel.line, kernel.c_name)).collect();
    assert_eq!(names, [("one", 2, true), ("two", 4, true), ("three", 5, true)]);
    let ty = |kernel: usize, param: usize| source.kernels[kernel].params[param].ty.clone();
    assert_eq!(ty(0, 0), Ty::Pointer { to: "unsigned long long".into(), constant: true });
    assert!(matches!(ty(0, 1), Ty::Odd(_)));
    assert_eq!(source.kernels[1].bound, Bound::Threads(128));
    assert!(source.kernels[1].params.is_empty());
    assert_eq!(ty(2, 0), Ty::Value("uint32_t".into()));
    assert_eq!(ty(2, 1), Ty::Pointer { to: "float".into(), constant: true });
    assert_eq!(source.kernels[2].params[1].name.as_deref(), Some("y"));
}

#[test]
fn kernels_that_a_macro_writes_are_said_to_be_unseen() {
    let folder = folder();
    let path = folder.path().join("kernels/written.cu");
    fs::write(path, "#define ENTRY(N) \\\n extern \"C\" __global__ void k##N(float *x) {}\nENTRY(1)\n").unwrap();
    let seen = told_in(&folder, "\"kernels/written.cu\", \"k1\"", "unsafe fn f(x: Out<f32>);");
    one(&seen, &["no kernel `k1`", "no `__global__` function at all", "what the macro `ENTRY` writes is not seen"]);
}
