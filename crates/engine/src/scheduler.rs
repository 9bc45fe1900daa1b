//! Who takes part in the next step, with how many rows, and who has to give way.
//!
//! First come, first served. A sequence starts when there are blocks for all tokens it has and one more for everybody
//! who runs; its answer takes more as it grows. When they run out, the one that came last is set back: it waits again
//! in its old place, and later computes its tokens once more. Before it, and for anyone who waits, those give way whose
//! readers are too slow to take more. Whoever waits for room is passed by others that fit, until they have as many tokens
//! together as it has: a short request does not wait for long ones, and these do not wait for ever. A sequence that begins like one that is being read lets that one finish the blocks
//! they share, and then finds them in the cache: so several answers to one prompt are as many requests.

use crate::pager::Pager;
use crate::request::Id;
use crate::sequence::{Sequence, Start};
use std::collections::VecDeque;

/// All sequences, those that wait and those that run, each in the order in which they came.
pub(crate) struct Scheduler {
    pub(crate) pager: Pager,
    pub(crate) waiting: VecDeque<Sequence>,
    pub(crate) running: Vec<Sequence>,
    /// How many were set back.
    pub(crate) set_back: u64,
    /// Most that run at a time.
    seats: usize,
    /// There may be room now for who waits.
    stirred: bool,
}

impl Scheduler {
    pub(crate) fn new(pager: Pager, seats: usize) -> Scheduler {
        Scheduler { pager, waiting: VecDeque::new(), running: Vec::new(), set_back: 0, seats, stirred: true }
    }

    pub(crate) fn enqueue(&mut self, sequence: Sequence) {
        let at = self.waiting.partition_point(|other| other.id < sequence.id);
        self.waiting.insert(at, sequence);
        self.stirred = true;
    }

    /// Takes a sequence out.
    pub(crate) fn remove(&mut self, id: Id) -> Option<Sequence> {
        self.stirred = true;
        match self.running.iter().position(|s| s.id == id) {
            Some(at) => Some(self.running.remove(at)),
            None => self.waiting.iter().position(|s| s.id == id).and_then(|at| self.waiting.remove(at)),
        }
    }

    /// Sets a sequence aside or goes on with it.
    pub(crate) fn hold(&mut self, id: Id, held: bool) {
        self.stirred = true;
        if let Some(sequence) = self.running.iter_mut().chain(&mut self.waiting).find(|s| s.id == id) {
            sequence.held = held;
        }
    }

    /// A sequence has ended.
    pub(crate) fn stir(&mut self) {
        self.stirred = true;
    }

    /// Nothing can be computed.
    pub(crate) fn is_resting(&self) -> bool {
        self.running.iter().chain(&self.waiting).all(|s| s.held)
    }

    /// Starts those that wait, as long as there is room, and sees to it that all that run can grow.
    pub(crate) fn admit(&mut self) {
        // The first of those that have no room.
        let mut stuck: Option<usize> = None;
        let (mut at, mut later) = (0, false);
        while self.stirred && at < self.waiting.len() {
            let next = &self.waiting[at];
            if next.held || stuck.is_some_and(|first| !self.waiting[first].lets_pass(next)) {
                at += 1;
                continue;
            }
            let start = match self.running.len() < self.seats {
                true => self.waiting[at].start(&self.pager, self.running.len(), &self.running),
                false => Start::NoRoom,
            };
            match start {
                Start::Later => (at, later) = (at + 1, true),
                Start::Begun => self.begin(at, stuck),
                Start::NoRoom => match self.running.iter().rposition(|s| s.held) {
                    Some(held) => {
                        self.set_back(held);
                        (at, stuck) = (0, None);
                    }
                    None => (at, stuck) = (at + 1, stuck.or(Some(at))),
                },
            }
        }
        self.stirred &= later || stuck.is_none();
        self.make_room();
    }

    /// Moves one to those that run; it may have passed one that still waits.
    fn begin(&mut self, at: usize, passed: Option<usize>) {
        let Some(sequence) = self.waiting.remove(at) else { return };
        if let Some(first) = passed {
            self.waiting[first].passed_by(&sequence);
        }
        let place = self.running.partition_point(|other| other.id < sequence.id);
        self.running.insert(place, sequence);
    }

    /// A block for everybody whose last one is full.
    fn make_room(&mut self) {
        let mut at = 0;
        while let Some(sequence) = self.running.get_mut(at) {
            if sequence.held || sequence.grow() {
                at += 1;
                continue;
            }
            let held = self.running.iter().rposition(|s| s.held);
            let victim = held.unwrap_or(self.running.len() - 1);
            self.set_back(victim);
            at -= usize::from(victim < at);
        }
    }

    fn set_back(&mut self, at: usize) {
        let mut sequence = self.running.remove(at);
        sequence.set_back(&self.pager);
        self.enqueue(sequence);
        self.set_back += 1;
    }

    /// Deals out the rows of a step: one to every answer; of the rest `chunk(answers)` to prompts, half of it to the
    /// first that came and what is left to the shortest first, so that neither waits for long.
    pub(crate) fn deal(&mut self, rows: usize, chunk: impl FnOnce(usize) -> usize) {
        let mut answers = 0;
        for s in &mut self.running {
            s.share = usize::from(!s.held && s.pending() == 1);
            answers += s.share;
        }
        let mut left = (rows - answers).min(chunk(answers));
        let reading = |s: &&mut Sequence| !s.held && s.pending() > 1;
        let mut readers: Vec<&mut Sequence> = self.running.iter_mut().filter(reading).collect();
        let Some((first, others)) = readers.split_first_mut() else { return };
        let half = left.div_ceil(2);
        give(first, half, &mut left);
        others.sort_by_key(|s| s.pending());
        others.iter_mut().for_each(|s| give(s, usize::MAX, &mut left));
        give(first, usize::MAX, &mut left);
    }
}

/// At most so many more rows to a sequence, of those that are left.
fn give(sequence: &mut Sequence, most: usize, left: &mut usize) {
    let more = sequence.room().min(most).min(*left);
    sequence.share += more;
    *left -= more;
}
