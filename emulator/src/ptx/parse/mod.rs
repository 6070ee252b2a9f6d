//! From text to [`Module`].

mod args;
mod arithmetic;
pub(crate) mod body;
mod instruction;
mod lexer;
mod memory;
mod moves;
mod warp;

use std::collections::HashMap;

use self::{
    body::{Body, Symbol, declaration},
    lexer::{Token, integer, tokens, wrong},
};
use super::{
    PtxError, allocate,
    module::{Function, Global, Module, Param},
};

/// Parses a module.
pub(super) fn module(text: &str) -> Result<Module, PtxError> {
    let tokens = tokens(text)?;
    let mut reader = Reader {
        tokens: &tokens,
        at: 0,
        module: Module::default(),
        globals: Vec::new(),
        shared: Vec::new(),
        dynamic: Vec::new(),
    };
    while reader.at < tokens.len() {
        reader.item()?;
    }
    let mut module = reader.module;
    module.text = text.lines().map(str::to_owned).collect();
    Ok(module)
}

struct Reader<'t, 'a> {
    tokens: &'t [Token<'a>],
    at: usize,
    module: Module,
    /// Names of [`Module::globals`].
    globals: Vec<&'a str>,
    /// Shared variables of the module: name, bytes, alignment.
    shared: Vec<(&'a str, u32, u32)>,
    dynamic: Vec<(&'a str, u32)>,
}

impl<'a> Reader<'_, 'a> {
    fn peek(&self) -> &'a str {
        self.tokens.get(self.at).map_or("", |it| it.text)
    }

    fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |it| it.line)
    }

    fn error(&self, what: impl Into<String>) -> PtxError {
        wrong(self.line(), what, self.peek())
    }

    fn until(&self, text: &str) -> Result<usize, PtxError> {
        let end = self.tokens[self.at..].iter().position(|it| it.text == text);
        end.map(|it| self.at + it).ok_or_else(|| self.error(format!("`{text}` is missing")))
    }

    /// Where the brace that is open at `at` is closed.
    fn closed(&self, at: usize) -> Result<usize, PtxError> {
        let mut depth = 0;
        for (index, token) in self.tokens.iter().enumerate().skip(at) {
            match token.text {
                "{" => depth += 1,
                "}" if depth == 1 => return Ok(index),
                "}" => depth -= 1,
                _ => {}
            }
        }
        Err(self.error("a brace that is never closed"))
    }

    fn item(&mut self) -> Result<(), PtxError> {
        match self.peek() {
            ".version" | ".address_size" => self.at += 2,
            ".target" => {
                self.module.target = self.tokens.get(self.at + 1).map_or("", |it| it.text).to_owned();
                self.at += 2;
                while self.peek() == "," {
                    self.at += 2;
                }
            }
            ".file" => self.file(),
            ".pragma" => self.at = self.until(";")? + 1,
            ".section" => {
                let open = self.until("{")?;
                self.at = self.closed(open)? + 1;
            }
            ".visible" | ".extern" | ".weak" | ".common" => {
                let outside = self.peek() == ".extern";
                self.at += 1;
                if outside && self.peek() == ".shared" {
                    self.variable()?;
                }
            }
            ".entry" => self.entry()?,
            ".global" | ".const" | ".shared" => self.variable()?,
            _ => return Err(self.error("not known outside a kernel")),
        }
        Ok(())
    }

    /// `.file 1 "path"[, time, size]`.
    fn file(&mut self) {
        let word = |at: usize| self.tokens.get(at).map_or("", |it| it.text);
        let path = word(self.at + 2).trim_matches('"');
        let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
        if let Some(number) = integer(word(self.at + 1)) {
            self.module.files.insert(number as u32, name.to_owned());
        }
        self.at += 3;
        while self.peek() == "," {
            self.at += 2;
        }
    }

    /// `.global .align 4 .u32 name[2] = {1, 2};`, and shared ones.
    fn variable(&mut self) -> Result<(), PtxError> {
        let (space, end) = (self.peek(), self.until(";")?);
        let words: Vec<_> = self.tokens[self.at + 1..end].iter().map(|it| it.text).collect();
        let declared = declaration(&words).map_err(|what| self.error(what))?;
        if space == ".shared" {
            match declared.size {
                Some(size) => self.shared.push((declared.name, size as u32, declared.align as u32)),
                None => self.dynamic.push((declared.name, declared.align as u32)),
            }
        } else {
            let size = declared.size.ok_or_else(|| self.error("a variable without a size"))?;
            let initial = initial(&words[declared.words..], declared.ty, size).map_err(|what| self.error(what))?;
            self.globals.push(declared.name);
            self.module.globals.push(Global { name: declared.name.to_owned(), size, align: declared.align, initial });
        }
        self.at = end + 1;
        Ok(())
    }

    fn entry(&mut self) -> Result<(), PtxError> {
        let name = self.tokens.get(self.at + 1).map_or("", |it| it.text).to_owned();
        self.at += 2;
        let mut function = Function::new(name, self.line());
        let mut body = Body::default();
        body.dynamic.clone_from(&self.dynamic);
        if self.peek() == "(" {
            let end = self.until(")")?;
            self.at += 1;
            self.params(end, &mut function, &mut body)?;
            self.at = end + 1;
        }
        while self.peek() != "{" {
            self.directive(&mut function)?;
        }
        let end = self.closed(self.at)?;
        for (index, name) in (0..).zip(&self.globals) {
            body.symbols.insert(name, Symbol::Global(index));
        }
        for (name, size, align) in &self.shared {
            let at = body.shared.next_multiple_of(*align);
            body.shared = at
                .checked_add(*size)
                .filter(|it| *it <= 1 << 24)
                .ok_or_else(|| self.error("more memory than 16 MiB"))?;
            body.shared_align = body.shared_align.max(*align);
            body.symbols.insert(name, Symbol::Shared(at));
        }
        body.read(&self.tokens[self.at + 1..end])?;
        self.at = end + 1;
        function.shared = body.shared;
        function.shared_align = body.shared_align.max(1);
        function.local = body.local;
        function.registers = body.counts[0] + 2 * body.counts[1];
        function.code = allocate::allocate(body);
        self.module.functions.push(function);
        Ok(())
    }

    fn params(&mut self, end: usize, function: &mut Function, body: &mut Body<'a>) -> Result<(), PtxError> {
        let words: Vec<_> = self.tokens[self.at..end].iter().map(|it| it.text).collect();
        let mut offset = 0;
        for words in words.split(|it| *it == ",").filter(|it| !it.is_empty()) {
            let declared = declaration(words).map_err(|what| self.error(what))?;
            let size = declared.size.ok_or_else(|| self.error("a parameter without a size"))?;
            offset = usize::next_multiple_of(offset, declared.align);
            function.params.push(Param { offset, size, align: declared.align });
            body.symbols.insert(declared.name, Symbol::Param(offset as u32));
            offset += size;
        }
        Ok(())
    }

    fn directive(&mut self, function: &mut Function) -> Result<(), PtxError> {
        let name = self.peek();
        self.at += 1;
        let mut numbers = Vec::new();
        while let Some(number) = integer(self.peek()) {
            numbers.push(number as u32);
            self.at += 1;
            if self.peek() == "," {
                self.at += 1;
            }
        }
        let three = || [0, 1, 2].map(|at| numbers.get(at).copied().unwrap_or(1));
        match name {
            ".maxntid" => function.max_threads = Some(three()),
            ".reqntid" => (function.max_threads, function.required_threads) = (Some(three()), Some(three())),
            ".reqnctapercluster" => function.cluster = three(),
            ".explicitcluster" => {}
            ".minnctapersm" => function.min_blocks = numbers.first().copied(),
            ".maxnreg" => {}
            ".pragma" => self.at = self.until(";")? + 1,
            _ => {
                self.at = self.at.saturating_sub(1);
                return Err(self.error("not known before the body of a kernel"));
            }
        }
        Ok(())
    }
}

/// The bytes that a variable starts with: nothing, `= 3`, `= {1, 2}`.
fn initial(words: &[&str], ty: super::code::Ty, size: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut minus = false;
    for word in words {
        match *word {
            "=" | "{" | "}" | "," => minus = false,
            "-" => minus = true,
            _ => {
                let value = match (integer(word), lexer::float(word)) {
                    (Some(value), _) => value,
                    (None, Some(value)) if ty.bytes() == 4 => u64::from((value as f32).to_bits()),
                    (None, Some(value)) => value.to_bits(),
                    _ => return Err(format!("`{word}` is no number")),
                };
                let value = if minus { value.wrapping_neg() } else { value };
                bytes.extend_from_slice(&value.to_le_bytes()[..ty.bytes()]);
            }
        }
    }
    if bytes.len() > size {
        return Err("more values than the array holds".into());
    }
    bytes.resize(size, 0);
    Ok(bytes)
}

/// Names of source files by their numbers.
pub(super) type Files = HashMap<u32, String>;
