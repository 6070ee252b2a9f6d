//! Decode passes recorded once and replayed: one graph for each number of requests.

use memtier::{
    Engine, LaunchError, RecordError, Serving, Step, Stream,
    account::{GraphCache, GraphStats},
};

use crate::{
    EngineError,
    arch::Arch,
    compute::Compute,
    forward::{Pass, forward},
    model::Model,
};

/// The name of a recorded pass.
type Graph<S> = memtier::Graph<Model<S>>;

/// Recorded passes, the one used last in front. What changes from pass to pass (tokens, positions, lengths, block ids) is in
/// the workspace that the graph reads, so the number of tokens is the whole parameter set.
pub(super) struct Graphs<S: Compute> {
    /// `None` where passes are launched one by one.
    cache: Option<GraphCache<Pass, Graph<S>>>,
}

impl<S: Compute> Graphs<S> {
    /// At most `most` graphs; none at all for zero.
    pub(super) fn new(most: usize) -> Self {
        Graphs { cache: (most > 0).then(|| GraphCache::new(most)) }
    }

    pub(super) fn stats(&self) -> GraphStats {
        self.cache.as_ref().map(GraphCache::stats).unwrap_or_default()
    }

    /// The graph of `pass`, recorded when it is not there. `None` for what is not replayed: prompts, whose passes are of any
    /// length.
    pub(super) fn of(
        &mut self,
        pass: Pass,
        (ops, arch): (&S::Ops, &Arch),
        engine: &mut Engine<Serving<Model<S>>>,
        stream: &mut Stream<S>,
    ) -> Result<Option<Graph<S>>, EngineError> {
        let Some(cache) = self.cache.as_mut().filter(|_| pass.tokens > 0 && pass == Pass::decode(pass.tokens)) else {
            return Ok(None);
        };
        let mut once = |pass: &Pass| -> Result<Graph<S>, RecordError> {
            engine.record::<Model<S>, LaunchError, _>(stream, |step| {
                let Step { buffers, on, scratch, .. } = step;
                let on = *on;
                let mut frame = scratch.nested();
                let mut logits = frame.take(pass.picks * arch.vocab())?;
                let scratch = frame.nested();
                forward(ops, arch, *pass, buffers, on, scratch, &mut logits, &mut |_| Ok(()), &mut |_, _| Ok(()))
            })
        };
        let record = |pass: &Pass| match once(pass) {
            // A vendor's library refused a product when it was queued, which a capture tells too late to launch another kernel instead. It
            // is remembered for all products of so many rows, so the second recording asks the library for none; were it refused as well,
            // that is an error.
            Err(RecordError::Bake(LaunchError::Refused { .. })) => once(pass),
            recorded => recorded,
        };
        let switched = cache.switch(pass, record)?;
        let graph = *switched.graph;
        if let Some((_, old)) = switched.evicted {
            engine.forget(old)?;
        }
        Ok(Some(graph))
    }

    /// Gives every graph up: they will be recorded anew.
    pub(super) fn forget(&mut self, engine: &mut Engine<Serving<Model<S>>>) -> Result<(), EngineError> {
        let graphs = self.cache.as_mut().map(GraphCache::drain).unwrap_or_default();
        graphs.into_iter().try_for_each(|(_, graph)| Ok(engine.forget(graph)?))
    }
}
