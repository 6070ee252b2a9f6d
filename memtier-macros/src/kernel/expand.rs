//! Writes the wrapper, and a type that is the kernel's name.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Attribute, FnArg, Path, Signature, ext::IdentExt, spanned::Spanned};

use super::{
    attr::Vouched,
    signature::{Declaration, Param, Role, read_one},
    types::SCALARS,
};
use crate::report::text;

/// What the two sides agreed on.
pub(super) struct Agreed<'a> {
    pub(super) entry: String,
    /// The source: as the author names it, and where it is.
    pub(super) file: String,
    pub(super) absolute: String,
    pub(super) params: &'a [Param],
    pub(super) threads: u32,
    pub(super) exact: bool,
    pub(super) vouched: Option<&'a Vouched>,
}

/// `::memtier_cuda::__private`.
pub(super) fn private(krate: Option<&Path>) -> TokenStream {
    match krate {
        Some(krate) => quote!(#krate::__private),
        None => quote!(::memtier_cuda::__private),
    }
}

/// What takes part in `cfg` must do so in every item.
fn conditions(attrs: &[Attribute]) -> Vec<&Attribute> {
    attrs.iter().filter(|attr| attr.path().is_ident("cfg")).collect()
}

/// The type and the wrapper.
pub(super) fn agreed(declaration: &Declaration, agreed: &Agreed<'_>, p: &TokenStream) -> TokenStream {
    let Declaration { attrs, vis, sig, .. } = declaration;
    let Agreed { entry, file, absolute, params, threads, exact, vouched } = agreed;
    let (name, cfg) = (&sig.ident, conditions(attrs));
    let sizes = params.iter().map(|param| match param.kind.role {
        Role::Value => SCALARS.iter().find(|(name, _)| *name == param.kind.known).map_or(8, |(_, size)| *size),
        _ => 8,
    });
    let about = format!("The kernel `{entry}` of `{file}`: what [`{name}`](fn@{name}) launches.", name = name.unraw());
    let same = params.iter().map(|param| same_type(param, p));
    let head = head(declaration, params.iter().map(|param| argument(param, p)).collect(), p);
    let body = body(sig, params, *vouched, p);
    let safety = sig.unsafety.is_some().then(|| safety(attrs, entry, file));
    quote! {
        #(#cfg)*
        #[doc = #about]
        #[allow(non_camel_case_types)]
        #vis enum #name {}

        #(#cfg)*
        const _: () = {
            impl #p::KernelEntry for #name {
                const ENTRY: &'static #p::core::primitive::str = #entry;
                // Also what makes an edit of the source build this again.
                const SOURCE: &'static #p::core::primitive::str = #p::core::include_str!(#absolute);
                const PARAMS: &'static [#p::core::primitive::usize] = &[#(#sizes),*];
                const THREADS: #p::core::primitive::u32 = #threads;
                const EXACT: #p::core::primitive::bool = #exact;
            }
            #(#same)*
        };

        #(#attrs)*
        #safety
        #head {
            #body
        }
    }
}

/// `# Safety`, where the author has not written it.
fn safety(attrs: &[Attribute], entry: &str, file: &str) -> TokenStream {
    let written = attrs.iter().any(|attr| attr.path().is_ident("doc") && text(&attr.meta).contains("# Safety"));
    if written {
        return TokenStream::new();
    }
    let lines = [
        String::new(),
        " # Safety".to_owned(),
        format!(
            " With this grid and these values, `{entry}` (`{file}`) reads and writes nothing but the elements of the spans it \
             is given, writes no `In`, and ends."
        ),
    ];
    quote!(#(#[doc = #lines])*)
}

/// The signature: what every wrapper takes, and `arguments`.
fn head(declaration: &Declaration, arguments: Vec<TokenStream>, p: &TokenStream) -> TokenStream {
    let Declaration { vis, sig, .. } = declaration;
    let (unsafety, function, name) = (&sig.unsafety, &sig.fn_token, &sig.ident);
    quote! {
        #[allow(clippy::too_many_arguments)]
        #vis #unsafety #function #name<__MtP: #p::Place<Space: #p::Is<#p::Cuda>>>(
            on: &#p::Recorder<__MtP>,
            kernel: &#p::LoadedKernel<#name>,
            grid: #p::LaunchGrid,
            #(#arguments),*
        ) -> #p::core::result::Result<(), #p::LaunchError>
    }
}

fn argument(param: &Param, p: &TokenStream) -> TokenStream {
    let (name, item) = (&param.name, &param.kind.item);
    // A call with a wrong span is told of this parameter, not of the whole declaration.
    let here = Span::call_site().located_at(param.ty.span());
    match param.kind.role {
        Role::Out => {
            quote_spanned!(here=> #name: &mut impl #p::Output<#item, __MtP>)
        }
        Role::In => quote_spanned!(here=> #name: impl #p::Input<#item, __MtP>),
        Role::Value => quote!(#name: #item),
    }
}

/// The macro went by a name: that the name is the type's own.
fn same_type(param: &Param, p: &TokenStream) -> TokenStream {
    let item = &param.kind.item;
    let known = Ident::new(param.kind.known, Span::call_site());
    match param.kind.known {
        // It has arguments, and stands for bytes: only its name could be another's.
        "Packed" => TokenStream::new(),
        _ => quote_spanned!(item.span()=> const _: fn(#item) -> #p::elements::#known = |item| item;),
    }
}

fn body(sig: &Signature, params: &[Param], vouched: Option<&Vouched>, p: &TokenStream) -> TokenStream {
    let name = &sig.ident;
    let spans: Vec<_> = params.iter().filter(|param| param.kind.role != Role::Value).collect();
    let names: Vec<_> = spans.iter().map(|param| &param.name).collect();
    let taken = spans.iter().map(|param| {
        let (name, item) = (&param.name, &param.kind.item);
        match param.kind.role {
            Role::Out => quote!(let #name = #p::Output::<#item, __MtP>::span(#name).output::<#item, __MtP>(on);),
            _ => quote!(let #name = #p::Input::<#item, __MtP>::input(#name);),
        }
    });
    let words = params.iter().map(|param| {
        let name = &param.name;
        match param.kind.role {
            Role::Value => quote!(#p::Scalar::word(#name)),
            _ => quote!(#name.addr()),
        }
    });
    let what = name.unraw().to_string();
    let requires = vouched.map(|vouched| {
        let conditions = vouched.conditions.iter().map(|condition| {
            let why = format!("it requires that `{}`", text(condition));
            quote! {
                if !(#condition) {
                    return #p::core::result::Result::Err(#p::LaunchError::Unsupported { what: #what, why: #why });
                }
            }
        });
        quote! {{
            #(let #names = #p::Length::of(#names.units());)*
            #(let _ = #names;)*
            #(#conditions)*
        }}
    });
    // Marked as the author's own word, so that `forbid(unsafe_code)` finds it.
    let keyword = vouched.map(|vouched| vouched.keyword).or(sig.unsafety).unwrap_or_default();
    let call = quote!(#p::launch::<#name, __MtP, _, _>(on, kernel, grid, streams, words));
    let mut block = Group::new(Delimiter::Brace, call);
    block.set_span(keyword.span);
    quote! {
        let grid = #p::fitted::<#name>(grid)?;
        #(#taken)*
        #requires
        let words = [#(#words),*];
        let streams = [#(#names.stream()),*];
        // SAFETY: the words are the kernel's parameters, which were compared when this was compiled; the spans' borrows went
        // through the signature; that the kernel stays inside of them the author vouches for, or the caller does.
        #[allow(clippy::undocumented_unsafe_blocks)]
        #keyword #block
    }
}

/// What stands in for them after an error: callers still find everything, with as much of its type as is known.
pub(super) fn stand_in(declaration: &Declaration, p: &TokenStream) -> TokenStream {
    let Declaration { attrs, vis, sig, .. } = declaration;
    let (name, cfg) = (&sig.ident, conditions(attrs));
    let arguments = sig.inputs.iter().enumerate().map(|(index, input)| match read_one(input) {
        Ok(param) => argument(&param, p),
        Err(_) => {
            let name = match input {
                FnArg::Typed(typed) => match &*typed.pat {
                    syn::Pat::Ident(pat) => pat.ident.clone(),
                    _ => Ident::new(&format!("__mt_{index}"), input.span()),
                },
                FnArg::Receiver(_) => Ident::new(&format!("__mt_{index}"), input.span()),
            };
            match ["on", "kernel", "grid"].iter().any(|taken| name == taken) {
                true => {
                    let name = Ident::new(&format!("__mt_{index}"), name.span());
                    quote!(#name: impl #p::core::marker::Sized)
                }
                false => quote!(#name: impl #p::core::marker::Sized),
            }
        }
    });
    let head = head(declaration, arguments.collect(), p);
    quote! {
        #(#cfg)*
        #[doc(hidden)]
        #[allow(non_camel_case_types)]
        #vis enum #name {}
        #(#cfg)*
        impl #p::KernelEntry for #name {
            const ENTRY: &'static #p::core::primitive::str = "";
            const SOURCE: &'static #p::core::primitive::str = "";
            const PARAMS: &'static [#p::core::primitive::usize] = &[];
            const THREADS: #p::core::primitive::u32 = 1;
            const EXACT: #p::core::primitive::bool = false;
        }
        #(#attrs)*
        #[allow(unused_variables, missing_docs, clippy::missing_safety_doc)]
        #head {
            // Stands beside the error that made this the fallback, so it is never compiled into anything that runs.
            #p::core::unimplemented!()
        }
    }
}
