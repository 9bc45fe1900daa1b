//! The threads that share the work of a step.
//!
//! A step is hundreds of short pieces of work with a few microseconds between them. A thread that went to sleep there
//! would be woken too late, so an idle thread looks out for work for a while before it sleeps.
#![allow(unsafe_code)]

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread};

/// How often an idle thread looks for work before it sleeps: about a millisecond.
const LOOKS: u32 = 3_000;
/// After so many of them it lets others have the core in between.
const POLITE: u32 = 1_000;

/// A caller and its helpers.
#[derive(Debug)]
pub(crate) struct Team {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
    /// Work is going on: what is asked for meanwhile the asking thread does alone.
    busy: AtomicBool,
}

type Job = &'static (dyn Fn() + Sync);

#[derive(Default)]
struct Shared {
    job: Mutex<Option<Job>>,
    /// The number of the current job, whether it may still be entered, and how many helpers are inside: see [`State`].
    state: AtomicU64,
    asleep: Mutex<Vec<Thread>>,
    sleepers: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    stop: AtomicBool,
}

/// [`Shared::state`] taken apart: the number in the upper half, then the bit `OPEN`, then the helpers inside.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State(u64);

impl State {
    const OPEN: u64 = 1 << 31;

    fn number(self) -> u64 {
        self.0 >> 32
    }

    fn is_open(self) -> bool {
        self.0 & Self::OPEN != 0
    }

    fn inside(self) -> u64 {
        self.0 & (Self::OPEN - 1)
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("state", &self.state).finish_non_exhaustive()
    }
}

/// Nothing behind these locks can be left half changed.
fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Team {
    /// `threads` threads, the caller's included.
    pub(crate) fn new(threads: usize) -> std::io::Result<Team> {
        let shared = Arc::new(Shared::default());
        let mut team = Team { shared, helpers: Vec::new(), busy: AtomicBool::new(false) };
        for i in 1..threads {
            let shared = Arc::clone(&team.shared);
            let helper = thread::Builder::new().name(format!("cpu-{i}")).spawn(move || shared.help())?;
            team.helpers.push(helper);
        }
        Ok(team)
    }

    /// Threads.
    pub(crate) fn size(&self) -> usize {
        self.helpers.len() + 1
    }

    /// Runs `f` here and on every helper that comes before `f` has returned here: it must do all that is left to do.
    fn all(&self, f: &(dyn Fn() + Sync)) {
        if self.helpers.is_empty() || self.busy.swap(true, SeqCst) {
            return f();
        }
        let shared = &*self.shared;
        // SAFETY: helpers use the reference while they are counted as inside; none enters a job that is closed, and those
        // inside are waited for below, come what may.
        let job = unsafe { std::mem::transmute::<&(dyn Fn() + Sync), Job>(f) };
        *lock(&shared.job) = Some(job);
        let number = State(shared.state.load(SeqCst)).number() + 1;
        shared.state.store(number << 32 | State::OPEN, SeqCst);
        shared.wake();
        let mine = catch_unwind(AssertUnwindSafe(f));
        shared.state.fetch_and(!State::OPEN, SeqCst);
        look_until(u32::MAX, || State(shared.state.load(SeqCst)).inside() == 0);
        self.busy.store(false, SeqCst);
        let theirs = lock(&shared.panic).take();
        if let Some(panic) = mine.err().or(theirs) {
            resume_unwind(panic);
        }
    }

    /// Shares out the items: each thread takes the next one when it is done with its last.
    pub(crate) fn share<T>(&self, items: impl Iterator<Item = T> + Send, f: impl Fn(T) + Sync) {
        let items = Mutex::new(items);
        let next = || lock(&items).next();
        self.all(&|| {
            while let Some(item) = next() {
                f(item);
            }
        });
    }

    /// Shares out the runs of `width` elements of `out`; each is work enough for a thread.
    pub(crate) fn runs<T: Send>(&self, out: &mut [T], width: usize, f: impl Fn(usize, &mut [T]) + Sync) {
        if width > 0 {
            self.share(out.chunks_mut(width).enumerate(), |(i, run)| f(i, run));
        }
    }

    /// The same for light work, many runs at a time.
    pub(crate) fn fill(&self, out: &mut [f32], width: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
        /// Fewer elements than this are no work for a second thread.
        const LEAST: usize = 16384;
        let Some(least) = LEAST.checked_div(width) else { return };
        let many = least.max(1);
        let work = |(c, piece): (usize, &mut [f32])| {
            piece.chunks_mut(width).enumerate().for_each(|(i, run)| f(c * many + i, run));
        };
        let mut pieces = out.chunks_mut(width * many).enumerate();
        match pieces.len() {
            0 | 1 => pieces.by_ref().for_each(work),
            _ => self.share(pieces, work),
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
        self.shared.wake();
        // a helper's panic was passed on by the call that met it
        self.helpers.drain(..).for_each(|h| drop(h.join()));
    }
}

impl Shared {
    fn help(&self) {
        let mut done = 0;
        while !self.stop.load(SeqCst) {
            let state = State(self.state.load(SeqCst));
            if !state.is_open() || state.number() == done {
                let called = || {
                    let state = State(self.state.load(SeqCst));
                    state.is_open() && state.number() != done || self.stop.load(SeqCst)
                };
                if !look_until(LOOKS, called) {
                    lock(&self.asleep).push(thread::current());
                    self.sleepers.fetch_add(1, SeqCst);
                    if !called() {
                        thread::park();
                    }
                }
                continue;
            }
            if self.state.compare_exchange(state.0, state.0 + 1, SeqCst, SeqCst).is_ok() {
                done = state.number();
                let job = *lock(&self.job);
                if let Some(Err(panic)) = job.map(|job| catch_unwind(AssertUnwindSafe(job))) {
                    *lock(&self.panic) = Some(panic);
                }
                self.state.fetch_sub(1, SeqCst);
            }
        }
    }

    fn wake(&self) {
        if self.sleepers.swap(0, SeqCst) > 0 {
            lock(&self.asleep).drain(..).for_each(|t| t.unpark());
        }
    }
}

/// Looks at most so often (`u32::MAX`: without end) whether something has come true.
fn look_until(looks: u32, ready: impl Fn() -> bool) -> bool {
    let mut looked = 0u32;
    loop {
        if ready() {
            return true;
        }
        if looked == looks && looks != u32::MAX {
            return false;
        }
        looked = looked.saturating_add(1).min(u32::MAX - 1);
        if looked > POLITE { thread::yield_now() } else { std::hint::spin_loop() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_is_filled_once_by_any_number_of_threads() {
        for threads in [1, 2, 5] {
            let team = Team::new(threads).expect("threads");
            for round in 0..300 {
                let mut out = vec![0usize; 1000];
                team.runs(&mut out, 7, |i, run| {
                    run.iter_mut().enumerate().for_each(|(j, o)| *o += 7 * i + j)
                });
                assert!(out.iter().enumerate().all(|(i, o)| i == *o), "{threads} threads");
                if round % 100 == 99 {
                    thread::sleep(std::time::Duration::from_millis(5)); // all asleep
                }
            }
        }
    }

    #[test]
    fn work_asked_for_within_work_is_done() {
        let team = Team::new(3).expect("threads");
        let mut out = vec![0.0; 60_000];
        team.runs(&mut out, 20_000, |i, part| team.fill(part, 10, |j, run| run.fill((i * 2000 + j) as f32)));
        assert!(out.iter().enumerate().all(|(i, o)| (i / 10) as f32 == *o));
    }

    #[test]
    fn a_panic_comes_back_and_the_team_goes_on() {
        let team = Team::new(2).expect("threads");
        for at in 0..4 {
            let run = || team.share(0..4, |i| assert!(i != at, "number {i}"));
            assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
        }
        let done = AtomicUsize::new(0);
        team.share(0..10, |_| {
            done.fetch_add(1, SeqCst);
        });
        assert_eq!(done.into_inner(), 10);
    }
}
