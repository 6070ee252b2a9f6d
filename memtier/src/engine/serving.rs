//! Serving, and the swap of a model.

use std::fmt;

use super::{Drained, EndsModel, Engine, Loading, OwnsBuffers, Phase, Serves, Serving, Token};
use crate::{
    backend::{AcquireError, QueueError},
    bundle::Bundle,
    generated::{Gates, Swap},
    plan::MemoryPlan,
    pool::Quiet,
    units::{Blocks, Bytes},
};

impl<Ph: Phase> Engine<Ph> {
    /// The bundle, for what requests do with its pools, from any thread. It gives names, not addresses: those come from a
    /// step, which orders their use. Never by `&mut`: a part that was swapped out would be missed by a graph.
    pub fn bundle<B>(&self) -> &B
    where
        Ph: Serves<B>,
    {
        self.phase.bundle(Token(()))
    }

    /// Decommits what planned commits added to pools and nobody uses, from the end of each pool, and puts the commits back.
    /// Waits for every stream; call it when the engine has been idle for a while, since committing again costs a driver call.
    ///
    /// Returns the bytes that were given back.
    ///
    /// # Errors
    /// [`Busy::Device`] when the device failed, [`Busy::Release`] when it refused.
    pub fn give_back<B: Bundle>(&mut self) -> Result<Bytes, Busy>
    where
        Ph: OwnsBuffers<B>,
    {
        self.lanes.drain().map_err(Busy::Device)?;
        let mut result = Ok(Bytes::ZERO);
        self.phase.parts(Token(())).bundle.gates(&mut Gates(&mut |pool| {
            let given = pool.give_back(&Quiet::drained()).map_err(Busy::Release);
            result = std::mem::replace(&mut result, Ok(Bytes::ZERO))
                .and_then(|sum| given.map(|given| sum.plus(given).unwrap_or(Bytes::MAX)));
        }));
        result
    }

    /// Stops serving: waits for every stream, closes every pool, and checks that every block came back. Then the model can
    /// end, and no request can get a block until it does.
    ///
    /// # Errors
    /// [`DrainError`] with the engine, still serving.
    pub fn drain<B: Bundle>(self) -> Result<Engine<Serving<Drained<B>>>, DrainError<B>>
    where
        Ph: Serves<B>,
    {
        let engine = self.into_phase(|phase| phase.into_serving(Token(())));
        if let Err(error) = engine.lanes.drain() {
            return Err(DrainError { cause: Busy::Device(error), engine: Box::new(engine) });
        }
        let mut busy = None;
        engine.phase.owned.gates(&mut Gates(&mut |pool| {
            let Some(core) = pool.core() else { return };
            let live = core.close(true);
            if !live.is_zero() {
                busy.get_or_insert(Busy::Blocks { pool: core.name(), live });
            }
        }));
        match busy {
            None => Ok(engine.into_phase(|Serving { graphs, owned, plan, unclaimed }| Serving {
                graphs,
                owned: Drained(owned),
                plan,
                unclaimed,
            })),
            Some(cause) => {
                reopen(&engine.phase.owned);
                Err(DrainError { cause, engine: Box::new(engine) })
            }
        }
    }

    /// Ends the model. Its graphs and model-resident storage are gone; what its tier lets survive comes back, at the same
    /// addresses, with an engine that loads the next one.
    pub fn end_model<B: Bundle>(self) -> (Engine<Loading>, B::Kept)
    where
        Ph: EndsModel<B>,
    {
        let Engine { mut lanes, phase, mut core } = self;
        // They were drained. The next model's pools have yet to see them.
        lanes.0.clear();
        let Serving { graphs, owned: Drained(bundle), .. } = phase.into_drained(Token(()));
        drop(graphs);
        let kept = bundle.kept(&Swap(()));
        core.plan = crate::next_id();
        core.phase.set(Loading::NAME);
        (Engine { lanes, phase: Loading { declared: Vec::new(), growth: Bytes::ZERO }, core }, kept)
    }

    /// Goes on serving after a drain.
    pub fn resume<B: Bundle>(self) -> Engine<Serving<B>>
    where
        Ph: EndsModel<B>,
    {
        let engine = self.into_phase(|phase| phase.into_drained(Token(())));
        reopen(&engine.phase.owned.0);
        engine.into_phase(|Serving { graphs, owned: Drained(owned), plan, unclaimed }| Serving {
            graphs,
            owned,
            plan,
            unclaimed,
        })
    }
}

/// Requests get blocks again.
fn reopen<B: Bundle>(bundle: &B) {
    bundle.gates(&mut Gates(&mut |pool| {
        if let Some(core) = pool.core() {
            core.close(false);
        }
    }));
}

impl<B: Send + Sync> Engine<super::Planning<B>> {
    /// The accepted plan.
    pub fn memory_plan(&self) -> &MemoryPlan {
        &self.phase.plan
    }
}

impl<B: Send + Sync> Engine<Serving<B>> {
    /// The accepted plan.
    pub fn memory_plan(&self) -> &MemoryPlan {
        &self.phase.plan
    }

    /// Names of lines that were planned and never carved: memory that is paid for and does nothing.
    pub fn unclaimed(&self) -> &[String] {
        &self.phase.unclaimed
    }
}

/// The engine is not drained; it is still serving.
#[derive(thiserror::Error)]
#[error("{cause}")]
pub struct DrainError<B: Bundle> {
    /// Why not.
    #[source]
    pub cause: Busy,
    /// The engine, still serving.
    pub engine: Box<Engine<Serving<B>>>,
}

/// Why an engine is not drained.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Busy {
    /// Requests, published prefixes or page table rows still hold blocks.
    #[error(
        "{live} of the {pool} pool are still held: drop tickets and prefixes, clear page table rows, and drain again"
    )]
    Blocks {
        /// The pool that misses blocks.
        pool: &'static str,
        /// How many.
        live: Blocks,
    },
    /// The device failed.
    #[error(transparent)]
    Device(QueueError),
    /// The device did not take memory back.
    #[error(transparent)]
    Release(AcquireError),
}

impl<B: Bundle> fmt::Debug for DrainError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.cause, f)
    }
}
