//! A request on its way: its tokens, its cache blocks, and what a step's answers do to it.

use crate::pager::{Lease, Pager};
use crate::request::{Done, Finish, Id, Part, Pooling, Request};
use crate::sample::{History, Logprobs, logprobs};
use crate::{Error, Result};
use shardwright_model::exec::{BLOCK, RowOutput, StepBatch, Want};
use std::collections::BTreeSet;
use std::mem;

/// Most rows of a step for which a sequence gets all logits, which are much to carry.
const SCORED_ROWS: usize = 64;

/// A request that waits or runs. One that is set back to waiting keeps everything but its cache.
pub(crate) struct Sequence {
    pub(crate) id: Id,
    /// Takes part in no step.
    pub(crate) held: bool,
    /// Rows in the step at hand.
    pub(crate) share: usize,
    request: Request,
    /// Prompt and answer.
    tokens: Vec<u32>,
    /// How many of them are cached.
    cached: usize,
    /// How many of the prompt were cached when it began; None: it has not begun.
    reused: Option<usize>,
    /// Where the answer ends at the latest.
    most: usize,
    history: History,
    lease: Lease,
    /// Tokens of those that came later and began before it, for want of room.
    passed: usize,
    /// Candidates were too few for the next token.
    needs_logits: bool,
    /// How likely the prompt's tokens were, as far as it is read; None: not asked for, or told.
    scores: Option<Vec<Logprobs>>,
    /// The sum of the hidden states to be pooled, as far as it is read.
    pooled: Vec<f64>,
}

/// What came of an attempt to start.
pub(crate) enum Start {
    /// It has its blocks.
    Begun,
    /// Blocks are missing.
    NoRoom,
    /// Somebody is computing what it will find in the cache in a moment.
    Later,
}

impl Sequence {
    pub(crate) fn new(id: Id, request: Request, pager: &Pager, context: usize) -> Sequence {
        Sequence {
            id,
            held: false,
            share: 0,
            tokens: request.prompt.clone(),
            cached: 0,
            reused: None,
            most: request.most(context),
            history: History::new(&request.sampling, &request.prompt),
            lease: pager.lease(&[]),
            passed: 0,
            needs_logits: false,
            scores: request.prompt_logprobs.map(|_| Vec::new()),
            pooled: Vec::new(),
            request,
        }
    }

    /// Tokens that are to be computed; one more is chosen after the last.
    pub(crate) fn pending(&self) -> usize {
        self.tokens.len() - self.cached
    }

    /// Rows that it can take beyond its share.
    pub(crate) fn room(&self) -> usize {
        let most = if self.scores.is_some() { SCORED_ROWS } else { usize::MAX };
        self.pending().min(most) - self.share
    }

    /// Are hidden states to come back?
    pub(crate) fn wants_hidden(&self) -> bool {
        self.request.pooling.is_some()
    }

    pub(crate) fn cached(&self) -> usize {
        self.cached
    }

    /// May this one begin first, though it came later? Not if somebody sees the answer stand still meanwhile.
    pub(crate) fn lets_pass(&self, other: &Sequence) -> bool {
        self.reused.is_none() && self.passed + other.tokens.len() <= self.tokens.len()
    }

    /// This one began first.
    pub(crate) fn passed_by(&mut self, other: &Sequence) {
        self.passed += other.tokens.len();
    }

    /// Takes blocks for all its tokens and leaves `spare` to others.
    pub(crate) fn start(&mut self, pager: &Pager, spare: usize, running: &[Sequence]) -> Start {
        // The last token is always run: its row is the one that answers.
        let runs_all = self.scores.is_some() || self.request.pooling == Some(Pooling::Mean);
        let findable = if runs_all { 0 } else { self.tokens.len() - 1 };
        let mut lease = pager.lease(&self.tokens[..findable]);
        let cached = lease.pages() * BLOCK;
        if let Some(next) = self.tokens[..findable].get(..cached + BLOCK)
            && running.iter().any(|other| other.will_publish(next, pager))
        {
            return Start::Later;
        }
        if !lease.grow(self.tokens.len()) || pager.free() < spare {
            return Start::NoRoom;
        }
        (self.lease, self.cached) = (lease, cached);
        Start::Begun
    }

    /// Will a page of exactly these tokens, from the first on, soon be there?
    fn will_publish(&self, tokens: &[u32], pager: &Pager) -> bool {
        !self.held && pager.has_pages() && self.cached < tokens.len() && self.tokens.starts_with(tokens)
    }

    /// Gives its blocks back.
    pub(crate) fn set_back(&mut self, pager: &Pager) {
        (self.lease, self.cached, self.share) = (pager.lease(&[]), 0, 0);
        self.scores.iter_mut().for_each(Vec::clear);
        self.pooled.clear();
    }

    /// Room for the tokens known. False if there is none.
    pub(crate) fn grow(&mut self) -> bool {
        self.lease.grow(self.tokens.len())
    }

    /// Tokens found in the cache, told once, and the length of the prompt.
    pub(crate) fn begin(&mut self) -> Option<(usize, usize)> {
        let first = self.reused.is_none();
        let reused = *self.reused.get_or_insert(self.cached.min(self.request.prompt.len()));
        first.then_some((reused, self.request.prompt.len()))
    }

    /// Adds its share to a step as sequence number `sequence`; only the last token known is asked for an answer.
    pub(crate) fn fill(&self, batch: &mut StepBatch, sequence: usize) {
        for at in self.cached..self.cached + self.share {
            batch.tokens.push(self.tokens[at]);
            batch.positions.push(at as u32);
            batch.sequences.push(sequence as u32);
            batch.wants.push(self.want(at));
        }
        if sequence == batch.tables.len() {
            batch.tables.push(Vec::new());
        }
        self.lease.blocks().clone_into(&mut batch.tables[sequence]);
    }

    fn want(&self, at: usize) -> Want {
        let last = at + 1 == self.tokens.len();
        // Candidates are often none of those that a guide allows.
        let all = self.needs_logits || self.request.guide.is_some();
        match last && !self.request.only_reads() {
            true if all => Want::Logits,
            true => self.request.sampling.want(),
            false if !last && self.scores.is_some() => Want::Logits,
            false => Want::Nothing,
        }
    }

    /// Takes the answers to its share: perhaps parts for the client, perhaps the end. `hidden` are its rows' hidden
    /// states, if they came back.
    pub(crate) fn advance(
        &mut self,
        answers: &[RowOutput],
        hidden: &[f32],
        ends: &BTreeSet<u32>,
        parts: &mut impl FnMut(Part),
    ) -> Result<Option<Finish>> {
        let bad = |a: &&RowOutput| matches!(a, RowOutput::NonFinite { .. });
        if let Some(RowOutput::NonFinite { at }) = answers.iter().find(bad) {
            return Err(Error::non_finite(at));
        }
        self.score(answers);
        self.pool(answers.len(), hidden);
        self.cached += answers.len();
        let Some(row) = answers.last().filter(|_| self.cached == self.tokens.len()) else {
            self.lease.publish(&self.tokens[..self.cached]);
            return Ok(None);
        };
        if let Some(scores) = self.scores.take() {
            parts(Part::Prompt(scores));
        }
        if self.request.only_reads() {
            self.lease.publish(&self.tokens);
            return Ok(Some(Finish::MaxTokens));
        }
        self.answer(row, ends, parts)
    }

    /// How likely the tokens after these rows were.
    fn score(&mut self, answers: &[RowOutput]) {
        let (Some(scores), Some(n)) = (&mut self.scores, self.request.prompt_logprobs) else { return };
        let next = &self.tokens[self.cached + 1..];
        scores.extend(answers.iter().zip(next).map(|(row, token)| logprobs(row, None, *token, n)));
    }

    fn pool(&mut self, rows: usize, hidden: &[f32]) {
        let Some(pooling) = self.request.pooling.filter(|_| rows > 0) else { return };
        let width = hidden.len() / rows;
        self.pooled.resize(width, 0.0);
        for row in hidden.chunks_exact(width.max(1)) {
            if pooling == Pooling::Last {
                self.pooled.fill(0.0);
            }
            self.pooled.iter_mut().zip(row).for_each(|(sum, x)| *sum += f64::from(*x));
        }
    }

    /// Chooses the next token by the last row.
    fn answer(
        &mut self,
        row: &RowOutput,
        ends: &BTreeSet<u32>,
        parts: &mut impl FnMut(Part),
    ) -> Result<Option<Finish>> {
        let early = self.answered() < self.request.ending.min_tokens;
        let Request { guide, sampling, ending, .. } = &mut self.request;
        let allowed = guide.as_mut().map(|guide| guide.allowed()).transpose()?;
        let may = |id| allowed.is_none_or(|a| a.contains(id)) && !(early && ending.is_end(id, ends));
        let Some(choice) = sampling.choose_among(row, &self.history, may)? else {
            // Run the row again: it writes the same cache row, and this time all logits come back.
            (self.needs_logits, self.cached) = (true, self.cached - 1);
            return Ok(None);
        };
        self.lease.publish(&self.tokens[..self.cached]);
        self.needs_logits = false;
        self.history.push(choice.token);
        self.tokens.push(choice.token);
        if self.request.ending.is_end(choice.token, ends) {
            return Ok(Some(Finish::EndToken));
        }
        let complete = match &mut self.request.guide {
            Some(guide) => guide.accept(choice.token)?,
            None => false,
        };
        self.request.reader.heed_stops(self.answered() > self.request.ending.min_tokens);
        let events = self.request.reader.push(choice.token);
        parts(Part::Token { choice, events });
        Ok(self.finish().or(complete.then_some(Finish::EndToken)))
    }

    pub(crate) fn answered(&self) -> usize {
        self.tokens.len() - self.request.prompt.len()
    }

    /// Is this the end, after a token that does not end the turn?
    fn finish(&self) -> Option<Finish> {
        if self.request.reader.stopped() {
            Some(Finish::StopString)
        } else if self.request.max_tokens.is_some_and(|most| self.answered() >= most) {
            Some(Finish::MaxTokens)
        } else {
            (self.tokens.len() >= self.most).then_some(Finish::ContextFull)
        }
    }

    /// Its last part.
    pub(crate) fn done(&mut self, finish: Finish) -> Part {
        let (events, message) = mem::take(&mut self.request.reader).finish(finish);
        let (prompt, reused) = (self.request.prompt.len(), self.reused.unwrap_or(0));
        let rows = if self.request.pooling == Some(Pooling::Mean) { prompt } else { 1 };
        let embedding = || self.pooled.iter().map(|sum| (sum / rows as f64) as f32).collect();
        let embedding = self.request.pooling.map(|_| embedding());
        let answered = self.answered();
        Part::Done(Box::new(Done { finish, events, message, prompt, reused, answered, embedding }))
    }
}
