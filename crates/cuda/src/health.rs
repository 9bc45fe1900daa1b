//! Cards are watched while a model runs on them: one that is gone ends the executor, whether it works or rests.

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

/// Who asks more seldom was held up himself, as the thread may have been that asks the cards.
const GAP: Duration = Duration::from_secs(2);

/// An executor whose cards are watched.
pub struct Guarded {
    inner: Box<dyn Executor>,
    seen: Arc<Mutex<Seen>>,
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
    ///
    /// # Errors
    /// If the system has no thread to give.
    pub fn new(inner: Box<dyn Executor>, cards: Vec<Watched>) -> Result<Guarded> {
        let now = Instant::now();
        let seen = Arc::new(Mutex::new(Seen { cards: [].into(), when: now, lost: None }));
        let eye = Arc::downgrade(&seen);
        let thread = Builder::new().name("cards".into()).spawn(move || watch(cards, &eye));
        thread.map_err(|e| Error::Driver(format!("cards can't be watched: {e}")))?;
        Ok(Guarded { inner, seen, well: now, asked: now })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks the cards until nobody wants to know, or one is lost.
fn watch(mut cards: Vec<Watched>, eye: &Weak<Mutex<Seen>>) {
    let mut told = vec![0; cards.len()];
    loop {
        let read = cards.iter_mut().map(Watched::read).collect::<Result<Vec<Card>>>();
        let Some(seen) = eye.upgrade() else { return };
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
                return;
            }
        }
        drop(seen);
        thread::sleep(PULSE);
    }
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
        let answer = self.inner.step_probed(batch, probe)?;
        self.well = Instant::now();
        Ok(answer)
    }
}
