//! `#[kernel("file.cu", "entry")]`: a launch wrapper from a Rust signature, compared with the CUDA source.
//!
//! | File | Step |
//! |---|---|
//! | `attr` | reads what the attribute says |
//! | `signature` | reads the Rust declaration |
//! | `file`, `lex`, `parse` | find the source, and the kernels in it |
//! | `types` | which Rust type stands for which type of the source |
//! | `check` | compares the two |
//! | `expand` | writes the wrapper, or what stands in for it after an error |

mod attr;
mod check;
mod expand;
mod file;
#[cfg(test)]
mod hostile;
mod lex;
mod parse;
mod signature;
#[cfg(test)]
mod tests;
mod types;

use std::path::{Path, PathBuf};

use proc_macro2::TokenStream;

use self::{
    attr::Args,
    check::Sides,
    expand::{Agreed, agreed, private, stand_in},
    signature::{Declaration, Role},
};
use crate::report::Errors;

/// The expansion, with sources found from the folder of the crate that is compiled.
pub(crate) fn expand(args: TokenStream, item: TokenStream) -> TokenStream {
    let folder = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    expand_in(&folder, args, item)
}

fn expand_in(folder: &Path, args: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let args = Args::read(args, &mut errors);
    let declaration = match syn::parse2::<Declaration>(item.clone()) {
        Ok(declaration) => declaration,
        Err(error) => {
            refuse(&item, error, &mut errors);
            let mut tokens = errors.into_tokens();
            tokens.extend(item);
            return tokens;
        }
    };
    let p = private(args.krate.as_ref());
    let written = checked(folder, &args, &declaration, &p, &mut errors);
    match written.filter(|_| errors.is_empty()) {
        Some(written) => written,
        None => {
            let mut tokens = errors.into_tokens();
            tokens.extend(stand_in(&declaration, &p));
            tokens
        }
    }
}

/// What is no declaration of a function.
fn refuse(item: &TokenStream, error: syn::Error, errors: &mut Errors) {
    match syn::parse2::<syn::Item>(item.clone()) {
        Ok(syn::Item::Verbatim(_)) | Err(_) => errors.push(error),
        Ok(other) => {
            let message = "`#[kernel]` stands on a function without a body: `pub unsafe fn scale(out: Out<f32>, x: In<f32>, n: u64);`";
            errors.mark(other, message);
        }
    }
}

fn checked(
    folder: &Path,
    args: &Args,
    declaration: &Declaration,
    p: &TokenStream,
    errors: &mut Errors,
) -> Option<TokenStream> {
    let params = signature::read(declaration, errors);
    vouched(args, declaration, errors);
    let name = args.file.as_ref()?;
    let file = file::read(folder, name, errors)?;
    let source = parse::parse(&file.text);
    let kernel = check::entry(&source, args, &name.value(), errors)?;
    let threads = check::threads(kernel, args, &name.value(), errors);
    let params = params?;
    let sides = Sides { function: &declaration.sig.ident, file: &name.value() };
    check::params(&params, &source, kernel, &sides, errors);
    let (threads, exact) = threads?;
    let agreed_on = Agreed {
        entry: kernel.name.clone(),
        file: name.value(),
        absolute: file.absolute,
        params: &params,
        threads,
        exact,
        vouched: args.vouched.as_ref(),
    };
    Some(agreed(declaration, &agreed_on, p))
}

/// Somebody has to say that the kernel stays inside of its spans: no signature does.
fn vouched(args: &Args, declaration: &Declaration, errors: &mut Errors) {
    let sig = &declaration.sig;
    match (&sig.unsafety, &args.vouched) {
        (Some(_), Some(vouched)) => {
            let message =
                "either the caller vouches (`unsafe fn`) or the author does (`unsafe(requires(..))`): take one away";
            errors.at(vouched.keyword.span, message);
        }
        (None, None) => {
            let name = &sig.ident;
            let message = format!(
                "`{name}` would be safe to call, but no signature says how far a kernel reads and writes: write `unsafe fn {name}` \
                 and leave it to callers, or `unsafe(requires(x.len() == out.len()))` in the attribute, with all that has to hold"
            );
            errors.at(name.span(), message);
        }
        (None, Some(vouched)) => {
            let memory = sig.inputs.iter().filter_map(|input| signature::read_one(input).ok());
            if vouched.conditions.is_empty() && memory.into_iter().any(|param| param.kind.role != Role::Value) {
                let message = "nothing is required, and the kernel is given memory: say what its spans' lengths have to be, \
                               `unsafe(requires(x.len() == out.len()))`";
                errors.at(vouched.keyword.span, message);
            }
        }
        (Some(_), None) => {}
    }
}
