//! Models of the hub through the program, from a hub in miniature.
#![allow(clippy::unwrap_used)]

#[path = "../../hub/tests/server/mod.rs"]
mod server;
mod util;

use server::{Reply, Repo, Request, Server, sha256};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use util::{model, run, scratch};

fn shardwright(server: &Server, home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shardwright"));
    for name in ["HF_TOKEN", "HF_TOKEN_PATH", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "RUST_LOG"] {
        command.env_remove(name);
    }
    command.args(args).env("HF_HOME", home).env("HF_ENDPOINT", server.endpoint());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Exit status, standard output and standard error.
fn told(out: Output) -> (Option<i32>, String, String) {
    (out.status.code(), String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap())
}

fn call(server: &Server, home: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    told(shardwright(server, home, args).output().unwrap())
}

/// A tiny model, split, beside others.
fn split_model() -> Repo {
    let dir = scratch();
    let out = dir.path().join("tiny.gguf").to_str().unwrap().to_owned();
    run(&["quantize", &model("llama-f32"), &out, "F16", "--split-bytes", "100000"]);
    let mut files: Vec<(String, Vec<u8>)> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap())
        .map(|e| (format!("F16/{}", e.file_name().to_str().unwrap()), std::fs::read(e.path()).unwrap()))
        .collect();
    assert!(files.len() > 2, "{}", files.len());
    files.push(("tiny-Q8_0.gguf".into(), b"GGUF, but not much of it".into()));
    files.push(("mmproj-F16.gguf".into(), b"something else".into()));
    Repo { name: "o/tiny".into(), files }
}

#[test]
fn every_command_takes_a_model_of_the_hub() {
    let (home, repo) = (scratch(), split_model());
    let parts = repo.files.len() - 2;
    let server = Server::start(repo, |_, _| None);
    let (code, path, why) = call(&server, home.path(), &["pull", "o/tiny:f16"]);
    assert_eq!(code, Some(0), "{why}");
    let path = path.trim_end();
    let end = format!("F16/tiny-00001-of-{parts:05}.gguf");
    assert!(path.starts_with(home.path().to_str().unwrap()) && path.ends_with(&end), "{path}");
    assert!(
        why.lines().all(|l| l.starts_with("note: ")) && why.contains(&format!("fetching {parts} files")),
        "{why}"
    );
    let ids = home.path().join("ids.txt");
    std::fs::write(&ids, "1 2 3").unwrap();
    let (ids, out) = (ids.to_str().unwrap(), home.path().join("out.npy"));
    let commands: &[&[&str]] = &[
        &["run", "-p", "a", "-n", "2", "--temp", "0", "--raw"],
        &["inspect", "--json"],
        &["plan"],
        &["verify", "--chunk", "2"],
        &["eval", "--ids", ids],
        &["generate", "--ids", ids, "-n", "2"],
        &["logits", "--ids", ids, "--out", out.to_str().unwrap()],
        &["tokenize", "--text", ids],
    ];
    for command in commands {
        let (code, by_file, why) = call(&server, home.path(), &[command, &["-m", path] as &[&str]].concat());
        assert_eq!(code, Some(0), "{command:?}: {why}");
        for flag in ["--hf", "--hf-repo"] {
            let (code, by_name, why) =
                call(&server, home.path(), &[command, &[flag, "o/tiny:F16"] as &[&str]].concat());
            assert_eq!(code, Some(0), "{command:?}: {why}");
            assert_eq!(by_name, by_file, "{command:?}");
        }
    }
    assert_eq!(server.seen("/cdn/").len(), parts, "fetched once");
}

#[test]
fn errors_are_one_line() {
    let home = scratch();
    let server = Server::start(split_model(), |r: &Request, _: &dyn Fn() -> Reply| match () {
        () if r.path.contains("gated") => Some(Reply::new(403, "").with("x-error-code", "GatedRepo")),
        () if r.path.contains("evil") => Some(Reply::new(404, "").with("x-error-message", "\u{9b}2J\tno")),
        () if r.path.starts_with("/cdn/tiny") => Some(Reply::new(200, "gguf, but not much of it")),
        () if r.path.contains("busy") => Some(Reply::new(429, "").with("retry-after", "4000")),
        () => None,
    });
    let check = |args: &[&str], expected: &[&str]| {
        let (code, out, why) = call(&server, home.path(), args);
        assert_eq!((code, out.as_str()), (Some(1), ""), "{args:?}: {why}");
        assert_eq!(why.lines().count(), 1, "{why}");
        let all = [&["error: "], expected].concat();
        assert!(all.iter().all(|part| why.contains(part)), "{args:?}: {why}");
        assert!(!why.contains("internal error"), "{why}");
    };
    check(&["run", "--hf", "o/gated", "-p", "x"], &["o/gated is gated", "accept its licence at", "HF_TOKEN"]);
    check(&["inspect", "--hf", "o/evil"], &["404"]);
    check(&["pull", "o/none"], &["o/none", "404: no such thing", "check the name"]);
    check(&["pull", "o/busy"], &["429", "4000 s"]);
    check(&["pull", "o/tiny"], &["o/tiny has no Q4_K_M; there are: Q8_0", "F16"]);
    let (code, _, why) = call(&server, home.path(), &["-q", "inspect", "--hf", "o/tiny:Q8_0"]);
    assert!(code == Some(1) && why.lines().count() == 1, "{why}");
    assert!(why.starts_with("error: tiny-Q8_0.gguf: ") && why.matches("SHA-256").count() == 1, "{why}");
    for wrong in
        [&["pull", "tiny"][..], &["run", "--hf", "o/r/x"], &["run", "--hf", "o/r", "--demo"], &["pull"]]
    {
        let (code, _, why) = call(&server, home.path(), wrong);
        assert_eq!(code, Some(2), "{wrong:?}: {why}");
    }
}

#[test]
fn variables_are_heeded() {
    let home = scratch();
    let server = Server::start(split_model(), |_, _| None);
    let with = |vars: &[(&str, &str)], args: &[&str]| {
        told(shardwright(&server, home.path(), args).envs(vars.iter().copied()).output().unwrap())
    };
    let (code, _, why) = with(&[("HF_HUB_OFFLINE", "1")], &["pull", "o/tiny:F16"]);
    assert!(code == Some(1) && why.contains("not in the cache") && why.contains("HF_HUB_OFFLINE"), "{why}");
    assert_eq!(server.seen("").len(), 0);
    std::fs::write(home.path().join("token"), "hf_file\n").unwrap();
    let other = scratch();
    let (code, path, why) =
        with(&[("HF_HUB_CACHE", other.path().to_str().unwrap())], &["pull", "o/tiny:F16"]);
    assert!(code == Some(0) && path.starts_with(other.path().to_str().unwrap()), "{why}");
    assert!(server.seen("/api/").iter().all(|r| r.headers["authorization"] == "Bearer hf_file"));
    with(&[("HF_TOKEN", "hf_var")], &["pull", "o/tiny:F16"]);
    assert!(server.seen("/api/").iter().any(|r| r.headers["authorization"] == "Bearer hf_var"));
    let (code, _, why) = with(&[("HF_HUB_OFFLINE", "1")], &["inspect", "--hf", "o/tiny:F16"]);
    assert_eq!(code, Some(0), "{why}");
    let (code, _, why) = with(&[("HF_ENDPOINT", "http://127.0.0.1:1")], &["inspect", "--hf", "o/tiny:F16"]);
    assert!(code == Some(0) && why.contains("using what is cached"), "{why}");
    let (code, _, why) = with(&[("HF_ENDPOINT", "nonsense")], &["inspect", "--hf", "o/tiny:F16"]);
    assert!(code == Some(1) && why.contains("HF_ENDPOINT"), "{why}");
}

#[test]
fn what_was_stopped_goes_on() {
    let (home, content) = (scratch(), vec![7; 3_000_000]);
    let repo = Repo::new("o/r", &[("m-Q4_K_M.gguf", &content)]);
    let server = Server::start(repo, |r, usual| {
        r.path
            .starts_with("/cdn/")
            .then(|| Reply { slow: Duration::from_millis(if r.nth == 0 { 200 } else { 0 }), ..usual() })
    });
    let mut child = shardwright(&server, home.path(), &["pull", "o/r"]).spawn().unwrap();
    let partial = home.path().join(format!("hub/models--o--r/blobs/{}.incomplete", sha256(&content)));
    let length = || std::fs::metadata(&partial).map_or(0, |m| m.len());
    while length() < 500_000 && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(20));
    }
    // not SIGINT: what a shell runs in the background inherits that ignored
    let stop = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(stop.success() && !child.wait().unwrap().success());
    let there = length();
    assert!((500_000..3_000_000).contains(&there), "{there}");
    let (code, path, why) = call(&server, home.path(), &["pull", "o/r"]);
    assert_eq!(code, Some(0), "{why}");
    assert!(std::fs::read(path.trim_end()).unwrap() == content);
    assert_eq!(server.seen("/cdn/")[1].headers["range"], format!("bytes={there}-2999999"));
}
