//! What the attributes can say, and what to answer when they say something else.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{
    Attribute, Error, Expr, LitStr, Path, Result, Token, Type,
    ext::IdentExt,
    parse::{Parse, ParseStream, Parser},
    punctuated::Punctuated,
    token,
};

use crate::report::{Errors, closest, did_you_mean, list, text};

/// The tiers that a struct of device arrays can be in.
pub(crate) const TIERS: [&str; 2] = ["ModelResident", "EnginePersistent"];
/// What a field of a storage can say.
pub(crate) const FIELD: [&str; 5] = ["shape", "align", "format", "dims", "when"];
const TIER_OPTIONS: [&str; 3] = ["dims", "space", "crate"];
const BUNDLE_OPTIONS: [&str; 2] = ["space", "crate"];

/// The helper attributes between the two stages.
pub(crate) const HELPERS: [&str; 4] = ["__mt_tier", "__mt_bundle", "__mt_field", "__mt_attr"];

/// How long a storage lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tier {
    ModelResident,
    EnginePersistent,
}

impl Tier {
    pub(crate) fn ident(self) -> Ident {
        let name = match self {
            Tier::ModelResident => TIERS[0],
            Tier::EnginePersistent => TIERS[1],
        };
        Ident::new(name, Span::call_site())
    }
}

/// `#[tier(ModelResident, dims = Dims, space = Cuda, crate = path)]`
#[derive(Default)]
pub(crate) struct TierArgs {
    pub(crate) tier: Option<Tier>,
    pub(crate) dims: Option<Type>,
    /// Whether dims were given in a form that was reported.
    pub(crate) dims_were_tried: bool,
    pub(crate) space: Option<Type>,
    pub(crate) krate: Option<Path>,
}

/// `#[graph_captured(space = S, crate = path)]`
#[derive(Default)]
pub(crate) struct BundleArgs {
    pub(crate) space: Option<Type>,
    pub(crate) krate: Option<Path>,
}

impl TierArgs {
    pub(crate) fn read(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut args = TierArgs::default();
        let mut tier_was_tried = false;
        let written = tokens.to_string();
        arguments(tokens, errors, |name, input| match name {
            None => {
                tier_was_tried = true;
                let span = input.span();
                set(&mut args.tier, tier(input)?, "the tier", span)
            }
            Some(name) => match name.to_string().as_str() {
                "dims" => {
                    args.dims_were_tried = true;
                    set(&mut args.dims, dims(value(input, &name, "a type", "Dims")?)?, "`dims`", name.span())
                }
                "space" => set(&mut args.space, value(input, &name, "a type", "Cuda")?, "`space`", name.span()),
                "crate" => krate(&mut args.krate, input, &name),
                "tier" => {
                    tier_was_tried = true;
                    let message = "the tier stands alone, in front: `#[tier(ModelResident, dims = Dims)]`";
                    Err(Error::new(name.span(), message))
                }
                _ => Err(unknown_option(&name, "tier", &TIER_OPTIONS)),
            },
        });
        // `dims(Dims)`, and the like.
        args.dims_were_tried |= written.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "dims");
        if args.tier.is_none() && !tier_was_tried {
            args.dims_were_tried = true;
            errors.at(
                Span::call_site(),
                "the tier is missing: write `#[tier(ModelResident, dims = Dims)]` for what goes with its model, \
                 `#[tier(EnginePersistent, dims = Dims)]` for what survives a model swap",
            );
        }
        args
    }
}

impl BundleArgs {
    pub(crate) fn read(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut args = BundleArgs::default();
        arguments(tokens, errors, |name, input| match name {
            None => {
                let message = "`#[graph_captured]` takes no tier: each part has its own";
                Err(Error::new_spanned(input.parse::<TokenTree>()?, message))
            }
            Some(name) => match name.to_string().as_str() {
                "space" => set(&mut args.space, value(input, &name, "a type", "S")?, "`space`", name.span()),
                "crate" => krate(&mut args.krate, input, &name),
                _ => Err(unknown_option(&name, "graph_captured", &BUNDLE_OPTIONS)),
            },
        });
        args
    }
}

/// Reads comma-separated arguments, `name = value` or something else, and goes on behind one that is wrong.
fn arguments(
    tokens: TokenStream,
    errors: &mut Errors,
    mut read: impl FnMut(Option<Ident>, ParseStream<'_>) -> Result<()>,
) {
    let parser = |input: ParseStream<'_>| {
        while !input.is_empty() {
            let one = argument(input, &mut read).and_then(|()| match input.is_empty() || input.peek(Token![,]) {
                true => Ok(()),
                false => Err(input.error("expected `,`")),
            });
            if let Err(error) = one {
                errors.push(error);
                skip_to_comma(input)?;
            }
            input.parse::<Option<Token![,]>>()?;
        }
        Ok(())
    };
    // The parser above reports instead of failing.
    let _ = parser.parse2(tokens);
}

fn argument(input: ParseStream<'_>, read: &mut impl FnMut(Option<Ident>, ParseStream<'_>) -> Result<()>) -> Result<()> {
    if !input.peek(Ident::peek_any) {
        return read(None, input);
    }
    if input.peek2(Token![:]) && !input.peek2(Token![::]) {
        let name = input.call(Ident::parse_any)?;
        return Err(Error::new(name.span(), format!("an option takes its value with `=`: write `{name} = ..`")));
    }
    if input.peek2(Token![=]) {
        let name = input.call(Ident::parse_any)?;
        input.parse::<Token![=]>()?;
        return read(Some(name), input);
    }
    let known = input.fork().call(Ident::parse_any)?;
    let is_option = TIER_OPTIONS.contains(&known.to_string().as_str());
    if is_option && (input.peek2(token::Paren) || input.peek2(Token![,])) {
        let message = format!("`{known}` takes a value: write `{known} = ..`");
        return Err(Error::new(known.span(), message));
    }
    read(None, input)
}

fn skip_to_comma(input: ParseStream<'_>) -> Result<()> {
    while !input.is_empty() && !input.peek(Token![,]) {
        input.parse::<TokenTree>()?;
    }
    Ok(())
}

fn set<T>(slot: &mut Option<T>, value: T, what: &str, span: Span) -> Result<()> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::new(span, format!("{what} is given twice"))),
    }
}

/// The value of an option; a string in its place is named as the wrong form.
fn value<T: Parse>(input: ParseStream<'_>, name: &Ident, kind: &str, example: &str) -> Result<T> {
    let at = name.span();
    if input.peek(LitStr) {
        let text: LitStr = input.parse()?;
        let meant = if text.parse::<T>().is_ok() { text.value() } else { example.to_owned() };
        let message = format!("`{name}` takes {kind}, not a string: write `{name} = {meant}`");
        return Err(Error::new(text.span(), message));
    }
    if input.is_empty() || input.peek(Token![,]) {
        return Err(Error::new(at, format!("`{name}` takes {kind}: write `{name} = {example}`")));
    }
    input.parse()
}

/// Where memtier is. A string in its place is reported, and believed, too: the second stage, which reports it, is found there.
fn krate(slot: &mut Option<Path>, input: ParseStream<'_>, name: &Ident) -> Result<()> {
    if let Ok(text) = input.fork().parse::<LitStr>()
        && let Ok(path) = text.parse::<Path>()
    {
        slot.get_or_insert(path);
    }
    set(slot, value(input, name, "a path", "mt")?, "`crate`", name.span())
}

/// Dims that are there when the storage is declared, and lend nothing.
fn dims(ty: Type) -> Result<Type> {
    match &ty {
        Type::Reference(reference) if reference.lifetime.is_none() => {
            let named = text(&reference.elem);
            Err(Error::new_spanned(
                &ty,
                format!("dims are owned by what is declared with them: write `dims = {named}`"),
            ))
        }
        _ => Ok(ty),
    }
}

fn unknown_option(name: &Ident, of: &str, known: &[&str]) -> Error {
    let word = match name.to_string() {
        word if ["device", "memory", "backend"].contains(&word.as_str()) => "space".to_owned(),
        word => word,
    };
    let guess = did_you_mean(&word, known);
    Error::new(name.span(), format!("`{of}` has no option `{name}`{guess} (there are {})", list(known)))
}

fn tier(input: ParseStream<'_>) -> Result<Tier> {
    if input.peek(LitStr) {
        let text: LitStr = input.parse()?;
        let message = format!("the tier is a name, not a string: write `{}`", text.value());
        return Err(Error::new(text.span(), message));
    }
    let path: Path = input.parse()?;
    let Some(last) = path.segments.last() else { return Err(Error::new_spanned(path, "expected a tier")) };
    let name = last.ident.to_string();
    let instead = match name.as_str() {
        "ModelResident" | "EnginePersistent" if !last.arguments.is_none() => {
            format!("the space is an option: write `{name}, space = ..`")
        }
        "ModelResident" => return Ok(Tier::ModelResident),
        "EnginePersistent" => return Ok(Tier::EnginePersistent),
        "Pooled" => "pooled memory is no struct of arrays: make a `BlockPool<..>` a part of the bundle".to_owned(),
        "ForwardScratch" => {
            "scratch is taken in a step, with `step.scratch.take(..)`, and declared with its stream".to_owned()
        }
        "HostStaging" => "staging is taken while loading, with `load.staging.take(..)`".to_owned(),
        "HostPinned" => "pinned memory is opened while planning, with `engine.pin(..)`".to_owned(),
        _ => no_tier(&name),
    };
    Err(Error::new_spanned(path, instead))
}

/// What to say of a name that is no tier, but says what was meant.
fn no_tier(name: &str) -> String {
    const MEANT: [(&[&str], &str); 5] = [
        (&["model", "resident", "weight"], TIERS[0]),
        (&["engine", "persist", "workspace", "static"], TIERS[1]),
        (&["scratch", "activation", "temp"], "`step.scratch.take(..)`, declared with its stream"),
        (&["kv", "cache", "pool", "block", "request"], "a `BlockPool<..>` as a part of the bundle"),
        (&["stag", "upload", "load"], "`load.staging.take(..)`"),
    ];
    let word = name.to_lowercase();
    let meant = MEANT.iter().find(|(words, _)| words.iter().any(|part| word.contains(part))).map(|(_, meant)| *meant);
    let guess = match (closest(name, &TIERS), meant) {
        (Some(tier), _) => format!("; did you mean `{tier}`?"),
        (None, Some(tier)) if TIERS.contains(&tier) => format!("; did you mean `{tier}`?"),
        (None, Some(instead)) => format!("; that is {instead}"),
        (None, None) => String::new(),
    };
    format!(
        "no tier is called `{name}`{guess} (there are `ModelResident`, for what goes with its model, and `EnginePersistent`, for what \
         every step writes and a model swap leaves)"
    )
}

/// What the attributes of one field of a storage say.
#[derive(Default)]
pub(crate) struct FieldAttrs {
    pub(crate) shape: Option<Vec<Expr>>,
    pub(crate) align: Option<Expr>,
    pub(crate) format: Option<Expr>,
    pub(crate) dims: Option<Expr>,
    pub(crate) when: Option<Expr>,
    /// Whether one of them was reported: then what is missing is not.
    pub(crate) faulty: bool,
    /// Where each was written, in the order of [`FIELD`].
    spans: [Option<Span>; 5],
}

impl FieldAttrs {
    /// From the `#[__mt_attr(..)]` that the first stage wrapped them in.
    pub(crate) fn read(attrs: &[Attribute], errors: &mut Errors) -> Self {
        let mut found = FieldAttrs::default();
        for attr in attrs.iter().filter(|attr| attr.path().is_ident("__mt_attr")) {
            let mut read = |input: ParseStream<'_>| {
                if let Err(error) = found.attribute(input, errors) {
                    found.faulty = true;
                    errors.push(error);
                }
                input.parse::<TokenStream>()
            };
            let _ = attr.parse_args_with(&mut read);
        }
        found
    }

    /// Where one of them was written.
    pub(crate) fn span(&self, name: &str) -> Option<Span> {
        FIELD.iter().position(|known| *known == name).and_then(|index| self.spans[index])
    }

    fn attribute(&mut self, input: ParseStream<'_>, errors: &mut Errors) -> Result<()> {
        let path: Path = input.call(Path::parse_mod_style)?;
        let name = path.get_ident().map(ToString::to_string).unwrap_or_default();
        let Some(known) = FIELD.into_iter().find(|known| *known == name) else {
            let spelling = path.to_token_stream();
            let message = format!("no attribute of a field is called `{spelling}`{}", did_you_mean(&name, &FIELD));
            return Err(Error::new_spanned(&path, message));
        };
        if !input.peek(token::Paren) {
            input.parse::<TokenStream>()?;
            return Err(Error::new_spanned(&path, format!("`{known}` is written {}", form(known))));
        }
        let content;
        syn::parenthesized!(content in input);
        if known == "shape" {
            return self.shape(&content, &path, errors);
        }
        let expr = expression(&content, known, &path)?;
        self.set(known, expr, path.segments[0].ident.span())
    }

    fn shape(&mut self, content: ParseStream<'_>, path: &Path, errors: &mut Errors) -> Result<()> {
        let (mut dims, mut sound) = (Vec::new(), true);
        for argument in Punctuated::<Expr, Token![,]>::parse_terminated(content)? {
            let one = match argument {
                Expr::Assign(assign) => self.option(*assign.left, *assign.right),
                Expr::Call(call) if is_option_call(&call) => Err(Error::new_spanned(
                    &call,
                    format!("options of `shape` are written `{} = ..`", call.func.to_token_stream()),
                )),
                Expr::Lit(text) if matches!(text.lit, syn::Lit::Str(_)) => {
                    Err(Error::new_spanned(text, "a dimension is an expression, not a string"))
                }
                Expr::Lit(other) if !matches!(other.lit, syn::Lit::Int(_)) => {
                    Err(Error::new_spanned(other, "a dimension is a whole number of elements"))
                }
                Expr::Tuple(syn::ExprTuple { elems, .. }) | Expr::Array(syn::ExprArray { elems, .. }) => {
                    let message = format!("dimensions stand side by side: write `#[shape({})]`", text(&elems));
                    Err(Error::new_spanned(elems, message))
                }
                dim => {
                    dims.push(dim);
                    Ok(())
                }
            };
            if let Err(error) = one {
                sound = false;
                errors.push(error);
            }
        }
        let span = path.segments[0].ident.span();
        if dims.is_empty() && sound {
            errors.at(span, "a shape has at least one dimension: `#[shape(rows, columns)]`");
        }
        if self.shape.replace(dims).is_some() {
            return Err(Error::new(span, "the shape is given twice"));
        }
        self.spans[0] = Some(span);
        Ok(())
    }

    /// `align = 256` or `format = up_format` behind the dimensions of a shape.
    fn option(&mut self, name: Expr, value: Expr) -> Result<()> {
        let ident = match &name {
            Expr::Path(path) => path.path.get_ident().cloned(),
            _ => None,
        };
        let word = ident.as_ref().map(ToString::to_string).unwrap_or_default();
        match (word.as_str(), ident) {
            (known @ ("align" | "format"), Some(ident)) => {
                self.set(if known == "align" { "align" } else { "format" }, value, ident.span())
            }
            _ => {
                let guess = did_you_mean(&word, &["align", "format"]);
                let message = format!("`shape` has no option `{}`{guess}", name.to_token_stream());
                Err(Error::new_spanned(&name, format!("{message} (there are `align` and `format`)")))
            }
        }
    }

    fn set(&mut self, known: &'static str, value: Expr, span: Span) -> Result<()> {
        if let Expr::Lit(text) = &value
            && let syn::Lit::Str(text) = &text.lit
        {
            let message = format!("`{known}` takes an expression, not a string: write {}", form(known));
            return Err(Error::new(text.span(), message));
        }
        let slot = match known {
            "align" => &mut self.align,
            "format" => &mut self.format,
            "dims" => &mut self.dims,
            _ => &mut self.when,
        };
        set(slot, value, &format!("`{known}`"), span)?;
        let index = FIELD.iter().position(|name| *name == known).unwrap_or_default();
        self.spans[index] = Some(span);
        Ok(())
    }
}

fn is_option_call(call: &syn::ExprCall) -> bool {
    matches!(&*call.func, Expr::Path(path) if path.path.is_ident("align") || path.path.is_ident("format"))
}

fn expression(content: ParseStream<'_>, name: &str, path: &Path) -> Result<Expr> {
    if content.is_empty() {
        return Err(Error::new_spanned(path, format!("`{name}` is empty: write {}", form(name))));
    }
    let expr = content.parse()?;
    if content.is_empty() { Ok(expr) } else { Err(content.error(format!("`{name}` takes one expression"))) }
}

/// How an attribute of a field is written.
pub(crate) fn form(name: &str) -> &'static str {
    match name {
        "shape" => "`#[shape(rows, columns)]`",
        "align" => "`#[align(256)]` (or `#[shape(.., align = 256)]`)",
        "format" => "`#[format(expression)]` (or `#[shape(.., format = expression)]`)",
        "dims" => "`#[dims(expression)]`",
        _ => "`#[when(condition)]`",
    }
}
