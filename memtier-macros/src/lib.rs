//! The attribute macros of memtier.
#![forbid(unsafe_code)]

mod attr;
mod bounds;
mod check;
mod expand;
mod fallback;
mod handoff;
mod model;
mod report;

use proc_macro::TokenStream;

/// Makes a struct of device arrays a storage.
#[proc_macro_attribute]
pub fn tier(args: TokenStream, item: TokenStream) -> TokenStream {
    handoff::storage(args.into(), item.into()).into()
}

/// Makes a struct of parts a bundle: what an engine owns while serving, and all that its graphs may bake in.
#[proc_macro_attribute]
pub fn graph_captured(args: TokenStream, item: TokenStream) -> TokenStream {
    handoff::bundle(args.into(), item.into()).into()
}

/// The second stage of `#[tier(..)]`: a derive, because a derive sees `cfg` evaluated.
#[doc(hidden)]
#[proc_macro_derive(__MtStorage, attributes(__mt_tier, __mt_field, __mt_attr))]
pub fn storage(item: TokenStream) -> TokenStream {
    expand::storage(item.into()).into()
}

/// The second stage of `#[graph_captured]`.
#[doc(hidden)]
#[proc_macro_derive(__MtBundle, attributes(__mt_bundle, __mt_attr))]
pub fn bundle(item: TokenStream) -> TokenStream {
    expand::bundle(item.into()).into()
}
