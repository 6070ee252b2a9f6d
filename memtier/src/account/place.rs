//! Which buffer each node of a graph gets.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    class::SizeClass,
    pool::{BackendId, Buf, ClassPool, Length, SlotId, TakeError},
};
use crate::units::Bytes;

/// Where a node's data is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Storage {
    /// Filled by the host before the graph runs.
    Input,
    /// Computed into a buffer of its own.
    Computed,
    /// In the buffer of an earlier node: a view, or an operation in place.
    Alias(usize),
}

/// One node of a graph, in the order of execution.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Where it runs.
    pub backend: BackendId,
    /// Its logical length.
    pub len: Bytes,
    /// Where its data is.
    pub storage: Storage,
    /// The earlier nodes that it reads.
    pub reads: Vec<usize>,
    /// Whether it is read after the graph has run.
    pub output: bool,
}

/// A list of nodes that is no graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TopologyError {
    /// A node reads or aliases one that does not come before it.
    #[error("node {node} refers to node {to}, which does not come before it")]
    NotBefore {
        /// Which node.
        node: usize,
        /// What it refers to.
        to: usize,
    },
    /// An alias is longer than the buffer it lies in, or on another backend.
    #[error("node {node} is an alias of node {of}, which is shorter or on another backend")]
    BadAlias {
        /// Which node.
        node: usize,
        /// The node in whose buffer it should lie.
        of: usize,
    },
}

/// Why a graph got no buffers. Those taken so far are back in the pool.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlaceError<E> {
    /// The nodes are no graph.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A buffer could not be had.
    #[error("node {node}: {error}")]
    Take {
        /// For which node.
        node: usize,
        /// Why.
        error: TakeError<E>,
    },
}

/// When a node's buffer is needed for the last time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Life {
    /// The node that owns the buffer: itself, or the one at the end of a chain of aliases.
    pub root: usize,
    /// The last step that reads or writes the buffer, through any alias; `None` for one that outlives the graph.
    pub last: Option<usize>,
}

/// The life of every node's buffer. Pure.
///
/// An alias makes its root live as long as the alias is read: a buffer that is freed at the last use of its first name is
/// overwritten under its second.
///
/// # Errors
/// [`TopologyError`].
pub fn lives(nodes: &[Node]) -> Result<Vec<Life>, TopologyError> {
    let mut lives: Vec<Life> = Vec::with_capacity(nodes.len());
    for (index, node) in nodes.iter().enumerate() {
        if let Some(to) = node.reads.iter().copied().find(|read| *read >= index) {
            return Err(TopologyError::NotBefore { node: index, to });
        }
        let root = match node.storage {
            Storage::Input | Storage::Computed => index,
            Storage::Alias(of) => match nodes.get(of).filter(|_| of < index) {
                None => return Err(TopologyError::NotBefore { node: index, to: of }),
                Some(target) if target.len < node.len || target.backend != node.backend => {
                    return Err(TopologyError::BadAlias { node: index, of });
                }
                Some(_) => lives[of].root,
            },
        };
        lives.push(Life { root, last: Some(index) });
        // Steps only grow, so the latest use seen is the last one.
        for used in node.reads.iter().copied().chain([index]) {
            let root = lives[used].root;
            lives[root].last = lives[root].last.map(|_| index);
        }
        if node.output {
            lives[root].last = None;
        }
    }
    for index in 0..lives.len() {
        lives[index].last = lives[lives[index].root].last;
    }
    Ok(lives)
}

/// The buffers of one graph. They belong to it until they are [released](Self::release).
#[derive(Debug)]
#[must_use = "buffers that are dropped stay charged: give them back with `release`"]
pub struct Placement {
    bufs: Vec<Buf>,
    /// For each node, its buffer's index and its own length.
    nodes: Vec<(usize, Length)>,
}

impl Placement {
    /// Takes a buffer for every node.
    ///
    /// All inputs are placed before the walk: they are filled before the graph runs, so none may lie in a buffer that a
    /// computed node also uses earlier. Then the nodes follow in order, and a buffer whose last reader has run serves later
    /// nodes of its class, the smallest number first.
    ///
    /// The same nodes get the same buffers each time, provided that the idle buffers of their classes are the same or have
    /// only grown by what an earlier placement of these nodes created.
    ///
    /// # Errors
    /// [`PlaceError`]; every buffer is back in the pool.
    pub fn of<M, E>(
        nodes: &[Node],
        pool: &mut ClassPool<M>,
        mut create: impl FnMut(BackendId, Bytes) -> Result<M, E>,
    ) -> Result<Self, PlaceError<E>> {
        let lives = lives(nodes)?;
        let mut walk = Walk { bufs: Vec::new(), of_root: vec![None; nodes.len()], free: BTreeMap::new() };
        let inputs = |node: &Node| node.storage == Storage::Input;
        let passes = [true, false].into_iter().flat_map(|first| (0..nodes.len()).map(move |index| (first, index)));
        for (first, index) in passes {
            let node = &nodes[index];
            if node.storage != Storage::Computed && !inputs(node) {
                // An alias: its root has the buffer.
            } else if inputs(node) == first
                && let Err(error) = walk.place(index, node, pool, &mut create)
            {
                walk.unwind(pool);
                return Err(PlaceError::Take { node: index, error });
            }
            if !first {
                walk.sweep(index, nodes, &lives);
            }
        }
        let of_node = |(node, life): (&Node, &Life)| (walk.of_root[life.root].unwrap_or(0), Length::new(node.len));
        let nodes = nodes.iter().zip(&lives).map(of_node).collect();
        Ok(Placement { bufs: walk.bufs, nodes })
    }

    /// The number of a node's buffer.
    pub fn slot(&self, node: usize) -> Option<SlotId> {
        self.buf(node).map(Buf::slot)
    }

    /// A node's buffer. Its own length is that of the first node that took it: what this node may read and write is
    /// [`length`](Self::length).
    pub fn buf(&self, node: usize) -> Option<&Buf> {
        self.bufs.get(self.nodes.get(node)?.0)
    }

    /// What may be read and written of a node.
    pub fn length(&self, node: usize) -> Option<Length> {
        Some(self.nodes.get(node)?.1)
    }

    /// How many buffers the graph has.
    pub fn buffers(&self) -> usize {
        self.bufs.len()
    }

    /// Gives all buffers back for the next build.
    ///
    /// # Errors
    /// Itself, when the buffers are of another pool.
    pub fn release<M>(mut self, pool: &mut ClassPool<M>) -> Result<(), Self> {
        while let Some(buf) = self.bufs.pop() {
            if let Err(buf) = pool.release(buf) {
                self.bufs.push(buf);
                return Err(self);
            }
        }
        Ok(())
    }
}

/// A placement under construction.
struct Walk {
    bufs: Vec<Buf>,
    /// For each node that owns one, its buffer.
    of_root: Vec<Option<usize>>,
    /// Buffers of this graph that no later step reads, by class: number, then index.
    free: BTreeMap<(BackendId, SizeClass), BTreeSet<(SlotId, usize)>>,
}

impl Walk {
    fn place<M, E>(
        &mut self,
        index: usize,
        node: &Node,
        pool: &mut ClassPool<M>,
        create: &mut impl FnMut(BackendId, Bytes) -> Result<M, E>,
    ) -> Result<(), TakeError<E>> {
        let class = SizeClass::of(node.len)?;
        let outside = pool.smallest_idle(node.backend, class);
        let own = self.free.get_mut(&(node.backend, class));
        // One order over both: where a buffer waits must not change which one is taken, or the second build would differ.
        let swept = own.and_then(|free| {
            let (slot, _) = *free.first()?;
            if outside.is_none_or(|outside| slot < outside) { free.pop_first() } else { None }
        });
        let buffer = match swept {
            Some((_, buffer)) => buffer,
            None => {
                self.bufs.push(pool.take(node.backend, node.len, |bytes| create(node.backend, bytes))?);
                self.bufs.len() - 1
            }
        };
        self.of_root[index] = Some(buffer);
        Ok(())
    }

    /// Frees, for later steps, what step `index` used last.
    fn sweep(&mut self, index: usize, nodes: &[Node], lives: &[Life]) {
        let used = nodes[index].reads.iter().copied().chain([index]);
        let roots: BTreeSet<usize> = used.map(|used| lives[used].root).collect();
        for root in roots.into_iter().filter(|root| lives[*root].last == Some(index)) {
            let node = &nodes[root];
            if let (Some(buffer), Ok(class)) = (self.of_root[root], SizeClass::of(node.len)) {
                let slot = self.bufs[buffer].slot();
                self.free.entry((node.backend, class)).or_default().insert((slot, buffer));
            }
        }
    }

    fn unwind<M>(self, pool: &mut ClassPool<M>) {
        for buf in self.bufs {
            // They are this pool's: it handed them out a moment ago.
            let _ = pool.release(buf);
        }
    }
}
