//! Properties of all replies, also senseless ones.

use proptest::{
    prelude::*,
    sample::{Index, select},
};
use serde_json::{Value, json};
use shardwright_text::reply::{End, Options};

use crate::{
    Tokens, bytes, end, read, syntax,
    transcripts::{GLM, OTHERS, tools},
    whole, with_tools,
};

const SYNTAXES: [&str; 7] =
    ["glm", "deepseek_v3", "deepseek_v31", "deepseek_v32", "kimi_k2", "hermes", "none"];

/// Parts that replies are made of.
const PIECES: &[&str] = &[
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "get_time",
    "lookup",
    "nope",
    "\n",
    " ",
    "x",
    "é",
    "<",
    "{",
    "}",
    "\"",
    "\\",
    ":",
    ",",
    "1",
    "order_id",
    "max",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<arg_key>order_id</arg_key><arg_value>",
    "\"name\": \"lookup\"",
    "\"arguments\": {",
    "{\"name\": \"nope\"",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "```json\n",
    "\n```",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>",
    "functions.lookup:0",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<|tool_calls_section_end|>",
    "<｜DSML｜function_calls>",
    "</｜DSML｜function_calls>",
    "<｜DSML｜invoke name=\"",
    "\">",
    "</｜DSML｜invoke>",
    "<｜DSML｜parameter name=\"",
    "\" string=\"true\">",
    "\" string=\"false\">",
    "</｜DSML｜parameter>",
    "STOP",
    "ST",
];

fn cut<'a>(text: &'a str, cuts: &[Index]) -> Tokens<'a> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).chain([text.len()]).collect();
    ends.sort_unstable();
    let mut start = 0;
    ends.iter().map(|end| (&text.as_bytes()[std::mem::replace(&mut start, *end)..*end], false)).collect()
}

/// A JSON value and the text a model writes for it.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z\"\\\\<>é\n]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec(("[a-z]{1,3}", inner), 0..3)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn transcripts_in_any_cutting(cuts in prop::collection::vec(any::<Index>(), 0..12)) {
        for transcript in GLM.iter().chain(OTHERS) {
            let options = with_tools(tools());
            let read = |tokens: &Tokens| {
                read(syntax(transcript.syntax), transcript.prompt, &options, tokens, end(transcript))
            };
            prop_assert_eq!(read(&cut(transcript.text, &cuts)), read(&whole(transcript.text)), "{}", transcript.name);
        }
    }

    #[test]
    fn any_reply_in_any_cutting(
        name in select(&SYNTAXES[..]),
        prompt in select(&["", "<think>", "</think>"][..]),
        pieces in prop::collection::vec(select(PIECES), 0..24),
        cuts in prop::collection::vec(any::<Index>(), 0..12),
        ends in select(&[End::Turn, End::Limit][..]),
        flags in any::<[bool; 4]>(),
    ) {
        let text = pieces.concat();
        let options = Options {
            stops: if flags[0] { vec!["STOP".to_owned()] } else { Vec::new() },
            stop_in_reasoning: flags[1],
            only_known_tools: flags[2],
            calls_end_reasoning: flags[3],
            ..with_tools(tools())
        };
        let read = |tokens: &Tokens| read(syntax(name), prompt, &options, tokens, ends);
        let (events, message) = read(&whole(&text));
        for call in &message.calls {
            prop_assert!(!call.whole || serde_json::from_str::<Value>(&call.arguments).is_ok_and(|v| v.is_object()));
        }
        prop_assert_eq!(read(&bytes(&text)), (events.clone(), message.clone()));
        prop_assert_eq!(read(&cut(&text, &cuts)), (events, message));
    }

    /// Without tools and reasoning nothing is lost or added.
    #[test]
    fn text_is_content(
        name in select(&SYNTAXES[..]),
        pieces in prop::collection::vec(select(PIECES), 0..24),
        cuts in prop::collection::vec(any::<Index>(), 0..12),
    ) {
        let text = "a".to_owned() + &pieces.concat().replace("</think>", "");
        prop_assume!(!text.contains("</think>"));
        let (_, message) = read(syntax(name), "", &Options::default(), &cut(&text, &cuts), End::Turn);
        prop_assert_eq!(message.content, text);
    }

    /// Arguments come back with their types: strings raw, everything else as JSON.
    #[test]
    fn glm_arguments_are_the_json_that_was_meant(
        arguments in prop::collection::vec(("[a-z\"é]{1,4}", value()), 0..4),
        cuts in prop::collection::vec(any::<Index>(), 0..12),
    ) {
        let arguments: serde_json::Map<String, Value> = arguments.into_iter().collect();
        let mut text = "<tool_call>f".to_owned();
        let mut properties = serde_json::Map::new();
        for (key, value) in &arguments {
            let raw = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            text += &format!("<arg_key>{key}</arg_key>\n<arg_value>{raw}</arg_value>");
            let kind = if value.is_string() { json!({"type": "string"}) } else { json!({}) };
            properties.insert(key.clone(), kind);
        }
        text += "</tool_call>";
        let options = with_tools(vec![json!({"name": "f", "parameters": {"properties": properties}})]);
        let (_, message) = read(syntax("glm"), "", &options, &cut(&text, &cuts), End::Turn);
        prop_assert!(message.calls[0].whole);
        prop_assert_eq!(serde_json::from_str::<Value>(&message.calls[0].arguments).unwrap(), Value::Object(arguments));
    }

    /// JSON that the model writes itself comes through as it is, whatever its strings hold.
    #[test]
    fn json_arguments_come_through(
        arguments in prop::collection::vec(("[a-z\"é]{1,4}", value()), 0..4),
        cuts in prop::collection::vec(any::<Index>(), 0..12),
    ) {
        let json = Value::Object(arguments.into_iter().collect()).to_string();
        let rows = [
            ("hermes", format!("<tool_call>\n{{\"name\": \"f\", \"arguments\": {json}}}\n</tool_call>")),
            ("kimi_k2", format!("<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{json}<|tool_call_end|>")),
            ("deepseek_v31", format!("<｜tool▁call▁begin｜>f<｜tool▁sep｜>{json}<｜tool▁call▁end｜>")),
            (
                "deepseek_v3",
                format!("<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{json}\n```<｜tool▁call▁end｜>"),
            ),
        ];
        for (name, text) in rows {
            let (_, message) = read(syntax(name), "", &with_tools(tools()), &cut(&text, &cuts), End::Turn);
            prop_assert_eq!((message.calls[0].arguments.as_str(), message.calls[0].whole), (json.as_str(), true));
        }
    }
}
