//! Errors in Anthropic's form, wherever under this API's paths they arise.

use crate::error::ApiError;
use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderName, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::openapi::{Content, Ref, RefOr, response};
use utoipa::{IntoResponses, ToSchema};

const PATHS: &str = "/v1/messages";

/// What this API calls `x-request-id`.
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// The body of every error.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MessageError {
    /// `error`.
    r#type: &'static str,
    error: MessageErrorDetail,
    /// Names the request, in the server's log too.
    request_id: Option<String>,
}

/// What is wrong.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MessageErrorDetail {
    /// The kind of error.
    r#type: &'static str,
    /// For people.
    message: String,
}

impl MessageError {
    /// Also the data of the event that ends a stream.
    pub(super) fn new(error: &ApiError, request_id: Option<String>) -> MessageError {
        let message = match error.code {
            // Clients look for these words before they shorten a conversation.
            Some("context_length_exceeded") => format!("prompt is too long: {}", error.message),
            _ => error.message.clone(),
        };
        MessageError {
            r#type: "error",
            error: MessageErrorDetail { r#type: kind(error), message },
            request_id,
        }
    }
}

/// The kind of error, in Anthropic's words.
fn kind(error: &ApiError) -> &'static str {
    match error.status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 => "overloaded_error",
        408 | 504 => "timeout_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}

/// Around all that may fail: gives errors under this API's paths its form, and answers its name for their request.
pub(crate) async fn form(request: Request, next: Next) -> Response {
    let ours = request.uri().path().starts_with(PATHS);
    let mut response = next.run(request).await;
    if !ours {
        return response;
    }
    let id = response.headers().get("x-request-id").cloned();
    if let Some(error) = response.extensions_mut().remove::<ApiError>() {
        let named = id.as_ref().and_then(|id| id.to_str().ok()).map(str::to_owned);
        response.headers_mut().remove(header::CONTENT_LENGTH);
        *response.body_mut() = Json(MessageError::new(&error, named)).into_response().into_body();
    }
    if let Some(id) = id {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// What endpoints of this API may answer instead, for the description of the interface: as elsewhere, in its own form.
pub(super) struct Errors;

impl IntoResponses for Errors {
    fn responses() -> BTreeMap<String, RefOr<response::Response>> {
        let mut all = crate::error::Errors::responses();
        for response in all.values_mut() {
            if let RefOr::T(response) = response {
                let body = Content::new(Some(Ref::from_schema_name("MessageError")));
                response.content.insert("application/json".into(), body.into());
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::StatusCode;

    #[test]
    fn statuses_have_this_apis_kinds() {
        let check = |status: u16, expected: &str| {
            let error = ApiError::new(StatusCode::from_u16(status).unwrap(), "x");
            assert_eq!(kind(&error), expected, "{status}");
        };
        check(400, "invalid_request_error");
        check(401, "authentication_error");
        check(403, "permission_error");
        check(404, "not_found_error");
        check(405, "invalid_request_error");
        check(408, "timeout_error");
        check(413, "request_too_large");
        check(415, "invalid_request_error");
        check(429, "rate_limit_error");
        check(500, "api_error");
        check(503, "overloaded_error");
        check(504, "timeout_error");
    }
}
