//! A parsed text.

use super::{
    PtxError,
    code::{Code, Place},
    parse,
};

/// A parameter of a kernel, as the driver lays it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Bytes from the start of the parameters.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
    /// Bytes.
    pub align: usize,
}

/// A variable at module scope in global or constant memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// Its name.
    pub name: String,
    /// Bytes.
    pub size: usize,
    /// Bytes.
    pub align: usize,
    /// What it starts as, `size` bytes.
    pub initial: Vec<u8>,
}

/// A parsed text.
#[derive(Debug, Default)]
pub struct Module {
    pub(super) target: String,
    pub(super) functions: Vec<Function>,
    pub(super) globals: Vec<Global>,
    pub(super) files: parse::Files,
    /// Lines, for what errors say.
    pub(super) text: Vec<String>,
}

impl Module {
    /// Parses a text.
    ///
    /// # Errors
    ///
    /// Names the first line that is not PTX, or whose instruction is not known here.
    pub fn parse(text: &str) -> Result<Self, PtxError> {
        parse::module(text)
    }

    /// What the text was made for: `sm_120f`.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The kernel of this name.
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|it| it.name == name)
    }

    /// All kernels.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// Variables in global and constant memory, in the order of [`Launch::globals`](super::Launch::globals).
    pub fn globals(&self) -> &[Global] {
        &self.globals
    }

    /// Where an instruction stands, in words.
    pub(super) fn place(&self, place: Place) -> String {
        let text = self.text.get(place.line.saturating_sub(1) as usize).map_or("", |it| it.trim());
        let file = self.files.get(&place.source.0);
        let source = file.map_or(String::new(), |it| format!(" ({it}:{})", place.source.1));
        format!("line {} of the PTX{source}: `{text}`", place.line)
    }
}

/// A kernel.
#[derive(Debug)]
pub struct Function {
    pub(super) name: String,
    pub(super) params: Vec<Param>,
    pub(super) shared: u32,
    pub(super) local: u32,
    pub(super) max_threads: Option<[u32; 3]>,
    pub(super) required_threads: Option<[u32; 3]>,
    /// Blocks of a cluster.
    pub(super) cluster: [u32; 3],
    pub(super) min_blocks: Option<u32>,
    pub(super) registers: u32,
    pub(super) shared_align: u32,
    pub(super) line: u32,
    pub(super) code: Code,
}

impl Function {
    pub(super) fn new(name: String, line: u32) -> Self {
        Self {
            name,
            params: Vec::new(),
            shared: 0,
            local: 0,
            max_threads: None,
            required_threads: None,
            cluster: [1; 3],
            min_blocks: None,
            registers: 0,
            shared_align: 1,
            line,
            code: Code::default(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its parameters.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// Bytes of all parameters, as a launch gives them.
    pub fn param_bytes(&self) -> usize {
        self.params.last().map_or(0, |it| it.offset + it.size)
    }

    /// Bytes of shared memory that it declares itself.
    pub fn static_shared(&self) -> u32 {
        self.shared
    }

    /// Bytes of local memory a thread that it declares.
    pub fn local_bytes(&self) -> u32 {
        self.local
    }

    /// `.maxntid`: the largest block that it may be launched with.
    pub fn max_threads(&self) -> Option<[u32; 3]> {
        self.max_threads
    }

    /// `.reqntid`: the only block that it may be launched with.
    pub fn required_threads(&self) -> Option<[u32; 3]> {
        self.required_threads
    }

    /// `.minnctapersm`.
    pub fn min_blocks(&self) -> Option<u32> {
        self.min_blocks
    }

    /// 32-bit registers that the text names. Not what a device would take: nothing is allocated here.
    pub fn registers(&self) -> u32 {
        self.registers
    }
}
