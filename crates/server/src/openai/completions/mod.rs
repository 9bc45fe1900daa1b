//! `/v1/completions`: texts to be continued.

mod request;
mod response;

use crate::answer::{Answers, News};
use crate::app::{Open, Service, Shared, off_thread};
use crate::body::JsonBody;
use crate::error::{ApiError, Errors};
use crate::openai::{done, fingerprint, finish_reason};
use crate::sse::{Frame, Writer};
use crate::usage::Usage;
use crate::{model, sse, turn};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use request::{CompletionRequest, Ready};
pub(crate) use request::{PromptField, few};
use response::{Completion, CompletionChoice, Logprobs};
use shardwright_engine::request::Request;
use shardwright_engine::sample::{Choice as Token, Logprobs as Found};
use shardwright_text::reply::Event;
use std::sync::Arc;

/// Continued texts.
///
/// With `stream: true` they come as server-sent events of `Completion`, the last of which is `[DONE]`.
#[utoipa::path(post, path = "/v1/completions", tag = "openai", request_body = CompletionRequest,
    responses((status = 200, content((Completion = "application/json"), (sse::Frame = "text/event-stream"))), Errors))]
pub(crate) async fn create(
    State(app): State<Shared>,
    Open(service): Open,
    JsonBody(request): JsonBody<CompletionRequest>,
) -> Result<Response, ApiError> {
    let streamed = request.fields.stream.unwrap_or(false);
    let usage = request.fields.stream_options.is_some_and(|o| o.include_usage.unwrap_or(false));
    let preparing = service.clone();
    let ready = off_thread(move || request.ready(&preparing)).await?;
    let mut texts = Texts::new(service.clone(), usage, &ready);
    let mut answers = Answers::start(&service, &app.metrics, ready.requests)?;
    if streamed {
        return Ok(sse::respond(answers, texts));
    }
    while let Some(news) = answers.next().await {
        let (index, news) = news?;
        texts.take(index, news);
    }
    Ok(Json(texts.whole(&answers)).into_response())
}

/// Writes the texts.
struct Texts {
    service: Arc<Service>,
    usage: bool,
    id: String,
    created: u64,
    prompt_tokens: usize,
    /// Choices of a prompt.
    each: usize,
    choices: Vec<Progress>,
}

/// One text: what of it has not been sent.
#[derive(Default)]
struct Progress {
    /// Of the prompt, if it is echoed.
    ids: Vec<u32>,
    text: String,
    logprobs: Option<Logprobs>,
    /// Where the next token begins.
    at: usize,
    answered: usize,
    finish: Option<&'static str>,
}

impl Texts {
    fn new(service: Arc<Service>, usage: bool, ready: &Ready) -> Texts {
        let progress = |(echo, request): (&String, &Request)| Progress {
            ids: if request.prompt_logprobs.is_some() { request.prompt.clone() } else { Vec::new() },
            at: echo.chars().count(),
            text: echo.clone(),
            ..Progress::default()
        };
        Texts {
            service,
            usage,
            id: turn::id("cmpl-"),
            created: model::now(),
            prompt_tokens: ready.prompt_tokens,
            each: ready.choices,
            choices: ready.echoes.iter().zip(&ready.requests).map(progress).collect(),
        }
    }

    fn take(&mut self, index: usize, news: News) {
        let one = &mut self.choices[index];
        match news {
            News::Started => {}
            News::Prompt(found) => one.prompt(&self.service, &found),
            News::Token(token, events) => {
                one.token(&self.service, &token);
                one.add(events);
            }
            News::Done(done) => {
                one.answered = done.answered;
                one.finish = Some(finish_reason(done.message.finish));
                one.add(done.events);
            }
        }
    }

    fn counted(&self, answers: &Answers) -> Usage {
        let answered = self.choices.iter().map(|c| c.answered).sum();
        let cached = (0..self.choices.len()).step_by(self.each).map(|i| answers.counts(i).1).sum();
        Usage::new(self.prompt_tokens, cached, answered, 0)
    }

    fn completion(&self, choices: Vec<CompletionChoice>, usage: Option<Option<Usage>>) -> Completion {
        Completion {
            id: self.id.clone(),
            object: "text_completion",
            created: self.created,
            model: self.service.model.name().to_owned(),
            choices,
            usage,
            system_fingerprint: fingerprint(),
        }
    }

    fn whole(&mut self, answers: &Answers) -> Completion {
        let usage = self.counted(answers);
        let choices = self.choices.iter_mut().enumerate().map(|(i, c)| c.choice(i)).collect();
        self.completion(choices, Some(Some(usage)))
    }
}

impl Progress {
    fn token(&mut self, service: &Service, token: &Token) {
        if let Some(found) = &token.logprobs {
            let logprobs = self.logprobs.get_or_insert_default();
            self.at = logprobs.push(service.model.tokenizer(), token.token, Some(found), self.at);
        }
    }

    /// The prompt's own tokens are part of the text.
    fn prompt(&mut self, service: &Service, found: &[Found]) {
        let logprobs = self.logprobs.get_or_insert_default();
        self.at = 0;
        let found = std::iter::once(None).chain(found.iter().map(Some));
        for (token, found) in self.ids.iter().zip(found) {
            self.at = logprobs.push(service.model.tokenizer(), *token, found, self.at);
        }
    }

    fn add(&mut self, events: Vec<Event>) {
        for event in events {
            if let Event::Content(text) = event {
                self.text.push_str(&text);
            }
        }
    }

    /// What has not been sent.
    fn choice(&mut self, index: usize) -> CompletionChoice {
        CompletionChoice {
            index,
            text: std::mem::take(&mut self.text),
            logprobs: self.logprobs.take(),
            finish_reason: self.finish,
        }
    }
}

impl Writer for Texts {
    fn news(&mut self, index: usize, news: News, _: &mut Answers) -> Vec<Frame> {
        self.take(index, news);
        let one = &mut self.choices[index];
        if one.text.is_empty() && one.finish.is_none() {
            return Vec::new();
        }
        let choice = one.choice(index);
        vec![Frame::data(&self.completion(vec![choice], self.usage.then_some(None)))]
    }

    fn end(&mut self, answers: &Answers) -> Vec<Frame> {
        let usage = self.usage.then(|| self.counted(answers));
        let last = usage.map(|usage| Frame::data(&self.completion(Vec::new(), Some(Some(usage)))));
        last.into_iter().chain([done()]).collect()
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Frame> {
        vec![Frame::data(&error.body()), done()]
    }
}
