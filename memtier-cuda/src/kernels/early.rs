//! Which kernels may start before the one in front of them is done (programmatic launch).
//!
//! Of one request's pass most kernels are shorter than what a launch takes. A kernel here is launched with leave to start early: its
//! blocks get ready, and weights are on their way, while the one in front still runs; then it waits. Of kernels for many rows only products are
//! here: at 64 requests the others cost more than they save. Nor is a product of matrices that a kernel may have written
//! ([`Matrix::at_rest`](super::Matrix::at_rest), [`TiledMatrix::at_rest`](super::TiledMatrix::at_rest)): its weights are read before it waits.

/// Whether the kernel of this name waits for earlier ones itself.
pub(crate) fn starts_early(name: &str) -> bool {
    const STARTS: [&str; 14] = [
        "project_",
        "gemm_bf16_",
        "rope_",
        "paged_decode_",
        "rms_norm_",
        "residual_rms_norm_",
        "add_rms_norm",
        "begin_pass",
        "quant_",
        "unpack_q",
        "embed_q",
        "gather_f32",
        "sample_f32",
        "philox4x32_10",
    ];
    // Of `quant.cu`, those for up to 8 rows.
    STARTS.iter().any(|start| name.starts_with(start)) && !(name.starts_with("quant_q") && name.contains("_n2_"))
}

/// The arguments by which a read or a copy of global memory finds its place: their indices.
#[cfg(test)]
pub(crate) type From = std::collections::BTreeSet<usize>;

/// What the kernels of a PTX text read of global memory before they wait: each kernel that waits, by name, and each of its reads with the
/// arguments that its address is made of. The assembler may move reads, which its own code shows; whose memory they are of, only this does.
#[cfg(test)]
pub(crate) fn reads_before_the_wait(ptx: &str) -> Vec<(String, Vec<(String, From)>)> {
    let kernels = ptx.split(".visible .entry ").skip(1);
    let kernels = kernels.filter(|text| text.contains("griddepcontrol.wait"));
    kernels.map(|text| (text.split('(').next().unwrap_or_default().trim().to_owned(), early_reads(text))).collect()
}

/// The names of registers and arguments in a part of an instruction.
#[cfg(test)]
fn names(text: &str) -> impl Iterator<Item = &str> {
    let word = |c: char| !(c.is_alphanumeric() || "%_$.".contains(c));
    text.split(word).filter(|word| word.starts_with('%') || word.contains("_param_"))
}

#[cfg(test)]
fn early_reads(kernel: &str) -> Vec<(String, From)> {
    use std::collections::BTreeMap;

    let (_, body) = kernel.split_once("\n{").unwrap_or_default();
    let lines: Vec<&str> = body.lines().map(str::trim).collect();
    // Where control goes from a line, and what each register is made of, wherever that is.
    let labels: BTreeMap<&str, usize> =
        lines.iter().enumerate().filter_map(|(at, line)| Some((line.strip_suffix(':')?, at))).collect();
    let mut made_of: BTreeMap<&str, From> = BTreeMap::new();
    loop {
        let before: usize = made_of.values().map(From::len).sum();
        for line in lines.iter().filter(|line| line.ends_with(';') && !line.starts_with('.')) {
            let operands = line.split_once(char::is_whitespace).map_or("", |(_, operands)| operands);
            // What is written comes first: one register, or several in braces.
            let end = if operands.trim_start().starts_with('{') { operands.find('}') } else { operands.find(',') };
            let (to, from) = operands.split_at(end.unwrap_or(0));
            if to.trim_start().starts_with('[') {
                // Memory is written, no register.
                continue;
            }
            let mut all = From::new();
            for name in names(from) {
                match name.rsplit_once("_param_").and_then(|(_, index)| index.parse().ok()) {
                    Some(index) => drop(all.insert(index)),
                    None => all.extend(made_of.get(name).into_iter().flatten()),
                }
            }
            for name in names(to) {
                made_of.entry(name).or_default().extend(&all);
            }
        }
        if made_of.values().map(From::len).sum::<usize>() == before {
            break;
        }
    }
    let (mut reads, mut seen, mut next) = (Vec::new(), From::new(), vec![0]);
    while let Some(at) = next.pop() {
        let Some(line) = lines.get(at).filter(|_| seen.insert(at)) else { continue };
        let code = match line.strip_prefix('@') {
            Some(rest) => rest.split_once(char::is_whitespace).map_or("", |(_, code)| code.trim_start()),
            None => line,
        };
        if code.starts_with("griddepcontrol.wait") || code.starts_with("ret") {
            continue;
        }
        if ["ld.global", "cp.async.ca", "cp.async.cg"].iter().any(|read| code.starts_with(read)) {
            let address = code.rsplit('[').next().unwrap_or_default();
            let address = address.split(']').next().unwrap_or_default();
            let from = names(address).filter_map(|name| made_of.get(name)).flatten().copied().collect();
            reads.push((code.to_owned(), from));
        }
        if code.starts_with("bra") {
            let label = code.split_whitespace().last().unwrap_or_default().trim_end_matches(';');
            next.extend(labels.get(label));
        }
        if !code.starts_with("bra") || line.starts_with('@') {
            next.push(at + 1);
        }
    }
    reads
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::{
        entries::ENTRIES,
        sources::{HEADERS, SOURCES},
    };

    #[test]
    fn reads_are_followed_to_the_arguments_that_they_come_from() {
        let ptx = "
.visible .entry early(
\t.param .u64 .ptr .align 1 early_param_0,
\t.param .u64 .ptr .align 1 early_param_1,
\t.param .u32 early_param_2
)
{
\t.reg .b64 %rd<9>;
\tld.param.u64 \t%rd1, [early_param_0];
\tld.param.u64 \t%rd2, [early_param_1];
\tld.param.u32 \t%r1, [early_param_2];
\tmul.wide.u32 \t%rd3, %r1, 16;
\tadd.s64 \t%rd4, %rd1, %rd3;
\tsetp.eq.u32 \t%p1, %r1, 3;
\t@%p1 bra \t$L__1;
\tld.global.v2.u32 \t{%r2, %r3}, [%rd4+16];
\tgriddepcontrol.wait;
\tld.global.u32 \t%r4, [%rd2];
\tbra.uni \t$L__2;
$L__1:
\tcp.async.cg.shared.global [%r1 + 16], [%rd2 + 32], 16, %r3;
\tgriddepcontrol.wait;
$L__2:
\tld.global.u32 \t%r5, [%rd1];
\tret;
}
";
        let found = reads_before_the_wait(ptx);
        let reads: Vec<_> =
            found[0].1.iter().map(|(code, from)| (&code[..4], from.iter().copied().collect())).collect();
        assert_eq!(found[0].0, "early");
        assert_eq!(reads, [("ld.g", vec![0, 2]), ("cp.a", vec![1])]);
    }

    #[test]
    fn kernels_that_start_early_wait_and_no_others_need_to() {
        let early: Vec<_> = ENTRIES.iter().filter(|entry| starts_early(entry.name)).collect();
        assert!(early.len() > 10);
        for entry in early {
            let source = SOURCES.iter().find(|(file, _)| *file == entry.file).expect("a source of that name").1;
            // Itself, or in what it shares with others of its kind; `common.cuh` only says how.
            let included = HEADERS.iter().filter(|(name, _)| *name != "common.cuh" && source.contains(name));
            let mut waits = std::iter::once(source).chain(included.map(|(_, text)| *text));
            let found = waits.any(|text| text.contains("wait_for_earlier();"));
            assert!(found, "{}.cu: {} never waits", entry.file, entry.name);
        }
    }
}
