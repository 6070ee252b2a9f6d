//! The prompt path beside an expert cache: the cases that were seen on real cards.

use super::super::loan::*;
use super::*;

/// Slots of 1,728 KiB and a prompt path of a fixed part, a ring, and some KiB a token.
fn prompt(fixed_mib: u64, kib_a_token: u64) -> impl Fn(Tokens, u64) -> Bytes {
    move |chunk, ring| Bytes::new((fixed_mib << 20) + ring * (2700 << 10) + chunk.count() * (kib_a_token << 10))
}

fn tail(_slots: u64, lent: u64) -> Bytes {
    Bytes::new(lent * (1728 << 10))
}

fn room(free_mib: u64, after_mib: u64) -> Room {
    Room { free: mib(free_mib), after: mib(after_mib), slots: None, least_slots: 1, borrow: true }
}

fn opened(slots: u64, free_mib: u64, shrinks: u32) -> Opened {
    Opened { slots, free: mib(free_mib), shrinks }
}

fn auto(ceiling: u64) -> Chunk {
    Chunk::Auto { ceiling: Tokens::new(ceiling) }
}

fn fixed(tokens: u64) -> Chunk {
    Chunk::Fixed(Tokens::new(tokens))
}

#[test]
fn at_32k_an_automatic_chunk_borrows_2489_slots() {
    // 8192 tokens for 2489 slots of a cache of 5578: 4,200.2 MiB of 9,413 MiB.
    let price = |chunk: Tokens, _| Bytes::new(2489 * (1728 << 10) - 8192 * (400 << 10) + chunk.count() * (400 << 10));
    let costs = Costs { prompt: &price, tail: &tail, rings: &[384] };
    let plan = choose(&Policy::default(), &costs, &room(9413 + 700, 700), auto(8192)).expect("room");
    assert_eq!((plan.slots, plan.accepted.chunk, plan.note), (5578, Tokens::new(8192), None));
    let bytes = Bytes::new(2489 * (1728 << 10));
    assert_eq!(plan.accepted.mode, Mode::Borrowed { slots: 2489, bytes, ring: 384 });
}

#[test]
fn at_524k_a_chunk_that_cannot_be_lent_is_owned_and_cut_on_the_grid() {
    // What is left beside an int8 cache: a 24576-token chunk was tried, and the engine died between load and ready.
    let costs = Costs { prompt: &prompt(300, 500), tail: &tail, rings: &[64] };
    let free = 700 + 300 + 169 + 17_664 * 500 / 1024 + 2;
    let no_loans = Room { borrow: false, ..room(free, 700) };
    let plan = choose(&Policy::default(), &costs, &no_loans, fixed(24_576)).expect("room for less");
    assert_eq!(plan.accepted.chunk, Tokens::new(17_664));
    assert_eq!((plan.accepted.mode.name(), plan.note), ("owned", Some(Note::ChunkCut { from: Tokens::new(24_576) })));
    // Cache, prompt path and what must stay are within what is free.
    let cache = tail(plan.slots, plan.slots);
    assert!(
        plan.slots >= 1 && cache.count() + plan.accepted.mode.beside().count() + mib(700).count() <= mib(free).count()
    );
}

#[test]
fn without_resident_kv_it_is_2048_and_never_what_the_driver_would_page() {
    // 2048 tokens take 397 MiB, 2304 take 431.
    let price = |chunk: Tokens, _| Bytes::new(chunk.count() * (397 << 20) / 2048);
    let costs = Costs { prompt: &price, tail: &tail, rings: &[] };
    let plan = choose(&Policy::default(), &costs, &Room { borrow: false, ..room(700 + 420, 700) }, fixed(24_576))
        .expect("room");
    assert_eq!(plan.accepted, Accepted { chunk: Tokens::new(2048), mode: Mode::Owned { bytes: mib(397), ring: 0 } });
}

#[test]
fn a_forced_768_stays_768() {
    // 100 slots lend nothing; an automatic chunk owns at most 1024, and 768 is what fits.
    let costs = Costs { prompt: &prompt(0, 1024), tail: &tail, rings: &[] };
    let room = Room { slots: Some(100), ..room(700 + 169 + 800, 700) };
    let plan = choose(&Policy::default(), &costs, &room, auto(32_768)).expect("room");
    assert_eq!((plan.slots, plan.accepted.chunk), (100, Tokens::new(768)));
    // The driver says that more is free than was thought: it is still 768.
    let after = after_touch(&Policy::default(), &costs, &room, auto(32_768), &plan, opened(100, 5000, 0));
    assert_eq!(after, AfterTouch::Accept(plan.accepted));
    let more = Use { chunk: Tokens::new(1024), mode: Mode::Owned { bytes: mib(1024), ring: 0 } };
    assert!(plan.accepted.check(&more).is_err());
}

#[test]
fn a_smaller_ring_is_tried_before_a_smaller_chunk() {
    let costs = Costs { prompt: &prompt(10, 100), tail: &tail, rings: &[512, 256, 64] };
    // 2000 slots of 1.6875 MiB, three quarters lendable: 2531 MiB. With 512 ring slots 8192 tokens take 2160 MiB.
    let plan = choose(&Policy::default(), &costs, &room(3375, 0), auto(8192)).expect("room");
    assert!(matches!(plan.accepted.mode, Mode::Borrowed { ring: 512, .. }), "{plan:?}");
    // With half of that cache only a ring of 64 leaves room for 8192.
    let plan = choose(&Policy::default(), &costs, &room(1700, 0), auto(8192)).expect("room");
    assert!(
        matches!(plan.accepted, Accepted { chunk, mode: Mode::Borrowed { ring: 64, .. } } if chunk == Tokens::new(8192)),
        "{plan:?}"
    );
}

#[test]
fn boundaries_that_are_on_no_list_are_found() {
    for tokens in [8704, 13_824, 19_712, 20_224] {
        // Exactly this chunk fits into three quarters of the cache.
        let lendable = tail(4000, 3000).count();
        let price = |chunk: Tokens, _| Bytes::new(chunk.count() * (lendable / tokens));
        let costs = Costs { prompt: &price, tail: &tail, rings: &[] };
        let plan = choose(&Policy::default(), &costs, &room(6750, 0), auto(32_768)).expect("room");
        assert_eq!(plan.accepted.chunk, Tokens::new(tokens));
    }
}

#[test]
fn a_fixed_chunk_is_halved_when_planning_and_owned_at_its_size_after_the_touch() {
    let costs = Costs { prompt: &prompt(0, 400), tail: &tail, rings: &[] };
    // 4000 slots, 3000 lendable: 5062 MiB. 24576 tokens take 9600, 12288 take 4800.
    let room = room(6750, 0);
    let plan = choose(&Policy::default(), &costs, &room, fixed(24_576)).expect("room");
    assert_eq!((plan.accepted.chunk, plan.accepted.mode.name()), (Tokens::new(12_288), "borrowed"));
    // 3700 slots lend 2775, 4682 MiB: not 12288 tokens. It becomes owned, and nothing is free: the cache shrinks.
    let after = after_touch(&Policy::default(), &costs, &room, fixed(24_576), &plan, opened(3700, 0, 0));
    let AfterTouch::Shrink { slots } = after else { panic!("{after:?}") };
    assert!(tail(3700, 3700 - slots) >= mib(4800) && tail(3700, 3699 - slots) < mib(4800), "{slots}");
    // With that much free it is accepted as owned, at the size that was accepted.
    let after = after_touch(&Policy::default(), &costs, &room, fixed(24_576), &plan, opened(slots, 4800, 1));
    let owned = Accepted { chunk: Tokens::new(12_288), mode: Mode::Owned { bytes: mib(4800), ring: 0 } };
    assert_eq!(after, AfterTouch::Accept(owned));
}

#[test]
fn an_automatic_chunk_owns_at_most_1024_however_much_is_free() {
    let costs = Costs { prompt: &prompt(0, 100), tail: &tail, rings: &[] };
    let plan =
        choose(&Policy::default(), &costs, &Room { borrow: false, ..room(20_000, 0) }, auto(8192)).expect("room");
    assert_eq!((plan.accepted.chunk, plan.note), (Tokens::new(1024), Some(Note::OwnedInstead)));
    let fixed =
        choose(&Policy::default(), &costs, &Room { borrow: false, ..room(20_000, 0) }, fixed(8192)).expect("room");
    assert_eq!(fixed.accepted.chunk, Tokens::new(8192));
}

#[test]
fn a_cache_of_fewer_than_128_slots_lends_nothing() {
    let costs = Costs { prompt: &prompt(0, 1), tail: &tail, rings: &[] };
    let mode = |slots| {
        let room = Room { slots: Some(slots), ..room(5000, 0) };
        choose(&Policy::default(), &costs, &room, auto(1024)).expect("room").accepted.mode.name()
    };
    assert_eq!((mode(127), mode(128)), ("owned", "borrowed"));
}

#[test]
fn shrinks_are_bounded_and_the_last_cache_is_looked_at() {
    let costs = Costs { prompt: &prompt(0, 400), tail: &tail, rings: &[] };
    let room = room(6750, 500);
    let policy = Policy::default();
    let plan = choose(&policy, &costs, &room, auto(8192)).expect("room");
    let step =
        |free: u64, shrinks| after_touch(&policy, &costs, &room, auto(8192), &plan, opened(plan.slots, free, shrinks));
    assert!(matches!(step(500, policy.shrinks), AfterTouch::Accept(_)));
    assert!(matches!(step(200, policy.shrinks - 1), AfterTouch::Shrink { .. }));
    assert_eq!(step(200, policy.shrinks), AfterTouch::Refuse { short: mib(300) });
    // A cache that the operator fixed is not shrunk.
    let fixed = Room { slots: Some(plan.slots), ..room };
    let after = after_touch(&policy, &costs, &fixed, auto(8192), &plan, opened(plan.slots, 200, 0));
    assert_eq!(after, AfterTouch::Refuse { short: mib(300) });
}

#[test]
fn eight_gib_are_refused_with_the_numbers() {
    let costs = Costs { prompt: &prompt(500, 400), tail: &tail, rings: &[] };
    let no_loans = Room { borrow: false, ..room(8192 - 7800, 700) };
    let error = choose(&Policy::default(), &costs, &no_loans, auto(8192)).expect_err("short");
    // 700 to stay, one slot, 500 and 256 tokens of 400 KiB: 911 MiB more than 392.
    assert_eq!(error.short, Bytes::new((700 + 500 + 100 - 392) * (1 << 20) + (1728 << 10)));
    let text = error.to_string();
    for part in ["392 MiB free", "700 MiB must stay", "256 tokens", "smaller context"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn run_time_may_use_less_and_never_more_or_another_mode() {
    let borrowed = |slots, bytes| Mode::Borrowed { slots, bytes: mib(bytes), ring: 0 };
    let owned = |bytes| Mode::Owned { bytes: mib(bytes), ring: 0 };
    let rows = [
        (borrowed(100, 500), 8192, borrowed(100, 500), true),
        (borrowed(100, 500), 4096, borrowed(60, 300), true),
        (borrowed(100, 500), 8448, borrowed(100, 500), false),
        (borrowed(100, 500), 8192, borrowed(101, 500), false),
        (borrowed(100, 500), 4096, borrowed(100, 501), false),
        (borrowed(100, 500), 4096, owned(1), false),
        (owned(500), 8192, owned(500), true),
        (owned(500), 256, owned(20), true),
        (owned(500), 8192, owned(501), false),
        (owned(500), 256, borrowed(1, 1), false),
    ];
    for (mode, chunk, used, allowed) in rows {
        let accepted = Accepted { chunk: Tokens::new(8192), mode };
        let check = accepted.check(&Use { chunk: Tokens::new(chunk), mode: used });
        assert_eq!(check.is_ok(), allowed, "{mode:?} {chunk} {used:?}: {check:?}");
    }
}

#[test]
fn a_plan_is_within_what_is_free_whatever_the_room() {
    let costs = Costs { prompt: &prompt(40, 90), tail: &tail, rings: &[64, 16] };
    for free in (0..12_000).step_by(97) {
        for (chunk, borrow) in [(auto(8192), true), (auto(8192), false), (fixed(6000), true), (fixed(6000), false)] {
            let room = Room { borrow, ..room(free, 500) };
            match choose(&Policy::default(), &costs, &room, chunk) {
                Ok(plan) => {
                    let all =
                        500 * (1 << 20) + tail(plan.slots, plan.slots).count() + plan.accepted.mode.beside().count();
                    assert!(all <= mib(free).count(), "{free} {chunk:?} {plan:?}");
                    assert!(plan.slots >= 1 && !plan.accepted.chunk.is_zero());
                }
                Err(error) => assert!(!error.short.is_zero(), "{free} {chunk:?} {error:?}"),
            }
        }
    }
}
