//! Several engines with the same model behind one handle: each has an executor and a cache of its own, and a request goes
//! where the least stands before its answer.

use crate::engine::{Engine, Sink, Ticket};
use crate::request::Request;
use crate::stats::Stats;
use crate::{Error, Result};
use shardwright_model::exec::Limits;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a request of others is worth, in tokens of the own prompt that are found in the cache: a shared beginning of a
/// few blocks keeps requests together while the others rest, a long conversation stays where it is in a crowd too.
const REQUEST: usize = 256;

/// A handle to all of them.
#[derive(Clone, Debug)]
pub struct Replicas(Arc<[Engine]>);

impl From<Engine> for Replicas {
    fn from(engine: Engine) -> Replicas {
        Replicas([engine].into())
    }
}

impl Replicas {
    /// # Errors
    /// There is none.
    pub fn new(engines: Vec<Engine>) -> Result<Replicas> {
        match engines.is_empty() {
            true => Err(Error::Broken("there is no engine".into())),
            false => Ok(Replicas(engines.into())),
        }
    }

    /// Checks a request and gives it to one of them.
    ///
    /// # Errors
    /// As those of [`Engine::submit`]; too many wait only where they do everywhere.
    pub fn submit(&self, request: Request, sink: Box<dyn Sink>) -> Result<Ticket> {
        self.choose(&request.prompt).submit(request, sink)
    }

    /// The one with the least to do before the answer: the rest of the prompt, and the others' requests. Among equals the
    /// one whose cache holds least.
    fn choose(&self, prompt: &[u32]) -> &Engine {
        let first = &self.0[0];
        if self.0.len() == 1 {
            return first;
        }
        let before = |engine: &&Engine| {
            let stats = engine.stats();
            let others = (stats.running + stats.waiting) * REQUEST;
            let held = stats.blocks - stats.blocks_free + stats.blocks_cached;
            (engine.is_full(), prompt.len() - engine.cached(prompt) + others, held)
        };
        self.0.iter().min_by_key(before).unwrap_or(first)
    }

    /// Each of them.
    pub fn all(&self) -> &[Engine] {
        &self.0
    }

    /// How things stand with all together.
    pub fn stats(&self) -> Stats {
        self.0.iter().map(Engine::stats).sum()
    }

    /// The limits of each executor.
    pub fn limits(&self) -> &Limits {
        self.0[0].limits()
    }

    /// Why one of them failed, if one did. Then the process should end.
    pub fn failed(&self) -> Option<String> {
        let name = |at: usize| if self.0.len() == 1 { String::new() } else { format!("replica {at}: ") };
        self.0.iter().enumerate().find_map(|(at, engine)| Some(name(at) + &engine.failed()?))
    }

    /// Ends all of them and waits for that, as [`Engine::stop`] does.
    pub fn stop(&self, drain: Duration) {
        let begun = Instant::now();
        self.0.iter().for_each(|engine| engine.begin_stop(drain));
        self.0.iter().for_each(|engine| engine.stop(drain.saturating_sub(begun.elapsed())));
    }
}
