//! Whether requests may come in, and why not.

use crate::error::ApiError;
use std::fmt;
use tokio::sync::watch;

/// Seconds after which to ask again.
const RETRY: u64 = 5;

/// Where the service is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The model is being loaded.
    Loading(String),
    /// The model is loaded and answers the test of the start.
    Testing,
    /// Requests are answered.
    Ready,
    /// It ends: what runs may finish, nothing new begins.
    Draining,
    /// It never opened, or broke.
    Failed(String),
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Phase::Loading(what) => write!(f, "the model is being loaded: {what}"),
            Phase::Testing => f.write_str("the model is being tested"),
            Phase::Ready => f.write_str("ready"),
            Phase::Draining => f.write_str("the server is shutting down"),
            Phase::Failed(why) => write!(f, "the service is closed: {why}"),
        }
    }
}

impl Phase {
    /// In one word.
    pub fn name(&self) -> &'static str {
        match self {
            Phase::Loading(_) => "loading",
            Phase::Testing => "testing",
            Phase::Ready => "ready",
            Phase::Draining => "draining",
            Phase::Failed(_) => "failed",
        }
    }
}

/// Holds the phase, and tells who waits for it.
#[derive(Clone, Debug)]
pub struct Gate(watch::Sender<Phase>);

impl Gate {
    pub(crate) fn new() -> Gate {
        Gate(watch::Sender::new(Phase::Loading("beginning".into())))
    }

    /// What is being loaded now.
    pub fn loading(&self, what: impl Into<String>) {
        self.advance(Phase::Loading(what.into()));
    }

    /// The model answers the test of the start.
    pub fn testing(&self) {
        self.advance(Phase::Testing);
    }

    /// The next phase. What has failed or drains does not open again.
    pub(crate) fn advance(&self, next: Phase) {
        self.0.send_if_modified(|phase| {
            let over = match phase {
                Phase::Failed(_) => true,
                Phase::Draining => !matches!(next, Phase::Failed(_)),
                _ => false,
            };
            if !over {
                *phase = next;
            }
            !over
        });
    }

    /// The phase now.
    pub fn phase(&self) -> Phase {
        self.0.borrow().clone()
    }

    /// May requests come in?
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        match &*self.0.borrow() {
            Phase::Ready => Ok(()),
            closed => Err(ApiError::unavailable(closed.to_string(), RETRY)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_ended_does_not_open_again() {
        let gate = Gate::new();
        let check = |next: Phase, expected: &str| {
            gate.advance(next);
            assert_eq!(gate.phase().name(), expected);
            assert_eq!(gate.check().is_ok(), expected == "ready");
        };
        check(Phase::Testing, "testing");
        check(Phase::Ready, "ready");
        check(Phase::Draining, "draining");
        check(Phase::Ready, "draining");
        check(Phase::Failed("x".into()), "failed");
        check(Phase::Ready, "failed");
        assert!(gate.check().unwrap_err().message.ends_with("closed: x"));
    }
}
