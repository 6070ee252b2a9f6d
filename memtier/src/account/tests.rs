//! The pool's laws: the books are exact, numbers are deterministic, the budget holds, failures change nothing.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::units::Bytes;

/// Memory that is its own number.
struct Memory {
    next: u64,
    /// The creation that fails, counted from now.
    fail_in: Option<u64>,
}

impl Memory {
    fn new() -> Self {
        Memory { next: 0, fail_in: None }
    }

    fn create(&mut self) -> Result<u64, &'static str> {
        if let Some(left) = &mut self.fail_in {
            if *left == 0 {
                self.fail_in = None;
                return Err("the driver is out of memory");
            }
            *left -= 1;
        }
        self.next += 1;
        Ok(self.next)
    }
}

fn unbounded() -> BudgetDecision {
    decide_budget(None, &DeviceMemory::NoDevice)
}

fn limited(bytes: Bytes) -> BudgetDecision {
    decide_budget(Some(bytes), &DeviceMemory::NoDevice)
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn a_refusal_names_four_numbers_and_asks_nobody() {
    let mut pool = ClassPool::<u64>::new();
    let gpu = pool.add_backend("cuda", limited(Bytes::mib(4500)));
    pool.set_weights(gpu, Bytes::mib(4076));
    let kept = pool.take(gpu, Bytes::mib(397), |_| Ok::<_, ()>(1)).unwrap();
    let refused = pool.take(gpu, Bytes::new((27 << 20) + 1), |_| -> Result<u64, &str> { panic!("asked") }).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cuda: weights 4076.00 MiB + pooled 397.00 MiB + request 27.01 MiB exceed the budget of 4500.00 MiB: use a smaller \
         context or batch, offload fewer layers, or raise the budget"
    );
    let exactly = pool.take(gpu, Bytes::mib(27), |_| Ok::<_, ()>(2)).unwrap();
    let report = pool.report(gpu).unwrap();
    assert_eq!((report.headroom, report.live, report.peak), (Some(Bytes::ZERO), Bytes::mib(424), Bytes::mib(424)));
    pool.release(kept).unwrap();
    pool.release(exactly).unwrap();
    // Reserved memory is not charged twice: the same class is there, the budget is exhausted, and it works.
    let again = pool.take(gpu, Bytes::mib(397), |_| -> Result<u64, &str> { panic!("asked") }).unwrap();
    assert_eq!(pool.memory(&again), Some(&1));
    let report = pool.report(gpu).unwrap();
    assert_eq!((report.idle_slots, report.reserved_classes), (1, 1));
    assert_eq!(
        report.to_string(),
        "cuda: weights 4076.00 MiB, pool 424.00 MiB (live 397.00, peak 424.00, staging 0.00, 1 idle in 1 classes), budget \
         4500.00 MiB, headroom 0.00 MiB"
    );
    pool.release(again).unwrap();
}

#[test]
fn a_measured_zero_refuses_and_a_failed_query_does_not() {
    let mut pool = ClassPool::<u64>::new();
    let full = pool.add_backend("full", decide_budget(None, &DeviceMemory::Reported(Bytes::ZERO)));
    let broken = pool.add_backend("broken", decide_budget(None, &DeviceMemory::QueryFailed("ERR 999".into())));
    assert!(matches!(pool.take(full, Bytes::new(1), |_| Ok::<_, ()>(1)), Err(TakeError::OverBudget(_))));
    let buf = pool.take(broken, Bytes::gib(1), |_| Ok::<_, ()>(2)).unwrap();
    assert!(pool.take_warning(broken).unwrap().contains("ERR 999"));
    assert_eq!(pool.take_warning(broken), None, "said once");
    assert_eq!(pool.report(broken).unwrap().headroom, None);
    pool.release(buf).unwrap();
}

#[test]
fn staging_is_exact_charged_and_not_kept() {
    let mut pool = ClassPool::<u64>::new();
    let gpu = pool.add_backend("cuda", limited(Bytes::new(100_000)));
    let staged = pool.stage(gpu, Bytes::new(99_999), |bytes| Ok::<_, ()>(bytes.count())).unwrap();
    let report = pool.report(gpu).unwrap();
    assert_eq!((report.pool, report.staging), (Bytes::new(99_999), Bytes::new(99_999)));
    assert_eq!(pool.release(staged), Ok(Some(99_999)));
    let report = pool.report(gpu).unwrap();
    assert_eq!((report.pool, report.staging, report.idle_slots), (Bytes::ZERO, Bytes::ZERO, 0));
}

#[test]
fn reads_and_writes_go_by_the_logical_length() {
    let length = Length::new(Bytes::new(17_000)); // its class has 32 KiB
    assert_eq!(length.window(Bytes::new(16_000), Bytes::new(1000)), Ok(16_000..17_000));
    assert!(length.window(Bytes::new(16_000), Bytes::new(1001)).is_err());
    assert!(length.window(Bytes::MAX, Bytes::MAX).is_err());
    assert_eq!(length.filled_by(Bytes::new(17_000)), Ok(0..17_000));
    assert!(length.filled_by(Bytes::kib(32)).is_err());
    assert!(length.filled_by(Bytes::new(16_999)).unwrap_err().to_string().contains("17000 bytes"));
}

#[test]
fn foreign_names_are_refused() {
    let (mut one, mut two) = (ClassPool::<u64>::new(), ClassPool::<u64>::new());
    let (gpu, other) = (one.add_backend("one", unbounded()), two.add_backend("two", unbounded()));
    assert_eq!(one.take(other, Bytes::new(1), |_| Ok::<_, ()>(1)).unwrap_err(), TakeError::ForeignBackend);
    let buf = one.take(gpu, Bytes::new(1), |_| Ok::<_, ()>(1)).unwrap();
    assert_eq!(two.memory(&buf), None);
    let buf = two.release(buf).unwrap_err();
    assert_eq!(one.release(buf), Ok(None));
    assert_eq!(one.report(other), None);
}

#[test]
fn trimming_keeps_what_a_graph_has_baked_in() {
    let mut pool = ClassPool::new();
    let gpu = pool.add_backend("cuda", unbounded());
    let bufs: Vec<_> = (0..4u64).map(|n| pool.take(gpu, Bytes::kib(n + 1), |_| Ok::<_, ()>(n)).unwrap()).collect();
    bufs.into_iter().for_each(|buf| assert_eq!(pool.release(buf), Ok(None)));
    assert_eq!(pool.trim(gpu, |memory| *memory == 2), [0, 1, 3]);
    let report = pool.report(gpu).unwrap();
    assert_eq!((report.pool, report.idle_slots), (Bytes::kib(4), 1));
}

/// A random graph: inputs, computed nodes, aliases of aliases, outputs.
fn graph(seed: u64, backends: &[BackendId]) -> Vec<Node> {
    let mut state = seed | 1;
    let mut nodes: Vec<Node> = Vec::new();
    for index in 0..40usize {
        let pick = random(&mut state);
        let backend = backends[(pick >> 8) as usize % backends.len()];
        let reads = (0..pick % 3).filter(|_| index > 0).map(|_| random(&mut state) as usize % index.max(1)).collect();
        let len = Bytes::new(1 + random(&mut state) % 60_000);
        let of = random(&mut state) as usize % index.max(1);
        let (storage, backend, len) = match pick % 7 {
            0 => (Storage::Input, backend, len),
            1 | 2 if index > 0 => (Storage::Alias(of), nodes[of].backend, Bytes::new(1 + nodes[of].len.count() / 2)),
            _ => (Storage::Computed, backend, len),
        };
        nodes.push(Node { backend, len: len.min(Bytes::new(60_000)), storage, reads, output: pick.is_multiple_of(13) });
    }
    for index in 0..nodes.len() {
        if let Storage::Alias(of) = nodes[index].storage {
            nodes[index].len = nodes[index].len.min(nodes[of].len);
        }
    }
    nodes
}

fn slots(placement: &Placement, nodes: &[Node]) -> Vec<SlotId> {
    (0..nodes.len()).map(|node| placement.slot(node).unwrap()).collect()
}

#[test]
fn a_thousand_rebuilds_get_the_same_slots() {
    let (mut pool, mut memory) = (ClassPool::new(), Memory::new());
    let backends = [pool.add_backend("cuda", unbounded()), pool.add_backend("cpu", unbounded())];
    let graphs: Vec<_> = (1..=4u64).map(|seed| graph(seed * 7919, &backends)).collect();
    let mut firsts = BTreeMap::new();
    let mut created = 0;
    for round in 0..1000usize {
        let which = round * 7 % graphs.len();
        let placement = Placement::of(&graphs[which], &mut pool, |_, _| memory.create()).unwrap();
        let slots = slots(&placement, &graphs[which]);
        assert_eq!(*firsts.entry(which).or_insert_with(|| slots.clone()), slots, "round {round}");
        placement.release(&mut pool).unwrap();
        if round == graphs.len() {
            created = pool.created();
        }
    }
    assert_eq!(pool.created(), created, "after each graph was built once, nothing is created any more");
}

/// Two models take turns, each with four parameter sets, for 200 rounds: what an engine does that swaps.
#[test]
fn two_hundred_swaps_get_the_same_addresses_and_exact_reports() {
    let (mut pool, mut memory) = (ClassPool::new(), Memory::new());
    let gpu = pool.add_backend("cuda", limited(Bytes::mib(512)));
    let mut graphs = GraphCache::<(usize, u64), Placement>::default();
    let mut firsts = BTreeMap::new();
    for round in 0..200usize {
        let model = round % 2;
        pool.set_weights(gpu, Bytes::mib(100 + 50 * model as u64));
        for turn in 0..12u64 {
            let params = (model, turn % 4);
            let nodes = graph(1000 * model as u64 + params.1 + 1, &[gpu]);
            let build = |_: &_| Placement::of(&nodes, &mut pool, |_, _| memory.create());
            let switched = graphs.switch(params, build).unwrap();
            assert_eq!((switched.built, switched.evicted.is_none()), (turn < 4, true), "built once for each set");
            let slots = slots(switched.graph, &nodes);
            assert_eq!(*firsts.entry(params).or_insert_with(|| slots.clone()), slots, "round {round}");
        }
        let report = pool.report(gpu).unwrap();
        let used = report.weights.plus(report.pool).unwrap();
        assert_eq!(report.headroom, Some(Bytes::mib(512).minus(used).unwrap()));
        // The model goes: its graphs first, and their buffers wait for the next one's.
        graphs.drain().into_iter().for_each(|(_, placement)| placement.release(&mut pool).unwrap());
        let report = pool.report(gpu).unwrap();
        assert_eq!((report.live, report.idle_slots), (Bytes::ZERO, pool.created()));
    }
    assert_eq!(graphs.stats(), GraphStats { builds: 200 * 4, reuses: 200 * 8, evictions: 0 });
}

#[test]
fn an_alias_keeps_its_buffer_alive_and_inputs_stand_alone() {
    let (mut pool, mut memory) = (ClassPool::new(), Memory::new());
    let gpu = pool.add_backend("cuda", unbounded());
    let node = |storage, reads: &[usize]| Node {
        backend: gpu,
        len: Bytes::kib(32),
        storage,
        reads: reads.to_vec(),
        output: false,
    };
    let nodes = [
        node(Storage::Computed, &[]),
        node(Storage::Alias(0), &[0]),
        node(Storage::Computed, &[]), // must not get 0's buffer: 1 is read by 4
        node(Storage::Input, &[]),    // filled before 0 runs: must not get any swept buffer
        node(Storage::Computed, &[1, 3]),
        node(Storage::Computed, &[4]),
    ];
    let lives = lives(&nodes).unwrap();
    assert_eq!((lives[0].last, lives[1], lives[2].last), (Some(4), Life { root: 0, last: Some(4) }, Some(2)));
    let placement = Placement::of(&nodes, &mut pool, |_, _| memory.create()).unwrap();
    let slots = slots(&placement, &nodes);
    assert_eq!(slots[0], slots[1]);
    assert!(slots[2] != slots[0] && slots[3] != slots[0] && slots[3] != slots[2]);
    assert_eq!(slots[4], slots[2], "swept, so it serves again");
    // A view that lists nothing it reads still lies in the buffer when it comes about.
    let unread = [node(Storage::Computed, &[]), node(Storage::Computed, &[]), node(Storage::Alias(0), &[])];
    assert_eq!(super::lives(&unread).unwrap()[0].last, Some(2));
    placement.release(&mut pool).unwrap();

    assert_eq!(super::lives(&[node(Storage::Alias(0), &[])]), Err(TopologyError::NotBefore { node: 0, to: 0 }));
    assert_eq!(super::lives(&[node(Storage::Input, &[3])]), Err(TopologyError::NotBefore { node: 0, to: 3 }));
    let long = Node { len: Bytes::kib(33), ..node(Storage::Alias(0), &[]) };
    assert_eq!(super::lives(&[node(Storage::Computed, &[]), long]), Err(TopologyError::BadAlias { node: 1, of: 0 }));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_two_live_nodes_share_a_buffer(seed in any::<u64>()) {
        let (mut pool, mut memory) = (ClassPool::new(), Memory::new());
        let backends = [pool.add_backend("cuda", unbounded()), pool.add_backend("cpu", unbounded())];
        let nodes = graph(seed, &backends);
        let lives = lives(&nodes).unwrap();
        let placement = Placement::of(&nodes, &mut pool, |_, _| memory.create()).unwrap();
        let slots = slots(&placement, &nodes);
        let born = |node: usize| if nodes[node].storage == Storage::Input { 0 } else { node };
        for one in 0..nodes.len() {
            for two in 0..one {
                if lives[one].root == lives[two].root || slots[one] != slots[two] {
                    continue;
                }
                let (one, two) = (lives[one].root, lives[two].root);
                let ends = |node: usize| lives[node].last.unwrap_or(usize::MAX);
                prop_assert!(ends(one) < born(two) || ends(two) < born(one), "nodes {} and {}", one, two);
            }
        }
        prop_assert!(placement.release(&mut pool).is_ok());
        prop_assert_eq!(pool.report(backends[0]).unwrap().live, Bytes::ZERO);
    }

    #[test]
    fn a_failed_build_leaves_the_next_one_the_same(seed in any::<u64>(), fail in 0u64..30) {
        let (mut pool, mut memory) = (ClassPool::new(), Memory::new());
        let backends = [pool.add_backend("cuda", unbounded())];
        let nodes = graph(seed, &backends);
        let undisturbed = {
            let (mut pool, mut memory) = (ClassPool::new(), Memory::new());
            let backends = [pool.add_backend("cuda", unbounded())];
            let nodes = graph(seed, &backends);
            slots(&Placement::of(&nodes, &mut pool, |_, _| memory.create()).unwrap(), &nodes)
        };
        memory.fail_in = Some(fail);
        if let Ok(placement) = Placement::of(&nodes, &mut pool, |_, _| memory.create()) {
            placement.release(&mut pool).unwrap();
        }
        memory.fail_in = None;
        prop_assert_eq!(pool.report(backends[0]).unwrap().live, Bytes::ZERO);
        let placement = Placement::of(&nodes, &mut pool, |_, _| memory.create()).unwrap();
        prop_assert_eq!(slots(&placement, &nodes), undisturbed);
        placement.release(&mut pool).unwrap();
    }
}

/// One operation after the other on two backends, with failures, against a model of the books.
fn random_operations(seed: u64, operations: u64) -> Vec<(u64, u64)> {
    let (mut pool, mut memory) = (ClassPool::new(), Memory::new());
    let budget = Bytes::mib(64);
    let backends = [pool.add_backend("cuda", limited(budget)), pool.add_backend("cpu", limited(budget))];
    pool.set_weights(backends[0], Bytes::mib(16));
    let mut held: Vec<(usize, bool, Bytes, Buf)> = Vec::new();
    let mut state = seed;
    let mut trace = Vec::new();
    let (mut pooled, mut peak) = ([Bytes::ZERO; 2], [Bytes::ZERO; 2]);
    for operation in 0..operations {
        let pick = random(&mut state);
        if pick.is_multiple_of(97) {
            memory.fail_in = Some(pick >> 40 & 3);
        }
        if !held.is_empty() && pick & 1 == 0 {
            let (which, staged, bytes, buf) = held.swap_remove((pick >> 16) as usize % held.len());
            let freed = pool.release(buf).unwrap();
            assert_eq!(freed.is_some(), staged);
            if staged {
                pooled[which] = pooled[which].minus(bytes).unwrap();
            }
        } else {
            let (which, staged) = ((pick >> 8 & 1) as usize, pick >> 9 & 15 == 0);
            let len = Bytes::new(random(&mut state) % (3 << 20));
            let before = operation.is_multiple_of(32).then(|| pool.report(backends[which]));
            let created = pool.created();
            let taken = match staged {
                true => pool.stage(backends[which], len, |_| memory.create()),
                false => pool.take(backends[which], len, |_| memory.create()),
            };
            match taken {
                Ok(buf) => {
                    let bytes = if staged { len } else { SizeClass::of(len).unwrap().bytes() };
                    if pool.created() > created {
                        pooled[which] = pooled[which].plus(bytes).unwrap();
                    }
                    trace.push((operation, buf.slot().number()));
                    held.push((which, staged, bytes, buf));
                }
                Err(_) => {
                    let after = before.is_some().then(|| pool.report(backends[which]));
                    assert_eq!(after, before, "a failure changes nothing");
                }
            }
        }
        if operation.is_multiple_of(5003) {
            for which in 0..2 {
                let freed = pool.trim(backends[which], |memory| memory.is_multiple_of(3));
                assert!(freed.iter().all(|memory| !memory.is_multiple_of(3)));
                pooled[which] = pool.report(backends[which]).unwrap().pool;
            }
        }
        if operation.is_multiple_of(256) {
            for which in 0..2 {
                let report = pool.report(backends[which]).unwrap();
                let live = Bytes::sum(held.iter().filter(|held| held.0 == which).map(|held| held.2)).unwrap();
                peak[which] = peak[which].max(live);
                assert_eq!((report.live, report.pool), (live, pooled[which]));
                assert!(report.peak >= peak[which] && report.live <= report.pool);
                assert!(report.weights.plus(report.pool).unwrap() <= budget, "never above budget");
            }
        }
    }
    trace
}

#[test]
fn a_million_random_operations_keep_the_books_and_repeat_exactly() {
    let one = random_operations(0x9E37_79B9_7F4A_7C15, 1_000_000);
    let two = random_operations(0x9E37_79B9_7F4A_7C15, 100_000);
    assert!(one.len() > 100_000);
    assert_eq!(one[..two.len()], two, "equal operations get equal numbers");
}
