//! A mixture of experts whose experts do not all fit, on the host backend: whatever is decoded while prompts borrow the
//! cache's end, no stale byte is read as a weight.

use memtier::experts::{Contract, ExpertCache, LendError, LoadError};
use memtier::plan::loan::{Accepted, Lent, Mode, Use};
use memtier::{
    Bytes, Device, Eager, Engine, Host, HostBackend, LaunchError, Limits, Recorder, Serving, Space, StableSpanMut,
    Step, Stream, StreamSpec, Tokens, graph_captured, tier,
};

/// Slots of the cache, elements of an expert, experts of the model.
const SLOTS: usize = 24;
const EXPERT: usize = 96;
const EXPERTS: u64 = 64;

#[derive(Clone, Copy)]
struct Dims {
    slots: usize,
    expert: usize,
}

/// The slots. Written while serving, so they are the engine's and not the model's.
#[tier(EnginePersistent, dims = Dims)]
struct Slots {
    #[shape(slots, expert)]
    experts: u32,
}

#[graph_captured]
struct Moe {
    cache: Slots,
}

/// Where experts come from: each has a version, and every element says of which expert and version it is.
struct Disk {
    versions: Vec<u32>,
}

impl Disk {
    fn read(&self, expert: u64) -> Vec<u32> {
        let version = self.versions[expert as usize];
        (0..EXPERT as u32).map(|at| ((expert as u32) << 20) | (version << 8) | (at % 251)).collect()
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % most
    }
}

fn serving() -> (Device, Engine<Serving<Moe>>, Stream<Host>) {
    let device = Device::new(HostBackend::new(), Bytes::mib(1));
    let mut engine = Engine::open(&device);
    let lines = engine.declare_bundle::<Moe>(MoeSpec { cache: Dims { slots: SLOTS, expert: EXPERT } });
    let stream = engine.declare(StreamSpec { scratch: Bytes::kib(4) });
    let mut engine = engine.plan(Limits::new(Host::NAME, Bytes::mib(1))).unwrap().carve(lines).unwrap();
    let stream = engine.open_stream(stream).unwrap();
    (device, engine.serve().unwrap(), stream)
}

fn borrowed(slots: u64) -> Mode {
    Mode::Borrowed { slots, bytes: Bytes::new(slots * EXPERT as u64 * 4), ring: 0 }
}

/// A prompt may borrow twelve slots.
fn cache(contract: Contract) -> ExpertCache {
    let accepted = Accepted { chunk: Tokens::new(512), mode: borrowed(12) };
    ExpertCache::new(SLOTS as u32, EXPERT, accepted, contract)
}

fn a_use(slots: u64, tokens: u64) -> Use {
    Use { chunk: Tokens::new(tokens), mode: borrowed(slots) }
}

#[derive(Debug, PartialEq)]
enum Fault {
    Bus,
    Launch(LaunchError),
}

impl From<LaunchError> for Fault {
    fn from(error: LaunchError) -> Self {
        Fault::Launch(error)
    }
}

type At = Eager<Host>;

/// Decodes with an expert: found or loaded, its bytes are those of its present version.
fn decode(
    cache: &mut ExpertCache,
    disk: &Disk,
    on: &Recorder<At>,
    slots: &mut StableSpanMut<'_, u32, At>,
    (expert, random): (u64, &mut Random),
) -> bool {
    let hit = cache.find(slots.read(), expert).is_some();
    if !hit {
        let residency = cache.residency();
        let free = residency.slots() - residency.lent();
        cache.load(on, slots, random.below(free), (expert, &disk.read(expert))).unwrap();
    }
    let mut read = vec![0; EXPERT];
    on.read::<u32>(cache.find(slots.read(), expert).expect("it was found or loaded"), &mut read).unwrap();
    assert_eq!(read, disk.read(expert), "stale bytes of expert {expert}");
    hit
}

/// Everything that is found is what is on the disk.
fn check_all(cache: &ExpertCache, disk: &Disk, on: &Recorder<At>, slots: &StableSpanMut<'_, u32, At>) -> usize {
    let mut read = vec![0; EXPERT];
    (0..EXPERTS)
        .filter(|&expert| {
            let Some(span) = cache.find(slots.read(), expert) else { return false };
            on.read::<u32>(span, &mut read).unwrap();
            assert_eq!(read, disk.read(expert), "stale bytes of expert {expert}");
            true
        })
        .count()
}

#[test]
fn whatever_is_lent_lost_changed_and_refilled_no_stale_byte_is_read() {
    let (device, mut engine, mut stream) = serving();
    let acquired = device.report().acquisitions;
    let mut cache = cache(Contract::Strict);
    let (mut disk, mut random) = (Disk { versions: vec![0; EXPERTS as usize] }, Random(7));
    let mut loan: Option<Lent> = None;
    let (mut hits, mut refills, mut faults, mut reclaimed, mut refused) = (0, 0, 0, 0, 0);
    for round in 0..6000_u32 {
        let mut step = engine.step(&mut stream).unwrap();
        let Step { buffers: MoeView { cache: SlotsMut { experts: slots, .. }, .. }, on, .. } = &mut step;
        let on = *on;
        match (random.below(12), loan.take()) {
            (0, None) => {
                let asked = 1 + random.below(14);
                match cache.lend(&a_use(asked, 512)) {
                    Ok(lent) => loan = Some(lent),
                    Err(error) => {
                        assert!(asked > 12, "{error}");
                        refused += 1;
                    }
                }
            }
            (0 | 1, Some(lent)) => {
                // The bus fails now and then, in the middle of a refill; what came back is there, the rest is not.
                let fails = random.below(3) == 0;
                let mut left = random.below(4);
                let refilled = cache.refill(on, slots, lent, |expert, write| {
                    if fails && left == 0 {
                        return Err(Fault::Bus);
                    }
                    left = left.saturating_sub(1);
                    write(&disk.read(expert)).map_err(Fault::from)
                });
                match refilled {
                    Ok(()) => refills += 1,
                    Err((fault, rest)) => {
                        assert_eq!(fault, Fault::Bus);
                        faults += 1;
                        loan = Some(rest);
                    }
                }
            }
            (2, Some(lent)) if random.below(4) == 0 => {
                drop(lent);
                reclaimed += u32::from(cache.reclaim() > 0);
            }
            (3, out) => {
                // An adapter was merged: an expert's weights are others from now on.
                let expert = random.below(EXPERTS);
                disk.versions[expert as usize] = (disk.versions[expert as usize] + 1) % 4096;
                cache.forget(expert);
                loan = out;
            }
            (_, out) => {
                if let Some(lent) = &out {
                    // The prompt path scribbles over all that it borrowed.
                    let mut buffer = cache.lent(lent, slots).expect("this cache's loan");
                    let garbage = vec![0xDEAD_0000 | round; buffer.len()];
                    on.write(&mut buffer, &garbage).unwrap();
                }
                loan = out;
                let expert = random.below(EXPERTS);
                hits += u32::from(decode(&mut cache, &disk, on, slots, (expert, &mut random)));
            }
        }
        check_all(&cache, &disk, on, slots);
        step.finish().unwrap().wait().unwrap();
    }
    println!("{hits} hits, {refills} refills, {faults} faults, {reclaimed} reclaimed, {refused} refused");
    assert!(hits > 500 && refills > 50 && faults > 20 && reclaimed > 10 && refused > 10);
    assert_eq!(device.report().acquisitions[2], acquired[2], "nothing was acquired while serving");
}

#[test]
fn each_loan_marks_the_same_experts_and_each_refill_brings_them_back() {
    let (device, mut engine, mut stream) = serving();
    let mut cache = cache(Contract::Strict);
    let disk = Disk { versions: vec![0; EXPERTS as usize] };
    let mut step = engine.step(&mut stream).unwrap();
    let Step { buffers: MoeView { cache: SlotsMut { experts: slots, .. }, .. }, on, .. } = &mut step;
    let on = *on;
    let page = Bytes::new(4096);
    assert!(device.resident() < Some(page), "nothing was touched yet: {:?}", device.resident());
    (0..SLOTS as u64).for_each(|slot| cache.load(on, slots, slot, (slot, &disk.read(slot))).unwrap());
    // What was written is there, the scratch that nobody took is not.
    let slots_bytes = Bytes::new((SLOTS * EXPERT * 4) as u64).aligned(page.count());
    assert_eq!(device.resident(), slots_bytes.ok(), "of {}", device.report().live);
    for _ in 0..2 {
        let loan = cache.lend(&a_use(12, 512)).unwrap();
        assert_eq!((loan.evicted().len(), cache.residency().lent()), (12, 12));
        assert_eq!(check_all(&cache, &disk, on, slots), SLOTS - 12);
        let lent = cache.lent(&loan, slots).map(|mut span| (span.len(), on.write(&mut span, &[9; 12 * EXPERT])));
        assert_eq!(lent, Some((12 * EXPERT, Ok(()))));
        let write = |expert, write: &mut dyn FnMut(&[u32]) -> _| write(&disk.read(expert));
        cache.refill::<_, _, LaunchError>(on, slots, loan, write).unwrap();
        assert_eq!(check_all(&cache, &disk, on, slots), SLOTS);
    }
}

#[test]
fn a_strict_contract_refuses_and_an_advisory_one_counts() {
    let mut strict = cache(Contract::Strict);
    let refused = strict.lend(&a_use(13, 512)).unwrap_err();
    assert!(matches!(refused, LendError::Departure(_)), "{refused}");
    assert!(refused.to_string().contains("allows 12 slots, and 13"), "{refused}");
    assert!(matches!(strict.lend(&a_use(12, 513)), Err(LendError::Departure(_))));
    let owned = Use { chunk: Tokens::new(1), mode: Mode::Owned { bytes: Bytes::new(1), ring: 0 } };
    assert!(matches!(strict.lend(&owned), Err(LendError::Departure(_))));
    assert_eq!((strict.residency().lent(), strict.departures()), (0, 0));

    let mut advisory = cache(Contract::Advisory);
    assert_eq!(advisory.lend(&owned).unwrap_err(), LendError::Owned);
    let lent = advisory.lend(&a_use(13, 513)).unwrap();
    assert_eq!((advisory.residency().lent(), advisory.departures()), (13, 2));
    // What is not there is lent to nobody, whatever the contract.
    let more = advisory.lend(&a_use(1, 1)).unwrap_err();
    assert_eq!(more, LendError::Slots { asked: 1, slots: SLOTS as u64, lent: 13 });
    drop(lent);
    assert_eq!(advisory.reclaim(), 13);
    assert!(matches!(advisory.lend(&a_use(25, 1)), Err(LendError::Slots { asked: 25, .. })));
}

#[test]
fn a_load_that_fails_leaves_the_slot_empty() {
    let (_, mut engine, mut stream) = serving();
    let mut cache = cache(Contract::Strict);
    let disk = Disk { versions: vec![0; EXPERTS as usize] };
    let mut step = engine.step(&mut stream).unwrap();
    let Step { buffers: MoeView { cache: SlotsMut { experts: slots, .. }, .. }, on, .. } = &mut step;
    let on = *on;
    cache.load(on, slots, 3, (40, &disk.read(40))).unwrap();
    let short = cache.load(on, slots, 3, (41, &disk.read(41)[1..])).unwrap_err();
    assert!(matches!(short, LoadError::Launch(LaunchError::Shape { .. })), "{short}");
    assert!(cache.find(slots.read(), 40).is_none() && cache.find(slots.read(), 41).is_none());
    let loan = cache.lend(&a_use(1, 1)).unwrap();
    let lent = cache.load(on, slots, SLOTS as u64 - 1, (40, &disk.read(40))).unwrap_err();
    assert_eq!(lent, LoadError::Slot { slot: SLOTS as u64 - 1, slots: SLOTS as u64, lent: 1 });
    drop(loan);
}
