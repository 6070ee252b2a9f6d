//! Which cgroups a process is in, from its own up to the root, and which files say what they hold.

use std::path::{Component, Path, PathBuf};

use super::{parse, source::Faults};

/// A cgroup path deeper than this is cut off at the leaf's end. The kernel has no limit; people stay below ten.
const MOST_GROUPS: usize = 64;

/// The files of one group.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// Distance from the root.
    pub(super) depth: u32,
    /// Of the old hierarchy's memory controller.
    pub(super) old: bool,
    pub(super) high: Option<PathBuf>,
    pub(super) max: PathBuf,
    pub(super) current: PathBuf,
    pub(super) stat: PathBuf,
    /// Stalls of this group, where there are any to read and it is the process's own.
    pub(super) pressure: Option<PathBuf>,
}

impl Group {
    fn unified(group: &Path, depth: u32, own: bool) -> Self {
        Group {
            depth,
            old: false,
            high: Some(group.join("memory.high")),
            max: group.join("memory.max"),
            current: group.join("memory.current"),
            stat: group.join("memory.stat"),
            pressure: own.then(|| group.join("memory.pressure")),
        }
    }

    /// The soft limit of the old hierarchy is a hint for reclaim and holds nobody back: it is not read.
    fn old(group: &Path, depth: u32) -> Self {
        Group {
            depth,
            old: true,
            high: None,
            max: group.join("memory.limit_in_bytes"),
            current: group.join("memory.usage_in_bytes"),
            stat: group.join("memory.stat"),
            pressure: None,
        }
    }
}

/// The groups of the process whose `/proc/self/cgroup`, at `file`, says `content`.
pub(super) fn find_groups(root: &Path, file: &Path, content: &[u8], faults: &mut Faults) -> Vec<Group> {
    let usual = root.join("sys/fs/cgroup");
    // The usual place, or beside the old controllers.
    let unified = [usual.clone(), usual.join("unified")].into_iter().find(|at| at.join("cgroup.controllers").exists());
    let old = Some(usual.join("memory")).filter(|at| at.join("memory.limit_in_bytes").exists());
    if unified.is_none() && old.is_none() {
        faults.push(usual.display(), "no memory cgroups here", "the machine's memory is the limit");
    }
    let mut groups = Vec::new();
    if let Some(mount) = unified {
        let own = own(&mount, file, parse::own_cgroup(content), faults);
        groups.extend(own.iter().map(|(group, depth)| Group::unified(group, *depth, *group == own[0].0)));
    }
    if let Some(mount) = old {
        let own = own(&mount, file, parse::own_old_cgroup(content), faults);
        groups.extend(own.iter().map(|(group, depth)| Group::old(group, *depth)));
    }
    groups
}

/// The own group's directory and those above it, the mount last, each with its depth. Never empty.
fn own(mount: &Path, file: &Path, own: Result<&[u8], parse::ParseError>, faults: &mut Faults) -> Vec<(PathBuf, u32)> {
    let only_root = "the root group's limits count";
    let own = match own {
        Ok(own) => PathBuf::from(String::from_utf8_lossy(own).into_owned()),
        Err(error) => {
            faults.push(file.display(), error, only_root);
            PathBuf::new()
        }
    };
    // In a container the path may be one of the host's, which is not mounted here; `..` leads out of the mount.
    let inside = own.components().all(|part| matches!(part, Component::Normal(_)));
    if !inside || !mount.join(&own).is_dir() {
        let why = format_args!("`{}` is not below {}", own.display(), mount.display());
        faults.push(file.display(), why, only_root);
        return vec![(mount.to_path_buf(), 0)];
    }
    let mut groups: Vec<_> = own.ancestors().map(|group| mount.join(group)).collect();
    let extra = groups.len().saturating_sub(MOST_GROUPS);
    groups.drain(..extra);
    let depths = (0..groups.len() as u32).rev();
    groups.into_iter().zip(depths).collect()
}
