//! Expressions over the dims: `heads * head_dim` in an attribute becomes checked arithmetic over fields of a value.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::{
    BinOp, Expr, ExprBinary, ExprMethodCall, ExprParen, FieldValue, Pat, Path, UnOp,
    ext::IdentExt,
    spanned::Spanned,
    token,
    visit::{self, Visit},
    visit_mut::{self, VisitMut},
};

/// Methods of the integers that can overflow or divide by zero, and have a checked form in `__private::Math`.
const CHECKED_METHODS: [&str; 4] = ["pow", "next_multiple_of", "next_power_of_two", "div_ceil"];

/// An expression, rewritten.
pub(crate) struct Rewritten {
    pub(crate) tokens: TokenStream,
    /// Whether it uses `__mt_math`.
    pub(crate) checked: bool,
    /// Whether it is made of literals and constants that can be named beside the struct.
    pub(crate) constant: bool,
    /// Whether a macro of somebody else stands in it, with whatever that writes.
    pub(crate) foreign: bool,
}

impl ToTokens for Rewritten {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        self.tokens.to_tokens(tokens);
    }
}

/// What the names in an expression mean.
pub(crate) struct Scope<'s> {
    /// Const parameters of the struct: they stay.
    pub(crate) consts: &'s [Ident],
    /// Whether `index` is the number of the item.
    pub(crate) indexed: bool,
}

/// The local variables of generated code.
pub(crate) fn local(name: &str, span: Span) -> Ident {
    Ident::new(name, Span::mixed_site().located_at(span))
}

impl Scope<'_> {
    pub(crate) fn rewrite(&self, expr: &Expr) -> Rewritten {
        let expr = &grouped(expr);
        let mut kind = Constant { consts: self.consts, is: true, generic: false };
        kind.visit_expr(expr);
        if kind.is {
            let simple = matches!(bare(expr), Expr::Lit(_) | Expr::Path(_));
            let tokens = match simple {
                true => expr.to_token_stream(),
                // Not `expr` alone: rustc would only warn of some overflows.
                false => quote_spanned!(expr.span()=> const { #expr }),
            };
            return Rewritten { tokens, checked: false, constant: !kind.generic, foreign: false };
        }
        let mut bound = Bound(Vec::new());
        bound.visit_expr(expr);
        let mut foreign = Foreign(false);
        foreign.visit_expr(expr);
        let mut rewriter = Rewriter { scope: self, bound: bound.0, closures: 0, checked: false };
        let mut expr = expr.clone();
        rewriter.visit_expr_mut(&mut expr);
        let (tokens, checked, foreign) = (argument(&expr).to_token_stream(), rewriter.checked, foreign.0);
        Rewritten { tokens, checked, constant: false, foreign }
    }
}

/// The same with parentheses in place of the invisible groups around a `$n:expr`: the compiler does not see those in what a
/// procedural macro puts out, and `$n * 2` would lose its precedence.
pub(crate) fn grouped(expr: &Expr) -> Expr {
    struct Visible;
    impl VisitMut for Visible {
        fn visit_expr_mut(&mut self, expr: &mut Expr) {
            visit_mut::visit_expr_mut(self, expr);
            if let Expr::Group(group) = expr {
                let inner = (*group.expr).clone();
                *expr = match inner {
                    Expr::Lit(_)
                    | Expr::Path(_)
                    | Expr::Paren(_)
                    | Expr::Call(_)
                    | Expr::MethodCall(_)
                    | Expr::Field(_) => inner,
                    inner => {
                        let (attrs, paren_token) =
                            (Vec::new(), token::Paren(Span::mixed_site().located_at(inner.span())));
                        Expr::Paren(ExprParen { attrs, paren_token, expr: Box::new(inner) })
                    }
                };
            }
        }
    }
    let mut expr = expr.clone();
    Visible.visit_expr_mut(&mut expr);
    expr
}

/// The expression inside parentheses and invisible groups.
fn bare(expr: &Expr) -> &Expr {
    match expr {
        Expr::Group(group) => bare(&group.expr),
        Expr::Paren(paren) => bare(&paren.expr),
        expr => expr,
    }
}

/// An argument needs no parentheses, and rustc would say so.
fn argument(expr: &Expr) -> &Expr {
    match expr {
        Expr::Paren(paren) => argument(&paren.expr),
        expr => expr,
    }
}

/// A single name that starts in lower case.
fn lower(path: &Path) -> Option<&Ident> {
    let ident = path.get_ident()?;
    let name = ident.unraw().to_string();
    let keyword = ["self", "crate", "super"].contains(&name.as_str());
    (!keyword && name.starts_with(|first: char| first.is_lowercase() || first == '_')).then_some(ident)
}

/// Whether an expression is made of literals, constants and operators only.
struct Constant<'c> {
    consts: &'c [Ident],
    is: bool,
    /// It mentions a parameter of the struct.
    generic: bool,
}

impl Visit<'_> for Constant<'_> {
    fn visit_expr(&mut self, expr: &Expr) {
        match expr {
            Expr::Lit(_) | Expr::Binary(_) | Expr::Paren(_) | Expr::Group(_) | Expr::Cast(_) => {}
            Expr::Unary(unary) if !matches!(unary.op, UnOp::Deref(_)) => {}
            Expr::Path(path) if path.qself.is_none() => {
                let first = path.path.segments.first().map(|first| &first.ident);
                self.generic |= first.is_some_and(|first| self.consts.contains(first) || first == "Self");
                let is_const = path.path.get_ident().is_some_and(|ident| self.consts.contains(ident));
                self.is &= is_const || lower(&path.path).is_none();
                return;
            }
            _ => self.is = false,
        }
        visit::visit_expr(self, expr);
    }

    fn visit_type(&mut self, _: &syn::Type) {}
}

/// Whether tokens stand in the expression that nobody here can read: a macro's, or syntax newer than the parser.
struct Foreign(bool);

impl Visit<'_> for Foreign {
    fn visit_macro(&mut self, _: &syn::Macro) {
        self.0 = true;
    }

    fn visit_expr(&mut self, expr: &Expr) {
        self.0 |= matches!(expr, Expr::Verbatim(_));
        visit::visit_expr(self, expr);
    }
}

/// Every name that a pattern in the expression binds, and every function that is written in it.
struct Bound(Vec<Ident>);

impl Visit<'_> for Bound {
    fn visit_item(&mut self, item: &syn::Item) {
        if let syn::Item::Fn(function) = item {
            self.0.push(function.sig.ident.clone());
        }
    }

    fn visit_pat(&mut self, pat: &Pat) {
        if let Pat::Ident(ident) = pat {
            self.0.push(ident.ident.clone());
        }
        visit::visit_pat(self, pat);
    }
}

struct Rewriter<'r> {
    scope: &'r Scope<'r>,
    bound: Vec<Ident>,
    /// How many closures we are in.
    closures: usize,
    checked: bool,
}

impl Rewriter<'_> {
    /// What a lower-case name stands for.
    fn name(&self, ident: &Ident) -> Option<TokenStream> {
        if self.bound.contains(ident) || self.scope.consts.contains(ident) {
            return None;
        }
        let dims = local("__mt_dims", ident.span());
        Some(match ident.to_string().as_str() {
            "dims" => quote!(#dims),
            "index" if self.scope.indexed => local("__mt_index", ident.span()).to_token_stream(),
            _ => quote!(#dims.#ident),
        })
    }

    fn binary(&mut self, binary: &ExprBinary) -> Option<Expr> {
        let operation = match binary.op {
            BinOp::Add(_) => "add",
            BinOp::Sub(_) => "sub",
            BinOp::Mul(_) => "mul",
            BinOp::Div(_) => "div",
            BinOp::Rem(_) => "rem",
            BinOp::Shl(_) => "shl",
            BinOp::Shr(_) => "shr",
            _ => return None,
        };
        Some(self.math(operation, &binary.left, std::iter::once(&*binary.right), binary.op.span()))
    }

    fn method(&mut self, call: &ExprMethodCall) -> Option<Expr> {
        let name = call.method.to_string();
        let checked = CHECKED_METHODS.contains(&name.as_str()) && call.turbofish.is_none();
        checked.then(|| self.math(&name, &call.receiver, call.args.iter(), call.method.span()))
    }

    fn math<'e>(&mut self, name: &str, on: &Expr, args: impl Iterator<Item = &'e Expr>, span: Span) -> Expr {
        self.checked = true;
        let (math, name) = (local("__mt_math", span), Ident::new(name, span));
        let (on, args) = (argument(on), args.map(argument));
        Expr::Verbatim(quote_spanned!(span=> #math.#name(#on #(, #args)*)))
    }
}

impl VisitMut for Rewriter<'_> {
    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        // What the compiler computes has no dims to look at.
        if matches!(expr, Expr::Const(_)) {
            return;
        }
        // `function(arguments)`: a method of the dims.
        if let Expr::Call(call) = expr
            && let Expr::Path(path) = bare(&call.func)
            && let Some(name) = path.qself.is_none().then(|| lower(&path.path)).flatten()
            && !self.bound.contains(name)
        {
            let (dims, name) = (local("__mt_dims", name.span()), name.clone());
            call.args.iter_mut().for_each(|arg| self.visit_expr_mut(arg));
            let args = &call.args;
            *expr = Expr::Verbatim(quote!(#dims.#name(#args)));
            return;
        }
        let closure = usize::from(matches!(expr, Expr::Closure(_)));
        self.closures += closure;
        visit_mut::visit_expr_mut(self, expr);
        self.closures -= closure;
        let in_closure = self.closures > 0;
        let new = match expr {
            Expr::Path(path) if path.qself.is_none() => {
                lower(&path.path).and_then(|name| self.name(name)).map(Expr::Verbatim)
            }
            Expr::Binary(binary) if !in_closure => self.binary(&binary.clone()),
            Expr::MethodCall(call) if !in_closure => self.method(&call.clone()),
            // What stands in it needs no parentheses any more.
            Expr::Paren(paren) if matches!(*paren.expr, Expr::Verbatim(_)) => Some((*paren.expr).clone()),
            _ => None,
        };
        if let Some(new) = new {
            *expr = new;
        }
    }

    fn visit_field_value_mut(&mut self, value: &mut FieldValue) {
        self.visit_expr_mut(&mut value.expr);
        // `Struct { hidden }` has become `Struct { hidden: dims.hidden }`.
        if matches!(value.expr, Expr::Verbatim(_)) {
            value.colon_token.get_or_insert_default();
        }
    }

    fn visit_item_mut(&mut self, _: &mut syn::Item) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(expr: &str) -> Rewritten {
        let consts = [Ident::new("width", Span::call_site())];
        Scope { consts: &consts, indexed: true }.rewrite(&syn::parse_str(expr).unwrap())
    }

    fn is(expr: &str, expected: &str) {
        let expected: TokenStream = expected.parse().unwrap();
        assert_eq!(rewritten(expr).tokens.to_string(), expected.to_string(), "{expr}");
    }

    #[test]
    fn lower_case_names_are_fields_and_methods_of_the_dims() {
        is("hidden", "__mt_dims.hidden");
        is("rope.dim", "__mt_dims.rope.dim");
        is("r#type", "__mt_dims.r#type");
        is("layer(index, 1)", "__mt_dims.layer(__mt_index, 1)");
        is("dims.layer(0)", "__mt_dims.layer(0)");
        is("heads.max(kv_heads)", "__mt_dims.heads.max(__mt_dims.kv_heads)");
        is("Rope { dim, base: 2 }", "Rope { dim: __mt_dims.dim, base: 2 }");
    }

    #[test]
    fn everything_else_stays() {
        for same in ["ROWS", "usize::MAX", "crate::rows()", "self::rows(1)", "4", "width", "Weight::Q8", "Bits(4)"] {
            is(same, same);
        }
        is(
            "widths.iter().map(|heads| heads * width).sum()",
            "__mt_dims.widths.iter().map(|heads| heads * width).sum()",
        );
        is("{ let hidden = 3; hidden }", "{ let hidden = 3; hidden }");
        is("const { 4 * ROWS }", "const { 4 * ROWS }");
        is("{ fn of(n: usize) -> usize { n * 2 } of(4) }", "{ fn of(n: usize) -> usize { n * 2 } of(4) }");
    }

    #[test]
    fn arithmetic_is_checked_outside_of_closures() {
        is("a * b + 1", "__mt_math.add(__mt_math.mul(__mt_dims.a, __mt_dims.b), 1)");
        is("(a + b) * (c)", "__mt_math.mul(__mt_math.add(__mt_dims.a, __mt_dims.b), __mt_dims.c)");
        is("a.pow(2) << b", "__mt_math.shl(__mt_math.pow(__mt_dims.a, 2), __mt_dims.b)");
        is("a == b && c > 1", "__mt_dims.a == __mt_dims.b && __mt_dims.c > 1");
        assert!(rewritten("a - 1").checked && !rewritten("a").checked);
    }

    #[test]
    fn constants_are_evaluated_by_the_compiler() {
        is("ROWS * 2", "const { ROWS * 2 }");
        is("width * 2", "const { width * 2 }");
        assert!(rewritten("usize::MAX * 2").constant && !rewritten("width * 2").constant);
        assert!(!rewritten("rows(2)").constant && !rewritten("crate::rows()").constant);
    }
}
