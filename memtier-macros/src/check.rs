//! Whether a declaration makes sense as a whole: everything that one attribute alone cannot tell.

use proc_macro2::{Ident, Span};
use syn::{Expr, Lit, Type, TypeArray, spanned::Spanned, visit::Visit};

use crate::{
    attr::FIELD,
    bounds::{first_argument, instead_of, is_packed, is_value, is_wrapper, last_name},
    model::{Bundle, Field, Head, Kind, Storage, peel},
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
    packed(&model.head, errors);
    if model.fields.iter().all(|field| field.ident == "__mt_none") {
        errors.at(
            model.head.ident.span(),
            "a storage without fields: give it at least one, `#[shape(rows, columns)] query: f32`",
        );
    }
    for field in &model.fields {
        match &field.kind {
            Kind::Element(ty) => element(field, ty, errors),
            Kind::Nested(ty) | Kind::Array(ty, _) => {
                nested(field, errors);
                nested_type(model, ty, errors);
            }
            Kind::Broken(ty) => broken(field, ty, errors),
            Kind::Half => {}
        }
        expressions(field, errors);
    }
}

/// `#[repr(packed)]`: views borrow the fields.
fn packed(head: &Head, errors: &mut Errors) {
    if let Some(span) = head.packed {
        errors.at(
            span,
            "no `packed` here: this struct holds addresses, and views borrow them; how device memory is laid out, `#[shape(..)]` \
             and `#[align(..)]` say",
        );
    }
}

/// A nested storage that cannot be one whatever it is.
fn nested_type(model: &Storage, ty: &Type, errors: &mut Errors) {
    if is_just(ty, &model.head.ident) {
        errors.mark(
            ty,
            format!("`{}` would hold itself, and have no size: what repeats is an array of another storage", text(ty)),
        );
    }
    if let Some(param) = model.as_parameter(ty) {
        let (tier, dims) = (model.tier.ident(), model.dims.as_ref().map_or_else(|| "Dims".to_owned(), text));
        errors.mark(
            ty,
            format!(
                "`{param}` is a type parameter, and storages in it have a space of their own: name it, `space = Host`, and say what it \
                 is, `{param}: Storage<Tier = {tier}<Host>, Dims = {dims}>`"
            ),
        );
    }
}

/// Whether a type is this name and no path: what another module has by that name is another type.
fn is_just(ty: &Type, name: &Ident) -> bool {
    matches!(peel(ty), Type::Path(path) if path.qself.is_none() && path.path.segments.len() == 1 && last_name(ty).is_some_and(|last| *name == last))
}

/// The name of what memtier is taken to have by this name: alone, or at a path from `memtier`. An author's own type of such a name is at a path
/// of theirs, `self::Stream`, or has no argument.
fn of_memtier(ty: &Type) -> Option<String> {
    let Type::Path(path) = peel(ty) else { return None };
    let first = path.path.segments.first()?;
    let ours = path.path.segments.len() == 1 || first.ident == "memtier";
    last_name(ty).filter(|name| ours && (first_argument(ty).is_some() || name == "ScratchStack"))
}

pub(crate) fn bundle(model: &Bundle, errors: &mut Errors) {
    if model.parts.is_empty() {
        errors.at(
            model.head.ident.span(),
            "a bundle without parts: give it at least one storage, pool or page table, `weights: Weights`",
        );
    }
    packed(&model.head, errors);
    for part in &model.parts {
        if let Some(instead) = instead_of_part(&part.ident.to_string(), &part.ty).filter(|_| !is_value(&part.ty)) {
            errors.mark(&part.ty, instead);
        }
        for name in FIELD {
            if let Some(span) = part.attrs.span(name) {
                let message = format!(
                    "`{name}` says how a storage is laid out: put it in the `#[tier(..)]` struct; a part's size \
                                       comes from what it is declared with"
                );
                errors.at(span, message);
            }
        }
        if instead_of(&part.ty).is_some() {
            let ty = text(&part.ty);
            let message = format!("`{ty}` is a value of the host: keep it in a struct of yours, beside the engine");
            errors.mark(&part.ty, message);
        } else if is_value(&part.ty) {
            let ty = text(&part.ty);
            let message = format!(
                "`{ty}` is an element, not a part: put it in a `#[tier(..)]` struct with a `#[shape(..)]`, and that \
                                   struct here"
            );
            errors.mark(&part.ty, message);
        }
    }
}

/// Whether a field of a bundle is certainly no part: [`bundle`] says what to do with it, and nothing is made of it.
pub(crate) fn is_no_part(ty: &Type) -> bool {
    is_value(ty) || instead_of_part("", ty).is_some()
}

/// What is often taken for a part, and where it belongs.
fn instead_of_part(name: &str, ty: &Type) -> Option<String> {
    let spelling = text(ty);
    let instead = match peel(ty) {
        Type::Array(array) => {
            let count = match &array.len {
                Expr::Path(path) => path.path.get_ident().map(ToString::to_string),
                _ => None,
            };
            match count.filter(|count| count.starts_with(|first: char| first.is_lowercase())) {
                Some(count) => {
                    let item = text(&array.elem);
                    format!(
                        "a bundle has no dims, so `{count}` is no number here: a `Vec<{item}>` is declared with as many sizes as there \
                         are, an array has a constant length"
                    )
                }
                // What one of them is not, several are not.
                None if is_pool_of_values(&array.elem) => return instead_of_part(name, &array.elem),
                None => return None,
            }
        }
        Type::Tuple(_) => "parts have names: give each its own field".to_owned(),
        _ if bare(ty).is_some_and(is_value) => {
            let item = bare(ty).map(text).unwrap_or_default();
            format!(
                "`{spelling}` is host memory, which no plan has seen: put `{item}` in a `#[tier(..)]` struct with a `#[shape(..)]`, or \
                 keep it in a struct of yours, beside the engine"
            )
        }
        _ if is_wrapper(ty) && !last_name(ty).is_some_and(|name| name == "Vec" || name == "Option") => {
            let inner = first_argument(ty).map_or_else(|| "..".to_owned(), text);
            format!("a bundle owns its parts, and the engine the bundle: write `{name}: {inner}`")
        }
        _ if is_pool_of_values(bare(ty).unwrap_or(ty)) => {
            let pool = bare(ty).unwrap_or(ty);
            let (what, element) =
                (last_name(pool).unwrap_or_default(), first_argument(pool).map(text).unwrap_or_default());
            format!(
                "`{}` does not say what its blocks are: write `{what}<GlobalKv<{element}>>`, or `SwaKv`, `ResidualKv`, `RecurrentState`",
                text(pool)
            )
        }
        _ => match of_memtier(ty).as_deref() {
            Some("Stream") => format!(
                "a `{spelling}` is no part: declare it by itself, `engine.declare(StreamSpec {{ .. }})`, open it with \
                 `engine.open_stream(line)`, and keep it beside the engine"
            ),
            Some("Pinned") => format!(
                "a `{spelling}` is no part: declare it by itself, `engine.declare(PinnedSpec {{ .. }})`, take it with `engine.pin(line)`, \
                 and keep it beside the engine"
            ),
            Some("Ticket" | "Prefix" | "PrefixCache" | "PoolHandle" | "BlockRef") => {
                format!("a `{spelling}` belongs to requests: keep it in a struct of yours, beside the engine")
            }
            Some("ScratchStack" | "ScratchFrame") => {
                "scratch belongs to a stream: take it in a step, with `step.scratch.take(..)`".to_owned()
            }
            _ => return None,
        },
    };
    Some(instead)
}

/// `BlockPool<f16>`, `PageTable<f16>`: the kind is missing.
fn is_pool_of_values(ty: &Type) -> bool {
    let pool = of_memtier(ty).is_some_and(|name| name == "BlockPool" || name == "PageTable");
    pool && first_argument(ty).is_some_and(is_value)
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

/// A field that is neither an element, nor a storage, nor an array of storages: what was meant.
fn broken(field: &Field, ty: &Type, errors: &mut Errors) {
    let name = field.name();
    let spelling = text(ty);
    let message = match peel(ty) {
        Type::Array(_) | Type::Path(_) if bare(ty).is_some_and(is_value) => elements_in_a_container(field, ty),
        Type::Array(array) => array_of_no_storages(&name, array),
        ty if instead_of(ty).is_some() => {
            let instead = instead_of(ty).unwrap_or_default();
            format!("`{spelling}` is no element: device memory holds numbers of one size everywhere, like {instead}")
        }
        Type::Path(_) => container(&name, ty),
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

/// `[f32; 4]`, `Vec<f32>`.
fn elements_in_a_container(field: &Field, ty: &Type) -> String {
    let (name, item) = (field.name(), bare(ty).map(text).unwrap_or_default());
    match (&field.attrs.shape, peel(ty)) {
        (Some(_), Type::Array(_)) => {
            format!(
                "a shape says how many elements there are: write `{name}: {item}` with all dimensions in `#[shape(..)]`"
            )
        }
        (Some(_), _) => format!("a shape says how many elements there are: write `{name}: {item}`"),
        (None, Type::Array(array)) => {
            let len = text(&array.len);
            format!("`{item}` is an element, not a storage: write `#[shape({len})] {name}: {item}`")
        }
        (None, _) => {
            format!("`{item}` is an element: write `#[shape(length)] {name}: {item}`, with its length from the dims")
        }
    }
}

/// `[[Layer; 4]; 2]`, `[Option<Layer>; 4]`.
fn array_of_no_storages(name: &str, array: &TypeArray) -> String {
    match peel(&array.elem) {
        Type::Array(inner) => {
            let (item, counts) = (text(&inner.elem), (text(&array.len), text(&inner.len)));
            format!("an array of storages has one count: write `{name}: [{item}; ({}) * ({})]`", counts.0, counts.1)
        }
        elem => {
            let (item, len) = (text(bare(elem).unwrap_or(elem)), text(&array.len));
            format!(
                "items are storages, and all of them there: write `{name}: [{item}; {len}]`, and `#[when(condition)]` at what \
                 the configuration may leave out"
            )
        }
    }
}

/// `Option<Layer>`, `Vec<Layer>`, `Box<Layer>`.
fn container(name: &str, ty: &Type) -> String {
    let inner = first_argument(ty).map(text).unwrap_or_else(|| "..".to_owned());
    let item = bare(ty).map(text).unwrap_or_default();
    match last_name(ty).as_deref() {
        Some("Option") if first_argument(ty).and_then(last_name).is_some_and(|name| name == "Vec") => {
            format!("what the configuration may leave out is written `#[when(condition)] {name}: [{item}; count]`")
        }
        Some("Option") => {
            format!("what the configuration may leave out is written `#[when(condition)] {name}: {inner}`")
        }
        Some("Vec") => format!("an array of storages is written `{name}: [{item}; count]`, with a count from the dims"),
        _ => format!("a storage owns its fields already: write `{name}: {inner}`"),
    }
}

/// What is inside of arrays, slices and containers.
fn bare(ty: &Type) -> Option<&Type> {
    match peel(ty) {
        Type::Array(array) => bare(&array.elem).or(Some(&array.elem)),
        Type::Slice(slice) => bare(&slice.elem).or(Some(&slice.elem)),
        inner if is_wrapper(inner) => {
            let first = first_argument(inner)?;
            bare(first).or(Some(first))
        }
        _ => None,
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

/// What an expression of a field must not do: there is no `self` yet, and it has to have a value.
fn expressions(field: &Field, errors: &mut Errors) {
    let attrs = &field.attrs;
    let mut exprs: Vec<&Expr> = attrs.shape.iter().flatten().collect();
    exprs.extend([&attrs.align, &attrs.format, &attrs.dims, &attrs.when].into_iter().flatten());
    if let Kind::Array(_, len) = &field.kind {
        exprs.push(len);
    }
    for expr in exprs {
        let mut find = FindSelf(None);
        find.visit_expr(expr);
        if let Some(span) = find.0 {
            errors.at(span, "there is no `self` before the storage is carved: name a field of the dims, like `hidden`");
        }
        let mut find = WaysOut(Vec::new());
        find.visit_expr(expr);
        for (span, word) in find.0 {
            let message = format!(
                "`{word}` leaves an expression that has to have a value: decide it in a method of the dims, and name the method, \
                 like `hidden()`"
            );
            errors.at(span, message);
        }
    }
}

struct FindSelf(Option<Span>);

impl Visit<'_> for FindSelf {
    fn visit_expr_path(&mut self, path: &syn::ExprPath) {
        if path.path.is_ident("self") {
            self.0 = Some(path.span());
        }
    }
}

/// `return`, `?` and `.await`, which would leave the function that lays the fields out. Those of a closure leave the closure.
struct WaysOut(Vec<(Span, &'static str)>);

impl Visit<'_> for WaysOut {
    fn visit_expr_return(&mut self, expr: &syn::ExprReturn) {
        self.0.push((expr.return_token.span, "return"));
    }

    fn visit_expr_try(&mut self, expr: &syn::ExprTry) {
        self.0.push((expr.question_token.span, "?"));
        self.visit_expr(&expr.expr);
    }

    fn visit_expr_await(&mut self, expr: &syn::ExprAwait) {
        self.0.push((expr.await_token.span, ".await"));
        self.visit_expr(&expr.base);
    }

    fn visit_expr_closure(&mut self, _: &syn::ExprClosure) {}

    fn visit_expr_async(&mut self, _: &syn::ExprAsync) {}

    fn visit_item(&mut self, _: &syn::Item) {}
}
