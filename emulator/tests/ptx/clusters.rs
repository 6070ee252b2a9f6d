//! Blocks of a cluster: what they store into each other's shared memory is there behind the barrier that publishes it, and not before.

use memtier_emulator::ptx::{Fault, Module, Trouble};

use crate::support::{grid, racecheck, text};

/// `%r1`: where a thread's word is in the shared memory of the other block of its cluster; `%r2`: in its own.
const PLACES: &str = "shl.b32 %r2, %tid, 2;\nmov.u64 %rd1, dynamic;\ncvt.u32.u64 %r3, %rd1;\nadd.s32 %r2, %r2, %r3;\n\
                      mov.u32 %r4, %ctaid.z;\nxor.b32 %r5, %r4, 1;\nmapa.shared::cluster.u32 %r1, %r2, %r5;\n";
const MEET: &str = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n";
/// A thread's number with 100 for each block in front of its own and 1000 for each cluster.
const VALUE: &str = "mov.u32 %r6, %ctaid.x;\nmad.lo.u32 %r7, %r6, 1000, %tid;\nmad.lo.u32 %r7, %r4, 100, %r7;\n";
const STORE: &str = "st.shared::cluster.u32 [%r1], %r7;\n";
/// What a thread finds of the other block, left at 4 * (128 * cluster + 64 * block + thread).
const LOAD: &str = "ld.shared.u32 %r8, [%r2];\nmad.lo.u32 %r9, %r6, 128, %tid;\nmad.lo.u32 %r9, %r4, 64, %r9;\n\
                    mul.wide.u32 %rd2, %r9, 4;\nadd.s64 %rd2, %out, %rd2;\nst.global.u32 [%rd2], %r8;\n";

fn clustered(parts: &[&str]) -> String {
    text("", &parts.concat()).replace(")\n{", ")\n.explicitcluster\n.reqnctapercluster 1, 1, 2\n{")
}

fn run(blocks: [u32; 3], parts: &[&str]) -> Result<Vec<u32>, Fault> {
    let mut out = vec![0_u32; 3 * 128];
    grid(&clustered(parts), blocks, 64, &mut out, &mut [0_u32; 4], &racecheck()).map(|_| out)
}

/// What is wrong with a kernel of one cluster.
fn told(parts: &[&str]) -> String {
    run([1, 1, 2], parts).expect_err("a fault").to_string()
}

#[test]
fn blocks_store_into_each_other() {
    let out = run([3, 1, 2], &[PLACES, MEET, VALUE, STORE, MEET, LOAD]).unwrap_or_else(|fault| panic!("{fault}"));
    for (at, found) in (0..).zip(out) {
        let (cluster, block, thread) = (at / 128, at / 64 % 2, at % 64);
        assert_eq!(found, cluster * 1000 + (1 - block) * 100 + thread, "{at}");
    }
}

#[test]
fn what_no_barrier_orders_is_told() {
    // The other block may not have begun.
    assert!(told(&[PLACES, VALUE, STORE, MEET, LOAD]).contains("it may not have begun"));
    // Read before the barrier; published by none, and never read.
    let early = told(&[PLACES, MEET, VALUE, STORE, LOAD, MEET]);
    assert!(early.contains("nobody wrote"), "{early}");
    assert!(told(&[PLACES, MEET, VALUE, STORE]).contains("no barrier of the cluster has published"));
    // An arrival that publishes nothing.
    let relaxed = MEET.replace("arrive", "arrive.relaxed");
    let unseen = told(&[PLACES, MEET, VALUE, STORE, &relaxed, LOAD, MEET]);
    assert!(unseen.contains("nobody wrote"), "{unseen}");
    // Between an arrival and its wait.
    let (arrive, wait) = MEET.split_at(MEET.find('\n').unwrap() + 1);
    assert!(told(&[PLACES, MEET, VALUE, arrive, STORE, wait, LOAD]).contains("between an arrival and its wait"));
    // On bytes that the other block reads or writes, and nothing orders the two.
    let race = told(&[PLACES, MEET, VALUE, "st.shared.u32 [%r2], %tid;\n", STORE, MEET, LOAD]);
    assert!(race.contains("with nothing that orders the two"), "{race}");
}

#[test]
fn barriers_that_do_not_meet_are_told() {
    let (arrive, wait) = MEET.split_at(MEET.find('\n').unwrap() + 1);
    assert!(told(&[arrive, arrive, wait]).contains("a second arrival"));
    assert!(told(&[wait]).contains("without an arrival"));
    // One warp waits for its block, the other for the cluster.
    let parted = ["setp.ge.u32 %p1, %tid, 32;\n@%p1 bra OTHER;\n", MEET, "bra END;\nOTHER:\nbar.sync 0;\nEND:\n"];
    let wrong = run([1, 1, 2], &parted).expect_err("a fault");
    assert!(matches!(&wrong.trouble, Trouble::Deadlock(what) if what.contains("for the cluster")), "{wrong}");
}

#[test]
fn clusters_and_addresses_that_are_not_there() {
    // Blocks that fill no cluster.
    let wrong = run([2, 1, 1], &[PLACES]).expect_err("a fault");
    assert!(matches!(wrong.trouble, Trouble::Launch(_)), "{wrong}");
    assert!(told(&["mapa.shared::cluster.u32 %r1, %tid, 2;\n"]).contains("of a cluster of 2"));
    // Behind the end of the other block's memory.
    let behind = told(&[PLACES, MEET, VALUE, "st.shared::cluster.u32 [%r1+4096], %r7;\n", MEET]);
    assert!(behind.contains("shared"), "{behind}");
    // Loads from other blocks are not known.
    let text = clustered(&["ld.shared::cluster.u32 %r1, [%r2];\n"]);
    assert!(Module::parse(&text).is_err());
}
