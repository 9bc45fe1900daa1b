//! `/v1/chat/completions`: conversations.

mod request;
mod response;
mod stream;

use crate::answer::{Answers, News};
use crate::app::{Open, Service, Shared, off_thread};
use crate::body::JsonBody;
use crate::error::{ApiError, Errors};
use crate::openai::{fingerprint, finish_reason};
use crate::usage::{Thoughts, Usage};
use crate::{model, sse, turn};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use request::ChatRequest;
pub(crate) use request::StreamOptions;
pub(crate) use response::ChatChunk;
pub(crate) use response::LEAST;
use response::{CalledFunction, ChatChoice, ChatCompletion, Logprobs, Message, TokenLogprob, ToolCall};
use shardwright_text::reply::{self, Event};
use std::sync::Arc;

/// The answer to a conversation.
///
/// With `stream: true` it comes as server-sent events of `ChatChunk`, the last of which is `[DONE]`.
#[utoipa::path(post, path = "/v1/chat/completions", tag = "openai", request_body = ChatRequest,
    responses((status = 200, content((ChatCompletion = "application/json"), (sse::Frame = "text/event-stream"))), Errors))]
pub(crate) async fn create(
    State(app): State<Shared>,
    Open(service): Open,
    JsonBody(request): JsonBody<ChatRequest>,
) -> Result<Response, ApiError> {
    let plan = Plan::new(&request);
    let preparing = service.clone();
    let requests = off_thread(move || request.turn(&preparing)?.requests(&preparing)).await?;
    let prompt = requests.first().map_or(0, |r| r.prompt.len());
    let choices = requests.len();
    let answers = Answers::start(&service, &app.metrics, requests)?;
    match plan.streamed {
        true => Ok(sse::respond(answers, stream::Chunks::new(service, plan, prompt, choices))),
        false => Ok(Json(whole(&service, plan, prompt, choices, answers).await?).into_response()),
    }
}

/// How the answer is to look.
#[derive(Clone, Copy, Debug)]
struct Plan {
    streamed: bool,
    usage: bool,
    one_call: bool,
    reasoning: bool,
}

impl Plan {
    fn new(request: &ChatRequest) -> Plan {
        let chat = &request.chat;
        Plan {
            streamed: chat.stream.unwrap_or(false),
            usage: chat.stream_options.is_some_and(|o| o.include_usage.unwrap_or(false)),
            one_call: !chat.parallel_tool_calls.unwrap_or(true),
            reasoning: chat.include_reasoning.unwrap_or(true),
        }
    }

    /// Is this the end of the only call that may be?
    fn is_enough(self, events: &[Event]) -> bool {
        self.one_call && events.iter().any(|e| matches!(e, Event::CallEnd { .. }))
    }
}

/// What has come of one choice.
#[derive(Debug, Default)]
struct Gathered {
    logprobs: Option<Logprobs>,
    thoughts: Thoughts,
    message: reply::Message,
    answered: usize,
}

impl Gathered {
    /// The message so far, for an answer that is ended by us.
    fn add(&mut self, events: Vec<Event>) {
        for event in events {
            let message = &mut self.message;
            match event {
                Event::Reasoning(text) => message.reasoning.push_str(&text),
                Event::Content(text) => message.content.push_str(&text),
                Event::CallStart { id, name, .. } => {
                    message.calls.push(reply::Call { id, name, ..reply::Call::default() });
                }
                Event::CallArguments { index, delta } => {
                    if let Some(call) = message.calls.get_mut(index) {
                        call.arguments.push_str(&delta);
                    }
                }
                Event::CallEnd { .. } => {}
            }
        }
    }
}

async fn whole(
    service: &Arc<Service>,
    plan: Plan,
    prompt: usize,
    choices: usize,
    mut answers: Answers,
) -> Result<ChatCompletion, ApiError> {
    let mut gathered: Vec<Gathered> = (0..choices).map(|_| Gathered::default()).collect();
    while let Some(news) = answers.next().await {
        let (choice, news) = news?;
        let one = &mut gathered[choice];
        match news {
            News::Started | News::Prompt(_) => {}
            News::Token(token, events) => {
                if let Some(logprob) = TokenLogprob::of(service.model.tokenizer(), &token) {
                    one.logprobs.get_or_insert_default().content.push(logprob);
                }
                one.thoughts.token(&events);
                if plan.is_enough(&events) {
                    answers.enough(choice);
                    one.message.finish = reply::Finish::ToolCalls;
                    one.answered = answers.counts(choice).0;
                }
                one.add(events);
            }
            News::Done(done) => {
                one.message = done.message;
                one.answered = done.answered;
            }
        }
    }
    let answered = gathered.iter().map(|g| g.answered).sum();
    let reasoning = gathered.iter().map(|g| g.thoughts.count()).sum();
    Ok(ChatCompletion {
        id: turn::id("chatcmpl-"),
        object: "chat.completion",
        created: model::now(),
        model: service.model.name().to_owned(),
        usage: Usage::new(prompt, answers.counts(0).1, answered, reasoning),
        choices: gathered.into_iter().enumerate().map(|(index, g)| finished(index, g, plan)).collect(),
        system_fingerprint: fingerprint(),
    })
}

fn finished(index: usize, gathered: Gathered, plan: Plan) -> ChatChoice {
    let mut message = gathered.message;
    if plan.one_call {
        message.calls.truncate(1);
    }
    let call = |call: reply::Call| ToolCall {
        id: call.id,
        r#type: "function",
        function: CalledFunction { name: call.name, arguments: call.arguments },
    };
    let instead = message.content.is_empty() && !message.calls.is_empty();
    let reasoning = Some(message.reasoning).filter(|r| plan.reasoning && !r.is_empty());
    ChatChoice {
        index,
        message: Message {
            role: "assistant",
            content: (!instead).then_some(message.content),
            refusal: None,
            reasoning_content: reasoning,
            tool_calls: message.calls.into_iter().map(call).collect(),
        },
        logprobs: gathered.logprobs,
        finish_reason: finish_reason(message.finish),
    }
}
