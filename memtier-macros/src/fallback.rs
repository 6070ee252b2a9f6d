//! What becomes of an item that no storage can be made of: it is written out again, so that the author sees one message
//! and an editor still knows the item.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::quote;
use syn::{
    Field, Fields, Item, ItemStruct, Visibility,
    ext::IdentExt,
    parse::{ParseStream, Parser},
    spanned::Spanned,
};

use crate::{
    attr::{FIELD, HELPERS},
    report::Errors,
};

/// Which attribute is being expanded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Macro {
    Tier,
    GraphCaptured,
}

impl Macro {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Macro::Tier => "tier",
            Macro::GraphCaptured => "graph_captured",
        }
    }

    fn example(self) -> &'static str {
        match self {
            Macro::Tier => "`struct Weights { #[shape(rows, columns)] query: f32 }`",
            Macro::GraphCaptured => "`struct Model { weights: Weights, kv: BlockPool<GlobalKv<f16>> }`",
        }
    }
}

/// The struct that the attribute stands on, or what to put out instead.
pub(crate) fn structure(
    of: Macro,
    item: TokenStream,
    errors: &mut Errors,
) -> std::result::Result<ItemStruct, TokenStream> {
    let again = |item: TokenStream| Err(without_our_attributes(item));
    match syn::parse2::<Item>(item.clone()) {
        Ok(Item::Struct(found)) => match &found.fields {
            _ if borrows(of, &found, errors) => again(item),
            Fields::Named(_) => Ok(found),
            Fields::Unnamed(_) => {
                refuse(of, "a tuple struct", "fields need names", found.ident.span(), errors);
                again(item)
            }
            Fields::Unit => {
                refuse(of, "a unit struct", "there is nothing to own", found.ident.span(), errors);
                again(item)
            }
        },
        Ok(Item::Enum(found)) => {
            refuse(of, "an enum", "what is optional gets its own field", found.ident.span(), errors);
            again(item)
        }
        Ok(Item::Union(found)) => {
            refuse(of, "a union", "buffers never share memory", found.ident.span(), errors);
            again(item)
        }
        Ok(found) => {
            refuse(of, "this item", "it owns nothing", found.span(), errors);
            again(item)
        }
        Err(error) => match mend(item.clone(), errors) {
            Some(mended) => Ok(mended),
            None => {
                errors.push(error);
                again(item)
            }
        },
    }
}

/// Whether it has lifetimes, which is reported.
fn borrows(of: Macro, found: &ItemStruct, errors: &mut Errors) -> bool {
    let mut lifetimes = found.generics.lifetimes().peekable();
    let what = match of {
        Macro::Tier => "a storage owns its memory",
        Macro::GraphCaptured => "a bundle owns its parts",
    };
    let any = lifetimes.peek().is_some();
    for param in lifetimes {
        errors.mark(
            &param.lifetime,
            format!("no lifetime here: {what} and is `'static`; borrowed views are generated from it"),
        );
    }
    any
}

fn refuse(of: Macro, what: &str, why: &str, span: Span, errors: &mut Errors) {
    errors.at(
        span,
        format!(
            "`#[{}]` cannot be used on {what}: {why}; write a struct with named fields, {}",
            of.name(),
            of.example()
        ),
    );
}

/// The tokens without the attributes that only our macros understand.
fn without_our_attributes(tokens: TokenStream) -> TokenStream {
    let mut kept: Vec<TokenTree> = Vec::new();
    for tree in tokens {
        match tree {
            TokenTree::Group(group) => {
                let after_hash = matches!(kept.last(), Some(TokenTree::Punct(punct)) if punct.as_char() == '#');
                if after_hash && group.delimiter() == Delimiter::Bracket && is_ours(&group) {
                    kept.pop();
                    continue;
                }
                let mut inner = Group::new(group.delimiter(), without_our_attributes(group.stream()));
                inner.set_span(group.span());
                kept.push(inner.into());
            }
            tree => kept.push(tree),
        }
    }
    kept.into_iter().collect()
}

fn is_ours(attribute: &Group) -> bool {
    match attribute.stream().into_iter().next() {
        Some(TokenTree::Ident(name)) => {
            let name = name.to_string();
            FIELD.contains(&name.as_str()) || HELPERS.contains(&name.as_str())
        }
        _ => false,
    }
}

/// A struct with a field that is half typed: the whole ones are kept, a half one keeps its name and has no type.
///
/// The compiler has reported the syntax error already; only what it explains badly is reported here.
fn mend(item: TokenStream, errors: &mut Errors) -> Option<ItemStruct> {
    let mut trees: Vec<_> = item.into_iter().collect();
    let at = trees.iter().rposition(is_brace)?;
    let TokenTree::Group(body) = trees.remove(at) else { return None };
    let mut empty = Group::new(Delimiter::Brace, TokenStream::new());
    empty.set_span(body.span());
    trees.insert(at, empty.into());
    let mut mended: ItemStruct = syn::parse2(trees.into_iter().collect()).ok()?;
    let fields: Vec<_> = pieces(body.stream()).into_iter().filter_map(|piece| field(piece, errors)).collect();
    if let Fields::Named(named) = &mut mended.fields {
        named.named = fields.into_iter().collect();
    }
    Some(mended)
}

fn is_brace(tree: &TokenTree) -> bool {
    matches!(tree, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

/// What stands between the commas, outside of `<..>`.
fn pieces(body: TokenStream) -> Vec<TokenStream> {
    let mut pieces = vec![TokenStream::new()];
    let (mut depth, mut arrow) = (0usize, false);
    for tree in body {
        let punct = if let TokenTree::Punct(punct) = &tree { punct.as_char() } else { ' ' };
        match punct {
            '<' => depth += 1,
            '>' if !arrow => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                pieces.push(TokenStream::new());
                continue;
            }
            _ => {}
        }
        arrow = punct == '-';
        pieces.last_mut().expect("never empty").extend([tree]);
    }
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

fn field(piece: TokenStream, errors: &mut Errors) -> Option<Field> {
    Field::parse_named.parse2(piece.clone()).ok().or_else(|| half_typed(piece, errors))
}

/// The name and the visibility of what is no whole field yet.
fn half_typed(piece: TokenStream, errors: &mut Errors) -> Option<Field> {
    let mut trees = piece.into_iter().peekable();
    while trees.next_if(|tree| matches!(tree, TokenTree::Punct(punct) if punct.as_char() == '#')).is_some() {
        if let Some(TokenTree::Group(group)) = trees.next()
            && let Some(comma) = comma(&group)
        {
            let message = "an attribute says one thing: write `#[shape(.., align = 256)]`, or two attributes";
            errors.at(comma, message);
        }
    }
    let parser = |input: ParseStream<'_>| {
        let vis: Visibility = input.parse()?;
        let name = input.call(Ident::parse_any)?;
        input.parse::<TokenStream>()?;
        Ok((vis, name))
    };
    let (vis, name) = parser.parse2(trees.collect()).ok()?;
    Some(half(&name, &vis))
}

/// A field of which only the name is known.
pub(crate) fn half(name: &Ident, vis: &Visibility) -> Field {
    let parse = Field::parse_named;
    parse.parse2(quote!(#[__mt_field(half, #vis, ())] #vis #name: ())).expect("a field")
}

/// The comma in `#[shape(..), align(..)]`.
fn comma(attribute: &Group) -> Option<Span> {
    attribute.stream().into_iter().find_map(|tree| match tree {
        TokenTree::Punct(punct) if punct.as_char() == ',' => Some(punct.span()),
        _ => None,
    })
}
