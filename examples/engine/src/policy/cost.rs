//! What a prompt costs the host before it is known to fit.

use std::path::Path;

use memtier::{Bytes, SizeError, Tokens, admission::CostModel};

use crate::{
    EngineError,
    arch::Arch,
    config::Settings,
    model::{ScratchUnits, pass_tokens},
};

/// Lengths at which the formula is evaluated; between them the model interpolates.
const LENGTHS: [u64; 6] = [16, 64, 256, 512, 1024, 2048];

/// Reads measured anchors, one `TOKENS PEAK` a line, as `memtier-engine measure-anchors` writes them.
///
/// # Errors
/// [`EngineError::Policy`], with everything that is wrong in one line.
pub fn read_costs(path: &Path) -> Result<CostModel, EngineError> {
    let wrong = |what: String| EngineError::Policy { path: path.to_path_buf(), what };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(format!("cannot read: {error}")))?;
    CostModel::parse(&text).map_err(|errors| {
        let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
        wrong(errors.join("; "))
    })
}

/// Without measurements: what one pass takes of the scratch stack, by the plan's own formula. Attention works in tiles here,
/// so a prompt longer than a chunk costs what a chunk costs.
///
/// # Errors
/// [`SizeError::Overflow`].
pub fn computed_costs(arch: &Arch, settings: &Settings) -> Result<CostModel, SizeError> {
    let most = pass_tokens(&settings.config(arch));
    let peak = |tokens: u64| -> Result<Bytes, SizeError> {
        let tokens = usize::try_from(tokens).unwrap_or(usize::MAX).min(most);
        ScratchUnits::new(arch, tokens, 1)?.bytes(arch.ropes.len())
    };
    let longest = (settings.max_seq_len as u64).max(LENGTHS[5] + 1);
    let lengths = LENGTHS.into_iter().chain([most as u64, longest]);
    let mut anchors =
        lengths.map(|tokens| Ok((Tokens::new(tokens), peak(tokens)?))).collect::<Result<Vec<_>, SizeError>>()?;
    anchors.sort();
    anchors.dedup_by_key(|(tokens, _)| *tokens);
    CostModel::new(anchors).map_err(|_| SizeError::Overflow { field: "forward scratch" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_measured_anchors_are_read_and_a_longer_prompt_never_costs_less() {
        let anchors = Path::new(env!("CARGO_MANIFEST_DIR")).join("anchors/smollm2-135m-instruct-q4_1.txt");
        let costs = read_costs(&anchors).unwrap();
        let at = |tokens| costs.activation_peak(Tokens::new(tokens));
        assert_eq!((at(1), at(32), at(512), at(2048)), (at(32), Bytes::kib(856), Bytes::kib(9936), Bytes::kib(9936)));
        assert_eq!(at(80), Bytes::kib((856 + 2640) / 2), "on the line");
        assert_eq!(at(4096), Bytes::kib(4 * 9936), "with the square, where nothing was measured");
        let missing = read_costs(Path::new("/nowhere/at/all")).unwrap_err();
        assert!(missing.to_string().starts_with("/nowhere/at/all: cannot read"), "{missing}");
    }
}
