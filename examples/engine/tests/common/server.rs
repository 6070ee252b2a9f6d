//! A serve loop for tests of the memory policy.

use std::collections::BTreeMap;

use memtier::Bytes;
use memtier_engine::{EngineError, Llm, ModelFile, Outcome, RequestId, Row, Sampling, Settings};

const ANSWER: usize = 24;

/// Four rows of up to 192 tokens, chunks of 32.
pub fn settings() -> Settings {
    Settings {
        budget: Bytes::mib(64),
        max_batch: 4,
        max_seq_len: 192,
        prefill_chunk: 32,
        threads: 1,
        ..Settings::default()
    }
}

/// Prompt number `index`.
pub fn prompt(index: u32) -> Vec<u32> {
    (0..40).map(|at| (at * 7 + index * 13) % 200).collect()
}

/// What each prompt is answered with when nothing else runs and nobody watches.
pub fn alone(file: &ModelFile, index: u32) -> Vec<u32> {
    let mut llm = Llm::open(file, &settings(), &mut |_| ()).unwrap();
    let row = llm.admit(&prompt(index), ANSWER, Sampling::GREEDY).unwrap();
    while llm.step(|_| ()).unwrap() > 0 {}
    llm.tokens(row).unwrap().to_vec()
}

/// A serve loop that never has too little to do, and asks again for whom it was told no.
pub struct Server {
    /// The engine.
    pub llm: Llm,
    /// Prompts so far.
    pub submitted: u32,
    prompts: BTreeMap<RequestId, u32>,
    /// Which prompt runs in which row.
    pub running: BTreeMap<Row, u32>,
    /// Tokens of the prompts that were served.
    pub finished: BTreeMap<u32, Vec<u32>>,
    /// Who was told no.
    pub again: Vec<u32>,
    /// How often somebody was.
    pub refused: usize,
}

impl Server {
    /// Around an engine that serves nobody.
    pub fn new(llm: Llm) -> Self {
        Server {
            llm,
            submitted: 0,
            prompts: BTreeMap::new(),
            running: BTreeMap::new(),
            finished: BTreeMap::new(),
            again: Vec::new(),
            refused: 0,
        }
    }

    /// Lets a prompt wait, or asks again later.
    pub fn submit(&mut self, index: u32) {
        match self.llm.submit(prompt(index), ANSWER, Sampling::GREEDY, None) {
            Ok(id) => _ = self.prompts.insert(id, index),
            Err(EngineError::Refused(refusal)) => {
                assert!(refusal.retry_after.is_some(), "{refusal}");
                self.refused += 1;
                self.again.push(index);
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// One turn. Returns the tokens of its pass.
    pub fn turn(&mut self, more: bool) -> usize {
        while more && self.llm.waiting() < 3 && self.again.is_empty() {
            self.submitted += 1;
            self.submit(self.submitted);
        }
        if let Some(index) = self.again.pop() {
            self.submit(index);
        }
        let before = self.llm.running() as u32;
        let mut told = Vec::new();
        self.llm.start_waiting(|id, outcome| told.push((id, outcome)));
        let slots = self.llm.limits().limits.slots;
        assert!(self.llm.running() as u32 <= slots.max(before), "{} run in {slots} slots", self.llm.running());
        for (id, outcome) in told {
            let index = self.prompts[&id];
            match outcome {
                Outcome::Started(row) => assert_eq!(self.running.insert(row, index), None),
                Outcome::Refused(refusal) => {
                    assert!(refusal.retry_after.is_some(), "{refusal}");
                    self.refused += 1;
                    self.again.push(index);
                }
                Outcome::Failed(error) => panic!("{error}"),
            }
        }
        let mut last = Vec::new();
        let tokens = self.llm.step(|token| last.extend(token.last.then_some(token.row))).unwrap();
        for row in last {
            let index = self.running.remove(&row).unwrap();
            self.finished.insert(index, self.llm.tokens(row).unwrap().to_vec());
            self.llm.end(row).unwrap();
        }
        tokens
    }

    /// Turns until everybody was served.
    pub fn finish(&mut self) {
        while self.llm.waiting() + self.running.len() + self.again.len() > 0 {
            self.turn(false);
        }
    }
}
