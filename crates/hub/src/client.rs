//! One request to the hub: redirects, the token, timeouts, and what an answer means.

use std::io::{self, Read};
use std::time::Duration;

use ureq::http::{HeaderMap, Response, StatusCode, Uri};
use ureq::{Agent, Body};

use crate::connection::connection;
use crate::error::{Error, Result};
use crate::settings::Settings;

/// Longer without a byte, and the connection counts as broken.
const SILENCE: Duration = Duration::from_secs(60);
const CONNECT: Duration = Duration::from_secs(20);
const MOST_REDIRECTS: usize = 8;

/// Speaks to the hub about one repository.
pub(crate) struct Client {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
    repo: String,
}

/// An answer with a status of success.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// What the hub itself said of a file before it sent us elsewhere: hash and size.
    pub(crate) linked: (Option<String>, Option<String>),
    pub(crate) body: Box<dyn Read>,
    at: Uri,
}

impl Client {
    pub(crate) fn new(settings: &Settings, repo: &str) -> Result<Client> {
        let host = host(&parse(&settings.endpoint)?);
        // `get` follows redirects, as the token must not.
        let config = connection(&host, settings.endpoint.starts_with("https"))?
            .timeout_resolve(Some(CONNECT))
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(SILENCE))
            .timeout_per_read(Some(SILENCE))
            .build();
        let (endpoint, token) = (settings.endpoint.clone(), settings.token.clone());
        Ok(Client { agent: config.new_agent(), endpoint, token, repo: repo.to_owned() })
    }

    /// Where the API tells about the repository.
    pub(crate) fn api(&self) -> String {
        format!("{}/api/models/{}", self.endpoint, self.repo)
    }

    /// The page that people look at, and below which files are.
    pub(crate) fn page(&self) -> String {
        format!("{}/{}", self.endpoint, self.repo)
    }

    /// Asks for `url`, wherever that leads. The token goes to the hub's own host only.
    pub(crate) fn get(&self, url: &str, headers: &[(&str, String)]) -> Result<Reply> {
        let hub = parse(&self.endpoint)?;
        let mut at = parse(url)?;
        let mut linked = (None, None);
        for _ in 0..MOST_REDIRECTS {
            let mut request = self.agent.get(at.clone()).header("accept-encoding", "identity");
            for (name, value) in headers {
                request = request.header(*name, value);
            }
            let own = at.scheme() == hub.scheme() && at.authority() == hub.authority();
            if let Some(token) = self.token.as_ref().filter(|_| own) {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            let response = request.call().map_err(|e| failed(&host(&at), e))?;
            if own {
                let said =
                    |name: &str| text(response.headers(), name).map(|v| v.trim_matches('"').to_owned());
                linked = (said("x-linked-etag").or(linked.0), said("x-linked-size").or(linked.1));
            }
            match response.status() {
                s if s.is_success() => return Ok(Reply::new(at, response, linked)),
                s if s.is_redirection() => {
                    let to = text(response.headers(), "location").unwrap_or_default();
                    at = follow(&at, &to)?;
                }
                s => return Err(self.refusal(&at, s, response.headers())),
            }
        }
        let (host, to) = (host(&hub), at.to_string());
        Err(Error::Redirect { host, to, why: "one redirect too many" })
    }

    /// What a status means that is neither success nor redirection.
    fn refusal(&self, at: &Uri, status: StatusCode, headers: &HeaderMap) -> Error {
        let code = text(headers, "x-error-code").unwrap_or_default();
        let said = text(headers, "x-error-message");
        let said = said.map_or(String::new(), |s| format!(": {}", s.chars().take(200).collect::<String>()));
        let (repo, host, status) = (self.repo.clone(), host(at), status.as_u16());
        match (status, code.as_str()) {
            (401 | 403, "GatedRepo") => Error::Gated { repo, page: self.page() },
            (401, _) if self.token.is_none() => Error::Denied {
                repo,
                status,
                advice: "it does not exist, or is private or gated: check the name, or set HF_TOKEN",
            },
            (401, _) => {
                Error::Denied { repo, status, advice: "it does not exist, or HF_TOKEN is wrong or expired" }
            }
            (403, _) => Error::Denied {
                repo,
                status,
                advice: "accept its licence on its page, or give HF_TOKEN the right to read it",
            },
            (404, _) => Error::Missing { url: at.to_string(), said },
            (408 | 429 | 500.., _) => Error::Busy { host, status, wait: wait(headers) },
            _ => Error::Status { host, status, said },
        }
    }
}

impl Reply {
    fn new(at: Uri, response: Response<Body>, linked: (Option<String>, Option<String>)) -> Reply {
        let (parts, body) = response.into_parts();
        let (status, headers) = (parts.status.as_u16(), parts.headers);
        Reply { status, headers, linked, body: Box::new(body.into_reader()), at }
    }

    /// The next page, of an answer that is one of several: `Link: <URL>; rel="next"`.
    pub(crate) fn next(&self) -> Result<Option<String>> {
        let links = text(&self.headers, "link").unwrap_or_default();
        let next = links.split(',').find_map(|link| {
            let (url, more) = link.trim().strip_prefix('<')?.split_once('>')?;
            more.contains("rel=\"next\"").then_some(url)
        });
        next.map(|url| follow(&self.at, url).map(|uri| uri.to_string())).transpose()
    }

    /// The header, if it is text.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        text(&self.headers, name)
    }

    /// What `read` of the body said.
    pub(crate) fn broken(&self, e: io::Error) -> Error {
        failed(&host(&self.at), ureq::Error::from(e))
    }
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

fn parse(url: &str) -> Result<Uri> {
    let uri = url.parse::<Uri>().ok().filter(|u| u.scheme().is_some() && u.authority().is_some());
    uri.ok_or_else(|| Error::Setting(format!("`{url}` is no address; does HF_ENDPOINT name a hub?")))
}

fn host(uri: &Uri) -> String {
    // An authority may carry a name and a password.
    let authority = uri.authority().map_or("", |a| a.as_str());
    authority.rsplit('@').next().unwrap_or_default().to_owned()
}

/// Where a redirect or a link leads; never from a secure connection to an open one.
fn follow(at: &Uri, to: &str) -> Result<Uri> {
    let refuse = |why| Error::Redirect { host: host(at), to: to.chars().take(200).collect(), why };
    let (scheme, authority) =
        (at.scheme_str().unwrap_or_default(), at.authority().map_or("", |a| a.as_str()));
    let whole = match () {
        () if to.starts_with("//") => format!("{scheme}:{to}"),
        () if to.starts_with('/') => format!("{scheme}://{authority}{to}"),
        () => to.to_owned(),
    };
    let next = parse(&whole).map_err(|_| refuse("no address"))?;
    match (scheme, next.scheme_str()) {
        ("https", Some("https")) | ("http", Some("http" | "https")) => Ok(next),
        _ => Err(refuse("not secure")),
    }
}

/// How long to wait: `Retry-After` in seconds, or the rest of the hub's `RateLimit` window. A date is left to the
/// usual pauses.
fn wait(headers: &HeaderMap) -> Option<Duration> {
    let after = text(headers, "retry-after").and_then(|v| v.trim().parse().ok());
    let window = || {
        let limit = text(headers, "ratelimit")?;
        limit.split([';', ',']).find_map(|part| part.trim().strip_prefix("t=")?.parse().ok())
    };
    after.or_else(window).map(Duration::from_secs)
}

/// Failures below HTTP: no way to the host, no trust in it, or a connection that broke.
fn failed(host: &str, e: ureq::Error) -> Error {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionReset, InvalidData, TimedOut, UnexpectedEof,
    };
    use ureq::{Error as Http, Timeout};
    let host = host.to_owned();
    match e {
        Http::Io(e) if e.kind() == InvalidData => Error::Tls { host, why: e.to_string() },
        Http::Rustls(e) => Error::Tls { host, why: e.to_string() },
        Http::Tls(why) => Error::Tls { host, why: why.into() },
        Http::Timeout(Timeout::Resolve | Timeout::Connect) => {
            Error::Unreachable { host, why: format!("no answer within {} s", CONNECT.as_secs()) }
        }
        Http::Io(e)
            if [BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut, UnexpectedEof]
                .contains(&e.kind()) =>
        {
            Error::Broken(format!("the connection to {host} broke: {e}"))
        }
        Http::Timeout(_) => Error::Broken(format!("{host} sent nothing for {} s", SILENCE.as_secs())),
        Http::Protocol(e) => Error::Broken(format!("{host} does not speak HTTP: {e}")),
        Http::Io(e) => Error::Unreachable { host, why: e.to_string() },
        e => Error::Unreachable { host, why: e.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        all.iter().map(|(n, v)| (n.parse().unwrap(), v.parse().unwrap())).collect()
    }

    #[test]
    fn redirects_never_leave_the_secure_connection() {
        let check = |from: &str, to: &str, want: Option<&str>| {
            let found = follow(&parse(from).unwrap(), to).ok();
            assert_eq!(found.map(|u| u.to_string()).as_deref(), want, "{from} {to}");
        };
        check("https://hub/a", "https://cdn/b?c=d", Some("https://cdn/b?c=d"));
        check("https://hub/a", "/b", Some("https://hub/b"));
        check("http://hub:8/a", "/b", Some("http://hub:8/b"));
        check("https://hub/a", "//cdn/b", Some("https://cdn/b"));
        check("http://hub/a", "https://cdn/b", Some("https://cdn/b"));
        for bad in ["http://cdn/b", "file:///etc/passwd", "ftp://x/y", "", "b", "https://"] {
            check("https://hub/a", bad, None);
        }
    }

    #[test]
    fn servers_say_how_long_to_wait() {
        let check = |all: &[(&'static str, &str)], want: Option<u64>| {
            assert_eq!(wait(&headers(all)).map(|d| d.as_secs()), want, "{all:?}");
        };
        check(&[], None);
        check(&[("retry-after", " 7 ")], Some(7));
        check(&[("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT")], None);
        check(&[("ratelimit", "\"resolvers\";r=0;t=55")], Some(55));
        check(&[("retry-after", "3"), ("ratelimit", "\"api\";r=0;t=55")], Some(3));
        check(&[("retry-after", "-1")], None);
    }
}
