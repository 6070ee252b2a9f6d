//! Admit, cap or refuse: a decision over one request, one set of limits and one snapshot.

use std::{fmt, time::Duration};

use super::{
    cost::CostModel,
    refusal::{Place, Reason, Refusal},
};
use crate::{
    pressure::{Degradation, ServeLimits, Snapshot, Thresholds, is_stalled},
    units::{Bytes, Tokens},
};

/// Where a request's growing state is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Residence {
    /// On a device, in memory that the plan has set aside: attention works in tiles of fixed size, and the host's share was
    /// measured as about zero at every length.
    Device,
    /// On the host, and on the device with this number if there is one.
    Host {
        /// The device that holds part of it.
        device: Option<usize>,
    },
}

/// A request that wants to start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Its prompt.
    pub prompt: Tokens,
    /// What it may generate on top.
    pub generates: Tokens,
    /// The shortest window that is of any use to it: its whole prompt, unless it may be cut.
    pub least: Tokens,
    /// KV state of one token, in the element type that new state has now.
    pub kv_per_token: Bytes,
    /// Where its state is.
    pub residence: Residence,
}

impl Request {
    /// A device-resident request that generates up to `generates` tokens. Its prompt is not cut unless it says so.
    pub const fn on_device(prompt: Tokens, generates: Tokens) -> Self {
        Request { prompt, generates, least: prompt, kv_per_token: Bytes::ZERO, residence: Residence::Device }
    }

    /// The same, for a request whose state is on the host.
    pub const fn on_host(prompt: Tokens, generates: Tokens, kv_per_token: Bytes) -> Self {
        let residence = Residence::Host { device: None };
        Request { kv_per_token, residence, ..Self::on_device(prompt, generates) }
    }

    /// This request, if a prompt of `least` tokens is better than a refusal.
    pub const fn cut_to(self, least: Tokens) -> Self {
        Request { least, ..self }
    }

    /// The shortest window: at least one token, at most the prompt.
    fn shortest(&self) -> Tokens {
        self.least.max(Tokens::new(1)).min(self.prompt)
    }
}

/// What comes of a request. `Display` is a line for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It may start as it is.
    Admit,
    /// It may start with so much of its prompt.
    Cap(Tokens),
    /// It may not start.
    Refuse(Refusal),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Admit => f.write_str("admitted"),
            Verdict::Cap(window) => write!(f, "capped to {window}"),
            Verdict::Refuse(refusal) => write!(f, "refused: {refusal}"),
        }
    }
}

impl Verdict {
    /// The tokens of a prompt of `prompt` that may be prefilled; zero when it is refused.
    pub fn window(&self, prompt: Tokens) -> Tokens {
        match self {
            Verdict::Admit => prompt,
            Verdict::Cap(window) => *window,
            Verdict::Refuse(_) => Tokens::ZERO,
        }
    }
}

/// What admission goes by. The defaults are those of a server on a machine with K80 devices; the cost model and the
/// capacity are the engine's own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdmissionConfig {
    /// Reserves, and the stall from which on nothing is admitted.
    pub thresholds: Thresholds,
    /// Activation peaks on the host.
    pub cost: CostModel,
    /// The tokens that the KV pool holds when nothing runs.
    pub capacity: Tokens,
    /// What a forward pass takes of each device of a split model. Default: 1.5 GiB, bounded because the pass works in
    /// tiles.
    pub device_scratch: Bytes,
    /// What dequantisation and staging take of the host during an upload. Default: 2.4 GiB, as measured on a host
    /// with K80 devices.
    pub load_spike: Bytes,
    /// When to ask again after a stall. Default: 10 s, the window that stalls are averaged over.
    pub retry_stall: Duration,
    /// When to ask again for want of memory. Default: 1 s, a few of the watcher's readings. Ours.
    pub retry_memory: Duration,
}

impl AdmissionConfig {
    /// The defaults, for an engine that costs `cost` and holds `capacity` tokens of KV.
    pub fn new(cost: CostModel, capacity: Tokens) -> Self {
        AdmissionConfig {
            thresholds: Thresholds::default(),
            cost,
            capacity,
            device_scratch: Bytes::mib(1536),
            // 2.4 GiB, rounded up to a whole byte.
            load_spike: Bytes::new(2_576_980_378),
            retry_stall: Duration::from_secs(10),
            retry_memory: Duration::from_secs(1),
        }
    }
}

/// Decides what may start. Pure: it reads what it is given, and keeps nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Admission {
    pub(super) config: AdmissionConfig,
}

impl Admission {
    /// Admission by `config`.
    pub fn new(config: AdmissionConfig) -> Self {
        Admission { config }
    }

    /// What it goes by.
    pub fn config(&self) -> &AdmissionConfig {
        &self.config
    }

    /// Whether a request could ever run, were it alone and the engine as `configured`. Asked before it waits: one that
    /// cannot would block those behind it for ever.
    ///
    /// # Errors
    /// A [`Refusal`] without a time to ask again.
    pub fn could_ever_run(
        &self,
        request: &Request,
        configured: &ServeLimits,
        snapshot: &Snapshot,
    ) -> Result<(), Refusal> {
        let never = |reason| Refusal { reason, retry_after: None };
        let (capacity, least, window) = (self.config.capacity, request.shortest(), configured.prefill_window);
        let needs = least.plus(request.generates).unwrap_or(Tokens::MAX);
        if needs > capacity {
            return Err(never(Reason::NeverFits { needs, capacity }));
        }
        if least > window {
            return Err(never(Reason::Window { window, least }));
        }
        if let (Residence::Host { .. }, Some(capacity)) =
            (request.residence, snapshot.host_capacity(&self.config.thresholds))
        {
            let needs = self.cost(request, least);
            if needs > capacity {
                return Err(never(Reason::NeverFitsHost { needs, capacity }));
            }
        }
        Ok(())
    }

    /// Decides over one request, in this order: could it ever run; does the machine stall; then, on a device, is the host
    /// at its reserve and is the prompt within the window; on the host, what is the longest window whose cost fits the
    /// host's headroom and the device's free memory.
    ///
    /// What was not read does not refuse: without a watcher everything that could ever run is admitted within the window.
    pub fn decide(&self, request: &Request, limits: &Degradation, snapshot: &Snapshot) -> Verdict {
        match self.judge(request, limits, snapshot) {
            Ok(window) if window == request.prompt => Verdict::Admit,
            Ok(window) => Verdict::Cap(window),
            Err(refusal) => Verdict::Refuse(refusal),
        }
    }

    fn judge(&self, request: &Request, limits: &Degradation, snapshot: &Snapshot) -> Result<Tokens, Refusal> {
        let AdmissionConfig { thresholds, retry_stall, retry_memory, .. } = &self.config;
        let later = |reason| Refusal { reason, retry_after: Some(*retry_memory) };
        self.could_ever_run(request, &limits.configured, snapshot)?;
        if let Some(psi) = snapshot.psi.filter(|psi| is_stalled(psi.full, thresholds)) {
            let reason = Reason::Stalled { full: psi.full, most: thresholds.psi_full_critical };
            return Err(Refusal { reason, retry_after: Some(*retry_stall) });
        }
        let (least, window) = (request.shortest(), limits.limits.prefill_window);
        // A prompt that is cut leaves the pool room for what it generates.
        let most = request.prompt.min(window).min(self.config.capacity.beyond(request.generates));
        if most < least {
            return Err(later(Reason::Window { window, least }));
        }
        let headroom = snapshot.host_headroom(thresholds);
        let device = match request.residence {
            Residence::Device => {
                return match headroom {
                    Some(Bytes::ZERO) => Err(later(Reason::AtReserve)),
                    _ => Ok(most),
                };
            }
            Residence::Host { device } => device,
        };
        let free = device.and_then(|index| Some((Place::Device(index), snapshot.devices.get(index)?.free)));
        let budgets = headroom.map(|headroom| (Place::Host, headroom)).into_iter().chain(free);
        let Some((place, budget)) = budgets.min_by_key(|(_, budget)| *budget) else { return Ok(most) };
        let fits = |window: Tokens| self.cost(request, window) <= budget;
        if !fits(least) {
            return Err(later(Reason::NoRoom { place, needs: self.cost(request, least), budget }));
        }
        Ok(largest(least, most, fits))
    }

    fn cost(&self, request: &Request, window: Tokens) -> Bytes {
        self.config.cost.host_cost(window, request.kv_per_token)
    }
}

/// The largest window from `least`, which fits, to `most`, that fits; whatever fits, everything shorter fits too.
fn largest(least: Tokens, most: Tokens, fits: impl Fn(Tokens) -> bool) -> Tokens {
    if fits(most) {
        return most;
    }
    let (mut fitting, mut too_long) = (least.count(), most.count());
    while too_long - fitting > 1 {
        let middle = fitting + (too_long - fitting) / 2;
        if fits(Tokens::new(middle)) {
            fitting = middle;
        } else {
            too_long = middle;
        }
    }
    Tokens::new(fitting)
}
