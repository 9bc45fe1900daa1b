//! Requests that cannot be answered, and how they are told: case A2, limits, keys, names, words.
#![allow(clippy::unwrap_used)]

mod util;

use serde_json::{Value, json};
use shardwright_server::options::{Options, Origins};
use util::{Answer, Chain, JSON, Server, Setup, chat};

const CHAT: &str = "/v1/chat/completions";

fn server() -> Server {
    Server::of(&Chain::new(&[]).script("A", &[b"fine"]))
}

fn is_well(server: &Server) {
    assert_eq!(server.choice("A", json!({}))["message"]["content"], "fine");
}

#[test]
fn a2_invalid_fields_are_named() {
    let server = server();
    let check = |more: Value, param: &str| {
        let answer = server.chat("A", more.clone());
        assert_eq!(
            (answer.status, &answer.error()["param"]),
            (400, &json!(param)),
            "{more}: {}",
            answer.text
        );
        is_well(&server);
    };
    for bad in [json!(-1), json!(0), json!(1.5), json!("7")] {
        check(json!({"max_tokens": bad}), "max_tokens");
    }
    for bad in [json!(-1), json!(3), json!("hot")] {
        check(json!({"temperature": bad}), "temperature");
    }
    for bad in [-0.1, 1.1] {
        check(json!({"top_p": bad}), "top_p");
    }
    for bad in [0, -1, 10_000] {
        check(json!({"n": bad}), "n");
    }
    check(json!({"top_logprobs": 21, "logprobs": true}), "top_logprobs");
    check(json!({"top_logprobs": -1, "logprobs": true}), "top_logprobs");
    check(json!({"top_logprobs": 5}), "top_logprobs");
    check(json!({"stop": vec!["x"; 1000]}), "stop");
    check(json!({"stop": 7}), "stop");
    for (bad, param) in [
        (json!([]), "messages"),
        (json!("hi"), "messages"),
        (Value::Null, "messages"),
        (json!([null]), "messages[0]"),
        (json!([{"role": "alien"}]), "messages[0].role"),
    ] {
        check(json!({"messages": bad}), param);
    }
    check(json!({"tools": {}}), "tools");
    check(json!({"tool_choice": {"type": "function", "function": {"name": "nothing"}}}), "tool_choice");
    check(json!({"response_format": {"type": "xml"}}), "response_format.type");
    check(json!({"stream": "yes"}), "stream");
    check(json!({"stream_options": {"include_usage": true}}), "stream_options");
    check(json!({"logit_bias": {"abc": 1}}), "logit_bias");
    check(json!({"reasoning_effort": "extreme"}), "reasoning_effort");
    check(json!({"lora": [{"id": 1}]}), "lora");
    check(
        json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}),
        "messages[0].content[0]",
    );
}

#[test]
fn a2_bodies_that_are_no_requests() {
    let server = server();
    let check = |body: &[u8], status: u16| {
        let answer = server.ask("POST", CHAT, JSON, body);
        assert_eq!(answer.status, status, "{}", answer.text);
        answer.error();
        is_well(&server);
    };
    let big = format!(r#"{{"seed": {}}}"#, 2f64.powi(70));
    let deep = "[".repeat(100_000);
    let nan = r#"{"messages": [{"role": "user", "content": "A"}], "temperature": NaN}"#;
    let infinite = r#"{"messages": [{"role": "user", "content": "A"}], "temperature": Infinity}"#;
    for bad in ["{", "[]", "", &big, &deep, nan, infinite, "{}"] {
        check(bad.as_bytes(), 400);
    }
    check(&vec![b' '; 70_000_000], 413);
    let other = server.ask("POST", CHAT, "content-type: text/plain\r\n", b"{}");
    assert_eq!((other.status, other.error()["type"].as_str()), (415, Some("invalid_request_error")));
}

#[test]
fn a2_null_is_absent_and_unknown_fields_are_ignored() {
    let more = json!({"max_tokens": null, "temperature": null, "n": null, "tools": null, "stream": null, "stop": null,
        "response_format": null, "user": "me", "store": false, "metadata": {"a": "b"}, "unheard_of": [1]});
    assert_eq!(server().choice("A", more)["message"]["content"], "fine");
}

#[test]
fn what_a_template_raises_is_the_clients_fault() {
    let template = "{% if messages[0].role != 'user' %}{{ raise_exception('users begin') }}{% endif %}A";
    let server = Server::start(&Chain::new(&[]), Setup { template, ..Setup::default() });
    let body = json!({"messages": [{"role": "system", "content": "x"}]});
    let answer = server.post(CHAT, &body);
    assert_eq!(answer.status, 400);
    assert!(answer.error()["message"].as_str().unwrap().contains("users begin"));
}

#[test]
fn names_of_models() {
    let server = server();
    let list = server.get("/v1/models").json();
    let ids: Vec<_> = list["data"].as_array().unwrap().iter().map(|m| m["id"].clone()).collect();
    assert_eq!((ids, &list["data"][0]["max_model_len"]), (vec![json!("chain"), json!("other")], &json!(512)));
    assert_eq!(server.get("/v1/models/other").json()["root"], "chain");
    for (path, status) in [("/v1/models/none", 404), ("/nowhere", 404), ("/v1/chat/completions", 405)] {
        let answer = server.get(path);
        assert_eq!(answer.status, status, "{path}");
        answer.error();
    }
    let mut body = chat("A", json!({}));
    body["model"] = "gpt-4".into();
    let answer = server.post(CHAT, &body);
    assert_eq!((answer.status, &answer.error()["code"]), (404, &json!("model_not_found")));
    body["model"] = "other".into();
    assert_eq!(server.post(CHAT, &body).json()["model"], "chain");
}

#[test]
fn keys_are_wanted_where_there_are_keys() {
    let options = Options { api_keys: vec!["secret".into()], ..Setup::default().options };
    let server = Server::start(&Chain::new(&[]), Setup { options, ..Setup::default() });
    let check = |path: &str, headers: &str, status: u16| {
        let answer = server.ask("GET", path, headers, b"");
        assert_eq!(answer.status, status, "{path} {headers}");
    };
    check("/v1/models", "", 401);
    check("/openapi.json", "", 401);
    check("/v1/models", "authorization: Bearer wrong\r\n", 401);
    check("/v1/models", "authorization: Bearer secret\r\n", 200);
    check("/v1/models", "x-api-key: secret\r\n", 200);
    for open in ["/health", "/ready", "/live", "/metrics", "/version"] {
        check(open, "", 200);
    }
}

#[test]
fn browsers_may_ask_for_some_pages_only() {
    let allowed = |origins: Origins, origin: &str| {
        let options = Options { origins, ..Setup::default().options };
        let server = Server::start(&Chain::new(&[]), Setup { options, ..Setup::default() });
        let asked = format!(
            "origin: {origin}\r\naccess-control-request-method: POST\r\naccess-control-request-headers: authorization\r\n"
        );
        server.ask("OPTIONS", CHAT, &asked, b"").head.contains("access-control-allow-origin")
    };
    assert!(allowed(Origins::Loopback, "http://localhost:3000"));
    assert!(!allowed(Origins::Loopback, "https://example.com"));
    assert!(allowed(Origins::Any, "https://example.com"));
    assert!(allowed(Origins::Only(vec!["https://a.example".into()]), "https://a.example"));
    assert!(!allowed(Origins::Only(vec!["https://a.example".into()]), "https://b.example"));
}

#[test]
fn words_to_ids_and_back() {
    let server = Server::start(
        &Chain::new(&["<|user|>"]),
        Setup { template: "<|user|>{{ messages[0].content }}", ..Setup::default() },
    );
    let tokens = |body: Value| server.post("/tokenize", &body).json();
    let plain = tokens(json!({"prompt": "hi", "return_token_strs": true}));
    assert_eq!(
        (&plain["tokens"], &plain["count"], &plain["token_strs"]),
        (&json!([104, 105]), &json!(2), &json!(["h", "i"]))
    );
    assert_eq!(tokens(json!({"content": "hi"}))["max_model_len"], 512);
    let chat = tokens(json!({"messages": [{"role": "user", "content": "hi"}]}));
    assert_eq!(chat["count"], 3);
    let back = server.post("/detokenize", &json!({"tokens": chat["tokens"]})).json();
    assert_eq!((&back["prompt"], &back["content"]), (&json!("<|user|>hi"), &json!("<|user|>hi")));
    let check = |path: &str, body: Value, param: &str| {
        let answer: Answer = server.post(path, &body);
        assert_eq!((answer.status, &answer.error()["param"]), (400, &json!(param)), "{body}");
    };
    check("/tokenize", json!({}), "prompt");
    check("/v1/completions", json!({"prompt": [-1]}), "prompt");
    check("/v1/completions", json!({"prompt": [1_000_000]}), "prompt");
    check("/tokenize", json!({"prompt": "a", "messages": []}), "prompt");
    check("/detokenize", json!({"tokens": [1_000_000]}), "tokens");
}

#[test]
fn requests_have_names() {
    let server = server();
    let named = server.ask("GET", "/v1/models", "x-request-id: mine-7\r\n", b"");
    assert!(named.head.contains("x-request-id: mine-7"), "{}", named.head);
    let unfit = server.ask("GET", "/v1/models", "x-request-id: a b\r\n", b"");
    assert!(unfit.head.contains("x-request-id: ") && !unfit.head.contains("a b"), "{}", unfit.head);
}

#[test]
fn the_interface_describes_itself() {
    let description = server().get("/openapi.json").json();
    for path in ["/v1/chat/completions", "/v1/completions", "/v1/models", "/tokenize", "/health", "/metrics"]
    {
        assert!(description["paths"].get(path).is_some(), "{path}");
    }
    let schemas = description["components"]["schemas"].as_object().unwrap();
    for name in ["ChatRequest", "ErrorBody"] {
        assert!(schemas.contains_key(name), "{name}: {:?}", schemas.keys());
    }
}
