//! API keys.

use crate::app::Shared;
use crate::error::ApiError;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use subtle::{Choice, ConstantTimeEq};

/// What watchers, and browsers before they have a key, may ask; the page's files, too.
const PUBLIC: [&str; 6] = ["/", "/health", "/live", "/ready", "/version", "/metrics"];

/// Lets requests through that have a key, if keys are wanted.
pub(crate) async fn check(
    State(app): State<Shared>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let (keys, path) = (&app.options.api_keys, request.uri().path());
    let public = PUBLIC.contains(&path) || path.starts_with("/page/");
    let free = keys.is_empty() || request.method() == Method::OPTIONS || public;
    match free || is_known(keys, given(request.headers())) {
        true => Ok(next.run(request).await),
        false => Err(ApiError {
            code: Some("invalid_api_key"),
            ..ApiError::new(
                StatusCode::UNAUTHORIZED,
                "this server wants an API key: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`",
            )
        }),
    }
}

fn given(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
    });
    bearer.or_else(|| headers.get("x-api-key").map(|value| value.as_bytes().trim_ascii()))
}

/// Takes the same time whichever key it is, and however much of it is right.
fn is_known(keys: &[String], given: Option<&[u8]>) -> bool {
    let Some(given) = given else { return false };
    let any = keys.iter().fold(Choice::from(0), |any, key| any | key.as_bytes().ct_eq(given));
    any.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_in_two_headers() {
        let check = |name: &'static str, value: &str, expected: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            let keys = ["first".to_owned(), "second".to_owned()];
            assert_eq!(is_known(&keys, given(&headers)), expected, "{name}: {value}");
        };
        check("authorization", "Bearer second", true);
        check("authorization", "bearer first", true);
        check("x-api-key", "first", true);
        for bad in ["Bearer", "Bearer ", "Bearer firs", "Bearer firstt", "Basic first", "first"] {
            check("authorization", bad, false);
        }
        check("x-api-key", "", false);
        assert!(!is_known(&["k".to_owned()], None));
    }
}
