//! The declaration as the second stage understands it: always a whole one, with a guess in place of what is wrong.

use proc_macro2::{Ident, Span, TokenStream};
use syn::{
    Attribute, Data, DeriveInput, Expr, Fields, GenericParam, Generics, Path, Token, Type, Visibility,
    ext::IdentExt,
    parse::{Parse, ParseStream},
    parse_quote,
    spanned::Spanned,
};

use crate::{
    attr::{BundleArgs, FieldAttrs, Tier, TierArgs},
    bounds,
    check::is_no_part,
    report::Errors,
};

/// The type parameter that the macro adds for the memory space.
pub(crate) const SPACE: &str = "__MtS";

/// A `#[tier(..)]` struct.
pub(crate) struct Storage {
    pub(crate) head: Head,
    pub(crate) tier: Tier,
    pub(crate) dims: Option<Type>,
    /// Whether dims were given in a form that was reported.
    pub(crate) dims_were_tried: bool,
    pub(crate) space: Space,
    pub(crate) fields: Vec<Field>,
}

/// A `#[graph_captured]` struct.
pub(crate) struct Bundle {
    pub(crate) head: Head,
    /// The type parameter that is the memory space, when there is one.
    pub(crate) space: Option<Ident>,
    /// The memory space that the author names.
    pub(crate) fixed: Option<Type>,
    /// The part whose space is otherwise that of the bundle: the first that everybody sees who sees the bundle, since a private
    /// type cannot be named in its interface.
    pub(crate) anchor: usize,
    pub(crate) parts: Vec<Part>,
}

/// What every struct has.
pub(crate) struct Head {
    /// Lint levels and the like, for what is generated from it.
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) ident: Ident,
    pub(crate) generics: Generics,
    /// Where `__private` is.
    pub(crate) krate: Path,
    /// Where `#[repr(packed)]` is.
    pub(crate) packed: Option<Span>,
}

/// Which memory space a storage is in.
pub(crate) enum Space {
    /// One of the struct's type parameters; `hidden` when the macro added it.
    Parameter { ident: Ident, hidden: bool },
    /// Always this one.
    Fixed(Type),
}

pub(crate) struct Field {
    pub(crate) docs: Vec<Attribute>,
    /// Lint levels alone.
    pub(crate) lints: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) ident: Ident,
    pub(crate) kind: Kind,
    pub(crate) attrs: FieldAttrs,
}

/// What a field is.
pub(crate) enum Kind {
    /// Device array of this element.
    Element(Type),
    /// Nested storage.
    Nested(Type),
    /// Array of storages.
    Array(Type, Expr),
    /// Nothing of the sort.
    Broken(Type),
    /// Half typed. It was reported.
    Half,
}

pub(crate) struct Part {
    pub(crate) docs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) ident: Ident,
    pub(crate) ty: Type,
    pub(crate) attrs: FieldAttrs,
}

impl Storage {
    pub(crate) fn read(input: DeriveInput, errors: &mut Errors) -> Self {
        let args = TierArgs::read(arguments(&input.attrs, "__mt_tier"), errors);
        let space = match args.space {
            None => Space::Parameter { ident: Ident::new(SPACE, Span::call_site()), hidden: true },
            Some(space) => match parameter(&input.generics, &space) {
                Some(ident) => Space::Parameter { ident, hidden: false },
                None => Space::Fixed(space),
            },
        };
        let (mut head, fields) = Head::read(input, args.krate);
        let tier = args.tier.unwrap_or(Tier::ModelResident);
        let fields: Vec<_> = fields.into_iter().map(|field| Field::read(field, errors)).collect();
        for field in &fields {
            let bound = match &field.kind {
                Kind::Element(ty) => bounds::element(&head.krate, ty, field.attrs.format.is_some()),
                Kind::Nested(ty) | Kind::Array(ty, _) if space.fills_in(ty, &head.generics) => {
                    let nests =
                        bounds::nests(&head.krate, tier, args.dims.as_ref(), field.attrs.dims.is_some(), ty.span());
                    bounds::is(ty, nests)
                }
                _ => None,
            };
            bounds::add(&mut head.generics, bound);
        }
        Storage { head, tier, dims: args.dims, dims_were_tried: args.dims_were_tried, space, fields }
    }

    /// The type parameter that a nested storage is. It has no space to be put in, which is reported.
    pub(crate) fn as_parameter(&self, ty: &Type) -> Option<Ident> {
        match self.space {
            Space::Parameter { hidden: true, .. } => parameter(&self.head.generics, ty),
            _ => None,
        }
    }

    /// Makes nothing of those, so that the report stays alone.
    pub(crate) fn leave_out_parameters(&mut self) {
        let is_one = |field: &Field| match &field.kind {
            Kind::Nested(ty) | Kind::Array(ty, _) => self.as_parameter(ty).is_some(),
            _ => false,
        };
        let which: Vec<_> = self.fields.iter().map(is_one).collect();
        for (field, _) in self.fields.iter_mut().zip(which).filter(|(_, is)| *is) {
            field.kind = Kind::Half;
        }
    }
}

impl Bundle {
    pub(crate) fn read(input: DeriveInput, errors: &mut Errors) -> Self {
        let args = BundleArgs::read(arguments(&input.attrs, "__mt_bundle"), errors);
        let (space, fixed) = match args.space {
            Some(space) => match parameter(&input.generics, &space) {
                Some(ident) => (Some(ident), None),
                None => (None, Some(space)),
            },
            None => (bound_by_space(&input.generics), None),
        };
        let (mut head, fields) = Head::read(input, args.krate);
        let seen = |field: &syn::Field| {
            let visible = field.vis == head.vis || matches!(field.vis, Visibility::Public(_));
            visible && !is_no_part(&field.ty)
        };
        let anchor = fields.iter().position(seen).unwrap_or_default();
        let there: Option<Type> = match (&space, &fixed, fields.get(anchor).filter(|field| !is_no_part(&field.ty))) {
            (Some(space), ..) => Some(parse_quote!(#space)),
            (None, Some(space), _) => Some(space.clone()),
            (None, None, Some(field)) => bounds::space_of(&head.krate, &field.ty),
            (None, None, None) => None,
        };
        for (index, field) in fields.iter().enumerate() {
            let is_anchor = space.is_none() && fixed.is_none() && index == anchor;
            let there = there.as_ref().filter(|_| !is_anchor);
            // A bound that mentions a parameter would hide what the compiler knows about the type.
            let generic =
                [Some(&field.ty), there].into_iter().flatten().any(|ty| bounds::is_generic(ty, &head.generics));
            if !generic && !is_no_part(&field.ty) {
                bounds::add(&mut head.generics, bounds::part(&head.krate, &field.ty, there));
            }
        }
        let part = |field: syn::Field| Part {
            docs: docs(&field.attrs),
            attrs: FieldAttrs::read(&field.attrs, errors),
            vis: field.vis,
            ident: field.ident.unwrap_or_else(|| Ident::new("__mt_unnamed", Span::call_site())),
            ty: field.ty,
        };
        Bundle { head, space, fixed, anchor, parts: fields.into_iter().map(part).collect() }
    }
}

impl Space {
    /// Whether a nested storage is written without its space.
    pub(crate) fn fills_in(&self, ty: &Type, generics: &Generics) -> bool {
        matches!(self, Space::Parameter { hidden: true, .. }) && parameter(generics, ty).is_none()
    }

    /// The type parameter, if it is one.
    pub(crate) fn parameter(&self) -> Option<&Ident> {
        match self {
            Space::Parameter { ident, .. } => Some(ident),
            Space::Fixed(_) => None,
        }
    }

    /// The type.
    pub(crate) fn ty(&self) -> Type {
        match self {
            Space::Parameter { ident, .. } => parse_quote!(#ident),
            Space::Fixed(ty) => ty.clone(),
        }
    }
}

impl Head {
    fn read(input: DeriveInput, krate: Option<Path>) -> (Self, Vec<syn::Field>) {
        let fields = match input.data {
            Data::Struct(data) => match data.fields {
                Fields::Named(fields) => fields.named.into_iter().collect(),
                _ => Vec::new(),
            },
            _ => Vec::new(),
        };
        let packed = input.attrs.iter().find_map(packed);
        let attrs = input.attrs.into_iter().filter(is_lint_level).collect();
        let krate = krate.unwrap_or_else(|| parse_quote!(::memtier));
        (Head { attrs, vis: input.vis, ident: input.ident, generics: input.generics, krate, packed }, fields)
    }
}

impl Field {
    fn read(field: syn::Field, errors: &mut Errors) -> Self {
        let attrs = FieldAttrs::read(&field.attrs, errors);
        let told = field.attrs.iter().find(|attr| attr.path().is_ident("__mt_field"));
        let told = told.and_then(|attr| attr.parse_args::<Told>().ok());
        let Told { kind, vis } = told.unwrap_or(Told { kind: Kind::Half, vis: Visibility::Inherited });
        let ident = field.ident.unwrap_or_else(|| Ident::new("__mt_unnamed", Span::call_site()));
        let lints = field.attrs.iter().filter(|attr| is_lint_level(attr)).cloned().collect();
        Field { docs: docs(&field.attrs), lints, vis, ident, kind, attrs }
    }

    /// The name in reports.
    pub(crate) fn name(&self) -> String {
        self.ident.unraw().to_string()
    }
}

/// What the first stage says about a field: `#[__mt_field(element, pub, f32)]`.
struct Told {
    kind: Kind,
    vis: Visibility,
}

impl Parse for Told {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let kind: Ident = input.parse()?;
        input.parse::<Token![,]>()?;
        let vis = input.parse()?;
        input.parse::<Token![,]>()?;
        let ty = input.parse()?;
        let kind = match kind.to_string().as_str() {
            "element" => Kind::Element(ty),
            "nested" => Kind::Nested(ty),
            "array" => {
                input.parse::<Token![,]>()?;
                Kind::Array(ty, input.parse()?)
            }
            "broken" => Kind::Broken(ty),
            _ => Kind::Half,
        };
        input.parse::<TokenStream>()?;
        Ok(Told { kind, vis })
    }
}

/// The arguments that the first stage passed on.
fn arguments(attrs: &[Attribute], name: &str) -> TokenStream {
    let attr = attrs.iter().find(|attr| attr.path().is_ident(name));
    attr.and_then(|attr| attr.meta.require_list().ok()).map(|list| list.tokens.clone()).unwrap_or_default()
}

fn docs(attrs: &[Attribute]) -> Vec<Attribute> {
    let passed =
        |attr: &&Attribute| attr.path().is_ident("doc") || attr.path().is_ident("deprecated") || is_lint_level(attr);
    attrs.iter().filter(passed).cloned().collect()
}

/// The word in `#[repr(.., packed)]`.
fn packed(attr: &Attribute) -> Option<Span> {
    let mut found = None;
    if attr.path().is_ident("repr") {
        let _ = attr.parse_nested_meta(|meta| {
            if meta.path.is_ident("packed") {
                found = Some(meta.path.span());
            }
            // `packed(2)`, `align(8)`
            if meta.input.peek(syn::token::Paren) {
                let content;
                syn::parenthesized!(content in meta.input);
                content.parse::<TokenStream>()?;
            }
            Ok(())
        });
    }
    found
}

/// `expect` is not passed on: it would have to be fulfilled everywhere.
fn is_lint_level(attr: &Attribute) -> bool {
    ["allow", "warn", "deny", "forbid"].iter().any(|level| attr.path().is_ident(level))
}

/// The type parameter that `ty` is.
pub(crate) fn parameter(generics: &Generics, ty: &Type) -> Option<Ident> {
    let Type::Path(path) = peel(ty) else { return None };
    let ident = path.path.get_ident().filter(|_| path.qself.is_none())?;
    generics.type_params().find(|param| param.ident == *ident).map(|param| param.ident.clone())
}

/// The one type parameter with a bound called `Space`.
fn bound_by_space(generics: &Generics) -> Option<Ident> {
    let is_space = |bound: &syn::TypeParamBound| match bound {
        syn::TypeParamBound::Trait(bound) => bound.path.segments.last().is_some_and(|last| last.ident == "Space"),
        _ => false,
    };
    let in_where = |ident: &Ident| {
        let predicates = generics.where_clause.iter().flat_map(|clause| &clause.predicates);
        predicates.into_iter().any(|predicate| match predicate {
            syn::WherePredicate::Type(of) => {
                parameter(generics, &of.bounded_ty).is_some_and(|bounded| bounded == *ident)
                    && of.bounds.iter().any(is_space)
            }
            _ => false,
        })
    };
    let mut found = generics.type_params().filter(|param| param.bounds.iter().any(is_space) || in_where(&param.ident));
    found.next().filter(|_| found.next().is_none()).map(|param| param.ident.clone())
}

/// The type inside the invisible groups that `macro_rules!` puts around a `$t:ty`.
pub(crate) fn peel(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => peel(&group.elem),
        Type::Paren(paren) => peel(&paren.elem),
        ty => ty,
    }
}

/// Whether a lower-case name is a const parameter.
pub(crate) fn const_params(generics: &Generics) -> Vec<Ident> {
    let consts = generics.params.iter().filter_map(|param| match param {
        GenericParam::Const(param) => Some(param.ident.clone()),
        _ => None,
    });
    consts.collect()
}
