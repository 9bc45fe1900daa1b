//! An answer as it comes into being, with the events that tell of it.

use super::blocks::Blocks;
use super::error::MessageError;
use super::response::{MessageResponse, MessageUsage, ThinkingTokens};
use crate::answer::{Answers, News};
use crate::error::ApiError;
use crate::sse::{Frame, Writer};
use crate::turn;
use crate::usage::Thoughts;
use serde_json::{Value, json};
use shardwright_text::reply::{Event, Finish};

/// One answer.
pub(super) struct Story {
    message: MessageResponse,
    prompt: usize,
    one_call: bool,
    begun: bool,
    blocks: Blocks,
    thoughts: Thoughts,
}

/// An event whose name is its type.
pub(super) fn event(name: &'static str, mut data: Value) -> Frame {
    data["type"] = name.into();
    Frame::named(name, &data)
}

impl Story {
    pub(super) fn new(model: &str, prompt: usize, one_call: bool) -> Story {
        let message = MessageResponse {
            id: turn::id("msg_"),
            r#type: "message",
            role: "assistant",
            model: model.to_owned(),
            content: Vec::new(),
            stop_reason: None,
            stop_sequence: None,
            usage: MessageUsage::default(),
        };
        let thoughts = Thoughts::default();
        Story { message, prompt, one_call, begun: false, blocks: Blocks::default(), thoughts }
    }

    /// The whole answer, once it is over.
    pub(super) fn message(self) -> MessageResponse {
        MessageResponse { content: self.blocks.all(), ..self.message }
    }

    fn begin(&mut self, answers: &Answers) -> Vec<Frame> {
        if std::mem::replace(&mut self.begun, true) {
            return Vec::new();
        }
        self.count(answers, 0);
        vec![event("message_start", json!({"message": self.message})), event("ping", json!({}))]
    }

    fn count(&mut self, answers: &Answers, answered: usize) {
        let cached = answers.counts(0).1;
        self.message.usage = MessageUsage {
            input_tokens: self.prompt.saturating_sub(cached),
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: cached,
            output_tokens: answered,
            output_tokens_details: ThinkingTokens { thinking_tokens: self.thoughts.count() },
        };
    }

    fn add(&mut self, events: Vec<Event>) -> Vec<Frame> {
        events.into_iter().flat_map(|event| self.blocks.add(event)).collect()
    }

    fn finish(&mut self, finish: Finish, stop: Option<String>) -> Vec<Frame> {
        self.message.stop_reason = Some(match finish {
            Finish::ToolCalls => "tool_use",
            Finish::Length => "max_tokens",
            Finish::Stop if stop.is_some() => "stop_sequence",
            Finish::Stop => "end_turn",
        });
        self.message.stop_sequence = stop.filter(|_| finish == Finish::Stop);
        self.blocks.close()
    }
}

impl Writer for Story {
    fn news(&mut self, choice: usize, news: News, answers: &mut Answers) -> Vec<Frame> {
        let mut frames = self.begin(answers);
        match news {
            News::Started | News::Prompt(_) => {}
            News::Token(_, mut events) => {
                self.thoughts.token(&events);
                let end = events.iter().position(|e| matches!(e, Event::CallEnd { .. }));
                let last = end.filter(|_| self.one_call);
                events.truncate(last.map_or(events.len(), |end| end + 1));
                frames.extend(self.add(events));
                if last.is_some() {
                    answers.enough(choice);
                    self.count(answers, answers.counts(choice).0);
                    frames.extend(self.finish(Finish::ToolCalls, None));
                }
            }
            News::Done(done) => {
                frames.extend(self.add(done.events));
                self.count(answers, done.answered);
                frames.extend(self.finish(done.message.finish, done.message.stop));
            }
        }
        frames
    }

    fn end(&mut self, _: &Answers) -> Vec<Frame> {
        let MessageResponse { stop_reason, stop_sequence, usage, .. } = &self.message;
        let delta = json!({"stop_reason": stop_reason, "stop_sequence": stop_sequence});
        vec![
            event("message_delta", json!({"delta": delta, "usage": usage})),
            event("message_stop", json!({})),
        ]
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Frame> {
        vec![Frame::named("error", &MessageError::new(error, None))]
    }

    fn ping(&self) -> Option<Frame> {
        Some(event("ping", json!({})))
    }
}
