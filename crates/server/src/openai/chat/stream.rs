//! The answer to a chat in pieces.

use super::Plan;
use super::response::{CallDelta, ChatChunk, ChunkChoice, Delta, FunctionDelta, Logprobs, TokenLogprob};
use crate::answer::{Answers, News};
use crate::app::Service;
use crate::error::ApiError;
use crate::openai::{done, fingerprint, finish_reason};
use crate::sse::{Frame, Writer};
use crate::usage::{Thoughts, Usage};
use crate::{model, turn};
use shardwright_text::reply::{Event, Finish};
use std::sync::Arc;

/// Writes the pieces.
pub(super) struct Chunks {
    service: Arc<Service>,
    plan: Plan,
    id: String,
    created: u64,
    prompt: usize,
    choices: Vec<Progress>,
}

/// How far one answer is.
#[derive(Default)]
struct Progress {
    begun: bool,
    /// Of tokens whose text has not come yet.
    logprobs: Option<Logprobs>,
    thoughts: Thoughts,
    answered: usize,
}

impl Chunks {
    pub(super) fn new(service: Arc<Service>, plan: Plan, prompt: usize, choices: usize) -> Chunks {
        Chunks {
            service,
            plan,
            id: turn::id("chatcmpl-"),
            created: model::now(),
            prompt,
            choices: (0..choices).map(|_| Progress::default()).collect(),
        }
    }

    fn chunk(&self, choices: Vec<ChunkChoice>, usage: Option<Usage>) -> Frame {
        Frame::data(&ChatChunk {
            id: self.id.clone(),
            object: "chat.completion.chunk",
            created: self.created,
            model: self.service.model.name().to_owned(),
            choices,
            usage: self.plan.usage.then_some(usage),
            system_fingerprint: fingerprint(),
        })
    }

    fn piece(&self, index: usize, delta: Delta, logprobs: Option<Logprobs>) -> Frame {
        self.chunk(vec![ChunkChoice { index, delta, logprobs, finish_reason: None }], None)
    }

    /// The pieces of some events; what is known of their tokens goes with the first.
    fn pieces(&mut self, index: usize, events: Vec<Event>) -> Vec<Frame> {
        let deltas: Vec<Delta> = events.into_iter().filter_map(|e| self.delta(e)).collect();
        if deltas.is_empty() {
            return Vec::new();
        }
        let mut frames = self.begin(index);
        let mut logprobs = self.choices[index].logprobs.take();
        for delta in deltas {
            frames.push(self.piece(index, delta, logprobs.take()));
        }
        frames
    }

    fn delta(&self, event: Event) -> Option<Delta> {
        let call = |index, id, name, arguments| {
            let r#type = Option::as_ref(&id).map(|_| "function");
            let call = CallDelta { index, id, r#type, function: FunctionDelta { name, arguments } };
            Delta { tool_calls: Some(vec![call]), ..Delta::default() }
        };
        match event {
            Event::Reasoning(text) if self.plan.reasoning => {
                Some(Delta { reasoning_content: Some(text), ..Delta::default() })
            }
            Event::Content(text) => Some(Delta { content: Some(text), ..Delta::default() }),
            Event::CallStart { index, .. } | Event::CallArguments { index, .. }
                if self.plan.one_call && index > 0 =>
            {
                None
            }
            Event::CallStart { index, id, name } => Some(call(index, Some(id), Some(name), String::new())),
            Event::CallArguments { index, delta } => Some(call(index, None, None, delta)),
            Event::Reasoning(_) | Event::CallEnd { .. } => None,
        }
    }

    /// The first piece says who speaks.
    fn begin(&mut self, index: usize) -> Vec<Frame> {
        if std::mem::replace(&mut self.choices[index].begun, true) {
            return Vec::new();
        }
        let delta = Delta { role: Some("assistant"), content: Some(String::new()), ..Delta::default() };
        vec![self.piece(index, delta, None)]
    }

    fn finish(&mut self, index: usize, finish: Finish) -> Vec<Frame> {
        let mut frames = self.begin(index);
        let logprobs = self.choices[index].logprobs.take();
        let finish_reason = Some(finish_reason(finish));
        let choice = ChunkChoice { index, delta: Delta::default(), logprobs, finish_reason };
        frames.push(self.chunk(vec![choice], None));
        frames
    }
}

impl Writer for Chunks {
    fn news(&mut self, index: usize, news: News, answers: &mut Answers) -> Vec<Frame> {
        match news {
            News::Started | News::Prompt(_) => Vec::new(),
            News::Token(token, events) => {
                let one = &mut self.choices[index];
                if let Some(logprob) = TokenLogprob::of(self.service.model.tokenizer(), &token) {
                    one.logprobs.get_or_insert_default().content.push(logprob);
                }
                one.thoughts.token(&events);
                let enough = self.plan.is_enough(&events);
                let mut frames = self.pieces(index, events);
                if enough {
                    answers.enough(index);
                    self.choices[index].answered = answers.counts(index).0;
                    frames.extend(self.finish(index, Finish::ToolCalls));
                }
                frames
            }
            News::Done(done) => {
                self.choices[index].answered = done.answered;
                let mut frames = self.pieces(index, done.events);
                frames.extend(self.finish(index, done.message.finish));
                frames
            }
        }
    }

    fn end(&mut self, answers: &Answers) -> Vec<Frame> {
        let answered = self.choices.iter().map(|c| c.answered).sum();
        let reasoning = self.choices.iter().map(|c| c.thoughts.count()).sum();
        let usage = Usage::new(self.prompt, answers.counts(0).1, answered, reasoning);
        let usage = self.plan.usage.then(|| self.chunk(Vec::new(), Some(usage)));
        usage.into_iter().chain([done()]).collect()
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Frame> {
        vec![Frame::data(&error.body()), done()]
    }
}
