//! Flags by table: parsing, help text and "did you mean".

use std::ffi::OsString;

use crate::failure::Failure;

/// One command's face: what it is called, what it takes, how it reads in `--help`.
#[derive(Debug)]
pub struct Command {
    /// The word after `cargo xtask`.
    pub name: &'static str,
    /// One line for the overview.
    pub about: &'static str,
    /// Its flags, in the order in which the help lists them. `--help` is understood everywhere.
    pub flags: &'static [Flag],
    /// What the words without dashes are, as `("NAMES…", "what they mean")`; `None` refuses them.
    pub words: Option<(&'static str, &'static str)>,
    /// `(command line, what it does)`, at the end of the help.
    pub examples: &'static [(&'static str, &'static str)],
}

/// One flag.
#[derive(Debug)]
pub struct Flag {
    /// Without the dashes.
    pub name: &'static str,
    /// The value's name in the help; empty for a switch.
    pub value: &'static str,
    /// How the value is checked before any work starts.
    pub check: Check,
    /// One line.
    pub help: &'static str,
}

/// What a flag's value must look like. The engine checks ranges against the model; this only catches what would
/// otherwise surface after a download and a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// Anything, or no value at all.
    Any,
    /// Anything, as often as the user likes.
    Many,
    /// A whole number of at least one.
    Count,
}

/// What a command line asks for.
#[derive(Debug)]
pub enum Outcome {
    /// `--help`.
    Help,
    /// The work.
    Run(Parsed),
}

/// A command line that fits its [`Command`].
#[derive(Debug, Default)]
pub struct Parsed {
    flags: Vec<(&'static str, Option<OsString>)>,
    /// The words without dashes, and everything after `--`.
    pub words: Vec<OsString>,
}

impl Parsed {
    /// Whether a flag was given.
    pub fn has(&self, name: &str) -> bool {
        self.flags.iter().any(|(flag, _)| *flag == name)
    }

    /// A flag's value.
    pub fn value(&self, name: &str) -> Option<&OsString> {
        self.flags.iter().find(|(flag, _)| *flag == name).and_then(|(_, value)| value.as_ref())
    }

    /// A [`Check::Count`] flag's value.
    pub fn count(&self, name: &str) -> Option<u64> {
        self.value(name).and_then(|value| value.to_str()).and_then(|value| value.parse().ok())
    }

    /// The words as text, for commands whose words are names.
    pub fn names(&self) -> Vec<String> {
        self.words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    /// The given flags as `--name value` arguments, without those in `except`: what `demo` passes on to the engine.
    pub fn forward(&self, except: &[&str]) -> Vec<OsString> {
        let kept = self.flags.iter().filter(|(name, _)| !except.contains(name));
        kept.flat_map(|(name, value)| std::iter::once(format!("--{name}").into()).chain(value.clone())).collect()
    }
}

impl Command {
    /// Parses the arguments behind the command's name.
    ///
    /// # Errors
    /// One line: an unknown flag (with the nearest known one), a missing, superfluous or malformed value, a flag given
    /// twice, a word where none belongs.
    pub fn parse(&self, args: impl IntoIterator<Item = OsString>) -> Result<Outcome, Failure> {
        use lexopt::Arg::{Long, Short, Value};
        let mut parsed = Parsed::default();
        let mut parser = lexopt::Parser::from_args(args);
        loop {
            let next = parser.next().map_err(|error| self.wrong(&error.to_string()))?;
            match next {
                None => return Ok(Outcome::Run(parsed)),
                Some(Long("help") | Short('h')) => return Ok(Outcome::Help),
                Some(Long(name)) => {
                    let Some(flag) = self.flags.iter().find(|flag| flag.name == name) else {
                        let hint = did_you_mean(name, "--", self.flags.iter().map(|flag| flag.name));
                        return Err(self.wrong(&format!("no flag --{name}{hint}")));
                    };
                    if parsed.has(flag.name) && flag.check != Check::Many {
                        return Err(self.wrong(&format!("--{} is given twice", flag.name)));
                    }
                    let value = match flag.value {
                        "" => None,
                        _ => Some(parser.value().map_err(|_| self.wrong(&flag.lacks_value()))?),
                    };
                    flag.accepts(value.as_ref()).map_err(|why| self.wrong(&why))?;
                    parsed.flags.push((flag.name, value));
                }
                Some(Short(letter)) => return Err(self.wrong(&format!("no flag -{letter}"))),
                Some(Value(word)) if self.words.is_some() => parsed.words.push(word),
                Some(Value(word)) => {
                    return Err(self.wrong(&format!("'{}' is not a flag", word.to_string_lossy())));
                }
            }
        }
    }

    fn wrong(&self, why: &str) -> Failure {
        Failure::usage(format!("{why} (see `cargo xtask {} --help`)", self.name))
    }

    /// The text of `--help`.
    pub fn help(&self) -> String {
        let words = self.words.map(|(name, _)| format!(" [{name}]")).unwrap_or_default();
        let mut text = format!("{}\n\nusage: cargo xtask {} [FLAGS]{words}\n\n", self.about, self.name);
        if let Some((name, help)) = self.words {
            text += &format!("  {name:<22} {help}\n");
        }
        for flag in self.flags {
            text += &format!("  {:<22} {}\n", flag.title(), flag.help);
        }
        text += &format!("  {:<22} this text\n\nexamples:\n", "--help");
        for (line, what) in self.examples {
            text += &format!("  {line}\n      {what}\n");
        }
        text
    }
}

impl Flag {
    fn title(&self) -> String {
        format!("--{} {}", self.name, self.value).trim_end().to_owned()
    }

    fn lacks_value(&self) -> String {
        format!("--{} needs a value: {}", self.name, self.title())
    }

    fn accepts(&self, value: Option<&OsString>) -> Result<(), String> {
        let Some(value) = value else { return Ok(()) };
        match self.check {
            Check::Any | Check::Many => Ok(()),
            Check::Count => match value.to_str().and_then(|value| value.parse::<u64>().ok()) {
                Some(count) if count > 0 => Ok(()),
                _ => {
                    let given = value.to_string_lossy();
                    Err(format!("--{} '{given}' is not a whole number of at least 1", self.name))
                }
            },
        }
    }
}

/// `; did you mean 'x'?` for the candidate nearest to `given`, or nothing when none is near. `dashes` go before the word.
pub fn did_you_mean<'a>(given: &str, dashes: &str, candidates: impl Iterator<Item = &'a str>) -> String {
    // A prefix always counts (`--max` means `--max-tokens`); otherwise about a third of the word may differ.
    let edits = |name: &str| if given.len() > 2 && name.starts_with(given) { 0 } else { distance(given, name) };
    match candidates.map(|name| (edits(name), name)).min() {
        Some((edits, name)) if edits <= 1 + given.len() / 3 => format!("; did you mean '{dashes}{name}'?"),
        _ => String::new(),
    }
}

/// Edits (insert, delete, replace, swap of neighbours) between two words.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMAND: Command = Command {
        name: "sing",
        about: "Sings.",
        flags: &[
            Flag { name: "max-tokens", value: "N", check: Check::Count, help: "how many" },
            Flag { name: "prompt", value: "TEXT", check: Check::Any, help: "what" },
            Flag { name: "loud", value: "", check: Check::Any, help: "loudly" },
            Flag { name: "voice", value: "NAME", check: Check::Many, help: "who" },
        ],
        words: None,
        examples: &[("cargo xtask sing --loud", "sings loudly")],
    };

    fn parse(args: &[&str]) -> Result<Parsed, String> {
        match COMMAND.parse(args.iter().map(OsString::from)) {
            Ok(Outcome::Run(parsed)) => Ok(parsed),
            Ok(Outcome::Help) => Err("help".into()),
            Err(failure) => Err(failure.message().to_owned()),
        }
    }

    #[test]
    fn both_spellings_of_a_value_are_taken() {
        let parsed = parse(&["--max-tokens=7", "--prompt", "--not-a-flag", "--loud"]).unwrap();
        assert_eq!(parsed.count("max-tokens"), Some(7));
        assert_eq!(parsed.value("prompt").unwrap(), "--not-a-flag");
        assert!(parsed.has("loud"));
        assert_eq!(parsed.forward(&["prompt"]), ["--max-tokens", "7", "--loud"]);
        let parsed = parse(&["--voice", "alto", "--voice=bass"]).unwrap();
        assert_eq!(parsed.forward(&[]), ["--voice", "alto", "--voice", "bass"]);
    }

    #[test]
    fn an_unknown_flag_names_the_nearest_one() {
        let message = parse(&["--max-token", "7"]).unwrap_err();
        assert_eq!(message, "no flag --max-token; did you mean '--max-tokens'? (see `cargo xtask sing --help`)");
        assert!(parse(&["--promtp", "x"]).unwrap_err().contains("'--prompt'"));
        assert!(!parse(&["--zzz"]).unwrap_err().contains("did you mean"));
        assert!(parse(&["-x"]).unwrap_err().starts_with("no flag -x"));
    }

    #[test]
    fn a_bad_value_is_refused_with_the_value() {
        for bad in ["0", "-1", "many", "", "1.5", "99999999999999999999999"] {
            let message = parse(&["--max-tokens", bad]).unwrap_err();
            assert!(message.contains(&format!("'{bad}' is not a whole number")), "{message}");
        }
        assert!(parse(&["--max-tokens"]).unwrap_err().contains("needs a value: --max-tokens N"));
        assert!(parse(&["--loud=very"]).unwrap_err().contains("very"));
        assert!(parse(&["--loud", "--loud"]).unwrap_err().contains("given twice"));
        assert!(parse(&["word"]).unwrap_err().contains("'word' is not a flag"));
    }

    #[test]
    fn help_lists_flags_and_examples() {
        assert_eq!(parse(&["--loud", "--help"]).unwrap_err(), "help");
        let help = COMMAND.help();
        for part in ["--max-tokens N", "--loud ", "examples:", "cargo xtask sing --loud"] {
            assert!(help.contains(part), "{help}");
        }
    }

    #[test]
    fn distance_counts_a_swap_as_one() {
        assert_eq!(distance("promtp", "prompt"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("tset", "test"), 1);
    }
}
