//! `/v1/responses`, whole and as events.
#![allow(clippy::unwrap_used)]

mod util;

use serde_json::{Value, json};
use shardwright_text::reply::Syntax;
use util::{Chain, Server, Setup};

fn chain() -> Chain {
    Chain::new(&["<think>", "</think>", "<tool_call>", "</tool_call>"])
        .script("A", &[b"one", b" two"])
        .script(
            "T",
            &[b"<think>", b"hm", b"</think>", b"Sure. ", b"<tool_call>", b"get_time", b"</tool_call>"],
        )
}

fn server() -> Server {
    Server::start(&chain(), Setup { syntax: Syntax::by_name("glm"), ..Setup::default() })
}

fn ask(input: &Value, more: Value) -> Value {
    let mut body = json!({"input": input, "temperature": 0});
    more.as_object().unwrap().iter().for_each(|(k, v)| body[k] = v.clone());
    body
}

fn tools() -> Value {
    json!({"tools": [{"type": "function", "name": "get_time", "parameters": {"type": "object", "properties": {}}}]})
}

/// Names and data of the events; each event's data has its name and its number.
fn events(text: &str) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for event in text.split("\n\n").filter(|e| e.starts_with("event: ")) {
        let (name, data) = event["event: ".len()..].split_once("\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!((&data["type"], &data["sequence_number"]), (&json!(name), &json!(all.len())));
        all.push((name.to_owned(), data));
    }
    all
}

#[test]
fn a_text_is_answered() {
    let server = server();
    let whole = server.post("/v1/responses", &ask(&json!("A"), json!({}))).json();
    assert_eq!(
        (&whole["status"], &whole["output"][0]["content"][0]["text"]),
        (&json!("completed"), &json!("one two"))
    );
    assert_eq!((&whole["usage"]["input_tokens"], &whole["usage"]["output_tokens"]), (&json!(1), &json!(3)));
    let cut = server.post("/v1/responses", &ask(&json!("A"), json!({"max_output_tokens": 1}))).json();
    assert_eq!(
        (&cut["status"], &cut["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("max_output_tokens"))
    );
}

#[test]
fn items_open_fill_and_close() {
    let server = server();
    let mut body = ask(&json!([{"role": "user", "content": "T"}]), tools());
    let whole = server.post("/v1/responses", &body).json();
    let kinds: Vec<_> =
        whole["output"].as_array().unwrap().iter().map(|i| i["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["reasoning", "message", "function_call"]);
    body["stream"] = true.into();
    let events = events(&server.post("/v1/responses", &body).text);
    let names: Vec<&str> = events.iter().map(|(n, _)| n.trim_start_matches("response.")).collect();
    let text = |word: &str| {
        [
            format!("{word}.delta"),
            format!("{word}.done"),
            "content_part.done".into(),
            "output_item.done".into(),
        ]
    };
    let mut expected = vec!["created".to_owned(), "in_progress".into()];
    for word in ["reasoning_text", "output_text"] {
        expected.extend(["output_item.added".into(), "content_part.added".into()]);
        expected.extend(text(word));
    }
    expected.extend(["output_item.added".into(), "function_call_arguments.delta".into()]);
    expected.extend(["function_call_arguments.done".into(), "output_item.done".into(), "completed".into()]);
    let mut without_repeats = names.clone();
    without_repeats.dedup();
    assert_eq!(without_repeats, expected);
    let (_, last) = events.last().unwrap();
    let plain = |response: &Value| {
        let mut output = response["output"].clone();
        for item in output.as_array_mut().unwrap() {
            item["id"] = Value::Null;
            item["call_id"] = Value::Null;
        }
        output
    };
    assert_eq!(plain(&last["response"]), plain(&whole));
}

#[test]
fn what_is_not_kept_is_refused() {
    let answer = server().post("/v1/responses", &ask(&json!("A"), json!({"previous_response_id": "resp_1"})));
    assert_eq!((answer.status, &answer.error()["param"]), (400, &json!("previous_response_id")));
    let answer =
        server().post("/v1/responses", &ask(&json!([{"type": "item_reference", "id": "x"}]), json!({})));
    assert_eq!((answer.status, &answer.error()["param"]), (400, &json!("input[0]")));
}
