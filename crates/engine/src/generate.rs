//! Runs many sequences over one executor: who takes part in a step, and what becomes of its answers.
//!
//! First come, first served. A sequence starts when the cache has room for all that it may ever need, so none is
//! ever thrown out. In a step every answering sequence has one row; what is left of the step goes to prompts, in order.

use crate::pager::{Lease, Pager, blocks_for};
use crate::request::{Done, Finish, Id, Part, Reply, Request, Warm};
use crate::sample::History;
use crate::stats::Stats;
use crate::{Error, Result};
use shardwright_model::exec::{Executor, Limits, RowOutput, StepBatch, StepOutput, Want};
use std::collections::{BTreeSet, VecDeque};
use std::mem;
use std::time::Instant;

/// The generation loop.
pub struct Generator {
    executor: Box<dyn Executor>,
    limits: Limits,
    pager: Pager,
    ends: BTreeSet<u32>,
    chunk: usize,
    waiting: VecDeque<(Id, Request)>,
    running: Vec<Sequence>,
    next: u64,
    /// Sums since the start.
    stats: Stats,
}

/// A sequence that holds cache blocks.
struct Sequence {
    id: Id,
    request: Request,
    /// Prompt and answer.
    tokens: Vec<u32>,
    /// How many of them are cached.
    cached: usize,
    /// How many of the prompt were cached from the start.
    reused: usize,
    /// Where the answer ends at the latest.
    most: usize,
    history: History,
    lease: Lease,
    /// Candidates were too few for the next token.
    needs_logits: bool,
    /// Takes part in no step.
    held: bool,
}

impl std::fmt::Debug for Generator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counts = (self.waiting.len(), self.running.len());
        f.debug_struct("Generator").field("waiting, running", &counts).finish_non_exhaustive()
    }
}

impl Generator {
    /// `ends` are the tokens that end a turn.
    pub fn new(executor: Box<dyn Executor>, ends: impl IntoIterator<Item = u32>) -> Generator {
        let limits = executor.limits();
        Generator {
            pager: Pager::new(limits.blocks),
            ends: ends.into_iter().collect(),
            chunk: limits.rows,
            waiting: VecDeque::new(),
            running: Vec::new(),
            next: 0,
            stats: Stats::default(),
            executor,
            limits,
        }
    }

    /// At most `rows` rows a step, for those who want prompts cut finer than the executor needs.
    #[must_use]
    pub fn chunked(mut self, rows: usize) -> Generator {
        self.chunk = rows.clamp(1, self.limits.rows);
        self
    }

    /// The executor's limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// How things stand, and what was done.
    pub fn stats(&self) -> Stats {
        Stats {
            running: self.running.len(),
            waiting: self.waiting.len(),
            blocks: self.pager.total(),
            blocks_free: self.pager.free(),
            ..self.stats.clone()
        }
    }

    /// Cache blocks and their holders.
    pub fn pager(&self) -> &Pager {
        &self.pager
    }

    /// Queue a request.
    ///
    /// # Errors
    /// It could never be run.
    pub fn submit(&mut self, request: Request) -> Result<Id> {
        request.check(&self.limits)?;
        let id = Id(self.next);
        self.enqueue(id, request);
        Ok(id)
    }

    /// Queue a request that has been checked, under a name that was never used.
    pub(crate) fn enqueue(&mut self, id: Id, request: Request) {
        self.next = self.next.max(id.0 + 1);
        self.stats.requests += 1;
        let at = self.waiting.partition_point(|w| w.0 < id);
        self.waiting.insert(at, (id, request));
    }

    /// Sets a running request aside, or goes on with it. It keeps its blocks.
    pub fn hold(&mut self, id: Id, held: bool) {
        if let Some(sequence) = self.running.iter_mut().find(|s| s.id == id) {
            sequence.held = held;
        }
    }

    /// How many requests wait for their turn.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Nothing can be computed now: all that was begun is held, and nothing else waits.
    pub fn is_resting(&self) -> bool {
        self.running.iter().all(|s| s.held) && (self.waiting.is_empty() || !self.running.is_empty())
    }

    /// Ends a request now; its last reply, or None if it is over already.
    pub fn cancel(&mut self, id: Id) -> Option<Reply> {
        if let Some(i) = self.running.iter().position(|s| s.id == id) {
            self.stats.cancelled += 1;
            return Some(self.running.remove(i).done(Finish::Cancelled));
        }
        let i = self.waiting.iter().position(|w| w.0 == id)?;
        let (_, mut request) = self.waiting.remove(i)?;
        self.stats.cancelled += 1;
        let (lease, cached) = place(&self.pager, &mut request, 0)?;
        Some(Sequence::new(id, request, lease, cached).done(Finish::Cancelled))
    }

    /// How many tokens of a running request are cached: while its prompt is read, how far that is.
    pub fn cached(&self, id: Id) -> Option<usize> {
        self.running.iter().find(|s| s.id == id).map(|s| s.cached)
    }

    /// Nothing is waiting or running.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Runs one step; does nothing when idle.
    ///
    /// # Errors
    /// The executor failed, and with it all requests.
    pub fn step(&mut self) -> Result<Vec<Reply>> {
        let mut replies = self.admit();
        let (batch, shares) = self.batch();
        if batch.rows() == 0 {
            if self.running.is_empty() {
                replies.extend(self.refuse());
            }
            return Ok(replies);
        }
        let started = Instant::now();
        let StepOutput { rows, .. } = self.executor.step(&batch)?;
        self.stats.steps.add(started.elapsed());
        let mut rows = rows.into_iter();
        for (mut sequence, share) in mem::take(&mut self.running).into_iter().zip(shares) {
            if share == 0 {
                self.running.push(sequence);
                continue;
            }
            let answers: Vec<RowOutput> = rows.by_ref().take(share).collect();
            sequence.cached += share;
            match sequence.advance(&answers, &self.ends) {
                Ok((token, finish)) => {
                    self.stats.answer_tokens += u64::from(token.is_some() || finish.is_some());
                    replies.extend(token.map(|part| Reply { id: sequence.id, part }));
                    match finish {
                        Some(finish) => replies.push(sequence.done(finish)),
                        None => self.running.push(sequence),
                    }
                }
                Err(e) => {
                    self.stats.non_finite += u64::from(matches!(e, Error::NonFinite { .. }));
                    replies.push(Reply { id: sequence.id, part: Part::Failed(e) });
                }
            }
        }
        Ok(replies)
    }

    /// Starts waiting requests while there is room, in order.
    fn admit(&mut self) -> Vec<Reply> {
        let mut replies = Vec::new();
        while let Some((_, request)) = self.waiting.front_mut().filter(|_| self.running.len() < self.chunk) {
            let most = request.most(self.limits.context);
            let Some((lease, cached)) = place(&self.pager, request, most) else { break };
            if let Some((id, request)) = self.waiting.pop_front() {
                self.stats.prompt_tokens += request.prompt.len() as u64;
                self.stats.reused_tokens += cached as u64;
                replies.push(Reply { id, part: Part::Started { reused: cached } });
                self.running.push(Sequence { most, ..Sequence::new(id, request, lease, cached) });
            }
        }
        replies
    }

    /// With nothing running no block will come free: what is missing is in caches that somebody keeps.
    fn refuse(&mut self) -> Option<Reply> {
        let (id, request) = self.waiting.pop_front()?;
        let needed = blocks_for(request.most(self.limits.context));
        let error = Error::CacheTooSmall { needed, blocks: self.pager.free() };
        Some(Reply { id, part: Part::Failed(error) })
    }

    /// The next step, and how many of its rows each running sequence has.
    fn batch(&self) -> (StepBatch, Vec<usize>) {
        let mut left = self.chunk;
        let mut shares = vec![0; self.running.len()];
        // Answers first: each has one row, and there are never more sequences than rows.
        for answers in [true, false] {
            let now = |s: &Sequence| !s.held && s.is_answering() == answers;
            for (share, s) in shares.iter_mut().zip(&self.running).filter(|(_, s)| now(s)) {
                *share = (s.tokens.len() - s.cached).min(left);
                left -= *share;
            }
        }
        let mut batch = StepBatch::default();
        for (s, share) in self.running.iter().zip(&shares).filter(|(_, share)| **share > 0) {
            s.fill(&mut batch, *share);
        }
        (batch, shares)
    }
}

/// Cache blocks for a request, and how much of its prompt they already hold.
fn place(pager: &Pager, request: &mut Request, most: usize) -> Option<(Lease, usize)> {
    let Some(mut warm) = request.warm.take() else { return Some((pager.lease(most)?, 0)) };
    if !warm.lease.grow(most) {
        request.warm = Some(warm);
        return None;
    }
    let same = warm.tokens.iter().zip(&request.prompt).take_while(|(a, b)| a == b).count();
    // The last token is always run: its row is the one that answers.
    Some((warm.lease, same.min(request.prompt.len() - 1)))
}

impl Sequence {
    fn new(id: Id, request: Request, lease: Lease, cached: usize) -> Sequence {
        Sequence {
            id,
            tokens: request.prompt.clone(),
            cached,
            reused: cached,
            most: request.prompt.len(),
            history: History::new(&request.prompt),
            request,
            lease,
            needs_logits: false,
            held: false,
        }
    }

    fn is_answering(&self) -> bool {
        self.tokens.len() > self.request.prompt.len()
    }

    /// Adds the next `share` tokens to a step; only the last token known is asked for an answer.
    fn fill(&self, batch: &mut StepBatch, share: usize) {
        let sequence = batch.tables.len() as u32;
        for at in self.cached..self.cached + share {
            batch.tokens.push(self.tokens[at]);
            batch.positions.push(at as u32);
            batch.sequences.push(sequence);
            let last = at + 1 == self.tokens.len();
            batch.wants.push(if last { self.want() } else { Want::Nothing });
        }
        batch.tables.push(self.lease.blocks().to_vec());
    }

    fn want(&self) -> Want {
        if self.needs_logits { Want::Logits } else { self.request.sampling.want() }
    }

    /// Takes the answers to its rows: perhaps a token, perhaps the end.
    fn advance(
        &mut self,
        answers: &[RowOutput],
        ends: &BTreeSet<u32>,
    ) -> Result<(Option<Part>, Option<Finish>)> {
        if let Some(RowOutput::NonFinite { at }) =
            answers.iter().find(|a| matches!(a, RowOutput::NonFinite { .. }))
        {
            return Err(Error::non_finite(at));
        }
        let Some(row) = answers.last().filter(|_| self.cached == self.tokens.len()) else {
            return Ok((None, None));
        };
        let Some(choice) = self.request.sampling.choose(row, &self.history)? else {
            // Run the row again: it writes the same cache row, and this time all logits come back.
            (self.needs_logits, self.cached) = (true, self.cached - 1);
            return Ok((None, None));
        };
        self.needs_logits = false;
        self.history.push(choice.token);
        self.tokens.push(choice.token);
        if ends.contains(&choice.token) && !self.request.ignore_eos {
            return Ok((None, Some(Finish::EndToken)));
        }
        let events = self.request.reader.push(choice.token);
        Ok((Some(Part::Token { choice, events }), self.finish()))
    }

    /// Is this the end, after a token that does not end the turn?
    fn finish(&self) -> Option<Finish> {
        let answered = self.tokens.len() - self.request.prompt.len();
        if self.request.reader.stopped() {
            Some(Finish::StopString)
        } else if self.request.max_tokens.is_some_and(|most| answered >= most) {
            Some(Finish::MaxTokens)
        } else {
            (self.tokens.len() >= self.most).then_some(Finish::ContextFull)
        }
    }

    fn done(mut self, finish: Finish) -> Reply {
        let (events, message) = mem::take(&mut self.request.reader).finish(finish);
        let prompt = self.request.prompt.len();
        let answered = self.tokens.len() - prompt;
        self.tokens.truncate(self.cached);
        let warm = self.request.keep_warm.then_some(Warm { tokens: self.tokens, lease: self.lease });
        let done = Done { finish, events, message, prompt, reused: self.reused, answered, warm };
        Reply { id: self.id, part: Part::Done(Box::new(done)) }
    }
}
