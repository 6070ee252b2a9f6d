//! The texts, whole: what an operator reads.

use super::*;

const CARD: u64 = 32_607;

/// The design's example: Qwen3-Coder-30B-A3B in NVFP4 whose KV pool must hold batch 8 x 4096 at once.
fn coder(config: &Config) -> Result<Vec<Demand>, Overflow> {
    let layers = [KvLayer::heads(16, 128, config.kv_dtype); 48];
    let group = KvGroup {
        layers: &layers,
        block_tokens: config.block_tokens,
        window: None,
        prefill_chunk: config.prefill_chunk,
    };
    let all = group.blocks_for_batch(config.max_batch, config.max_seq_len)?;
    Ok(vec![
        weights(mib(15_467)),
        Demand::bytes("NVFP4 decode cache + SF slab", Tier::ModelResident, GPU, mib(1800)),
        Demand::pool("KV pool", GPU, Amount::fixed_pool(group.block_bytes()?, config.block_tokens, all)),
        Demand::bytes("executor scratch", Tier::ForwardScratch, GPU, mib(507)),
        Demand::bytes("engine-persistent", Tier::EnginePersistent, GPU, mib(310)),
    ])
}

fn coder_limits() -> Limits {
    Limits {
        context: mib(1680),
        library_reserve: mib(3900),
        library_source: ReserveSource::Measured,
        ..Limits::new(GPU, mib(CARD))
    }
}

fn coder_config() -> Config {
    Config { max_batch: 8, kv_dtypes: &[KvDtype::F16, KvDtype::Fp8], weight_caches: false, ..Config::default() }
}

#[test]
fn a_refusal_is_the_arithmetic_and_the_levers() {
    let demands = coder(&coder_config()).expect("in range");
    let input = PlanInput { reprice: Some(&coder), ..PlanInput::new(coder_limits(), coder_config(), &demands) };
    let failure = plan_memory(&input).expect_err("over by 3345 MiB");
    let expected = "\
Cannot fit this configuration in the 32607 MiB budget.

  requested                               MiB
    model weights                       15467
    NVFP4 decode cache + SF slab         1800
    KV pool                             12288   at least 2048 blocks, 32768 tokens
    executor scratch                      507
    engine-persistent                     310
    context + driver                     1680
    library reserve (measured)           3900
                                     --------
    total                               35952   over by 3345 MiB

  KV pool would get 1490 blocks and is refused below 2048 blocks: it could not hold what is advertised

  the largest levers
    kv_dtype f16 -> fp8                      frees    6144 MiB   fits
    max_batch 8 -> 5                         frees    4608 MiB   fits
    max_seq_len 4096 -> 2816                 frees    3840 MiB   fits
    budget 32607 MiB -> 35952 MiB            adds     3345 MiB   fits
";
    assert_eq!(failure.report(), expected);
    assert_eq!(
        failure.to_string(),
        "cannot fit this configuration: 35952 MiB requested of a budget of 32607 MiB, over by 3345 MiB"
    );
}

#[test]
fn a_plan_is_a_table_by_tier() {
    let demands = [
        weights(mib(4076)),
        Demand::bytes("decode cache", Tier::ModelResident, GPU, mib(4000)).optional(),
        Demand::bytes("step parameters", Tier::EnginePersistent, GPU, Bytes::new(768)),
        Demand::bytes("dequantisation", Tier::ModelResident, GPU, mib(512)).transient(),
        kv(Bytes::kib(1152), 256, 4096),
        Demand::bytes("pinned ring", Tier::HostPinned, "host", mib(64)),
        Demand::bytes("second cache", Tier::ModelResident, GPU, mib(9000)).optional(),
    ];
    let limits = Limits { context: tenths(16_796), library_reserve: mib(3900), ..Limits::new(GPU, mib(16_384)) };
    let config = Config { max_batch: 16, ..Config::default() };
    let plan = plan_memory(&PlanInput::new(limits, config, &demands)).expect("fits");
    let expected = "\
Fits the 16384 MiB budget: 16384 MiB planned, 0 MiB left.

  tier               what                                  MiB
  reserve            context + driver                     1680
                     library reserve (assumed)            3900
  engine-persistent  step parameters                         0   768 bytes
  model-resident     model weights                        4076
                     decode cache                         4000
  pooled             KV                                   2728   2425 of 4096 blocks, 38800 tokens
  total                                                  16384

  while loading, in memory that pools and optional caches get afterwards
  model-resident     dequantisation                        512
  load peak                                              10168

  host memory, outside the budget
  host-pinned        pinned ring                            64

  no room for second cache (9000 MiB): left out

  KV is 1671 blocks short of what 16 sequences of 4096 tokens can use; optional caches hold
  4000 MiB, which weight_caches off gives to it
";
    assert_eq!(plan.to_string(), expected);
}

#[test]
fn a_column_adds_up_as_printed() {
    // Three lines of 0.4 MiB are 1.2: two MiB in all, and the rows say so.
    let part = |name: &'static str| Demand::bytes(name, Tier::EnginePersistent, GPU, tenths(4));
    let failure = refused(Limits::new(GPU, mib(1)), &[part("a"), part("b"), part("c")]);
    let report = failure.report();
    let rows: Vec<u64> = (report.lines().skip(2))
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("    ")?.split_whitespace().nth(1)?.parse().ok())
        .collect();
    assert_eq!(rows, [1, 0, 1, 2], "{report}");
    assert!(report.contains("419430 bytes") && report.contains("over by 1 MiB"), "{report}");
}

#[test]
fn what_a_refusal_does_not_count_is_named() {
    let cache = Demand::bytes("cache", Tier::ModelResident, GPU, mib(30)).optional();
    let staging = Demand::bytes("staging", Tier::ModelResident, GPU, mib(9)).transient();
    let demands = [weights(mib(40)), kv(mib(1), 10, 20), cache, staging];
    let serving = refused(Limits::new(GPU, mib(45)), &demands).report();
    let total = "total                                  50   over by 5 MiB\n";
    let rest =
        "    not in the total: cache, 30 MiB, optional\n    not in the total: staging, 9 MiB, while loading only\n";
    assert!(serving.contains(&format!("{total}{rest}")), "{serving}");

    let demands = [weights(mib(40)), kv(mib(1), 5, 20), demands[3].clone()];
    let loading = refused(Limits::new(GPU, mib(45)), &demands).report();
    assert!(loading.starts_with("Cannot load this configuration in the 45 MiB budget.\n"), "{loading}");
    assert!(loading.contains("over by 4 MiB\n    not in the total: KV, 5 MiB, after loading only\n"), "{loading}");
}

#[test]
fn an_overflow_names_the_line_and_what_to_check() {
    let failure = refused(Limits::new(GPU, mib(1)), &[kv(Bytes::MAX, 2, 2)]);
    assert_eq!(
        failure.report(),
        "cannot plan this configuration: the size of `KV`, or the sum up to it, left the range of 64 bits; one of its \
         factors is absurd, check shapes, counts and limits.\n"
    );
}

#[test]
fn the_machine_form_is_one_object_in_a_fixed_order() {
    let demands = [weights(Bytes::new(5)), Demand { name: "odd \"name\"\\\n".into(), ..kv(Bytes::new(2), 1, 3) }];
    let plan = fits(Limits::new(GPU, Bytes::new(10)), &demands);
    assert_eq!(
        plan.to_json(),
        concat!(
            r#"{"fits":true,"budget":10,"total":9,"left":1,"transient":0,"load_peak":5,"host":0,"#,
            r#""config":{"max_batch":1,"max_seq_len":4096,"block_tokens":16,"prefill_chunk":512,"#,
            r#""speculative_depth":0,"layers":0,"gpu_layers":0,"kv_dtype":"f16","weight_caches":true,"vision":false},"#,
            r#""lines":[{"name":"model weights","tier":"model-resident","space":"cuda","need":"mandatory","#,
            r#""charge":"device","asked":5,"granted":5},"#,
            r#"{"name":"odd \"name\"\\\u000a","tier":"pooled","space":"cuda","need":"mandatory","charge":"device","#,
            r#""asked":2,"granted":4,"block_bytes":2,"block_tokens":16,"floor_blocks":1,"most_blocks":3,"#,
            r#""granted_blocks":2,"step_blocks":1}]}"#,
        )
    );
    let json = refused(Limits::new(GPU, Bytes::new(4)), &demands[..1]).to_json();
    assert!(json.starts_with(r#"{"fits":false,"refusal":"device","budget":4,"requested":5,"shortfall":1,"#), "{json}");
    let lever = r#""levers":[{"knob":"budget","from":4,"to":5,"frees":1,"fits":true,"locked":false}]}"#;
    assert!(json.ends_with(lever), "{json}");
}
