//! The `Storage` impl: one checked function lays out, the others follow the slots.
//!
//! The bodies name nothing by a path that their soundness rests on, see `generated.rs` of `memtier`: they call methods of the trait's
//! parameters, on a receiver that is just what the method takes (`(&mut self.field)`, not `self.field`).

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote};
use syn::{Type, ext::IdentExt, parse_quote};

use super::{
    Moved, Private, arguments, borrow,
    dims::local,
    lay_out::{LaidOut, lay_out},
    place,
    views::{generics, in_space, named},
    without_defaults,
};
use crate::model::{Field, Head, Kind, Storage};

pub(crate) fn expand(model: &Storage, broken: bool) -> TokenStream {
    let layout = layout(model);
    let laid_out = if broken { LaidOut::default() } else { lay_out(model) };
    let constants = laid_out.constants.clone();
    let storage = storage(model, laid_out, broken);
    let nesting = nesting(model);
    let inherent = inherent(model);
    quote! {
        const _: () = {
            #constants
            #layout
            #storage
            #nesting
            #inherent
        };
    }
}

impl Storage {
    fn dims(&self) -> TokenStream {
        self.dims.as_ref().map_or(quote!(()), ToTokens::to_token_stream)
    }

    fn tier(&self) -> TokenStream {
        let (private, tier, space) = (self.head.private(), self.tier.ident(), self.space.ty());
        quote!(#private::#tier<#space>)
    }

    /// The nested storage of this type, in our space.
    pub(super) fn nested(&self, field: &Field, ty: &Type) -> TokenStream {
        in_space(self, field, ty, &self.space.ty())
    }
}

fn layout(model: &Storage) -> TokenStream {
    let Head { attrs: of_struct, ident, generics, .. } = &model.head;
    let private = model.head.private();
    let (params, own, clause) = (without_defaults(generics), arguments(generics), &generics.where_clause);
    let fields = model.fields.iter().map(|field| {
        let Field { lints, ident, kind, attrs, .. } = field;
        let ty = match kind {
            Kind::Element(ty) => quote!(#private::Slot<#ty>),
            Kind::Nested(ty) => {
                let ty = model.nested(field, ty);
                quote!(<#ty as #private::Storage>::Layout)
            }
            Kind::Array(ty, _) => {
                let ty = model.nested(field, ty);
                quote!(#private::Vec<<#ty as #private::Storage>::Layout>)
            }
            Kind::Broken(_) | Kind::Half => quote!(()),
        };
        match attrs.when {
            Some(_) => quote!(#(#lints)* #ident: #private::core::option::Option<#ty>),
            None => quote!(#(#lints)* #ident: #ty),
        }
    });
    quote! {
        #(#of_struct)*
        #[doc(hidden)]
        #[allow(private_bounds, trivial_bounds)]
        pub struct __MtLayout<#(#params,)*> #clause {
            #(#fields,)*
            __mt_of: #private::core::marker::PhantomData<fn() -> #ident<#(#own,)*>>,
        }
    }
}

fn storage(model: &Storage, laid_out: LaidOut, broken: bool) -> TokenStream {
    let Head { attrs: of_struct, ident, generics: of, .. } = &model.head;
    let (private, tier, dims) = (model.head.private(), model.tier(), model.dims());
    let (params, own, clause) = (without_defaults(of), arguments(of), &of.where_clause);
    let (place, borrow, space, name) = (place(), borrow(), model.space.ty(), ident.unraw().to_string());
    let [read, write] = ["Ref", "Mut"].map(|suffix| named(ident, suffix));
    let Moved { own: view, .. } = generics(model);
    let at = quote!(#place: #private::Place<Space = #space>);
    let each = |body: &dyn Fn(&Field) -> TokenStream| -> Vec<TokenStream> { model.fields.iter().map(body).collect() };
    let bodies = match broken {
        true => Bodies::impossible(),
        false => Bodies {
            lay_out: laid_out.body,
            build: literal(model, ident, each(&|field| build(model, field))),
            has_shape_of: {
                let same = each(&|field| same(&private, field));
                quote!(true #(&& #same)*)
            },
            keep: each(&|field| keep(&private, field)).into_iter().collect(),
            view: literal(model, &read, each(&|field| see(field, false))),
            view_mut: literal(model, &write, each(&|field| see(field, true))),
        },
    };
    let Bodies { lay_out, build, has_shape_of, keep, view: views, view_mut: views_mut } = bodies;
    let [__mt_dims, __mt_walk, __mt_layout, __mt_base, __mt_keep, __mt_cx] =
        ["__mt_dims", "__mt_walk", "__mt_layout", "__mt_base", "__mt_keep", "__mt_cx"]
            .map(|name| local(name, Span::call_site()));
    quote! {
        #(#of_struct)*
        #[automatically_derived]
        #[allow(trivial_bounds)]
        // SAFETY: the layout is walked in one order when it is priced and when it is built, and every field is kept. Where the trait is
        // memtier's, so are the parameters, and what their methods make: each field is of the type that `build` gives it.
        unsafe impl<#(#params,)*> #private::Storage for #ident<#(#own,)*> #clause {
            type Tier = #tier;
            type Dims = #dims;
            type Layout = __MtLayout<#(#own,)*>;
            type Ref<#borrow, #at> = #read<#borrow, #(#view,)* #place>;
            type Mut<#borrow, #at> = #write<#borrow, #(#view,)* #place>;
            const NAME: &'static #private::core::primitive::str = #name;

            fn lay_out(
                #__mt_dims: &#dims,
                #__mt_walk: &mut #private::Walk<'_, #tier>,
            ) -> #private::core::result::Result<Self::Layout, #private::SizeError> {
                let _ = (#__mt_dims, &#__mt_walk);
                #lay_out
            }

            fn build(#__mt_layout: &Self::Layout, #__mt_base: &#private::Base<'_, #tier>) -> Self {
                let _ = (#__mt_layout, #__mt_base);
                #build
            }

            fn has_shape_of(&self, #__mt_layout: &Self::Layout) -> #private::core::primitive::bool {
                let _ = #__mt_layout;
                #has_shape_of
            }

            fn keep(&self, #__mt_keep: &mut #private::Keep) {
                let _ = &#__mt_keep;
                #keep
            }

            fn view<#at>(&self, #__mt_cx: &#private::Cx<#place>) -> Self::Ref<'_, #place> {
                let _ = #__mt_cx;
                #views
            }

            fn view_mut<#at>(&mut self, #__mt_cx: &#private::Cx<#place>) -> Self::Mut<'_, #place> {
                let _ = #__mt_cx;
                #views_mut
            }
        }
    }
}

/// The bodies of the trait's functions.
struct Bodies {
    lay_out: TokenStream,
    build: TokenStream,
    has_shape_of: TokenStream,
    keep: TokenStream,
    view: TokenStream,
    view_mut: TokenStream,
}

impl Bodies {
    /// For a declaration that was reported: it type-checks, so that the report stays alone. Should nobody see the report, since
    /// another `core` takes `compile_error!` away, it is sound.
    fn impossible() -> Self {
        let never = quote!(loop {});
        let [lay_out, build, has_shape_of, keep, view, view_mut] = [(); 6].map(|()| never.clone());
        Bodies { lay_out, build, has_shape_of, keep, view, view_mut }
    }
}

fn literal(model: &Storage, name: &Ident, values: Vec<TokenStream>) -> TokenStream {
    let fields = model.fields.iter().map(|field| &field.ident);
    quote!(#name { #(#fields: #values,)* })
}

// ------------------------------------------------------------------------------------------- the other functions

fn build(model: &Storage, field: &Field) -> TokenStream {
    let Field { ident, kind, attrs, .. } = field;
    let [layout, base, slot] = ["__mt_layout", "__mt_base", "__mt_slot"].map(|name| local(name, Span::call_site()));
    let one = |slot: TokenStream| match kind {
        Kind::Element(_) => quote!(#base.owned(#slot)),
        Kind::Nested(ty) => {
            let ty = model.nested(field, ty);
            quote!(#base.nested::<#ty>(#slot))
        }
        Kind::Array(ty, _) => {
            let ty = model.nested(field, ty);
            quote!(#base.array::<#ty>(#slot))
        }
        Kind::Broken(_) | Kind::Half => quote!(()),
    };
    match attrs.when {
        Some(_) => {
            let one = one(quote!(#slot));
            quote!((&#layout.#ident).as_ref().map(|#slot| #one))
        }
        None => one(quote!(&#layout.#ident)),
    }
}

fn same(private: &Private, field: &Field) -> TokenStream {
    let Field { ident, kind, attrs, .. } = field;
    let [layout, own, slot] = ["__mt_layout", "__mt_own", "__mt_slot"].map(|name| local(name, Span::call_site()));
    let one = |own: TokenStream, slot: TokenStream| match kind {
        Kind::Nested(_) => quote!(#private::Storage::has_shape_of(#own, #slot)),
        _ => quote!((#own).has_shape_of(#slot)),
    };
    match attrs.when {
        Some(_) => {
            let (option, one) = (quote!(#private::core::option::Option), one(quote!(#own), quote!(#slot)));
            quote! {
                match (&self.#ident, &#layout.#ident) {
                    (#option::Some(#own), #option::Some(#slot)) => #one,
                    (#option::None, #option::None) => true,
                    _ => false,
                }
            }
        }
        None => one(quote!(&self.#ident), quote!(&#layout.#ident)),
    }
}

fn keep(private: &Private, field: &Field) -> TokenStream {
    let Field { ident, kind, attrs, .. } = field;
    let [keep, own] = ["__mt_keep", "__mt_own"].map(|name| local(name, Span::call_site()));
    let one = |own: TokenStream| match kind {
        Kind::Element(_) => quote!(#keep.span(#own)),
        Kind::Nested(_) => quote!(#keep.nested(#own)),
        Kind::Array(..) => quote!(#keep.array(#own)),
        Kind::Broken(_) | Kind::Half => quote!(()),
    };
    match attrs.when {
        Some(_) => {
            let one = one(quote!(#own));
            quote!(if let #private::core::option::Option::Some(#own) = &self.#ident { #one; })
        }
        None => {
            let one = one(quote!(&self.#ident));
            quote!(#one;)
        }
    }
}

/// The view of a field: to read, or to write.
fn see(field: &Field, write: bool) -> TokenStream {
    let Field { ident, kind, attrs, .. } = field;
    let [cx, own] = ["__mt_cx", "__mt_own"].map(|name| local(name, Span::call_site()));
    let (borrow, lend) = if write { (quote!(&mut), quote!(as_mut)) } else { (quote!(&), quote!(as_ref)) };
    let one = |own: TokenStream| match (kind, write) {
        (Kind::Element(_), false) => quote!(#cx.span(#own)),
        (Kind::Element(_), true) => quote!(#cx.span_mut(#own)),
        (Kind::Nested(_), false) => quote!(#cx.nested(#own)),
        (Kind::Nested(_), true) => quote!(#cx.nested_mut(#own)),
        (Kind::Array(..), false) => quote!(#cx.array(#own)),
        (Kind::Array(..), true) => quote!(#cx.array_mut(#own)),
        (Kind::Broken(_) | Kind::Half, _) => quote!(()),
    };
    match attrs.when {
        Some(_) => {
            let one = one(quote!(#own));
            quote!((#borrow self.#ident).#lend().map(|#own| #one))
        }
        None => one(quote!(#borrow self.#ident)),
    }
}

// ---------------------------------------------------------------------------------------- beside the trait's impl

/// How a storage is nested in another one of its tier, which fills in its space.
fn nesting(model: &Storage) -> TokenStream {
    let Head { attrs: of_struct, ident, generics, .. } = &model.head;
    let (private, tier, dims) = (model.head.private(), model.tier.ident(), model.dims());
    let Some(space) = model.space.parameter() else { return TokenStream::new() };
    let host: Type = parse_quote!(#private::Host);
    let Moved { params, arguments, clause, .. } = Moved::new(generics, Some(space), &host);
    let there: Type = parse_quote!(__MtThere);
    let moved = Moved::new(generics, Some(space), &there).arguments;
    quote! {
        #(#of_struct)*
        #[automatically_derived]
        #[allow(trivial_bounds)]
        impl<#(#params,)*> #private::Nests<#private::#tier, #dims> for #ident<#(#arguments,)*> #clause {
            type At<__MtThere: #private::Space> = #ident<#(#moved,)*>;
        }

        #(#of_struct)*
        #[automatically_derived]
        #[allow(trivial_bounds)]
        impl<#(#params,)*> #private::NestsOther<#private::#tier> for #ident<#(#arguments,)*> #clause {
            type At<__MtThere: #private::Space> = #ident<#(#moved,)*>;
        }
    }
}

/// `price` and `fields`, on the type as it is written without its space, so that it is inferred.
fn inherent(model: &Storage) -> TokenStream {
    let Head { attrs: of_struct, ident, generics, vis, .. } = &model.head;
    let (private, dims) = (model.head.private(), model.dims());
    let host: Type = parse_quote!(#private::Host);
    let Moved { params, arguments, clause, .. } = Moved::new(generics, model.space.parameter(), &host);
    let own = local("__mt_dims", Span::call_site());
    quote! {
        #(#of_struct)*
        #[allow(trivial_bounds)]
        impl<#(#params,)*> #ident<#(#arguments,)*> #clause {
            /// What it costs with these dimensions, in bytes of its arena: the same in every memory space, and what the carve
            /// uses.
            ///
            /// # Errors
            ///
            /// `SizeError` names the field.
            #[allow(dead_code)]
            #vis fn price(#own: &#dims) -> #private::core::result::Result<#private::Bytes, #private::SizeError> {
                <Self as #private::Storage>::price(#own)
            }

            /// Every field with its shape and place, in the order of memory, for reports.
            ///
            /// # Errors
            ///
            /// `SizeError` names the field.
            #[allow(dead_code)]
            #vis fn fields(#own: &#dims) -> #private::core::result::Result<#private::Vec<#private::FieldInfo>, #private::SizeError> {
                <Self as #private::Storage>::fields(#own)
            }
        }
    }
}
