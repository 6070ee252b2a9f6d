//! Lanes that part and meet, and what they tell each other.

use crate::support::{each32, grid, launch, options, text};

#[test]
fn lanes_part_in_loops_and_meet_again() {
    // Each lane counts to its number; then all add up by shuffles.
    let body = "mov.u32 %r0, 0;\nsetp.eq.u32 %p1, %tid, 0;\n@%p1 bra DONE;\nLOOP:\nadd.s32 %r0, %r0, 1;\n\
                setp.lt.u32 %p2, %r0, %tid;\n@%p2 bra LOOP;\nDONE:\n\
                shfl.sync.bfly.b32 %r1|%p3, %r0, 16, 31, -1;\nadd.s32 %r0, %r0, %r1;\n\
                shfl.sync.bfly.b32 %r1|%p3, %r0, 8, 31, -1;\nadd.s32 %r0, %r0, %r1;\n\
                shfl.sync.bfly.b32 %r1|%p3, %r0, 4, 31, -1;\nadd.s32 %r0, %r0, %r1;\n\
                shfl.sync.bfly.b32 %r1|%p3, %r0, 2, 31, -1;\nadd.s32 %r0, %r0, %r1;\n\
                shfl.sync.bfly.b32 %r1|%p3, %r0, 1, 31, -1;\nadd.s32 %r0, %r0, %r1;";
    assert_eq!(each32(32, "", body, &mut [0]), [496; 32]);
}

#[test]
fn shuffles_know_segments_and_edges() {
    let by = |how: &str| {
        let body = format!("{how};\nselp.b32 %r2, 256, 0, %p1;\nor.b32 %r0, %r1, %r2;");
        each32(32, "", &body, &mut [0])
    };
    let down = by("shfl.sync.down.b32 %r1|%p1, %tid, 3, 31, -1");
    let expected: Vec<u32> = (0..32).map(|it| if it + 3 < 32 { it + 3 | 256 } else { it }).collect();
    assert_eq!(down, expected);
    let up = by("shfl.sync.up.b32 %r1|%p1, %tid, 2, 0, -1");
    let expected: Vec<u32> = (0..32).map(|it: u32| if it >= 2 { it - 2 | 256 } else { it }).collect();
    assert_eq!(up, expected);
    // Segments of eight lanes: 0x1800 | 31.
    let index = by("shfl.sync.idx.b32 %r1|%p1, %tid, 5, 6175, -1");
    let expected: Vec<u32> = (0..32).map(|it| it / 8 * 8 + 5 | 256).collect();
    assert_eq!(index, expected);
}

#[test]
fn half_a_warp_votes_for_itself() {
    let body = "setp.lt.u32 %p1, %tid, 16;\nand.b32 %r5, %tid, 1;\nsetp.eq.u32 %p2, %r5, 1;\n@!%p1 bra HIGH;\n\
                vote.sync.ballot.b32 %r0, %p2, 0xffff;\nbra END;\nHIGH:\nvote.sync.ballot.b32 %r0, !%p2, 0xffff0000;\nEND:";
    let expected: Vec<u32> = (0..32).map(|it| if it < 16 { 0xaaaa } else { 0x5555_0000 }).collect();
    assert_eq!(each32(32, "", body, &mut [0]), expected);
}

#[test]
fn a_shuffle_waits_for_lanes_that_come_later() {
    // Odd lanes take a detour; the mask names all.
    let body = "and.b32 %r5, %tid, 1;\nsetp.eq.u32 %p2, %r5, 1;\nmov.u32 %r1, %tid;\n@!%p2 bra MEET;\n\
                add.s32 %r1, %r1, 100;\nMEET:\nbar.warp.sync -1;\nshfl.sync.bfly.b32 %r0|%p3, %r1, 1, 31, -1;";
    let expected: Vec<u32> = (0..32).map(|it: u32| if it.is_multiple_of(2) { it + 101 } else { it - 1 }).collect();
    assert_eq!(each32(32, "", body, &mut [0]), expected);
}

#[test]
fn lanes_that_have_ended_are_not_waited_for() {
    let body = "mul.wide.u32 %at, %tid, 4;\nadd.s64 %out, %out, %at;\nsetp.ge.u32 %p1, %tid, 8;\n@%p1 ret;\n\
                bar.warp.sync -1;\nmov.u32 %r0, 5;\nst.global.u32 [%out], %r0;";
    let mut out = [0_u32; 32];
    launch(&text("", body), 32, &mut out, &mut [0_u32], &options()).unwrap();
    let expected: Vec<u32> = (0..32).map(|it| if it < 8 { 5 } else { 0 }).collect();
    assert_eq!(out.to_vec(), expected);
}

#[test]
fn blocks_share_atomics_and_know_who_they_are() {
    let body = "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %nctaid.x;\nmov.u32 %r3, %ctaid.y;\nmad.lo.s32 %r1, %r3, %r2, %r1;\n\
                mov.u32 %r4, %ntid.x;\nmad.lo.s32 %r1, %r1, %r4, %tid;\nmul.wide.u32 %rd1, %r1, 4;\n\
                add.s64 %rd1, %in, %rd1;\nst.global.u32 [%rd1], %r1;\natom.global.add.u32 %r5, [%out], %r1;\n\
                red.global.max.u32 [%out+4], %r1;\natom.global.inc.u32 %r6, [%out+8], 99;\n\
                atom.global.cas.b32 %r6, [%out+12], 0, 7;";
    let (mut out, mut seen) = ([0_u32; 4], vec![0_u32; 6 * 4 * 96]);
    let counts = grid(&text("", body), [6, 4, 1], 96, &mut out, &mut seen, &options()).unwrap();
    let threads = 6 * 4 * 96;
    assert!(seen.iter().copied().eq(0..threads));
    assert_eq!(out, [(0..threads).sum(), threads - 1, threads % 100, 7]);
    assert!(counts.lanes > u64::from(threads) * 10, "{counts:?}");
}

#[test]
fn a_tree_in_shared_memory() {
    // Doubles through four barriers.
    let body = "shl.b32 %r1, %tid, 2;\ncvt.u64.u32 %rd1, %r1;\nmov.u64 %rd2, dynamic;\nadd.s64 %rd1, %rd2, %rd1;\n\
                st.shared.u32 [%rd1], %tid;\nbar.sync 0;\nmov.u32 %r2, 64;\nLOOP:\nsetp.ge.u32 %p1, %tid, %r2;\n\
                @%p1 bra SKIP;\nshl.b32 %r3, %r2, 2;\ncvt.u64.u32 %rd3, %r3;\nadd.s64 %rd3, %rd1, %rd3;\n\
                ld.shared.u32 %r4, [%rd3];\nld.shared.u32 %r5, [%rd1];\nadd.s32 %r5, %r4, %r5;\nst.shared.u32 [%rd1], %r5;\n\
                SKIP:\nbar.sync 0;\nshr.u32 %r2, %r2, 1;\nsetp.gt.u32 %p2, %r2, 0;\n@%p2 bra LOOP;\n\
                ld.shared.u32 %r0, [dynamic];";
    assert_eq!(each32(128, ".shared .align 4 .b8 unused[20];", body, &mut [0]), [127 * 64; 128]);
}

#[test]
fn local_memory_is_each_thread_s_own_and_generic_addresses_find_it() {
    let body = "mov.u64 %rd1, depot;\ncvta.local.u64 %rd2, %rd1;\nst.local.u32 [%rd1+4], %tid;\nadd.s32 %r1, %tid, 1000;\n\
                st.u32 [%rd2+8], %r1;\nld.u32 %r2, [%rd2+4];\nld.local.u32 %r3, [%rd1+8];\nadd.s32 %r0, %r2, %r3;";
    let expected: Vec<u32> = (0..64).map(|it| 2 * it + 1000).collect();
    assert_eq!(each32(64, ".local .align 8 .b8 depot[16];", body, &mut [0]), expected);
}

#[test]
fn signed_bytes_extend() {
    let body = "ld.global.s8 %h1, [%in+1];\nmov.b32 %r0, {%h1, %h1};";
    assert_eq!(each32(1, "", body, &mut [0x8000]), [0xff80_ff80]);
    assert_eq!(each32(1, "", "ld.global.s8 %r0, [%in+1];", &mut [0x8000]), [0xffff_ff80]);
}
