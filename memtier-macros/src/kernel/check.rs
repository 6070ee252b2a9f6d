//! Whether the two declarations say the same. Everything that differs is reported, at the Rust side, with both.

use syn::ext::IdentExt;

use super::{
    attr::Args,
    parse::{self, Bound, Kernel, Source, Ty},
    signature::{Param, Role},
    types::{Meaning, SCALARS, meaning},
};
use crate::report::{Errors, did_you_mean, list, text};

/// The most arguments that a launch passes.
const MOST: usize = 24;

/// The kernel of that name, if a wrapper can be made for it.
pub(super) fn entry<'s>(source: &'s Source, args: &Args, file: &str, errors: &mut Errors) -> Option<&'s Kernel> {
    let wanted = args.entry.as_ref()?;
    let name = wanted.value();
    let found: Vec<&Kernel> = source.kernels.iter().filter(|kernel| kernel.name == name).collect();
    let Some(kernel) = found.first() else {
        errors.at(wanted.span(), missing(source, &name, file));
        return None;
    };
    let line = kernel.line;
    if kernel.template {
        let message = format!(
            "`{name}` is a template ({file} line {line}), and a template has no entry of its own: write an `extern \"C\"` kernel \
             that calls it, one for each type"
        );
        errors.at(wanted.span(), message);
        return None;
    }
    if !kernel.c_name {
        let message = format!(
            "`{name}` has a C++ name in the compiled module ({file} line {line}), and the driver would not find it: write \
             `extern \"C\"` in front of it"
        );
        errors.at(wanted.span(), message);
        return None;
    }
    let differs = |other: &&&Kernel| {
        let types = |kernel: &Kernel| kernel.params.iter().map(|param| param.ty.clone()).collect::<Vec<_>>();
        types(other) != types(kernel) || other.bound != kernel.bound
    };
    if let Some(other) = found.iter().find(differs) {
        let message = format!(
            "`{name}` is declared twice, differently ({file} lines {line} and {}): which one is compiled is the \
             preprocessor's business; give them two names",
            other.line
        );
        errors.at(wanted.span(), message);
        return None;
    }
    Some(kernel)
}

fn missing(source: &Source, name: &str, file: &str) -> String {
    let names: Vec<&str> = source.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    let there = match names.as_slice() {
        [] => "no `__global__` function at all".to_owned(),
        names => list(names),
    };
    let written = match source.writers.as_slice() {
        [] => String::new(),
        writers => {
            let writers: Vec<&str> = writers.iter().map(String::as_str).collect();
            format!("; what the macro {} writes is not seen: spell such a kernel's first line out", list(&writers))
        }
    };
    format!("no kernel `{name}` in {file}{} (there is {there}){written}", did_you_mean(name, &names))
}

/// Threads of a block: the number, and whether a launch must have exactly that.
pub(super) fn threads(kernel: &Kernel, args: &Args, file: &str, errors: &mut Errors) -> Option<(u32, bool)> {
    let (name, line) = (&kernel.name, kernel.line);
    match (&kernel.bound, args.threads) {
        (Bound::Threads(bound), Some((threads, span))) if u64::from(threads) > *bound => {
            let message = format!(
                "`threads = {threads}` here, `__launch_bounds__({bound})` at `{name}` in {file} line {line}: the driver would \
                 refuse every launch; at most {bound}, or raise the bound"
            );
            errors.at(span, message);
            None
        }
        (Bound::Threads(bound), None) => match u32::try_from(*bound).ok().filter(|bound| (1..=1024).contains(bound)) {
            Some(bound) => Some((bound, false)),
            None => {
                let span = args.entry.as_ref().map_or_else(proc_macro2::Span::call_site, syn::LitStr::span);
                let message = format!(
                    "`__launch_bounds__({bound})` at `{name}` in {file} line {line}: a block has 1 to 1024 threads"
                );
                errors.at(span, message);
                None
            }
        },
        (Bound::Threads(_) | Bound::None, Some((threads, _))) => Some((threads, true)),
        (Bound::None, None) if args.threads_were_tried => None,
        (Bound::None, None) => {
            let span = args.entry.as_ref().map_or_else(proc_macro2::Span::call_site, syn::LitStr::span);
            let message = format!(
                "how many threads a block of `{name}` has is said neither here nor in {file} line {line}: write `threads = 256` \
                 in the attribute, or `__launch_bounds__(256)` in the source"
            );
            errors.at(span, message);
            None
        }
        (Bound::Unread(bound), given) => {
            let entry = args.entry.as_ref().map_or_else(proc_macro2::Span::call_site, syn::LitStr::span);
            let message = format!(
                "`__launch_bounds__({bound})` at `{name}` in {file} line {line} takes a C++ compiler to read: write a number \
                 there, or the name of a `#define` of one in the same file"
            );
            errors.at(given.map_or(entry, |(_, span)| span), message);
            None
        }
    }
}

/// Compares the parameters.
pub(super) fn params(ours: &[Param], source: &Source, kernel: &Kernel, at: &Sides<'_>, errors: &mut Errors) {
    let theirs = &kernel.params;
    let (name, line) = (&kernel.name, kernel.line);
    if theirs.len() > MOST {
        let message = format!(
            "`{name}` takes {} parameters ({} line {line}), and a launch passes at most {MOST}",
            theirs.len(),
            at.file
        );
        errors.at(at.function.span(), message);
    }
    let fits = |ours: &Param, theirs: &parse::Param| difference(ours, theirs, source).is_none();
    for pair in pairs(ours, theirs, fits) {
        match pair {
            Pair::Both(i, j) => {
                let (ours, there) = (&ours[i], &theirs[j]);
                let called = ours.name.unraw();
                let other = theirs.iter().position(|param| param.name.as_deref() == Some(&*called.to_string()));
                if let Some(difference) = difference(ours, there, source) {
                    let message = format!(
                        "parameter {} `{called}`: `{}` here, `{}` in {} line {}: {difference}",
                        i + 1,
                        text(&ours.ty),
                        there.text,
                        at.file,
                        there.line
                    );
                    errors.mark(ours.tokens(), message);
                } else if let Some(other) = other.filter(|other| *other != j) {
                    let message = format!(
                        "parameter {} is called `{called}` here, and `{}` in {} line {}, where `{called}` is parameter {}: put \
                         them in the source's order, or give it another name",
                        i + 1,
                        there.name.as_deref().unwrap_or("nothing"),
                        at.file,
                        there.line,
                        other + 1
                    );
                    errors.mark(ours.tokens(), message);
                }
            }
            Pair::Ours(i) => {
                let message = format!(
                    "parameter {} `{}`: `{}` here, nothing in {} line {line}: `{name}` takes {} there",
                    i + 1,
                    ours[i].name,
                    text(&ours[i].ty),
                    at.file,
                    count(theirs.len())
                );
                errors.mark(ours[i].tokens(), message);
            }
            Pair::Theirs(i, j) => {
                let there = &theirs[j];
                let write = match wanted(there, source) {
                    Ok(wanted) => {
                        let called = there.name.as_deref().unwrap_or("name");
                        format!("write `{called}: {}`", wanted.suggestion(None))
                    }
                    Err(why) => why,
                };
                let place = match i.checked_sub(1).and_then(|before| ours.get(before)) {
                    Some(before) => format!(" behind `{}`", before.name),
                    None if ours.is_empty() => String::new(),
                    None => " in front".to_owned(),
                };
                let message = format!(
                    "nothing{place} here, `{}` in {} line {}, parameter {} of {}: {write}",
                    there.text,
                    at.file,
                    there.line,
                    j + 1,
                    theirs.len()
                );
                match i.checked_sub(1).and_then(|before| ours.get(before)) {
                    Some(before) => errors.mark(before.tokens(), message),
                    None => errors.at(at.function.span(), message),
                }
            }
        }
    }
}

/// Where the two declarations are.
pub(super) struct Sides<'s> {
    pub(super) function: &'s proc_macro2::Ident,
    pub(super) file: &'s str,
}

fn count(params: usize) -> String {
    match params {
        0 => "no parameters".to_owned(),
        1 => "1 parameter".to_owned(),
        more => format!("{more} parameters"),
    }
}

/// What a parameter of the source is in Rust.
struct Wanted {
    role: Role,
    names: Vec<&'static str>,
}

impl Wanted {
    /// How it is written; `item`: an element that will do.
    fn suggestion(&self, item: Option<String>) -> String {
        let first = self.names[0];
        let item = item.unwrap_or_else(|| if first == "Packed" { "Packed<..>".to_owned() } else { first.to_owned() });
        match self.role {
            Role::Out => format!("Out<{item}>"),
            Role::In => format!("In<{item}>"),
            Role::Value => item,
        }
    }
}

fn wanted(there: &parse::Param, source: &Source) -> Result<Wanted, String> {
    let known = |name: &str| match meaning(name, &source.aliases) {
        Meaning::Is(names) => Ok(names),
        Meaning::Nothing(why) => Err(why),
    };
    match &there.ty {
        Ty::Odd(why) => Err((*why).to_owned()),
        Ty::Pointer { to, constant } => {
            let role = if *constant { Role::In } else { Role::Out };
            let names: Vec<_> = known(to)?.iter().copied().filter(|name| *name != "bool").collect();
            match names.is_empty() {
                false => Ok(Wanted { role, names }),
                true => Err("device memory holds no `bool`: take `unsigned char` in the source".to_owned()),
            }
        }
        Ty::Value(name) => {
            let names = known(name)?.iter().copied().filter(|name| SCALARS.iter().any(|(scalar, _)| scalar == name));
            let names: Vec<_> = names.collect();
            match names.is_empty() {
                false => Ok(Wanted { role: Role::Value, names }),
                true => Err(format!("a `{name}` is not passed by value: take its parts, or a pointer to it")),
            }
        }
    }
}

/// Why the two are not the same, and what to write; `None`: they are.
fn difference(ours: &Param, there: &parse::Param, source: &Source) -> Option<String> {
    let wanted = match wanted(there, source) {
        Ok(wanted) => wanted,
        Err(why) => return Some(why),
    };
    let (role, known) = (ours.kind.role, ours.kind.known);
    let same_item = wanted.names.contains(&known);
    if role == wanted.role && same_item {
        return None;
    }
    let suggestion = wanted.suggestion(same_item.then(|| text(&ours.kind.item)));
    let kind = match (role, wanted.role) {
        (Role::Value, Role::In | Role::Out) => Some("the kernel takes an address"),
        (Role::In | Role::Out, Role::Value) => Some("the kernel takes a value"),
        (Role::Out, Role::In) => Some("the kernel only reads it"),
        (Role::In, Role::Out) => Some("the kernel may write there"),
        _ => None,
    };
    let item = match wanted.role {
        Role::Value => format!("the kernel takes {}", of_names(&wanted.names)),
        _ => format!("the elements are {} there", of_names(&wanted.names)),
    };
    let mut reasons: Vec<String> = kind.map(str::to_owned).into_iter().collect();
    if !same_item {
        reasons.push(item);
    }
    let or = match (role, wanted.role) {
        (Role::In, Role::Out) => ", or `const` in the source if it only reads",
        _ => "",
    };
    Some(format!("{}; write `{suggestion}`{or}", reasons.join(", and ")))
}

fn of_names(names: &[&str]) -> String {
    match names {
        [one] => format!("`{one}`"),
        [one, ..] if names.len() > 3 => format!("`{one}` (or another type made of bytes)"),
        names => {
            let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            quoted.join(" or ")
        }
    }
}

/// Who belongs to whom.
enum Pair {
    Both(usize, usize),
    /// Only in Rust.
    Ours(usize),
    /// Only in the source, in front of our parameter of that number.
    Theirs(usize, usize),
}

/// By position when there are as many, otherwise so that as little as possible differs: one forgotten parameter is one
/// mistake.
fn pairs(ours: &[Param], theirs: &[parse::Param], fits: impl Fn(&Param, &parse::Param) -> bool) -> Vec<Pair> {
    if ours.len() == theirs.len() {
        return (0..ours.len()).map(|i| Pair::Both(i, i)).collect();
    }
    const GAP: usize = 5;
    let cost = |i: usize, j: usize| {
        let named = theirs[j].name.as_deref() == Some(&*ours[i].name.unraw().to_string());
        match (fits(&ours[i], &theirs[j]), named) {
            (true, true) => 0,
            (true, false) => 1,
            (false, true) => 6,
            (false, false) => 12,
        }
    };
    // `best[i][j]`: what is left from there on.
    let (m, n) = (ours.len(), theirs.len());
    let mut best = vec![vec![0usize; n + 1]; m + 1];
    for i in (0..=m).rev() {
        for j in (0..=n).rev() {
            best[i][j] = match (i < m, j < n) {
                (true, true) => (best[i + 1][j + 1] + cost(i, j)).min(best[i + 1][j] + GAP).min(best[i][j + 1] + GAP),
                _ => (m - i + n - j) * GAP,
            };
        }
    }
    let (mut i, mut j, mut pairs) = (0, 0, Vec::new());
    while i < m || j < n {
        if i < m && j < n && best[i][j] == best[i + 1][j + 1] + cost(i, j) {
            pairs.push(Pair::Both(i, j));
            (i, j) = (i + 1, j + 1);
        } else if i < m && (j == n || best[i][j] == best[i + 1][j] + GAP) {
            pairs.push(Pair::Ours(i));
            i += 1;
        } else {
            pairs.push(Pair::Theirs(i, j));
            j += 1;
        }
    }
    pairs
}
