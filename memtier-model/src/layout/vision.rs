//! Vision towers: the `mmproj` file beside a model.

use super::error::LayoutError;
use super::weights::{Place, Share, Weight};
use crate::gguf::Gguf;

/// A vision tower and its projector. Sizes are elements; zeros where the file does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Vision {
    /// Bytes of its tensors.
    pub bytes: u64,
    /// Pixels of an image's edge.
    pub image: u64,
    /// Pixels of a patch's edge.
    pub patch: u64,
    /// Elements of the tower's residual stream.
    pub hidden: u64,
    /// Elements between its feed-forward projections.
    pub feed_forward: u64,
    /// Its heads.
    pub heads: u64,
    /// Elements that the projector hands to the language model.
    pub projection: u64,
}

impl Vision {
    /// Patches of one image.
    pub const fn patches(&self) -> u64 {
        match self.image.checked_div(self.patch) {
            Some(edge) => edge.saturating_mul(edge),
            None => 0,
        }
    }

    /// Reads the header of an `mmproj` file (`general.architecture` is `clip`), and its tensors.
    ///
    /// # Errors
    /// [`LayoutError::NotAModel`] when the file is not one, and values of the wrong type.
    pub fn from_gguf(file: &Gguf<'_>) -> Result<(Vision, Vec<Weight>), LayoutError> {
        let metadata = file.metadata();
        let architecture = metadata.str("general.architecture")?;
        if architecture != "clip" {
            let what = format!("a file of architecture \"{architecture}\"");
            return Err(LayoutError::NotAModel {
                what,
                remedy: "--mmproj takes the projector file, whose name has \"mmproj\" in it",
            });
        }
        let number = |name: &str| -> Result<u64, LayoutError> {
            let key = format!("clip.vision.{name}");
            // A bound that keeps the products of scratch within 64 bits.
            Ok(metadata.optional::<u64>(&key)?.unwrap_or(0).min(1 << 20))
        };
        let weight = |tensor: &crate::gguf::TensorInfo| Weight {
            name: tensor.name.clone(),
            bytes: tensor.byte_len,
            place: Place::Vision,
            share: Share::Whole,
        };
        let vision = Vision {
            bytes: file.tensor_bytes(),
            image: number("image_size")?,
            patch: number("patch_size")?,
            hidden: number("embedding_length")?,
            feed_forward: number("feed_forward_length")?,
            heads: number("attention.head_count")?,
            projection: number("projection_dim")?,
        };
        Ok((vision, file.tensors().iter().map(weight).collect()))
    }
}
