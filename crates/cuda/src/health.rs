//! Cards are watched while a model runs on them: one that is gone ends the executor between two steps, or whoever waits for a step
//! that will not end.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use shardwright_model::card::Card;
use shardwright_model::exec::{ExecError, Executor, Limits, Probe, StepBatch, StepOutput};

use crate::nvml::Watched;
use crate::{Error, Result};

/// How often a card is asked.
const PULSE: Duration = Duration::from_secs(1);

/// A card at rest, or the driver in front of it, that takes longer to tell how it is will not tell any more.
const SILENCE: Duration = Duration::from_secs(4);

/// A step that goes on for so long when its card is known to be gone will not end.
const HUNG: Duration = Duration::from_secs(3);

/// How often that is looked after.
const GLANCE: Duration = Duration::from_millis(100);

/// Who asks more seldom was held up himself, as the thread may have been that asks the cards.
const GAP: Duration = Duration::from_secs(2);

/// An executor whose cards are watched.
pub struct Guarded {
    inner: Box<dyn Executor>,
    seen: Arc<Mutex<Seen>>,
    /// Is a step under way?
    works: Arc<AtomicBool>,
    /// When the cards were known to be well because they had done a step, or nothing was known because nobody asked.
    well: Instant,
    asked: Instant,
}

/// What was seen last.
struct Seen {
    cards: Arc<[Card]>,
    when: Instant,
    /// Why a card can't be used any more.
    lost: Option<String>,
}

impl Guarded {
    /// The cards are asked by a thread of its own, which ends with this: who asks for a card that is gone may wait for ever.
    /// `hung` is told why, by that thread, when a step does not end whose card is gone.
    ///
    /// # Errors
    /// If the system has no thread to give.
    pub fn new(
        inner: Box<dyn Executor>,
        cards: Vec<Watched>,
        hung: impl Fn(&str) + Send + 'static,
    ) -> Result<Guarded> {
        let now = Instant::now();
        let seen = Arc::new(Mutex::new(Seen { cards: [].into(), when: now, lost: None }));
        let (eye, works) = (Arc::downgrade(&seen), Arc::new(AtomicBool::new(false)));
        let at_work = works.clone();
        let look = move || {
            if let Some(why) = watch(cards, &eye)
                && hangs(&at_work, &eye)
            {
                hung(&why);
            }
        };
        let thread = Builder::new().name("cards".into()).spawn(look);
        thread.map_err(|e| Error::Driver(format!("cards can't be watched: {e}")))?;
        Ok(Guarded { inner, seen, works, well: now, asked: now })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks the cards until nobody wants to know, or one is lost, and why.
fn watch(mut cards: Vec<Watched>, eye: &Weak<Mutex<Seen>>) -> Option<String> {
    let mut told = vec![0; cards.len()];
    loop {
        let read = cards.iter_mut().map(Watched::read).collect::<Result<Vec<Card>>>();
        let seen = eye.upgrade()?;
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.when = Instant::now();
        match read {
            Ok(cards) => {
                for (told, card) in told.iter_mut().zip(&cards).filter(|(told, card)| **told < card.xids.0) {
                    let (index, xid) = (card.index, card.xids.1.unwrap_or(0));
                    log::error!("GPU {index}: the driver reports Xid {xid}; `dmesg` tells more");
                    *told = card.xids.0;
                }
                seen.cards = cards.into();
            }
            Err(why) => {
                seen.lost = Some(why.to_string());
                return seen.lost.clone();
            }
        }
        drop(seen);
        thread::sleep(PULSE);
    }
}

/// Waits until a step has gone on for too long, or nobody is there any more.
fn hangs(works: &AtomicBool, eye: &Weak<Mutex<Seen>>) -> bool {
    let mut rested = Instant::now();
    while eye.strong_count() > 0 {
        if !works.load(Relaxed) {
            rested = Instant::now();
        } else if rested.elapsed() > HUNG {
            return true;
        }
        thread::sleep(GLANCE);
    }
    false
}

impl Executor for Guarded {
    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn check(&mut self) -> Result<(), ExecError> {
        let now = Instant::now();
        if now.duration_since(self.asked) > GAP {
            self.well = now;
        }
        self.asked = now;
        let seen = self.seen();
        if let Some(why) = &seen.lost {
            return Err(ExecError(why.clone()));
        }
        let silent = now.saturating_duration_since(seen.when.max(self.well));
        drop(seen);
        if silent > SILENCE {
            let seconds = silent.as_secs();
            return Err(ExecError(format!("the driver has not told for {seconds} s how the GPUs are")));
        }
        self.inner.check()
    }

    fn cards(&self) -> Arc<[Card]> {
        self.seen().cards.clone()
    }

    fn step_probed(
        &mut self,
        batch: &StepBatch,
        probe: Option<&mut dyn Probe>,
    ) -> Result<StepOutput, ExecError> {
        self.works.store(true, Relaxed);
        let answer = self.inner.step_probed(batch, probe);
        self.works.store(false, Relaxed);
        if answer.is_ok() {
            self.well = Instant::now();
        }
        answer
    }
}
