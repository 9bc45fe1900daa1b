//! What a client is told when its request cannot be answered, in OpenAI's form.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use shardwright_engine::Error as EngineError;
use shardwright_text::Error as TextError;
use utoipa::{IntoResponses, ToSchema};

/// Longest message: some quote what the client sent.
const MESSAGE_CHARS: usize = 600;

/// A request that cannot be answered. Endpoints of another API's form find it among a response's extensions.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    /// The HTTP status.
    pub status: StatusCode,
    /// For programs: `context_length_exceeded`, `model_not_found`, ...
    pub code: Option<&'static str>,
    /// The field of the request that is wrong.
    pub param: Option<String>,
    /// For people, in one line.
    pub message: String,
    /// Seconds after which to try again.
    pub retry_after: Option<u64>,
}

/// The body of every error.
#[derive(Debug, Serialize, ToSchema)]
pub struct ErrorBody {
    error: ErrorDetail,
}

/// What is wrong.
#[derive(Debug, Serialize, ToSchema)]
pub struct ErrorDetail {
    /// For people.
    message: String,
    /// The kind of error.
    r#type: &'static str,
    /// For programs.
    code: Option<&'static str>,
    /// The field of the request that is wrong.
    param: Option<String>,
}

/// What any endpoint may answer instead, for the description of the interface.
#[derive(IntoResponses)]
#[allow(dead_code, reason = "only described, never made")]
pub(crate) enum Errors {
    /// A field is wrong, or asks for what is not supported; `param` names it.
    #[response(status = 400)]
    BadRequest(ErrorBody),
    /// An API key is wanted.
    #[response(status = 401)]
    Unauthorized(ErrorBody),
    /// This server is not to be asked by this name.
    #[response(status = 403)]
    Forbidden(ErrorBody),
    /// There is no such model.
    #[response(status = 404)]
    NotFound(ErrorBody),
    /// The body came too slowly.
    #[response(status = 408)]
    Slow(ErrorBody),
    /// The body is too large.
    #[response(status = 413)]
    TooLarge(ErrorBody),
    /// The body is no JSON.
    #[response(status = 415)]
    MediaType(ErrorBody),
    /// Too many requests wait; `retry-after` says when to come again.
    #[response(status = 429)]
    Busy(ErrorBody),
    /// The server is at fault.
    #[response(status = 500)]
    Internal(ErrorBody),
    /// Not ready, or ending.
    #[response(status = 503)]
    Unavailable(ErrorBody),
    /// The answer took longer than the server's limit.
    #[response(status = 504)]
    Timeout(ErrorBody),
}

impl ApiError {
    /// With nothing but a status and a message.
    pub fn new(status: StatusCode, message: impl Into<String>) -> ApiError {
        let mut message: String = message.into();
        if let Some((at, _)) = message.char_indices().nth(MESSAGE_CHARS) {
            message.truncate(at);
            message.push_str("...");
        }
        ApiError { status, code: None, param: None, message, retry_after: None }
    }

    /// 400: a field is wrong.
    pub fn field(param: impl Into<String>, message: impl Into<String>) -> ApiError {
        ApiError { param: Some(param.into()), ..ApiError::new(StatusCode::BAD_REQUEST, message) }
    }

    /// 400: a field asks for what is not supported.
    pub fn unsupported(param: &str, why: &str) -> ApiError {
        let message = format!("`{param}` is not supported: {why}");
        ApiError { code: Some("unsupported_parameter"), ..ApiError::field(param, message) }
    }

    /// 400: the prompt does not fit the context.
    pub fn too_long(message: impl Into<String>) -> ApiError {
        ApiError { code: Some("context_length_exceeded"), ..ApiError::field("prompt", message) }
    }

    /// 503: not now.
    pub fn unavailable(message: impl Into<String>, retry_after: u64) -> ApiError {
        ApiError {
            code: Some("service_unavailable"),
            retry_after: Some(retry_after),
            ..ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message)
        }
    }

    /// The kind of error, in OpenAI's words.
    pub fn kind(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            503 => "service_unavailable_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        }
    }

    /// The body in OpenAI's form; also the data of an event that ends a stream.
    pub fn body(&self) -> ErrorBody {
        ErrorBody {
            error: ErrorDetail {
                message: self.message.clone(),
                r#type: self.kind(),
                code: self.code,
                param: self.param.clone(),
            },
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response.extensions_mut().insert(self);
        response
    }
}

impl From<EngineError> for ApiError {
    fn from(e: EngineError) -> ApiError {
        let message = e.to_string();
        match e {
            EngineError::Parameter { name, .. } => ApiError::field(name, message),
            EngineError::PromptTooLong { .. } | EngineError::CacheTooSmall { .. } => {
                ApiError::too_long(message)
            }
            EngineError::EmptyPrompt | EngineError::UnknownToken { .. } => ApiError::field("prompt", message),
            EngineError::NothingLeft => ApiError::field("logit_bias", message),
            EngineError::NonFinite { .. } => ApiError {
                code: Some("non_finite_values"),
                ..ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
            },
            EngineError::Grammar { .. } => ApiError::field("response_format", message),
            // A form that compiles may still be too much to follow; it is the client's.
            EngineError::Guide(_) => {
                ApiError { code: Some("grammar_failed"), ..ApiError::field("response_format", message) }
            }
            EngineError::Busy { .. } => ApiError {
                code: Some("queue_full"),
                retry_after: Some(1),
                ..ApiError::new(StatusCode::TOO_MANY_REQUESTS, message)
            },
            EngineError::Stopped => ApiError::unavailable("the server is shutting down", 5),
            EngineError::Executor(_) | EngineError::Broken(_) => ApiError {
                code: Some("backend_failed"),
                ..ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
            },
        }
    }
}

impl From<TextError> for ApiError {
    fn from(e: TextError) -> ApiError {
        match e {
            TextError::NoSuchToken { .. } => ApiError::field("tokens", e.to_string()),
            TextError::NoToken { .. } | TextError::TooLong { .. } => ApiError::field("prompt", e.to_string()),
            // Templates fail on conversations that their authors did not think of.
            _ => ApiError::field("messages", e.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_and_codes() {
        let check = |e: ApiError, status: u16, kind: &str, code: Option<&str>, param: Option<&str>| {
            assert_eq!(
                (e.status.as_u16(), e.kind(), e.code, e.param.as_deref()),
                (status, kind, code, param)
            );
        };
        let too_long = EngineError::PromptTooLong { prompt: 600, context: 512 };
        let code = Some("context_length_exceeded");
        check(too_long.into(), 400, "invalid_request_error", code, Some("prompt"));
        let heavy = EngineError::Guide("too many items".into());
        let (code, param) = (Some("grammar_failed"), Some("response_format"));
        check(heavy.into(), 400, "invalid_request_error", code, param);
        let nan = EngineError::NonFinite { at: "layer 3".into() };
        check(nan.into(), 500, "server_error", Some("non_finite_values"), None);
        check(
            ApiError::unavailable("x", 1),
            503,
            "service_unavailable_error",
            Some("service_unavailable"),
            None,
        );
        check(TextError::Refused("no".into()).into(), 400, "invalid_request_error", None, Some("messages"));
    }

    #[test]
    fn long_messages_are_cut() {
        let e = ApiError::field("x", "ü".repeat(10_000));
        assert_eq!(e.message.chars().count(), MESSAGE_CHARS + 3);
    }
}
