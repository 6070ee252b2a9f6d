//! Built graphs, one for each set of parameters.

use std::fmt;

/// How many graphs are kept unless the engine says otherwise: decode, a few batch sizes, and a prefill shape or two. Ours;
/// the plan charges what each graph costs, so this is a choice of the engine and not a fact about devices.
pub const DEFAULT_GRAPHS: usize = 8;

/// What a [`GraphCache`] did so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct GraphStats {
    /// Graphs that were built: one for each set of parameters, and again only after an eviction.
    pub builds: u64,
    /// Switches to a graph that was there.
    pub reuses: u64,
    /// Graphs that made room.
    pub evictions: u64,
}

/// A graph was switched to.
#[derive(Debug)]
pub struct Switched<'c, K, G> {
    /// The graph.
    pub graph: &'c mut G,
    /// Whether it was built just now.
    pub built: bool,
    /// The graph that made room for it, to be released.
    pub evicted: Option<(K, G)>,
}

/// Graphs by parameter set, the one used last in front. A switch to a set that is there builds nothing.
///
/// `K` is everything that changes the topology: batch, flags, how many layers run on the device. A value that changes from
/// step to step (a position, a length) does not belong in it but in device memory that the graph reads.
///
/// ```
/// use memtier::account::GraphCache;
///
/// let mut graphs = GraphCache::new(2);
/// for batch in [1, 4, 1, 4, 1] {
///     let at = graphs.switch(batch, |batch| Ok::<_, ()>(format!("graph for {batch}")))?;
///     assert_eq!(*at.graph, format!("graph for {batch}"));
/// }
/// assert_eq!((graphs.stats().builds, graphs.stats().reuses), (2, 3));
/// # Ok::<(), ()>(())
/// ```
pub struct GraphCache<K, G> {
    /// The one used last is at the front. Few enough that a list beats a map.
    graphs: Vec<(K, G)>,
    capacity: usize,
    stats: GraphStats,
}

impl<K: PartialEq, G> GraphCache<K, G> {
    /// A cache of at most `capacity` graphs, and at least one: the graph in use.
    pub fn new(capacity: usize) -> Self {
        GraphCache { graphs: Vec::new(), capacity: capacity.max(1), stats: GraphStats::default() }
    }

    /// Switches to the graph for `params`, which is built when it is not there. A full cache gives up the graph that was
    /// not used for the longest time, after the new one was built.
    ///
    /// # Errors
    /// What `build` returned; the cache is as before.
    pub fn switch<E>(&mut self, params: K, build: impl FnOnce(&K) -> Result<G, E>) -> Result<Switched<'_, K, G>, E> {
        let found = self.graphs.iter().position(|(key, _)| *key == params);
        let mut evicted = None;
        match found {
            Some(index) => {
                self.graphs[..=index].rotate_right(1);
                self.stats.reuses += 1;
            }
            None => {
                let graph = build(&params)?;
                self.stats.builds += 1;
                if self.graphs.len() >= self.capacity {
                    evicted = self.graphs.pop();
                    self.stats.evictions += 1;
                }
                self.graphs.insert(0, (params, graph));
            }
        }
        Ok(Switched { graph: &mut self.graphs[0].1, built: found.is_none(), evicted })
    }

    /// The graph used last.
    pub fn current(&mut self) -> Option<(&K, &mut G)> {
        self.graphs.first_mut().map(|(key, graph)| (&*key, graph))
    }

    /// Takes out every graph, to be released: the weights they read are about to go.
    pub fn drain(&mut self) -> Vec<(K, G)> {
        std::mem::take(&mut self.graphs)
    }

    /// How many graphs there are.
    pub fn len(&self) -> usize {
        self.graphs.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.graphs.is_empty()
    }

    /// What it did so far.
    pub fn stats(&self) -> GraphStats {
        self.stats
    }
}

impl<K: PartialEq, G> Default for GraphCache<K, G> {
    fn default() -> Self {
        Self::new(DEFAULT_GRAPHS)
    }
}

impl<K, G> fmt::Debug for GraphCache<K, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} graphs, {:?}", self.graphs.len(), self.capacity, self.stats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_build_for_each_parameter_set() {
        let mut graphs = GraphCache::new(4);
        for round in 0..1000u32 {
            let switched = graphs.switch(round % 4, |params| Ok::<_, ()>(*params)).unwrap();
            assert_eq!((*switched.graph, switched.built, switched.evicted), (round % 4, round < 4, None));
        }
        assert_eq!(graphs.stats(), GraphStats { builds: 4, reuses: 996, evictions: 0 });
    }

    #[test]
    fn the_graph_unused_for_longest_makes_room() {
        let mut graphs = GraphCache::new(2);
        let mut switch = |params| graphs.switch(params, |params| Ok::<_, ()>(*params)).unwrap().evicted;
        assert_eq!([switch('a'), switch('b'), switch('a'), switch('c')], [None, None, None, Some(('b', 'b'))]);
    }

    #[test]
    fn a_failed_build_changes_nothing() {
        let mut graphs = GraphCache::new(1);
        graphs.switch('a', |_| Ok::<_, &str>(1)).unwrap();
        assert_eq!(graphs.switch('b', |_| Err("no memory")).unwrap_err(), "no memory");
        assert_eq!(graphs.current().map(|(key, graph)| (*key, *graph)), Some(('a', 1)));
        assert_eq!(graphs.stats().builds, 1);
        assert_eq!(graphs.drain(), [('a', 1)]);
        assert!(graphs.is_empty());
    }
}
