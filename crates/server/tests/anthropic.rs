//! `/v1/messages` and its count of tokens: case P1, errors, limits.
#![allow(clippy::unwrap_used)]

mod util;

use serde_json::{Value, json};
use shardwright_server::options::Options;
use std::collections::BTreeSet;
use util::{Answer, Chain, JSON, Server, Setup, glm, j1, j2};

const MESSAGES: &str = "/v1/messages";

/// A greedy conversation of one message, with more fields.
fn body(text: &str, more: Value) -> Value {
    let mut body =
        json!({"max_tokens": 64, "temperature": 0, "messages": [{"role": "user", "content": text}]});
    more.as_object().unwrap().iter().for_each(|(k, v)| body[k] = v.clone());
    body
}

fn tools() -> Value {
    json!([
        {"name": "get_time", "input_schema": {"type": "object", "properties": {}}, "cache_control": {"type": "ephemeral"}},
        {"name": "lookup", "description": "finds", "input_schema": {"type": "object", "properties": {
            "order_id": {"type": "string"}, "max": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}}, "ok": {"type": "boolean"}}}},
    ])
}

/// The answer that a stream's events come to, put together as clients do; the order of events is checked.
fn told(text: &str) -> Value {
    let mut message = Value::Null;
    let mut open: Option<(usize, String)> = None;
    let mut ended = 0;
    for event in text.split("\n\n").filter(|e| !e.is_empty()) {
        let (name, data) = event.strip_prefix("event: ").unwrap().split_once("\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["type"], name);
        assert_eq!(ended, if name == "message_stop" { 1 } else { 0 }, "{text}");
        match name {
            "ping" => assert!(message.is_object(), "{text}"),
            "message_start" => {
                assert!(message.is_null(), "{text}");
                message = data["message"].clone();
                assert_eq!((&message["content"], &message["stop_reason"]), (&json!([]), &Value::Null));
            }
            "content_block_start" => {
                let content = message["content"].as_array_mut().unwrap();
                assert!(open.is_none() && data["index"] == content.len(), "{text}");
                content.push(data["content_block"].clone());
                open = Some((content.len() - 1, String::new()));
            }
            "content_block_delta" => {
                let (index, json) = open.as_mut().unwrap();
                assert_eq!(data["index"], *index);
                let (delta, block) = (&data["delta"], &mut message["content"][*index]);
                let field = match (delta["type"].as_str().unwrap(), block["type"].as_str().unwrap()) {
                    ("text_delta", "text") => "text",
                    ("thinking_delta", "thinking") => "thinking",
                    ("signature_delta", "thinking") => "signature",
                    ("input_json_delta", "tool_use") => {
                        json.push_str(delta["partial_json"].as_str().unwrap());
                        continue;
                    }
                    wrong => panic!("{wrong:?}: {text}"),
                };
                let more = delta[field].as_str().unwrap();
                block[field] = format!("{}{more}", block[field].as_str().unwrap()).into();
            }
            "content_block_stop" => {
                let (index, json) = open.take().unwrap();
                assert_eq!(data["index"], index);
                if message["content"][index]["type"] == "tool_use" {
                    assert!(json.starts_with('{'), "{text}");
                    message["content"][index]["input"] = serde_json::from_str(&json).unwrap();
                }
            }
            "message_delta" => {
                assert!(open.is_none(), "{text}");
                message["stop_reason"] = data["delta"]["stop_reason"].clone();
                message["stop_sequence"] = data["delta"]["stop_sequence"].clone();
                message["usage"] = data["usage"].clone();
                ended = 1;
            }
            "message_stop" => ended = 2,
            other => panic!("{other}: {text}"),
        }
    }
    assert_eq!(ended, 2, "{text}");
    message
}

/// The answer, which must be the same whole and streamed.
fn answer(server: &Server, text: &str, more: Value) -> Value {
    let mut body = body(text, more);
    let whole = server.post(MESSAGES, &body);
    assert_eq!(whole.status, 200, "{}", whole.text);
    body["stream"] = true.into();
    let streamed = server.post("/v1/messages?beta=true", &body);
    assert!(streamed.head.contains("content-type: text/event-stream"), "{}", streamed.head);
    let (mut whole, mut streamed) = (whole.json(), told(&streamed.text));
    let mut ids = BTreeSet::new();
    for message in [&mut whole, &mut streamed] {
        let calls = message["content"].as_array_mut().unwrap().iter_mut().filter_map(|b| b.get_mut("id"));
        let calls: Vec<Value> = calls.map(Value::take).collect();
        assert!(calls.iter().all(|id| id.as_str().unwrap().starts_with("toolu_")), "{calls:?}");
        let id = message["id"].take();
        assert!(id.as_str().unwrap().starts_with("msg_"), "{id}");
        for id in calls.into_iter().chain([id]) {
            assert!(ids.insert(id.to_string()), "{id} twice");
        }
    }
    assert_eq!(whole, streamed);
    whole
}

#[test]
fn p1_calls_open_fill_and_close() {
    let server = Server::start(&j1(), glm());
    let text = |text: &str| json!({"type": "text", "text": text});
    let call =
        |name: &str, input: Value| json!({"type": "tool_use", "id": null, "name": name, "input": input});
    let check = |prompt: &str, more: Value, content: Value, stop: &str| {
        let answer = answer(&server, prompt, more.clone());
        assert_eq!((&answer["content"], &answer["stop_reason"]), (&content, &json!(stop)), "{more}");
        assert_eq!(
            (&answer["type"], &answer["role"], &answer["model"]),
            (&json!("message"), &json!("assistant"), &json!("chain"))
        );
    };
    let time = || json!([call("get_time", json!({}))]);
    check("A", json!({"tools": tools()}), time(), "tool_use");
    check("A", json!({"tools": tools(), "tool_choice": {"type": "auto"}}), time(), "tool_use");
    check("A", json!({"tools": tools(), "tool_choice": {"type": "any"}}), time(), "tool_use");
    check(
        "A",
        json!({"tools": tools(), "tool_choice": {"type": "tool", "name": "get_time"}}),
        time(),
        "tool_use",
    );
    let input = json!({"order_id": "00123", "max": 10, "tags": ["a"], "ok": true});
    check("B", json!({"tools": tools()}), json!([text("Sure."), call("lookup", input)]), "tool_use");
    check("C", json!({"tools": tools()}), json!([text("a < b and <tool is a word")]), "end_turn");
    let plain = json!([text("<tool_call>get_time</tool_call>")]);
    check("A", json!({"tools": tools(), "tool_choice": {"type": "none"}}), plain.clone(), "end_turn");
    check("A", json!({"tools": []}), plain, "end_turn");
}

#[test]
fn p1_thoughts_are_blocks_of_their_own() {
    let server = j2();
    let thought = |text: &str| json!({"type": "thinking", "thinking": text, "signature": "unsigned"});
    let text = |text: &str| json!({"type": "text", "text": text});
    let check = |more: Value, content: Value, stop: &str| {
        let answer = answer(&server, "q", more.clone());
        assert_eq!((&answer["content"], &answer["stop_reason"]), (&content, &json!(stop)), "{more}");
        answer["usage"].clone()
    };
    let both = json!([thought("Let me see"), text("The answer")]);
    for more in [
        json!({}),
        json!({"thinking": {"type": "enabled", "budget_tokens": 1024}}),
        json!({"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "high"}}),
    ] {
        let usage = check(more, both.clone(), "end_turn");
        assert_eq!(
            (&usage["output_tokens"], &usage["output_tokens_details"]),
            (&json!(5), &json!({"thinking_tokens": 2}))
        );
    }
    check(json!({"thinking": {"type": "disabled"}}), json!([text("Direct")]), "end_turn");
    check(json!({"max_tokens": 1}), json!([thought("Let me")]), "max_tokens");
}

#[test]
fn p1_only_one_call_where_only_one_may_be() {
    let chain = Chain::new(&["<tool_call>", "</tool_call>"])
        .script("A", &[b"<tool_call>", b"get_time", b"</tool_call>", b"<tool_call>get_time</tool_call>"]);
    let server = Server::start(&chain, glm());
    let calls = |choice: Value| {
        let answer = answer(&server, "A", json!({"tools": tools(), "tool_choice": choice}));
        assert_eq!(answer["stop_reason"], "tool_use");
        answer["content"].as_array().unwrap().len()
    };
    assert_eq!(calls(json!({"type": "auto"})), 2);
    assert_eq!(calls(json!({"type": "auto", "disable_parallel_tool_use": true})), 1);
}

#[test]
fn stop_sequences_are_named() {
    let server = Server::of(&Chain::new(&[]).script("A", &[b"The quick br", b"own f", b"ox"]));
    let check = |more: Value, text: &str, stop: &str, sequence: Value| {
        let answer = answer(&server, "A", more.clone());
        assert_eq!(
            (&answer["content"][0]["text"], &answer["stop_reason"], &answer["stop_sequence"]),
            (&json!(text), &json!(stop), &sequence),
            "{more}"
        );
    };
    check(json!({"stop_sequences": ["cat", "own fox"]}), "The quick br", "stop_sequence", json!("own fox"));
    check(json!({"stop_sequences": []}), "The quick brown fox", "end_turn", Value::Null);
    check(json!({"max_tokens": 1}), "The quick br", "max_tokens", Value::Null);
    let silent = answer(&server, "A", json!({"stop_sequences": ["The"]}));
    assert_eq!((&silent["content"], &silent["stop_sequence"]), (&json!([]), &json!("The")));
}

#[test]
fn conversations_come_in_many_forms() {
    let template = "{% for m in messages %}[{{ m.role }}:{{ m.reasoning_content or '' }}:{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.id }}{{ c.function.name }}{{ c.function.arguments.city }}{% endfor %}{{ m.tool_call_id or '' }}]{% endfor %}";
    let server = Server::start(&Chain::new(&[]), Setup { template, ..Setup::default() });
    let check = |fields: Value, rendered: &str| {
        let count = server.post("/v1/messages/count_tokens", &fields);
        assert_eq!((count.status, count.json()), (200, json!({"input_tokens": rendered.len()})), "{fields}");
        let mut asked = fields;
        asked["max_tokens"] = 1.into();
        let answer = server.post(MESSAGES, &asked);
        let usage = &answer.json()["usage"];
        let total =
            usage["input_tokens"].as_u64().unwrap() + usage["cache_read_input_tokens"].as_u64().unwrap();
        assert_eq!((answer.status, total), (200, rendered.len() as u64), "{}", answer.text);
    };
    let cached = json!({"type": "ephemeral"});
    let user = json!([{"role": "user", "content": "q"}]);
    check(json!({"messages": user, "metadata": {"user_id": "me"}}), "[user::q]");
    check(json!({"messages": user, "system": "be kind"}), "[system::be kind][user::q]");
    let blocks = json!([{"type": "text", "text": "be kind", "cache_control": cached}]);
    check(json!({"messages": user, "system": blocks}), "[system::be kind][user::q]");
    let history = json!([
        {"role": "user", "content": [{"type": "text", "text": "q", "cache_control": cached, "citations": null}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "of another server"},
            {"type": "text", "text": "a"},
            {"type": "tool_use", "id": "t1", "name": "f", "input": {"city": "Rom"}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "is_error": true, "content": [{"type": "text", "text": "no"}]},
            {"type": "text", "text": "then"}]},
    ]);
    check(json!({"messages": history}), "[user::q][assistant:hm:at1fRom][tool::not1][user::then]");
}

#[test]
fn what_is_in_the_cache_is_counted_apart() {
    let server = Server::of(&Chain::new(&[]).script("A", &[b"fine"]));
    let prompt = format!("{}A", "b".repeat(200));
    let usage = |expected: (u64, u64)| {
        let answer = server.post(MESSAGES, &body(&prompt, json!({}))).json();
        let usage = &answer["usage"];
        assert_eq!(
            (usage["input_tokens"].as_u64().unwrap(), usage["cache_read_input_tokens"].as_u64().unwrap()),
            expected
        );
        assert_eq!((&usage["cache_creation_input_tokens"], &usage["output_tokens"]), (&json!(0), &json!(2)));
    };
    usage((201, 0));
    usage((9, 192));
}

/// Status, kind and message of an error in this API's form.
fn refused(answer: &Answer) -> (u16, String, String) {
    let body = answer.json();
    assert_eq!(body["type"], "error", "{}", answer.text);
    let id = body["request_id"].as_str().unwrap();
    assert!(answer.head.contains(&format!("request-id: {id}")), "{}", answer.head);
    let text = |name: &str| body["error"][name].as_str().unwrap().to_owned();
    (answer.status, text("type"), text("message"))
}

#[test]
fn errors_have_this_apis_form() {
    let options = Options { api_keys: vec!["secret".into()], ..Setup::default().options };
    let server =
        Server::start(&Chain::new(&[]).script("A", &[b"fine"]), Setup { options, ..Setup::default() });
    let headers =
        format!("{JSON}x-api-key: secret\r\nanthropic-version: 2023-06-01\r\nanthropic-beta: x\r\n");
    let check =
        |method: &str, path: &str, headers: &str, body: &str, status: u16, kind: &str, words: &str| {
            let answer = server.ask(method, path, headers, body.as_bytes());
            let found = refused(&answer);
            assert_eq!((found.0, found.1.as_str()), (status, kind), "{body}: {}", answer.text);
            assert!(found.2.contains(words), "{words}: {}", answer.text);
        };
    let bad = "invalid_request_error";
    let post = |more: Value, words: &str| {
        check("POST", MESSAGES, &headers, &body("A", more).to_string(), 400, bad, words)
    };
    post(json!({"max_tokens": 0}), "`max_tokens`");
    post(json!({"max_tokens": null}), "`max_tokens`");
    post(json!({"temperature": -1}), "temperature");
    post(json!({"stop_sequences": "x"}), "`stop_sequences`");
    post(json!({"stop_sequences": vec!["x"; 1000]}), "`stop_sequences`");
    post(json!({"messages": []}), "`messages` is empty");
    post(json!({"system": 7}), "`system`");
    post(json!({"thinking": {"type": "hard"}}), "`thinking.type`");
    post(json!({"thinking": {"type": "enabled", "budget_tokens": -1}}), "`thinking.budget_tokens`");
    post(json!({"output_config": {"effort": "extreme"}}), "`reasoning_effort`");
    post(json!({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}), "`tools[0].type`");
    post(json!({"tool_choice": {"type": "tool", "name": "nothing"}}), "`tool_choice`");
    post(json!({"tool_choice": {"type": "some"}}), "`tool_choice.type`");
    post(json!({"mcp_servers": [{"url": "x"}]}), "`mcp_servers`");
    let image =
        json!([{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "x"}}]}]);
    post(json!({"messages": image}), "`messages[0].content[0]` is of type `image`");
    let long = json!([{"role": "user", "content": "b".repeat(600)}]);
    post(json!({"messages": long}), "prompt is too long: ");
    check("POST", MESSAGES, &headers, "{", 400, bad, "JSON");
    check("POST", MESSAGES, &headers, "{}", 400, bad, "`messages`");
    check("POST", "/v1/messages/count_tokens", &headers, "{}", 400, bad, "`messages`");
    check("POST", MESSAGES, JSON, "{}", 401, "authentication_error", "x-api-key");
    check(
        "POST",
        MESSAGES,
        &headers,
        &body("A", json!({"model": "claude"})).to_string(),
        404,
        "not_found_error",
        "claude",
    );
    check("GET", MESSAGES, &headers, "", 405, bad, "method");
    check("GET", "/v1/messages/batches", &headers, "", 404, "not_found_error", "path");
    let fine = server.ask("POST", MESSAGES, &headers, body("A", json!({})).to_string().as_bytes());
    assert_eq!((fine.status, &fine.json()["content"][0]["text"]), (200, &json!("fine")));
    // elsewhere errors keep OpenAI's form
    server.ask("POST", "/v1/chat/completions", &headers, b"{").error();
}

#[test]
fn n2_a_nan_ends_a_stream_with_an_event() {
    let server = Server::of(&Chain::new(&[]).nan("N"));
    let mut asked = body("N", json!({}));
    let whole = refused(&server.post(MESSAGES, &asked));
    assert_eq!((whole.0, whole.1.as_str()), (500, "api_error"));
    asked["stream"] = true.into();
    let text = server.post(MESSAGES, &asked).text;
    let last = text.trim_end().split("\n\n").last().unwrap();
    let data: Value = serde_json::from_str(last.strip_prefix("event: error\ndata: ").unwrap()).unwrap();
    assert_eq!((&data["type"], &data["error"]["type"]), (&json!("error"), &json!("api_error")));
    assert!(data["error"]["message"].as_str().unwrap().contains("layer 3"), "{text}");
}

#[test]
fn the_description_has_both_endpoints() {
    let description = Server::of(&Chain::new(&[])).get("/openapi.json").json();
    for path in [MESSAGES, "/v1/messages/count_tokens"] {
        let responses = &description["paths"][path]["post"]["responses"];
        let error = &responses["400"]["content"]["application/json"]["schema"]["$ref"];
        assert_eq!(*error, json!("#/components/schemas/MessageError"), "{path}");
    }
    let schemas = description["components"]["schemas"].as_object().unwrap();
    for name in
        ["MessagesRequest", "CountRequest", "MessageResponse", "MessageError", "InputMessage", "MessageTool"]
    {
        assert!(schemas.contains_key(name), "{name}: {:?}", schemas.keys());
    }
}
