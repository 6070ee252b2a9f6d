//! What `#[kernel(..)]` says.

use proc_macro2::{Ident, Span, TokenStream};
use syn::{
    Error, Expr, LitInt, LitStr, Path, Result, Token,
    ext::IdentExt,
    parse::{ParseStream, Parser},
    punctuated::Punctuated,
};

use crate::report::{Errors, did_you_mean, list};

const OPTIONS: [&str; 3] = ["threads", "unsafe", "crate"];
const EXAMPLE: &str = "`#[kernel(\"kernels/vector.cu\", \"scale_f32\")]`";

/// `#[kernel("file.cu", "entry", threads = 256, unsafe(requires(condition)), crate = path)]`
#[derive(Default)]
pub(super) struct Args {
    pub(super) file: Option<LitStr>,
    pub(super) entry: Option<LitStr>,
    pub(super) threads: Option<(u32, Span)>,
    /// Whether threads were given in a form that was reported.
    pub(super) threads_were_tried: bool,
    pub(super) vouched: Option<Vouched>,
    pub(super) krate: Option<Path>,
}

/// `unsafe(requires(conditions))`: the author's word that launches are sound when the conditions hold.
pub(super) struct Vouched {
    pub(super) keyword: Token![unsafe],
    pub(super) conditions: Vec<Expr>,
}

impl Args {
    pub(super) fn read(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut args = Args::default();
        let parser = |input: ParseStream<'_>| {
            while !input.is_empty() {
                if let Err(error) = args.argument(input) {
                    errors.push(error);
                    // On to the next one.
                    while !input.is_empty() && !input.peek(Token![,]) {
                        input.parse::<proc_macro2::TokenTree>()?;
                    }
                }
                if !input.is_empty() {
                    input.parse::<Token![,]>()?;
                }
            }
            Ok(())
        };
        if let Err(error) = parser.parse2(tokens) {
            errors.push(error);
        }
        if let (Some(file), Some(entry)) = (&args.file, &args.entry)
            && entry.value().ends_with(".cu")
            && !file.value().ends_with(".cu")
        {
            let message =
                format!("the source stands first: write `#[kernel({:?}, {:?})]`", entry.value(), file.value());
            errors.at(file.span(), message);
            (args.file, args.entry) = (None, None);
            return args;
        }
        let missing = match (&args.file, &args.entry) {
            (None, _) => "the source and the kernel in it are missing",
            (Some(_), None) => "the kernel's name in the source is missing",
            _ => return args,
        };
        if errors.is_empty() {
            errors.at(Span::call_site(), format!("{missing}: write {EXAMPLE}"));
        }
        args
    }

    fn argument(&mut self, input: ParseStream<'_>) -> Result<()> {
        if input.peek(LitStr) {
            let text: LitStr = input.parse()?;
            let slot = if self.file.is_none() { &mut self.file } else { &mut self.entry };
            if slot.is_some() {
                let message = format!("a source and a kernel in it, and no third: {EXAMPLE}");
                return Err(Error::new(text.span(), message));
            }
            *slot = Some(text);
            return Ok(());
        }
        if input.peek(Token![unsafe]) {
            return self.vouch(input);
        }
        let name = input.call(Ident::parse_any)?;
        if name == "requires" {
            let message = "who writes `requires` vouches for the launch, so the word is there: `unsafe(requires(..))`";
            return Err(Error::new(name.span(), message));
        }
        if !OPTIONS.contains(&name.to_string().as_str()) && !input.peek(Token![=]) {
            let message = format!("a source and the kernel in it, both in quotes: write {EXAMPLE}");
            return Err(Error::new(name.span(), message));
        }
        let twice = |set: bool| match set {
            true => Err(Error::new(name.span(), format!("`{name}` is given twice"))),
            false => Ok(()),
        };
        match name.to_string().as_str() {
            "threads" => {
                self.threads_were_tried = true;
                let number: LitInt = value(input, &name, "a number", "256")?;
                let threads = number.base10_parse::<u32>().ok().filter(|threads| (1..=1024).contains(threads));
                let why = "a block has 1 to 1024 threads";
                let threads = threads.ok_or_else(|| Error::new(number.span(), why))?;
                twice(self.threads.replace((threads, number.span())).is_some())
            }
            "crate" => {
                let path = value(input, &name, "a path", "mt_cuda")?;
                twice(self.krate.replace(path).is_some())
            }
            other => {
                let guess = did_you_mean(other, &OPTIONS);
                Err(Error::new(
                    name.span(),
                    format!("`kernel` has no option `{name}`{guess} (there are {})", list(&OPTIONS)),
                ))
            }
        }
    }

    fn vouch(&mut self, input: ParseStream<'_>) -> Result<()> {
        const FORM: &str = "`unsafe(requires(x.len() == out.len()))`";
        let keyword: Token![unsafe] = input.parse()?;
        if !input.peek(syn::token::Paren) {
            return Err(Error::new(keyword.span, format!("what is vouched for is missing: write {FORM}")));
        }
        let content;
        syn::parenthesized!(content in input);
        let name = content.call(Ident::parse_any).map_err(|error| Error::new(error.span(), format!("write {FORM}")))?;
        if name != "requires" || !content.peek(syn::token::Paren) {
            content.parse::<TokenStream>()?;
            return Err(Error::new(name.span(), format!("what makes a launch sound is written {FORM}")));
        }
        let list;
        syn::parenthesized!(list in content);
        let conditions: Vec<Expr> = Punctuated::<Expr, Token![,]>::parse_terminated(&list)?.into_iter().collect();
        if !content.is_empty() {
            return Err(content.error(format!("`unsafe` takes one thing here: {FORM}")));
        }
        match self.vouched.replace(Vouched { keyword, conditions }) {
            None => Ok(()),
            Some(_) => Err(Error::new(keyword.span, "`unsafe` is given twice: list all conditions in one")),
        }
    }
}

fn value<T: syn::parse::Parse>(input: ParseStream<'_>, name: &Ident, kind: &str, example: &str) -> Result<T> {
    let form = |span| Error::new(span, format!("`{name}` takes {kind}: write `{name} = {example}`"));
    if !input.peek(Token![=]) {
        return Err(form(name.span()));
    }
    input.parse::<Token![=]>()?;
    input.parse().map_err(|error: Error| form(error.span()))
}
