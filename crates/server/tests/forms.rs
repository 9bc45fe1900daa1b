//! Answers that keep a form, vectors of texts, probabilities of prompts: cases A4 and J through the API.
#![allow(clippy::unwrap_used)]

mod util;

use serde_json::{Value, json};
use shardwright_text::reply::Syntax;
use util::{Chain, Server, Setup};

fn server() -> Server {
    Server::of(&Chain::new(&[]).script("A", &[b"free text"]))
}

fn content(server: &Server, more: Value) -> String {
    let choice = server.choice("A", more);
    choice["message"]["content"].as_str().unwrap().to_owned()
}

#[test]
fn answers_keep_their_form() {
    let server = server();
    assert_eq!(content(&server, json!({})), "free text");
    let schema = json!({"type": "object", "properties": {"k": {"enum": ["aa", "ü"]}}, "required": ["k"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
    for more in [
        json!({"response_format": format}),
        json!({"guided_json": schema}),
        json!({"structured_outputs": {"json": schema}}),
    ] {
        let text = content(&server, more);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert!(value == json!({"k": "aa"}) || value == json!({"k": "ü"}), "{text}");
    }
    for more in
        [json!({"guided_choice": ["yes", "no"]}), json!({"structured_outputs": {"choice": ["yes", "no"]}})]
    {
        let text = content(&server, more);
        assert!(text == "yes" || text == "no", "{text}");
    }
    let digits = content(&server, json!({"guided_regex": "[0-9]{3}"}));
    assert!(digits.len() == 3 && digits.bytes().all(|b| b.is_ascii_digit()), "{digits}");
    let body = json!({"prompt": "A", "temperature": 0, "guided_choice": ["yes", "no"]});
    let text = server.post("/v1/completions", &body).json()["choices"][0]["text"].clone();
    assert!(text == "yes" || text == "no", "{text}");
}

#[test]
fn a4_forms_that_cannot_be_kept_are_refused() {
    let server = server();
    let loops = json!({"$ref": "#/$defs/n", "$defs": {"n": {"$ref": "#/$defs/n"}}});
    for schema in [loops, json!({"type": "not-a-type"}), json!({"$ref": "http://example.com/x"})] {
        let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
        let answer = server.chat("A", json!({"response_format": format}));
        assert_eq!((answer.status, &answer.error()["param"]), (400, &json!("response_format")), "{schema}");
    }
    let answer =
        server.chat("A", json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}));
    assert_eq!(answer.status, 400);
    let answer = server.chat("A", json!({"guided_choice": []}));
    assert_eq!((answer.status, &answer.error()["param"]), (400, &json!("guided_choice")));
}

#[test]
fn what_is_wrong_with_a_form_names_its_field() {
    let server = server();
    for (more, param) in [
        (json!({"guided_regex": "a["}), "guided_regex"),
        (json!({"guided_regex": "((a?){50}){50}a{5000}"}), "guided_regex"),
        (json!({"guided_json": {"type": "not-a-type"}}), "guided_json"),
        (json!({"guided_grammar": "start: nobody"}), "guided_grammar"),
        (json!({"structured_outputs": {"regex": "a["}}), "structured_outputs.regex"),
        (json!({"structured_outputs": {"choice": 1}}), "structured_outputs.choice"),
    ] {
        let answer = server.chat("A", more);
        let error = answer.error();
        assert_eq!((answer.status, &error["param"]), (400, &json!(param)));
        assert!(error["message"].as_str().unwrap().starts_with(&format!("`{param}`")), "{error}");
    }
}

#[test]
fn a_mark_within_a_form_is_text() {
    let chain = Chain::new(&["<think>", "</think>"]);
    let template = "{{ messages[-1]['content'] }}</think>";
    let server =
        Server::start(&chain, Setup { template, syntax: Syntax::by_name("glm"), ..Setup::default() });
    for stream in [false, true] {
        let more = json!({"guided_choice": ["x</think>y"]});
        let text = match stream {
            false => content(&server, more),
            true => server.streamed("q", more).content,
        };
        assert_eq!(text, "x</think>y");
    }
}

#[test]
fn thoughts_are_free_of_the_form() {
    let chain =
        Chain::new(&["<think>", "</think>"]).script("<think>", &[b"Let me", b" see", b"</think>", b"free"]);
    let template = "{{ messages[-1]['content'] }}<think>";
    let server =
        Server::start(&chain, Setup { template, syntax: Syntax::by_name("glm"), ..Setup::default() });
    let choice = server.choice("q", json!({"guided_choice": ["yes", "no"]}));
    assert_eq!(choice["message"]["reasoning_content"], "Let me see");
    let text = choice["message"]["content"].as_str().unwrap();
    assert!(text == "yes" || text == "no", "{choice}");
}

#[test]
fn calls_can_be_forced() {
    let tool = |name: &str| {
        let n = json!({"n": {"type": "integer"}});
        let parameters =
            json!({"type": "object", "properties": n, "required": ["n"], "additionalProperties": false});
        json!({"type": "function", "function": {"name": name, "parameters": parameters}})
    };
    let tools = json!([tool("first"), tool("second")]);
    for syntax in ["glm", "hermes"] {
        // thoughts are over: a chain that is indifferent would think for ever
        let chain = Chain::new(&["<tool_call>", "</tool_call>", "<think>", "</think>"]);
        let template = "{{ messages[-1]['content'] }}</think>";
        let server =
            Server::start(&chain, Setup { template, syntax: Syntax::by_name(syntax), ..Setup::default() });
        let named = json!({"type": "function", "function": {"name": "second"}});
        let choice = server.choice("A", json!({"tools": tools, "tool_choice": named, "max_tokens": 200}));
        let call = &choice["message"]["tool_calls"][0]["function"];
        assert_eq!(
            (&call["name"], &choice["finish_reason"]),
            (&json!("second"), &json!("tool_calls")),
            "{syntax}: {choice}"
        );
        let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
        assert!(arguments["n"].is_number(), "{syntax}: {choice}");
        let some = json!({"tools": tools, "tool_choice": "required", "parallel_tool_calls": false, "max_tokens": 200});
        assert_eq!(server.choice("A", some)["finish_reason"], "tool_calls", "{syntax}");
    }
    let answer = server().chat("A", json!({"tool_choice": "required"}));
    assert_eq!((answer.status, &answer.error()["param"]), (400, &json!("tool_choice")));
}

#[test]
fn texts_become_vectors() {
    // the chain's hidden state is the token itself, one number
    let server = server();
    let ask = |body: Value| server.post("/v1/embeddings", &body);
    let two = ask(json!({"input": ["ab", "c"]})).json();
    assert_eq!((&two["data"][1]["embedding"], &two["data"][1]["index"]), (&json!([1.0]), &json!(1)));
    assert_eq!(two["usage"]["prompt_tokens"], 3);
    assert_eq!(
        ask(json!({"input": [97, 98], "encoding_format": "base64"})).json()["data"][0]["embedding"],
        "AACAPw=="
    );
    for (bad, param) in [
        (json!({"input": []}), "input"),
        (json!({"input": ""}), "input"),
        (json!({"input": "a", "dimensions": 3}), "dimensions"),
    ] {
        let answer = ask(bad.clone());
        assert_eq!((answer.status, &answer.error()["param"]), (400, &json!(param)), "{bad}");
    }
}

#[test]
fn prompts_are_scored() {
    let chain = Chain::new(&[]).fork("A", &[("x", 0.5), ("y", 0.5)]);
    let server = Server::of(&chain);
    let body = json!({"prompt": "Ax", "echo": true, "logprobs": 1, "max_tokens": 0, "temperature": 0});
    let choice = server.post("/v1/completions", &body).json()["choices"][0].clone();
    assert_eq!((&choice["text"], &choice["logprobs"]["tokens"]), (&json!("Ax"), &json!(["A", "x"])));
    let logprobs = choice["logprobs"]["token_logprobs"].as_array().unwrap();
    assert!(logprobs[0].is_null() && (logprobs[1].as_f64().unwrap() - 0.5f64.ln()).abs() < 1e-4, "{choice}");
    assert_eq!(choice["logprobs"]["text_offset"], json!([0, 1]));
}
