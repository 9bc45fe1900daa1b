//! Anthropic's endpoints: `/v1/messages`, and the number of tokens that a conversation takes.

mod blocks;
mod chat;
pub(crate) mod error;
mod request;
mod response;
mod stream;

use crate::answer::Answers;
use crate::app::{Open, Shared, off_thread};
use crate::body::JsonBody;
use crate::error::ApiError;
use crate::sse::{self, Writer};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use error::Errors;
use request::{CountRequest, MessagesRequest};
use response::{MessageResponse, TokenCount};
use stream::Story;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// All of them.
pub(crate) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(create)).routes(routes!(count))
}

/// The answer to a conversation.
///
/// With `stream: true` it comes as server-sent events, each with its `type` as name.
#[utoipa::path(post, path = "/v1/messages", tag = "anthropic", request_body = MessagesRequest,
    responses((status = 200, content((MessageResponse = "application/json"), (sse::Frame = "text/event-stream"))), Errors))]
pub(crate) async fn create(
    State(app): State<Shared>,
    Open(service): Open,
    JsonBody(request): JsonBody<MessagesRequest>,
) -> Result<Response, ApiError> {
    let (preparing, one_call) = (service.clone(), request.one_call());
    let (streamed, requests) = off_thread(move || {
        let turn = request.turn(&preparing)?;
        Ok((turn.streamed, turn.requests(&preparing)?))
    })
    .await?;
    let prompt = requests.first().map_or(0, |r| r.prompt.len());
    let mut story = Story::new(service.model.name(), prompt, one_call);
    let mut answers = Answers::start(&service, &app.metrics, requests)?;
    if streamed {
        return Ok(sse::respond(answers, story));
    }
    while let Some(news) = answers.next().await {
        let (choice, news) = news?;
        story.news(choice, news, &mut answers);
    }
    Ok(Json(story.message()).into_response())
}

/// How many tokens a conversation takes.
#[utoipa::path(post, path = "/v1/messages/count_tokens", tag = "anthropic", request_body = CountRequest,
    responses((status = 200, body = TokenCount), Errors))]
pub(crate) async fn count(
    Open(service): Open,
    JsonBody(request): JsonBody<CountRequest>,
) -> Result<Json<TokenCount>, ApiError> {
    off_thread(move || {
        let chat = request.chat(&service)?;
        Ok(Json(TokenCount { input_tokens: service.model.chat(&chat)?.ids.len() }))
    })
    .await
}
