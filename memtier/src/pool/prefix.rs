//! Published prefixes: blocks that other requests may start with.

use std::fmt;

use super::{BlockRef, Shareable, Ticket, core::SharedCore, kind::PoolKind};
use crate::units::{Blocks, Tokens};

/// Proof that a request's tokens are in memory. Borrows the ticket, so it cannot vouch for another one.
pub struct Written<'t, K: PoolKind> {
    ticket: &'t Ticket<K>,
}

impl<'t, K: PoolKind> Written<'t, K> {
    pub(super) fn new(ticket: &'t Ticket<K>) -> Self {
        Written { ticket }
    }

    /// The tokens it vouches for.
    pub fn tokens(&self) -> Tokens {
        self.ticket.tokens()
    }

    /// Makes the full blocks available to other requests. The first hole ends the prefix.
    pub fn publish(self) -> Prefix<K>
    where
        K: Shareable,
    {
        let Written { ticket } = self;
        let per_block = ticket.core().per_block.count().max(1);
        let full = (ticket.tokens().count() / per_block) as usize;
        let blocks: Vec<_> = (0..full).map_while(|index| ticket.share(index)).collect();
        let tokens = Tokens::new(blocks.len() as u64 * per_block);
        Prefix { core: ticket.core().clone(), blocks, tokens, epoch: ticket.epoch() }
    }
}

/// Never implemented: explains `publish` on a ticket (row r).
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a request's tokens are published with proof that they are in memory",
    label = "the launches that write them may be in flight",
    note = "`ticket.written(&settled)?.publish()`, where `settled` is a fence that was waited for: `step.finish()?.wait()?` of \
            the step that wrote them, or of a later one on its stream"
)]
pub trait InMemory<K> {
    #[doc(hidden)]
    fn published(&self) -> Prefix<K>;
}

impl<K: PoolKind> Ticket<K> {
    /// Cannot be called: it is here so that whoever looks for it is told what to call.
    #[doc(hidden)]
    pub fn publish(&self) -> Prefix<K>
    where
        Self: InMemory<K>,
    {
        self.published()
    }
}

/// Published blocks, with referents of their own.
pub struct Prefix<K> {
    core: SharedCore,
    blocks: Vec<BlockRef<K>>,
    tokens: Tokens,
    /// Of the model that wrote them: a request opened on it ends with that model.
    epoch: u64,
}

impl<K: PoolKind> Prefix<K> {
    /// A request that starts with these blocks, with room for `most` tokens in its table.
    pub fn open(&self, most: Tokens) -> Ticket<K>
    where
        K: Shareable,
    {
        let ids = self.blocks.iter().map(|block| {
            self.core.share(block.id());
            block.id()
        });
        Ticket::with_blocks(self.core.clone(), self.epoch, most.max(self.tokens), ids, self.tokens)
    }

    /// Tokens that a request opened on it starts with.
    pub fn tokens(&self) -> Tokens {
        self.tokens
    }

    /// Blocks it refers to.
    pub fn blocks(&self) -> Blocks {
        Blocks::new(self.blocks.len() as u64)
    }
}

impl<K: PoolKind> fmt::Debug for Prefix<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} prefix: {} in {}", K::NAME, self.tokens, self.blocks())
    }
}
