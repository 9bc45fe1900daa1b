//! By which names a server that only this machine reaches may be asked.
//!
//! Without a key it relies on that. A page from elsewhere could get around it: the page's own name comes to mean
//! 127.0.0.1 (DNS rebinding), and its browser takes this server for the one that the page came from. But it still asks
//! by that name.

use crate::app::Shared;
use crate::error::ApiError;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use std::net::IpAddr;

/// Lets requests through that ask by a name which means this machine, or which the operator allows.
pub(crate) async fn check(
    State(app): State<Shared>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    // Browsers always say whom they ask.
    let Some(host) = request.headers().get(header::HOST).filter(|_| app.trusts_hosts_only()) else {
        return Ok(next.run(request).await);
    };
    let (bound, allowed) = (&app.options.host, &app.options.hosts);
    match name(host).is_some_and(|name| is_loopback(&name) || name == *bound || allows(allowed, &name)) {
        true => Ok(next.run(request).await),
        false => {
            let host = String::from_utf8_lossy(host.as_bytes()).escape_debug().to_string();
            let why = format!(
                "this server is for its own machine and is asked as `localhost`, not as `{host}`; if that is to be \
                 another name of it, start it with --allowed-hosts, or with --api-key"
            );
            Err(ApiError { code: Some("host_not_allowed"), ..ApiError::new(StatusCode::FORBIDDEN, why) })
        }
    }
}

/// Without port and brackets.
fn name(host: &HeaderValue) -> Option<String> {
    let authority = Authority::try_from(host.as_bytes()).ok()?;
    Some(authority.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase())
}

fn allows(hosts: &[String], name: &str) -> bool {
    hosts.iter().any(|host| host == "*" || host.eq_ignore_ascii_case(name))
}

/// Does a name or address without brackets always mean this machine?
pub(crate) fn is_loopback(name: &str) -> bool {
    name == "localhost"
        || name.ends_with(".localhost")
        || name.parse().is_ok_and(|ip: IpAddr| ip.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine() {
        let check = |host: &str, expected: bool| {
            let name = name(&HeaderValue::from_str(host).unwrap());
            assert_eq!(name.is_some_and(|name| is_loopback(&name)), expected, "{host}");
        };
        for ours in
            ["localhost", "LOCALHOST:80", "chat.localhost", "127.0.0.1:8080", "127.9.9.9", "[::1]:8080"]
        {
            check(ours, true);
        }
        for other in [
            "evil.example",
            "localhost.evil.example:80",
            "10.0.0.1",
            "[::2]",
            "0.0.0.0",
            "",
            "a b",
            "127.0.0.1.evil.example",
        ] {
            check(other, false);
        }
    }

    #[test]
    fn more_names_can_be_allowed() {
        let check = |hosts: &[&str], expected: bool| {
            let hosts: Vec<String> = hosts.iter().map(|h| (*h).to_owned()).collect();
            assert_eq!(allows(&hosts, "chat.example.com"), expected, "{hosts:?}");
        };
        check(&[], false);
        check(&["example.com"], false);
        check(&["Chat.Example.com"], true);
        check(&["*"], true);
    }
}
