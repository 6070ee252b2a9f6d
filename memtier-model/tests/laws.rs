//! What holds for every model and configuration: equal questions get equal bytes, no plan is over its budget, more budget
//! is never worse, more context never needs less, and a lever that is said to fit fits.
//!
//! A thousand questions here; `MEMTIER_LAWS=100000` asks as many as one wants, always the same ones.

mod zoo;

use memtier::plan::{
    Amount, Config, Demand, KvDtype, Limits, MemoryPlan, Need, PlanFailure, PlanInput, Tier, plan_memory,
};
use memtier::{Bytes, Tokens};
use memtier_model::ModelLayout;
use memtier_model::demands::Pricing;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn within(&mut self, least: u64, most: u64) -> u64 {
        least + self.next() % (most - least + 1)
    }
}

fn questions() -> u64 {
    std::env::var("MEMTIER_LAWS").ok().and_then(|text| text.parse().ok()).unwrap_or(1000)
}

fn layouts() -> Vec<ModelLayout> {
    // The largest ones are asked about in reference.rs; here many questions count.
    let skipped = ["deepseek-v3", "qwen3-next-80b"];
    zoo::ALL.iter().filter(|entry| !skipped.contains(&entry.0)).map(|entry| (entry.1)().layout()).collect()
}

fn question(random: &mut Random, pricing: &Pricing<'_>) -> (Limits, Config) {
    const DTYPES: [KvDtype; 4] = [KvDtype::F16, KvDtype::Fp8, KvDtype::Q8_0, KvDtype::Q4_0];
    let config = Config {
        max_batch: random.within(1, 64),
        max_seq_len: Tokens::new(random.within(1, 131_072)),
        block_tokens: Tokens::new([1, 16, 32, 256][random.within(0, 3) as usize]),
        prefill_chunk: Tokens::new(random.within(1, 8192)),
        kv_dtype: DTYPES[random.within(0, 3) as usize],
        speculative_depth: random.within(0, 1) * random.within(0, 8),
        ..pricing.config()
    };
    // Around what the weights take, so that about half fit.
    let weights = pricing.layout().weight_bytes(|_| true);
    let budget = weights / 2 + random.next() % (weights * 2);
    let (context, reserve) = (Bytes::mib(random.within(0, 600)), Bytes::mib(random.within(0, 400)));
    (Limits { context, library_reserve: reserve, ..Limits::new("cuda", Bytes::new(budget)) }, config)
}

fn ask(pricing: &Pricing<'_>, limits: Limits, config: Config) -> Result<MemoryPlan, PlanFailure> {
    let demands = pricing.demands(&config).expect("in range");
    let reprice = |config: &Config| pricing.demands(config);
    plan_memory(&PlanInput { reprice: Some(&reprice), ..PlanInput::new(limits, config, &demands) })
}

fn text(answer: &Result<MemoryPlan, PlanFailure>) -> [String; 2] {
    match answer {
        Ok(plan) => [plan.to_string(), plan.to_json()],
        Err(failure) => [failure.report(), failure.to_json()],
    }
}

/// What the configuration takes when every pool gets all that it can use.
fn whole(demands: &[Demand]) -> u128 {
    let mandatory = demands.iter().filter(|demand| demand.need == Need::Mandatory && demand.space == "cuda");
    mandatory
        .map(|demand| match demand.amount {
            Amount::Bytes(bytes) => u128::from(bytes.count()),
            Amount::Blocks { block, floor, most, .. } => {
                u128::from(block.count()) * u128::from(most.max(floor).count())
            }
        })
        .sum()
}

fn pooled(plan: &MemoryPlan) -> Vec<u64> {
    let pools = plan.lines().iter().filter(|line| line.tier == Tier::Pooled);
    pools.filter_map(|line| line.blocks).map(|blocks| blocks.granted.count()).collect()
}

#[test]
fn laws_hold_for_every_model() {
    let layouts = layouts();
    let (mut random, mut fit) = (Random(7), 0);
    for number in 0..questions() {
        let layout = &layouts[random.within(0, layouts.len() as u64 - 1) as usize];
        let pricing = Pricing::new(layout, "cuda");
        let (limits, config) = question(&mut random, &pricing);
        let name = format!("question {number}: {} {limits:?} {config:?}", layout.architecture);

        let answer = ask(&pricing, limits, config);
        // Priced again from the start, by its own name and not by its place in memory.
        assert_eq!(text(&answer), text(&ask(&Pricing::new(&layout.clone(), "cuda"), limits, config)), "{name}");

        let more = Limits { budget: limits.budget.plus(Bytes::new(random.next() >> 30)).expect("in range"), ..limits };
        let richer = ask(&pricing, more, config);
        let longer = Config {
            max_seq_len: config.max_seq_len.plus(Tokens::new(random.within(1, 5000))).expect("in range"),
            ..config
        };
        let [here, there] = [&config, &longer].map(|config| whole(&pricing.demands(config).expect("in range")));
        assert!(here <= there, "{name}");
        match answer {
            Ok(plan) => {
                fit += 1;
                assert!(plan.total() <= limits.budget && plan.load_peak() <= limits.budget, "{name}");
                let richer = richer.unwrap_or_else(|failure| panic!("{name}: {}", failure.report()));
                for (less, more) in pooled(&plan).into_iter().zip(pooled(&richer)) {
                    assert!(less <= more, "{name}");
                }
            }
            Err(failure) => {
                assert!(ask(&pricing, limits, longer).is_err(), "{name}");
                let pair = failure.pair().map(|pair| pair.config);
                for config in pair.into_iter().chain(failure.combination().map(|all| all.config)) {
                    assert!(ask(&pricing, limits, config).is_ok(), "{name} {config:?}");
                }
                for lever in failure.levers() {
                    let (mut limits, mut config) = (limits, config);
                    lever.apply(&mut limits, &mut config);
                    assert_eq!(ask(&pricing, limits, config).is_ok(), lever.fits, "{name} {lever:?}");
                }
            }
        }
    }
    assert!(fit * 5 > questions() && fit < questions(), "{fit} of {} fit: the questions are one-sided", questions());
}

#[test]
fn a_plan_takes_microseconds() {
    // 94 layers of experts, and the dense card. Generous: this is an unoptimised build on a machine that does other things.
    for (name, model, most) in [
        ("dense", zoo::qwen3(zoo::QWEN3_4B, memtier_model::TensorType::Q8_0), 2_000),
        ("experts", zoo::gpt_oss(94, 128), 20_000),
    ] {
        let layout = model.layout();
        let pricing = Pricing::new(&layout, "cuda");
        let config = Config { max_batch: 8, ..pricing.config() };
        let demands = pricing.demands(&config).expect("in range");
        let limits = Limits::new("cuda", Bytes::gib(400));
        let input = PlanInput::new(limits, config, &demands);
        let time = |run: &dyn Fn()| {
            let start = std::time::Instant::now();
            (0..100).for_each(|_| run());
            start.elapsed().as_nanos() / 100
        };
        let plan = time(&|| drop(plan_memory(&input)));
        let price = time(&|| drop(pricing.demands(&config)));
        println!("{name}: plan_memory {plan} ns, demands {price} ns");
        assert!(plan < most * 1000 && price < most * 1000, "{name}: {plan} ns, {price} ns");
    }
}
