//! Writes the code. Everything is named by absolute hidden paths, and every generated name starts with `__mt` or `__Mt` where
//! an author's own could be in its way.

mod bundle;
mod dims;
mod lay_out;
mod storage;
mod views;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, TokenStreamExt, quote};
use syn::{
    Attribute, DeriveInput, GenericParam, Generics, Path, Token, Type, WhereClause, parse_quote,
    visit_mut::{self, VisitMut},
};

use crate::{
    check,
    model::{self, Head, Kind},
    report::Errors,
};

/// The second stage of `#[tier(..)]`.
pub(crate) fn storage(item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let input = match syn::parse2::<DeriveInput>(item) {
        Ok(input) => input,
        Err(error) => return error.into_compile_error(),
    };
    let mut model = model::Storage::read(input, &mut errors);
    check::storage(&model, &mut errors);
    model.leave_out_parameters();
    // A half typed field was reported by the compiler itself.
    let broken = !errors.is_empty() || model.fields.iter().any(|field| matches!(field.kind, Kind::Half));
    let mut tokens = errors.into_tokens();
    tokens.extend(views::expand(&model));
    tokens.extend(storage::expand(&model, broken));
    tokens
}

/// The second stage of `#[graph_captured]`.
pub(crate) fn bundle(item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let input = match syn::parse2::<DeriveInput>(item) {
        Ok(input) => input,
        Err(error) => return error.into_compile_error(),
    };
    let model = model::Bundle::read(input, &mut errors);
    check::bundle(&model, &mut errors);
    let broken = !errors.is_empty();
    let mut tokens = errors.into_tokens();
    if !model.parts.is_empty() {
        tokens.extend(bundle::expand(&model, broken));
    }
    tokens
}

/// The place parameter of views.
fn place() -> Ident {
    Ident::new("__MtP", Span::call_site())
}

/// The lifetime of views.
fn borrow() -> syn::Lifetime {
    syn::Lifetime::new("'__mt", Span::call_site())
}

/// The arguments that name the struct's own type: `<A, B, __MtS>`.
fn arguments(generics: &Generics) -> Vec<Ident> {
    let names = generics.params.iter().filter_map(|param| match param {
        GenericParam::Type(param) => Some(param.ident.clone()),
        GenericParam::Const(param) => Some(param.ident.clone()),
        GenericParam::Lifetime(_) => None,
    });
    names.collect()
}

/// Parameters without their defaults, for an `impl`.
fn without_defaults(generics: &Generics) -> Vec<GenericParam> {
    let mut params: Vec<_> = generics.params.iter().cloned().collect();
    for param in &mut params {
        match param {
            GenericParam::Type(param) => {
                param.eq_token = None;
                param.default = None;
            }
            GenericParam::Const(param) => {
                param.eq_token = None;
                param.default = None;
            }
            GenericParam::Lifetime(_) => {}
        }
    }
    params
}

/// The generics of something made from a struct, where the space parameter is something else: `<P as Place>::Space` in a
/// view, `Host` in the inherent impl.
struct Moved {
    params: Vec<GenericParam>,
    /// The remaining arguments, in order, with the replacement in its place.
    arguments: Vec<Type>,
    /// The remaining arguments, in order.
    own: Vec<Ident>,
    clause: Option<WhereClause>,
}

impl Moved {
    fn new(generics: &Generics, space: Option<&Ident>, to: &Type) -> Self {
        let mut subst = Substitute { from: space, to };
        let is_space = |ident: &Ident| space == Some(ident);
        let mut params = without_defaults(generics);
        params.retain(|param| !matches!(param, GenericParam::Type(param) if is_space(&param.ident)));
        params.iter_mut().for_each(|param| subst.visit_generic_param_mut(param));
        let mut clause = generics.where_clause.clone();
        clause.iter_mut().for_each(|clause| subst.visit_where_clause_mut(clause));
        let all = arguments(generics);
        let arguments =
            all.iter().map(|ident| if is_space(ident) { to.clone() } else { parse_quote!(#ident) }).collect();
        let own = all.into_iter().filter(|ident| !is_space(ident)).collect();
        Moved { params, arguments, own, clause }
    }
}

/// Puts a type in place of a type parameter.
struct Substitute<'s> {
    from: Option<&'s Ident>,
    to: &'s Type,
}

impl Substitute<'_> {
    fn in_type(&mut self, ty: &Type) -> Type {
        let mut ty = ty.clone();
        self.visit_type_mut(&mut ty);
        ty
    }
}

impl VisitMut for Substitute<'_> {
    fn visit_type_mut(&mut self, ty: &mut Type) {
        if let (Some(from), Type::Path(path)) = (self.from, &mut *ty)
            && path.qself.is_none()
        {
            if path.path.is_ident(from) {
                *ty = self.to.clone();
                return;
            }
            let mut segments = path.path.segments.iter();
            if segments.next().is_some_and(|first| first.ident == *from) {
                let (to, rest) = (self.to, segments);
                *ty = parse_quote!(<#to>::#(#rest)::*);
                return;
            }
        }
        visit_mut::visit_type_mut(self, ty);
    }
}

/// A doc comment, behind the author's own.
fn docs(own: &[Attribute], generated: &str, otherwise: &str) -> TokenStream {
    let documented = own.iter().any(|attr| attr.path().is_ident("doc"));
    let generated = match (documented, generated.is_empty()) {
        (true, true) => TokenStream::new(),
        (true, false) => quote!(#[doc = ""] #[doc = #generated]),
        (false, true) => quote!(#[doc = #otherwise]),
        (false, false) => quote!(#[doc = #otherwise] #[doc = ""] #[doc = #generated]),
    };
    let own = own.iter().map(ToTokens::to_token_stream);
    quote!(#(#own)* #generated)
}

/// `::memtier::__private`. Written dozens of times for each field, so it puts its few tokens where they belong: as a token
/// stream it would be copied by the compiler each time, which was a fifth of what the macro costs.
#[derive(Clone)]
pub(crate) struct Private(Path);

impl Private {
    pub(crate) fn of(krate: &Path) -> Self {
        Private(krate.clone())
    }
}

impl ToTokens for Private {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        self.0.to_tokens(tokens);
        <Token![::]>::default().to_tokens(tokens);
        tokens.append(Ident::new("__private", Span::call_site()));
    }
}

impl Head {
    fn private(&self) -> Private {
        Private::of(&self.krate)
    }
}
