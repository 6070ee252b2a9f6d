//! The view structs of a storage: `..Ref` with a read view of each field, `..Mut` with a write view.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::{Type, ext::IdentExt, parse_quote, spanned::Spanned};

use super::{Moved, Private, Substitute, borrow, docs, place};
use crate::{
    bounds,
    model::{Field, Head, Kind, Space, Storage},
    report::text,
};

/// The name of a struct made from another one.
pub(crate) fn named(of: &Ident, suffix: &str) -> Ident {
    format_ident!("{}{}", of.unraw(), suffix, span = of.span())
}

/// The generics of both views, without the place.
pub(crate) fn generics(model: &Storage) -> Moved {
    let Head { generics, .. } = &model.head;
    let (private, place) = (model.head.private(), place());
    let to: Type = parse_quote!(<#place as #private::Place>::Space);
    Moved::new(generics, model.space.parameter(), &to)
}

pub(crate) fn expand(model: &Storage) -> TokenStream {
    let described: Vec<_> = model.fields.iter().map(describe).collect();
    let read = view(model, &described, ["Ref", "StableSpan", "NestedRef", "Read"]);
    let write = view(model, &described, ["Mut", "StableSpanMut", "NestedMut", "Write"]);
    let name = named(&model.head.ident, "Ref");
    let (private, bound) = (model.head.private(), bound(model));
    let (place, borrow) = (place(), borrow());
    let Moved { params, own, clause, .. } = generics(model);
    let attrs = &model.head.attrs;
    quote! {
        #read
        #write
        #(#attrs)*
        #[automatically_derived]
        #[allow(trivial_bounds)]
        impl<#borrow, #(#params,)* #place: #bound> #private::core::clone::Clone for #name<#borrow, #(#own,)* #place> #clause {
            fn clone(&self) -> Self {
                *self
            }
        }
        #(#attrs)*
        #[automatically_derived]
        #[allow(trivial_bounds)]
        impl<#borrow, #(#params,)* #place: #bound> #private::core::marker::Copy for #name<#borrow, #(#own,)* #place> #clause {}
    }
}

/// What the place of a view must be.
pub(crate) fn bound(model: &Storage) -> TokenStream {
    let private = model.head.private();
    match &model.space {
        Space::Parameter { .. } => quote!(#private::Place),
        Space::Fixed(space) => quote!(#private::Place<Space = #space>),
    }
}

fn view(model: &Storage, described: &[String], [suffix, span, nested, kind]: [&str; 4]) -> TokenStream {
    let Head { attrs, vis, ident, .. } = &model.head;
    let name = named(ident, suffix);
    let (place, borrow, bound) = (place(), borrow(), bound(model));
    let Moved { params, clause, .. } = generics(model);
    let private = model.head.private();
    let types = Types {
        model,
        there: parse_quote!(<#place as #private::Place>::Space),
        private,
        span: format_ident!("{span}"),
        nested: format_ident!("{nested}"),
        view: format_ident!("{suffix}"),
    };
    let fields = model.fields.iter().zip(described).map(|(field, described)| {
        let Field { docs: own, vis, ident, .. } = field;
        let docs = docs(own, described, &format!("The field `{}`.", field.name()));
        let ty = types.of(field);
        quote!(#docs #vis #ident: #ty)
    });
    let doc = format!("{kind} views of the fields of [`{ident}`].");
    quote! {
        #(#attrs)*
        #[doc = #doc]
        #[allow(dead_code, private_bounds, trivial_bounds)]
        #vis struct #name<#borrow, #(#params,)* #place: #bound> #clause {
            #(#fields,)*
        }
    }
}

/// The types in one of the view structs.
struct Types<'t> {
    model: &'t Storage,
    private: Private,
    /// The space of a view.
    there: Type,
    span: Ident,
    nested: Ident,
    view: Ident,
}

impl Types<'_> {
    fn of(&self, field: &Field) -> TokenStream {
        let (place, borrow) = (place(), borrow());
        let Types { private, there, span, nested, view, .. } = self;
        let ty = match &field.kind {
            Kind::Element(ty) => {
                let ty = Substitute { from: self.model.space.parameter(), to: there }.in_type(ty);
                quote!(#private::#span<#borrow, #ty, #place>)
            }
            Kind::Nested(ty) => {
                let ty = in_space(self.model, field, ty, there);
                quote!(<#ty as #private::Storage>::#view<#borrow, #place>)
            }
            Kind::Array(ty, _) => {
                let ty = in_space(self.model, field, ty, there);
                quote!(#private::#nested<#borrow, #ty, #place>)
            }
            Kind::Broken(_) | Kind::Half => {
                // Every parameter is used.
                let space = self.model.space.parameter();
                let types = self.model.head.generics.type_params().map(|param| &param.ident);
                let types = types.filter(|ident| space != Some(ident));
                quote!(#private::core::marker::PhantomData<(&#borrow (), #place, fn() -> (#(#types,)*))>)
            }
        };
        match &field.attrs.when {
            Some(_) => quote!(#private::core::option::Option<#ty>),
            None => ty,
        }
    }
}

/// The type of a nested storage, when this one is in `space`.
pub(crate) fn in_space(model: &Storage, field: &Field, ty: &Type, space: &Type) -> TokenStream {
    match &model.space {
        of if of.fills_in(ty, &model.head.generics) => {
            let other = field.attrs.dims.is_some();
            let nests = bounds::nests(&model.head.krate, model.tier, model.dims.as_ref(), other, ty.span());
            quote!(<#ty as #nests>::At<#space>)
        }
        Space::Parameter { ident, .. } => Substitute { from: Some(ident), to: space }.in_type(ty).into_token_stream(),
        Space::Fixed(_) => ty.into_token_stream(),
    }
}

/// The line about a field that its declaration says.
fn describe(field: &Field) -> String {
    let optional = match &field.attrs.when {
        Some(when) => format!(", there when `{}`", text(when)),
        None => String::new(),
    };
    match &field.kind {
        Kind::Element(ty) => {
            let shape = field.attrs.shape.iter().flatten().map(text);
            let shape = shape.collect::<Vec<_>>().join(", ");
            format!("Elements `{}`, shape `[{shape}]`{optional}.", text(ty))
        }
        Kind::Nested(ty) => format!("A nested `{}`{optional}.", text(ty)),
        Kind::Array(ty, len) => {
            format!("An array of `{}` of `{}` items{optional}.", text(ty), text(len))
        }
        Kind::Broken(_) | Kind::Half => String::new(),
    }
}
