//! The structs beside a bundle (what it is declared from, its lines, its views, what a swap leaves) and its impls.
//!
//! As in `storage`, no body names anything by a path: each part goes through a method of the function's parameter.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote};
use syn::{Type, ext::IdentExt, parse_quote};

use super::{Moved, Substitute, arguments, borrow, dims::local, docs, place, views::named, without_defaults};
use crate::{
    check::is_no_part,
    model::{Bundle, Head, Part},
};

pub(crate) fn expand(model: &Bundle, broken: bool) -> TokenStream {
    let structs = [owned_struct(model, Made::Spec), owned_struct(model, Made::Lines), owned_struct(model, Made::Kept)];
    let parts = parts_struct(model);
    let views = [view_struct(model, Made::View), view_struct(model, Made::LoadView)];
    let imp = implementation(model, broken);
    quote! {
        #(#structs)*
        #(#views)*
        #parts
        const _: () = {
            #imp
        };
    }
}

impl Bundle {
    /// Whether the space of the bundle is that of this part.
    fn is_anchor(&self, index: usize) -> bool {
        self.space.is_none() && self.fixed.is_none() && index == self.anchor
    }
}

/// What is made from a bundle.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Made {
    Spec,
    Lines,
    View,
    LoadView,
    Parts,
    Kept,
}

impl Made {
    fn suffix(self) -> &'static str {
        match self {
            Made::Spec => "Spec",
            Made::Lines => "Lines",
            Made::View => "View",
            Made::LoadView => "LoadView",
            Made::Parts => "Parts",
            Made::Kept => "Kept",
        }
    }

    fn doc(self, bundle: &Ident) -> String {
        match self {
            Made::Spec => format!("What [`{bundle}`] is declared from: the size of each part."),
            Made::Lines => format!("[`{bundle}`] with a plan line in place of each part: carved once."),
            Made::View => format!("What a step or a capture gets of [`{bundle}`]: one view of each part."),
            Made::LoadView => format!("What a loader gets of [`{bundle}`]: one write view of each part."),
            Made::Parts => {
                format!("What an overlap of two streams gets of [`{bundle}`]: each part, to be handed to one side.")
            }
            Made::Kept => format!("What a model swap leaves of [`{bundle}`]."),
        }
    }

    fn of_part(self, part: &str) -> String {
        match self {
            Made::Spec => format!("The size of `{part}`."),
            Made::Lines => format!("The plan line of `{part}`."),
            Made::View | Made::LoadView => format!("The view of `{part}`."),
            Made::Parts => format!("`{part}`, lent."),
            Made::Kept => format!("What is left of `{part}`."),
        }
    }
}

/// `..Spec`, `..Lines`, `..Kept`: generic as the bundle is.
fn owned_struct(model: &Bundle, made: Made) -> TokenStream {
    let Head { attrs, vis, ident, generics, .. } = &model.head;
    let private = model.head.private();
    let (params, clause) = (&generics.params, &generics.where_clause);
    let name = named(ident, made.suffix());
    let doc = made.doc(ident);
    let fields = model.parts.iter().map(|Part { docs: own, vis, ident, ty, .. }| {
        let docs = docs(own, "", &made.of_part(&ident.unraw().to_string()));
        let ty = match made {
            _ if is_no_part(ty) => quote!(()),
            Made::Spec => quote!(<#ty as #private::Declare>::Spec),
            Made::Lines => quote!(#private::Line<#ty>),
            _ => quote!(<#ty as #private::Part>::Kept),
        };
        quote!(#docs #vis #ident: #ty)
    });
    let must_use = match made {
        Made::Lines => quote!(#[must_use = "a declared bundle that is never carved is planned for nothing"]),
        _ => TokenStream::new(),
    };
    quote! {
        #(#attrs)*
        #[doc = #doc]
        #must_use
        #[allow(dead_code, private_bounds, trivial_bounds)]
        #vis struct #name<#params> #clause {
            #(#fields,)*
        }
    }
}

/// `..Parts`: generic as the bundle is.
fn parts_struct(model: &Bundle) -> TokenStream {
    let Head { attrs, vis, ident, generics, .. } = &model.head;
    let (private, borrow) = (model.head.private(), borrow());
    let (params, clause) = (&generics.params, &generics.where_clause);
    let name = named(ident, Made::Parts.suffix());
    let doc = Made::Parts.doc(ident);
    let fields = model.parts.iter().map(|Part { docs: own, vis, ident, ty, .. }| {
        let docs = docs(own, "", &Made::Parts.of_part(&ident.unraw().to_string()));
        quote!(#docs #vis #ident: #private::Lent<#borrow, #ty>)
    });
    quote! {
        #(#attrs)*
        #[doc = #doc]
        #[allow(dead_code, private_bounds, trivial_bounds)]
        #vis struct #name<#borrow, #params> #clause {
            #(#fields,)*
        }
    }
}

/// Where views are: the generics of the bundle with the place in place of its space parameter.
fn viewed(model: &Bundle) -> Moved {
    let (private, place) = (model.head.private(), place());
    let to: Type = parse_quote!(<#place as #private::Place>::Space);
    Moved::new(&model.head.generics, model.space.as_ref(), &to)
}

/// The space of a bundle: its parameter, what the author says, or that of its first part.
fn space(model: &Bundle) -> TokenStream {
    let private = model.head.private();
    match (&model.space, &model.fixed, model.parts.get(model.anchor).filter(|part| !is_no_part(&part.ty))) {
        (Some(space), ..) => quote!(#space),
        (None, Some(space), _) => quote!(#space),
        (None, None, Some(Part { ty, .. })) => quote!(<#ty as #private::Part>::Space),
        (None, None, None) => quote!(#private::Host),
    }
}

/// `..View`, `..LoadView`.
fn view_struct(model: &Bundle, made: Made) -> TokenStream {
    let Head { attrs, vis, ident, .. } = &model.head;
    let (private, place, borrow) = (model.head.private(), place(), borrow());
    let Moved { params, clause, .. } = viewed(model);
    let name = named(ident, made.suffix());
    let [first, other] = ["", "Of"].map(|end| Ident::new(&format!("{}{end}", made.suffix()), Span::call_site()));
    let there: Type = parse_quote!(<#place as #private::Place>::Space);
    let (space, bound) = match &model.space {
        Some(_) => (there.to_token_stream(), quote!(#private::Place)),
        None => {
            let space = space(model);
            (space.clone(), quote!(#private::Place<Space = #space>))
        }
    };
    let doc = made.doc(ident);
    let fields = model.parts.iter().enumerate().map(|(index, Part { docs: own, vis, ident, ty, .. })| {
        let docs = docs(own, "", &made.of_part(&ident.unraw().to_string()));
        let ty = Substitute { from: model.space.as_ref(), to: &there }.in_type(ty);
        match index {
            _ if is_no_part(&ty) => {
                quote!(#docs #vis #ident: #private::core::marker::PhantomData<(&#borrow (), #place)>)
            }
            index if model.is_anchor(index) => {
                quote!(#docs #vis #ident: <#ty as #private::Part>::#first<#borrow, #place>)
            }
            _ => quote!(#docs #vis #ident: #private::#other<#borrow, #ty, #space, #place>),
        }
    });
    quote! {
        #(#attrs)*
        #[doc = #doc]
        #[allow(dead_code, private_bounds, trivial_bounds)]
        #vis struct #name<#borrow, #(#params,)* #place: #bound> #clause {
            #(#fields,)*
        }
    }
}

fn implementation(model: &Bundle, broken: bool) -> TokenStream {
    let Head { attrs: of_struct, ident, generics, .. } = &model.head;
    let (private, space, place, borrow) = (model.head.private(), space(model), place(), borrow());
    let (params, own, clause) = (without_defaults(generics), arguments(generics), &generics.where_clause);
    let Moved { own: view_own, .. } = viewed(model);
    let [spec, lines, view, load_view, lent, kept] =
        [Made::Spec, Made::Lines, Made::View, Made::LoadView, Made::Parts, Made::Kept]
            .map(|made| named(ident, made.suffix()));
    let name = ident.unraw().to_string();
    let at = quote!(#place: #private::Place<Space = #space>);
    let Bodies { price, declare, carve, views, load_views, parts, left, keep, gates, check } =
        Bodies::of(model, broken);
    let [prices, sizes, declarer, carved, carver, cx, lend, swap, collect, gated, checker] = [
        "__mt_prices",
        "__mt_spec",
        "__mt_declarer",
        "__mt_lines",
        "__mt_carver",
        "__mt_cx",
        "__mt_lend",
        "__mt_swap",
        "__mt_keep",
        "__mt_gates",
        "__mt_check",
    ]
    .map(|name| local(name, Span::call_site()));
    quote! {
        #(#of_struct)*
        #[automatically_derived]
        #[allow(trivial_bounds)]
        // SAFETY: every method goes field by field through the parts' own, and the macro names every field once. Where the trait is
        // memtier's, so are the parameters that do it.
        unsafe impl<#(#params,)*> #private::Bundle for #ident<#(#own,)*> #clause {
            type Space = #space;
            type Spec = #spec<#(#own,)*>;
            type Lines = #lines<#(#own,)*>;
            type View<#borrow, #at> = #view<#borrow, #(#view_own,)* #place>;
            type LoadView<#borrow, #at> = #load_view<#borrow, #(#view_own,)* #place>;
            type Parts<#borrow> = #lent<#borrow, #(#own,)*>;
            type Kept = #kept<#(#own,)*>;
            const NAME: &'static #private::core::primitive::str = #name;

            fn price(
                #sizes: &Self::Spec,
                #prices: &mut #private::Prices<'_>,
            ) -> #private::core::result::Result<(), #private::SizeError> {
                #price
            }

            fn declare(#sizes: Self::Spec, #declarer: &mut #private::Declarer<'_>) -> Self::Lines {
                #declare
            }

            fn carve(#carved: Self::Lines, #carver: &mut #private::Carver<'_>) -> Self {
                #carve
            }

            fn view<#at>(&mut self, #cx: &#private::Cx<#place>) -> Self::View<'_, #place> {
                #views
            }

            fn load_view<#at>(&mut self, #cx: &#private::Cx<#place>) -> Self::LoadView<'_, #place> {
                #load_views
            }

            fn parts(&mut self, #lend: &#private::Lend) -> Self::Parts<'_> {
                #parts
            }

            fn kept(self, #swap: &#private::Swap) -> Self::Kept {
                #left
            }

            fn keep(&self, #collect: &mut #private::Keep) {
                #keep
            }

            fn gates(&self, #gated: &mut #private::Gates<'_>) {
                #gates
            }
        }

        #(#of_struct)*
        #[automatically_derived]
        #[allow(trivial_bounds)]
        // SAFETY: each line is carved into the field that it was declared for, and no other.
        unsafe impl<#(#params,)*> #private::Lines for #lines<#(#own,)*> #clause {
            type Bundle = #ident<#(#own,)*>;

            fn check(
                &self,
                #checker: &mut #private::Check<'_>,
            ) -> #private::core::result::Result<(), #private::CarveError> {
                #check
            }
        }
    }
}

/// The bodies of the traits' functions.
struct Bodies {
    price: TokenStream,
    declare: TokenStream,
    carve: TokenStream,
    views: TokenStream,
    load_views: TokenStream,
    parts: TokenStream,
    left: TokenStream,
    keep: TokenStream,
    gates: TokenStream,
    check: TokenStream,
}

impl Bodies {
    fn of(model: &Bundle, broken: bool) -> Self {
        if broken {
            let never = quote!(loop {});
            let [price, declare, carve, views, load_views, parts, left, keep, gates, check] =
                [(); 10].map(|()| never.clone());
            return Bodies { price, declare, carve, views, load_views, parts, left, keep, gates, check };
        }
        let own = &model.head.ident;
        let [lines, view, load_view, lent, kept] =
            [Made::Lines, Made::View, Made::LoadView, Made::Parts, Made::Kept].map(|made| named(own, made.suffix()));
        let [prices, sizes, declarer, carved, carver, cx, lend, swap, collect, gated, checker] = [
            "__mt_prices",
            "__mt_spec",
            "__mt_declarer",
            "__mt_lines",
            "__mt_carver",
            "__mt_cx",
            "__mt_lend",
            "__mt_swap",
            "__mt_keep",
            "__mt_gates",
            "__mt_check",
        ]
        .map(|name| local(name, Span::call_site()));
        let literal = |name: &Ident, value: &dyn Fn(&Ident) -> TokenStream| {
            let fields = model.parts.iter().map(|part| {
                let (ident, value) = (&part.ident, value(&part.ident));
                quote!(#ident: #value)
            });
            quote!(#name { #(#fields,)* })
        };
        // One part says where the bundle is, the others are where it is.
        let view_of = |name: &Ident, method: &str| {
            let [anchor, other] = ["", "_of"].map(|end| Ident::new(&format!("{method}{end}"), Span::call_site()));
            let fields = model.parts.iter().enumerate().map(|(index, Part { ident, .. })| {
                let method = if model.is_anchor(index) { &anchor } else { &other };
                quote!(#ident: #cx.#method(&mut self.#ident))
            });
            quote!(#name { #(#fields,)* })
        };
        let each = |value: &dyn Fn(&Part) -> TokenStream| -> TokenStream { model.parts.iter().map(value).collect() };
        let price = each(&|Part { ident, ty, .. }| quote!(#prices.part::<#ty>(&#sizes.#ident)?;));
        let check = each(&|Part { ident, .. }| quote!(#checker.line(&self.#ident)?;));
        Bodies {
            price: quote!(#price #prices.done()),
            declare: literal(&lines, &|ident| quote!(#declarer.line(#sizes.#ident))),
            carve: literal(own, &|ident| quote!(#carver.part(#carved.#ident))),
            views: view_of(&view, "part"),
            load_views: view_of(&load_view, "load_part"),
            parts: literal(&lent, &|ident| quote!(#lend.part(&mut self.#ident))),
            left: literal(&kept, &|ident| quote!(#swap.part(self.#ident))),
            keep: each(&|Part { ident, .. }| quote!(#collect.part(&self.#ident);)),
            gates: each(&|Part { ident, .. }| quote!(#gated.part(&self.#ident);)),
            check: quote!(#check #checker.done()),
        }
    }
}
