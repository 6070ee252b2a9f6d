//! What must not happen is told, with its place: wrong addresses, deadlocks, races, endless loops, unknown instructions.

use memtier_emulator::ptx::{Fault, Module, Options, Trouble};

use crate::support::{launch, options, racecheck, text};

fn fault(threads: u32, declarations: &str, body: &str, options: &Options) -> Fault {
    let mut out = [0_u32; 64];
    launch(&text(declarations, body), threads, &mut out, &mut [0_u32; 4], options).expect_err("a fault")
}

fn fine(threads: u32, declarations: &str, body: &str, options: &Options) {
    let mut out = [0_u32; 64];
    launch(&text(declarations, body), threads, &mut out, &mut [0_u32; 4], options).unwrap_or_else(|it| panic!("{it}"));
}

const MINE: &str = "shl.b32 %r1, %tid, 2;\ncvt.u64.u32 %rd1, %r1;\nmov.u64 %rd2, dynamic;\nadd.s64 %rd1, %rd2, %rd1;\n";

#[test]
fn memory_that_is_not_there() {
    let wrong =
        fault(40, "", "mul.wide.u32 %rd1, %tid, 4;\nadd.s64 %rd1, %in, %rd1;\nst.global.u32 [%rd1], %tid;", &options());
    assert!(matches!(wrong.trouble, Trouble::Address { space: "global", bytes: 4, write: true, .. }), "{wrong}");
    assert_eq!(wrong.thread, [4, 0, 0]);
    assert!(
        wrong.to_string().contains("st . global") || wrong.to_string().contains("st.global.u32 [%rd1], %tid;"),
        "{wrong}"
    );
    let wrong = fault(1, "", "ld.shared.u32 %r1, [dynamic+4096];", &options());
    assert!(matches!(wrong.trouble, Trouble::Address { space: "shared", .. }), "{wrong}");
    let wrong = fault(1, ".local .align 4 .b8 l[4];", "mov.u64 %rd1, l;\nst.local.u32 [%rd1+16], %tid;", &options());
    assert!(matches!(wrong.trouble, Trouble::Address { space: "local", .. }), "{wrong}");
}

#[test]
fn addresses_that_are_not_aligned() {
    let wrong = fault(1, "", "ld.global.u32 %r1, [%in+2];", &options());
    assert!(matches!(wrong.trouble, Trouble::Misaligned { space: "global", align: 4, .. }), "{wrong}");
    let wrong = fault(1, "", "st.shared.v2.u32 [dynamic+4], {%tid, %tid};", &options());
    assert!(matches!(wrong.trouble, Trouble::Misaligned { space: "shared", align: 8, .. }), "{wrong}");
}

#[test]
fn shared_memory_that_nobody_wrote() {
    let wrong = fault(1, "", "st.shared.u32 [dynamic], %tid;\nld.shared.u64 %rd1, [dynamic];", &options());
    let dynamic = 4;
    assert!(matches!(wrong.trouble, Trouble::Uninitialised { address } if address == dynamic), "{wrong}");
}

#[test]
fn copies_are_not_there_before_somebody_waits() {
    let begin = "cvt.u32.u64 %r1, %rd9;\nmov.u64 %rd2, dynamic;\ncvt.u32.u64 %r2, %rd2;\n\
                 cp.async.ca.shared.global [%r2], [%in], 8, 4;\ncp.async.commit_group;\n";
    let early = format!("{begin}ld.shared.u32 %r3, [dynamic];");
    assert!(matches!(fault(1, "", &early, &options()).trouble, Trouble::Uninitialised { .. }));
    let body = format!(
        "{begin}cp.async.wait_group 0;\nld.shared.v2.u32 {{%r3, %r4}}, [dynamic];\nst.global.v2.u32 [%out], {{%r3, %r4}};"
    );
    let mut out = [7_u32; 2];
    launch(&text("", &body), 1, &mut out, &mut [5_u32, 6], &options()).unwrap();
    // The second word is past what was asked for: zeros.
    assert_eq!(out, [5, 0]);
    // How long a cache is to keep it changes nothing.
    let policy = "createpolicy.fractional.L2::evict_first.b64 %rd3, 1.0;\n";
    let hinted = body.replace("ca.shared.global", "ca.shared.global.L2::cache_hint").replace("8, 4;", "8, 4, %rd3;");
    let mut out = [7_u32; 2];
    launch(&text("", &format!("{policy}{hinted}")), 1, &mut out, &mut [5_u32, 6], &options()).unwrap();
    assert_eq!(out, [5, 0]);
    // A younger group may still be on its way; then the older is there and the younger is not.
    let two = "mov.u64 %rd2, dynamic;\ncvt.u32.u64 %r2, %rd2;\ncp.async.ca.shared.global [%r2], [%in], 4;\n\
               cp.async.commit_group;\ncp.async.ca.shared.global [%r2+4], [%in], 4;\ncp.async.commit_group;\n\
               cp.async.wait_group 1;\nld.shared.u32 %r3, [dynamic];\n";
    fine(1, "", two, &options());
    let wrong = fault(1, "", &format!("{two}ld.shared.u32 %r4, [dynamic+4];"), &options());
    assert!(matches!(wrong.trouble, Trouble::Uninitialised { address: 4 }), "{wrong}");
}

#[test]
fn a_barrier_that_some_never_reach() {
    let wrong = fault(64, "", "setp.ge.u32 %p1, %tid, 32;\n@%p1 ret;\nbar.sync 0;", &options());
    let Trouble::Deadlock(what) = &wrong.trouble else { panic!("{wrong}") };
    assert!(what.contains("warp 0 waits") && what.contains("of warp 1 have ended"), "{what}");
    assert!(wrong.place.contains("bar.sync"), "{wrong}");
    // Two halves of one warp at two barriers.
    let body = "setp.ge.u32 %p1, %tid, 16;\n@%p1 bra OTHER;\nbar.sync 0;\nbra END;\nOTHER:\nbar.sync 0;\nEND:";
    let wrong = fault(32, "", body, &options());
    assert!(matches!(&wrong.trouble, Trouble::Deadlock(what) if what.contains("lane 16")), "{wrong}");
    // A warp's own barrier, waiting for lanes that wait for the block.
    let body = "setp.ge.u32 %p1, %tid, 16;\n@%p1 bra OTHER;\nbar.warp.sync -1;\nbra END;\nOTHER:\nbar.sync 0;\nEND:";
    let wrong = fault(32, "", body, &options());
    assert!(matches!(&wrong.trouble, Trouble::Deadlock(what) if what.contains("0xffff0000")), "{wrong}");
}

#[test]
fn loops_without_an_end() {
    let options = Options { steps: 1000, ..options() };
    assert_eq!(fault(1, "", "LOOP:\nbra LOOP;", &options).trouble, Trouble::Steps(1000));
}

#[test]
fn races_between_warps() {
    // Each thread writes its word and reads that of a thread 32 further.
    let neighbour = "add.s32 %r2, %tid, 32;\nand.b32 %r2, %r2, 63;\nshl.b32 %r2, %r2, 2;\ncvt.u64.u32 %rd3, %r2;\n\
                     add.s64 %rd3, %rd2, %rd3;\n";
    let with = |between: &str| {
        format!(
            "{MINE}{neighbour}st.shared.u32 [%rd1], %tid;\nbar.sync 0;\nst.shared.u32 [%rd1], %r2;\n{between}ld.shared.u32 %r4, [%rd3];"
        )
    };
    let wrong = fault(64, "", &with(""), &racecheck());
    let Trouble::Race(what) = &wrong.trouble else { panic!("{wrong}") };
    assert!(wrong.place.contains("st.shared.u32") || wrong.place.contains("ld.shared.u32"), "{wrong}");
    assert!(what.contains("line ") && what.contains(".shared.u32"), "{what}");
    fine(64, "", &with("bar.sync 0;\n"), &racecheck());
    // Without the check nothing is said.
    fine(64, "", &with(""), &options());
    // Writing what others may still read.
    let late = format!(
        "{MINE}{neighbour}st.shared.u32 [%rd1], %tid;\nbar.sync 0;\nld.shared.u32 %r4, [%rd3];\nst.shared.u32 [%rd1], %r4;"
    );
    assert!(matches!(fault(64, "", &late, &racecheck()).trouble, Trouble::Race(_)));
    let ordered = late.replace("%r4, [%rd3];", "%r4, [%rd3];\nbar.sync 0;");
    fine(64, "", &ordered, &racecheck());
}

#[test]
fn races_inside_a_warp() {
    let with = |between: &str| {
        format!(
            "{MINE}xor.b32 %r2, %r1, 4;\ncvt.u64.u32 %rd3, %r2;\nadd.s64 %rd3, %rd2, %rd3;\nst.shared.u32 [%rd1], %tid;\n{between}ld.shared.u32 %r4, [%rd3];"
        )
    };
    assert!(matches!(fault(32, "", &with(""), &racecheck()).trouble, Trouble::Race(_)));
    fine(32, "", &with("bar.warp.sync -1;\n"), &racecheck());
    fine(32, "", &with("shfl.sync.idx.b32 %r9|%p1, %r1, 0, 31, -1;\n"), &racecheck());
    // Two warps are not ordered by barriers of one.
    let far = with("bar.warp.sync -1;\n").replace("xor.b32 %r2, %r1, 4", "xor.b32 %r2, %r1, 128");
    assert!(matches!(fault(64, "", &far, &racecheck()).trouble, Trouble::Race(_) | Trouble::Uninitialised { .. }));
}

#[test]
fn copies_race_until_they_are_waited_for_and_a_barrier_passed() {
    let copy = format!(
        "{MINE}cvt.u32.u64 %r5, %rd1;\nand.b32 %r6, %tid, 3;\nmul.wide.u32 %rd4, %r6, 4;\nadd.s64 %rd4, %in, %rd4;\n\
         st.shared.u32 [%rd1], %tid;\nbar.sync 0;\ncp.async.ca.shared.global [%r5], [%rd4], 4;\ncp.async.commit_group;\n"
    );
    let read = "xor.b32 %r2, %r1, 4;\ncvt.u64.u32 %rd3, %r2;\nadd.s64 %rd3, %rd2, %rd3;\nld.shared.u32 %r4, [%rd3];";
    // A barrier without waiting: the bytes are on their way.
    let wrong = fault(32, "", &format!("{copy}bar.sync 0;\n{read}"), &racecheck());
    assert!(matches!(&wrong.trouble, Trouble::Race(what) if what.contains("still copying")), "{wrong}");
    // Waiting without a barrier: mine are there, those of others need not be.
    let wrong = fault(32, "", &format!("{copy}cp.async.wait_group 0;\n{read}"), &racecheck());
    assert!(matches!(wrong.trouble, Trouble::Race(_)), "{wrong}");
    fine(32, "", &format!("{copy}cp.async.wait_group 0;\nbar.sync 0;\n{read}"), &racecheck());
}

#[test]
fn unknown_texts_name_their_line() {
    let parse = |body: &str| Module::parse(&text("", body)).expect_err("an error");
    let wrong = parse("mov.u32 %r1, %tid;\nwgmma.fence.sync.aligned;");
    assert!(wrong.what.contains("`wgmma` is not known") && wrong.text.contains("wgmma"), "{wrong}");
    let line = text("", "LINE").lines().position(|it| it == "LINE").unwrap() + 1;
    assert_eq!(wrong.line as usize, line + 1);
    assert!(parse("add.cc.u32 %r1, %r2, %r3;").what.contains(".cc"), "{}", parse("add.cc.u32 %r1, %r2, %r3;"));
    for body in [
        "add.s32 %r1, %r2;",
        "add.s32 %r1, %rd2, %r3;",
        "add.s32 %r1, %r99, %r3;",
        "bra NOWHERE;",
        "ld.global.u32 %r1, %rd1;",
        "mov.u32 %r1, %nothing;",
        "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%r1}, {%r1}, {%r1}, {%r1};",
        "@%r1 ret;",
        "st.global.u32 [%rd1+], %r1;",
        "{ mov.b32 {%r1, %r2, %h3}, %r3;",
        "cvt.f32 %f1, %f2;",
        "add",
        ".reg .b32 %q<x>;",
    ] {
        parse(body);
    }
    for text in [
        "",
        "nonsense",
        ".visible .entry",
        ".visible .entry k(",
        ".global .u32 x = ;",
        "{",
        "/*",
        "\"",
        ".entry k() { ld.param.u32 %r1, [x]; }",
    ] {
        let _ = Module::parse(text);
    }
}

/// Texts that were damaged at random are errors, or other texts, and never a panic.
#[test]
fn damaged_texts_are_errors() {
    let body = "mov.u64 %rd1, dynamic;\n@!%p1 bra L;\nld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%in+16];\n{\n.reg .b16 l, h;\n\
                mov.b32 {l, h}, %r1;\ncvt.rn.f16x2.e4m3x2 %r2, l;\n}\nL:\nsetp.lt.and.u32 %p1|%p2, %r1, -7, !%p3;\n\
                mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, \
                {%f1, %f2, %f3, %f4};\nshfl.sync.bfly.b32 %r1|%p1, %r2, 1, 31, -1;\nfma.rn.f32 %f1, %f2, 0f3F800000, %f3;\n\
                cp.async.cg.shared.global [%r1], [%in], 16, %r2;\natom.global.add.u32 %r1, [%out], 1;\nbar.sync 0;";
    let text = text(".shared .align 8 .b8 s[64];\n.loc 1 2 3, function_name x, inlined_at 1 2 3", body);
    let words = [
        "{",
        "}",
        ";",
        "[",
        "]",
        "%r1",
        ".b32",
        "0",
        "-1",
        "99999999999",
        "0x8000000000000000",
        ":",
        "|",
        "@",
        ".reg",
        "\"",
        "/*",
        ",",
    ];
    let mut seed = 9_u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let mut understood = 0;
    for _ in 0..3000 {
        let mut damaged = text.clone();
        for _ in 0..1 + random(3) {
            let (at, length) = (random(damaged.len() - 8), random(8));
            let word = if random(2) == 0 { "" } else { words[random(words.len())] };
            damaged.replace_range(at..at + length, word);
        }
        understood += usize::from(Module::parse(&damaged).is_ok());
    }
    assert!((1..2500).contains(&understood), "{understood} of 3000 are still PTX");
}

#[test]
fn launches_that_do_not_fit() {
    let mut text = text("", "");
    text = text.replace(")\n{", ")\n.maxntid 64, 1, 1\n{");
    let wrong = launch(&text, 96, &mut [0_u32], &mut [0_u32], &options()).expect_err("a fault");
    assert!(matches!(&wrong.trouble, Trouble::Launch(what) if what.contains("96 threads")), "{wrong}");
}
