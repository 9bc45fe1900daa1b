//! A request on its way: its tokens, its cache blocks, and what a step's answers do to it.

use crate::pager::{Lease, Pager};
use crate::request::{Done, Finish, Id, Part, Request};
use crate::sample::History;
use crate::{Error, Result};
use shardwright_model::exec::{BLOCK, RowOutput, StepBatch, Want};
use std::collections::BTreeSet;
use std::mem;

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
    /// Candidates were too few for the next token.
    needs_logits: bool,
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
            needs_logits: false,
            request,
        }
    }

    /// Tokens that are to be computed; one more is chosen after the last.
    pub(crate) fn pending(&self) -> usize {
        self.tokens.len() - self.cached
    }

    pub(crate) fn cached(&self) -> usize {
        self.cached
    }

    /// Takes blocks for all its tokens and leaves `spare` to others.
    pub(crate) fn start(&mut self, pager: &Pager, spare: usize, running: &[Sequence]) -> Start {
        // The last token is always run: its row is the one that answers.
        let before_last = self.tokens.len() - 1;
        let mut lease = pager.lease(&self.tokens[..before_last]);
        let cached = lease.pages() * BLOCK;
        if let Some(next) = self.tokens[..before_last].get(..cached + BLOCK)
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
            let last = at + 1 == self.tokens.len();
            batch.wants.push(if last { self.want() } else { Want::Nothing });
        }
        if sequence == batch.tables.len() {
            batch.tables.push(Vec::new());
        }
        self.lease.blocks().clone_into(&mut batch.tables[sequence]);
    }

    fn want(&self) -> Want {
        if self.needs_logits { Want::Logits } else { self.request.sampling.want() }
    }

    /// Takes the answers to its share: perhaps a token, perhaps the end.
    pub(crate) fn advance(
        &mut self,
        answers: &[RowOutput],
        ends: &BTreeSet<u32>,
    ) -> Result<(Option<Part>, Option<Finish>)> {
        let bad = |a: &&RowOutput| matches!(a, RowOutput::NonFinite { .. });
        if let Some(RowOutput::NonFinite { at }) = answers.iter().find(bad) {
            return Err(Error::non_finite(at));
        }
        self.cached += answers.len();
        let Some(row) = answers.last().filter(|_| self.cached == self.tokens.len()) else {
            self.lease.publish(&self.tokens[..self.cached]);
            return Ok((None, None));
        };
        let Some(choice) = self.request.sampling.choose(row, &self.history)? else {
            // Run the row again: it writes the same cache row, and this time all logits come back.
            (self.needs_logits, self.cached) = (true, self.cached - 1);
            return Ok((None, None));
        };
        self.lease.publish(&self.tokens[..self.cached]);
        self.needs_logits = false;
        self.history.push(choice.token);
        self.tokens.push(choice.token);
        if ends.contains(&choice.token) && !self.request.ignore_eos {
            return Ok((None, Some(Finish::EndToken)));
        }
        let events = self.request.reader.push(choice.token);
        Ok((Some(Part::Token { choice, events }), self.finish()))
    }

    fn answered(&self) -> usize {
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
        Part::Done(Box::new(Done { finish, events, message, prompt, reused, answered: self.answered() }))
    }
}
