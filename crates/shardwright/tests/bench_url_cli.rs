//! `bench --url` against a server that says what a test tells it to.
#![allow(clippy::unwrap_used)]

mod util;

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use util::{fails, run, scratch};

/// A request as it came: path, headers in lower case, body.
struct Request {
    path: String,
    headers: String,
    body: Value,
}

/// Starts a server that runs until the test ends; its address.
fn server(answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let answer = std::sync::Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let answer = answer.clone();
            thread::spawn(move || {
                let mut stream = stream.unwrap();
                answer(&read(&stream), &mut stream);
            });
        }
    });
    address
}

fn read(stream: &TcpStream) -> Request {
    let mut reader = BufReader::new(stream);
    let (mut first, mut headers) = (String::new(), String::new());
    reader.read_line(&mut first).unwrap();
    while !headers.ends_with("\r\n\r\n") && headers != "\r\n" {
        assert!(reader.read_line(&mut headers).unwrap() > 0);
    }
    let headers = headers.to_lowercase();
    let length = headers.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |n| n.trim().parse().unwrap())];
    reader.read_exact(&mut body).unwrap();
    let path = first.split(' ').nth(1).unwrap().to_owned();
    Request { path, headers, body: serde_json::from_slice(&body).unwrap_or_default() }
}

fn plain(stream: &mut TcpStream, status: &str, body: &Value) {
    let body = body.to_string();
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}", body.len());
    write!(stream, "{head}\r\nconnection: close\r\n\r\n{body}").unwrap();
}

fn models(stream: &mut TcpStream) {
    plain(stream, "200 OK", &json!({ "data": [{ "id": "canned" }] }));
}

fn head(stream: &mut TcpStream) {
    write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        .unwrap();
}

fn event(stream: &mut TcpStream, event: &Value) {
    write!(stream, "data: {event}\n\n").unwrap();
}

fn piece(stream: &mut TcpStream, delta: Value, finish: Option<&str>) {
    event(stream, &json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] }));
}

/// A whole answer of as many tokens as wanted; a token is a word of the prompt.
fn chat(request: &Request, stream: &mut TcpStream) {
    let prompt = request.body["messages"][0]["content"].as_str().unwrap().split(' ').count() + 10;
    let tokens = request.body["max_tokens"].as_u64().unwrap();
    head(stream);
    piece(stream, json!({ "role": "assistant", "content": "" }), None);
    for i in 0..tokens {
        thread::sleep(Duration::from_millis(2));
        let name = if i == 0 { "reasoning_content" } else { "content" };
        piece(stream, json!({ name: "x" }), None);
    }
    piece(stream, json!({}), Some("length"));
    if request.body["stream_options"]["include_usage"] == true {
        let usage = json!({ "prompt_tokens": prompt, "completion_tokens": tokens,
                            "prompt_tokens_details": { "cached_tokens": 3 } });
        event(stream, &json!({ "choices": [], "usage": usage }));
    }
    write!(stream, "data: [DONE]\n\n").unwrap();
}

fn bench(url: &str, more: &[&str]) -> Vec<String> {
    let args = ["bench", "--url", url, "-r", "2", "--concurrency", "1,3", "-n", "5"];
    args.iter().chain(more).map(|arg| (*arg).to_owned()).collect()
}

fn strs(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

#[test]
fn all_cells_are_measured() {
    let url = server(|request, stream| match request.path.as_str() {
        "/v1/models" => models(stream),
        "/v1/chat/completions" => {
            assert!(request.headers.contains("authorization: bearer secret\r\n"), "{}", request.headers);
            assert_eq!(request.body["model"], "canned");
            chat(request, stream);
        }
        path => panic!("{path}"),
    });
    let dir = scratch();
    let plot = dir.path().join("plot.svg").to_str().unwrap().to_owned();
    let args = bench(&url, &["--api-key", "secret", "--context", "0,1k", "--json", "--plot", &plot]);
    let report: Value = serde_json::from_str(&run(&strs(&args))).unwrap();
    assert_eq!((&report["model"], &report["counted_by"]), (&json!("canned"), &json!("usage")));
    assert_eq!(report["notes"], json!([]));
    let results = report["results"].as_array().unwrap();
    let cells: Vec<String> = results
        .iter()
        .map(|r| format!("{} {} {} {}", r["context"], r["prefix"], r["concurrency"], r["requests"]))
        .collect();
    let expected = [
        "0 \"cold\" 1 2",
        "0 \"cold\" 3 6",
        "1024 \"cold\" 1 2",
        "1024 \"cold\" 3 6",
        "1024 \"warm\" 1 2",
        "1024 \"warm\" 3 6",
    ];
    assert_eq!(cells, expected);
    for row in results {
        assert_eq!((&row["failed"], &row["tokens"]), (&json!(0), &json!(5.0)), "{row}");
        // The server rests for 2 ms before each token; how late the pieces are read is the machine's affair.
        assert!(row["first_token_s"]["least"].as_f64().unwrap() >= 0.002, "{row}");
        assert!(row["inter_token_s"]["most"].as_f64().unwrap() > 0.0, "{row}");
        let [each, all] = ["tok_s_stream", "tok_s_total"].map(|n| row[n]["most"].as_f64().unwrap());
        assert!(each > 0.0 && all > 0.0 && all <= 500.0 * row["concurrency"].as_f64().unwrap(), "{row}");
    }
    assert_eq!(results[2]["prompt_tokens"], 1024.0);
    let drawn = std::fs::read_to_string(&plot).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.matches("<circle").count() == 18, "{drawn}");
}

#[test]
fn warm_prompts_share_all_but_their_end() {
    let (send, seen) = std::sync::mpsc::channel();
    let url = server(move |request, stream| {
        let _ = send.send(request.body["messages"][0]["content"].as_str().unwrap().to_owned());
        chat(request, stream);
    });
    let args = bench(&url, &["-m", "any", "--context", "100"]);
    run(&strs(&args));
    // one to learn manners, two for the scale; then 2 x (1 + 3) cold ones, and as many warm ones after one each
    let prompts: Vec<String> = seen.try_iter().skip(3).collect();
    assert_eq!(prompts.len(), 8 + 2 + 8);
    let begins = |n: usize| {
        let starts = prompts.iter().map(|p| p.chars().take(n).collect::<String>());
        starts.collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!(begins(60), 8 + 2, "cold prompts begin each in its own way, warm ones in two");
    assert_eq!(begins(usize::MAX), 8 + 2 + 8);
}

#[test]
fn failures_are_counted_and_told() {
    let asked = AtomicUsize::new(0);
    let url = server(move |request, stream| {
        // three requests are to learn about the server
        match asked.fetch_add(1, Ordering::SeqCst) {
            3 => plain(
                stream,
                "429 Too Many Requests",
                &json!({ "error": { "message": "the queue is full" } }),
            ),
            4 => {
                head(stream);
                piece(stream, json!({ "content": "x" }), None);
            }
            5 => {
                head(stream);
                event(stream, &json!({ "error": { "message": "NaN" } }));
            }
            6 => {
                head(stream);
                piece(stream, json!({}), Some("stop"));
            }
            _ => chat(request, stream),
        }
    });
    let args = bench(&url, &["-m", "any"]);
    let out = std::process::Command::new(env!("CARGO_BIN_EXE_shardwright")).args(&args).output().unwrap();
    let (told, why) = (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap());
    assert_eq!(out.status.code(), Some(1), "{why}");
    assert_eq!(why, "error: 4 of 8 requests failed\n");
    for line in [
        "0 cold x 1: 1 of 2 failed: the server answers with status 429: the queue is full",
        "0 cold x 1: 1 of 2 failed: the stream was cut before the answer's end",
        "0 cold x 3: 1 of 6 failed: an error ended the stream: NaN",
    ] {
        assert!(told.contains(line), "{line} is not in\n{told}");
    }
    assert!(told.contains("0 cold x 3: 1 of 6 failed: the answer is empty"), "{told}");
}

#[test]
fn servers_with_fewer_manners_are_measured_too() {
    let url = server(|request, stream| {
        match request.body.get("ignore_eos").or(request.body.get("stream_options")).is_some() {
            true => plain(stream, "400 Bad Request", &json!({ "detail": "unknown field" })),
            false => chat(request, stream),
        }
    });
    let args = bench(&url, &["-m", "any", "--json"]);
    let report: Value = serde_json::from_str(&run(&strs(&args))).unwrap();
    assert_eq!((&report["counted_by"], &report["results"][0]["tokens"]), (&json!("pieces"), &json!(5.0)));
    assert_eq!(report["notes"].as_array().unwrap().len(), 2, "{report}");
}

#[test]
fn what_is_no_server_is_told_in_one_line() {
    let check = |args: &[&str], code: i32, says: &str| {
        let why = fails(&[&["bench"], args].concat(), code);
        assert!(why.contains(says), "{args:?}: {why}");
        assert!(code == 2 || why.lines().count() == 1, "{why}");
    };
    let nobody = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    check(&["--url", &nobody], 1, "no connection to the server");
    check(&["--url", "localhost:80"], 1, "looks like http://localhost:8080");
    let locked = server(|_, stream| {
        plain(stream, "401 Unauthorized", &json!({ "error": { "message": "who are you" } }));
    });
    check(&["--url", &locked], 1, "status 401: who are you; give the right --api-key");
    check(&["--url", &locked, "-m", "any"], 1, "status 401: who are you");
    let other = server(|_, stream| write!(stream, "HTTP/1.1 200 OK\r\n\r\n<html>").unwrap());
    check(&["--url", &other], 1, "is there a server with OpenAI's API?");
    check(&["--url", &other, "-m", "any"], 1, "did not stream");
    let empty = server(|_, stream| plain(stream, "200 OK", &json!({ "data": [] })));
    check(&["--url", &empty], 1, "no model is listed");
    check(&["--url", &nobody, "--demo"], 2, "cannot be used with");
    check(&["--url", &nobody, "x.gguf"], 2, "cannot be used with");
    check(&["--url", &nobody, "--threads", "2"], 2, "cannot be used with");
    check(&["--url", &nobody, "--device", "cuda"], 2, "cannot be used with");
    check(&["--url", &nobody, "--node-rank", "1"], 2, "cannot be used with");
    check(&["--url", &nobody, "-p", "2"], 2, "cannot be used with");
    check(&["--url", &nobody, "--dense-attention"], 2, "cannot be used with");
    check(&["--demo", "--plot", "a.svg"], 2, "cannot be used with");
    check(&["-m", "a.gguf", "--plot", "a.svg"], 2, "--url <URL>");
    check(&["--url", &nobody, "--plot", "a.png"], 2, "must end with .svg");
    check(&["--url", &nobody, "--concurrency", "0"], 2, "0 is not in");
    check(&["--url", &nobody, "--dummy", "glm-5"], 2, "cannot be used with");
    check(&["--kernels", "--url", &nobody], 2, "cannot be used with");
    check(&["--kernels", "--demo"], 2, "cannot be used with");
    check(&["--demo", "--dummy", "glm-5"], 2, "cannot be used with");
    check(&["--dummy", "glm-5", "--layers", "0"], 2, "0 is not in");
    check(&["--dummy", "glm-5", "--tp-rank", "8/8"], 2, "a rank and how many there are");
    check(&["--dummy", "glm-5", "--tp-rank", "0/8", "--tp", "2"], 2, "cannot be used with");
    check(&[], 2, "required");
}
