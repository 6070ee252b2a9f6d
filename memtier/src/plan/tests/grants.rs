//! Who gets how much, and in which order.

use super::*;

#[test]
fn the_pool_floor_is_met_before_optional_caches() {
    // 100 MiB for a floor of 80 and a cache of 30: only one of them fits, and it is the pool.
    let cache = Demand::bytes("cache", Tier::ModelResident, GPU, mib(30)).optional();
    let plan = fits(Limits::new(GPU, mib(100)), &[cache, kv(mib(1), 80, 200)]);
    assert_eq!(granted(&plan, "cache"), Bytes::ZERO);
    assert_eq!(blocks(&plan, "KV"), 100);
}

#[test]
fn optional_caches_are_met_before_the_pool_grows() {
    let cache = Demand::bytes("cache", Tier::ModelResident, GPU, mib(30)).optional();
    let plan = fits(Limits::new(GPU, mib(100)), &[kv(mib(1), 20, 200), cache]);
    assert_eq!(granted(&plan, "cache"), mib(30));
    assert_eq!(blocks(&plan, "KV"), 70);
}

#[test]
fn the_pool_never_gets_more_than_the_configuration_can_use() {
    let plan = fits(Limits::new(GPU, mib(1000)), &[kv(mib(1), 20, 200)]);
    assert_eq!(blocks(&plan, "KV"), 200);
    assert_eq!(plan.left(), mib(800));
}

#[test]
fn a_pool_below_its_floor_is_refused_although_it_fits() {
    let failure = refused(Limits::new(GPU, mib(100)), &[weights(mib(40)), kv(mib(1), 61, 200)]);
    assert_eq!(failure.shortfall(), mib(1));
    let pool = failure.below_floor().next().expect("the pool is named");
    assert_eq!((&*pool.name, pool.blocks.map(|b| b.granted)), ("KV", Some(Blocks::new(60))));
    assert!(plan(Limits::new(GPU, mib(101)), &[weights(mib(40)), kv(mib(1), 61, 200)]).is_ok());
}

#[test]
fn an_expert_cache_gives_way_to_the_pool() {
    let experts = Demand {
        amount: Amount::elastic_pool(mib(10), Tokens::ZERO, Blocks::new(1), Blocks::new(64)),
        ..Demand::bytes("experts", Tier::ModelResident, GPU, Bytes::ZERO)
    };
    let plan = fits(Limits::new(GPU, mib(300)), &[experts, kv(mib(1), 20, 200)]);
    assert_eq!((blocks(&plan, "KV"), blocks(&plan, "experts")), (200, 10));
}

#[test]
fn an_optional_cache_made_of_blocks_gets_what_fits_or_nothing() {
    let cache = |floor| Demand {
        amount: Amount::elastic_pool(mib(7), Tokens::ZERO, Blocks::new(floor), Blocks::new(64)),
        ..Demand::bytes("cache", Tier::ModelResident, GPU, Bytes::ZERO).optional()
    };
    let limits = Limits::new(GPU, mib(100));
    assert_eq!(blocks(&fits(limits, &[kv(mib(1), 20, 200), cache(3)]), "cache"), 11);
    let plan = fits(limits, &[kv(mib(1), 20, 200), cache(12)]);
    assert_eq!((blocks(&plan, "cache"), blocks(&plan, "KV")), (0, 100));
}

#[test]
fn two_pools_grow_in_step() {
    // A request needs blocks of the model and of the draft model: neither may starve the other.
    let draft = Demand { name: "draft KV".into(), ..kv(mib(1), 10, 110) };
    let plan = fits(Limits::new(GPU, mib(330)), &[kv(mib(4), 10, 110), draft]);
    assert_eq!((blocks(&plan, "KV"), blocks(&plan, "draft KV")), (66, 66));
    assert_eq!(plan.left(), Bytes::ZERO);
}

#[test]
fn a_growable_pool_is_granted_whole_commit_chunks() {
    let pool = |floor, most| {
        Demand::pool(
            "KV",
            GPU,
            Amount::Blocks {
                block: mib(1),
                tokens: Tokens::new(16),
                floor: Blocks::new(floor),
                most: Blocks::new(most),
                step: Blocks::new(32),
            },
        )
    };
    assert_eq!(blocks(&fits(Limits::new(GPU, mib(101)), &[pool(10, 200)]), "KV"), 96);
    // Neither the floor nor the most are cut to a chunk.
    assert_eq!(blocks(&fits(Limits::new(GPU, mib(101)), &[pool(99, 200)]), "KV"), 99);
    assert_eq!(blocks(&fits(Limits::new(GPU, mib(500)), &[pool(10, 200)]), "KV"), 200);
}

#[test]
fn a_growable_pool_reserves_one_range_for_all_it_may_become() {
    // A pool of 256 that grows to 1,024 by adding regions cannot hold one run of 1,024.
    let plan = fits(Limits::new(GPU, mib(600)), &[kv(mib(1), 256, 1024)]);
    let pool = plan.line("KV").and_then(|line| line.blocks).expect("blocks");
    assert_eq!(pool.granted, Blocks::new(600));
    assert_eq!(pool.reservation(), Ok(mib(1024)));
    // Who advertises 1,024 at once is not served by 256.
    assert_eq!(refused(Limits::new(GPU, mib(256)), &[kv(mib(1), 1024, 1024)]).shortfall(), mib(768));
}

#[test]
fn host_tiers_and_other_spaces_are_listed_and_not_charged() {
    let demands = [
        weights(mib(50)),
        Demand::bytes("pinned ring", Tier::HostPinned, GPU, mib(500)),
        Demand::bytes("staging", Tier::HostStaging, "host", mib(700)),
        Demand::bytes("layers on the CPU", Tier::ModelResident, "host", mib(900)),
    ];
    let limits = Limits::new(GPU, mib(50));
    let plan = fits(limits, &demands);
    assert_eq!((plan.total(), plan.host()), (mib(50), mib(2100)));
    assert_eq!(plan.lines().len(), 4);

    let failure = refused(Limits { host_budget: Some(mib(2000)), ..limits }, &demands);
    assert_eq!((failure.refusal(), failure.shortfall()), (&Refusal::Host, mib(100)));
}

#[test]
fn on_a_host_backend_the_device_space_is_the_host() {
    let demands = [
        Demand::bytes("model weights", Tier::ModelResident, "host", mib(50)),
        Demand::bytes("staging", Tier::HostStaging, "host", mib(700)),
    ];
    assert_eq!(fits(Limits::new("host", mib(50)), &demands).total(), mib(50));
}

#[test]
fn the_reserve_comes_off_the_top_and_keeps_its_names() {
    let limits = Limits {
        context: mib(10),
        library_reserve: mib(20),
        library_source: ReserveSource::Measured,
        held: mib(30),
        graphs: 4,
        graph_bytes: mib(2),
        graph_shared: mib(5),
        ..Limits::new(GPU, mib(100))
    };
    let plan = fits(limits, &[kv(mib(1), 1, 1000)]);
    assert_eq!(blocks(&plan, "KV"), 100 - 10 - 20 - 13 - 30);
    assert_eq!(plan.tier_total(Tier::Reserve), mib(73));
    assert_eq!(granted(&plan, "library reserve (measured)"), mib(20));
    assert_eq!(granted(&plan, "graphs"), mib(13));
    assert_eq!(&*plan.lines()[0].name, "KV");
}

#[test]
fn a_transient_needs_room_while_loading_and_takes_nothing_afterwards() {
    let limits = Limits::new(GPU, mib(100));
    let without = fits(limits, &[weights(mib(40)), kv(mib(1), 10, 200)]);
    let staging = Demand::bytes("staging", Tier::ModelResident, GPU, mib(60)).transient();
    let with = fits(limits, &[weights(mib(40)), kv(mib(1), 10, 200), staging.clone()]);
    assert_eq!(blocks(&with, "KV"), blocks(&without, "KV"));
    assert_eq!((with.transient(), with.load_peak(), with.total()), (mib(60), mib(100), without.total()));

    let failure = refused(limits, &[weights(mib(41)), kv(mib(1), 10, 200), staging]);
    assert_eq!((failure.refusal(), failure.shortfall()), (&Refusal::Load, mib(1)));
}

#[test]
fn a_refusal_shows_where_the_budget_ended() {
    let demands = [
        kv(mib(1), 10, 20),
        Demand::bytes("workspaces", Tier::EnginePersistent, GPU, mib(30)),
        weights(mib(80)),
        Demand::bytes("scratch", Tier::ForwardScratch, GPU, mib(5)),
    ];
    let failure = refused(Limits::new(GPU, mib(100)), &demands);
    let granted: Vec<u64> = failure.lines().iter().map(|line| line.granted.in_mib()).collect();
    assert_eq!(granted, [0, 30, 70, 0]);
}

#[test]
fn fixed_pools_come_before_the_floor_of_elastic_ones() {
    let window = Demand::pool("window", GPU, Amount::fixed_pool(mib(1), Tokens::new(16), Blocks::new(40)));
    let failure = refused(Limits::new(GPU, mib(100)), &[kv(mib(1), 80, 200), window]);
    let granted: Vec<u64> = failure.lines().iter().map(|line| line.granted.in_mib()).collect();
    assert_eq!(granted, [60, 40]);
    assert_eq!(failure.below_floor().map(|line| line.name.to_string()).collect::<Vec<_>>(), ["KV"]);
}

#[test]
fn absurd_sizes_are_a_typed_refusal_that_names_the_line() {
    let huge = kv(Bytes::MAX, 2, 2);
    assert_eq!(refused(Limits::new(GPU, Bytes::MAX), &[huge]).refusal(), &Refusal::Overflow("KV".into()));
    let failure = refused(Limits::new(GPU, Bytes::MAX), &[weights(Bytes::MAX), weights(Bytes::new(1))]);
    assert_eq!(failure.refusal(), &Refusal::Overflow("model weights".into()));
    let graphs = Limits { graphs: 2, graph_bytes: Bytes::MAX, ..Limits::new(GPU, mib(1)) };
    assert_eq!(refused(graphs, &[]).refusal(), &Refusal::Overflow("graphs".into()));
}

#[test]
fn nothing_in_nothing_fits() {
    let plan = fits(Limits::new(GPU, Bytes::ZERO), &[kv(Bytes::ZERO, 0, 5), weights(Bytes::ZERO)]);
    assert_eq!((plan.total(), plan.left(), blocks(&plan, "KV")), (Bytes::ZERO, Bytes::ZERO, 5));
    assert!(fits(Limits::new(GPU, Bytes::ZERO), &[]).lines().is_empty());
}

#[test]
fn the_largest_budget_meets_the_largest_demand() {
    let plan = fits(Limits::new(GPU, Bytes::MAX), &[weights(Bytes::MAX), kv(Bytes::new(1), 0, u64::MAX)]);
    assert_eq!((plan.total(), blocks(&plan, "KV")), (Bytes::MAX, 0));
    let pools = [kv(Bytes::new(3), 0, u64::MAX), kv(Bytes::new(5), 0, u64::MAX)];
    let plan = fits(Limits::new(GPU, Bytes::MAX), &pools);
    assert!(plan.left() < Bytes::new(3), "{plan}");
}
