//! The reference: a cache by name. Slow, and without a count or a list that could go wrong.

use std::collections::BTreeMap;

/// A root and all tokens up to the end of a block.
pub(crate) type Name = (u8, Vec<u32>);

#[derive(Default)]
pub(crate) struct Reference {
    /// When each cached block was last used, with whatever is behind it.
    used: BTreeMap<Name, u64>,
    /// The paths that requests and pins keep.
    leases: Vec<Name>,
    now: u64,
}

impl Reference {
    pub(crate) fn is_cached(&self, name: &Name) -> bool {
        self.used.contains_key(name)
    }

    pub(crate) fn cached(&self) -> usize {
        self.used.len()
    }

    /// All that is cached.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Name> {
        self.used.keys()
    }

    fn is_before(name: &Name, other: &Name) -> bool {
        name.0 == other.0 && other.1.starts_with(&name.1)
    }

    /// Whether a request or pin keeps it.
    fn is_kept(&self, name: &Name) -> bool {
        self.leases.iter().any(|lease| Self::is_before(name, lease))
    }

    pub(crate) fn idle(&self) -> usize {
        self.used.keys().filter(|name| !self.is_kept(name)).count()
    }

    pub(crate) fn insert(&mut self, name: Name) {
        self.used.entry(name).or_insert(0);
    }

    pub(crate) fn begin(&mut self, name: &Name) {
        self.leases.push(name.clone());
    }

    /// Ends a lease that was moved to a longer path.
    pub(crate) fn moved(&mut self, from: &Name, to: &Name) {
        let index = self.leases.iter().position(|lease| lease == from).unwrap();
        self.leases[index] = to.clone();
    }

    pub(crate) fn end(&mut self, name: &Name) {
        let index = self.leases.iter().position(|lease| lease == name).unwrap();
        self.leases.swap_remove(index);
        if !name.1.is_empty() && !self.is_kept(name) {
            self.now += 1;
            for (other, used) in &mut self.used {
                if Self::is_before(other, name) {
                    *used = self.now;
                }
            }
        }
    }

    /// Evicts the block unused for longest among those with nothing behind them.
    pub(crate) fn evict(&mut self) -> Option<Name> {
        let has_children = |name: &Name| self.used.keys().any(|other| other != name && Self::is_before(name, other));
        let victim = self.used.iter().filter(|(name, _)| !self.is_kept(name) && !has_children(name));
        let victim = victim.min_by_key(|(_, used)| **used).map(|(name, _)| name.clone())?;
        self.used.remove(&victim);
        Some(victim)
    }

    /// A root is forgotten: what is kept goes later, and nobody finds it again.
    pub(crate) fn forget(&mut self, root: u8, as_root: u8) {
        let names: Vec<_> = self.used.keys().filter(|name| name.0 == root).cloned().collect();
        for name in names {
            let used = self.used.remove(&name);
            if let Some(used) = used.filter(|_| self.is_kept(&name)) {
                self.used.insert((as_root, name.1), used);
            }
        }
        self.leases.iter_mut().filter(|lease| lease.0 == root).for_each(|lease| lease.0 = as_root);
    }
}
