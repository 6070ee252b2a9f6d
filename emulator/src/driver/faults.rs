//! Calls that fail because the environment said so: `MEMTIER_EMULATED_FAULTS=cuMemCreate:3:2` makes the third call of `cuMemCreate` fail
//! with result 2 (out of memory). Several are separated by commas.

use std::sync::{Mutex, PoisonError};

/// Failures to come: the function, how many calls are left until it, its result.
#[derive(Debug, Default)]
pub(super) struct Faults(Mutex<Vec<(String, u64, u32)>>);

impl Faults {
    /// By the environment's words.
    pub(super) fn of(text: &str) -> Result<Self, String> {
        let wrong = |part: &str| format!("MEMTIER_EMULATED_FAULTS: `{part}` is not like cuMemCreate:3:2");
        let parse = |part: &str| {
            let mut words = part.trim().split(':');
            let (name, turn, code) = (words.next()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            (turn > 0 && code > 0 && words.next().is_none()).then(|| (name.to_owned(), turn, code))
        };
        let parts = text.split(',').filter(|part| !part.trim().is_empty());
        let list = parts.map(|part| parse(part).ok_or_else(|| wrong(part))).collect::<Result<_, _>>()?;
        Ok(Faults(Mutex::new(list)))
    }

    /// The result with which this call fails, if it is its turn.
    pub(super) fn hit(&self, call: &str) -> Option<u32> {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let index = list.iter().position(|(name, ..)| name == call)?;
        list[index].1 -= 1;
        (list[index].1 == 0).then(|| list.remove(index).2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_call_fails_at_its_turn_and_once() {
        let faults = Faults::of("cuMemCreate:2:2, cuInit:1:100").unwrap();
        let calls = ["cuMemCreate", "cuInit", "cuMemCreate", "cuMemCreate", "cuInit"];
        assert_eq!(calls.map(|call| faults.hit(call)), [None, Some(100), Some(2), None, None]);
        assert!(Faults::of("cuMemCreate").unwrap_err().contains("cuMemCreate:3:2"));
        assert!(Faults::of("cuMemCreate:0:2").is_err());
    }
}
