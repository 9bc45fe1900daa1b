//! A hub in miniature for tests: it lists, redirects to "another host" as the real one does, and fails as told.
#![allow(dead_code, clippy::unwrap_used)] // each test file uses its part

use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What a client asked.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// With the query.
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: HashMap<String, String>,
    /// How many with this path came before.
    pub(crate) nth: usize,
}

/// What it is told.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Break off after so many bytes of the body.
    pub(crate) cut: Option<usize>,
    /// Wait for so long after each 64 KiB.
    pub(crate) slow: std::time::Duration,
}

impl Reply {
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Reply {
        Reply { status, headers: vec![], body: body.into(), cut: None, slow: std::time::Duration::ZERO }
    }

    pub(crate) fn with(mut self, name: &str, value: impl ToString) -> Reply {
        self.headers.retain(|(n, _)| n != name);
        self.headers.push((name.into(), value.to_string()));
        self
    }

    pub(crate) fn cut(self, cut: usize) -> Reply {
        Reply { cut: Some(cut), ..self }
    }

    fn send(&self, mut to: TcpStream) -> std::io::Result<()> {
        write!(
            to,
            "HTTP/1.1 {} X\r\ncontent-length: {}\r\nconnection: close\r\n",
            self.status,
            self.body.len()
        )?;
        self.headers.iter().try_for_each(|(n, v)| write!(to, "{n}: {v}\r\n"))?;
        write!(to, "\r\n")?;
        for piece in self.body[..self.cut.unwrap_or(self.body.len())].chunks(1 << 16) {
            to.write_all(piece)?;
            std::thread::sleep(self.slow);
        }
        Ok(())
    }
}

/// The content of one repository, as a hub and its CDN answer for it.
#[derive(Clone)]
pub(crate) struct Repo {
    pub(crate) name: String,
    pub(crate) files: Vec<(String, Vec<u8>)>,
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

impl Repo {
    pub(crate) fn new(name: &str, files: &[(&str, &[u8])]) -> Repo {
        Repo { name: name.into(), files: files.iter().map(|(n, b)| ((*n).into(), b.to_vec())).collect() }
    }

    /// The right answer.
    pub(crate) fn answer(&self, port: u16, request: &Request) -> Reply {
        let path = request.path.as_str();
        let api = format!("/api/models/{}", self.name);
        if path == format!("{api}/revision/main") {
            return Reply::new(200, format!("{{\"sha\": \"{COMMIT}\", \"id\": \"{}\"}}", self.name));
        }
        if path == format!("{api}/tree/{COMMIT}?recursive=true") {
            return Reply::new(200, self.tree());
        }
        let file = |prefix: &str| {
            let name = path.strip_prefix(prefix)?.replace("%20", " ");
            self.files.iter().find(|(n, _)| *n == name)
        };
        if let Some((name, content)) = file(&format!("/{}/resolve/{COMMIT}/", self.name)) {
            return Reply::new(302, "")
                .with("x-linked-etag", format!("\"{}\"", sha256(content)))
                .with("x-linked-size", content.len())
                .with("x-repo-commit", COMMIT)
                .with("location", format!("http://localhost:{port}/cdn/{}", name.replace(' ', "%20")));
        }
        match file("/cdn/") {
            Some((_, content)) => part(content, request),
            None => Reply::new(404, "").with("x-error-message", "no such thing"),
        }
    }

    pub(crate) fn tree(&self) -> String {
        let entry = |(name, content): &(String, Vec<u8>)| {
            let (size, hash) = (content.len(), sha256(content));
            format!(
                r#"{{"type":"file","path":"{name}","size":{size},"oid":"{}","lfs":{{"oid":"{hash}","size":{size},"pointerSize":135}}}}"#,
                "0".repeat(40)
            )
        };
        let folder =
            r#"{"type":"directory","path":"BF16","size":0,"oid":"1111111111111111111111111111111111111111"}"#;
        let all: Vec<String> = self.files.iter().map(entry).chain([folder.into()]).collect();
        format!("[{}]", all.join(","))
    }
}

/// All of the content or the range that was asked for, under a tag of its own.
pub(crate) fn part(content: &[u8], request: &Request) -> Reply {
    let tag = format!("\"cdn-{}\"", &sha256(content)[..8]);
    let changed = request.headers.get("if-range").is_some_and(|t| *t != tag);
    let size = content.len();
    let range = request.headers.get("range").and_then(|range| {
        let (from, to) = range.strip_prefix("bytes=")?.split_once('-')?;
        Some((from.parse().ok()?, to.parse::<usize>().map_or(size, |to| size.min(to + 1))))
    });
    match range.filter(|_| !changed) {
        None => Reply::new(200, content),
        Some((from, to)) if from >= to => Reply::new(416, ""),
        Some((from, to)) => {
            let range = format!("bytes {from}-{}/{size}", to - 1);
            Reply::new(206, &content[from..to]).with("content-range", range)
        }
    }
    .with("etag", tag)
}

/// Listens until the test ends.
pub(crate) struct Server {
    pub(crate) port: u16,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// `fault` may answer in place of `repo`.
    pub(crate) fn start(
        repo: Repo,
        fault: impl Fn(&Request, &dyn Fn() -> Reply) -> Option<Reply> + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(vec![]));
        let (fault, all) = (Arc::new(fault), seen.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (repo, fault, all) = (repo.clone(), fault.clone(), all.clone());
                std::thread::spawn(move || {
                    let Some(mut request) = read(&stream) else { return };
                    {
                        let mut all = all.lock().unwrap();
                        request.nth = all.iter().filter(|r: &&Request| r.path == request.path).count();
                        all.push(request.clone());
                    }
                    let usual = || repo.answer(port, &request);
                    let reply = fault(&request, &usual).unwrap_or_else(usual);
                    let _ = reply.send(stream); // a client may leave when it has seen enough
                });
            }
        });
        Server { port, seen }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// All requests so far whose path contains `part`.
    pub(crate) fn seen(&self, part: &str) -> Vec<Request> {
        self.seen.lock().unwrap().iter().filter(|r| r.path.contains(part)).cloned().collect()
    }
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream).lines().map_while(std::result::Result::ok);
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let header = |line: String| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_lowercase(), value.trim().to_owned()))
    };
    Some(Request { path, headers: lines.take_while(|l| !l.is_empty()).filter_map(header).collect(), nth: 0 })
}
