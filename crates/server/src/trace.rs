//! A name for each request, a line in the log for each answer.

use crate::app::Shared;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use std::time::Instant;
use tracing::Instrument;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longest name that is taken from a client.
const LONGEST: usize = 128;

/// Takes the client's name for its request, or makes one, and gives it back.
pub(crate) async fn trace(State(app): State<Shared>, request: Request, next: Next) -> Response {
    let given = request.headers().get(REQUEST_ID).and_then(|v| v.to_str().ok());
    let is_fine =
        |id: &&str| !id.is_empty() && id.len() <= LONGEST && id.bytes().all(|b| b.is_ascii_graphic());
    let id = given.filter(is_fine).map_or_else(|| crate::turn::id(""), str::to_owned);
    let span = tracing::info_span!("request", id);
    let method = request.method().clone();
    // Paths that lead nowhere are strangers' text.
    let path = request.extensions().get::<MatchedPath>().map_or("unknown", MatchedPath::as_str).to_owned();
    let begun = Instant::now();
    let mut response = next.run(request).instrument(span.clone()).await;
    let status = response.status().as_u16();
    app.metrics.answered(&path, method.as_str(), status);
    let milliseconds = begun.elapsed().as_millis() as u64;
    let _entered = span.enter();
    match path.as_str() {
        "/health" | "/live" | "/ready" | "/metrics" => {
            tracing::debug!(status, milliseconds, "{method} {path}");
        }
        _ => tracing::info!(status, milliseconds, "{method} {path}"),
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}
