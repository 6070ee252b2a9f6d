//! Every kernel: its source, its name, and the arguments that its wrapper passes.

/// The kind of an argument, by its size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Param {
    /// A pointer to memory that is written.
    Out,
    /// A pointer to memory that is read.
    In,
    U32,
    U64,
    F32,
}

impl Param {
    /// Bytes of the argument.
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Param::Out | Param::In | Param::U64 => 8,
            Param::U32 | Param::F32 => 4,
        }
    }
}

/// A kernel of one of the sources.
pub(crate) struct Entry {
    /// The source, without `.cu`.
    pub(crate) file: &'static str,
    /// Its name there.
    pub(crate) name: &'static str,
    pub(crate) params: &'static [Param],
}

macro_rules! entries { ($($kernel:ident = $file:literal $name:literal ($($param:ident)*);)*) => {
    /// The kernels, by what they do.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) enum Kernel { $($kernel),* }

    /// In the order of [`Kernel`].
    pub(crate) const ENTRIES: &[Entry] = &[
        $(Entry { file: $file, name: $name, params: &[$(Param::$param),*] }),*
    ];
} }

entries! {
    ScaleF32 = "vector" "scale_f32" (Out In F32 U64);
    AddF32 = "vector" "add_f32" (Out In In U64);
    RmsNormF32 = "norm" "rms_norm_f32" (Out In In U32 F32);
    RmsNormBf16 = "norm" "rms_norm_bf16" (Out In In U32 F32);
    ResidualRmsNormF32 = "norm" "residual_rms_norm_f32" (Out Out In In U32 F32);
    ResidualRmsNormBf16 = "norm" "residual_rms_norm_bf16" (Out Out In In U32 F32);
    SiluGateBf16 = "gate" "silu_gate_bf16" (Out In U32 U64);
    GeluGateBf16 = "gate" "gelu_gate_bf16" (Out In U32 U64);
    RopeAngles = "rope" "rope_angles" (Out In In U32 U64);
    RopeKvWriteBf16 = "rope" "rope_kv_write_bf16"
        (Out Out In In In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 U32 U32 F32 U64);
    DecodeD64 = "decode" "paged_decode_bf16_d64"
        (Out Out Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32);
    DecodeD128 = "decode" "paged_decode_bf16_d128"
        (Out Out Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32);
    DecodeD256 = "decode" "paged_decode_bf16_d256"
        (Out Out Out In In In In In U64 U64 U64 U32 U32 U32 U32 U32 U32 F32 F32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::sources::{SOURCES, header};

    /// The arguments of `name` as the source declares them, for kernels and for the macro of the decode kernels.
    fn declared(source: &str, name: &str) -> Option<Vec<Param>> {
        let name = match name.strip_prefix("paged_decode_bf16_d") {
            Some(_) => "paged_decode_bf16_d##DIM",
            None => name,
        };
        let after = source.split_once(&format!(" {name}("))?.1;
        let list = after.split_once(") {")?.0.replace('\\', " ");
        let param = |text: &str| {
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            match (text.contains('*'), text.starts_with("const ")) {
                (true, true) => Param::In,
                (true, false) => Param::Out,
                _ if text.starts_with("u32 ") => Param::U32,
                _ if text.starts_with("u64 ") => Param::U64,
                _ if text.starts_with("float ") => Param::F32,
                _ => panic!("{name}: `{text}` is no argument that a wrapper can pass"),
            }
        };
        Some(list.split(',').map(param).collect())
    }

    #[test]
    fn every_wrapper_passes_what_its_source_declares() {
        for entry in ENTRIES {
            let source = SOURCES.iter().find(|(file, _)| *file == entry.file).expect("a source of that name").1;
            let declared = declared(source, entry.name).unwrap_or_else(|| panic!("{} is not declared", entry.name));
            assert_eq!(declared, entry.params, "{}", entry.name);
            assert!(entry.params.len() <= crate::launch::MOST_ARGS);
        }
    }

    #[test]
    fn every_kernel_of_the_sources_has_an_entry() {
        for (file, source) in SOURCES {
            let kernels = source.matches("extern \"C\" __global__").count();
            let macros = source.lines().filter(|line| line.starts_with("ENTRY(")).count();
            let known = ENTRIES.iter().filter(|entry| entry.file == *file).count();
            // The macro's own definition counts as one kernel.
            assert_eq!(known, if macros > 0 { kernels - 1 + macros } else { kernels }, "{file}.cu");
            assert!(source.contains("#include \"common.cuh\"") && header("common.cuh").is_some());
        }
    }
}
