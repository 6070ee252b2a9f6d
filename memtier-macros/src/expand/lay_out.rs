//! `Storage::lay_out`: asks the walk for a slot for each field, with checked sizes.

use std::cell::RefCell;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::{Expr, Type, spanned::Spanned};

use super::{
    Private,
    dims::{Rewritten, Scope, grouped, local},
};
use crate::{
    bounds,
    model::{Field, Kind, Storage, const_params},
};

/// The function's body, and the constants that it uses.
#[derive(Default)]
pub(crate) struct LaidOut {
    pub(crate) body: TokenStream,
    /// Beside the impl, where `cargo check` evaluates them: the impl is generic, and what stands in it is evaluated when
    /// somebody carves.
    pub(crate) constants: TokenStream,
}

pub(crate) fn lay_out(model: &Storage) -> LaidOut {
    let private = model.head.private();
    let [walk, layout] = locals(["__mt_walk", "__mt_layout"]);
    let consts = const_params(&model.head.generics);
    let constants = RefCell::default();
    let fields = model.fields.iter().map(|field| {
        let ident = &field.ident;
        let laid_out = Laying { model, field, private: &private, consts: &consts, constants: &constants }.field();
        quote!(#ident: #laid_out)
    });
    let body = quote! {
        let #layout = __MtLayout {
            #(#fields,)*
            __mt_of: #private::core::marker::PhantomData,
        };
        #walk.done(#layout)
    };
    LaidOut { body, constants: constants.into_inner() }
}

/// One field being laid out.
struct Laying<'l> {
    model: &'l Storage,
    field: &'l Field,
    private: &'l Private,
    consts: &'l [Ident],
    constants: &'l RefCell<TokenStream>,
}

/// The local variables of the generated function.
fn locals<const N: usize>(names: [&str; N]) -> [Ident; N] {
    names.map(|name| local(name, Span::call_site()))
}

impl Laying<'_> {
    fn field(&self) -> TokenStream {
        let slot = match &self.field.kind {
            Kind::Element(ty) => self.element(ty),
            Kind::Nested(ty) => self.nested(ty),
            Kind::Array(ty, len) => self.array(ty, len),
            Kind::Broken(_) | Kind::Half => quote!(()),
        };
        let Some(when) = &self.field.attrs.when else { return slot };
        let private = self.private;
        let when = self.rewrite(when, false);
        let [walk, there, laid_out] = locals(["__mt_walk", "__mt_there", "__mt_slot"]);
        let (open, close) = self.math(&[&when]);
        quote! {{
            #open
            let #there: #private::core::primitive::bool = #when;
            #close
            if #there {
                let #laid_out = #slot;
                #walk.present(#laid_out)
            } else {
                #walk.absent()
            }
        }}
    }

    fn rewrite(&self, expr: &Expr, indexed: bool) -> Rewritten {
        let rewritten = Scope { consts: self.consts, indexed }.rewrite(expr);
        if !rewritten.foreign {
            return rewritten;
        }
        // A `return` in a macro would leave `lay_out`, with a layout of its own in place of the one that the walk has priced.
        let (private, tokens) = (self.private, &rewritten.tokens);
        let tokens = quote_spanned!(expr.span()=> #private::value(|| #tokens));
        Rewritten { tokens, ..rewritten }
    }

    /// A dimension or a count. A constant one is checked beside the impl.
    fn size(&self, expr: &Expr, what: &str) -> Rewritten {
        let size = self.rewrite(expr, false);
        if !size.constant || matches!(expr, Expr::Lit(_)) {
            return size;
        }
        let (krate, name) = (bounds::at(&self.model.head.krate, expr.span()), self.field.name());
        let message = format!("a dimension of `{name}` is zero");
        let value = self.constant(expr, what, quote!(usize), grouped(expr).into_token_stream());
        if what != "COUNT" {
            let assertion = quote_spanned! {expr.span()=>
                const _: () = #krate::__private::constant(#value != 0, #message);
            };
            self.constants.borrow_mut().extend(assertion);
        }
        Rewritten { tokens: value.to_token_stream(), ..size }
    }

    fn constant(&self, expr: &Expr, what: &str, ty: TokenStream, value: TokenStream) -> Ident {
        let name = format_ident!("__MT_{}_{}", self.field.name().to_uppercase(), what, span = expr.span());
        let private = self.private;
        let item = quote_spanned!(expr.span()=> const #name: #private::core::primitive::#ty = #value;);
        self.constants.borrow_mut().extend(item);
        name
    }

    fn align(&self, align: &Expr) -> Rewritten {
        let value = self.rewrite(align, false);
        let (private, name) = (self.private, self.field.name());
        if matches!(align, Expr::Lit(_)) {
            return value;
        }
        let wide = |tokens: TokenStream| quote!((#tokens) as #private::core::primitive::u64);
        if !value.constant {
            return Rewritten { tokens: wide(value.tokens), ..value };
        }
        let message = format!("the alignment of `{name}` is no power of two, or larger than 4096");
        let krate = bounds::at(&self.model.head.krate, align.span());
        let constant = self.constant(align, "ALIGN", quote!(u64), wide(grouped(align).into_token_stream()));
        let assertion = quote_spanned! {align.span()=>
            const _: () = #krate::__private::constant(#constant.is_power_of_two() && #constant <= 4096, #message);
        };
        self.constants.borrow_mut().extend(assertion);
        Rewritten { tokens: constant.to_token_stream(), ..value }
    }

    /// What stands in front of arithmetic and behind it, when some is checked.
    fn math(&self, used: &[&Rewritten]) -> (TokenStream, TokenStream) {
        if !used.iter().any(|expr| expr.checked) {
            return Default::default();
        }
        let (private, name, [math]) = (self.private, self.field.name(), locals(["__mt_math"]));
        (quote!(let #math = #private::Math::of(#name);), quote!(#math.done()?;))
    }

    fn element(&self, ty: &Type) -> TokenStream {
        let (attrs, name) = (&self.field.attrs, self.field.name());
        let shape = attrs.shape.iter().flatten().enumerate();
        let shape: Vec<_> = shape.map(|(index, dim)| self.size(dim, &index.to_string())).collect();
        self.constant_shape(ty, &shape);
        let format = attrs.format.as_ref().map(|format| self.rewrite(format, false));
        let align = attrs.align.as_ref().map(|align| self.align(align));
        let (open, close) = self.math(&shape.iter().chain(&format).chain(&align).collect::<Vec<_>>());
        let [walk, dims, formed, aligned] = locals(["__mt_walk", "__mt_shape", "__mt_format", "__mt_align"]);
        let (private, count) = (self.private, shape.len());
        let align = align.map_or(quote!(1), ToTokens::into_token_stream);
        let (let_format, slot) = match format {
            Some(format) => (
                quote!(let #formed = #format;),
                quote_spanned!(bounds::place(ty)=> #walk.packed::<#ty>(#name, #formed, &#dims, #aligned)?),
            ),
            None => (quote!(), quote_spanned!(bounds::place(ty)=> #walk.field::<#ty>(#name, &#dims, #aligned)?)),
        };
        quote! {{
            #open
            let #dims: [#private::core::primitive::usize; #count] = [#(#shape),*];
            let #aligned: #private::core::primitive::u64 = #align;
            #let_format
            #close
            #slot
        }}
    }

    /// A shape that is constant as a whole is checked as a whole.
    fn constant_shape(&self, ty: &Type, shape: &[Rewritten]) {
        let elements: Option<&[Expr]> = self.field.attrs.shape.as_deref();
        let Some(span) = elements.and_then(<[Expr]>::first).map(Spanned::span) else { return };
        if !shape.iter().all(|dim| dim.constant) {
            return;
        }
        let (krate, private, name) = (bounds::at(&self.model.head.krate, span), self.private, self.field.name());
        // Of other elements only the number is looked at: they are judged where they stand.
        let (bytes, per) = match bounds::is_element(ty) {
            true => (
                quote!(#private::core::mem::size_of::<<#ty as #private::Element>::Repr>()),
                quote!(<#ty as #private::Element>::PER),
            ),
            false => (quote!(1), quote!(1)),
        };
        let size = format!("the size of `{name}` leaves the range of 64 bits");
        let rows = format!("the rows of `{name}` do not hold whole blocks");
        let assertions = quote_spanned! {span=>
            const _: () = #krate::__private::constant(#krate::__private::has_size(&[#(#shape),*], #bytes), #size);
            const _: () = #krate::__private::constant(#krate::__private::has_whole_rows(&[#(#shape),*], #per), #rows);
        };
        self.constants.borrow_mut().extend(assertions);
    }

    fn nested(&self, ty: &Type) -> TokenStream {
        let (name, nested) = (self.field.name(), self.model.nested(self.field, ty));
        let [walk, dims] = locals(["__mt_walk", "__mt_dims"]);
        let Some(expr) = &self.field.attrs.dims else {
            return quote_spanned!(bounds::place(ty)=> #walk.nested::<#nested>(#name, #dims)?);
        };
        let (item, span) = (local("__mt_item", expr.span()), expr.span());
        let expr = self.rewrite(expr, false);
        if !expr.checked {
            let dims = quote_spanned!(span=> &#expr);
            return quote_spanned!(bounds::place(ty)=> #walk.nested::<#nested>(#name, #dims)?);
        }
        let (open, close) = self.math(&[&expr]);
        let slot = quote_spanned!(bounds::place(ty)=> #walk.nested::<#nested>(#name, #item)?);
        quote! {{
            #open
            let #item = &#expr;
            #close
            #slot
        }}
    }

    fn array(&self, ty: &Type, len: &Expr) -> TokenStream {
        let (name, nested) = (self.field.name(), self.model.nested(self.field, ty));
        let [walk, own, count, index, items] =
            locals(["__mt_walk", "__mt_dims", "__mt_count", "__mt_index", "__mt_items"]);
        let len = self.size(len, "COUNT");
        let dims = self.field.attrs.dims.as_ref().map(|dims| self.rewrite(dims, true));
        let (open, close) = self.math(&[&len].into_iter().chain(&dims).collect::<Vec<_>>());
        let dims = dims.map_or(quote!(#own), ToTokens::into_token_stream);
        let private = self.private;
        let walked = quote_spanned!(bounds::place(ty)=> #walk.array::<#nested, _>(#name, #count, |#index| { let _ = #index; #dims }));
        quote! {{
            #open
            let #count: #private::core::primitive::usize = #len;
            #close
            let #items = #walked;
            #close
            #items?
        }}
    }
}
