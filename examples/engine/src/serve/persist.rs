//! Cached prefixes outlive the process: saved to a folder, and loaded by the next engine.

use std::{path::Path as Folder, sync::Arc};

use futures_executor::block_on;
use memtier::{Blocks, Engine, PoolView, PrefixCache, Serving, Snapshots, Step, Stream, SwaKv, f16};
use memtier_store::{Loaded, PrefixStore, Saver, StoreSpec};
use object_store::{local::LocalFileSystem, path::Path};

use super::{
    Llm,
    prefixes::{Kv, Prefixes},
    states::States,
};
use crate::{
    EngineError,
    compute::Compute,
    model::{Model, ModelView},
};

type Pool<'v, 's, S> = &'v mut PoolView<'s, Kv, memtier::Eager<S>>;

type Windows<'v, 's, S> = &'v mut PoolView<'s, SwaKv<f16>, memtier::Eager<S>>;

/// The name of the copies of windows in a save.
const WINDOWS: &str = "window";

/// A cache that is saved, and which of the bundle's pools its blocks are in.
#[derive(Clone, Copy)]
enum Tier {
    First,
    Second,
}

impl Tier {
    fn pool<'v, 's, S: Compute>(self, view: &'v mut ModelView<'s, memtier::Eager<S>>) -> Option<Pool<'v, 's, S>> {
        match self {
            Tier::First => Some(&mut view.kv),
            Tier::Second => view.cold.as_mut(),
        }
    }

    fn windows<'v, 's, S: Compute>(self, view: &'v mut ModelView<'s, memtier::Eager<S>>) -> Option<Windows<'v, 's, S>> {
        match self {
            Tier::First => view.window.as_mut(),
            Tier::Second => view.cold_window.as_mut(),
        }
    }

    /// The copies of windows beside it.
    fn states(self, states: &mut States) -> Option<&mut Snapshots<SwaKv<f16>>> {
        match (self, states) {
            (Tier::First, states) => Some(states.near_mut()),
            (Tier::Second, States::Tiered(tiered)) => Some(tiered.cold_mut()),
            (Tier::Second, States::Near(_)) => None,
        }
    }
}

impl Prefixes {
    fn caches(&self) -> impl Iterator<Item = (Tier, PrefixCache<Kv>)> + use<> {
        let second = self.tiers.as_ref().map(|tiers| (Tier::Second, tiers.cold().clone()));
        [(Tier::First, self.cache.clone())].into_iter().chain(second)
    }

    /// Where a tier is kept: another place for each model, so that none finds another's.
    fn store(&self, folder: &Folder, tier: Tier) -> Result<PrefixStore, EngineError> {
        let wrong = |error: &dyn std::fmt::Display| EngineError::Setting {
            name: "prefix-store",
            value: folder.display().to_string(),
            remedy: format!("use a folder that can be written: {error}"),
        };
        std::fs::create_dir_all(folder).map_err(|error| wrong(&error))?;
        let objects = LocalFileSystem::new_with_prefix(folder).map_err(|error| wrong(&error))?;
        let root = self.cache.root_digest(self.root)?;
        let tier = match tier {
            Tier::First => "first",
            Tier::Second => "second",
        };
        Ok(PrefixStore::new(Arc::new(objects), Path::from(root.to_string()).join(tier), StoreSpec::default()))
    }
}

/// What a part of a model has its blocks in.
type Part<'l, S> = (&'l mut Engine<Serving<Model<S>>>, &'l mut Stream<S>);

impl Prefixes {
    /// Saves what is cached in a part. How many blocks.
    pub(super) fn save<S: Compute>(
        &mut self,
        (engine, stream): Part<'_, S>,
        folder: &Folder,
    ) -> Result<u64, EngineError> {
        let mut blocks = 0;
        for (tier, cache) in self.caches() {
            let mut saver = self.store(folder, tier)?.save(&cache)?;
            loop {
                let mut step = engine.step(stream)?;
                let segment = match tier.pool(&mut step.buffers) {
                    Some(pool) => saver.gather(step.on, pool)?,
                    None => None,
                };
                step.finish()?.wait()?;
                let Some(segment) = segment else { break };
                block_on(saver.put(&segment))?;
            }
            self.save_windows(tier, (&mut *engine, &mut *stream), &mut saver)?;
            blocks += block_on(saver.commit())?.blocks.count();
        }
        Ok(blocks)
    }

    /// Reads the copies of windows beside a tier into a save, and puts them.
    fn save_windows<S: Compute>(
        &mut self,
        tier: Tier,
        (engine, stream): Part<'_, S>,
        saver: &mut Saver<Kv>,
    ) -> Result<(), EngineError> {
        let Some(snapshots) = self.states.as_mut().and_then(|states| tier.states(states)) else { return Ok(()) };
        let mut states = saver.states(WINDOWS, snapshots)?;
        loop {
            let mut step = engine.step(stream)?;
            let segment = match tier.windows(&mut step.buffers) {
                Some(windows) => states.gather(step.on, windows)?,
                None => None,
            };
            step.finish()?.wait()?;
            let Some(segment) = segment else { return Ok(()) };
            block_on(saver.put(&segment))?;
        }
    }

    /// Loads what was saved of a part, as far as there is room. What became of each tier that was found.
    pub(super) fn load<S: Compute>(
        &mut self,
        (engine, stream): Part<'_, S>,
        folder: &Folder,
    ) -> Result<Vec<Loaded>, EngineError> {
        let mut all = Vec::new();
        for (tier, cache) in self.caches() {
            let store = self.store(folder, tier)?;
            let Some(mut loader) = block_on(store.load(&cache))? else { continue };
            while block_on(loader.fetch())? {
                // What the plan has paid for.
                let kv = &engine.bundle().kv;
                while matches!(tier, Tier::First)
                    && kv.free() < loader.pending()
                    && let Some(commit) = kv.planned_commit()
                {
                    kv.grow(commit).map_err(|error| EngineError::Busy(error.to_string()))?;
                }
                let mut step: Step<'_, _, _> = engine.step(stream)?;
                let Some(pool) = tier.pool(&mut step.buffers) else { break };
                let batch = loader.write(step.on, pool)?;
                loader.publish(batch, &step.finish()?)?;
            }
            if let Some(snapshots) = self.states.as_mut().and_then(|states| tier.states(states))
                && let Some(mut windows) = loader.states(WINDOWS)?
            {
                while block_on(windows.fetch())? {
                    let mut step: Step<'_, _, _> = engine.step(stream)?;
                    let Some(pool) = tier.windows(&mut step.buffers) else { break };
                    let batch = windows.write(step.on, pool, snapshots)?;
                    windows.keep(batch, &step.finish()?, snapshots)?;
                }
            }
            all.push(loader.finish());
        }
        Ok(all)
    }
}

impl<S: Compute> Llm<S> {
    /// Saves what is cached, with the copies of windows that prompts need to start with it, to [`Settings::prefix_store`](crate::Settings::prefix_store). Between passes; requests may run. How many blocks,
    /// those of both parts where layers are in two memories; `None` without a folder.
    ///
    /// # Errors
    /// [`EngineError::Store`]; what was saved before is still there.
    pub fn save_prefixes(&mut self) -> Result<Option<Blocks>, EngineError> {
        // What is on its way is there, then.
        self.spilled()?;
        let Llm { prefixes: Some(prefixes), front, settings, engine, stream, .. } = self else { return Ok(None) };
        let Some(folder) = &settings.prefix_store else { return Ok(None) };
        let mut blocks = prefixes.save((engine, stream), folder)?;
        if let Some(front) = front {
            blocks += front.save_prefixes(folder)?;
        }
        Ok(Some(Blocks::new(blocks)))
    }

    /// Loads what an engine with this model has saved to [`Settings::prefix_store`](crate::Settings::prefix_store), as far as there is room: it
    /// evicts nothing. What became of each tier, and of each part, that was found.
    ///
    /// # Errors
    /// [`EngineError::Store`].
    pub fn load_prefixes(&mut self) -> Result<Vec<Loaded>, EngineError> {
        let Llm { prefixes: Some(prefixes), front, settings, engine, stream, .. } = self else { return Ok(Vec::new()) };
        let Some(folder) = &settings.prefix_store else { return Ok(Vec::new()) };
        let mut all = prefixes.load((engine, stream), folder)?;
        if let Some(front) = front {
            all.extend(front.load_prefixes(folder)?);
        }
        Ok(all)
    }
}
