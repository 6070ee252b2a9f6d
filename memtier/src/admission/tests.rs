//! Every row of the order of decisions, the laws, and the queue.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{
    Bytes, Tokens,
    plan::KvDtype,
    pressure::{
        CgroupReading, Degradation, DeviceReading, Devices, HostReading, Ladder, Level, Percent, Psi, ServeLimits,
        Snapshot, Thresholds, derive_level,
    },
};

const CONFIG: ServeLimits =
    ServeLimits { slots: 4, prefill_window: Tokens::new(16_384), kv: KvDtype::F16, evict_cached: false };

/// 1 MiB a thousand tokens up to 8000, then with the square.
fn cost() -> CostModel {
    CostModel::new([(Tokens::new(1000), Bytes::mib(1)), (Tokens::new(8000), Bytes::mib(8))]).unwrap()
}

fn admission() -> Admission {
    Admission::new(AdmissionConfig::new(cost(), Tokens::new(20_000)))
}

/// A host of 40 GiB, of which 6 are reserve, with so much above it.
fn host(slack: Bytes) -> Option<HostReading> {
    Some(HostReading { total: Bytes::gib(40), available: Bytes::gib(6).plus(slack).unwrap() })
}

fn stalled(full: u32) -> Option<Psi> {
    Some(Psi { some: Percent::hundredths(full), full: Percent::hundredths(full) })
}

fn at(level: Level) -> Degradation {
    Ladder::default().limits(level, &CONFIG)
}

fn device(free: Bytes) -> Devices {
    let mut devices = Devices::default();
    devices.feed(3, DeviceReading { free, budget: Bytes::gib(16), used: Bytes::ZERO }).unwrap();
    devices
}

#[test]
fn every_row_of_the_order_of_decisions() {
    let tokens = Tokens::new;
    let on_device = |prompt| Request::on_device(tokens(prompt), tokens(0)).cut_to(tokens(1));
    let on_host = |prompt| Request::on_host(tokens(prompt), tokens(0), Bytes::ZERO).cut_to(tokens(1));
    let on_both = |prompt| Request { residence: Residence::Host { device: Some(3) }, ..on_host(prompt) };
    let ample = Snapshot { host: host(Bytes::gib(20)), ..Snapshot::default() };
    let reserve = Snapshot { host: host(Bytes::ZERO), ..ample };
    let four = Snapshot { host: host(Bytes::mib(4)), ..ample };
    let refused =
        |reason, retry: Option<u64>| Verdict::Refuse(Refusal { reason, retry_after: retry.map(Duration::from_secs) });
    let stall = |full| Reason::Stalled { full: Percent::hundredths(full), most: Percent::whole(15) };
    let no_room = |place, budget| Reason::NoRoom { place, needs: Bytes::mib(1), budget };
    let never = |needs| Reason::NeverFits { needs: tokens(needs), capacity: tokens(20_000) };
    let table = [
        // Never: before all else, also on a machine that stalls.
        (
            on_device(20_001).cut_to(tokens(20_001)),
            Level::Ok,
            Snapshot { psi: stalled(9000), ..reserve },
            refused(never(20_001), None),
        ),
        (Request { generates: tokens(20_000), ..on_device(9) }, Level::Ok, ample, refused(never(20_001), None)),
        // 1. A stall refuses whoever comes, from 15 % of all tasks on; below, the byte arithmetic decides.
        (on_device(100), Level::Critical, Snapshot { psi: stalled(1500), ..ample }, refused(stall(1500), Some(10))),
        (on_host(100), Level::Critical, Snapshot { psi: stalled(9000), ..ample }, refused(stall(9000), Some(10))),
        (on_device(100), Level::Tight, Snapshot { psi: stalled(1499), ..ample }, Verdict::Admit),
        // 2. On a device: the reserve, the window, the whole context.
        (on_device(100), Level::Critical, reserve, refused(Reason::AtReserve, Some(1))),
        (on_device(16_384), Level::Ok, four, Verdict::Admit),
        (on_device(16_385), Level::Ok, ample, Verdict::Cap(tokens(16_384))),
        (on_device(16_384), Level::Tight, ample, Verdict::Cap(tokens(8192))),
        (on_device(16_384), Level::Critical, ample, Verdict::Cap(tokens(4096))),
        (on_device(4096), Level::Critical, ample, Verdict::Admit),
        (
            on_device(9000).cut_to(tokens(9000)),
            Level::Tight,
            ample,
            refused(Reason::Window { window: tokens(8192), least: tokens(9000) }, Some(1)),
        ),
        (
            on_device(17_000).cut_to(tokens(17_000)),
            Level::Ok,
            ample,
            refused(Reason::Window { window: tokens(16_384), least: tokens(17_000) }, None),
        ),
        // A prompt that is cut leaves the pool room for what it generates.
        (Request { generates: tokens(5000), ..on_device(19_000) }, Level::Ok, ample, Verdict::Cap(tokens(15_000))),
        // 3. On the host: the longest window whose cost fits host and device.
        (on_host(4000), Level::Ok, four, Verdict::Admit),
        (on_host(4001), Level::Ok, four, Verdict::Cap(tokens(4000))),
        (on_host(16_000), Level::Tight, ample, Verdict::Cap(tokens(8192))),
        (on_host(4000), Level::Ok, reserve, refused(no_room(Place::Host, Bytes::ZERO), Some(1))),
        (on_both(4000), Level::Ok, Snapshot { devices: device(Bytes::mib(2)), ..four }, Verdict::Cap(tokens(2000))),
        (
            on_both(4000),
            Level::Ok,
            Snapshot { devices: device(Bytes::ZERO), ..four },
            refused(no_room(Place::Device(3), Bytes::ZERO), Some(1)),
        ),
        (on_both(4000), Level::Ok, four, Verdict::Admit),
        // Nothing was read: nothing is refused but what could never run.
        (on_host(16_000), Level::Ok, Snapshot::default(), Verdict::Admit),
        (on_device(0), Level::Ok, ample, Verdict::Admit),
    ];
    for (row, (request, level, snapshot, verdict)) in table.into_iter().enumerate() {
        assert_eq!(admission().decide(&request, &at(level), &snapshot), verdict, "row {row}");
    }
}

#[test]
fn a_verdict_is_a_line_for_the_log() {
    let stall = Reason::Stalled { full: Percent::hundredths(1723), most: Percent::whole(15) };
    let refusal = Refusal { reason: stall, retry_after: Some(Duration::from_secs(10)) };
    assert_eq!(Verdict::Cap(Tokens::new(4096)).to_string(), "capped to 4096 tokens");
    assert_eq!(
        Verdict::Refuse(refusal).to_string(),
        "refused: a sustained memory stall: 17.23 % of the last ten seconds all tasks stood still, and 15.00 % is the \
         limit; try again in 10 s"
    );
}

#[test]
fn kv_is_charged_beside_the_activations() {
    // 1000 tokens: 1 MiB of activations, and 5,898,000 bytes in Q4 or 40,960,000 in FP32.
    for (kv, needs) in [(KV_BYTES_PER_TOKEN_Q4, 5_898_000), (KV_BYTES_PER_TOKEN_FP32, 40_960_000)] {
        let request = Request::on_host(Tokens::new(1000), Tokens::ZERO, kv);
        let with = |slack| {
            let snapshot = Snapshot { host: host(Bytes::new(slack)), ..Snapshot::default() };
            admission().decide(&request, &at(Level::Ok), &snapshot)
        };
        assert_eq!(with((1 << 20) + needs), Verdict::Admit);
        assert!(matches!(with((1 << 20) + needs - 1), Verdict::Refuse(_)));
    }
}

#[test]
fn a_request_that_the_machine_can_never_hold_is_told_so() {
    let request = Request::on_host(Tokens::new(1000), Tokens::ZERO, Bytes::gib(1));
    let group = CgroupReading { max: Some(Bytes::gib(100)), ..CgroupReading::default() };
    let snapshot = Snapshot { host: host(Bytes::gib(1)), cgroup: Some(group), ..Snapshot::default() };
    let Verdict::Refuse(refusal) = admission().decide(&request, &at(Level::Ok), &snapshot) else { panic!("admitted") };
    assert_eq!(refusal.retry_after, None);
    let said = refusal.to_string();
    assert!(said.contains("needs 1024001.00 MiB on the host, which has 34816.00 MiB above its reserve"), "{said}");
}

#[test]
fn models_are_checked_by_device_by_share_and_by_the_burst_of_loading() {
    let admission = admission();
    let free = |bytes| Snapshot { devices: device(bytes), ..Snapshot::default() };
    // 8 + 2 + 1 GiB above a reserve of 1.
    let model = ModelLoad { weights: Bytes::gib(8), kv: Bytes::gib(2), activations: Bytes::gib(1) };
    assert_eq!(admission.model_load(&model, 3, &free(Bytes::gib(12))), Ok(()));
    let refused = admission.model_load(&model, 3, &free(Bytes::new((12 << 30) - 1))).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "device 3: weights 8192.00 MiB + KV 2048.00 MiB + activations 1024.00 MiB exceed the 11263.99 MiB that are free \
         above the reserve"
    );
    assert_eq!(admission.model_load(&model, 4, &free(Bytes::gib(99))), Err(LoadRefusal::UnknownDevice(4)));
    let absurd = ModelLoad { weights: Bytes::MAX, ..model };
    assert!(admission.model_load(&absurd, 3, &free(Bytes::MAX)).is_err());

    // A share: 8 + 2 GiB and 1.5 of scratch against all that is free.
    let share = |free_bytes| admission.model_share(Bytes::gib(8), Bytes::gib(2), 3, &free(free_bytes));
    assert_eq!(share(Bytes::mib(11_776)), Ok(()));
    assert!(share(Bytes::new((11_776 << 20) - 1)).unwrap_err().to_string().ends_with("11775.99 MiB that are free"));
    let shares = [(Bytes::gib(1), Bytes::ZERO); 4];
    let errors = admission.model_split(&shares, &free(Bytes::gib(2))).unwrap_err();
    assert_eq!(errors.len(), 4, "three were never fed, and one is too small");
    let mut all = free(Bytes::gib(3));
    let fed = all.devices.get(3).unwrap();
    (0..4).for_each(|index| all.devices.feed(index, fed).unwrap());
    assert_eq!(admission.model_split(&shares, &all), Ok(()));

    // 2.4 GiB for the burst.
    let spike = |slack| admission.load_spike(&Snapshot { host: host(Bytes::new(slack)), ..Snapshot::default() });
    assert_eq!(spike(2_576_980_378), Ok(()));
    assert!(spike(2_576_980_377).unwrap_err().to_string().contains("2457.60 MiB"));
    assert_eq!(admission.load_spike(&Snapshot::default()), Ok(()));
}

/// M11: a request above the pool but below the longest prompt blocked everybody behind it.
#[test]
fn a_request_that_can_never_fit_is_refused_at_once_and_blocks_nobody() {
    let block = 16;
    let admission = Admission::new(AdmissionConfig::new(CostModel::free(), Tokens::new(76 * block)));
    let mut queue = AdmissionQueue::new(8, Backpressure::default());
    let request = |blocks: u64| Request::on_device(Tokens::new(blocks * block), Tokens::ZERO);
    let snapshot = Snapshot::default();
    let (item, refusal) = queue.push(request(100), "100", &admission, &CONFIG, &snapshot).unwrap_err();
    assert_eq!((item, refusal.retry_after), ("100", None));
    assert!(matches!(refusal.reason, Reason::NeverFits { .. }));
    assert!(refusal.to_string().ends_with("trying again will not help"));
    queue.push(request(10), "10", &admission, &CONFIG, &snapshot).unwrap();
    assert_eq!(queue.next(&admission, &at(Level::Ok), 0, &snapshot), Next::Run("10", Tokens::new(160)));
    assert_eq!(queue.next(&admission, &at(Level::Ok), 1, &snapshot), Next::Empty);
}

#[test]
fn a_level_alone_holds_nobody_and_a_refusal_holds_until_it_falls() {
    let admission = admission();
    let mut queue = AdmissionQueue::new(3, Backpressure::default());
    let request = Request::on_host(Tokens::new(4000), Tokens::ZERO, Bytes::ZERO);
    let fits = |level| Snapshot { level, host: host(Bytes::gib(9)), ..Snapshot::default() };
    let full = |level| Snapshot { level, host: host(Bytes::ZERO), ..Snapshot::default() };
    let run = |name| Next::Run(name, Tokens::new(4000));
    for name in ["a", "b", "c"] {
        queue.push(request, name, &admission, &CONFIG, &fits(Level::Ok)).unwrap();
    }
    let (_, refusal) = queue.push(request, "d", &admission, &CONFIG, &fits(Level::Ok)).unwrap_err();
    assert_eq!(refusal.to_string(), "3 requests wait already; try again in 1 s");
    let mut next = |snapshot: Snapshot| queue.next(&admission, &at(Level::Ok), 0, &snapshot);
    // TIGHT at rest serves.
    assert_eq!(next(fits(Level::Tight)), run("a"));
    // One is refused at TIGHT: the others wait, also when there is room for a moment.
    assert!(matches!(next(full(Level::Tight)), Next::Refused("b", _)));
    assert_eq!(next(fits(Level::Tight)), Next::Held);
    assert_eq!(next(full(Level::Tight)), Next::Held);
    // The level falls, and nobody has to say so.
    assert_eq!(next(fits(Level::Watch)), run("c"));
    for name in ["e", "f", "g"] {
        queue.push(request, name, &admission, &CONFIG, &fits(Level::Ok)).unwrap();
    }
    let mut next = |snapshot: Snapshot| queue.next(&admission, &at(Level::Ok), 0, &snapshot);
    // At CRITICAL waiting is over.
    assert!(matches!(next(full(Level::Critical)), Next::Refused("e", _)));
    let shed = next(full(Level::Critical));
    assert!(matches!(&shed, Next::Refused("f", Refusal { reason: Reason::Shed(Level::Critical), .. })), "{shed:?}");
    assert_eq!(next(fits(Level::Tight)), Next::Held, "still held on the way down");
    assert_eq!(next(fits(Level::Ok)), run("g"));
    // A refusal below the level holds nobody.
    queue.push(request, "h", &admission, &CONFIG, &fits(Level::Ok)).unwrap();
    queue.push(request, "i", &admission, &CONFIG, &fits(Level::Ok)).unwrap();
    assert!(matches!(queue.next(&admission, &at(Level::Ok), 0, &full(Level::Watch)), Next::Refused("h", _)));
    assert_eq!(queue.next(&admission, &at(Level::Ok), 4, &fits(Level::Tight)), Next::SlotsTaken);
    assert_eq!(queue.cancel(|name| *name == "i"), Some("i"));
    assert_eq!((queue.cancel(|_| true), queue.waiting()), (None, 0));
}

/// M23, the fourth hazard: the slot ceiling is read when a request is bound and again when its step starts, and changes in
/// between. With one reading, latched, what was admitted is served.
#[test]
fn a_ceiling_that_falls_between_two_looks_refuses_nobody_that_was_admitted() {
    let admission = Admission::new(AdmissionConfig::new(CostModel::free(), Tokens::MAX));
    let mut queue = AdmissionQueue::new(8, Backpressure::default());
    let request = Request::on_device(Tokens::new(10), Tokens::ZERO);
    for name in 0..6 {
        queue.push(request, name, &admission, &CONFIG, &Snapshot::default()).unwrap();
    }
    let mut latch = crate::pressure::LimitLatch::new(at(Level::Ok));
    let mut running = 0;
    let step = latch.begin();
    latch.propose(at(Level::Critical));
    while let Next::Run(..) = queue.next(&admission, latch.current(), running, &Snapshot::default()) {
        running += 1;
        assert!(running <= step.limits().limits.slots, "bound by the ceiling that holds for this step");
    }
    assert_eq!(running, 4, "as many as the step was started for");
    latch.end(step);
    // Now one slot is allowed and four run: they go on, and the next starts when they are gone.
    for still in (1..=4).rev() {
        let next = queue.next(&admission, latch.current(), still, &Snapshot::default());
        assert_eq!(next, Next::SlotsTaken, "{still} run");
    }
    assert_eq!(queue.next(&admission, latch.current(), 0, &Snapshot::default()), Next::Run(4, Tokens::new(10)));
}

/// A snapshot and one that is at least as tight in every reading, with the levels that follow from them.
fn pair() -> impl Strategy<Value = (Snapshot, Snapshot)> {
    let memory = (0u64..64 << 30, 0u64..64 << 30, 0u64..64 << 30);
    let stalls = (0u32..3000, 0u32..3000);
    let group = prop::option::of((0u64..64 << 30, 0u64..64 << 30, 0u64..64 << 30));
    (memory, stalls, group, 0u64..16 << 30, 0u64..16 << 30).prop_map(|(memory, stalls, group, free, less)| {
        let t = Thresholds::default();
        let snapshot = |tighter: bool| {
            let lower = |one: u64, two: u64| Bytes::new(if tighter { one.min(two) } else { one.max(two) });
            let host = HostReading {
                total: Bytes::new(memory.0),
                available: lower(memory.1, memory.2).min(Bytes::new(memory.0)),
            };
            let full = if tighter { stalls.0.max(stalls.1) } else { stalls.0.min(stalls.1) };
            let cgroup = group.map(|(max, one, two)| CgroupReading {
                max: Some(Bytes::new(max)),
                current: Bytes::new(if tighter { one.max(two) } else { one.min(two) }),
                ..CgroupReading::default()
            });
            let (host, psi, devices) = (Some(host), stalled(full), device(lower(free, less)));
            let level =
                derive_level(host.as_ref(), psi.as_ref(), cgroup.as_ref(), devices.iter().map(|(_, fed)| fed), &t);
            Snapshot { level, host, psi, cgroup, devices, ..Snapshot::default() }
        };
        (snapshot(false), snapshot(true))
    })
}

fn any_request() -> impl Strategy<Value = Request> {
    (0u64..40_000, 0u64..4000, 0u64..40_000, 0u64..1 << 22, 0u8..3).prop_map(
        |(prompt, generates, least, kv, residence)| {
            let request = match residence {
                0 => Request::on_device(Tokens::new(prompt), Tokens::new(generates)),
                _ => Request::on_host(Tokens::new(prompt), Tokens::new(generates), Bytes::new(kv)),
            };
            let on_both = Residence::Host { device: Some(3) };
            let request = if residence == 2 { Request { residence: on_both, ..request } } else { request };
            request.cut_to(Tokens::new(least))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn more_pressure_never_admits_more_and_more_memory_never_less(
        (ample, tight) in pair(), request in any_request(),
    ) {
        prop_assert!(ample.level <= tight.level);
        let decide = |snapshot: &Snapshot| admission().decide(&request, &at(snapshot.level), snapshot);
        let (more, less) = (decide(&ample), decide(&tight));
        let refused = |verdict: &Verdict| matches!(verdict, Verdict::Refuse(_));
        prop_assert!(!refused(&more) || refused(&less), "{more:?} {less:?}");
        prop_assert!(more.window(request.prompt) >= less.window(request.prompt), "{more:?} {less:?}");
    }

    #[test]
    fn a_cap_is_the_longest_window_that_fits((snapshot, _) in pair(), request in any_request()) {
        let admission = admission();
        let limits = at(snapshot.level);
        if let Verdict::Cap(window) = admission.decide(&request, &limits, &snapshot) {
            prop_assert!(window < request.prompt && window >= request.least.min(request.prompt));
            prop_assert!(window <= limits.limits.prefill_window);
            let budget = snapshot.host_headroom(&Thresholds::default()).unwrap();
            if let Residence::Host { device } = request.residence {
                let budget = device.map_or(budget, |index| budget.min(snapshot.devices.get(index).unwrap().free));
                let cost = |window: Tokens| cost().host_cost(window, request.kv_per_token);
                prop_assert!(cost(window) <= budget);
                let longer = window.plus(Tokens::new(1)).unwrap();
                let room = longer.plus(request.generates).unwrap() <= Tokens::new(20_000);
                prop_assert!(cost(longer) > budget || longer > limits.limits.prefill_window || !room);
            }
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn who_waits_is_served_or_told_once_the_pressure_is_gone(
        snapshots in prop::collection::vec(pair(), 1..40), requests in prop::collection::vec(any_request(), 1..20),
    ) {
        let (admission, mut queue) = (admission(), AdmissionQueue::new(64, Backpressure::default()));
        let calm = Snapshot { host: host(Bytes::gib(30)), devices: device(Bytes::gib(16)), ..Snapshot::default() };
        let mut waiting = requests.len();
        for (name, request) in requests.into_iter().enumerate() {
            waiting -= usize::from(queue.push(request, name, &admission, &CONFIG, &calm).is_err());
        }
        let mut last = None;
        let storm = snapshots.into_iter().map(|(_, tight)| tight);
        for snapshot in storm.chain(std::iter::repeat_n(calm, waiting + 1)) {
            match queue.next(&admission, &at(snapshot.level), 0, &snapshot) {
                Next::Run(name, _) | Next::Refused(name, _) => {
                    prop_assert!(last < Some(name), "in order");
                    last = Some(name);
                    waiting -= 1;
                }
                Next::Held => prop_assert!(snapshot.level >= Level::Tight),
                Next::Empty => prop_assert_eq!(waiting, 0),
                Next::SlotsTaken => prop_assert!(false, "none runs"),
            }
        }
        prop_assert_eq!((waiting, queue.waiting()), (0, 0));
    }
}
