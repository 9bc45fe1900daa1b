//! Request bodies: limits of size and time, JSON, and errors that name the field.

use crate::app::Shared;
use crate::error::ApiError;
use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// A body of more bytes is parsed where it keeps nobody waiting.
const LARGE: usize = 64 << 10;

/// What an endpoint reads from a JSON object.
pub(crate) trait FromJson: Sized {
    /// Unknown fields are left alone, as other servers do.
    ///
    /// # Errors
    /// A field is missing or wrong.
    fn from_json(object: &Map<String, Value>) -> Result<Self, ApiError>;
}

/// A part of a request: those fields of the object that `T` knows. A request may have several parts.
///
/// # Errors
/// Names the field.
pub(crate) fn part<T: DeserializeOwned>(object: &Map<String, Value>) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(object).map_err(|e| {
        let path = e.path().to_string();
        let why = e.into_inner().to_string();
        let missing = why.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
        match (path.as_str(), missing) {
            (".", Some(field)) => ApiError::field(field, format!("`{field}` is missing")),
            (".", None) => ApiError::new(StatusCode::BAD_REQUEST, why),
            _ => ApiError::field(path.clone(), format!("`{path}`: {why}")),
        }
    })
}

/// The body, read into `T`.
#[derive(Debug)]
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: FromJson + Send + 'static> FromRequest<Shared> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Shared) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        check_type(&parts.headers)?;
        let limits = &app.options;
        let read = tokio::time::timeout(limits.body_timeout, read(&parts.headers, body, limits.max_body));
        let bytes = read.await.map_err(|_| {
            let message = format!("the body did not arrive within {:?}", limits.body_timeout);
            ApiError::new(StatusCode::REQUEST_TIMEOUT, message)
        })??;
        match bytes.len() > LARGE {
            false => parse(&bytes),
            true => crate::app::off_thread(move || parse(&bytes)).await,
        }
        .map(JsonBody)
    }
}

fn parse<T: FromJson>(bytes: &[u8]) -> Result<T, ApiError> {
    let bad = |message: String| ApiError::new(StatusCode::BAD_REQUEST, message);
    if bytes.is_empty() {
        return Err(bad("the body is empty, expected a JSON object".into()));
    }
    let value = serde_json::from_slice(bytes).map_err(|e| bad(format!("the body is not valid JSON: {e}")))?;
    match value {
        Value::Object(object) => T::from_json(&object),
        _ => Err(bad("the body must be a JSON object".into())),
    }
}

/// A page elsewhere can have a browser send other types without asking, so they are not taken for JSON.
fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let essence = essence.to_ascii_lowercase();
    match essence == "application/json" || essence.ends_with("+json") {
        true => Ok(()),
        false => Err(ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            format!("the content type is `{}`, expected `application/json`", essence.escape_debug()),
        )),
    }
}

/// What is known to be too large is not waited for: the connection takes care of what still comes.
async fn read(headers: &HeaderMap, body: Body, most: usize) -> Result<Vec<u8>, ApiError> {
    let too_large = || ApiError {
        code: Some("request_too_large"),
        ..ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body has more than {most} bytes, the limit of this server (--max-body-bytes)"),
        )
    };
    let told = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    if told.is_some_and(|told| told > most) {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(told.unwrap_or(0));
    let mut stream = body.into_data_stream();
    while let Some(piece) = stream.next().await {
        let piece = piece.map_err(|e| {
            ApiError::new(StatusCode::BAD_REQUEST, format!("the body could not be read: {e}"))
        })?;
        if bytes.len() + piece.len() > most {
            return Err(too_large());
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    struct Sample {
        needed: u32,
        list: Option<Vec<Inner>>,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    struct Inner {
        x: Option<f32>,
    }

    impl FromJson for Sample {
        fn from_json(object: &Map<String, Value>) -> Result<Self, ApiError> {
            part(object)
        }
    }

    #[test]
    fn errors_name_the_field() {
        let check = |body: &str, param: Option<&str>| {
            let e = parse::<Sample>(body.as_bytes()).unwrap_err();
            assert_eq!((e.status, e.param.as_deref()), (StatusCode::BAD_REQUEST, param), "{body}: {e:?}");
        };
        check("{}", Some("needed"));
        check(r#"{"needed": "7"}"#, Some("needed"));
        check(r#"{"needed": 1.5}"#, Some("needed"));
        check(r#"{"needed": 1, "list": [{}, {"x": "a"}]}"#, Some("list[1].x"));
        for bad in ["", "{", "[]", "null", r#"{"needed": NaN}"#, &"[".repeat(100_000)] {
            check(bad, None);
        }
        assert!(
            parse::<Sample>(json!({"needed": 1, "list": null, "more": 2}).to_string().as_bytes()).is_ok()
        );
    }
}
