//! `shardwright serve` as a process: it listens, opens, drains and ends; cases O4, O5.
#![allow(clippy::unwrap_used)]

mod util;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use util::{fails, model};

struct Server {
    process: Child,
    address: String,
    log: BufReader<std::process::ChildStderr>,
}

impl Server {
    fn start(arguments: &[&str]) -> Server {
        let mut process = Command::new(env!("CARGO_BIN_EXE_shardwright"))
            .args(["serve", "--port", "0"])
            .args(arguments)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let mut line = String::new();
        let address = loop {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "it ended before it listened");
            if let Some((_, address)) = line.split_once("http://") {
                break address.trim().to_owned();
            }
        };
        Server { process, address, log }
    }

    fn send(&self, head: &str, body: &str) -> TcpStream {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let length = body.len();
        let kind = "content-type: application/json";
        write!(socket, "{head} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{kind}\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
        socket
    }

    fn ask(&self, head: &str, body: &str) -> String {
        let mut text = String::new();
        self.send(head, body).read_to_string(&mut text).unwrap();
        text
    }

    fn wait_until_ready(&self) {
        let begun = Instant::now();
        while !self.ask("GET /ready", "").starts_with("HTTP/1.1 200") {
            assert!(self.ask("GET /live", "").starts_with("HTTP/1.1 200"));
            assert!(begun.elapsed() < Duration::from_secs(120), "{}", self.ask("GET /ready", ""));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn signal(&self) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    }

    /// The exit status, and the rest of the log.
    fn end(mut self) -> (Option<i32>, String) {
        let mut log = String::new();
        self.log.read_to_string(&mut log).unwrap();
        (self.process.wait().unwrap().code(), log)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
    }
}

#[test]
fn o5_running_answers_end_and_so_does_the_process() {
    let file = model("llama-f32");
    // a command as it is pasted from elsewhere
    let pasted =
        ["-ngl", "99", "--enforce-eager", "--gpu-memory-utilization", "0.9", "--shutdown-grace", "0"];
    let server = Server::start(&[&[file.as_str()][..], &pasted].concat());
    server.wait_until_ready();
    let answer = server.ask("POST /v1/completions", r#"{"prompt": [1, 2], "max_tokens": 2}"#);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let endless = r#"{"prompt": [1, 2], "max_tokens": 100000, "ignore_eos": true, "stream": true}"#;
    let mut stream = server.send("POST /v1/completions", endless);
    let mut some = [0; 1024];
    assert!(stream.read(&mut some).unwrap() > 0);
    let begun = Instant::now();
    server.signal();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("shutting down") && rest.contains("data: [DONE]"), "{rest}");
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[test]
fn replicas_answer_as_one() {
    let file = model("glm-dsa-share-bf16");
    let ask = |flags: &[&str]| {
        let server = Server::start(&[&[file.as_str()], flags].concat());
        server.wait_until_ready();
        let body = |n: usize| {
            format!(
                r#"{{"prompt": [{}], "max_tokens": 8, "temperature": 0, "ignore_eos": true, "return_token_ids": true}}"#,
                vec![n.to_string(); 70].join(", ")
            )
        };
        let text = |n| {
            let answer = server.ask("POST /v1/completions", &body(n));
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            let json: serde_json::Value =
                serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
            let cached = json["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
            (json["choices"][0].clone(), cached)
        };
        let all: Vec<_> = [3, 4, 5, 3, 4, 5].into_iter().map(text).collect();
        let metrics = server.ask("GET /metrics", "");
        server.signal();
        assert_eq!(server.end().0, Some(0));
        (all, metrics.matches("replica_requests_running{").count())
    };
    let (one, two) = (ask(&[]), ask(&["--replicas", "2", "--tp", "2"]));
    assert_eq!((one.1, two.1), (0, 2));
    assert_eq!(two.0.iter().map(|a| a.1).collect::<Vec<_>>(), [0, 0, 0, 64, 64, 64]);
    for (one, two) in one.0.iter().zip(&two.0) {
        assert_eq!(one.0["text"], two.0["text"]);
    }
    let why = fails(
        &[
            "serve",
            &file,
            "--port",
            "0",
            "--replicas",
            "2",
            "--pipeline-parallel-size",
            "2",
            "--node-rank",
            "0",
        ],
        1,
    );
    assert!(why.contains("do not go together"), "{why}");
}

#[test]
fn o4_a_failed_load_ends_the_process() {
    let why = fails(&["serve", "no-such-file.gguf", "--port", "0"], 1);
    assert!(why.contains("no-such-file.gguf"), "{why}");
    fails(&["serve"], 2);
    fails(&["serve", "--demo", "--port", "70000"], 2);
    let why = fails(&["serve", "--demo", "--port", "0", "--api-key", ""], 1);
    assert!(why.contains("API key"), "{why}");
    let why = fails(&["serve", "--demo", "--host", "no.such.host.invalid"], 1);
    assert!(why.contains("no.such.host.invalid"), "{why}");
}
