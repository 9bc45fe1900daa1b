//! Whose pages a browser lets ask.

use crate::hosts;
use crate::options::Origins;
use axum::http::{HeaderName, HeaderValue, Uri};
use std::time::Duration;
use tower_http::cors::{AllowHeaders, AllowMethods, AllowOrigin, CorsLayer};

/// The layer that answers browsers' questions.
pub(crate) fn layer(origins: &Origins) -> CorsLayer {
    let origin = match origins {
        Origins::Any => AllowOrigin::any(),
        Origins::Loopback => AllowOrigin::predicate(|origin, _| is_loopback(origin)),
        Origins::Only(list) => AllowOrigin::list(list.iter().filter_map(|o| o.parse::<HeaderValue>().ok())),
    };
    CorsLayer::new()
        .allow_origin(origin)
        .allow_methods(AllowMethods::mirror_request())
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([HeaderName::from_static("x-request-id"), HeaderName::from_static("retry-after")])
        .max_age(Duration::from_secs(600))
}

fn is_loopback(origin: &HeaderValue) -> bool {
    let uri = origin.to_str().ok().and_then(|text| text.parse::<Uri>().ok());
    let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
    hosts::is_loopback(host.trim_start_matches('[').trim_end_matches(']'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_this_machine() {
        let check = |origin: &str, expected: bool| {
            assert_eq!(is_loopback(&origin.parse().unwrap()), expected, "{origin}");
        };
        check("http://localhost:3000", true);
        check("http://127.0.0.1", true);
        check("https://[::1]:8443", true);
        check("http://localhost.example.com", false);
        check("https://example.com", false);
        check("null", false);
    }
}
