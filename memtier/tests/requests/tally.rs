//! How often histories did what they are about, so that none of it is drawn in vain.

/// What happened, over all histories so far.
#[derive(Default, Debug)]
pub(crate) struct Tally {
    pub(crate) operations: u64,
    pub(crate) found: u64,
    pub(crate) published: u64,
    pub(crate) forks: u64,
    pub(crate) evicted: u64,
    pub(crate) pins: u64,
    pub(crate) windows: u64,
    pub(crate) rewinds: u64,
    pub(crate) cancelled: u64,
    pub(crate) refused: u64,
    pub(crate) spilled: u64,
    pub(crate) restored: u64,
    pub(crate) failed_writes: u64,
    pub(crate) failed_spills: u64,
    pub(crate) failed_restores: u64,
    pub(crate) saved: u64,
    pub(crate) reloaded: u64,
    pub(crate) restarts: u64,
    pub(crate) forgotten: u64,
    pub(crate) held: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Tally) {
        self.each(other).into_iter().for_each(|(_, mine, theirs)| *mine += theirs);
    }

    /// Everything happened.
    pub(crate) fn check(&mut self) {
        let none = Tally::default();
        let missing: Vec<_> =
            self.each(&none).into_iter().filter(|(_, count, _)| **count == 0).map(|all| all.0).collect();
        assert!(missing.is_empty(), "never happened: {missing:?}");
    }

    fn each<'t>(&'t mut self, other: &Tally) -> [(&'static str, &'t mut u64, u64); 20] {
        macro_rules! each {
            ($($name:ident)*) => { [$((stringify!($name), &mut self.$name, other.$name)),*] };
        }
        each! {
            operations found published forks evicted pins windows rewinds cancelled refused spilled restored failed_writes
            failed_spills failed_restores saved reloaded restarts forgotten held
        }
    }
}
