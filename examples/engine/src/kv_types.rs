//! Which element type each layer's keys and values have.

use std::{ops::RangeInclusive, str::FromStr};

use engine_kernels::KvFormat;
use memtier::plan::KvDtype;

use crate::EngineError;

/// The element types of a model's keys and values: one, with exceptions by layer.
///
/// ```
/// use memtier::plan::KvDtype;
/// use memtier_engine::kv_types::KvTypes;
///
/// let types = KvTypes { rest: KvDtype::Q4_0, layers: "0-1=f16,29=q8_0".parse::<KvTypes>()?.layers };
/// assert_eq!([0, 1, 2, 29].map(|layer| types.of(layer)), [KvDtype::F16, KvDtype::F16, KvDtype::Q4_0, KvDtype::Q8_0]);
/// assert_eq!(types.to_string(), "q4_0, layers 0-1 f16, layers 29-29 q8_0");
/// # Ok::<(), memtier_engine::kv_types::WrongKvTypes>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KvTypes {
    /// Of every layer that is not listed.
    pub rest: KvDtype,
    /// Of these layers, counted from 0; the first that matches holds.
    pub layers: Vec<(RangeInclusive<usize>, KvDtype)>,
}

impl Default for KvTypes {
    fn default() -> Self {
        KvTypes::all(KvDtype::F16)
    }
}

/// A text that names no element types.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` names no KV element types: write 0-3=f16,29=q8_0,rest=q4_0 with f16, bf16, fp8, q8_0, nvfp4 or q4_0")]
pub struct WrongKvTypes(String);

/// Reads an element type that this engine has kernels for. `fp8` is the one with a scale for each head's row.
///
/// # Errors
/// [`WrongKvTypes`] with the text.
pub fn read_kv_type(text: &str) -> Result<KvDtype, WrongKvTypes> {
    let dtype = match text {
        "fp8" => Ok(KvDtype::Fp8Head),
        text => text.parse(),
    };
    dtype.ok().filter(|dtype| format_of(*dtype, false).is_some()).ok_or_else(|| WrongKvTypes(text.to_owned()))
}

impl FromStr for KvTypes {
    type Err = WrongKvTypes;

    /// `0-3=f16,29=q8_0,rest=q4_0`; without `rest` it is f16.
    fn from_str(text: &str) -> Result<Self, WrongKvTypes> {
        let wrong = || WrongKvTypes(text.to_owned());
        let mut types = KvTypes::default();
        for part in text.split(',') {
            let (layers, dtype) = part.split_once('=').ok_or_else(wrong)?;
            let dtype = read_kv_type(dtype.trim()).map_err(|_| wrong())?;
            if layers.trim() == "rest" {
                types.rest = dtype;
                continue;
            }
            let (first, last) = layers.split_once('-').unwrap_or((layers, layers));
            let number = |text: &str| text.trim().parse::<usize>().map_err(|_| wrong());
            let range = number(first)?..=number(last)?;
            if range.is_empty() {
                return Err(wrong());
            }
            types.layers.push((range, dtype));
        }
        Ok(types)
    }
}

impl std::fmt::Display for KvTypes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.rest)?;
        for (range, dtype) in &self.layers {
            write!(f, ", layers {}-{} {dtype}", range.start(), range.end())?;
        }
        Ok(())
    }
}

impl KvTypes {
    /// One type for all layers.
    pub const fn all(dtype: KvDtype) -> Self {
        KvTypes { rest: dtype, layers: Vec::new() }
    }

    /// The type of layer `layer`.
    pub fn of(&self, layer: usize) -> KvDtype {
        let listed = self.layers.iter().find(|(range, _)| range.contains(&layer));
        listed.map_or(self.rest, |(_, dtype)| *dtype)
    }

    /// Whether every layer is f16.
    pub fn is_f16(&self) -> bool {
        self.rest == KvDtype::F16 && self.layers.iter().all(|(_, dtype)| *dtype == KvDtype::F16)
    }

    /// Whether `dtype` is among them.
    pub(crate) fn any(&self, dtype: KvDtype) -> bool {
        self.rest == dtype || self.layers.iter().any(|(_, listed)| *listed == dtype)
    }

    /// Refuses types that there are no kernels for.
    ///
    /// # Errors
    /// [`EngineError::Setting`].
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        let all = self.layers.iter().map(|(_, dtype)| *dtype).chain([self.rest]);
        match all.into_iter().find(|dtype| format_of(*dtype, false).is_none()) {
            None => Ok(()),
            Some(dtype) => Err(EngineError::Setting {
                name: "kv-type",
                value: dtype.to_string(),
                remedy: "use f16, bf16, fp8, q8_0, nvfp4 or q4_0".to_owned(),
            }),
        }
    }
}

/// The kernels' name of an element type, with rows rotated first where that is worth it and `rotates` wants it; `None` where there are
/// none.
pub(crate) fn format_of(dtype: KvDtype, rotates: bool) -> Option<KvFormat> {
    match dtype {
        KvDtype::F16 => Some(KvFormat::F16),
        KvDtype::Bf16 => Some(KvFormat::Bf16),
        KvDtype::Fp8Head => Some(KvFormat::Fp8),
        KvDtype::Q8_0 => Some(KvFormat::Q8_0),
        KvDtype::Nvfp4 => Some(KvFormat::Nvfp4),
        KvDtype::Q4_0 if rotates => Some(KvFormat::Q4_0Rotated),
        KvDtype::Q4_0 => Some(KvFormat::Q4_0),
        _ => None,
    }
}

/// The planner's name of a format.
pub(crate) fn dtype_of(format: KvFormat) -> KvDtype {
    match format {
        KvFormat::F16 => KvDtype::F16,
        KvFormat::Bf16 => KvDtype::Bf16,
        KvFormat::Fp8 => KvDtype::Fp8Head,
        KvFormat::Q8_0 => KvDtype::Q8_0,
        KvFormat::Nvfp4 => KvDtype::Nvfp4,
        KvFormat::Q4_0 | KvFormat::Q4_0Rotated => KvDtype::Q4_0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_no_types_is_refused() {
        for text in
            ["", "f16", "0=", "=f16", "x=f16", "0-x=f16", "3-1=f16", "0=f32", "0=q5_1", "0=f16,,1=f16", "0=f16 1=f16"]
        {
            assert_eq!(text.parse::<KvTypes>(), Err(WrongKvTypes(text.to_owned())), "{text}");
        }
        let types: KvTypes = "0 - 3 = f16, rest=fp8".parse().unwrap();
        assert_eq!((types.of(3), types.of(4), types.is_f16()), (KvDtype::F16, KvDtype::Fp8Head, false));
        assert!(KvTypes::all(KvDtype::Q5_1).check().is_err() && types.check().is_ok());
    }

    #[test]
    fn kernels_and_planner_agree_on_the_bytes() {
        use engine_kernels::KvShape;
        use memtier::{Bytes, Tokens, plan::kv::KvLayer, plan::kv_layout::BlockLayout};
        for format in KvFormat::ALL {
            for (kv_heads, head_dim, block_tokens) in [(3, 64, 16), (1, 256, 32), (8, 96, 16)] {
                let units = KvShape { kv_heads, head_dim, block_tokens, format }.block_units().unwrap() as u64;
                let layer = KvLayer::heads(kv_heads as u64, head_dim as u64, dtype_of(format));
                let layout = BlockLayout::new(&[layer], Tokens::new(block_tokens as u64)).unwrap();
                assert_eq!(layout.block_bytes(), Bytes::new(2 * units), "{format:?}");
                let rotates = format == KvFormat::Q4_0Rotated;
                assert_eq!(format_of(dtype_of(format), rotates), Some(format));
            }
        }
    }
}
