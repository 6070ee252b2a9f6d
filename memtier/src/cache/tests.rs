//! The cache against a model of itself, and the run that its policy comes from.

use std::{cell::RefCell, collections::BTreeSet, fmt::Write, rc::Rc, sync::Arc};

use proptest::prelude::*;

use super::*;
use crate::{
    Bytes,
    backend::{Device, FakeBackend, Op, PhaseCell, Region},
};

fn on(capacity: u64) -> AllocCache<u64, NoGraphs> {
    let mut cache = AllocCache::new(Override::Fixed(Bytes::new(capacity)), NoGraphs);
    assert!(cache.enable(None).memory.is_empty());
    cache
}

fn names(evicted: Evicted<u64>) -> Vec<u64> {
    evicted.memory.into_iter().map(|(_, name)| name).collect()
}

#[test]
fn the_size_unused_for_longest_goes_first_down_to_the_low_water_mark() {
    let mut cache = on(100);
    assert_eq!(names(cache.put(Bytes::new(30), 1)), []);
    assert_eq!(names(cache.put(Bytes::new(20), 2)), []);
    assert_eq!(names(cache.put(Bytes::new(30), 3)), []);
    assert_eq!(names(cache.put(Bytes::new(20), 4)), [], "exactly full is not too full");
    // 110 held: sizes 30 (1, 3), then 20 (2, 4) by use; down to 75.
    assert_eq!(names(cache.put(Bytes::new(10), 5)), [1, 3]);
    assert_eq!((cache.stats().held, cache.stats().sizes), (Bytes::new(50), 2));
    // Taking one makes its size the latest.
    assert_eq!(cache.take(Bytes::new(20)), Some(4));
    assert_eq!(names(cache.put(Bytes::new(75), 6)), [5, 2], "30 are to go, and 10 was unused for longest");
}

#[test]
fn a_bound_that_comes_down_bites_at_once_and_every_64_steps() {
    let mut cache = AllocCache::new(Override::Auto, NoGraphs);
    drop(cache.enable(Some(Bytes::gib(80))));
    for name in 0..200 {
        assert!(cache.put(Bytes::mib(1), name).memory.is_empty());
    }
    let mut free = Bytes::mib(262);
    for step in 1..=128u64 {
        let end = cache.end_step(|| Some(free));
        match step {
            64 => assert_eq!(names(end.evicted).len(), 152, "64 MiB of 200, so down to 48"),
            128 => assert_eq!(names(end.evicted).len(), 39, "25 MiB free: 12.5 are the bound, 9.375 the mark"),
            _ => assert!(end.evicted.memory.is_empty()),
        }
        if step == 100 {
            free = Bytes::mib(25);
        }
    }
    assert_eq!(cache.stats().freed, Bytes::mib(191));
    // No reading: the bound stays.
    assert!(cache.arm(None).memory.is_empty());
    assert_eq!(cache.stats().capacity, Capacity::Bounded(Bytes::new(25 << 19)));
}

#[test]
fn switched_off_it_holds_nothing() {
    let mut cache = AllocCache::new(Override::Auto, NoGraphs);
    assert_eq!(names(cache.put(Bytes::mib(1), 1)), [1]);
    drop(cache.enable(Some(Bytes::gib(8))));
    assert_eq!(names(cache.put(Bytes::mib(1), 2)), []);
    assert_eq!(names(cache.disable()), [2]);
    assert_eq!(names(cache.put(Bytes::mib(1), 3)), [3]);
    let stats = cache.stats().to_string();
    assert!(stats.starts_with("step 0: held 0.00 MiB of 1024.00 MiB, 0 buffers in 0 sizes"), "{stats}");
}

#[test]
fn what_a_graph_has_baked_in_is_neither_evicted_nor_handed_out() {
    let graphs = Rc::new(RefCell::new(BTreeSet::from([1u64, 3])));
    let asks = graphs.clone();
    let mut cache = AllocCache::new(Override::Fixed(Bytes::new(100)), move |name: &u64| asks.borrow().contains(name));
    drop(cache.enable(None));
    for name in 1..=4 {
        drop(cache.put(Bytes::new(25), name));
    }
    assert_eq!(names(cache.put(Bytes::new(60), 5)), [2, 4, 5], "1 and 3 stay, though they are the oldest");
    assert_eq!(cache.take(Bytes::new(25)), None, "the next replay writes to them");
    assert_eq!(names(cache.drain()), []);
    assert_eq!(cache.stats().held, Bytes::new(50));
    graphs.borrow_mut().clear(); // the graphs are gone
    assert_eq!(cache.take(Bytes::new(25)), Some(3));
    assert_eq!(names(cache.drain()), [1]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every buffer is in exactly one place, the bound holds after every call, and sizes leave oldest first.
    #[test]
    fn nothing_is_lost_and_the_bound_holds(
        ops in prop::collection::vec((0u8..10, 1u64..12, any::<bool>()), 1..300),
        capacity in 20u64..200,
    ) {
        let baked = |name: &u64| name.is_multiple_of(11);
        let mut cache = AllocCache::new(Override::Fixed(Bytes::new(capacity)), baked);
        drop(cache.enable(None));
        let mut inside: Vec<(u64, u64)> = Vec::new(); // size and name, the size used last at the end
        let mut next = 0;
        for (op, size, take) in ops {
            let size = size * 3;
            let evicted = if take {
                let free = inside.iter().rev().find(|(s, name)| *s == size && !baked(name)).copied();
                let taken = cache.take(Bytes::new(size));
                prop_assert_eq!(taken, free.map(|(_, name)| name));
                if taken.is_some() {
                    inside.retain(|entry| Some(*entry) != free);
                    let (same, mut rest): (Vec<_>, Vec<_>) = inside.into_iter().partition(|(s, _)| *s == size);
                    rest.extend(same);
                    inside = rest;
                }
                Vec::new()
            } else if op == 0 {
                drop(cache.end_step(|| None));
                Vec::new()
            } else {
                let (same, mut rest): (Vec<_>, Vec<_>) = inside.into_iter().partition(|(s, _)| *s == size);
                rest.extend(same);
                rest.push((size, next));
                inside = rest;
                next += 1;
                cache.put(Bytes::new(size), next - 1).memory
            };
            for (size, name) in evicted {
                prop_assert!(!baked(&name));
                let oldest = inside.iter().find(|(_, name)| !baked(name)).copied();
                prop_assert_eq!(oldest, Some((size.count(), name)), "oldest first");
                inside.retain(|entry| entry.1 != name);
            }
            let held: u64 = inside.iter().map(|(size, _)| size).sum();
            let pinned: u64 = inside.iter().filter(|(_, name)| baked(name)).map(|(size, _)| size).sum();
            prop_assert_eq!(cache.stats().held, Bytes::new(held));
            prop_assert!(held <= capacity.max(pinned), "{} of {}", held, capacity);
        }
    }
}

/// Which policy a run has.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Policy {
    /// A constant: 1 GiB.
    Constant,
    /// What is free decides.
    Headroom,
    /// Nothing is recycled: each tensor is planned at its largest and written in place.
    Planned,
}

struct Leg {
    /// The step that found no memory.
    died: Option<u64>,
    /// MiB held after each step.
    held: Vec<f64>,
    stats: CacheStats,
    warnings: Vec<(u64, Warning)>,
    releases: usize,
}

const MIB: f64 = (1 << 20) as f64;

/// A decode loop on a card with 262 MiB left, of which 13 are live otherwise: each step makes ten tensors of 1.28 MiB in
/// all 12.8, each one token (4 KiB) longer than in the step before, and frees them when it ends.
fn leg(policy: Policy, steps: u64) -> Leg {
    let fake = FakeBackend::<crate::Host>::new();
    let (device, phase) = (Device::new(fake.clone(), Bytes::mib(262)), Arc::new(PhaseCell::new()));
    let free = || Bytes::mib(262).beyond(device.report().live);
    let acquire = |name, bytes| Region::reserve(&device.0, &phase, name, bytes, bytes);
    let _live = acquire("live", Bytes::mib(13)).unwrap();
    let operator = if policy == Policy::Constant { Override::Fixed(CEILING) } else { Override::Auto };
    let mut cache = AllocCache::<Arc<Region>, _>::new(operator, NoGraphs);
    let size = |step: u64, tensor: u64| Bytes::new((1312 << 10) + (step << 12) - (tensor << 6));
    if policy != Policy::Planned {
        drop(cache.enable(Some(free())));
    }
    let planned = |tensor| acquire("planned", size(steps, tensor)).unwrap();
    let planned: Vec<_> = (0..10).filter(|_| policy == Policy::Planned).map(planned).collect();
    let (mut held, mut died, mut warnings) = (Vec::new(), None, Vec::new());
    'run: for step in 1..=steps {
        let mut tensors = Vec::new();
        for tensor in 0..10 {
            let size = size(step - 1, tensor);
            if let Some(region) = planned.get(tensor as usize) {
                assert!(size <= region.committed(), "in place");
                continue;
            }
            match cache.take(size).map_or_else(|| acquire("tensor", size), Ok) {
                Ok(region) => tensors.push((size, region)),
                Err(_) => {
                    died = Some(step);
                    break 'run;
                }
            }
        }
        for (size, region) in tensors {
            drop(cache.put(size, region));
        }
        let end = cache.end_step(|| Some(free()));
        warnings.extend(end.warnings.into_iter().map(|warning| (step, warning)));
        held.push(cache.stats().held.count() as f64 / MIB);
    }
    // What is still held goes when the leg ends; only what was given up before counts.
    let releases = fake.journal().iter().filter(|event| event.op == Op::Release).count();
    Leg { died, held, stats: cache.stats(), warnings, releases }
}

/// The step down the side, what is held to the right, one mark each 4 MiB.
fn chart(title: &str, leg: &Leg, steps: usize) -> String {
    let mut text = format!("{title}\n");
    let shown = leg.held.iter().take(steps).enumerate();
    for (step, held) in shown.filter(|(step, _)| step % 2 == 0 || leg.held.len() == step + 1) {
        writeln!(text, "  step {:>3} |{:<64}| {held:6.1} MiB", step + 1, "#".repeat((held / 4.0) as usize)).unwrap();
    }
    match leg.died {
        Some(step) => writeln!(text, "  step {step:>3} |out of memory").unwrap(),
        None => writeln!(text, "  {}", leg.stats).unwrap(),
    }
    text
}

/// Shown with `cargo test -p memtier --lib the_run_that_died -- --nocapture`.
#[test]
fn the_run_that_died_at_step_19_plateaus_and_with_planned_storage_holds_nothing() {
    let constant = leg(Policy::Constant, 72);
    println!("{}", chart("bound 1 GiB, 262 MiB free", &constant, 40));
    assert_eq!(constant.died, Some(19));
    let last = *constant.held.last().unwrap();
    assert!((235.0..239.0).contains(&last), "{last} MiB held when it died; 236.9 were measured");
    assert_eq!(constant.stats.freed, Bytes::ZERO, "never evicted anything");
    assert!(matches!(constant.warnings[..], [(8, Warning::NewSizesEachStep { .. })]), "it was told at step 8");

    let bounded = leg(Policy::Headroom, 72);
    println!("{}", chart("bound from headroom: 64 MiB", &bounded, 40));
    assert_eq!((bounded.died, bounded.held.len()), (None, 72));
    assert!(bounded.held.iter().all(|held| *held <= 64.0), "above the bound");
    assert!(bounded.held[10..].iter().all(|held| *held > 40.0), "a plateau, not an empty cache");
    assert!(bounded.stats.freed > Bytes::mib(800) && bounded.releases > 500, "{}", bounded.stats);

    let planned = leg(Policy::Planned, 72);
    println!("{}", chart("planned at its largest", &planned, 4));
    assert_eq!((planned.died, planned.stats.filed, planned.stats.held), (None, 0, Bytes::ZERO));
    assert_eq!((planned.warnings, planned.releases), (vec![], 0));
}
