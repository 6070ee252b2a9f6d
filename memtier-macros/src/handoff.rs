//! The first stage: an attribute sees `cfg` as it is written, a derive sees it evaluated. So the attribute only gives the
//! struct its final form, writes down what it knew in helper attributes, and hands over to a derive.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{
    AttrStyle, Attribute, Expr, Field, Fields, Generics, Ident, ItemStruct, MacroDelimiter, Meta, MetaList, Path,
    Token, Type, Visibility, WherePredicate,
    parse::{ParseStream, Parser},
    parse_quote,
    punctuated::Punctuated,
    spanned::Spanned,
};

use crate::{
    attr::{BundleArgs, FIELD, FieldAttrs, HELPERS, Tier, TierArgs},
    bounds,
    expand::Private,
    fallback::{self, Macro},
    model::{SPACE, parameter, peel},
    report::{Errors, closest},
};

/// Attributes of others that are never a misspelling of ours.
const FOREIGN: [&str; 12] =
    ["doc", "cfg", "cfg_attr", "allow", "warn", "deny", "forbid", "expect", "deprecated", "must_use", "serde", "repr"];

pub(crate) fn storage(args: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let mut item = match fallback::structure(Macro::Tier, item, &mut errors) {
        Ok(item) => item,
        Err(again) => return joined(errors, again),
    };
    // Reported by the second stage.
    let known = TierArgs::read(args.clone(), &mut Errors::default());
    let krate = known.krate.clone().unwrap_or_else(|| parse_quote!(::memtier));
    strip(&mut item, Macro::Tier, &mut errors);
    let space: Type = known.space.clone().unwrap_or_else(|| {
        let space = Ident::new(SPACE, Span::call_site());
        item.generics.params.push(parse_quote!(#space: #krate::__private::Space = #krate::__private::Host));
        parse_quote!(#space)
    });
    let hidden = parameter(&item.generics, &space).is_some_and(|ident| ident == SPACE);
    let tier = known.tier.unwrap_or(Tier::ModelResident);
    let home = Home { args: &known, tier, krate: &krate, space: &space, hidden };
    if let Fields::Named(fields) = &mut item.fields {
        if fields.named.is_empty() {
            // Reported by the second stage; until then every parameter is used.
            fields.named.extend([fallback::half(&parse_quote!(__mt_none), &Visibility::Inherited)]);
        }
        fields.named.iter_mut().for_each(|field| home.take_in(field, &mut item.generics));
    }
    let first = [
        parse_quote!(#[derive(#krate::__private::__MtStorage)]),
        parse_quote!(#[__mt_tier(#args)]),
        parse_quote!(#[allow(private_bounds, trivial_bounds)]),
    ];
    item.attrs.splice(0..0, first);
    joined(errors, item.into_token_stream())
}

pub(crate) fn bundle(args: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let mut item = match fallback::structure(Macro::GraphCaptured, item, &mut errors) {
        Ok(item) => item,
        Err(again) => return joined(errors, again),
    };
    let known = BundleArgs::read(args.clone(), &mut Errors::default());
    let krate = known.krate.unwrap_or_else(|| parse_quote!(::memtier));
    strip(&mut item, Macro::GraphCaptured, &mut errors);
    if let Fields::Named(fields) = &mut item.fields {
        fields.named.iter_mut().for_each(|field| {
            wrap_attributes(field);
            field.attrs.retain(|attr| !attr.path().is_ident("__mt_field"));
        });
    }
    item.attrs.insert(0, parse_quote!(#[derive(#krate::__private::__MtBundle)]));
    item.attrs.insert(1, parse_quote!(#[__mt_bundle(#args)]));
    joined(errors, item.into_token_stream())
}

fn joined(errors: Errors, item: TokenStream) -> TokenStream {
    let mut tokens = errors.into_tokens();
    tokens.extend(item);
    tokens
}

/// Takes out what cannot stand on the same struct.
fn strip(item: &mut ItemStruct, of: Macro, errors: &mut Errors) {
    item.attrs.retain(|attr| {
        let Some(last) = attr.path().segments.last() else { return true };
        let other = [Macro::Tier, Macro::GraphCaptured].into_iter().find(|one| last.ident == one.name());
        match other {
            None => true,
            Some(same) if same == of => {
                errors.mark(attr.path(), format!("`#[{}]` is given twice: a struct has one", of.name()));
                false
            }
            Some(_) => {
                let message = "a struct is a storage (`#[tier(..)]`) or a bundle (`#[graph_captured]`), not both: make the \
                               storage a field of the bundle";
                errors.mark(attr.path(), message);
                false
            }
        }
    });
    for attr in &mut item.attrs {
        refuse_copies(attr, of, errors);
    }
}

/// `#[derive(Clone)]` and the like below our attribute.
fn refuse_copies(attr: &mut Attribute, of: Macro, errors: &mut Errors) {
    if !attr.path().is_ident("derive") {
        return;
    }
    let Ok(list) = attr.parse_args_with(Punctuated::<Path, Token![,]>::parse_terminated) else { return };
    let is = |path: &Path, names: &[&str]| {
        path.segments.last().is_some_and(|last| names.iter().any(|name| last.ident == name))
    };
    const COMPARED: [&str; 5] = ["PartialEq", "Eq", "Hash", "PartialOrd", "Ord"];
    let refused = |path: &Path| is(path, &["Clone", "Copy", "Default"]) || is(path, &COMPARED);
    if !list.iter().any(refused) {
        return;
    }
    let (bad, kept): (Vec<_>, Vec<_>) = list.into_iter().partition(refused);
    let what = match of {
        Macro::Tier => {
            "a storage owns device memory that the plan paid for once: it cannot be derived, only carved; its read \
                        view (`..Ref`) is `Copy`"
        }
        Macro::GraphCaptured => "a bundle owns what the plan paid for once: it cannot be derived, only carved",
    };
    for path in bad {
        let name = path.to_token_stream();
        let what = match is(&path, &COMPARED) {
            true => {
                "what it holds is in device memory, where the host compares nothing: read it first, `step.on.read(..)`"
            }
            false => what,
        };
        errors.mark(&path, format!("no `{name}` here: {what}"));
    }
    *attr = parse_quote!(#[derive(#(#kept),*)]);
}

/// Where the fields of a storage live.
struct Home<'h> {
    args: &'h TierArgs,
    tier: Tier,
    krate: &'h Path,
    space: &'h Type,
    /// Whether the space is the added parameter, and nested storages must be put in it.
    hidden: bool,
}

impl Home<'_> {
    /// Gives a field its final type, and writes down what it was.
    fn take_in(&self, field: &mut Field, generics: &mut Generics) {
        wrap_attributes(field);
        let vis = std::mem::replace(&mut field.vis, Visibility::Inherited);
        let Home { tier, krate, space, .. } = self;
        let (private, tier) = (Private::of(krate), tier.ident());
        if field.attrs.iter().any(|attr| attr.path().is_ident("__mt_field")) {
            field.ty = parse_quote!(#private::core::marker::PhantomData<fn() -> #space>);
            return;
        }
        let ty = field.ty.clone();
        let (note, mut owned, bound): (TokenStream, Type, _) = match Guess::of(field) {
            Guess::Element => {
                let formatted =
                    !bounds::is_element(&ty) && FieldAttrs::read(&field.attrs, &mut Errors::default()).format.is_some();
                let owned = Type::Verbatim(quote!(#private::Owned<#ty, #private::#tier<#space>>));
                (quote!(element, #vis, #ty), owned, bounds::element(krate, &ty, formatted))
            }
            Guess::Nested => {
                let (owned, bound) = self.nested(&ty, &field.attrs, generics);
                (quote!(nested, #vis, #ty), owned, bound)
            }
            Guess::Array(array) => {
                let (item, len) = *array;
                let (nested, bound) = self.nested(&item, &field.attrs, generics);
                let nested = match self.hidden && parameter(generics, &item).is_some() {
                    true => nested,
                    false => Type::Verbatim(quote!(#private::Nested<#nested>)),
                };
                (quote!(array, #vis, #item, #len), nested, bound)
            }
            Guess::Broken => {
                (quote!(broken, #vis, #ty), parse_quote!(#private::core::marker::PhantomData<fn() -> #space>), None)
            }
        };
        if says(&field.attrs, "when") {
            owned = Type::Verbatim(quote!(#private::core::option::Option<#owned>));
        }
        // Whether a field under `cfg` is there, only the second stage knows.
        if !field.attrs.iter().any(|attr| attr.path().is_ident("cfg")) {
            bounds::add(generics, bound);
        }
        field.ty = owned;
        field.attrs.push(helper("__mt_field", note));
    }

    fn nested(&self, ty: &Type, attrs: &[Attribute], generics: &Generics) -> (Type, Option<WherePredicate>) {
        let Home { args, tier, krate, space, .. } = self;
        if !self.hidden {
            return (ty.clone(), None);
        }
        if parameter(generics, ty).is_some() {
            // Reported by the second stage, which makes nothing of it; until then every parameter is used.
            let private = Private::of(krate);
            let used = parse_quote!(#private::core::marker::PhantomData<fn() -> (#space, #ty)>);
            return (used, bounds::is(ty, quote!('static)));
        }
        let nests = bounds::nests(krate, *tier, args.dims.as_ref(), says(attrs, "dims"), ty.span());
        (Type::Verbatim(quote!(<#ty as #nests>::At<#space>)), bounds::is(ty, nests))
    }
}

/// What a field is, as far as its tokens tell.
enum Guess {
    Element,
    Nested,
    Array(Box<(Type, Expr)>),
    Broken,
}

impl Guess {
    fn of(field: &Field) -> Self {
        if bounds::instead_of(&field.ty).is_some() {
            return Guess::Broken;
        }
        if says(&field.attrs, "shape") {
            let container = matches!(peel(&field.ty), Type::Array(_)) || bounds::is_wrapper(&field.ty);
            return if container { Guess::Broken } else { Guess::Element };
        }
        match peel(&field.ty) {
            Type::Array(array) => match bounds::is_value(&array.elem)
                || bounds::is_wrapper(&array.elem)
                || matches!(peel(&array.elem), Type::Array(_))
            {
                true => Guess::Broken,
                false => Guess::Array(Box::new(((*array.elem).clone(), array.len.clone()))),
            },
            ty if bounds::is_value(ty) => Guess::Element,
            ty if bounds::is_wrapper(ty) => Guess::Broken,
            Type::Path(_) | Type::Macro(_) => Guess::Nested,
            _ => Guess::Broken,
        }
    }
}

/// Whether an attribute of ours is there, also under `cfg_attr`.
fn says(attrs: &[Attribute], name: &str) -> bool {
    fn within(meta: &Meta, name: &str) -> bool {
        let Meta::List(list) = meta else { return false };
        if list.path.is_ident("__mt_attr") {
            return matches!(list.tokens.clone().into_iter().next(), Some(first) if first.to_string() == name);
        }
        list.path.is_ident("cfg_attr")
            && conditional(list).is_some_and(|(_, metas)| metas.iter().any(|meta| within(meta, name)))
    }
    attrs.iter().any(|attr| within(&attr.meta, name))
}

/// The condition of a `cfg_attr`, and what it is the condition of.
fn conditional(list: &MetaList) -> Option<(TokenStream, Punctuated<Meta, Token![,]>)> {
    let parser = |input: ParseStream<'_>| {
        let mut condition = TokenStream::new();
        while !input.is_empty() && !input.peek(Token![,]) {
            condition.extend([input.parse::<TokenTree>()?]);
        }
        input.parse::<Option<Token![,]>>()?;
        Ok((condition, Punctuated::parse_terminated(input)?))
    };
    parser.parse2(list.tokens.clone()).ok()
}

/// `name(tokens)`, not parsed: it is what it says.
fn list(name: &str, tokens: TokenStream) -> Meta {
    let path = Ident::new(name, Span::call_site()).into();
    Meta::List(MetaList { path, delimiter: MacroDelimiter::Paren(Default::default()), tokens })
}

/// `#[name(tokens)]`
fn helper(name: &str, tokens: TokenStream) -> Attribute {
    let meta = list(name, tokens);
    Attribute { pound_token: Default::default(), style: AttrStyle::Outer, bracket_token: Default::default(), meta }
}

/// Wraps our attributes, and what looks like a misspelling of one, in one helper: their names are not reserved, and the
/// second stage can say what is wrong with them.
fn wrap_attributes(field: &mut Field) {
    fn wrapped(meta: &Meta) -> Option<Meta> {
        let name = meta.path().get_ident()?.to_string();
        if let ("cfg_attr", Meta::List(list)) = (name.as_str(), meta) {
            let (condition, metas) = conditional(list)?;
            let inner = metas.iter().map(|meta| wrapped(meta).unwrap_or_else(|| meta.clone()));
            return Some(parse_quote!(cfg_attr(#condition, #(#inner),*)));
        }
        let foreign = FOREIGN.contains(&name.as_str()) || HELPERS.contains(&name.as_str());
        (!foreign && closest(&name, &FIELD).is_some()).then(|| list("__mt_attr", meta.to_token_stream()))
    }
    for attr in &mut field.attrs {
        if let Some(meta) = wrapped(&attr.meta) {
            attr.meta = meta;
        }
    }
}
