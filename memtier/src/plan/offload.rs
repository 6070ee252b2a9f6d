//! Which layers run on the device: one plan, read by the loader, the graph's builder and the assignment alike.
//!
//! A plan is a prefix: layers `0..gpu_layers` are on the device and the rest on the CPU, so that the residual stream
//! crosses the bus once. What belongs to no layer (embedding, final norm, output) follows the device only when every
//! layer does.
//!
//! ```
//! use memtier::plan::offload::{DeviceMemory, OffloadPlan};
//! use memtier::{Bytes, Layers};
//!
//! let layers = [Bytes::mib(100); 32];
//! let memory = DeviceMemory::Reported(Bytes::mib(4096));
//! // Three quarters of 4096 MiB, a quarter of that held back for KV and activations: 2304 MiB of weights.
//! let plan = OffloadPlan::auto(&layers, Bytes::mib(500), &memory, None)?;
//! assert_eq!(plan.gpu_layers(), Layers::new(23));
//! assert!(plan.holds("blk.22.attn_q.weight") && !plan.holds("blk.23.attn_q.weight") && !plan.holds("output.weight"));
//! # Ok::<(), memtier::plan::offload::QueryFailed>(())
//! ```

use crate::units::{Bytes, Layers};

/// Where each layer runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct OffloadPlan {
    gpu_layers: u64,
    layers: u64,
}

/// What a device said of its memory.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub enum DeviceMemory {
    /// So much.
    Reported(Bytes),
    /// It did not answer, with the driver's own words. That is not a device of zero bytes.
    QueryFailed(String),
    /// There is none.
    NoDevice,
}

/// `auto` cannot choose without knowing the device's memory.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the device did not say how much memory it has ({0}); give a number of layers, or a budget")]
pub struct QueryFailed(pub String);

impl OffloadPlan {
    /// The first `gpu_layers` of `layers` on the device; more than there are is all of them.
    pub const fn new(gpu_layers: Layers, layers: Layers) -> Self {
        let (gpu, all) = (gpu_layers.count(), layers.count());
        Self { gpu_layers: if gpu < all { gpu } else { all }, layers: all }
    }

    /// The largest prefix whose weights fit.
    ///
    /// The budget is `budget` when the operator set one, else three quarters of what the device reports; a quarter of it
    /// is held back for KV and activations. With all layers `outside`, the weights that belong to none, must fit too.
    /// Without a device nothing is offloaded, unless a budget says that there is one.
    ///
    /// # Errors
    /// [`QueryFailed`] when the device did not answer and no budget was set.
    pub fn auto(
        layers: &[Bytes],
        outside: Bytes,
        memory: &DeviceMemory,
        budget: Option<Bytes>,
    ) -> Result<Self, QueryFailed> {
        let budget = match (budget, memory) {
            (Some(budget), _) => budget,
            (None, DeviceMemory::Reported(bytes)) => three_quarters(*bytes),
            (None, DeviceMemory::NoDevice) => Bytes::ZERO,
            (None, DeviceMemory::QueryFailed(error)) => return Err(QueryFailed(error.clone())),
        };
        let weights = u128::from(three_quarters(budget).count());
        let (mut sum, mut fit) = (0_u128, 0_u64);
        for layer in layers {
            sum += u128::from(layer.count());
            if sum > weights {
                break;
            }
            fit += 1;
        }
        let all = layers.len() as u64;
        if fit == all && sum + u128::from(outside.count()) > weights {
            fit = all.saturating_sub(1);
        }
        Ok(Self { gpu_layers: fit, layers: all })
    }

    /// The longest prefix that `fits`, of `layers` layers. None of them always does.
    ///
    /// For an engine that can price each prefix exactly, with its KV and its scratch, where [`auto`](Self::auto) goes by
    /// weights and a rule.
    ///
    /// ```
    /// use memtier::plan::offload::OffloadPlan;
    /// use memtier::Layers;
    ///
    /// // 100 MiB a layer and 250 MiB for what belongs to none, which follows only when every layer is there.
    /// let fits = |plan: OffloadPlan| 100 * plan.gpu_layers().count() + if plan.holds_outside() { 250 } else { 0 } <= 900;
    /// assert_eq!(OffloadPlan::longest(Layers::new(6), fits).gpu_layers(), Layers::new(6));
    /// assert_eq!(OffloadPlan::longest(Layers::new(8), fits).gpu_layers(), Layers::new(7));
    /// ```
    pub fn longest(layers: Layers, mut fits: impl FnMut(Self) -> bool) -> Self {
        let all = layers.count();
        let prefixes = (1..=all).rev().map(|count| Self { gpu_layers: count, layers: all });
        prefixes.into_iter().find(|plan| fits(*plan)).unwrap_or(Self { gpu_layers: 0, layers: all })
    }

    /// Layers on the device.
    pub const fn gpu_layers(&self) -> Layers {
        Layers::new(self.gpu_layers)
    }

    /// All layers.
    pub const fn layers(&self) -> Layers {
        Layers::new(self.layers)
    }

    /// Whether a layer (from 0) is on the device.
    pub const fn holds_layer(&self, layer: u64) -> bool {
        layer < self.gpu_layers
    }

    /// Whether what belongs to no layer is on the device.
    pub const fn holds_outside(&self) -> bool {
        self.gpu_layers == self.layers
    }

    /// Whether a tensor is on the device, by its name in a file.
    pub fn holds(&self, tensor: &str) -> bool {
        layer_of(tensor).map_or(self.holds_outside(), |layer| self.holds_layer(layer))
    }
}

/// Without overflow, rounded down: three quarters of a small budget must not be zero.
const fn three_quarters(bytes: Bytes) -> Bytes {
    let count = bytes.count();
    Bytes::new(count - count.div_ceil(4))
}

/// The layer of a tensor's name, whatever stands before `blk.`: `draft.blk.3.attn_q.weight` is of layer 3.
fn layer_of(name: &str) -> Option<u64> {
    let at = if name.starts_with("blk.") { 4 } else { name.find(".blk.")? + 5 };
    let rest = name.get(at..)?;
    rest.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mib(counts: &[u64]) -> Vec<Bytes> {
        counts.iter().map(|&count| Bytes::mib(count)).collect()
    }

    #[test]
    fn a_prefix_is_taken_not_a_knapsack() {
        // The third layer is too large for what is left; the fourth would fit, and would leave a gap.
        let layers = mib(&[100, 100, 900, 50]);
        let plan = OffloadPlan::auto(&layers, Bytes::ZERO, &DeviceMemory::NoDevice, Some(Bytes::mib(400))).unwrap();
        assert_eq!(plan.gpu_layers(), Layers::new(2));
    }

    #[test]
    fn an_explicit_budget_is_not_cut_by_a_quarter_twice() {
        let layers = mib(&[100; 8]);
        let auto =
            |memory, budget| OffloadPlan::auto(&layers, Bytes::ZERO, &memory, budget).unwrap().gpu_layers().count();
        // 800 MiB: three quarters hold 6 layers. As a reported size it is three quarters of three quarters: 4.
        assert_eq!(auto(DeviceMemory::NoDevice, Some(Bytes::mib(800))), 6);
        assert_eq!(auto(DeviceMemory::Reported(Bytes::mib(800)), None), 4);
        assert_eq!(auto(DeviceMemory::NoDevice, None), 0);
    }

    #[test]
    fn a_failed_query_is_not_a_budget_of_zero() {
        let failed = DeviceMemory::QueryFailed("CUDA_ERROR_UNKNOWN".into());
        let error = OffloadPlan::auto(&mib(&[1]), Bytes::ZERO, &failed, None).expect_err("refused");
        assert!(error.to_string().contains("CUDA_ERROR_UNKNOWN"));
        assert!(OffloadPlan::auto(&mib(&[1]), Bytes::ZERO, &failed, Some(Bytes::mib(4))).is_ok());
    }

    #[test]
    fn what_is_outside_follows_only_all_layers() {
        let layers = mib(&[100; 4]);
        let with = |outside| {
            OffloadPlan::auto(&layers, Bytes::mib(outside), &DeviceMemory::NoDevice, Some(Bytes::mib(800))).unwrap()
        };
        assert!(with(200).holds_outside() && with(200).holds("token_embd.weight"));
        assert_eq!(with(201).gpu_layers(), Layers::new(3));
        assert!(!with(201).holds("token_embd.weight"));
        assert!(OffloadPlan::new(Layers::new(99), Layers::new(4)).holds_outside());
    }

    #[test]
    fn names_with_a_prefix_are_of_their_layer() {
        let plan = OffloadPlan::new(Layers::new(3), Layers::new(8));
        assert!(plan.holds("blk.2.attn_qkv") && plan.holds("draft.blk.2.ffn_gu"));
        assert!(!plan.holds("blk.3.attn_qkv") && !plan.holds("output_norm.weight") && !plan.holds("blk.x.y"));
    }
}
