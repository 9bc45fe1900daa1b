//! Runs many sequences over one executor, a step at a time: batches go in, parts of answers come out.

use crate::options::Options;
use crate::pace::Pace;
use crate::pager::Pager;
use crate::request::{Finish, Id, Part, Reply, Request};
use crate::scheduler::Scheduler;
use crate::sequence::Sequence;
use crate::stats::Stats;
use crate::{Error, Result};
use shardwright_model::exec::{Executor, Limits, StepBatch, StepOutput};
use std::collections::BTreeSet;
use std::time::Instant;

/// The generation loop.
pub struct Generator {
    executor: Box<dyn Executor>,
    limits: Limits,
    ends: BTreeSet<u32>,
    /// Most rows of a step.
    rows: usize,
    scheduler: Scheduler,
    pace: Pace,
    /// Kept for its memory.
    batch: StepBatch,
    next: u64,
    /// Sums since the start.
    stats: Stats,
}

impl std::fmt::Debug for Generator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counts = (self.scheduler.waiting.len(), self.scheduler.running.len());
        f.debug_struct("Generator").field("waiting, running", &counts).finish_non_exhaustive()
    }
}

impl Generator {
    /// `ends` are the tokens that end a turn.
    pub fn new(executor: Box<dyn Executor>, ends: impl IntoIterator<Item = u32>) -> Generator {
        Generator::with(executor, ends, &Options::default())
    }

    /// With choices.
    pub fn with(
        executor: Box<dyn Executor>,
        ends: impl IntoIterator<Item = u32>,
        options: &Options,
    ) -> Generator {
        let limits = executor.limits();
        let pager = Pager::new(limits.blocks);
        let pager = if options.prefix_cache { pager } else { pager.without_pages() };
        let rows = options.rows.clamp(1, limits.rows);
        Generator {
            executor,
            limits,
            ends: ends.into_iter().collect(),
            rows,
            scheduler: Scheduler::new(pager, options.sequences.clamp(1, rows)),
            pace: Pace::new(options.prompt_time),
            batch: StepBatch::default(),
            next: 0,
            stats: Stats::default(),
        }
    }

    /// The executor's limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Knows what is cached.
    pub(crate) fn pager(&self) -> &Pager {
        &self.scheduler.pager
    }

    /// Is the executor still there?
    ///
    /// # Errors
    /// It is not, and with it all requests are lost.
    pub fn check(&mut self) -> Result<()> {
        Ok(self.executor.check()?)
    }

    /// How things stand, and what was done.
    pub fn stats(&self) -> Stats {
        let Scheduler { pager, waiting, running, set_back, .. } = &self.scheduler;
        Stats {
            running: running.len(),
            waiting: waiting.len(),
            blocks: pager.total(),
            blocks_free: pager.free(),
            blocks_cached: pager.idle(),
            preemptions: *set_back,
            cards: self.executor.cards(),
            ..self.stats.clone()
        }
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
        let sequence = Sequence::new(id, request, &self.scheduler.pager, self.limits.context);
        self.scheduler.enqueue(sequence);
    }

    /// Sets a request aside, or goes on with it. Aside it keeps its blocks until somebody needs them.
    pub fn hold(&mut self, id: Id, held: bool) {
        self.scheduler.hold(id, held);
    }

    /// Nothing can be computed now: there is no request that is not set aside.
    pub fn is_resting(&self) -> bool {
        self.scheduler.is_resting()
    }

    /// Ends a request now; its last reply, or None if it is over already.
    pub fn cancel(&mut self, id: Id) -> Option<Reply> {
        let mut sequence = self.scheduler.remove(id)?;
        self.stats.cancelled += 1;
        Some(Reply { id, part: sequence.done(Finish::Cancelled) })
    }

    /// How many tokens of a running request are cached: while its prompt is read, how far that is.
    pub fn cached(&self, id: Id) -> Option<usize> {
        self.scheduler.running.iter().find(|s| s.id == id).map(Sequence::cached)
    }

    /// Nothing is waiting or running.
    pub fn is_idle(&self) -> bool {
        self.scheduler.waiting.is_empty() && self.scheduler.running.is_empty()
    }

    /// Runs one step; does nothing when idle.
    ///
    /// # Errors
    /// The executor failed, and with it all requests.
    pub fn step(&mut self) -> Result<Vec<Reply>> {
        self.scheduler.admit();
        let mut replies = Vec::with_capacity(2 * self.scheduler.running.len());
        for sequence in &mut self.scheduler.running {
            if let Some((reused, prompt)) = sequence.begin() {
                self.stats.prompt_tokens += prompt as u64;
                self.stats.reused_tokens += reused as u64;
                replies.push(Reply { id: sequence.id, part: Part::Started { reused } });
            }
        }
        let pace = &self.pace;
        self.scheduler.deal(self.rows, |answers| pace.chunk(answers));
        self.fill();
        if self.batch.rows() > 0 {
            let started = Instant::now();
            let output = self.executor.step(&self.batch)?;
            let took = started.elapsed();
            let answers = self.scheduler.running.iter().filter(|s| s.share == 1).count();
            self.pace.saw(answers, self.batch.rows() - answers, took);
            self.stats.steps.add(took);
            self.settle(&output, &mut replies);
        }
        Ok(replies)
    }

    /// The batch of the shares dealt out.
    fn fill(&mut self) {
        let batch = &mut self.batch;
        batch.tokens.clear();
        batch.positions.clear();
        batch.sequences.clear();
        batch.wants.clear();
        let taking_part = self.scheduler.running.iter().filter(|s| s.share > 0);
        let count = taking_part.enumerate().map(|(i, s)| s.fill(batch, i)).count();
        batch.tables.truncate(count);
        batch.want_hidden = self.scheduler.running.iter().any(|s| s.share > 0 && s.wants_hidden());
    }

    /// Gives every sequence the answers to its rows.
    fn settle(&mut self, output: &StepOutput, replies: &mut Vec<Reply>) {
        let Generator { scheduler, stats, ends, .. } = self;
        let before = scheduler.running.len();
        let mut rows = &output.rows[..];
        let mut hidden = &output.hidden[..];
        let width = hidden.len() / rows.len().max(1);
        scheduler.running.retain_mut(|sequence| {
            let (answers, states);
            (answers, rows) = rows.split_at(sequence.share);
            (states, hidden) = hidden.split_at(sequence.share * width);
            let (id, answered) = (sequence.id, sequence.answered());
            let advanced =
                sequence.advance(answers, states, ends, &mut |part| replies.push(Reply { id, part }));
            stats.answer_tokens += (sequence.answered() - answered) as u64;
            let last = match advanced {
                Ok(None) => return true,
                Ok(Some(finish)) => sequence.done(finish),
                Err(e) => {
                    stats.non_finite += u64::from(matches!(e, Error::NonFinite { .. }));
                    Part::Failed(e)
                }
            };
            replies.push(Reply { id, part: last });
            false
        });
        if scheduler.running.len() < before {
            scheduler.stir();
        }
    }
}
