//! What is far too much, too slow, or asks by a strange name: prompts beyond any context, bodies, `Host`.
#![allow(clippy::unwrap_used)]

mod util;

use serde_json::{Value, json};
use shardwright_server::options::Options;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use util::{Answer, Chain, Server, Setup};

fn server() -> Server {
    Server::of(&Chain::new(&[]).script("A", &[b"fine"]))
}

/// Case A1's error, soon.
fn is_too_long(server: &Server, path: &str, body: &Value, least: usize) {
    let begun = Instant::now();
    let answer = server.post(path, body);
    let took = begun.elapsed();
    let messages = path.starts_with("/v1/messages");
    let error = if messages { answer.json()["error"].clone() } else { answer.error() };
    assert_eq!(answer.status, 400, "{path}: {}", answer.text);
    assert!(messages || error["code"] == "context_length_exceeded", "{path}: {}", answer.text);
    let message = error["message"].as_str().unwrap();
    assert!(message.contains(&format!("at least {least} tokens")), "{path}: {message}");
    assert!(message.contains("512"), "{path}: {message}");
    assert!(took < Duration::from_secs(3), "{path}: {took:?}");
}

/// How long another client waits.
fn one_token(server: &Server) -> Duration {
    let begun = Instant::now();
    assert_eq!(server.chat("A", json!({"max_tokens": 1})).status, 200);
    begun.elapsed()
}

#[test]
fn t3_floods_are_refused_and_nobody_waits_for_them() {
    let server = server();
    let floods = [
        ("a".repeat(1_000_000), 1_000_000),
        (" ".repeat(1_000_000), 1_000_000),
        ("/".repeat(300_000), 300_000),
        ("é".repeat(200_000), 400_000),
        ("1".repeat(500_000), 500_000),
        ("a\n".repeat(500_000), 1_000_000),
    ];
    // On a busy machine every request takes longer.
    let usual = (0..10).map(|_| one_token(&server)).max().unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut took = Vec::new();
            while !over.load(Ordering::Relaxed) {
                took.push(one_token(&server));
                std::thread::sleep(Duration::from_millis(50));
            }
            took
        });
        for (flood, least) in &floods {
            let body = json!({"prompt": flood});
            is_too_long(&server, "/v1/completions", &body, *least);
            let body = json!({"messages": [{"role": "user", "content": flood}]});
            is_too_long(&server, "/v1/chat/completions", &body, *least);
        }
        over.store(true, Ordering::Relaxed);
        let took = other.join().unwrap();
        let most = Duration::from_millis(500) + usual;
        assert!(took.len() > 1 && took.iter().all(|t| *t < most), "{took:?}, before {usual:?}");
    });
}

#[test]
fn every_endpoint_refuses_what_cannot_fit() {
    let server = server();
    let flood = "1".repeat(500_000);
    let messages = json!([{"role": "user", "content": flood}]);
    for (path, body) in [
        ("/v1/completions", json!({"prompt": ["A", flood]})),
        ("/v1/chat/completions", json!({"messages": messages, "stream": true})),
        ("/v1/responses", json!({"input": flood})),
        ("/v1/messages", json!({"messages": messages, "max_tokens": 1})),
        ("/v1/messages/count_tokens", json!({"messages": messages})),
        ("/v1/embeddings", json!({"input": flood})),
        ("/tokenize", json!({"prompt": flood})),
        ("/tokenize", json!({"messages": messages})),
    ] {
        is_too_long(&server, path, &body, 500_000);
    }
    assert_eq!(server.chat("A", json!({"max_tokens": 1})).status, 200);
}

const CHAT: &str = "/v1/chat/completions";

/// A server that waits for nobody.
fn hasty() -> Server {
    let short = Duration::from_millis(300);
    let options = Options { max_body: 1 << 20, body_timeout: short, idle: short, ..Setup::default().options };
    Server::start(&Chain::new(&[]).script("A", &[b"fine"]), Setup { options, ..Setup::default() })
}

/// Sends this; what comes back must be this status, an error, and the end of the connection, within so many seconds.
fn refused(server: &Server, sent: &[u8], status: u16, seconds: u64) {
    let begun = Instant::now();
    let mut socket = TcpStream::connect(server.address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket.write_all(sent).unwrap();
    let answer = Answer::read(socket);
    assert_eq!(answer.status, status, "{}", answer.text);
    answer.error();
    assert!(begun.elapsed() < Duration::from_secs(seconds), "{:?}", begun.elapsed());
}

fn head(more: &str) -> String {
    format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{more}\r\n")
}

#[test]
fn a_body_that_will_be_too_large_is_not_waited_for() {
    let server = Server::start(
        &Chain::new(&[]),
        Setup { options: Options { max_body: 1 << 20, ..Setup::default().options }, ..Setup::default() },
    );
    refused(&server, head("content-length: 100000000000\r\n").as_bytes(), 413, 5);
    refused(&server, head("expect: 100-continue\r\ncontent-length: 2000000\r\n").as_bytes(), 413, 5);
    // of a body whose length is not told, and by clients that send everything before they listen
    let chunk = [format!("{:x}\r\n", 30 << 20).as_bytes(), &vec![b' '; 30 << 20]].concat();
    refused(&server, &[head("transfer-encoding: chunked\r\n").as_bytes(), &chunk].concat(), 413, 20);
    let all = [head("content-length: 31457280\r\n").as_bytes(), &vec![b' '; 30 << 20]].concat();
    refused(&server, &all, 413, 20);
}

#[test]
fn who_stops_sending_is_not_waited_for() {
    let server = hasty();
    refused(&server, head("content-length: 100\r\n").as_bytes(), 408, 10);
    refused(&server, format!("{}{{\"mess", head("content-length: 100\r\n")).as_bytes(), 408, 10);
    let is_closed = |sent: &str| {
        let mut socket = TcpStream::connect(server.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket.write_all(sent.as_bytes()).unwrap();
        let mut rest = Vec::new();
        socket.read_to_end(&mut rest).unwrap();
        assert!(!String::from_utf8_lossy(&rest).contains("200"), "{sent}");
    };
    is_closed("");
    is_closed("POST /v1/chat/completions HTT");
    is_closed("GET /health HTTP/1.1\r\nhost: localhost\r\n");
}

#[test]
fn strangers_names_for_this_machine_are_refused() {
    let status = |server: &Server, path: &str, host: &str| {
        let answer = server.ask("GET", path, &format!("host: {host}\r\n"), b"");
        if answer.status == 403 {
            assert!(answer.text.contains(host) && answer.text.contains("--allowed-hosts"), "{}", answer.text);
        }
        answer.status
    };
    let ours = server();
    let own = ours.address.to_string();
    for host in ["localhost", "localhost:8080", "127.0.0.1", "[::1]:1", &own] {
        for path in ["/", "/page/app.js", "/v1/models", "/health"] {
            assert_eq!(status(&ours, path, host), 200, "{host} {path}");
        }
    }
    for path in ["/", "/v1/models", "/metrics"] {
        assert_eq!(status(&ours, path, "evil.example"), 403, "{path}");
    }
    let with = |change: fn(&mut Options)| {
        let mut options = Setup::default().options;
        change(&mut options);
        Server::start(&Chain::new(&[]), Setup { options, ..Setup::default() })
    };
    let named = with(|o| o.hosts = vec!["chat.example".into()]);
    assert_eq!((status(&named, "/", "chat.example:80"), status(&named, "/", "evil.example")), (200, 403));
    // A key keeps strangers out by itself.
    let keyed = with(|o| o.api_keys = vec!["secret".into()]);
    assert_eq!(
        (status(&keyed, "/", "evil.example"), status(&keyed, "/v1/models", "evil.example")),
        (200, 401)
    );
}
