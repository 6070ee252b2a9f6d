//! Checks before a model is loaded.

use super::{decide::Admission, refusal::LoadRefusal};
use crate::{
    pressure::{DeviceReading, Snapshot},
    units::Bytes,
};

/// What a model takes of one device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModelLoad {
    /// Its weights.
    pub weights: Bytes,
    /// Its KV state at the longest context.
    pub kv: Bytes,
    /// What a forward pass takes beside them.
    pub activations: Bytes,
}

impl Admission {
    /// Whether a whole model fits a device above the device's reserve. Asked before the upload.
    ///
    /// # Errors
    /// [`LoadRefusal`] with the numbers.
    pub fn model_load(&self, model: &ModelLoad, device: usize, snapshot: &Snapshot) -> Result<(), LoadRefusal> {
        let available = fed(device, snapshot)?.free.beyond(self.config.thresholds.device_reserve);
        fits(model, device, available, true)
    }

    /// Whether one share of a split model fits its device: weights, KV, and the scratch of a forward pass, against all that
    /// is free. A pass on a device works in tiles, so its scratch is bounded and the host's activation peaks do not count.
    ///
    /// # Errors
    /// [`LoadRefusal`] with the numbers.
    pub fn model_share(
        &self,
        weights: Bytes,
        kv: Bytes,
        device: usize,
        snapshot: &Snapshot,
    ) -> Result<(), LoadRefusal> {
        let share = ModelLoad { weights, kv, activations: self.config.device_scratch };
        fits(&share, device, fed(device, snapshot)?.free, false)
    }

    /// Whether every share of a split model, `(weights, KV)` from device 0 on, fits its device.
    ///
    /// # Errors
    /// Every share that does not.
    pub fn model_split(&self, shares: &[(Bytes, Bytes)], snapshot: &Snapshot) -> Result<(), Vec<LoadRefusal>> {
        let checked =
            shares.iter().enumerate().map(|(device, (weights, kv))| self.model_share(*weights, *kv, device, snapshot));
        let errors: Vec<_> = checked.filter_map(Result::err).collect();
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// Whether the host survives the burst of dequantisation and staging that an upload of minutes begins with.
    ///
    /// # Errors
    /// [`LoadRefusal::Spike`]. A host that was not read refuses nothing.
    pub fn load_spike(&self, snapshot: &Snapshot) -> Result<(), LoadRefusal> {
        let needs = self.config.load_spike;
        match snapshot.host_headroom(&self.config.thresholds) {
            Some(headroom) if headroom < needs => Err(LoadRefusal::Spike { needs, headroom }),
            _ => Ok(()),
        }
    }
}

fn fed(device: usize, snapshot: &Snapshot) -> Result<DeviceReading, LoadRefusal> {
    snapshot.devices.get(device).ok_or(LoadRefusal::UnknownDevice(device))
}

fn fits(model: &ModelLoad, device: usize, available: Bytes, reserved: bool) -> Result<(), LoadRefusal> {
    let ModelLoad { weights, kv, activations } = *model;
    match Bytes::sum([weights, kv, activations]) {
        Ok(total) if total <= available => Ok(()),
        _ => Err(LoadRefusal::Device { device, weights, kv, activations, available, reserved }),
    }
}
