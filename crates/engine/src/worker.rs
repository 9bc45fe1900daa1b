//! The engine's thread: hears what handles say, runs steps, and serves the sinks.

use crate::engine::{Flow, Phase, Shared, Sink};
use crate::generate::Generator;
use crate::request::{Id, Part, Reply, Request};
use crate::{Error, Result};
use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

/// How often full sinks are asked again while there is nothing to compute.
const POLL: Duration = Duration::from_millis(5);

/// How often the executor is asked whether it is still there, while there is nothing to do.
const PULSE: Duration = Duration::from_millis(500);

/// What the thread is told.
pub(crate) enum Event {
    Submit(Id, Box<Request>, Box<dyn Sink>),
    Cancel(Id),
    /// Be done by then.
    Stop(Instant),
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Event::Submit(id, ..) => f.debug_tuple("Submit").field(id).finish_non_exhaustive(),
            Event::Cancel(id) => f.debug_tuple("Cancel").field(id).finish(),
            Event::Stop(when) => f.debug_tuple("Stop").field(when).finish(),
        }
    }
}

/// All that the thread owns.
pub(crate) struct Worker {
    generator: Generator,
    inbox: Receiver<Event>,
    shared: Arc<Shared>,
    /// Of every request that waits or runs.
    clients: HashMap<Id, Client>,
    stop: Option<Instant>,
}

/// Who listens to a request.
struct Client {
    sink: Box<dyn Sink>,
    begun: bool,
    full: bool,
}

impl Worker {
    pub(crate) fn new(generator: Generator, inbox: Receiver<Event>, shared: Arc<Shared>) -> Worker {
        Worker { generator, inbox, shared, clients: HashMap::new(), stop: None }
    }

    /// From the first to the last moment of the thread.
    pub(crate) fn live(mut self) {
        let why = match catch_unwind(AssertUnwindSafe(|| self.run())) {
            Ok(Ok(())) => None,
            Ok(Err(e)) => Some(e.to_string()),
            Err(panic) => Some(format!("a fault of the program: {}", text(&*panic))),
        };
        let error = why.clone().map_or(Error::Stopped, Error::Broken);
        let mut state = self.shared.state();
        state.phase = why.map_or(Phase::Ended, Phase::Failed);
        (state.stats.waiting, state.stats.running, state.unheard) = (0, 0, 0);
        drop(state);
        // Nobody gets through any more; of those in the inbox nothing is known yet.
        for event in self.inbox.try_iter() {
            if let Event::Submit(id, _, sink) = event {
                self.clients.insert(id, Client::new(sink));
            }
        }
        for mut client in self.clients.into_values() {
            let last = Part::Failed(error.clone());
            // A sink that panics must not keep the others from hearing.
            let _ = catch_unwind(AssertUnwindSafe(|| client.sink.put(last)));
        }
        drop(self.generator);
        self.shared.ended();
    }

    fn run(&mut self) -> Result<()> {
        while self.listen() {
            self.ask_full();
            self.generator.check()?;
            if self.stop.is_some_and(|when| self.clients.is_empty() || when <= Instant::now()) {
                return Ok(());
            }
            let replies = self.generator.step()?;
            // who hears that an answer is over finds its place free
            self.publish();
            replies.into_iter().for_each(|reply| self.deliver(reply));
        }
        Ok(())
    }

    /// Hears all that is new; waits for it when there is nothing to compute. False: nobody is left.
    fn listen(&mut self) -> bool {
        loop {
            match self.inbox.try_recv() {
                Ok(event) => self.hear(event),
                Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => break,
            }
        }
        let wait = match self.generator.is_resting() {
            false => return true,
            true if !self.clients.is_empty() => POLL,
            true if self.stop.is_some() => return true,
            true => PULSE,
        };
        self.publish();
        match self.inbox.recv_timeout(wait) {
            Ok(event) => self.hear(event),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return false,
        }
        true
    }

    fn publish(&self) {
        self.shared.state().stats = self.generator.stats();
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Submit(id, request, sink) => {
                self.clients.insert(id, Client::new(sink));
                self.generator.enqueue(id, *request);
                let mut state = self.shared.state();
                state.unheard -= 1;
                state.stats.waiting += 1;
            }
            Event::Cancel(id) => self.generator.cancel(id).into_iter().for_each(|last| self.deliver(last)),
            Event::Stop(when) => self.stop(when),
        }
    }

    /// Nothing begins any more.
    fn stop(&mut self, when: Instant) {
        self.stop = Some(self.stop.map_or(when, |other| other.min(when)));
        let late: Vec<Id> = self.clients.iter().filter(|(_, c)| !c.begun).map(|(id, _)| *id).collect();
        for id in late {
            self.generator.cancel(id);
            self.deliver(Reply { id, part: Part::Failed(Error::Stopped) });
        }
    }

    /// Asks the sinks that were full.
    fn ask_full(&mut self) {
        let mut closed = Vec::new();
        for (id, client) in self.clients.iter_mut().filter(|(_, client)| client.full) {
            match client.sink.ready() {
                Flow::Full => {}
                Flow::Open => {
                    client.full = false;
                    self.generator.hold(*id, false);
                }
                Flow::Closed => closed.push(*id),
            }
        }
        closed.into_iter().for_each(|id| self.leave(id));
    }

    fn deliver(&mut self, Reply { id, part }: Reply) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let last = matches!(part, Part::Done(_) | Part::Failed(_));
        client.begun |= matches!(part, Part::Started { .. });
        match client.sink.put(part) {
            _ if last => {
                self.clients.remove(&id);
            }
            Flow::Open => {}
            Flow::Full => {
                client.full = true;
                self.generator.hold(id, true);
            }
            Flow::Closed => self.leave(id),
        }
    }

    /// Nobody listens any more.
    fn leave(&mut self, id: Id) {
        self.clients.remove(&id);
        self.generator.cancel(id);
    }
}

impl Client {
    fn new(sink: Box<dyn Sink>) -> Client {
        Client { sink, begun: false, full: false }
    }
}

/// What a panic says.
fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".into())
}
