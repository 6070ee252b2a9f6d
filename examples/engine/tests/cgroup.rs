//! Memory pressure for real: the engine in a cgroup with a memory limit, beside ballast that fills it and goes again. Where
//! no such group can be made (no root, read-only mounts, another system), the test says so and `tests/engine/policy.rs` stands in.

mod common;

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use common::{
    server::{Server, alone, settings},
    tiny_file,
};
use memtier::{
    Bytes,
    pressure::{INTERVAL, Level, Percent, Thresholds, Watcher, this_host},
};
use memtier_engine::{Llm, ModelFile};
use memtier_model::write::TinyModel;

const LIMIT: usize = 512 << 20;
const PIECE: usize = 2 << 20;
const GROUP: &str = "MEMTIER_TEST_CGROUP";

/// A group of our own, with a limit; removed when dropped.
struct Group(PathBuf);

impl Group {
    /// In the unified hierarchy or in the old one, wherever memory is limited; or why there is none.
    fn new() -> Result<Self, String> {
        let mut why = Vec::new();
        for (mount, limit) in [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")]
            .map(|(a, b)| (Path::new(a), b))
        {
            // Only where a hierarchy is mounted: elsewhere `mkdir` makes a folder, and not a group.
            if !mount.join("cgroup.procs").exists() {
                why.push(format!("{} is no hierarchy", mount.display()));
                continue;
            }
            let group = mount.join(format!("memtier-test-{}", std::process::id()));
            if let Err(error) = std::fs::create_dir(&group) {
                why.push(format!("{}: {error}", group.display()));
                continue;
            }
            let group = Group(group);
            match std::fs::write(group.0.join(limit), LIMIT.to_string()) {
                Ok(()) => return Ok(group),
                Err(error) => why.push(format!("{limit}: {error}")),
            }
        }
        Err(why.join("; "))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_real_limit_makes_pressure_and_service_goes_on() {
    let group = match Group::new() {
        Ok(group) => group,
        Err(why) => return println!("skipped: no cgroup with a memory limit can be made here: {why}"),
    };
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "inside_the_group", "--ignored", "--nocapture"]).env(GROUP, &group.0);
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    // Not the harness's own lines: whoever counts tests would count the child's as well.
    text.lines()
        .filter(|line| !line.starts_with("test ") && !line.starts_with("running"))
        .for_each(|line| println!("{line}"));
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{text}");
}

/// Host memory and stalls of the machine are somebody else's business here: only the group's limit counts.
fn only_the_group() -> Thresholds {
    Thresholds {
        host_reserve: Some(Bytes::mib(1)),
        psi_full_critical: Percent::whole(100),
        psi_full_tight_above: Percent::whole(99),
        psi_some_tight: Percent::whole(100),
        psi_some_watch_above: Percent::whole(99),
        ..Thresholds::default()
    }
}

#[test]
#[ignore = "runs inside of the group that the test above makes"]
fn inside_the_group() {
    let Some(group) = std::env::var_os(GROUP) else { return };
    let pid = std::process::id().to_string();
    std::fs::write(Path::new(&group).join("cgroup.procs"), pid).unwrap();
    let file = tiny_file("cgroup", TinyModel::llama(5));
    let file = ModelFile::open(file.path()).unwrap();
    let watcher = Arc::new(Watcher::new(this_host(), only_the_group(), INTERVAL).unwrap());
    watcher.start().unwrap();
    let mut server = Server::new(Llm::open_watched(&file, &settings(), Some(&watcher), &mut |_| ()).unwrap());
    let configured = server.llm.limits().configured;
    println!("start: {}", watcher.snapshot());
    assert_eq!(server.llm.limits().limits, configured);

    // Another one says how much is there while it fills up, so that the first one's thread is what brings the news.
    let measure = Watcher::new(this_host(), only_the_group(), INTERVAL).unwrap();
    let (mut ballast, mut slowest) = (Vec::new(), Duration::ZERO);
    // 77 MiB of the limit are the reserve: what is available for a level, in MiB.
    for (level, available) in [(Level::Watch, 140), (Level::Tight, 90), (Level::Critical, 60), (Level::Ok, 400)] {
        let left = || {
            measure.poll_now();
            measure.snapshot().cgroup.and_then(|group| group.available()).unwrap().count() >> 20
        };
        while left() > available {
            let mut piece = vec![0u8; PIECE];
            piece.iter_mut().step_by(4096).for_each(|page| *page = 1);
            ballast.push(piece);
        }
        if level == Level::Ok {
            ballast.clear();
        }
        let began = Instant::now();
        while server.llm.limits().level != level {
            server.turn(true);
            assert!(began.elapsed() < Duration::from_secs(60), "{level} never came: {}", watcher.snapshot());
            thread::sleep(Duration::from_millis(1));
        }
        slowest = slowest.max(began.elapsed());
        println!("{}: {}", watcher.snapshot(), server.llm.limits());
        (0..30).for_each(|_| _ = server.turn(true));
        let slots = server.llm.limits().limits.slots;
        assert_eq!(
            slots,
            match level {
                Level::Critical => 1,
                Level::Tight => 2,
                _ => 4,
            }
        );
    }
    server.finish();
    if common::times_matter() {
        // The interval and the time of a pass.
        assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    }
    println!("slowest signal to effect {slowest:?}, {} served, {} told no", server.finished.len(), server.refused);
    assert_eq!(server.llm.limits().limits, configured, "all undone");
    assert_eq!(server.finished.len() as u32, server.submitted, "everybody was served in the end");
    assert!(server.refused > 0, "at CRITICAL somebody is told no");
    for index in [1, server.submitted / 2, server.submitted] {
        assert_eq!(server.finished[&index], alone(&file, index), "request {index}");
    }
}
