//! The programs that must not compile, by the rows of [the design's table](super::design). Each is a file under
//! `ui-tests/tests/ui/` (or `ui-tests/tests/attacks/`), with a legal twin in the same source and the compiler's exact words beside it.
//!
#![doc = include_str!("cases.md")]
