//! `/v1/responses`: conversations in OpenAI's newer form.

mod output;
mod request;
mod response;

use crate::answer::{Answers, News};
use crate::app::{Open, Shared, off_thread};
use crate::body::JsonBody;
use crate::error::{ApiError, Errors};
use crate::sse::{self, Frame, Writer};
use crate::usage::Thoughts;
use crate::{model, turn};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use output::Output;
use request::ResponsesRequest;
use response::{
    Incomplete, InputDetails, OutputDetails, Problem, ReasoningEcho, ResponseObject, ResponseUsage, TextEcho,
};
use serde_json::{Map, json};
use shardwright_engine::sample::Sampling;
use shardwright_text::reply::{Event, Finish};

/// The response to a conversation.
///
/// With `stream: true` it comes as server-sent events, each with its `type` as name. Nothing is kept: every request
/// brings its whole conversation.
#[utoipa::path(post, path = "/v1/responses", tag = "openai", request_body = ResponsesRequest,
    responses((status = 200, content((ResponseObject = "application/json"), (sse::Frame = "text/event-stream"))), Errors))]
pub(crate) async fn create(
    State(app): State<Shared>,
    Open(service): Open,
    JsonBody(request): JsonBody<ResponsesRequest>,
) -> Result<Response, ApiError> {
    let preparing = service.clone();
    let (request, turn, requests) = off_thread(move || {
        let turn = request.turn(&preparing)?;
        let requests = turn.requests(&preparing)?;
        Ok((request, turn, requests))
    })
    .await?;
    let mut story = Story {
        prompt: requests.first().map_or(0, |r| r.prompt.len()),
        response: begun(&request, &turn.sampling, service.model.name()),
        one_call: !request.fields.parallel_tool_calls.unwrap_or(true),
        begun: false,
        output: Output::default(),
        thoughts: Thoughts::default(),
        answered: 0,
    };
    let mut answers = Answers::start(&service, &app.metrics, requests)?;
    if turn.streamed {
        return Ok(sse::respond(answers, story));
    }
    while let Some(news) = answers.next().await {
        let (choice, news) = news?;
        story.news(choice, news, &mut answers);
    }
    story.count(&answers);
    Ok(Json(story.response).into_response())
}

/// A response that has nothing in it yet.
fn begun(request: &ResponsesRequest, sampling: &Sampling, model: &str) -> ResponseObject {
    let fields = &request.fields;
    let text = || Map::from_iter([("type".to_owned(), "text".into())]);
    let format = fields.format().cloned().unwrap_or_else(text);
    ResponseObject {
        id: turn::id("resp_"),
        object: "response",
        created_at: model::now(),
        status: "in_progress",
        error: None,
        incomplete_details: None,
        instructions: fields.instructions.clone(),
        max_output_tokens: fields.max_output_tokens,
        model: model.to_owned(),
        output: Vec::new(),
        parallel_tool_calls: fields.parallel_tool_calls.unwrap_or(true),
        previous_response_id: None,
        reasoning: ReasoningEcho {
            effort: fields.reasoning.as_ref().and_then(|r| r.effort.clone()),
            summary: fields.reasoning.as_ref().and_then(|r| r.summary.clone()),
        },
        store: false,
        temperature: sampling.temperature,
        top_p: sampling.top_p,
        text: TextEcho { format },
        tool_choice: fields.tool_choice.clone().unwrap_or_else(|| "auto".into()),
        tools: fields.tools.clone().unwrap_or_default(),
        truncation: "disabled",
        usage: None,
        metadata: fields.metadata.clone().unwrap_or_default(),
    }
}

/// A response as it comes into being.
struct Story {
    response: ResponseObject,
    prompt: usize,
    one_call: bool,
    begun: bool,
    output: Output,
    thoughts: Thoughts,
    answered: usize,
}

impl Story {
    fn begin(&mut self) -> Vec<Frame> {
        if std::mem::replace(&mut self.begun, true) {
            return Vec::new();
        }
        let data = json!({"response": self.response});
        vec![
            self.output.event("response.created", data.clone()),
            self.output.event("response.in_progress", data),
        ]
    }

    fn add(&mut self, events: Vec<Event>) -> Vec<Frame> {
        events.into_iter().flat_map(|event| self.output.add(event)).collect()
    }

    fn finish(&mut self, finish: Finish, answered: usize) -> Vec<Frame> {
        self.answered = answered;
        let is_cut = finish == Finish::Length;
        self.response.status = if is_cut { "incomplete" } else { "completed" };
        self.response.incomplete_details = is_cut.then_some(Incomplete { reason: "max_output_tokens" });
        let frames = self.output.close(self.response.status);
        self.response.output = self.output.items().to_vec();
        frames
    }

    fn count(&mut self, answers: &Answers) {
        self.response.usage = Some(ResponseUsage {
            input_tokens: self.prompt,
            input_tokens_details: InputDetails { cached_tokens: answers.counts(0).1 },
            output_tokens: self.answered,
            output_tokens_details: OutputDetails { reasoning_tokens: self.thoughts.count() },
            total_tokens: self.prompt + self.answered,
        });
    }
}

impl Writer for Story {
    fn news(&mut self, choice: usize, news: News, answers: &mut Answers) -> Vec<Frame> {
        let mut frames = self.begin();
        match news {
            News::Started | News::Prompt(_) => {}
            News::Token(_, mut events) => {
                self.thoughts.token(&events);
                let end = events.iter().position(|e| matches!(e, Event::CallEnd { .. }));
                if let Some(end) = end.filter(|_| self.one_call) {
                    events.truncate(end + 1);
                    answers.enough(choice);
                    frames.extend(self.add(events));
                    frames.extend(self.finish(Finish::ToolCalls, answers.counts(choice).0));
                } else {
                    frames.extend(self.add(events));
                }
            }
            News::Done(done) => {
                frames.extend(self.add(done.events));
                frames.extend(self.finish(done.message.finish, done.answered));
            }
        }
        frames
    }

    fn end(&mut self, answers: &Answers) -> Vec<Frame> {
        self.count(answers);
        let name = match self.response.status {
            "incomplete" => "response.incomplete",
            _ => "response.completed",
        };
        let data = json!({"response": self.response});
        vec![self.output.event(name, data)]
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Frame> {
        let mut frames = self.begin();
        self.response.status = "failed";
        let code = error.code.unwrap_or("server_error");
        self.response.error = Some(Problem { code, message: error.message.clone() });
        self.response.output = self.output.items().to_vec();
        let data = json!({"response": self.response});
        frames.push(self.output.event("response.failed", data));
        frames
    }
}
