//! A later stage as stage 0 sees it: an executor at the other end of a connection.

use super::link::{Aside, Heard, Speaker};
use super::message::Message;
use shardwright_model::exec::*;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

/// What ended the pipeline, once for all stages.
#[derive(Debug, Default)]
pub(super) struct Fate(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    why: Option<String>,
    /// Is all done, so that stages may go?
    over: bool,
    others: Vec<Aside>,
}

impl Fate {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One stage more that is to be told.
    pub(super) fn join(&self, other: Aside) {
        self.state().others.push(other);
    }

    pub(super) fn why(&self) -> Option<String> {
        self.state().why.clone()
    }

    /// All is done, unless something has ended it before.
    fn over(&self) -> bool {
        let mut state = self.state();
        state.over = state.why.is_none();
        state.over
    }

    /// The first reason counts, and everybody hears it.
    pub(super) fn fail(&self, why: &str) {
        let mut state = self.state();
        if state.why.is_none() && !state.over {
            state.why = Some(why.to_owned());
            let others = state.others.clone();
            drop(state);
            others.iter().for_each(|other| other.say(&Message::Failed(why.to_owned())));
        }
    }
}

/// The other end.
pub(super) struct Remote {
    name: String,
    speaker: Speaker,
    inbox: Receiver<Heard>,
    fate: Arc<Fate>,
    limits: Limits,
}

impl Remote {
    /// Waits until the stage is loaded.
    pub(super) fn ready(
        name: String,
        speaker: Speaker,
        inbox: Receiver<Heard>,
        fate: Arc<Fate>,
    ) -> Result<Remote, ExecError> {
        let limits = Limits { vocab: 0, rows: 0, blocks: 0, context: 0, width: 0, drafts: false, takes: 0 };
        let mut remote = Remote { name, speaker, inbox, fate, limits };
        match remote.hear()? {
            Message::Ready(limits) => remote.limits = limits,
            _ => return Err(remote.odd("something else than that it is loaded")),
        }
        remote.speaker.allow(super::message::output_bytes(&remote.limits));
        Ok(remote)
    }

    fn hear(&self) -> Result<Message, ExecError> {
        match self.inbox.recv() {
            Ok(Ok(message)) => Ok(message),
            // what ended the pipeline may be another stage
            Ok(Err(why)) => Err(ExecError(self.fate.why().unwrap_or(why))),
            Err(_) => Err(self.odd("nothing any more")),
        }
    }

    fn odd(&self, what: &str) -> ExecError {
        let why = self.fate.why().unwrap_or_else(|| format!("{} says {what}", self.name));
        self.fate.fail(&why);
        ExecError(why)
    }

    fn fits(&self, batch: &StepBatch, output: &StepOutput) -> bool {
        let hidden = if batch.want_hidden { batch.rows() * self.limits.width } else { 0 };
        let row = |(row, want): (&RowOutput, &Want)| match (row, want) {
            (RowOutput::NonFinite { .. }, _) => true,
            (RowOutput::Nothing, want) => *want == Want::Nothing,
            (RowOutput::Logits(all), want) => *want == Want::Logits && all.len() == self.limits.vocab,
            (RowOutput::Candidates { ids, logits, .. }, want) => {
                let known = ids.iter().all(|id| (*id as usize) < self.limits.vocab);
                *want == Want::Candidates && !ids.is_empty() && ids.len() == logits.len() && known
            }
        };
        output.rows.len() == batch.rows()
            && output.hidden.len() == hidden
            && output.rows.iter().zip(&batch.wants).all(row)
    }
}

impl Executor for Remote {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn check(&mut self) -> Result<(), ExecError> {
        self.fate.why().map_or(Ok(()), |why| Err(ExecError(why)))
    }

    fn step_probed(
        &mut self,
        batch: &StepBatch,
        probe: Option<&mut dyn Probe>,
    ) -> Result<StepOutput, ExecError> {
        self.check()?;
        if probe.is_some() {
            return Err(ExecError(format!("the values of {} cannot be looked at from here", self.name)));
        }
        // if this fails the other end has gone, and its last word says how
        let sent = self.speaker.say(&Message::Step(batch.clone()));
        match self.hear()? {
            Message::Output(output) if sent.is_ok() && self.fits(batch, &output) => Ok(output),
            _ => Err(self.odd("something else than what came of the step")),
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if self.fate.over() {
            // who has gone needs not be told
            let _ = self.speaker.say(&Message::Bye);
        }
    }
}
