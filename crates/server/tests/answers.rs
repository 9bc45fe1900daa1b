//! What answers say, streamed and not: cases J1, J2, S1, S2, S3, S5, S6, A1, A3, T2, T5, N2.
#![allow(clippy::unwrap_used)]

mod util;

use serde_json::{Value, json};
use util::{Chain, Server, Setup, glm, j1, j2};

#[test]
fn s1_characters_that_span_tokens_arrive_whole() {
    let chain = Chain::new(&[])
        .script("A", &[b"ok ", b"\xf0\x9f", b"\x98", b"\x80", b"!", b"\xe8\xb5", b"\x8b"])
        .script("B", &[b"x", b"\xff", b"y"])
        .script("C", &[b"z", b"\xe2\x82"]);
    let server = Server::of(&chain);
    let check = |prompt: &str, more: Value, expected: &str| {
        assert_eq!(server.choice(prompt, more.clone())["message"]["content"], expected, "{prompt}");
        assert_eq!(server.streamed(prompt, more).content, expected, "{prompt}");
    };
    check("A", json!({}), "ok 😀!赋");
    check("B", json!({}), "x\u{fffd}y");
    check("C", json!({}), "z\u{fffd}");
    check("A", json!({"max_tokens": 2}), "ok \u{fffd}");
}

#[test]
fn s2_stop_strings_work_across_tokens_in_both_endpoints() {
    let chain = Chain::new(&[]).script("A", &[b"The quick br", b"own f", b"ox jumps", b" over"]);
    let server = Server::of(&chain);
    let check = |stop: Value, max: Value, expected: &str, finish: &str| {
        let more = json!({"stop": stop, "max_tokens": max});
        let choice = server.choice("A", more.clone());
        assert_eq!(
            (&choice["message"]["content"], &choice["finish_reason"]),
            (&json!(expected), &json!(finish))
        );
        let streamed = server.streamed("A", more);
        assert_eq!((streamed.content.as_str(), streamed.finish.as_deref()), (expected, Some(finish)));
        let mut body = json!({"prompt": "A", "temperature": 0, "stop": stop, "max_tokens": max});
        let whole = server.post("/v1/completions", &body).json();
        assert_eq!(whole["choices"][0]["text"], expected);
        assert_eq!(whole["choices"][0]["finish_reason"], finish);
        body["stream"] = true.into();
        let events = server.post("/v1/completions", &body).events();
        let text: String = events.iter().filter_map(|e| e["choices"][0]["text"].as_str()).collect();
        assert_eq!(text, expected);
    };
    check(json!(["own fox"]), Value::Null, "The quick br", "stop");
    check(json!("fox j"), Value::Null, "The quick brown ", "stop");
    check(json!(["ox jumps over!"]), Value::Null, "The quick brown fox jumps over", "stop");
    check(json!(["own fox"]), json!(2), "The quick brown f", "length");
    check(json!(["jumps", "quick"]), Value::Null, "The ", "stop");
    check(json!(["The"]), Value::Null, "", "stop");
    check(json!([]), Value::Null, "The quick brown fox jumps over", "stop");
}

fn fork() -> Chain {
    let d = [("x", 0.5), ("y", 0.4), ("z", 0.1)];
    Chain::new(&[]).fork("A", &d).fork("x", &d).fork("y", &d).fork("z", &d)
}

#[test]
fn s3_s4_penalties_and_limits_reach_the_sampler() {
    let chain = fork();
    let server = Server::of(&chain);
    let check = |prompt: &str, more: Value, expected: &str| {
        assert_eq!(server.choice(prompt, more.clone())["message"]["content"], expected, "{more}");
    };
    check("xA", json!({"presence_penalty": 0.5, "max_tokens": 4}), "xyxx");
    check("xA", json!({"frequency_penalty": 0.5, "max_tokens": 8}), "xyxyxyxz");
    check("xA", json!({"repetition_penalty": 2.0, "max_tokens": 4}), "yxxx");
    check("A", json!({"logit_bias": {"121": 100}, "max_tokens": 3}), "yyy");
    for more in [
        json!({"temperature": 1e-9}),
        json!({"temperature": -0.0}),
        json!({"top_k": 1, "temperature": 1}),
        json!({"top_p": 0, "temperature": 1}),
        json!({"min_p": 0.9, "temperature": 1}),
    ] {
        let mut more = more;
        more["max_tokens"] = 1.into();
        check("A", more, "x");
    }
}

#[test]
fn s5_seeds_repeat_and_choices_differ() {
    let chain = fork();
    let server = Server::of(&chain);
    let more = json!({"temperature": 1, "seed": 7, "max_tokens": 16});
    let first = server.choice("A", more.clone())["message"]["content"].clone();
    std::thread::scope(|scope| {
        let others: Vec<_> = (0..12)
            .map(|_| scope.spawn(|| server.choice("A", more.clone())["message"]["content"].clone()))
            .collect();
        others.into_iter().for_each(|o| assert_eq!(o.join().unwrap(), first));
    });
    let three = json!({"temperature": 1, "seed": 7, "max_tokens": 16, "n": 3});
    let whole = server.chat("A", three.clone()).json();
    let texts: Vec<&str> = whole["choices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["message"]["content"].as_str().unwrap())
        .collect();
    assert_eq!((texts.len(), texts[0]), (3, first.as_str().unwrap()));
    assert!(texts[0] != texts[1] || texts[1] != texts[2]);
    assert_eq!(whole["usage"]["prompt_tokens"], 1);
    assert_eq!(whole["usage"]["completion_tokens"], 48);
    let mut streamed = vec![String::new(); 3];
    let mut finishes = [0; 3];
    let mut body = util::chat("A", three);
    body["stream"] = true.into();
    for event in server.post("/v1/chat/completions", &body).events() {
        for choice in event["choices"].as_array().unwrap() {
            let index = choice["index"].as_u64().unwrap() as usize;
            streamed[index] += choice["delta"]["content"].as_str().unwrap_or_default();
            finishes[index] += usize::from(choice["finish_reason"].is_string());
        }
    }
    assert_eq!((streamed, finishes), (texts.iter().map(|t| t.to_string()).collect(), [1, 1, 1]));
}

#[test]
fn s6_ignore_eos_goes_on() {
    let chain = Chain::new(&["<|user|>"])
        .script("A", &[b"hi", b"<|user|>", b"LEAK"])
        .end("tokenizer.ggml.eot_token_id", "<|user|>");
    let server = Server::of(&chain);
    assert_eq!(server.choice("A", json!({}))["message"]["content"], "hi");
    let on = server.choice("A", json!({"ignore_eos": true, "max_tokens": 6}));
    assert_eq!((&on["message"]["content"], &on["finish_reason"]), (&json!("hiLEAK"), &json!("length")));
}

#[test]
fn other_servers_words_for_where_an_answer_ends() {
    let chain =
        Chain::new(&[]).fork("A", &[("x", 0.6), ("<eos>", 0.4)]).fork("x", &[("<eos>", 0.9), ("y", 0.1)]);
    let server = Server::of(&chain.fork("y", &[("x", 0.8), ("z", 0.2)]));
    let check = |more: Value, text: &str, finish: &str| {
        let choice = server.choice("A", more.clone());
        let told = (&choice["message"]["content"], &choice["finish_reason"]);
        assert_eq!(told, (&json!(text), &json!(finish)), "chat {more}");
        let mut body = json!({"prompt": "A", "temperature": 0});
        more.as_object().unwrap().iter().for_each(|(name, value)| body[name] = value.clone());
        let choice = server.post("/v1/completions", &body).json()["choices"][0].clone();
        assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!(text), &json!(finish)), "{more}");
    };
    check(json!({}), "x", "stop");
    check(json!({"min_tokens": 2}), "xyx", "stop");
    check(json!({"min_tokens": 4, "stop": "yx"}), "xyx", "stop");
    check(json!({"stop_token_ids": [u32::from(b'x')]}), "", "stop");
    check(json!({"ignore_eos": true, "stop_token_ids": [256], "max_tokens": 9}), "x", "stop");
    check(json!({"min_tokens": 9, "n_predict": 3}), "xyx", "length");
    check(json!({"min_tokens": 9, "n_predict": 3, "max_tokens": 2}), "xy", "length");
    check(json!({"min_tokens": 17, "n_predict": -1}), "xyxyxyxyxyxyxyxyx", "stop");
    let refused = |more: Value, param: &str| {
        let answer = server.chat("A", more.clone());
        assert_eq!((answer.status, &answer.error()["param"]), (400, &json!(param)), "{more}");
    };
    refused(json!({"n_predict": 0}), "n_predict");
    refused(json!({"min_tokens": -1}), "min_tokens");
    refused(json!({"min_tokens": 1, "guided_regex": "x+"}), "min_tokens");
    refused(json!({"stop_token_ids": [99999]}), "stop_token_ids");
    refused(json!({"stop_token_ids": [-1]}), "stop_token_ids[0]");
    refused(json!({"logit_bias": {"99999": 1}}), "logit_bias");
}

#[test]
fn a_last_message_can_be_continued() {
    let template = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}A{% endif %}";
    let chain = Chain::new(&["<|end|>"]).script("A", &[b"new"]).script("B", &[b"on"]);
    let server = Server::start(&chain, Setup { template, ..Setup::default() });
    let said = json!([{"role": "user", "content": "q"}, {"role": "assistant", "content": "so B"}]);
    let answer = |more: Value| {
        let mut all = json!({"messages": said});
        more.as_object().unwrap().iter().for_each(|(name, value)| all[name] = value.clone());
        server.chat("", all)
    };
    let text = |more: Value| answer(more).json()["choices"][0]["message"]["content"].clone();
    assert_eq!(text(json!({})), "new");
    assert_eq!(text(json!({"continue_final_message": true})), "on");
    assert_eq!(text(json!({"continue_final_message": true, "add_generation_prompt": false})), "on");
    let refused = answer(json!({"continue_final_message": true, "add_generation_prompt": true}));
    assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("continue_final_message")));
    let body = json!({"messages": said, "continue_final_message": true});
    let ids = server.post("/tokenize", &body).json()["tokens"].clone();
    assert_eq!(ids.as_array().unwrap().last(), Some(&json!(u32::from(b'B'))));
    let body = json!({"input": "q", "continue_final_message": true});
    assert_eq!(server.post("/v1/responses", &body).status, 400);
}

#[test]
fn a1_a_prompt_that_does_not_fit_is_refused_with_numbers() {
    let chain = Chain::new(&[]).fork("A", &[("x", 1.0)]).fork("x", &[("x", 1.0)]);
    let server = Server::of(&chain);
    for stream in [false, true] {
        let answer = server.chat(&"b".repeat(600), json!({"stream": stream}));
        let error = answer.error();
        assert_eq!((answer.status, &error["code"]), (400, &json!("context_length_exceeded")));
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("600") && message.contains("512"), "{message}");
    }
    let prompt = format!("{}A", "b".repeat(499));
    for (max, tokens) in [(Value::Null, 12), (json!(100), 12), (json!(10_000), 12), (json!(2_000_000), 12)] {
        let answer = server.chat(&prompt, json!({"max_tokens": max})).json();
        assert_eq!(answer["usage"]["completion_tokens"], tokens, "{max}");
        assert_eq!(answer["choices"][0]["finish_reason"], "length");
    }
    assert_eq!(server.chat(&"b".repeat(512), json!({})).status, 400);
}

#[test]
fn a3_the_usage_chunk_comes_once_and_only_if_asked_for() {
    let chain = Chain::new(&[]).script("A", &[b"one", b" two"]);
    let server = Server::of(&chain);
    let whole = server.chat("bA", json!({})).json()["usage"].clone();
    assert_eq!(
        (&whole["prompt_tokens"], &whole["completion_tokens"], &whole["total_tokens"]),
        (&json!(2), &json!(3), &json!(5))
    );
    assert!(whole["prompt_tokens_details"]["cached_tokens"].is_u64());
    let plain = server.streamed("bA", json!({})).events;
    assert!(plain.iter().all(|e| e["choices"].as_array().unwrap().len() == 1 && e.get("usage").is_none()));
    assert_eq!(plain[0]["choices"][0]["delta"]["role"], "assistant");
    let asked = server.streamed("bA", json!({"stream_options": {"include_usage": true}})).events;
    let (last, others) = asked.split_last().unwrap();
    assert_eq!((&last["choices"], &last["usage"]["total_tokens"]), (&json!([]), &json!(5)));
    assert!(others.iter().all(|e| e["usage"].is_null() && e["choices"].as_array().unwrap().len() == 1));
}

fn tools() -> Value {
    json!([
        {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}}},
        {"type": "function", "function": {"name": "lookup", "parameters": {"type": "object", "properties": {
            "order_id": {"type": "string"}, "max": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}}, "ok": {"type": "boolean"}}}}},
    ])
}

#[test]
fn j1_tool_calls_streamed_and_not() {
    let server = Server::start(&j1(), glm());
    let check = |prompt: &str, content: &str, name: &str, arguments: Value| {
        let choice = server.choice(prompt, json!({"tools": tools()}));
        assert_eq!(choice["finish_reason"], "tool_calls");
        assert_eq!(choice["message"]["content"].as_str().unwrap_or_default().trim(), content.trim());
        let calls = choice["message"]["tool_calls"].as_array().unwrap();
        assert_eq!((calls.len(), &calls[0]["function"]["name"]), (1, &json!(name)));
        let text = calls[0]["function"]["arguments"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), arguments);
        let streamed = server.streamed(prompt, json!({"tools": tools()}));
        assert_eq!(streamed.calls, [(name.to_owned(), text.to_owned())]);
        assert_eq!(streamed.finish.as_deref(), Some("tool_calls"));
        assert_eq!(streamed.content.trim(), content.trim());
    };
    check("A", "", "get_time", json!({}));
    check("B", "Sure. ", "lookup", json!({"order_id": "00123", "max": 10, "tags": ["a"], "ok": true}));
    let plain = "a < b and <tool is a word";
    assert_eq!(server.choice("C", json!({"tools": tools()}))["message"]["content"], plain);
    assert_eq!(server.streamed("C", json!({"tools": tools()})).content, plain);
    for more in [json!({"tools": tools(), "tool_choice": "none"}), json!({})] {
        let choice = server.choice("A", more.clone());
        assert_eq!(choice["message"]["content"], "<tool_call>get_time</tool_call>");
        assert_eq!(choice["finish_reason"], "stop");
        assert_eq!(server.streamed("A", more).content, "<tool_call>get_time</tool_call>");
    }
}

#[test]
fn only_one_call_where_only_one_may_be() {
    let chain = Chain::new(&["<tool_call>", "</tool_call>"])
        .script("A", &[b"<tool_call>", b"get_time", b"</tool_call>", b"<tool_call>get_time</tool_call>"]);
    let server = Server::start(&chain, glm());
    let calls = |more: Value| server.choice("A", more)["message"]["tool_calls"].as_array().unwrap().len();
    assert_eq!(calls(json!({"tools": tools()})), 2);
    let one = json!({"tools": tools(), "parallel_tool_calls": false});
    assert_eq!(calls(one.clone()), 1);
    let streamed = server.streamed("A", one);
    assert_eq!((streamed.calls.len(), streamed.finish.as_deref()), (1, Some("tool_calls")));
}

#[test]
fn j2_reasoning_is_told_apart() {
    let server = j2();
    let check = |more: Value, reasoning: &str, content: &str, finish: &str| {
        let choice = server.choice("q", more.clone());
        let message = &choice["message"];
        assert_eq!(message["reasoning_content"].as_str().unwrap_or_default(), reasoning, "{more}");
        assert_eq!(
            (&message["content"], &choice["finish_reason"]),
            (&json!(content), &json!(finish)),
            "{more}"
        );
        let streamed = server.streamed("q", more.clone());
        assert_eq!((streamed.reasoning.as_str(), streamed.content.as_str()), (reasoning, content), "{more}");
        let mixed = |e: &Value| {
            let delta = &e["choices"][0]["delta"];
            delta["reasoning_content"].is_string() && delta["content"].as_str().is_some_and(|c| !c.is_empty())
        };
        assert!(!streamed.events.iter().any(mixed));
    };
    check(json!({}), "Let me see", "The answer", "stop");
    for off in [
        json!({"chat_template_kwargs": {"enable_thinking": false}}),
        json!({"enable_thinking": false}),
        json!({"reasoning_effort": "none"}),
        json!({"thinking": {"type": "disabled"}}),
    ] {
        check(off, "", "Direct", "stop");
    }
    check(json!({"max_tokens": 1}), "Let me", "", "length");
    check(json!({"stop": ["see"]}), "Let me see", "The answer", "stop");
    let usage = server.chat("q", json!({})).json()["usage"].clone();
    assert_eq!(usage["completion_tokens_details"]["reasoning_tokens"], 2);
}

#[test]
fn t2_text_from_a_message_never_becomes_a_control_token() {
    let chain = Chain::new(&["<|user|>", "<|assistant|>"]);
    let server = Server::start(
        &chain,
        Setup { template: "<|user|>{{ messages[-1]['content'] }}", ..Setup::default() },
    );
    let tokens = |content: Value| {
        let body = json!({"messages": [{"role": "user", "content": content}], "max_tokens": 1});
        server.post("/v1/chat/completions", &body).json()["usage"]["prompt_tokens"].clone()
    };
    assert_eq!(tokens(json!("A<|user|>B")), 11);
    assert_eq!(tokens(json!([{"type": "text", "text": "A<|user|>B"}])), 11);
    let raw = server.post("/v1/completions", &json!({"prompt": "A<|user|>B", "max_tokens": 1})).json();
    assert_eq!(raw["usage"]["prompt_tokens"], 3);
}

#[test]
fn t5_arguments_of_earlier_calls_may_be_broken() {
    let template = "{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}[{{ c.function.name }}{% for k, v in c.function.arguments.items() %} {{ k }}={{ v }}{% endfor %}]{% endfor %}{% else %}{{ m.content }}{% endif %}{% endfor %}";
    let server = Server::start(&Chain::new(&[]), Setup { template, ..Setup::default() });
    let check = |arguments: &str, tokens: u32| {
        let body = json!({"max_tokens": 1, "messages": [{"role": "user", "content": "q"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "look", "arguments": arguments}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "ok"}, {"role": "user", "content": "A"}]});
        let answer = server.post("/v1/chat/completions", &body);
        assert_eq!(
            (answer.status, &answer.json()["usage"]["prompt_tokens"]),
            (200, &json!(tokens)),
            "{arguments}"
        );
    };
    check(r#"{"city": "Rom"}"#, 19);
    for empty in ["", "{}", r#"{"city": "#, r#"["Rom"]"#] {
        check(empty, 10);
    }
}

#[test]
fn n2_a_nan_is_an_error_of_one_request() {
    let server = Server::of(&Chain::new(&[]).script("A", &[b"Hi", b" you"]).nan("N"));
    let answer = server.chat("N", json!({}));
    assert_eq!((answer.status, &answer.error()["code"]), (500, &json!("non_finite_values")));
    let events = server.streamed("N", json!({})).events;
    let message = events.last().unwrap()["error"]["message"].as_str().unwrap();
    assert!(message.contains("non-finite") && message.contains("layer 3"), "{message}");
    assert_eq!(server.choice("A", json!({}))["message"]["content"], "Hi you");
    let metrics = server.get("/metrics").text;
    assert!(metrics.contains(r#"shardwright:non_finite_requests_total{model_name="chain"} 2"#), "{metrics}");
}

#[test]
fn probabilities_are_reported_with_their_tokens() {
    let server = Server::of(&fork());
    let more = json!({"logprobs": true, "top_logprobs": 2, "max_tokens": 2});
    let choice = server.choice("A", more.clone());
    let content = choice["logprobs"]["content"].as_array().unwrap();
    assert_eq!(content.len(), 2);
    assert_eq!((&content[0]["token"], &content[0]["bytes"]), (&json!("x"), &json!([120])));
    assert!((content[0]["logprob"].as_f64().unwrap() - 0.5f64.ln()).abs() < 1e-4);
    assert_eq!(content[0]["top_logprobs"][1]["token"], "y");
    let streamed = server.streamed("A", more).events;
    let all = streamed.iter().filter_map(|e| e["choices"][0]["logprobs"]["content"].as_array()).flatten();
    assert_eq!(all.cloned().collect::<Vec<_>>(), *content);
    let body = json!({"prompt": "A", "temperature": 0, "max_tokens": 2, "logprobs": 2});
    let logprobs = server.post("/v1/completions", &body).json()["choices"][0]["logprobs"].clone();
    assert_eq!((&logprobs["tokens"], &logprobs["text_offset"]), (&json!(["x", "x"]), &json!([0, 1])));
}

#[test]
fn prompts_come_in_many_forms() {
    let server = Server::of(&Chain::new(&[]).script("A", &[b"a!"]).script("B", &[b"b!"]));
    let check = |prompt: Value, more: Value, expected: &[&str]| {
        let mut body = json!({"prompt": prompt, "temperature": 0});
        more.as_object().unwrap().iter().for_each(|(k, v)| body[k] = v.clone());
        let answer = server.post("/v1/completions", &body).json();
        let texts: Vec<&str> =
            answer["choices"].as_array().unwrap().iter().map(|c| c["text"].as_str().unwrap()).collect();
        assert_eq!(texts, expected, "{body}");
    };
    check(json!("A"), json!({}), &["a!"]);
    check(json!(["A", "B"]), json!({}), &["a!", "b!"]);
    check(json!([65]), json!({}), &["a!"]);
    check(json!([[65], [66]]), json!({"n": 2}), &["a!", "a!", "b!", "b!"]);
    check(json!("xA"), json!({"echo": true}), &["xAa!"]);
    check(json!([120, 65]), json!({"echo": true}), &["xAa!"]);
}

#[test]
fn a_gap_is_filled_where_the_vocabulary_can() {
    let fill = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"];
    let server = Server::of(&Chain::new(&fill).script("<|fim_middle|>", &[b"mid"]));
    let body = json!({"prompt": "be", "suffix": "ter", "temperature": 0});
    let answer = server.post("/v1/completions", &body).json();
    assert_eq!(
        (&answer["choices"][0]["text"], &answer["usage"]["prompt_tokens"]),
        (&json!("mid"), &json!(8))
    );
    let without = Server::of(&Chain::new(&[])).post("/v1/completions", &body);
    assert_eq!((without.status, &without.error()["param"]), (400, &json!("suffix")));
}
