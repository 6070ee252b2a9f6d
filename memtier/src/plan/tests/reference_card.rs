//! The cards and figures the design was measured on, as planner tests.
//!
//! A 32,607 MiB card with 1,679.6 MiB of context and a library reserve of 3,900 MiB; Qwen3-4B (36 layers, 8 KV heads of
//! 128) at batch 8 x 4096 in blocks of 16.

use super::*;

const CONTEXT: u64 = 16_796;

fn qwen3_4b(dtype: KvDtype) -> Bytes {
    let layers = [KvLayer::heads(8, 128, dtype); 36];
    let group =
        KvGroup { layers: &layers, block_tokens: Tokens::new(16), window: None, prefill_chunk: Tokens::new(512) };
    group.block_bytes().expect("in range")
}

fn card(budget: Bytes) -> Limits {
    Limits {
        context: tenths(CONTEXT),
        library_reserve: mib(3900),
        library_source: ReserveSource::Measured,
        ..Limits::new(GPU, budget)
    }
}

/// The reference configuration: weights 4,076 MiB, weight caches 2,158 MiB that may be left out, workspaces 397 MiB,
/// scratch 64 MiB, and a KV pool that must hold 16,384 tokens and can use 8 x 4096.
fn dense(dtype: KvDtype) -> Vec<Demand> {
    vec![
        weights(mib(4076)),
        Demand::bytes("weight caches", Tier::ModelResident, GPU, mib(2158)).optional(),
        Demand::bytes("workspaces", Tier::EnginePersistent, GPU, mib(397)),
        Demand::bytes("scratch", Tier::ForwardScratch, GPU, mib(64)),
        kv(qwen3_4b(dtype), 1024, 2048),
    ]
}

#[test]
fn the_dense_card_gets_exactly_what_it_can_use() {
    // Context 1,679.6, what the GEMM warm-up took 676 and the upload 4,700 are gone: 25,551 MiB to distribute.
    let gone = mib(676 + 4700);
    let distributable = mib(32607).beyond(tenths(CONTEXT)).beyond(gone);
    assert_eq!(distributable.count() / (1 << 20), 25_551);

    let demands = [
        Demand::bytes("weight caches", Tier::ModelResident, GPU, mib(2397)),
        Demand::bytes("workspaces", Tier::EnginePersistent, GPU, mib(397)),
        kv(qwen3_4b(KvDtype::Fp8), 256, 2048),
    ];
    let plan = fits(Limits { held: gone, ..card(mib(32607)) }, &demands);
    assert_eq!(blocks(&plan, "KV"), 2048);
    assert_eq!(granted(&plan, "KV"), mib(2304));
    assert_eq!(plan.left(), distributable.beyond(mib(3900 + 397 + 2397 + 2304)));
}

#[test]
fn on_sixteen_gib_the_pool_is_between_its_floor_and_its_need() {
    let plan = fits(card(mib(16 * 1024)), &dense(KvDtype::F16));
    // (16384 - 1679.6 - 3900 - 397 - 4076 - 64 - 2158) MiB in blocks of 2.25 MiB.
    assert_eq!(blocks(&plan, "KV"), 1826);
    assert_eq!(granted(&plan, "weight caches"), mib(2158));
    let tokens = plan.line("KV").and_then(|line| line.blocks).expect("blocks").capacity().expect("in range");
    assert!(tokens > Tokens::new(16_384) && tokens < Tokens::new(8 * 4096), "{tokens:?}");
}

#[test]
fn twelve_gib_refuse() {
    let failure = refused(card(mib(12 * 1024)), &dense(KvDtype::F16));
    // 1679.6 + 3900 + 397 + 4076 + 64 + 2304 of 12288: the optional caches are not what it fails on.
    assert_eq!(failure.shortfall().in_mib(), 133);
    assert_eq!(failure.below_floor().count(), 1);
}

#[test]
fn a_plan_that_ignores_the_reserve_gives_away_memory_that_is_not_there() {
    let honest = fits(card(mib(16 * 1024)), &dense(KvDtype::F16));
    let limits = Limits { library_reserve: Bytes::ZERO, ..card(mib(16 * 1024)) };
    let blind = fits(limits, &dense(KvDtype::F16));
    assert_eq!((blocks(&honest, "KV"), blocks(&blind, "KV")), (1826, 2048));
    // Once the libraries take their share, what was planned exceeds the card.
    assert!(blind.total() > mib(16 * 1024 - 3900));
    assert!(honest.total() <= mib(16 * 1024));
}

#[test]
fn load_headroom_does_not_shrink_the_pool() {
    // Seen: 128 blocks granted instead of 2,048 with 4.7 GiB free, because what the load needed for a while was charged
    // for good. Whatever the batch, the pool gets what it would get without the load.
    let staging = Demand::bytes("upload staging", Tier::ModelResident, GPU, mib(4700)).transient();
    for batch in 1..=64 {
        let mut demands = dense(KvDtype::Fp8);
        demands.pop();
        demands.push(kv(qwen3_4b(KvDtype::Fp8), 256, 256 * batch));
        let without = fits(card(mib(16 * 1024)), &demands);
        demands.push(staging.clone());
        let with = fits(card(mib(16 * 1024)), &demands);
        assert_eq!(blocks(&with, "KV"), blocks(&without, "KV"), "batch {batch}");
        assert_eq!(with.total(), without.total(), "batch {batch}");
        assert!(blocks(&with, "KV") == 256 * batch || with.left() < qwen3_4b(KvDtype::Fp8), "batch {batch}");
    }
}

#[test]
fn the_last_tenant_of_a_full_card_gets_its_share() {
    // Seen: gpt-oss-20b at its full context of 131,072 took every byte for KV and caches, and a workspace of 31.64 MiB
    // failed on a 32 GiB card. 49,152 bytes of KV a token, batch 8, caches 5,811.6 MiB.
    let block = Bytes::new(49_152 * 16);
    let workspace = Bytes::new(3164 * (1 << 20) / 100);
    let demands = [
        kv(block, 8192, 65_536),
        Demand::bytes("decode caches", Tier::ModelResident, GPU, tenths(58_116)).optional(),
        weights(mib(3708)),
        Demand::bytes("dequantisation", Tier::EnginePersistent, GPU, workspace),
    ];
    let plan = fits(Limits { held: mib(676), ..card(mib(32_607)) }, &demands);
    assert_eq!(granted(&plan, "dequantisation"), workspace);
    assert_eq!(granted(&plan, "decode caches"), tenths(58_116));
    assert!((8192..25_382).contains(&blocks(&plan, "KV")), "{plan}");
    for line in plan.lines() {
        assert!(line.granted >= line.asked, "{} is short", line.name);
    }
    assert!(plan.total() <= plan.budget());
}

#[test]
fn windowed_layers_are_charged_their_window() {
    // 24 of 36 layers see 1,024 tokens: at 32,768 tokens a sequence they hold 97 blocks instead of 2,048.
    let layers = [KvLayer::heads(8, 128, KvDtype::F16); 24];
    let windowed = KvGroup {
        layers: &layers,
        block_tokens: Tokens::new(16),
        window: Some(Tokens::new(1024)),
        prefill_chunk: Tokens::new(512),
    };
    let demand = windowed.demand("window", GPU, 8, Tokens::new(32_768)).expect("in range");
    let plan = fits(card(mib(32_607)), &[demand]);
    assert_eq!(blocks(&plan, "window"), 8 * 97);
}

#[test]
fn state_slabs_are_charged_for_every_sequence_and_the_batch_is_the_lever() {
    // 64 slots of 77 MiB and 40 MiB beside, KV of 16 layers of 4 heads of 256 in 4 bits and a scale: 9,683 MiB left after
    // the upload. Refused; the lever counts the slabs.
    let price = |config: &Config| {
        let slots = Blocks::new(config.max_batch);
        Ok(vec![
            Demand::bytes("weight caches", Tier::ModelResident, GPU, mib(1602)),
            Demand::bytes("workspaces", Tier::EnginePersistent, GPU, mib(949 + 40)),
            Demand::pool("state", GPU, Amount::fixed_pool(mib(77), Tokens::ZERO, slots)),
            kv(Bytes::new((16 * 4 * 256 + 1024) * 16), 1024, 256 * config.max_batch),
        ])
    };
    let config = Config { max_batch: 64, ..Config::default() };
    let demands = price(&config).expect("in range");
    let limits = Limits { library_reserve: mib(3900), ..Limits::new(GPU, mib(9683)) };
    let failure = plan_memory(&PlanInput { reprice: Some(&price), ..PlanInput::new(limits, config, &demands) })
        .expect_err("over by the state");
    let lever = failure.levers().iter().find(|lever| lever.knob == Knob::MaxBatch).expect("the batch");
    assert!(lever.fits);
    assert_eq!(lever.to, Value::Count((9683 - 3900 - 1602 - 989 - 272) / 77));
}

#[test]
fn experts_and_their_scales_leave_the_cache_its_need() {
    // Qwen3-Coder-30B-A3B in four bits, batch 8 x 4096: 48 layers of 4 KV heads of 128. Weights 15,467.4 MiB, scale
    // factors 1,800.5, workspaces 507.1, and 676 gone to the GEMM warm-up.
    let layers = [KvLayer::heads(4, 128, KvDtype::Fp8); 48];
    let group =
        KvGroup { layers: &layers, block_tokens: Tokens::new(16), window: None, prefill_chunk: Tokens::new(512) };
    let demands = [
        weights(tenths(154_674)),
        Demand::bytes("scale factors", Tier::ModelResident, GPU, tenths(18_005)),
        Demand::bytes("workspaces", Tier::EnginePersistent, GPU, tenths(5071)),
        group.demand("KV", GPU, 8, Tokens::new(4096)).expect("in range"),
    ];
    let plan = fits(Limits { held: mib(676), ..card(mib(32_607)) }, &demands);
    assert_eq!((blocks(&plan, "KV"), granted(&plan, "KV")), (2048, mib(1536)));
    // 32,607 - 1679.6 - 3900 - 676 - 507.1 - 15,467.4 - 1800.5 - 1536.
    assert_eq!(plan.left().count() / (1 << 20), 7040);
}

#[test]
fn a_vision_tower_is_charged_and_is_a_lever() {
    // Gemma 3 4B, batch 4 x 4096: weights 2,367.6 MiB, weight caches 263 + 29.2 + 5,185, workspaces 452.4, a tower of
    // 1,610 that may never see an image, 676 gone to the warm-up.
    let price = |config: &Config| {
        let mut demands = vec![
            weights(tenths(23_676)),
            Demand::bytes("weight caches", Tier::ModelResident, GPU, tenths(2630 + 292 + 51_850)),
            Demand::bytes("workspaces", Tier::EnginePersistent, GPU, tenths(4524)),
        ];
        if config.vision {
            demands.push(Demand::bytes("vision tower", Tier::ModelResident, GPU, mib(1610)));
        }
        // 34 layers of 4 heads of 256, every sixth without a window.
        for (count, window) in [(5, None), (29, Some(Tokens::new(1024)))] {
            let layers = vec![KvLayer::heads(4, 256, config.kv_dtype); count];
            let group =
                KvGroup { layers: &layers, block_tokens: Tokens::new(16), window, prefill_chunk: Tokens::new(512) };
            demands.push(group.demand("KV", GPU, config.max_batch, config.max_seq_len)?);
        }
        Ok(demands)
    };
    let config = Config { max_batch: 4, vision: true, ..Config::default() };
    let with = price(&config).expect("in range");
    let limits = Limits { held: mib(676), ..card(mib(32_607)) };
    let plan = fits(limits, &with);
    assert_eq!(granted(&plan, "vision tower"), mib(1610));
    // Four sequences of 256 blocks in the layers that see everything, of 97 in those with a window.
    assert_eq!(plan.tier_total(Tier::Pooled), Bytes::new(2 * 2 * 1024 * 16 * (5 * 1024 + 29 * 4 * 97)));
    // One MiB less than it takes: the tower is what an operator gives up first.
    let short = Limits { budget: plan.total().beyond(mib(1)), ..limits };
    let mut at_floor = short;
    at_floor.budget =
        at_floor.budget.beyond(plan.line("KV").map_or(Bytes::ZERO, |line| line.granted.beyond(line.asked)));
    let failure = plan_memory(&PlanInput { reprice: Some(&price), ..PlanInput::new(at_floor, config, &with) })
        .expect_err("one MiB short of the floor");
    let lever = failure.levers().iter().find(|lever| lever.knob == Knob::Vision).expect("the tower");
    assert!(lever.fits);
    assert_eq!(lever.frees, mib(1610));
}
