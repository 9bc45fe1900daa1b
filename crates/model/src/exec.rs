//! The contract between the engine and whatever runs a step (CPU, GPUs, canned tokens).

use crate::card::Card;
use std::fmt;
use std::sync::Arc;

/// Tokens in one cache block. A sequence's position p lies in its block `p / BLOCK`, row `p % BLOCK`.
pub const BLOCK: usize = 64;

/// Most candidates that a row answers with.
pub const CANDIDATES: usize = 64;

/// What a rank's summands are rounded to on their way to the sum; the sum itself is made in f32, in rank order, from what
/// every rank has seen, the one it came from too. A sum over one rank goes nowhere and is not rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wire {
    /// As they are.
    #[default]
    F32,
    /// To the nearest bfloat16, ties to even: half the bytes.
    Bf16,
}

/// What several ranks do with each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ranks {
    /// How summands get to the sum.
    pub wire: Wire,
    /// Are they compared in every step, and not in the first [`crate::watch::STEPS`] only?
    pub check: bool,
}

/// What a row of a step is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Only to fill the cache.
    Nothing,
    /// The best [`CANDIDATES`] ids and the row's log-sum-exp.
    Candidates,
    /// All logits.
    Logits,
}

/// One step: rows of tokens of any number of sequences, plain numbers only.
///
/// Within a sequence, rows are consecutive positions in ascending order; everything before them is cached.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepBatch {
    /// Token id of each row.
    pub tokens: Vec<u32>,
    /// Position of each row in its sequence.
    pub positions: Vec<u32>,
    /// For each row, its sequence: index into `tables`.
    pub sequences: Vec<u32>,
    /// Cache blocks of each sequence, in order.
    pub tables: Vec<Vec<u32>>,
    /// What each row is asked for.
    pub wants: Vec<Want>,
    /// Return the hidden state (the stream after the final norm) of every row too?
    pub want_hidden: bool,
    /// What the rows start from instead of tokens, row-major: for a draft step the trunk's hidden state, for a later
    /// stage that of the stage before.
    pub hidden: Option<Vec<f32>>,
}

impl StepBatch {
    /// Rows of this step.
    pub fn rows(&self) -> usize {
        self.tokens.len()
    }

    /// A step whose numbers are within the limits cannot reach outside of any buffer.
    ///
    /// # Errors
    /// What is beyond them.
    pub fn check(&self, limits: &Limits) -> Result<(), String> {
        let n = self.rows();
        if n > limits.rows {
            return Err(format!("a step of {n} rows, at most {} can be run", limits.rows));
        }
        if [self.positions.len(), self.sequences.len(), self.wants.len()] != [n; 3] {
            return Err("a step needs a position, a sequence and a wish for each token".into());
        }
        self.check_hidden(limits)?;
        if self.tables.iter().flatten().any(|b| *b as usize >= limits.blocks) {
            return Err(format!("a cache block beyond the {} there are", limits.blocks));
        }
        for i in 0..n {
            let (token, position) = (self.tokens[i] as usize, self.positions[i] as usize);
            let cached = self.tables.get(self.sequences[i] as usize).map_or(0, |t| t.len() * BLOCK);
            if token >= limits.vocab && limits.takes == 0 {
                return Err(format!("token {token} of row {i} is beyond the vocabulary of {}", limits.vocab));
            }
            if position >= cached.min(limits.context) {
                return Err(format!("position {position} of row {i} has no place in the cache"));
            }
        }
        self.check_runs()
    }

    /// Rows of a sequence are positions one behind the other: executors take it that what lies as many rows in front of one was cached
    /// by an earlier step.
    fn check_runs(&self) -> Result<(), String> {
        for (i, (sequence, position)) in self.sequences.iter().zip(&self.positions).enumerate() {
            // mostly the row in front
            let before = self.sequences[..i].iter().rposition(|other| other == sequence);
            if before.is_some_and(|before| self.positions[before] + 1 != *position) {
                return Err(format!(
                    "position {position} of row {i} does not follow that of its sequence's last row"
                ));
            }
        }
        Ok(())
    }

    fn check_hidden(&self, limits: &Limits) -> Result<(), String> {
        let width = match (&self.hidden, limits.takes) {
            (None, 0) => return Ok(()),
            (None, _) => return Err("a later stage without the rows of the stage before".into()),
            (Some(_), 0) if !limits.drafts => return Err("a draft step without a next-token layer".into()),
            (Some(_), 0) => limits.width,
            (Some(_), width) => width,
        };
        match (self.hidden.as_ref().map_or(0, Vec::len), self.rows()) {
            (found, rows) if found == rows * width => Ok(()),
            (found, rows) => Err(format!("{found} numbers of hidden state for {rows} rows of {width}")),
        }
    }
}

/// What a row answers.
#[derive(Clone, Debug, PartialEq)]
pub enum RowOutput {
    /// Nothing was asked.
    Nothing,
    /// The best ids, by falling logit (then rising id), with the log of the sum of exp over all logits.
    Candidates {
        /// Token ids.
        ids: Vec<u32>,
        /// Their logits.
        logits: Vec<f32>,
        /// Over the whole vocabulary.
        log_sum_exp: f32,
    },
    /// One logit a vocabulary row.
    Logits(Vec<f32>),
    /// The row met a NaN or an infinity; `at` names the first value that held one. Its cache rows are poisoned:
    /// the sequence must end, and executors never let a masked or freed row spread.
    NonFinite {
        /// Path of the value, such as `blk.3.attn_out`.
        at: String,
    },
}

/// What a step answers: one output a row, and the hidden rows if asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepOutput {
    /// In the order of the batch.
    pub rows: Vec<RowOutput>,
    /// Row-major hidden state, empty unless asked for.
    pub hidden: Vec<f32>,
}

/// What an executor can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Vocabulary rows, the length of full logits; 0 for a stage that knows no tokens.
    pub vocab: usize,
    /// Most rows in a step.
    pub rows: usize,
    /// Cache blocks in all.
    pub blocks: usize,
    /// Most positions of a sequence.
    pub context: usize,
    /// Elements of a hidden row.
    pub width: usize,
    /// Is there a next-token layer to draft with?
    pub drafts: bool,
    /// Elements of the rows that a later stage of a model starts from; 0: tokens.
    pub takes: usize,
}

/// A step that could not be run: the executor itself is broken, nothing it holds can be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecError(pub String);

impl fmt::Display for ExecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for ExecError {}

/// A whole value as seen while a step runs: Split values joined by their deal, Partial ones added in rank order.
#[derive(Debug)]
pub struct Seen<'a> {
    /// Name with layer, such as `blk.3.attn_out`.
    pub path: &'a str,
    /// The layer.
    pub layer: Option<usize>,
    /// The kind of op that made it, such as `RmsNorm`.
    pub op: &'a str,
    /// Elements of a row.
    pub width: usize,
    /// Row-major, one row a row of the step.
    pub data: &'a [f32],
}

/// Looks at every value of a step, in the order in which they are made.
pub trait Probe {
    /// Called once for each value.
    fn see(&mut self, value: &Seen<'_>);
}

/// Runs steps. Its makers: the CPU backend, the CUDA backend, [`crate::pipeline`] of stages, and [`crate::null`].
pub trait Executor: Send {
    /// What it can take; fixed for life.
    fn limits(&self) -> Limits;

    /// Is it still there? Asked again and again while there are no steps.
    ///
    /// # Errors
    /// As those of a step.
    fn check(&mut self) -> Result<(), ExecError> {
        Ok(())
    }

    /// How its cards were when last seen, if it watches any. Cheap: asked in every step.
    fn cards(&self) -> Arc<[Card]> {
        [].into()
    }

    /// Run one step.
    ///
    /// # Errors
    /// Only when the executor can no longer be trusted; a bad row answers [`RowOutput::NonFinite`].
    fn step(&mut self, batch: &StepBatch) -> Result<StepOutput, ExecError> {
        self.step_probed(batch, None)
    }

    /// Run one step and show every value to `probe`.
    ///
    /// # Errors
    /// As [`Executor::step`].
    fn step_probed(
        &mut self,
        batch: &StepBatch,
        probe: Option<&mut dyn Probe>,
    ) -> Result<StepOutput, ExecError>;
}
