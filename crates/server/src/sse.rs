//! Answers as server-sent events.

use crate::answer::{Answers, News};
use crate::error::ApiError;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Serialize;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;
use utoipa::ToSchema;

/// So often something goes out while a long prompt is read, lest something on the way gives the connection up.
const PING: Duration = Duration::from_secs(10);

/// One event of a stream. Tools that check a description against answers take the schema of `text/event-stream` for
/// that of one event.
#[derive(Debug, PartialEq, ToSchema)]
#[schema(as = ServerSentEvent)]
pub(crate) struct Frame {
    /// The event's name, where the API gives events names.
    pub(crate) event: Option<&'static str>,
    /// The event as JSON, or `[DONE]` at the end of OpenAI's streams.
    pub(crate) data: String,
}

impl Frame {
    /// Without a name.
    pub(crate) fn data(value: &impl Serialize) -> Frame {
        Frame { event: None, data: json(value) }
    }

    /// With a name.
    pub(crate) fn named(event: &'static str, value: &impl Serialize) -> Frame {
        Frame { event: Some(event), data: json(value) }
    }

    fn event(self) -> Event {
        self.event.map_or_else(Event::default, |name| Event::default().event(name)).data(self.data)
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("our own types are valid JSON")
}

/// Writes the events of one API.
pub(crate) trait Writer: Send + 'static {
    /// Something happened to a choice. May tell `answers` that a choice has said enough.
    fn news(&mut self, choice: usize, news: News, answers: &mut Answers) -> Vec<Frame>;
    /// All choices are over.
    fn end(&mut self, answers: &Answers) -> Vec<Frame>;
    /// Nothing more will come.
    fn fail(&mut self, error: &ApiError) -> Vec<Frame>;
    /// What goes out while nothing comes; None = a comment.
    fn ping(&self) -> Option<Frame> {
        None
    }
}

struct State<W> {
    answers: Answers,
    writer: W,
    frames: VecDeque<Frame>,
    ended: bool,
}

impl<W: Writer> State<W> {
    async fn frame(&mut self) -> Option<Frame> {
        while self.frames.is_empty() && !self.ended {
            let frames = match self.answers.next().await {
                Some(Ok((choice, news))) => self.writer.news(choice, news, &mut self.answers),
                Some(Err(e)) => {
                    self.ended = true;
                    tracing::warn!(code = e.code, "a stream ends early: {}", e.message);
                    self.writer.fail(&e)
                }
                None => {
                    self.ended = true;
                    self.writer.end(&self.answers)
                }
            };
            self.frames.extend(frames);
        }
        self.frames.pop_front()
    }
}

/// The response: what the writer makes of the answers, as it comes.
pub(crate) fn respond(answers: Answers, writer: impl Writer) -> Response {
    let pings = KeepAlive::new().interval(PING);
    let pings = match writer.ping() {
        Some(frame) => pings.event(frame.event()),
        None => pings,
    };
    let state = State { answers, writer, frames: VecDeque::new(), ended: false };
    let events = stream::unfold(state, |mut state| async move {
        let frame = state.frame().await?;
        Some((Ok::<_, Infallible>(frame.event()), state))
    });
    let mut response = Sse::new(events).keep_alive(pings).into_response();
    // nginx and its like would collect events otherwise.
    response.headers_mut().insert("x-accel-buffering", axum::http::HeaderValue::from_static("no"));
    response
}
