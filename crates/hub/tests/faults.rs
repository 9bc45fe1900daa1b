//! Fetching from servers and networks that fail, lie, or mean harm.
#![allow(clippy::unwrap_used)]

mod common;
mod server;

use common::{Log, content, fetch, settings};
use server::{Reply, Repo, Request, Server, part, sha256};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

type Fault = fn(&Request, &dyn Fn() -> Reply) -> Option<Reply>;

const NAME: &str = "m-Q8_0.gguf";

fn one() -> Vec<u8> {
    content(1_000_000, 1)
}

/// A hub with one file of a megabyte.
fn hub(fault: Fault) -> Server {
    Server::start(Repo::new("o/r", &[(NAME, &one())]), fault)
}

/// It comes whole in spite of the fault; gives the ranges that were asked for.
fn comes(fault: Fault) -> (Vec<Option<String>>, String) {
    let (server, dir, log) = (hub(fault), tempfile::tempdir().unwrap(), Log::default());
    let path = fetch(&settings(&server, dir.path()), "o/r", &log).unwrap();
    assert!(fs::read(path).unwrap() == one());
    (server.seen("/cdn/").iter().map(|r| r.headers.get("range").cloned()).collect(), log.notes())
}

/// It does not; gives the server and why, and leaves no file under a final name.
fn fails(fault: Fault, expected: &[&str]) -> (Server, tempfile::TempDir) {
    let (server, dir) = (hub(fault), tempfile::tempdir().unwrap());
    let why = fetch(&settings(&server, dir.path()), "o/r", &Log::default()).unwrap_err().to_string();
    assert!(expected.iter().all(|part| why.contains(part)), "{why}");
    assert!(!why.contains('\n'), "{why}");
    let repo = dir.path().join("models--o--r");
    assert!(!repo.join("refs/main").exists() && !repo.join("snapshots").exists());
    (server, dir)
}

fn blobs(cache: &Path) -> Vec<String> {
    let names = fs::read_dir(cache.join("models--o--r/blobs")).unwrap();
    names.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

fn is_cdn(request: &Request) -> bool {
    request.path.starts_with("/cdn/")
}

#[test]
fn broken_connections_go_on_where_they_broke() {
    let (ranges, _) = comes(|r, usual| (is_cdn(r) && r.nth < 3).then(|| usual().cut(200_000)));
    let range = |from: usize| Some(format!("bytes={from}-999999"));
    assert_eq!(ranges, [None, range(200_000), range(400_000), range(600_000)]);
}

#[test]
fn large_files_come_in_pieces() {
    let server = hub(|r, usual| (is_cdn(r) && r.nth == 1).then(|| usual().cut(100_000)));
    let dir = tempfile::tempdir().unwrap();
    let settings = shardwright_hub::Settings { piece: 400_000, ..settings(&server, dir.path()) };
    let path = fetch(&settings, "o/r", &Log::default()).unwrap();
    assert!(fs::read(path).unwrap() == one());
    let ranges: Vec<String> = server.seen("/cdn/").iter().map(|r| r.headers["range"].clone()).collect();
    assert_eq!(
        ranges,
        ["bytes=0-399999", "bytes=400000-799999", "bytes=500000-899999", "bytes=900000-999999"]
    );
    // Whoever knows no ranges sends everything.
    let server = hub(|r, _| is_cdn(r).then(|| Reply::new(200, one())));
    let settings =
        shardwright_hub::Settings { endpoint: server.endpoint(), cache: dir.path().join("b"), ..settings };
    assert!(fs::read(fetch(&settings, "o/r", &Log::default()).unwrap()).unwrap() == one());
    assert_eq!(server.seen("/cdn/").len(), 1);
}

#[test]
fn endless_breaking_ends() {
    let (server, dir) = fails(|r, usual| is_cdn(r).then(|| usual().cut(100)), &[NAME, "broke"]);
    assert_eq!(server.seen("/cdn/").len(), 6);
    let partial = format!("{}.incomplete", sha256(&one()));
    assert_eq!(blobs(dir.path()), [partial]);
    // What is there is used by the next run.
    let server = hub(|_, _| None);
    fetch(&settings(&server, dir.path()), "o/r", &Log::default()).unwrap();
    assert_eq!(server.seen("/cdn/")[0].headers["range"], "bytes=600-999999");
    assert_eq!(blobs(dir.path()), [sha256(&one())]);
}

#[test]
fn a_server_without_ranges_begins_anew() {
    let (ranges, _) = comes(|r, usual| match r.nth {
        0 if is_cdn(r) => Some(usual().cut(300_000)),
        _ if is_cdn(r) => Some(Reply::new(200, one()).with("etag", &usual().headers[0].1)),
        _ => None,
    });
    assert_eq!(ranges, [None, Some("bytes=300000-999999".into())]);
}

#[test]
fn what_changes_in_between_begins_anew() {
    // A server that heeds If-Range sends everything; one that does not is found out by its tag.
    let (ranges, _) =
        comes(|r, _| (is_cdn(r) && r.nth == 0).then(|| part(&content(1_000_000, 9), r).cut(300_000)));
    assert_eq!(ranges.len(), 2);
    let (ranges, _) = comes(|r, _| match r.nth {
        0 if is_cdn(r) => Some(part(&content(1_000_000, 9), r).cut(300_000)),
        1 if is_cdn(r) => {
            let rest = Reply::new(206, &one()[300_000..]);
            Some(rest.with("content-range", "bytes 300000-999999/1000000").with("etag", "\"new\""))
        }
        _ => None,
    });
    assert_eq!(ranges.len(), 3);
    assert_eq!(ranges[2], None);
}

#[test]
fn wrong_ranges_are_not_believed() {
    for range in
        ["bytes 0-999999/1000000", "bytes 300000-999999/2000000", "bytes 300000-500000/1000000", "x", ""]
    {
        let range = range.to_owned();
        let server = Server::start(Repo::new("o/r", &[(NAME, &one())]), move |r, usual| match r.nth {
            0 if is_cdn(r) => Some(usual().cut(300_000)),
            1 if is_cdn(r) => Some(usual().with("content-range", &range)),
            _ => None,
        });
        let dir = tempfile::tempdir().unwrap();
        let path = fetch(&settings(&server, dir.path()), "o/r", &Log::default()).unwrap();
        assert!(fs::read(path).unwrap() == one());
        let ranges = server.seen("/cdn/").iter().map(|r| r.headers.contains_key("range")).collect::<Vec<_>>();
        assert_eq!(ranges, [false, true, false], "begun anew");
    }
}

#[test]
fn a_damaged_rest_of_an_earlier_run_is_fetched_anew() {
    let (server, dir, log) = (hub(|_, _| None), tempfile::tempdir().unwrap(), Log::default());
    let folder = dir.path().join("models--o--r/blobs");
    let partial = folder.join(format!("{}.incomplete", sha256(&one())));
    fs::create_dir_all(&folder).unwrap();
    fs::write(&partial, [7; 5000]).unwrap();
    let path = fetch(&settings(&server, dir.path()), "o/r", &log).unwrap();
    assert!(fs::read(&path).unwrap() == one());
    assert_eq!(log.begun().1, 995_000);
    assert!(log.notes().contains("damaged"), "{}", log.notes());
    // Longer than it may be: nothing of it is kept.
    fs::remove_dir_all(dir.path().join("models--o--r")).unwrap();
    fs::create_dir_all(&folder).unwrap();
    fs::write(&partial, [7; 1_000_001]).unwrap();
    fetch(&settings(&server, dir.path()), "o/r", &log).unwrap();
    assert_eq!(log.begun().1, 1_000_000);
}

#[test]
fn wrong_content_is_removed() {
    let (server, dir) = fails(
        |r, _| is_cdn(r).then(|| Reply::new(200, content(1_000_000, 9))),
        &[NAME, "SHA-256", &sha256(&one()), "removed"],
    );
    assert_eq!(server.seen("/cdn/").len(), 1);
    assert_eq!(blobs(dir.path()), [""; 0]);
    fails(|r, _| is_cdn(r).then(|| Reply::new(200, content(1_000_001, 1))), &[NAME, "more bytes", "1000000"]);
    fails(|r, _| is_cdn(r).then(|| Reply::new(200, content(999_999, 1))), &[NAME, "after 999999 of 1000000"]);
    fails(
        |r, usual| r.path.contains("/resolve/").then(|| usual().with("x-linked-size", 7)),
        &[NAME, "announces 7"],
    );
    fails(
        |r, usual| r.path.contains("/resolve/").then(|| usual().with("x-linked-etag", "\"abc\"")),
        &[NAME, "announces abc"],
    );
}

#[test]
fn busy_servers_are_asked_again() {
    for status in [408, 429, 500, 502, 503, 504] {
        let (server, dir) = (
            Server::start(Repo::new("o/r", &[(NAME, &one())]), move |r, _| {
                (r.nth == 0).then(|| Reply::new(status, ""))
            }),
            tempfile::tempdir().unwrap(),
        );
        fetch(&settings(&server, dir.path()), "o/r", &Log::default()).unwrap();
        // Each of the two parts of the listing, then the file at the hub and, asked for once more, at the CDN.
        assert_eq!(server.seen("/api/").len(), 4, "{status}");
        assert_eq!(server.seen("/resolve/").len(), 3, "{status}");
    }
    fails(|_, _| Some(Reply::new(503, "")), &["127.0.0.1", "503", "try again later"]);
    fails(|r, _| is_cdn(r).then(|| Reply::new(500, "")), &[NAME, "localhost", "500"]);
}

#[test]
fn servers_are_waited_for_as_long_as_they_ask() {
    let start = Instant::now();
    let (_, notes) =
        comes(|r, _| (is_cdn(r) && r.nth == 0).then(|| Reply::new(429, "").with("retry-after", "1")));
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert!(notes.contains("429") && notes.contains("trying again in 1 s"), "{notes}");
    let start = Instant::now();
    fails(|_, _| Some(Reply::new(429, "").with("retry-after", "99999")), &["429", "99999 s"]);
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn refusals_say_what_to_do() {
    let gated = |r: &Request, _: &dyn Fn() -> Reply| {
        r.path.contains("/resolve/").then(|| Reply::new(403, "").with("x-error-code", "GatedRepo"))
    };
    fails(gated, &["o/r is gated", "accept its licence at http://127.0.0.1", "/o/r", "HF_TOKEN"]);
    fails(|_, _| Some(Reply::new(401, "").with("x-error-code", "GatedRepo")), &["o/r is gated", "HF_TOKEN"]);
    fails(|_, _| Some(Reply::new(401, "")), &["no access to o/r", "401", "check the name", "HF_TOKEN"]);
    fails(|_, _| Some(Reply::new(403, "")), &["no access to o/r", "403"]);
    fails(|_, _| Some(Reply::new(404, "")), &["api/models/o/r", "404", "check the name"]);
    fails(|_, _| Some(Reply::new(404, "").with("x-error-message", "gone")), &["404", "gone"]);
    fails(|_, _| Some(Reply::new(418, "")), &["418"]);
    for status in [401, 403, 404] {
        let server = Server::start(Repo::new("o/r", &[]), move |_, _| Some(Reply::new(status, "")));
        fetch(&settings(&server, Path::new("unused")), "o/r", &Log::default()).unwrap_err();
        assert_eq!(server.seen("").len(), 1, "{status} will not change");
    }
}

#[test]
fn answers_that_make_no_sense() {
    let tree = |text: &'static str| {
        let server = Server::start(Repo::new("o/r", &[]), move |r, _| {
            r.path.contains("/tree/").then(|| Reply::new(200, text))
        });
        fetch(&settings(&server, Path::new("unused")), "o/r", &Log::default()).unwrap_err().to_string()
    };
    for text in ["", "{}", "<html>", "[{}]", "[{\"type\":\"file\",\"path\":\"a.gguf\",\"size\":-1}]"] {
        let why = tree(text);
        assert!(why.contains("does not answer as a hub does"), "{text}: {why}");
    }
    let no_hash = tree(r#"[{"type":"file","path":"a.gguf","size":1,"oid":"../../x"}]"#);
    assert!(no_hash.contains("no hash of a.gguf"), "{no_hash}");
    let deep = "[".repeat(100_000);
    let server = Server::start(Repo::new("o/r", &[]), move |_, _| Some(Reply::new(200, deep.clone())));
    fetch(&settings(&server, Path::new("unused")), "o/r", &Log::default()).unwrap_err();
    fails(|_, _| Some(Reply::new(200, r#"{"sha": "../../../x"}"#)), &["no commit"]);
    fails(|_, _| Some(Reply::new(302, "").with("location", "/again")), &["one redirect too many"]);
    fails(|_, _| Some(Reply::new(302, "")), &["no address"]);
    fails(
        |_, _| Some(Reply::new(302, "").with("location", "file:///etc/passwd")),
        &["file:///etc/passwd", "refused"],
    );
    fails(
        |r, usual| {
            r.path.contains("/tree/").then(|| usual().with("link", format!("<{}>; rel=\"next\"", r.path)))
        },
        &["more than 200 pages"],
    );
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    for name in [
        "../evil.gguf",
        "/tmp/evil.gguf",
        "a/../../evil.gguf",
        "a\\\\evil.gguf",
        "C:evil.gguf",
        "e\\u001b[2Jvil.gguf",
    ] {
        let server = Server::start(Repo::new("o/r", &[(name, b"x"), ("good-Q8_0.gguf", b"y")]), |_, _| None);
        let dir = tempfile::tempdir().unwrap();
        let why = fetch(&settings(&server, dir.path()), "o/r:Q8_0", &Log::default()).unwrap_err().to_string();
        assert!(why.contains("o/r lists a file named") && why.contains("nothing was fetched"), "{why}");
        assert!(!why.contains('\u{1b}'), "{why:?}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

#[test]
fn one_part_that_fails_stops_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let parts: Vec<(String, Vec<u8>)> =
        (1..=3).map(|n| (format!("m-Q8_0-{n:05}-of-00003.gguf"), content(2_000_000, n))).collect();
    let files: Vec<(&str, &[u8])> = parts.iter().map(|(n, b)| (n.as_str(), b.as_slice())).collect();
    let server = Server::start(Repo::new("o/r", &files), |r, usual| match r.path.contains("00002-of") {
        true => is_cdn(r).then(|| Reply::new(404, "")),
        false => is_cdn(r).then(|| Reply { slow: Duration::from_secs(4), ..usual() }),
    });
    let start = Instant::now();
    let why = fetch(&settings(&server, dir.path()), "o/r", &Log::default()).unwrap_err().to_string();
    assert!(why.starts_with("m-Q8_0-00002-of-00003.gguf: ") && why.contains("404"), "{why}");
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    assert!(blobs(dir.path()).iter().all(|name| name.ends_with(".incomplete")));
    assert!(!dir.path().join("models--o--r/snapshots").exists());
}

#[test]
fn more_than_the_disk_holds_is_not_begun() {
    let tree = r#"[{"type":"file","path":"m-Q8_0.gguf","size":1,"oid":"x","lfs":{"oid":"HASH","size":9000000000000000000}}]"#;
    let tree = tree.replace("HASH", &"a".repeat(64));
    let server = Server::start(Repo::new("o/r", &[]), move |r, _| {
        r.path.contains("/tree/").then(|| Reply::new(200, tree.clone()))
    });
    let dir = tempfile::tempdir().unwrap();
    let why = fetch(&settings(&server, dir.path()), "o/r", &Log::default()).unwrap_err().to_string();
    for part in ["not enough space in", "9000000000.00 GB needed", "free"] {
        assert!(why.contains(part), "{why}");
    }
    assert_eq!(server.seen("/resolve/").len(), 0);
}

#[test]
fn two_at_once_fetch_it_once() {
    let server = hub(|r, usual| is_cdn(r).then(|| Reply { slow: Duration::from_millis(40), ..usual() }));
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(&server, dir.path());
    let logs = [Log::default(), Log::default()];
    std::thread::scope(|scope| {
        for log in &logs {
            scope.spawn(|| assert!(fs::read(fetch(&settings, "o/r", log).unwrap()).unwrap() == one()));
        }
    });
    assert_eq!(server.seen("/cdn/").len(), 1);
}
