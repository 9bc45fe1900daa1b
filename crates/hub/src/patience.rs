//! What failed for a passing reason is tried again, a few times, after pauses that grow.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::fetch::Watch;

/// Failures in a row that are borne.
const MOST_FAILURES: u32 = 5;
/// The longest pause that a server may ask for.
const LONGEST: Duration = Duration::from_secs(330);
/// How often somebody who waits looks whether it is still worth it.
const GLANCE: Duration = Duration::from_millis(100);
/// Longer pauses are told.
const TOLD: Duration = Duration::from_millis(500);

/// Waits between attempts, and notices when others have given up.
pub(crate) struct Patience<'a> {
    pub(crate) pause: Duration,
    pub(crate) stop: &'a AtomicBool,
    pub(crate) watch: &'a dyn Watch,
}

impl Patience<'_> {
    /// The answer of `attempt`. A host that cannot be reached is not tried again: here it is the first that we ask.
    pub(crate) fn ask<T>(&self, attempt: impl Fn() -> Result<T>) -> Result<T> {
        let mut failures = 0;
        loop {
            match attempt() {
                Err(e @ Error::Unreachable { .. }) => return Err(e),
                Err(e) => {
                    failures += 1;
                    self.bear(e, failures)?;
                }
                answer => return answer,
            }
        }
    }

    /// Waits after the failure of this number in a row; gives it back if there is no point in going on.
    pub(crate) fn bear(&self, error: Error, failures: u32) -> Result<()> {
        let usual = self.pause * (1 << failures.min(10)) / 2;
        let wait = error.wait().unwrap_or(usual);
        if !error.is_passing() || failures > MOST_FAILURES || wait > LONGEST {
            return Err(error);
        }
        if wait >= TOLD {
            self.watch.note(&format!("{error}; trying again in {:.0} s", wait.as_secs_f64()));
        }
        self.sleep(wait)
    }

    /// # Errors
    /// [`Error::Stopped`], as soon as somebody gives up.
    pub(crate) fn sleep(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        loop {
            self.go_on()?;
            match end.saturating_duration_since(Instant::now()) {
                Duration::ZERO => return Ok(()),
                rest => std::thread::sleep(rest.min(GLANCE)),
            }
        }
    }

    /// # Errors
    /// [`Error::Stopped`], if somebody has given up.
    pub(crate) fn go_on(&self) -> Result<()> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(Error::Stopped),
            false => Ok(()),
        }
    }
}
