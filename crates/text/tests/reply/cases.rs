//! Cases from the field and options of the reader, token by token.

use serde_json::json;
use shardwright_text::reply::{End, Event, Finish, Message, Options, Syntax};

use crate::{bytes, calls, read, syntax, transcripts::tools, whole, with_tools};

const J1_SURE: [(&[u8], bool); 6] = [
    (b"Sure. <tool_", false),
    (b"call>look", false),
    (b"up<arg_key>order_id</arg_key><arg_va", false),
    (b"lue>00123</arg_value><arg_key>max</arg_key>\n", false),
    (
        b"<arg_value>10</arg_value><arg_key>tags</arg_key><arg_value>[\"a\"]</arg_value><arg_key>ok</arg_key><arg_value>true</arg_value>",
        false,
    ),
    (b"</tool_call>", false),
];

fn glm(options: &Options, tokens: &[(&[u8], bool)], end: End) -> (Vec<Event>, Message) {
    read(syntax("glm"), "</think>", options, &tokens.to_vec(), end)
}

fn call(message: &Message) -> (&str, &str) {
    assert_eq!(message.calls.len(), 1);
    (&message.calls[0].name, &message.calls[0].arguments)
}

#[test]
fn j1_no_arguments() {
    let tokens: [(&[u8], bool); 3] = [(b"<tool_call>", true), (b"get_time", false), (b"</tool_call>", true)];
    let (events, message) = glm(&with_tools(tools()), &tokens, End::Turn);
    assert_eq!((message.content.as_str(), call(&message)), ("", ("get_time", "{}")));
    assert_eq!(message.finish, Finish::ToolCalls);
    let start = Event::CallStart { index: 0, id: "call_0".to_owned(), name: "get_time".to_owned() };
    let arguments = Event::CallArguments { index: 0, delta: "{}".to_owned() };
    assert_eq!(events, [start, arguments, Event::CallEnd { index: 0 }]);
}

#[test]
fn j1_types_from_the_schema() {
    let (_, message) = glm(&with_tools(tools()), &J1_SURE, End::Turn);
    let arguments = r#"{"order_id": "00123", "max": 10, "tags": ["a"], "ok": true}"#;
    assert_eq!((message.content.as_str(), call(&message)), ("Sure.", ("lookup", arguments)));
    assert_eq!(message.finish, Finish::ToolCalls);
}

/// However few tokens a limit allows, no whole mark and nothing of a call gets into content.
#[test]
fn j1_cut_after_each_token() {
    let contents = ["Sure. <tool_", "Sure.", "Sure.", "Sure.", "Sure."];
    for (count, content) in (1..).zip(contents) {
        let (_, message) = glm(&with_tools(tools()), &J1_SURE[..count], End::Limit);
        assert_eq!((message.content.as_str(), message.finish), (content, Finish::Length), "{count}");
    }
}

#[test]
fn j1_what_only_looks_like_a_call_is_text() {
    let tokens: [(&[u8], bool); 2] = [(b"a < b and <tool", false), (b" is a word", false)];
    let (_, message) = glm(&with_tools(tools()), &tokens, End::Turn);
    assert_eq!((message.content.as_str(), message.finish), ("a < b and <tool is a word", Finish::Stop));
}

#[test]
fn j1_without_tools_calls_are_text() {
    let text: Vec<u8> = J1_SURE.iter().flat_map(|(bytes, _)| bytes.iter().copied()).collect();
    let (_, message) = glm(&Options::default(), &J1_SURE, End::Turn);
    assert_eq!((message.content.as_bytes(), message.finish), (text.as_slice(), Finish::Stop));
}

#[test]
fn j1_template_without_an_example_call() {
    let template =
        "{% if tools %}<tool_call>{{ tools | length }}</tool_call>{% endif %}{{ messages[-1]['content'] }}";
    assert_eq!(Syntax::detect(template).name(), "glm");
}

#[test]
fn j2_reasoning_opened_by_the_prompt() {
    let template = "{{ messages[-1]['content'] }}<|assistant|>{{ '</think>' if enable_thinking is defined and not enable_thinking else '<think>' }}";
    for syntax in [Syntax::detect(template), syntax("glm")] {
        let tokens = vec![
            (b"Let me".as_slice(), false),
            (b" see</thi", false),
            (b"nk>The an", false),
            (b"swer", false),
        ];
        let options = Options { stops: vec!["me".to_owned()], ..Options::default() };
        let (events, message) = read(syntax, "hi<|assistant|><think>", &options, &tokens, End::Turn);
        assert_eq!(
            events,
            [Event::Reasoning("Let me see".to_owned()), Event::Content("The answer".to_owned())]
        );
        assert_eq!((message.finish, message.stop), (Finish::Stop, None));

        let (_, message) =
            read(syntax, "hi<|assistant|><think>", &options, &tokens[..2].to_vec(), End::Limit);
        assert_eq!((message.reasoning.as_str(), message.content.as_str()), ("Let me see</thi", ""));
        assert_eq!(message.finish, Finish::Length);

        let (_, message) = read(syntax, "hi<|assistant|></think>", &options, &whole("Direct"), End::Turn);
        assert_eq!((message.reasoning.as_str(), message.content.as_str()), ("", "Direct"));
    }
}

#[test]
fn s1_characters_that_span_tokens_in_every_field() {
    let text =
        "ü😀</think>赋<tool_call>lookup<arg_key>order_id</arg_key><arg_value>é😀\"</arg_value></tool_call>";
    let (_, message) = read(syntax("glm"), "<think>", &with_tools(tools()), &bytes(text), End::Turn);
    assert_eq!((message.reasoning.as_str(), message.content.as_str()), ("ü😀", "赋"));
    assert_eq!(call(&message).1, "{\"order_id\": \"é😀\\\"\"}");
    let cut = vec![(b"ok ".as_slice(), false), (b"\xf0\x9f", false)];
    let (_, message) = glm(&Options::default(), &cut, End::Limit);
    assert_eq!((message.content.as_str(), message.finish), ("ok \u{fffd}", Finish::Length));
    let marked = vec![(b"\xf0\x9f".as_slice(), false), (b"</think>", true), (b"x", false)];
    let (_, message) = read(syntax("glm"), "<think>", &Options::default(), &marked, End::Turn);
    assert_eq!((message.reasoning.as_str(), message.content.as_str()), ("\u{fffd}", "x"));
}

#[test]
fn s2_stop_strings_end_content_only() {
    let call = "<tool_call>get_weather<arg_key>city</arg_key><arg_value>STOP</arg_value></tool_call>";
    let rows = [
        ("</think>", "One STOP two".to_owned(), "One ", Some("STOP"), 0),
        ("<think>", "a STOP b</think>c STOP d".to_owned(), "c ", Some("STOP"), 0),
        ("</think>", format!("{call}x STOP"), "x ", Some("STOP"), 1),
        ("</think>", format!("ST{call}OP"), "STOP", None, 1),
        ("</think>", format!("One STOP {call}"), "One ", Some("STOP"), 0),
        ("</think>", "One STO".to_owned(), "One STO", None, 0),
        ("<think>", "R</think>\n\nOne\n\ntwo".to_owned(), "One", Some("\n\n"), 0),
    ];
    for (prompt, text, content, stop, count) in rows {
        let options = Options { stops: vec!["STOP".to_owned(), "\n\n".to_owned()], ..with_tools(tools()) };
        for tokens in [whole(&text), bytes(&text)] {
            let (_, message) = read(syntax("glm"), prompt, &options, &tokens, End::Turn);
            assert_eq!((message.content.as_str(), message.stop.as_deref()), (content, stop), "{text}");
            assert_eq!(message.calls.len(), count, "{text}");
            let finish = if count > 0 { Finish::ToolCalls } else { Finish::Stop };
            assert_eq!(message.finish, finish, "{text}");
        }
    }
}

#[test]
fn s2_stop_strings_end_reasoning_if_asked() {
    let options = Options { stops: vec!["STOP".to_owned()], stop_in_reasoning: true, ..Options::default() };
    let (_, message) = read(syntax("glm"), "<think>", &options, &bytes("a STOP b</think>c"), End::Turn);
    assert_eq!((message.reasoning.as_str(), message.content.as_str()), ("a ", ""));
    assert_eq!((message.finish, message.stop.as_deref()), (Finish::Stop, Some("STOP")));
}

/// The token that ends the turn is not pushed; what came before it decides how the reply finished.
#[test]
fn s6_end_of_turn_finishes_by_what_came_before() {
    let rows = [
        ("hi", End::Turn, Finish::Stop),
        ("hi", End::Limit, Finish::Length),
        ("hi<tool_call>get_time</tool_call>", End::Turn, Finish::ToolCalls),
        ("hi<tool_call>get_time</tool_call>", End::Limit, Finish::Length),
    ];
    for (text, end, finish) in rows {
        let (_, message) = read(syntax("glm"), "</think>", &with_tools(tools()), &whole(text), end);
        assert_eq!((message.content.as_str(), message.finish), ("hi", finish), "{text}");
    }
}

#[test]
fn events_come_as_soon_as_they_are_certain() {
    let tokens: [(&[u8], bool); 9] = [
        (b"One ", false),
        (b"two <", false),
        (b"b <tool_call>", false),
        (b"lookup", false),
        (b"<arg_key>order_id</arg_key>", false),
        (b"<arg_value>a", false),
        (b"b</", false),
        (b"c</arg_value>", false),
        (b"</tool_call>", false),
    ];
    let mut reader =
        shardwright_text::reply::ReplyReader::new(syntax("glm"), "</think>", with_tools(tools()));
    let seen: Vec<String> = tokens
        .iter()
        .map(|(bytes, mark)| {
            let events = reader.push(bytes, *mark).into_iter();
            let texts = events.map(|event| match event {
                Event::Reasoning(text) | Event::Content(text) | Event::CallArguments { delta: text, .. } => {
                    text
                }
                Event::CallStart { name, .. } => format!("({name})"),
                Event::CallEnd { .. } => "(end)".to_owned(),
            });
            texts.collect()
        })
        .collect();
    assert_eq!(seen, ["One", " two", " <b", "", "(lookup)", r#"{"order_id": "a"#, "b", "</c\"", "}(end)"]);
}

#[test]
fn an_unstreamed_reply_takes_what_precedes_a_stray_tag_for_reasoning() {
    let options = Options { streamed: false, ..with_tools(tools()) };
    let text = "Hm.\n</think>\n\nYes.";
    let (_, message) = read(syntax("glm"), "<|assistant|>", &options, &bytes(text), End::Turn);
    assert_eq!((message.reasoning.as_str(), message.content.as_str()), ("Hm.", "Yes."));
}

#[test]
fn a_call_may_be_kept_from_ending_the_reasoning() {
    let options = Options { calls_end_reasoning: false, ..with_tools(tools()) };
    let text = "a <tool_call>get_time</tool_call></think>b";
    let (_, message) = read(syntax("glm"), "<think>", &options, &bytes(text), End::Turn);
    assert_eq!(message.reasoning, "a <tool_call>get_time</tool_call>");
    assert_eq!((message.content.as_str(), message.calls.len()), ("b", 0));
}

#[test]
fn unknown_tools_may_be_folded_into_content() {
    let options = Options { only_known_tools: true, ..with_tools(tools()) };
    let rows = [
        ("glm", "a <tool_call>nope<arg_key>k</arg_key><arg_value>v</arg_value></tool_call> b"),
        ("glm", "a <tool_call>nope</tool_call> b"),
        ("hermes", "a <tool_call>{\"name\": \"nope\", \"arguments\": {}}</tool_call> b"),
        ("deepseek_v31", "a <｜tool▁call▁begin｜>nope<｜tool▁sep｜>{\"x\": 1}<｜tool▁call▁end｜> b"),
        ("deepseek_v32", "a <｜DSML｜invoke name=\"nope\">\n</｜DSML｜invoke> b"),
    ];
    for (name, text) in rows {
        for tokens in [whole(text), bytes(text)] {
            let (_, message) = read(syntax(name), "</think>", &options, &tokens, End::Turn);
            assert_eq!((message.content.as_str(), message.calls.len()), (text, 0));
        }
    }
}

#[test]
fn marks_may_be_kept_to_their_ids() {
    let only_by_id = ["<tool_call>", "</tool_call>"].map(str::to_owned).to_vec();
    let options = Options { only_by_id, ..with_tools(tools()) };
    let spelled = "Write `<tool_call>get_time</tool_call>`.";
    let (_, message) = glm(&options, &whole(spelled), End::Turn);
    assert_eq!((message.content.as_str(), message.calls.len()), (spelled, 0));
    let tokens: [(&[u8], bool); 4] =
        [(b"a <tool_", false), (b"<tool_call>", true), (b"get_time", false), (b"</tool_call>", true)];
    let (_, message) = glm(&options, &tokens, End::Turn);
    assert_eq!((message.content.as_str(), call(&message)), ("a <tool_", ("get_time", "{}")));
}

/// A mark's id ends a JSON string that the model forgot to close; its spelling may be part of it.
#[test]
fn a_mark_by_id_ends_broken_json() {
    let tokens = vec![
        (b"<tool_call>".as_slice(), true),
        (b"{\"name\": \"get_weather\", \"arguments\": {\"city\": \"K}}", false),
        (b"</tool_call>", true),
        (b"Done", false),
    ];
    let (_, message) = read(syntax("hermes"), "</think>", &with_tools(tools()), &tokens, End::Turn);
    assert_eq!((message.content.as_str(), message.calls[0].whole), ("Done", false));
    assert_eq!(call(&message).1, "{\"city\": \"K}}");
}

#[test]
fn ids_are_the_models_own_or_generated() {
    let options = Options { id_prefix: "toolu_7_".to_owned(), ..with_tools(tools()) };
    let kimi = "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_time:3<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>";
    let (_, message) = read(syntax("kimi_k2"), "", &options, &bytes(kimi), End::Turn);
    assert_eq!(calls(&message), [["functions.get_time:3", "get_time", "{}"].map(str::to_owned)]);
    let glm = "<tool_call>get_time</tool_call>".repeat(2);
    let (_, message) = read(syntax("glm"), "", &options, &bytes(&glm), End::Turn);
    let ids: Vec<_> = message.calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(ids, ["toolu_7_0", "toolu_7_1"]);
}

#[test]
fn syntaxes_are_found_by_name_and_template() {
    let names = [
        ("glm45", "glm"),
        ("glm47", "glm"),
        ("deepseek_r1", "deepseek_v3"),
        ("deepseek_v3", "deepseek_v3"),
        ("deepseek_v31", "deepseek_v31"),
        ("deepseek_v32", "deepseek_v32"),
        ("kimi_k2", "kimi_k2"),
        ("hermes", "hermes"),
        ("qwen3", "hermes"),
        ("none", "none"),
    ];
    for (alias, name) in names {
        assert_eq!(syntax(alias).name(), name);
    }
    assert!(Syntax::by_name("klingon").is_none());
    let templates = [
        ("...<tool_call>{function-name}<arg_key>{arg-key-1}</arg_key>... \"arguments\"", "glm"),
        (
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>...```json",
            "deepseek_v3",
        ),
        ("<｜tool▁calls▁begin｜>", "deepseek_v31"),
        ("<｜DSML｜function_calls>", "deepseek_v32"),
        ("<|tool_calls_section_begin|>", "kimi_k2"),
        (
            "<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>",
            "hermes",
        ),
        ("<tool_call>\n<function=example_function_name>\n<parameter=x> arguments", "none"),
        ("{{ messages[0].content }}", "none"),
    ];
    for (template, name) in templates {
        assert_eq!(Syntax::detect(template).name(), name, "{template}");
    }
}

/// A schema may be cyclic or grow without end when its references are followed.
#[test]
fn hostile_schemas_end() {
    let node = json!({"anyOf": [{"$ref": "#/$defs/n"}, {"$ref": "#/$defs/n"}, {"$ref": "#"}]});
    let parameters = json!({"properties": {"k": {"$ref": "#/$defs/n"}}, "$defs": {"n": node}});
    let options =
        with_tools(vec![json!({"name": "f", "parameters": parameters}), json!(3), json!({"function": 1})]);
    let text = "<tool_call>f<arg_key>k</arg_key><arg_value>1</arg_value></tool_call>";
    let (_, message) = glm(&options, &whole(text), End::Turn);
    assert_eq!(call(&message), ("f", r#"{"k": 1}"#));
}
