//! Bounds that say once, at the type of a field, that it is the wrong type.
//!
//! Each generated item repeats them: inside it everything else then follows, so the compiler has nothing more to say, and what it
//! says about the bound itself has the same words at the same place each time, and is printed once.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::{GenericArgument, Generics, Path, PathArguments, PathSegment, Type, WherePredicate, spanned::Spanned};

use crate::{
    attr::Tier,
    model::{parameter, peel},
};

/// Elements that need no bound: they are what they are called.
const ELEMENTS: [&str; 26] = [
    "u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "f16", "f32", "f64", "bf16", "F8E4M3", "F8E5M2", "I4x2",
    "E2M1x2", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
];

/// Names that say "one value" and are no element, and what to write instead.
const VALUES: [(&str, &str); 6] = [
    ("usize", "`u64`"),
    ("isize", "`i64`"),
    ("u128", "`u64`, twice as many"),
    ("i128", "`i64`, twice as many"),
    ("bool", "`u8`"),
    ("char", "`u32`"),
];

/// Containers of the host: what is in them may be a field, they are none. Not `Cell`: models have cells of their own.
const WRAPPERS: [&str; 10] = ["Option", "Vec", "Box", "Arc", "Rc", "Cow", "RefCell", "Mutex", "RwLock", "SmallVec"];

/// Whether a type is one of them, by its name and by what it contains: a `Box` of nothing is an author's own.
pub(crate) fn is_wrapper(ty: &Type) -> bool {
    first_argument(ty).is_some() && last_name(ty).is_some_and(|name| WRAPPERS.contains(&name.as_str()))
}

/// The first type in `<..>`.
pub(crate) fn first_argument(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = peel(ty) else { return None };
    first_of(path.path.segments.last()?)
}

/// The same of the last segment of a path.
pub(crate) fn first_of(segment: &PathSegment) -> Option<&Type> {
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else { return None };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

/// Whether a type is certainly an element, by its name.
pub(crate) fn is_element(ty: &Type) -> bool {
    last_name(ty).is_some_and(|name| ELEMENTS.contains(&name.as_str()))
}

/// Whether a type is certainly no storage: a field of it that has no shape has forgotten it.
pub(crate) fn is_value(ty: &Type) -> bool {
    is_element(ty) || is_packed(ty) || instead_of(ty).is_some()
}

/// What to write in place of a value that is no element.
pub(crate) fn instead_of(ty: &Type) -> Option<&'static str> {
    let name = last_name(ty)?;
    VALUES.iter().find(|(value, _)| *value == name).map(|(_, instead)| *instead)
}

/// Whether a type is `Packed<..>`, by its name.
pub(crate) fn is_packed(ty: &Type) -> bool {
    last_name(ty).is_some_and(|name| name == "Packed")
}

/// Where a type stands. The same as `ty.span()`, which for a single name would make a token stream to ask it.
pub(crate) fn place(ty: &Type) -> Span {
    match ty {
        Type::Path(path) if path.qself.is_none() => match path.path.get_ident() {
            Some(name) => name.span(),
            None => ty.span(),
        },
        ty => ty.span(),
    }
}

/// The last name of a type that is a path.
pub(crate) fn last_name(ty: &Type) -> Option<String> {
    match peel(ty) {
        Type::Path(path) if path.qself.is_none() => path.path.segments.last().map(|last| last.ident.to_string()),
        _ => None,
    }
}

/// The bound of an element field.
pub(crate) fn element(krate: &Path, ty: &Type, formatted: bool) -> Option<WherePredicate> {
    let bound = match formatted {
        // A format on one of these is reported.
        _ if is_element(ty) => return None,
        true => quote_spanned!(ty.span()=> Formatted),
        false => quote_spanned!(ty.span()=> Plain),
    };
    predicate(krate, ty, &bound)
}

/// The bound of a nested storage whose space is filled in: with our dims, or with `other` ones.
pub(crate) fn nests(krate: &Path, tier: Tier, dims: Option<&Type>, other: bool, span: Span) -> TokenStream {
    let (krate, tier, dims) = (at(krate, span), tier.ident(), dims.map_or(quote!(()), ToTokens::to_token_stream));
    match other {
        true => quote_spanned!(span=> #krate::__private::NestsOther<#krate::__private::#tier>),
        false => quote_spanned!(span=> #krate::__private::Nests<#krate::__private::#tier, #dims>),
    }
}

/// The bound of a part; with the space of the bundle, unless that is the space of this part.
pub(crate) fn part(krate: &Path, ty: &Type, space: Option<&Type>) -> Option<WherePredicate> {
    match space {
        None => predicate(krate, ty, &quote_spanned!(ty.span()=> Part)),
        Some(space) => predicate(krate, ty, &quote_spanned!(ty.span()=> PartOf<#space>)),
    }
}

/// The space of a part.
pub(crate) fn space_of(krate: &Path, ty: &Type) -> Option<Type> {
    let krate = at(krate, ty.span());
    syn::parse2(quote!(<#ty as #krate::__private::Part>::Space)).ok()
}

/// `ty: bound`
pub(crate) fn is(ty: &Type, bound: TokenStream) -> Option<WherePredicate> {
    syn::parse2(quote_spanned!(ty.span()=> #ty: #bound)).ok()
}

/// `ty: bound`, all of it at the place of `ty`: the compiler marks the whole bound.
fn predicate(krate: &Path, ty: &Type, bound: &TokenStream) -> Option<WherePredicate> {
    let krate = at(krate, ty.span());
    is(ty, quote_spanned!(ty.span()=> #krate::__private::#bound))
}

/// The path of the crate, at another place.
pub(crate) fn at(krate: &Path, span: Span) -> TokenStream {
    let tokens = krate.to_token_stream();
    let default = tokens.to_string().replace(' ', "") == "::memtier";
    let moved = tokens.into_iter().map(|mut tree| {
        // A path that the author gave means what it meant there.
        tree.set_span(if default { span } else { tree.span().located_at(span) });
        tree
    });
    moved.collect()
}

/// Adds a bound, unless it is there already.
pub(crate) fn add(generics: &mut Generics, bound: Option<WherePredicate>) {
    let Some(bound) = bound else { return };
    let predicates = &mut generics.make_where_clause().predicates;
    let text = bound.to_token_stream().to_string();
    if !predicates.iter().any(|known| known.to_token_stream().to_string() == text) {
        predicates.push(bound);
    }
}

/// Whether a type mentions a parameter.
pub(crate) fn is_generic(ty: &Type, generics: &Generics) -> bool {
    fn mentions(tokens: TokenStream, names: &[String]) -> bool {
        tokens.into_iter().any(|tree| match tree {
            TokenTree::Group(group) => mentions(group.stream(), names),
            TokenTree::Ident(ident) => names.contains(&ident.to_string()),
            _ => false,
        })
    }
    let types = generics.type_params().map(|param| param.ident.to_string());
    let names: Vec<_> = types.chain(generics.const_params().map(|param| param.ident.to_string())).collect();
    parameter(generics, ty).is_some() || mentions(ty.to_token_stream(), &names)
}
