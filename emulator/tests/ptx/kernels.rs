//! The kernels that memtier ships, and how fast the interpreter is.

use std::time::Instant;

use memtier_emulator::ptx::Module;

use crate::support::{grid, launch, options, text};

/// `MEMTIER_KERNELS` names the folder that `compile-kernels` wrote.
#[test]
fn every_shipped_kernel_is_understood() {
    let Some(folder) = std::env::var_os("MEMTIER_KERNELS") else {
        println!("skipped: MEMTIER_KERNELS names no folder of compiled kernels");
        return;
    };
    let folder = std::path::Path::new(&folder).join("compute_120f");
    let (mut kernels, mut bytes, begun) = (0, 0, Instant::now());
    for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|it| it != "ptx") {
            continue;
        }
        let text = std::fs::read(&path).unwrap();
        let module = Module::parse(&String::from_utf8_lossy(&text))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(module.target().starts_with("sm_120"), "{}", module.target());
        kernels += module.functions().len();
        bytes += text.len();
        for function in module.functions() {
            assert!(!function.params().is_empty(), "{}", function.name());
        }
    }
    assert!(kernels >= 60, "{kernels} kernels");
    println!("{kernels} kernels of {bytes} bytes in {:?}", begun.elapsed());
}

/// Prints instructions a second: `cargo test --release -p memtier-emulator --test ptx speed -- --ignored --nocapture`.
#[test]
#[ignore = "takes times; asserts none"]
fn speed() {
    let fma = "mov.u32 %r1, 0;\nmov.f32 %f1, 0f3F800001;\nLOOP:\nfma.rn.f32 %f2, %f1, %f1, %f2;\nfma.rn.f32 %f3, %f1, %f1, %f3;\n\
               fma.rn.f32 %f4, %f1, %f1, %f4;\nadd.f32 %f5, %f2, %f3;\nmul.wide.u32 %rd1, %r1, 4;\nadd.s64 %rd2, %rd1, %in;\n\
               add.s32 %r1, %r1, 1;\nsetp.lt.u32 %p1, %r1, 100000;\n@%p1 bra LOOP;";
    let mma = "mov.u32 %r1, 0;\nLOOP:\nmma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f4, %f5, %f6, %f7}, \
               {%r4, %r5, %r6, %r7}, {%r8, %r9}, {%f4, %f5, %f6, %f7};\nadd.s32 %r1, %r1, 1;\nsetp.lt.u32 %p1, %r1, 50000;\n\
               @%p1 bra LOOP;";
    let load = "mov.u32 %r1, 0;\nmul.wide.u32 %rd1, %tid, 16;\nadd.s64 %in, %in, %rd1;\nLOOP:\n\
                ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%in];\nadd.s32 %r1, %r1, 1;\nsetp.lt.u32 %p1, %r1, 50000;\n@%p1 bra LOOP;";
    for (name, body) in [("arithmetic", fma), ("16x8x16 products", mma), ("loads of 16 bytes", load)] {
        let begun = Instant::now();
        let counts = launch(&text("", body), 32, &mut [0_u32; 4], &mut [0_u32; 128], &options()).unwrap();
        let seconds = begun.elapsed().as_secs_f64();
        println!(
            "{name}: {:.0} million instructions of a lane a second on one core",
            counts.lanes as f64 / seconds / 1e6
        );
    }
    let begun = Instant::now();
    let counts = grid(&text("", fma), [8, 1, 1], 64, &mut [0_u32; 4], &mut [0_u32; 128], &options()).unwrap();
    let seconds = begun.elapsed().as_secs_f64();
    println!("arithmetic, 8 blocks on 2 threads: {:.0} million a second", counts.lanes as f64 / seconds / 1e6);
}
