//! OpenAI's endpoints, and the two about words that vLLM and llama-server have. One file an endpoint, with its types.

pub(crate) mod chat;
mod completions;
mod embeddings;
mod models;
mod responses;
mod words;

use crate::app::Shared;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// All of them.
pub(crate) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(models::list))
        .routes(routes!(models::one))
        .routes(routes!(chat::create))
        .routes(routes!(completions::create))
        .routes(routes!(responses::create))
        .routes(routes!(embeddings::create))
        .routes(routes!(words::tokenize))
        .routes(routes!(words::detokenize))
}

/// What answers call the server: a client may see by it that two answers come from the same build.
pub(crate) fn fingerprint() -> String {
    format!("shardwright-{}", env!("CARGO_PKG_VERSION"))
}

/// Why an answer ended, in OpenAI's words.
pub(crate) fn finish_reason(finish: shardwright_text::reply::Finish) -> &'static str {
    use shardwright_text::reply::Finish;
    match finish {
        Finish::Stop => "stop",
        Finish::ToolCalls => "tool_calls",
        Finish::Length => "length",
    }
}

/// The word that ends a stream.
pub(crate) fn done() -> crate::sse::Frame {
    crate::sse::Frame { event: None, data: "[DONE]".into() }
}
