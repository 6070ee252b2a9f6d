//! What the Rust declaration says.

use proc_macro2::{Ident, Span, TokenStream};
use syn::{
    Attribute, FnArg, GenericArgument, Pat, PathArguments, Result, ReturnType, Signature, Token, Type, Visibility,
    parse::{Parse, ParseStream},
    spanned::Spanned,
};

use super::types::{ELEMENTS, SCALARS};
use crate::{
    bounds::{first_of, last_name},
    report::{Errors, closest, text},
};

/// `pub fn scale(out: Out<f32>, x: In<f32>, n: u32);`
pub(super) struct Declaration {
    pub(super) attrs: Vec<Attribute>,
    pub(super) vis: Visibility,
    pub(super) sig: Signature,
    pub(super) body: Option<Span>,
}

impl Parse for Declaration {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        let (vis, sig) = (input.parse()?, input.parse()?);
        let body = if input.peek(Token![;]) {
            input.parse::<Token![;]>()?;
            None
        } else {
            let span = input.span();
            input.parse::<syn::Block>()?;
            Some(span)
        };
        Ok(Declaration { attrs, vis, sig, body })
    }
}

/// What a parameter is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    Out,
    In,
    Value,
}

pub(super) struct Param {
    pub(super) name: Ident,
    /// As it was written.
    pub(super) ty: Type,
    pub(super) kind: Kind,
}

/// A type that a kernel can take.
pub(super) struct Kind {
    pub(super) role: Role,
    /// The element, or the type of the value: the author's tokens.
    pub(super) item: Type,
    /// Its last name.
    pub(super) known: &'static str,
}

impl Param {
    /// The name and the type, to mark.
    pub(super) fn tokens(&self) -> TokenStream {
        let (name, ty) = (&self.name, &self.ty);
        quote::quote!(#name #ty)
    }
}

/// The parameters, or `None` when one of them is nothing that could be compared; everything wrong is reported.
pub(super) fn read(declaration: &Declaration, errors: &mut Errors) -> Option<Vec<Param>> {
    let Declaration { sig, body, .. } = declaration;
    if let Some(span) = body {
        errors.at(*span, "the body is generated: a `;` behind the signature");
    }
    if let Some(asyncness) = &sig.asyncness {
        errors.mark(asyncness, "no `async` here: a launch only queues the kernel, and the step's fence waits for it");
    }
    if let Some(constness) = &sig.constness {
        errors.mark(constness, "no `const` here: a kernel does not run in the compiler");
    }
    if let Some(abi) = &sig.abi {
        errors.mark(abi, "no ABI here: the kernel's own is known");
    }
    if !sig.generics.params.is_empty() || sig.generics.where_clause.is_some() {
        errors.mark(
            &sig.generics,
            "no generics here: an entry of a CUDA source has one signature; declare one function for each",
        );
    }
    if let ReturnType::Type(_, ty) = &sig.output {
        errors.mark(
            ty,
            "a kernel returns nothing: what it writes is an `Out<..>`; the wrapper returns `Result<(), LaunchError>`",
        );
    }
    if let Some(variadic) = &sig.variadic {
        errors.mark(variadic, "a kernel has a fixed number of parameters");
    }
    let mut params = Vec::new();
    for input in &sig.inputs {
        match read_one(input) {
            Ok(param) => params.push(param),
            Err(error) => errors.push(error),
        }
    }
    (params.len() == sig.inputs.len()).then_some(params)
}

/// Names that the wrapper has for its own parameters.
const TAKEN: [&str; 3] = ["on", "kernel", "grid"];

pub(super) fn read_one(input: &FnArg) -> Result<Param> {
    let typed = match input {
        FnArg::Typed(typed) => typed,
        FnArg::Receiver(receiver) => {
            return Err(syn::Error::new_spanned(receiver, "no `self` here: a kernel belongs to no type"));
        }
    };
    let Pat::Ident(pat) = &*typed.pat else {
        return Err(syn::Error::new_spanned(&typed.pat, "a parameter of a kernel is a plain name"));
    };
    if pat.mutability.is_some() || pat.by_ref.is_some() || pat.subpat.is_some() {
        return Err(syn::Error::new_spanned(
            pat,
            "a parameter of a kernel is a plain name; what is written is an `Out<..>`",
        ));
    }
    if let Some(attr) = typed.attrs.first() {
        return Err(syn::Error::new_spanned(
            attr,
            "no attributes on parameters: the kernel in the source has all of them or none",
        ));
    }
    let name = pat.ident.clone();
    if TAKEN.iter().any(|taken| name == taken) {
        let message = format!(
            "the wrapper has a parameter `{name}` of its own (it takes `on`, `kernel` and `grid` first): choose another name"
        );
        return Err(syn::Error::new(name.span(), message));
    }
    let kind = kind(&typed.ty)?;
    Ok(Param { name, ty: (*typed.ty).clone(), kind })
}

fn kind(ty: &Type) -> Result<Kind> {
    let refuse = |message: String| Err(syn::Error::new_spanned(ty, message));
    let ty = crate::model::peel(ty);
    match ty {
        Type::Reference(reference) if last_name(&reference.elem).is_some_and(|name| SPANS.contains(&name.as_str())) => {
            let role = if reference.mutability.is_some() { "Out" } else { "In" };
            refuse(format!(
                "callers pass spans, the declaration names what is in them: write `{}`",
                suggested(role, &reference.elem)
            ))
        }
        Type::ImplTrait(traits) => {
            let role = traits.bounds.iter().find_map(|bound| match bound {
                syn::TypeParamBound::Trait(bound) => bound.path.segments.last(),
                _ => None,
            });
            let item = role.and_then(first_of).map_or_else(|| "f32".to_owned(), text);
            let role = if role.is_some_and(|role| role.ident == "Output") { "Out" } else { "In" };
            refuse(format!("callers pass spans, the declaration names what is in them: write `{role}<{item}>`"))
        }
        Type::Reference(reference) => {
            let role = if reference.mutability.is_some() { "Out" } else { "In" };
            refuse(format!(
                "a kernel takes device memory, not host memory: write `{}`",
                suggested(role, &reference.elem)
            ))
        }
        Type::Ptr(pointer) => {
            let role = if pointer.mutability.is_some() { "Out" } else { "In" };
            let better = suggested(role, &pointer.elem);
            refuse(format!(
                "a bare pointer carries no promise that its memory stays: write `{better}`, and pass a span"
            ))
        }
        Type::Path(path) if path.qself.is_none() => {
            let Some(last) = path.path.segments.last() else { return refuse("expected a type".into()) };
            let name = last.ident.to_string();
            let role = match name.as_str() {
                "Out" => Role::Out,
                "In" => Role::In,
                _ => return value(ty, &name),
            };
            let PathArguments::AngleBracketed(arguments) = &last.arguments else {
                return refuse(format!("`{name}` of what? Write `{name}<f32>`"));
            };
            let mut types = arguments.args.iter();
            match (types.next(), types.next()) {
                (Some(GenericArgument::Type(item)), None) => element(role, item),
                _ => refuse(format!("`{name}` takes one element type: write `{name}<f32>`")),
            }
        }
        _ => refuse(format!(
            "a kernel takes no `{}`: write `Out<f32>` or `In<f32>` for device memory, or a number",
            text(ty)
        )),
    }
}

/// What callers pass.
const SPANS: [&str; 3] = ["StableSpan", "StableSpanMut", "DeviceSpan"];

/// The element in `[f32]`, `&f32`, `Vec<f32>`, `StableSpan<'_, f32, P>`, and in `f32`.
fn inside(item: &Type) -> &Type {
    match crate::model::peel(item) {
        Type::Slice(slice) => inside(&slice.elem),
        Type::Array(array) => inside(&array.elem),
        Type::Reference(reference) => inside(&reference.elem),
        Type::Ptr(pointer) => inside(&pointer.elem),
        Type::Path(path) => match path.path.segments.last() {
            Some(last) if last.ident == "Vec" || last.ident == "Box" || SPANS.iter().any(|span| last.ident == span) => {
                first_of(last).map_or(item, inside)
            }
            _ => item,
        },
        item => item,
    }
}

/// `In<f32>` for `[f32]` and for `f32`.
fn suggested(role: &str, item: &Type) -> String {
    format!("{role}<{}>", text(inside(item)))
}

fn value(ty: &Type, name: &str) -> Result<Kind> {
    if let Some((known, _)) = SCALARS.iter().find(|(known, _)| *known == name) {
        return Ok(Kind { role: Role::Value, item: ty.clone(), known });
    }
    let message = match name {
        "usize" | "isize" => {
            let (fixed, like) = if name == "usize" { ("u64", "size_t") } else { ("i64", "ptrdiff_t") };
            format!("`{name}` is as wide as the host likes: write `{fixed}` (what CUDA's `{like}` is)")
        }
        "InOut" | "Mut" | "StableSpanMut" => "what a kernel writes, or reads and writes, is an `Out<..>`".to_owned(),
        "Input" | "StableSpan" | "DeviceSpan" => "what a kernel reads is an `In<..>`".to_owned(),
        _ => {
            let mut known: Vec<&str> = SCALARS.iter().map(|(name, _)| *name).collect();
            known.extend(["Out", "In"]);
            let guess = closest(name, &known).filter(|guess| *guess != name);
            let guess = guess.map(|guess| format!("; did you mean `{guess}`?")).unwrap_or_default();
            format!(
                "a kernel takes no `{}`{guess} (device memory is `Out<element>` or `In<element>`, a value a number of fixed size)",
                text(ty)
            )
        }
    };
    Err(syn::Error::new(ty.span(), message))
}

fn element(role: Role, item: &Type) -> Result<Kind> {
    let last = match crate::model::peel(item) {
        Type::Path(path) if path.qself.is_none() => path.path.segments.last(),
        _ => None,
    };
    let name = last.map(|last| last.ident.to_string()).unwrap_or_default();
    let elements = &ELEMENTS[..ELEMENTS.len() - 1]; // `bool` is none
    if let Some(known) = elements.iter().find(|known| **known == name) {
        return Ok(Kind { role, item: item.clone(), known });
    }
    if text(inside(item)) != text(item) {
        let role = if role == Role::Out { "Out" } else { "In" };
        let message =
            format!("an `{role}` is all elements of a span, and names one: write `{}`", suggested(role, item));
        return Err(syn::Error::new_spanned(item, message));
    }
    let guess = closest(&name, elements).filter(|guess| *guess != name);
    let guess = guess.map(|guess| format!("; did you mean `{guess}`?")).unwrap_or_default();
    let message = format!(
        "device memory holds no `{}`{guess} (the macro goes by the names of elements: `f32`, `bf16`, `u32`, `Q4_K`, `Packed<..>`, ..)",
        text(item)
    );
    Err(syn::Error::new_spanned(item, message))
}
