//! The generation loop in a thread of its own: requests come in from any thread, parts of answers go out to sinks.
//!
//! The thread owns the executor. It never waits for a client: a sink takes what it is given or says that it is full,
//! and then its request rests until the sink is ready.

use crate::generate::Generator;
pub use crate::options::Options;
use crate::pager::Pager;
use crate::request::{Id, Part, Request};
use crate::stats::Stats;
use crate::worker::{Event, Worker};
use crate::{Error, Result};
use shardwright_model::exec::{Executor, Limits};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Takes the parts of one answer: in the end [`Part::Done`] or [`Part::Failed`], once.
pub trait Sink: Send {
    /// Takes one part; never blocks. It is called from the thread that serves everybody: do little.
    fn put(&mut self, part: Part) -> Flow;

    /// Can more be taken, after [`Flow::Full`]? Asked now and then.
    fn ready(&mut self) -> Flow {
        Flow::Open
    }
}

/// What a sink says to what it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    Open,
    /// Taken, but give no more until [`Sink::ready`] says so. Only the last part may still come.
    Full,
    /// Nobody listens: the request is cancelled, and the sink not called again.
    Closed,
}

/// Stands for a request. When this is dropped the request is cancelled, unless it is over.
#[derive(Debug)]
#[must_use = "the request is cancelled when its ticket is dropped"]
pub struct Ticket {
    id: Id,
    events: Sender<Event>,
}

impl Ticket {
    /// The request's name.
    pub fn id(&self) -> Id {
        self.id
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // A thread that has ended runs nothing that could be cancelled.
        let _ = self.events.send(Event::Cancel(self.id));
    }
}

/// A handle to the thread. The thread ends when it is stopped, or when all handles and tickets are gone.
#[derive(Clone, Debug)]
pub struct Engine {
    events: Sender<Event>,
    shared: Arc<Shared>,
}

/// What handles and thread both see.
#[derive(Debug)]
pub(crate) struct Shared {
    limits: Limits,
    queue: usize,
    pager: Pager,
    state: Mutex<State>,
    ended: Condvar,
}

/// The part of it that changes.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// As of the last step.
    pub(crate) stats: Stats,
    pub(crate) phase: Phase,
    /// Requests that the thread has not heard of.
    pub(crate) unheard: usize,
    /// The name of the next request.
    next: u64,
}

impl State {
    fn waiting(&self) -> usize {
        self.stats.waiting + self.unheard
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Open,
    Stopping,
    Ended,
    Failed(String),
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // Only numbers are changed under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread's last word.
    pub(crate) fn ended(&self) {
        self.ended.notify_all();
    }
}

impl Phase {
    fn check(&self) -> Result<()> {
        match self {
            Phase::Open => Ok(()),
            Phase::Stopping | Phase::Ended => Err(Error::Stopped),
            Phase::Failed(why) => Err(Error::Broken(why.clone())),
        }
    }
}

impl Engine {
    /// Starts the thread. `ends` are the tokens that end a turn.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn start(
        executor: Box<dyn Executor>,
        ends: impl IntoIterator<Item = u32>,
        options: Options,
    ) -> Result<Engine> {
        let generator = Generator::with(executor, ends, &options);
        let limits = *generator.limits();
        let state = State { stats: generator.stats(), ..State::default() };
        let shared = Arc::new(Shared {
            limits,
            queue: options.queue,
            pager: generator.pager().clone(),
            state: Mutex::new(state),
            ended: Condvar::new(),
        });
        let (events, inbox) = channel();
        let worker = Worker::new(generator, inbox, shared.clone());
        // Grammars of clients are followed in it, some of them recursively.
        let thread = std::thread::Builder::new().name("engine".into()).stack_size(64 << 20);
        thread
            .spawn(move || worker.live())
            .map_err(|e| Error::Broken(format!("no thread to be had: {e}")))?;
        Ok(Engine { events, shared })
    }

    /// Checks a request, once and for all, and queues it.
    ///
    /// # Errors
    /// It could never be run; or too many wait; or the engine has stopped or failed.
    pub fn submit(&self, request: Request, sink: Box<dyn Sink>) -> Result<Ticket> {
        request.check(&self.shared.limits)?;
        // Under the lock, so that the thread takes leave of everybody who got through.
        let mut state = self.shared.state();
        state.phase.check()?;
        if state.waiting() >= self.shared.queue {
            return Err(Error::Busy { queued: state.waiting() });
        }
        let id = Id(state.next);
        let sent = self.events.send(Event::Submit(id, Box::new(request), sink));
        sent.map_err(|_| Error::Stopped)?;
        state.next += 1;
        state.unheard += 1;
        Ok(Ticket { id, events: self.events.clone() })
    }

    /// How things stand.
    pub fn stats(&self) -> Stats {
        let state = self.shared.state();
        Stats { waiting: state.waiting(), ..state.stats.clone() }
    }

    /// Would one more request be refused, because too many wait?
    pub fn is_full(&self) -> bool {
        self.shared.state().waiting() >= self.shared.queue
    }

    /// How many tokens of a prompt are in the cache now.
    pub fn cached(&self, prompt: &[u32]) -> usize {
        self.shared.pager.known(prompt)
    }

    /// The executor's limits.
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// Why the engine failed, if it did. Then it answers nothing more, and the process should end.
    pub fn failed(&self) -> Option<String> {
        match &self.shared.state().phase {
            Phase::Failed(why) => Some(why.clone()),
            _ => None,
        }
    }

    /// Ends the engine and waits for that: requests that have not begun fail at once, others when `drain` is over.
    /// May be called again with less time.
    pub fn stop(&self, drain: Duration) {
        self.begin_stop(drain);
        let mut state = self.shared.state();
        while state.phase == Phase::Stopping {
            state = self.shared.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The same without waiting.
    pub fn begin_stop(&self, drain: Duration) {
        // A century, so that the sum stays within what a clock can tell.
        let drain = drain.min(Duration::from_secs(100 * 365 * 86400));
        let mut state = self.shared.state();
        if state.phase == Phase::Open {
            state.phase = Phase::Stopping;
        }
        // A thread that has ended needs not be told.
        let _ = self.events.send(Event::Stop(Instant::now() + drain));
    }
}
