//! Fetching from a hub that does as it should.
#![allow(clippy::unwrap_used)]

mod common;
mod server;

use common::{Log, content, fetch, settings};
use server::{COMMIT, Reply, Repo, Server, sha256};
use std::fs;

#[test]
fn the_cache_has_the_layout_that_others_read() {
    let (dir, one) = (tempfile::tempdir().unwrap(), content(300_000, 1));
    let server =
        Server::start(Repo::new("o/r", &[("sub dir/m-Q8_0.gguf", &one), ("README.md", b"x")]), |_, _| None);
    let log = Log::default();
    let path = fetch(&settings(&server, dir.path()), "o/r", &log).unwrap();
    let repo = dir.path().join("models--o--r");
    assert_eq!(path, repo.join("snapshots").join(COMMIT).join("sub dir/m-Q8_0.gguf"));
    assert_eq!(fs::read(&path).unwrap(), one);
    let target = format!("../../../blobs/{}", sha256(&one));
    assert_eq!(fs::read_link(&path).unwrap().to_str(), Some(target.as_str()));
    assert_eq!(fs::read_to_string(repo.join("refs/main")).unwrap(), COMMIT);
    assert_eq!(fs::read_dir(repo.join("blobs")).unwrap().count(), 1, "nothing incomplete is left");
    assert_eq!(log.begun(), (vec![("sub dir/m-Q8_0.gguf".to_owned(), 300_000)], 300_000));
    assert_eq!(log.last(0), Some(300_000));
    assert_eq!(server.seen("README").len(), 0);
}

#[test]
fn all_parts_come_whichever_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let parts: Vec<(String, Vec<u8>)> = (1..=7)
        .map(|n| (format!("BF16/m-BF16-{n:05}-of-00007.gguf"), content(50_000 + n, n as u64)))
        .collect();
    let mut files: Vec<(&str, &[u8])> = parts.iter().map(|(n, b)| (n.as_str(), b.as_slice())).collect();
    files.extend([("m-Q4_K_M.gguf", b"other" as &[u8]), ("mmproj-BF16.gguf", b"images")]);
    let server = Server::start(Repo::new("o/r", &files), |_, _| None);
    let path = fetch(&settings(&server, dir.path()), "o/r:bf16", &Log::default()).unwrap();
    assert!(path.ends_with("BF16/m-BF16-00001-of-00007.gguf"));
    for (name, bytes) in &parts {
        let name = name.rsplit('/').next().unwrap();
        assert_eq!(fs::read(path.with_file_name(name)).unwrap(), *bytes, "{name}");
    }
    assert_eq!(server.seen("/cdn/").len(), 7);
    let path = fetch(&settings(&server, dir.path()), "o/r", &Log::default()).unwrap();
    assert!(path.ends_with("m-Q4_K_M.gguf"));
}

#[test]
fn what_is_there_is_not_fetched_again() {
    let (dir, one) = (tempfile::tempdir().unwrap(), content(100_000, 2));
    let server = Server::start(Repo::new("o/r", &[("m-Q8_0.gguf", &one)]), |_, _| None);
    let settings = settings(&server, dir.path());
    let path = fetch(&settings, "o/r", &Log::default()).unwrap();
    assert_eq!(fetch(&settings, "o/r:Q8_0", &Log::default()).unwrap(), path);
    assert_eq!(server.seen("/resolve/").len(), 1);
    // The same content at another commit: only the name is new.
    let repo = dir.path().join("models--o--r");
    fs::rename(repo.join("snapshots").join(COMMIT), repo.join("snapshots").join("f".repeat(40))).unwrap();
    fs::write(repo.join("refs/main"), "f".repeat(40)).unwrap();
    assert_eq!(fetch(&settings, "o/r", &Log::default()).unwrap(), path);
    assert_eq!(server.seen("/resolve/").len(), 1);
    assert_eq!(fs::read_to_string(repo.join("refs/main")).unwrap(), COMMIT);
    // A blob that somebody cut off is no blob.
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(10).unwrap();
    fetch(&settings, "o/r", &Log::default()).unwrap();
    assert_eq!(fs::read(&path).unwrap(), one);
}

#[test]
fn without_a_network_the_cache_serves() {
    let (dir, one) = (tempfile::tempdir().unwrap(), content(100_000, 3));
    let server = Server::start(Repo::new("o/r", &[("m-Q8_0.gguf", &one)]), |_, _| None);
    let online = settings(&server, dir.path());
    let offline = shardwright_hub::Settings { offline: true, ..online.clone() };
    let away = shardwright_hub::Settings { endpoint: "http://127.0.0.1:1".into(), ..online.clone() };
    let why = |s, wanted| fetch(s, wanted, &Log::default()).unwrap_err().to_string();
    assert!(why(&offline, "o/r").contains("o/r is not in the cache"), "{}", why(&offline, "o/r"));
    assert!(why(&away, "o/r").contains("cannot reach 127.0.0.1:1"), "{}", why(&away, "o/r"));
    let path = fetch(&online, "o/r", &Log::default()).unwrap();
    let asked = server.seen("").len();
    assert_eq!(fetch(&offline, "o/r:q8_0", &Log::default()).unwrap(), path);
    let log = Log::default();
    assert_eq!(fetch(&away, "o/r", &log).unwrap(), path);
    assert!(log.notes().contains("using what is cached"), "{}", log.notes());
    assert!(
        why(&offline, "o/r:Q6_K").contains("o/r has no Q6_K; there are: Q8_0"),
        "{}",
        why(&offline, "o/r:Q6_K")
    );
    assert_eq!(server.seen("").len(), asked, "offline means offline");
    // A link whose content is gone is no file.
    fs::remove_file(path.canonicalize().unwrap()).unwrap();
    assert!(why(&offline, "o/r").contains("not in the cache"));
}

#[test]
fn the_token_goes_to_the_hub_alone() {
    let (dir, one) = (tempfile::tempdir().unwrap(), content(1000, 4));
    let server = Server::start(Repo::new("o/r", &[("m-Q8_0.gguf", &one)]), |_, _| None);
    let mut settings = settings(&server, dir.path());
    settings.token = Some("hf_secret".into());
    fetch(&settings, "o/r", &Log::default()).unwrap();
    let bearer = |part: &str| -> Vec<Option<String>> {
        server.seen(part).iter().map(|r| r.headers.get("authorization").cloned()).collect()
    };
    let own = Some("Bearer hf_secret".to_owned());
    assert_eq!(bearer("/api/"), [own.clone(), own.clone()]);
    assert_eq!(bearer("/resolve/"), [own]);
    assert_eq!(bearer("/cdn/"), [None], "localhost is not 127.0.0.1");
}

#[test]
fn listings_come_in_pages() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (content(1000, 5), content(2000, 6));
    let server =
        Server::start(Repo::new("o/r", &[("a-Q8_0.gguf", &a), ("b-BF16.gguf", &b)]), move |request, _| {
            let repo = |name: &str, content: &[u8]| Repo::new("o/r", &[(name, content)]).tree();
            match request.path.split_once("/tree/")?.1.contains("cursor=2") {
                true => Some(Reply::new(200, repo("b-BF16.gguf", &content(2000, 6)))),
                false => {
                    let url = format!("http://{}{}&cursor=2", request.headers["host"], request.path);
                    let links = format!("<http://x/>; rel=\"prev\", <{url}>; rel=\"next\"");
                    Some(Reply::new(200, repo("a-Q8_0.gguf", &content(1000, 5))).with("link", links))
                }
            }
        });
    let path = fetch(&settings(&server, dir.path()), "o/r:BF16", &Log::default()).unwrap();
    assert_eq!(fs::read(path).unwrap(), b);
}

#[test]
fn small_files_are_checked_by_git_hash() {
    let dir = tempfile::tempdir().unwrap();
    let tree = |oid: &str| format!(r#"[{{"type":"file","path":"m-Q8_0.gguf","size":6,"oid":"{oid}"}}]"#);
    let check = |oid: &'static str, good: bool| {
        let server = Server::start(Repo::new("o/r", &[]), move |request, _| match request.path.as_str() {
            p if p.contains("/tree/") => Some(Reply::new(200, tree(oid))),
            p if p.contains("/resolve/") => {
                Some(Reply::new(200, "hello\n").with("etag", format!("\"{oid}\"")))
            }
            _ => None,
        });
        let found = fetch(&settings(&server, dir.path()), "o/r", &Log::default());
        assert_eq!(found.map(|p| fs::read(p).unwrap()).ok(), good.then(|| b"hello\n".to_vec()), "{oid}");
    };
    check("ce013625030ba8dba906f756967f9e9ca394464a", true);
    check("ce013625030ba8dba906f756967f9e9ca394464b", false);
}
