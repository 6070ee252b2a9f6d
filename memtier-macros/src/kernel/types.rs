//! Which Rust type stands for which type of a CUDA source.

use std::collections::BTreeMap;

/// Elements that a pointer can be to.
pub(super) const ELEMENTS: [&str; 28] = [
    "f32", "f64", "f16", "bf16", "u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "F8E4M3", "F8E5M2", "I4x2",
    "E2M1x2", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Packed", "bool",
];
/// Types of values, with their sizes.
pub(super) const SCALARS: [(&str, usize); 13] = [
    ("u32", 4),
    ("u64", 8),
    ("i32", 4),
    ("i64", 8),
    ("f32", 4),
    ("f64", 8),
    ("u8", 1),
    ("u16", 2),
    ("i8", 1),
    ("i16", 2),
    ("f16", 2),
    ("bf16", 2),
    ("bool", 1),
];

/// What a type of the source is in Rust.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Meaning {
    /// The first one, or one of the others, whose bits it may hold.
    Is(&'static [&'static str]),
    /// Nothing that could be checked, and what to do.
    Nothing(String),
}

/// Types by their names: of C, of CUDA's headers, and of kernels that do without headers.
const TABLE: [(&[&str], &[&str]); 26] = [
    (&["float", "f32"], &["f32"]),
    (&["double", "f64"], &["f64"]),
    (&["half", "__half", "f16", "__half_raw"], &["f16"]),
    (&["bf16", "__nv_bfloat16", "nv_bfloat16", "bfloat16", "__nv_bfloat16_raw"], &["bf16"]),
    (&["__nv_fp8_e4m3", "f8e4m3", "F8E4M3"], &["F8E4M3"]),
    (&["__nv_fp8_e5m2", "f8e5m2", "F8E5M2"], &["F8E5M2"]),
    // Bytes hold everything that is made of bytes: packed formats, 8-bit floats, pairs of 4-bit numbers, blocks.
    (
        &["unsigned char", "u8", "uint8_t", "uchar", "byte"],
        &[
            "u8", "Packed", "F8E4M3", "F8E5M2", "I4x2", "E2M1x2", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K",
            "Q3_K", "Q4_K", "Q5_K", "Q6_K",
        ],
    ),
    (&["signed char", "i8", "int8_t"], &["i8"]),
    (&["char"], &["i8", "u8"]),
    // 16 bits are how sources without headers hold both kinds of half floats.
    (&["unsigned short", "u16", "uint16_t", "ushort"], &["u16", "bf16", "f16"]),
    (&["short", "i16", "int16_t"], &["i16"]),
    (&["unsigned int", "u32", "uint32_t", "uint"], &["u32"]),
    (&["int", "i32", "int32_t"], &["i32"]),
    (&["unsigned long long", "u64", "uint64_t", "size_t"], &["u64"]),
    (&["long long", "i64", "int64_t", "ptrdiff_t"], &["i64"]),
    (&["bool"], &["bool"]),
    (&["block_q4_0", "Q4_0"], &["Q4_0"]),
    (&["block_q4_1", "Q4_1"], &["Q4_1"]),
    (&["block_q5_0", "Q5_0"], &["Q5_0"]),
    (&["block_q5_1", "Q5_1"], &["Q5_1"]),
    (&["block_q8_0", "Q8_0"], &["Q8_0"]),
    (&["block_q2_K", "Q2_K"], &["Q2_K"]),
    (&["block_q3_K", "Q3_K"], &["Q3_K"]),
    (&["block_q4_K", "Q4_K"], &["Q4_K"]),
    (&["block_q5_K", "Q5_K"], &["Q5_K"]),
    (&["block_q6_K", "Q6_K"], &["Q6_K"]),
];

/// What `name` means, where the source may have said it itself.
pub(super) fn meaning(name: &str, aliases: &BTreeMap<String, Option<String>>) -> Meaning {
    let mut name = name;
    // As often as it takes, but not in circles.
    for _ in 0..16 {
        match aliases.get(name) {
            Some(Some(other)) if other != name => name = other,
            _ => break,
        }
    }
    if let Some((_, rust)) = TABLE.iter().find(|(names, _)| names.contains(&name)) {
        return Meaning::Is(rust);
    }
    let vector = name.strip_suffix(['2', '3', '4']);
    Meaning::Nothing(match name {
        "void" => {
            "`void` says nothing of what is there: name the element in the source, `unsigned char` for bytes".into()
        }
        "long" | "unsigned long" => {
            format!(
                "a `{name}` has 32 or 64 bits, as the host has it: write `{name} long` in the source, or a name with bits"
            )
        }
        _ if vector.is_some_and(|base| {
            ["float", "int", "uint", "half", "short", "ushort", "uchar", "double", "__half"].contains(&base)
        }) =>
        {
            format!(
                "a `{name}` must be aligned, and a span may begin at any element: take single elements in the source, look at \
                 the address there, and cast"
            )
        }
        _ => format!(
            "nothing is known of a type `{name}`: use one of a fixed size, or say it with a `typedef` in the same file"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_of_the_table_are_names_of_rust() {
        for (_, rust) in TABLE {
            assert!(rust.iter().all(|name| ELEMENTS.contains(name)), "{rust:?}");
        }
        assert!(SCALARS.iter().all(|(name, _)| ELEMENTS.contains(name)));
    }

    #[test]
    fn aliases_are_followed_and_circles_end() {
        let some = |name: &str| Some(name.to_owned());
        let aliases = BTreeMap::from([
            ("real".to_owned(), some("scalar")),
            ("scalar".to_owned(), some("float")),
            ("a".to_owned(), some("b")),
            ("b".to_owned(), some("a")),
            ("odd".to_owned(), None),
        ]);
        assert_eq!(meaning("real", &aliases), Meaning::Is(&["f32"]));
        for name in ["a", "odd", "Tensor", "void", "long", "float4"] {
            assert!(matches!(meaning(name, &aliases), Meaning::Nothing(_)), "{name}");
        }
    }
}
