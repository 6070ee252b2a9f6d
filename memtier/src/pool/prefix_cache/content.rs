//! What is in a block: the name under which it is cached.

use std::fmt;

/// The name of a block's content that is the same everywhere: in another process, on another machine, in a router.
///
/// BLAKE3 over the digest of what is before it, what else is in it, and its tokens (little endian).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Of the block of `tokens` behind the block, or root, of digest `self`. `extra` is [`Content::extra_of`] of the block.
    #[must_use]
    pub fn child(&self, extra: u128, tokens: &[u32]) -> Digest {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0).update(&extra.to_le_bytes());
        for token in tokens {
            hasher.update(&token.to_le_bytes());
        }
        Digest(*hasher.finalize().as_bytes())
    }

    /// The bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// From its bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Digest(bytes)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Everything besides tokens that changes what is in a block: the weights, an adapter, a rope scaling. The kind of pool, its element and
/// the shape of its blocks are added by the cache.
///
/// ```
/// use memtier::RootKey;
///
/// let plain = RootKey::new("smollm2-135m-instruct-q4_1, sha256 5f1c…");
/// let tuned = RootKey::new("smollm2-135m-instruct-q4_1, sha256 5f1c…").with("adapter", "support-desk v3");
/// assert_ne!(plain, tuned);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RootKey(Vec<u8>);

impl RootKey {
    /// The key of a model's own weights.
    #[must_use]
    pub fn new(model: impl AsRef<[u8]>) -> Self {
        RootKey(Vec::new()).with("model", model)
    }

    /// The same, with something else that changes the values.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        // Lengths first, so that no two lists of parts are the same bytes.
        for part in [name.as_bytes(), value.as_ref()] {
            self.0.extend((part.len() as u64).to_le_bytes());
            self.0.extend(part);
        }
        self
    }

    /// The digest of a root whose blocks have this layout.
    pub(super) fn digest(&self, kind: &str, element: &str, per_block: u64, units: u64) -> Digest {
        let key = self.clone().with("kind", kind).with("element", element);
        let key = key.with("tokens a block", per_block.to_le_bytes()).with("units a block", units.to_le_bytes());
        Digest(blake3::derive_key("memtier prefix cache root, version 1", &key.0))
    }
}

/// A root of one cache: prompts of one model and adapter. Made by [`PrefixCache::root`](super::PrefixCache::root).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Root {
    pub(super) tree: u64,
    pub(super) number: u64,
    pub(super) run: u32,
}

/// Something in a prompt besides its tokens: an image, a sound, whose place is held by tokens that say nothing of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extra {
    /// The first token that stands for it.
    pub token: usize,
    /// A digest of it, by a hash that nobody can find collisions of.
    pub digest: u128,
}

/// What a request's blocks hold: its tokens from the first on, and what else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Content<'c> {
    /// The model and adapter.
    pub root: Root,
    /// Token ids from the first on.
    pub tokens: &'c [u32],
    /// What else, in the order of tokens.
    pub extras: &'c [Extra],
}

impl<'c> Content<'c> {
    /// A prompt of nothing but tokens.
    #[must_use]
    pub const fn new(root: Root, tokens: &'c [u32]) -> Self {
        Content { root, tokens, extras: &[] }
    }

    /// What distinguishes a block whose first token is `first` from one of the same tokens: zero for nothing.
    #[must_use]
    pub fn extra_of(extras: &[Extra], first: usize, per_block: usize) -> u128 {
        let mut hasher = None::<blake3::Hasher>;
        for extra in extras.iter().filter(|extra| (first..first + per_block).contains(&extra.token)) {
            let hasher = hasher.get_or_insert_with(blake3::Hasher::new);
            hasher.update(&((extra.token - first) as u64).to_le_bytes()).update(&extra.digest.to_le_bytes());
        }
        hasher.map_or(0, |hasher| {
            let digest = hasher.finalize();
            let (low, _) = digest.as_bytes().split_at(16);
            low.iter().rev().fold(0, |sum, byte| sum << 8 | u128::from(*byte)).max(1)
        })
    }
}

/// The same as [`Content`], as a store or another tier knows it: what [`Content::extra_of`] said, block by block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockContent<'c> {
    /// The model and adapter.
    pub root: Root,
    /// Token ids from the first on.
    pub tokens: &'c [u32],
    /// One a block; zero, for nothing, where there are fewer.
    pub extras: &'c [u128],
}

/// Closes [`Contents`]: apart from the crate's other closed traits, which compiler messages list.
pub(super) mod closed {
    pub trait Closed {}
}

/// What is in the blocks of a request: [`Content`] or [`BlockContent`].
pub trait Contents: closed::Closed {
    #[doc(hidden)]
    fn root(&self) -> Root;
    #[doc(hidden)]
    fn tokens(&self) -> &[u32];
    /// What is in block `index` besides tokens.
    #[doc(hidden)]
    fn extra(&self, index: usize, per_block: usize) -> u128;
    /// Whether nothing is in any block besides tokens.
    #[doc(hidden)]
    fn is_plain(&self) -> bool;
}

impl closed::Closed for Content<'_> {}
impl Contents for Content<'_> {
    #[inline]
    fn root(&self) -> Root {
        self.root
    }

    #[inline]
    fn tokens(&self) -> &[u32] {
        self.tokens
    }

    #[inline]
    fn extra(&self, index: usize, per_block: usize) -> u128 {
        if self.extras.is_empty() { 0 } else { Content::extra_of(self.extras, index * per_block, per_block) }
    }

    #[inline]
    fn is_plain(&self) -> bool {
        self.extras.is_empty()
    }
}

impl closed::Closed for BlockContent<'_> {}
impl Contents for BlockContent<'_> {
    #[inline]
    fn root(&self) -> Root {
        self.root
    }

    #[inline]
    fn tokens(&self) -> &[u32] {
        self.tokens
    }

    #[inline]
    fn extra(&self, index: usize, _per_block: usize) -> u128 {
        self.extras.get(index).copied().unwrap_or(0)
    }

    #[inline]
    fn is_plain(&self) -> bool {
        self.extras.iter().all(|extra| *extra == 0)
    }
}
