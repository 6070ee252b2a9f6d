//! Whether a declaration makes sense as a whole: everything that one attribute alone cannot tell.

use proc_macro2::Span;
use syn::{Expr, Lit, Type, spanned::Spanned, visit::Visit};

use crate::{
    attr::FIELD,
    bounds::{instead_of, is_packed, is_value},
    model::{Bundle, Field, Kind, Storage, peel},
    report::{Errors, text},
};

/// The largest alignment that an arena can promise.
const PAGE: u64 = 4096;

pub(crate) fn storage(model: &Storage, errors: &mut Errors) {
    if model.dims.is_none() && !model.dims_were_tried {
        errors.at(
            model.head.ident.span(),
            "`dims` is missing: name the struct whose fields the shapes are made of, `#[tier(.., dims = Dims)]` (`dims = ()` when \
             every shape is constant)",
        );
    }
    if model.fields.iter().all(|field| field.ident == "__mt_none") {
        errors.at(
            model.head.ident.span(),
            "a storage without fields: give it at least one, `#[shape(rows, columns)] query: f32`",
        );
    }
    for field in &model.fields {
        match &field.kind {
            Kind::Element(ty) => element(field, ty, errors),
            Kind::Nested(_) | Kind::Array(..) => nested(field, errors),
            Kind::Broken(ty) => broken(field, ty, errors),
            Kind::Half => {}
        }
        no_self(field, errors);
    }
}

pub(crate) fn bundle(model: &Bundle, errors: &mut Errors) {
    if model.parts.is_empty() {
        errors.at(
            model.head.ident.span(),
            "a bundle without parts: give it at least one storage, pool or page table, `weights: Weights`",
        );
    }
    for part in &model.parts {
        for name in FIELD {
            if let Some(span) = part.attrs.span(name) {
                let message = format!(
                    "`{name}` says how a storage is laid out: put it in the `#[tier(..)]` struct; a part's size \
                                       comes from what it is declared with"
                );
                errors.at(span, message);
            }
        }
        if is_value(&part.ty) {
            let ty = text(&part.ty);
            let message = format!(
                "`{ty}` is an element, not a part: put it in a `#[tier(..)]` struct with a `#[shape(..)]`, and that \
                                   struct here"
            );
            errors.mark(&part.ty, message);
        }
    }
}

fn element(field: &Field, ty: &Type, errors: &mut Errors) {
    let spelling = text(ty);
    let Some(shape) = &field.attrs.shape else {
        if field.attrs.faulty {
            return;
        }
        let name = field.name();
        let message = format!(
            "`{name}` has no shape: `{spelling}` is an element, write `#[shape(rows, columns)]` with the numbers of the \
                               dims that it is made of"
        );
        return errors.mark(ty, message);
    };
    for dim in shape {
        if literal(dim) == Some(0) {
            errors.mark(dim, "a dimension is zero: such a field has no memory; leave it out with `#[when(..)]`");
        }
    }
    if let Some(span) = field.attrs.span("dims") {
        errors.at(span, "`dims` is for nested storages: the dimensions of an element are its shape");
    }
    let packed = is_packed(ty);
    match field.attrs.span("format") {
        None if packed && !field.attrs.faulty => errors.mark(
            ty,
            format!("`{spelling}` has a format that is known at run time: say which, `#[format(expression)]`"),
        ),
        Some(span) if !packed && is_value(ty) => {
            errors.at(span, format!("`{spelling}` has its own size: `format` is for `Packed<..>` fields"));
        }
        _ => {}
    }
    if let Some(align) = &field.attrs.align
        && let Some(bytes) = literal(align)
        && !(bytes.is_power_of_two() && bytes <= PAGE)
    {
        errors.mark(align, format!("an alignment is a power of two and at most {PAGE} bytes, not {bytes}"));
    }
}

fn nested(field: &Field, errors: &mut Errors) {
    for name in ["align", "format"] {
        if let Some(span) = field.attrs.span(name) {
            let message =
                format!("`{name}` belongs to the fields of the nested storage, or this field needs a `#[shape(..)]`");
            errors.at(span, message);
        }
    }
}

fn broken(field: &Field, ty: &Type, errors: &mut Errors) {
    let name = field.name();
    let spelling = text(ty);
    let message = match peel(ty) {
        Type::Array(array) if field.attrs.shape.is_some() => {
            let item = text(&array.elem);
            format!(
                "a shape says how many elements there are: write `{name}: {item}` with all dimensions in `#[shape(..)]`"
            )
        }
        Type::Array(array) => {
            let (item, len) = (text(&array.elem), text(&array.len));
            format!("`{item}` is an element, not a storage: write `#[shape({len})] {name}: {item}`")
        }
        ty if instead_of(ty).is_some() => {
            let instead = instead_of(ty).unwrap_or_default();
            format!("`{spelling}` is no element: device memory holds numbers of one size everywhere, like {instead}")
        }
        Type::Path(path) => {
            let last = path.path.segments.last();
            let inner = last.map(|last| inner(&last.arguments)).unwrap_or_default();
            match last.map(|last| last.ident.to_string()).as_deref() {
                Some("Option") => {
                    format!("what the configuration may leave out is written `#[when(condition)] {name}: {inner}`")
                }
                Some("Vec") => {
                    format!("an array of storages is written `{name}: [{inner}; count]`, with a count from the dims")
                }
                _ => format!("a storage owns its fields already: write `{name}: {inner}`"),
            }
        }
        Type::Reference(_) | Type::Ptr(_) => {
            format!("`{spelling}` is an address, and storage owns its memory: write the element and its `#[shape(..)]`")
        }
        Type::Slice(slice) => {
            let item = text(&slice.elem);
            format!(
                "the length is missing: `#[shape(length)] {name}: {item}` for elements, `[{item}; count]` for storages"
            )
        }
        _ => format!(
            "`{spelling}` is neither an element (with `#[shape(..)]`), nor a storage, nor an array of storages (`[Storage; count]`)"
        ),
    };
    errors.mark(ty, message);
}

fn inner(arguments: &syn::PathArguments) -> String {
    match arguments {
        syn::PathArguments::AngleBracketed(arguments) => text(&arguments.args),
        _ => "..".to_owned(),
    }
}

/// The value of an integer literal.
fn literal(expr: &Expr) -> Option<u64> {
    match expr {
        Expr::Lit(lit) => match &lit.lit {
            Lit::Int(int) => int.base10_parse().ok(),
            _ => None,
        },
        Expr::Group(group) => literal(&group.expr),
        Expr::Paren(paren) => literal(&paren.expr),
        _ => None,
    }
}

fn no_self(field: &Field, errors: &mut Errors) {
    struct Find(Option<Span>);
    impl Visit<'_> for Find {
        fn visit_expr_path(&mut self, path: &syn::ExprPath) {
            if path.path.is_ident("self") {
                self.0 = Some(path.span());
            }
        }
    }
    let attrs = &field.attrs;
    let mut exprs: Vec<&Expr> = attrs.shape.iter().flatten().collect();
    exprs.extend([&attrs.align, &attrs.format, &attrs.dims, &attrs.when].into_iter().flatten());
    if let Kind::Array(_, len) = &field.kind {
        exprs.push(len);
    }
    for expr in exprs {
        let mut find = Find(None);
        find.visit_expr(expr);
        if let Some(span) = find.0 {
            errors.at(span, "there is no `self` before the storage is carved: name a field of the dims, like `hidden`");
        }
    }
}
