//! What holds for every input, zeros and `u64::MAX` among them.

use proptest::prelude::*;

use super::*;

/// Numbers of every magnitude, the extremes often.
fn number() -> BoxedStrategy<u64> {
    prop_oneof![
        2 => Just(0),
        2 => 0..64_u64,
        4 => 0..(1_u64 << 20),
        4 => 0..(1_u64 << 40),
        1 => any::<u64>(),
        1 => Just(u64::MAX),
    ]
    .boxed()
}

/// Sizes that fit a budget of some GiB now and then.
fn size() -> BoxedStrategy<u64> {
    prop_oneof![1 => Just(0), 6 => 0..(1_u64 << 31), 3 => 0..(1_u64 << 12)].boxed()
}

fn amount(number: BoxedStrategy<u64>) -> impl Strategy<Value = Amount> {
    let blocks = (number.clone(), 0..64_u64, 0..5000_u64, number.clone(), 0..40_u64).prop_map(
        |(block, tokens, floor, most, step)| Amount::Blocks {
            block: Bytes::new(block),
            tokens: Tokens::new(tokens),
            floor: Blocks::new(floor),
            most: Blocks::new(most),
            step: Blocks::new(step),
        },
    );
    prop_oneof![number.prop_map(|bytes| Amount::Bytes(Bytes::new(bytes))), blocks]
}

fn demand(number: BoxedStrategy<u64>) -> impl Strategy<Value = Demand> {
    let need = prop_oneof![4 => Just(Need::Mandatory), 1 => Just(Need::OptionalCache), 1 => Just(Need::Transient)];
    let space = prop_oneof![4 => Just(GPU), 1 => Just("host")];
    (prop::sample::select(&Tier::ALL[..]), space, amount(number), need, 0..100_u32).prop_map(
        |(tier, space, amount, need, name)| Demand { name: format!("line {name}").into(), tier, space, amount, need },
    )
}

fn limits(number: BoxedStrategy<u64>) -> impl Strategy<Value = Limits> {
    let host = prop::option::weighted(0.3, number.clone());
    (number.clone(), host, number.clone(), number.clone(), number, any::<u32>()).prop_map(
        |(budget, host, context, library, held, graphs)| Limits {
            host_budget: host.map(Bytes::new),
            context: Bytes::new(context >> 8),
            library_reserve: Bytes::new(library >> 8),
            held: Bytes::new(held >> 8),
            graphs: graphs % 64,
            graph_bytes: Bytes::new(held >> 16),
            ..Limits::new(GPU, Bytes::new(budget))
        },
    )
}

fn sensible() -> impl Strategy<Value = (Limits, Vec<Demand>)> {
    let budget = prop_oneof![3 => (1_u64 << 28)..(1 << 36), 1 => 0..(1_u64 << 30)];
    (limits(size()), budget, prop::collection::vec(demand(size()), 0..12))
        .prop_map(|(limits, budget, demands)| (Limits { budget: Bytes::new(budget), ..limits }, demands))
}

/// What a plan must have room for, worked out again without the planner.
fn needs(limits: &Limits, demands: &[Demand]) -> [u128; 3] {
    let graphs = u128::from(limits.graphs) * u128::from(limits.graph_bytes.count());
    let graphs = graphs + if limits.graphs == 0 { 0 } else { u128::from(limits.graph_shared.count()) };
    let reserve = [limits.context, limits.library_reserve, limits.held].into_iter().map(|b| u128::from(b.count()));
    let reserve = reserve.sum::<u128>() + graphs;
    let [mut serving, mut loading, mut host] = [reserve, reserve, 0];
    for demand in demands.iter().filter(|demand| demand.need != Need::OptionalCache) {
        let least = match demand.amount {
            Amount::Bytes(bytes) => u128::from(bytes.count()),
            Amount::Blocks { block, floor, .. } => u128::from(block.count()) * u128::from(floor.count()),
        };
        if demand.space != GPU || demand.tier.is_host() {
            host += least;
        } else if demand.need == Need::Transient {
            loading += least;
        } else {
            serving += least;
            loading += if demand.tier == Tier::Pooled { 0 } else { least };
        }
    }
    [serving, loading, host]
}

fn check_plan(limits: &Limits, demands: &[Demand], plan: &MemoryPlan) -> Result<(), TestCaseError> {
    let sum: u128 = plan.lines().iter().map(|line| u128::from(line.charged().count())).sum();
    prop_assert_eq!(sum, u128::from(plan.total().count()));
    prop_assert!(plan.total() <= limits.budget && plan.load_peak() <= limits.budget);
    prop_assert_eq!(plan.total().plus(plan.left()), Ok(limits.budget));
    let by_tier: u128 = Tier::ALL.iter().map(|&tier| u128::from(plan.tier_total(tier).count())).sum();
    prop_assert_eq!(by_tier, sum);
    prop_assert!(limits.host_budget.is_none_or(|budget| plan.host() <= budget));

    for (line, demand) in plan.lines().iter().zip(demands) {
        prop_assert_eq!((&line.name, line.tier, line.need), (&demand.name, demand.tier, demand.need));
        let nothing = line.granted.is_zero() && line.blocks.is_none_or(|blocks| blocks.granted.is_zero());
        prop_assert!(line.granted >= line.asked || (demand.need == Need::OptionalCache && nothing));
        let Some(blocks) = line.blocks else {
            prop_assert!(nothing || line.granted == line.asked);
            continue;
        };
        prop_assert_eq!(Ok(line.granted), blocks.block.times(blocks.granted.count()));
        prop_assert!(blocks.granted <= blocks.most && (nothing || blocks.granted >= blocks.floor));
        // No pool is left short of a step that there is room for.
        let next = blocks.granted.count().saturating_add(blocks.step.count());
        let next = (next - next % blocks.step.count()).min(blocks.most.count()).saturating_sub(blocks.granted.count());
        if line.need == Need::Mandatory && line.charge == Charge::Device && next > 0 {
            prop_assert!(u128::from(next) * u128::from(blocks.block.count()) > u128::from(plan.left().count()));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_plan_is_made_exactly_when_the_least_fits((limits, demands) in sensible()) {
        let [serving, loading, host] = needs(&limits, &demands);
        let fits = serving.max(loading) <= u128::from(limits.budget.count())
            && limits.host_budget.is_none_or(|budget| host <= u128::from(budget.count()));
        match plan(limits, &demands) {
            Ok(plan) => {
                prop_assert!(fits);
                check_plan(&limits, &demands, &plan)?;
            }
            Err(failure) => {
                prop_assert!(!fits);
                prop_assert!(!failure.shortfall().is_zero());
                prop_assert_eq!(failure.requested().beyond(failure.budget()), failure.shortfall());
            }
        }
    }

    #[test]
    fn nothing_panics(limits in limits(number()), demands in prop::collection::vec(demand(number()), 0..6)) {
        match plan(limits, &demands) {
            Ok(plan) => {
                check_plan(&limits, &demands, &plan)?;
                prop_assert!(!plan.to_string().is_empty() && !plan.to_json().is_empty());
            }
            Err(failure) => prop_assert!(!failure.report().is_empty() && !failure.to_json().is_empty()),
        }
    }

    #[test]
    fn equal_input_gives_equal_bytes((limits, demands) in sensible()) {
        let again: Vec<Demand> = demands.iter().map(|d| Demand { name: d.name.to_string().into(), ..d.clone() }).collect();
        match (plan(limits, &demands), plan(limits, &again)) {
            (Ok(one), Ok(two)) => {
                prop_assert_eq!(one.to_string(), two.to_string());
                prop_assert_eq!(one.to_json(), two.to_json());
                prop_assert_eq!(one, two);
            }
            (Err(one), Err(two)) => {
                prop_assert_eq!(one.report(), two.report());
                prop_assert_eq!(one.to_json(), two.to_json());
                prop_assert_eq!(one, two);
            }
            _ => prop_assert!(false, "one fits and the other does not"),
        }
    }

    #[test]
    fn a_transient_never_changes_what_stays((limits, demands) in sensible()) {
        let resident: Vec<Demand> = demands.iter().filter(|d| d.need != Need::Transient).cloned().collect();
        if let Ok(with) = plan(limits, &demands) {
            let without = fits(Limits { host_budget: None, ..limits }, &resident);
            let stays = with.lines().iter().filter(|line| line.need != Need::Transient && line.charge == Charge::Device);
            let alone = without.lines().iter().filter(|line| line.charge == Charge::Device);
            prop_assert!(stays.eq(alone));
        }
    }

    #[test]
    fn more_budget_never_turns_a_plan_into_a_refusal((limits, demands) in sensible(), more in size()) {
        if plan(limits, &demands).is_ok() {
            let budget = limits.budget.plus(Bytes::new(more)).unwrap_or(Bytes::MAX);
            let richer = plan(Limits { budget, ..limits }, &demands);
            prop_assert!(richer.is_ok());
        }
    }

    #[test]
    fn the_budget_that_is_asked_for_is_exact((limits, demands) in sensible()) {
        let limits = Limits { host_budget: None, ..limits };
        if let Err(failure) = plan(limits, &demands) {
            let lever = failure.levers().iter().find(|lever| lever.knob == Knob::Budget).expect("always there");
            prop_assert!(lever.fits);
            let Value::Bytes(enough) = lever.to else { panic!("a budget is bytes") };
            let just_fits = plan(Limits { budget: enough, ..limits }, &demands);
            prop_assert!(just_fits.is_ok());
            let short = enough.minus(Bytes::new(1)).expect("more than nothing was needed");
            let one_short = plan(Limits { budget: short, ..limits }, &demands);
            prop_assert!(one_short.is_err());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn levers_of_absurd_configurations_do_not_panic(
        [max_batch, length, block, chunk, depth, layers] in [number(), number(), number(), number(), number(), number()],
        budget in number(),
        all in any::<bool>(),
    ) {
        let config = Config {
            max_batch,
            max_seq_len: Tokens::new(length),
            block_tokens: Tokens::new(block),
            prefill_chunk: Tokens::new(chunk),
            speculative_depth: depth,
            layers: Layers::new(layers),
            gpu_layers: (!all).then_some(Layers::new(layers / 2)),
            ..small_config()
        };
        let Ok(demands) = small_model(&config) else { return Ok(()) };
        let limits = Limits::new(GPU, Bytes::new(budget));
        let input = PlanInput { reprice: Some(&small_model), ..PlanInput::new(limits, config, &demands) };
        if let Err(failure) = plan_memory(&input) {
            let absurd = matches!(failure.refusal(), Refusal::Overflow(_));
            prop_assert!(!failure.report().is_empty() && failure.levers().is_empty() == absurd);
        }
    }

    #[test]
    fn every_lever_that_is_said_to_fit_fits(budget in 200..4000_u64, locked in any::<[bool; 8]>()) {
        let [max_batch, max_seq_len, prefill_chunk, kv_dtype, weight_caches, vision, speculative_depth, gpu_layers] = locked;
        let locks = Locks {
            max_batch, max_seq_len, prefill_chunk, kv_dtype, weight_caches, vision, speculative_depth, gpu_layers,
            budget: false,
        };
        let Err(failure) = plan_small(mib(budget), locks) else { return Ok(()) };
        let fits_with = |levers: &[Lever]| {
            let (mut limits, mut config) = (*failure.limits(), *failure.config());
            levers.iter().for_each(|lever| lever.apply(&mut limits, &mut config));
            let demands = small_model(&config).expect("in range");
            plan_memory(&PlanInput::new(limits, config, &demands)).map(|plan| (plan.config().to_owned(), plan.total()))
        };
        for lever in failure.levers() {
            prop_assert_eq!(fits_with(&[*lever]).is_ok(), lever.fits, "{:?}", lever);
        }
        let enough = failure.levers().iter().any(|lever| lever.fits && !lever.locked && lever.knob != Knob::Budget);
        prop_assert!(failure.pair().is_none() || !enough);
        if let Some(pair) = failure.pair() {
            prop_assert!(pair.levers.iter().all(|lever| !lever.locked && !lever.fits));
            prop_assert_eq!(fits_with(&pair.levers).map(|(config, _)| config).ok(), Some(pair.config));
        }
        if let Some(all) = failure.combination() {
            prop_assert!(!enough && failure.pair().is_none() && all.levers.len() > 1);
            prop_assert!(all.levers.iter().all(|lever| !lever.locked && !lever.fits));
            prop_assert_eq!(fits_with(&all.levers).map(|(config, _)| config).ok(), Some(all.config));
        }
        let said = [failure.pair().is_some(), failure.combination().is_some(), failure.bottom().is_some()];
        prop_assert!(enough || said.contains(&true) || !locked.contains(&false));
    }
}
