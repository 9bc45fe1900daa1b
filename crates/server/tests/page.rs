//! The page: open to all, closed to what is not its own.
#![allow(clippy::unwrap_used)]

mod util;

use shardwright_server::options::Options;
use util::{Chain, Server, Setup};

#[test]
fn the_page_needs_no_key_and_takes_nothing_from_elsewhere() {
    let options = Options { model: "chain".into(), api_keys: vec!["secret".into()], ..Options::default() };
    let server = Server::start(&Chain::new(&[]), Setup { options, ..Setup::default() });
    let check = |path: &str, kind: &str, begins: &str| {
        let answer = server.get(path);
        let header = |name: &str| {
            answer
                .head
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
                .unwrap_or_default()
        };
        assert_eq!((answer.status, header("content-type")), (200, kind), "{path}");
        assert!(answer.text.starts_with(begins), "{path}: {}", answer.text);
        let policy = header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"), "{policy}");
        assert_eq!(header("x-content-type-options"), "nosniff");
    };
    check("/", "text/html; charset=utf-8", "<!doctype html>");
    check("/page/style.css", "text/css; charset=utf-8", "/*");
    check("/page/icon.svg", "image/svg+xml", "<svg");
    check("/page/app.js", "text/javascript; charset=utf-8", "//");
    assert_eq!(server.get("/page/other.js").status, 404);
    assert_eq!(server.get("/pages").status, 401);
    assert_eq!(server.get("/v1/models").status, 401);
    assert_eq!(server.ask("POST", "/", "", b"").status, 405);
}
