//! Replies as models write them, and what they mean. Also read by the comparison with other parsers.

use serde_json::{Value, json};

/// A reply and its right reading.
pub(crate) struct Transcript {
    pub(crate) name: &'static str,
    pub(crate) syntax: &'static str,
    /// The end of the rendered prompt.
    pub(crate) prompt: &'static str,
    pub(crate) text: &'static str,
    pub(crate) reasoning: &'static str,
    pub(crate) content: &'static str,
    /// Names and arguments.
    pub(crate) calls: &'static [(&'static str, &'static str)],
    /// `stop`, `tool_calls` or `length`; the reply was cut by a limit if `limit`.
    pub(crate) finish: &'static str,
    pub(crate) limit: bool,
}

const PLAIN: Transcript = Transcript {
    name: "",
    syntax: "glm",
    prompt: "</think>",
    text: "",
    reasoning: "",
    content: "",
    calls: &[],
    finish: "tool_calls",
    limit: false,
};

/// The tools that all transcripts are read with.
pub(crate) fn tools() -> Vec<Value> {
    let tool = |name: &str, properties: Value| {
        let parameters = json!({"type": "object", "properties": properties,
            "$defs": {"unit": {"enum": ["C", "F"]}}});
        json!({"type": "function", "function": {"name": name, "parameters": parameters}})
    };
    let string = || json!({"type": "string"});
    let list = json!({"type": "array", "items": {"type": "string"}});
    vec![
        tool("get_time", json!({})),
        tool(
            "get_weather",
            json!({"city": string(), "days": {"type": "integer"}, "unit": {"$ref": "#/$defs/unit"}}),
        ),
        tool(
            "lookup",
            json!({"order_id": string(), "max": {"type": "integer"}, "tags": list, "ok": {"type": "boolean"},
                "data": {"type": "object"}, "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "count": {"type": ["string", "integer"]}, "rate": {"oneOf": [{"type": "number"}, {"type": "null"}]}}),
        ),
    ]
}

pub(crate) const GLM: &[Transcript] = &[
    Transcript {
        name: "zero_arguments",
        prompt: "<|assistant|><think>",
        text: "I need the time.</think><tool_call>get_time</tool_call>",
        reasoning: "I need the time.",
        calls: &[("get_time", "{}")],
        ..PLAIN
    },
    Transcript {
        name: "two_calls",
        prompt: "<think>",
        text: "R1</think><tool_call>get_weather<arg_key>city</arg_key><arg_value>Köln</arg_value><arg_key>days</arg_key><arg_value>2</arg_value></tool_call><tool_call>get_weather<arg_key>city</arg_key><arg_value>Bonn</arg_value></tool_call>",
        reasoning: "R1",
        calls: &[("get_weather", r#"{"city": "Köln", "days": 2}"#), ("get_weather", r#"{"city": "Bonn"}"#)],
        ..PLAIN
    },
    Transcript {
        name: "newline_style",
        prompt: "<|assistant|>",
        text: "\n<think>R1</think>\nLet me see.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Köln</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n<tool_call>get_time\n</tool_call>",
        reasoning: "R1",
        content: "Let me see.",
        calls: &[("get_weather", r#"{"city": "Köln", "days": 2}"#), ("get_time", "{}")],
        ..PLAIN
    },
    Transcript {
        name: "nested_object",
        text: r#"<tool_call>lookup<arg_key>data</arg_key><arg_value>{"a": {"b": [1, 2.50, "}</x>"]}, "ü": null}</arg_value></tool_call>"#,
        calls: &[("lookup", r#"{"data": {"a": {"b": [1, 2.50, "}</x>"]}, "ü": null}}"#)],
        ..PLAIN
    },
    Transcript {
        name: "tags_and_quotes_in_a_string",
        text: "<tool_call>lookup<arg_key>order_id</arg_key><arg_value> a \"q\" \\\n</arg_key> <arg_value> </tool_call> </arg_val \t😀\n</arg_value></tool_call>",
        calls: &[(
            "lookup",
            r#"{"order_id": " a \"q\" \\\n</arg_key> <arg_value> </tool_call> </arg_val \t😀\n"}"#,
        )],
        ..PLAIN
    },
    Transcript {
        name: "numbers_for_a_string_stay_text",
        text: "<tool_call>lookup<arg_key>order_id</arg_key><arg_value>007</arg_value></tool_call>",
        calls: &[("lookup", r#"{"order_id": "007"}"#)],
        ..PLAIN
    },
    Transcript {
        name: "types_that_allow_strings",
        text: "<tool_call>lookup<arg_key>note</arg_key><arg_value>null</arg_value><arg_key>note</arg_key><arg_value>12</arg_value><arg_key>count</arg_key><arg_value>12</arg_value><arg_key>count</arg_key><arg_value>1.5</arg_value><arg_key>rate</arg_key><arg_value>1.50</arg_value><arg_key>rate</arg_key><arg_value>much</arg_value></tool_call>",
        calls: &[(
            "lookup",
            r#"{"note": null, "note": "12", "count": 12, "count": "1.5", "rate": 1.50, "rate": "much"}"#,
        )],
        ..PLAIN
    },
    Transcript {
        name: "values_of_another_type_than_declared",
        text: "<tool_call>get_weather<arg_key>days</arg_key><arg_value>two</arg_value><arg_key>unit</arg_key><arg_value>5</arg_value><arg_key>days</arg_key><arg_value>1.5</arg_value></tool_call>",
        calls: &[("get_weather", r#"{"days": "two", "unit": "5", "days": 1.5}"#)],
        ..PLAIN
    },
    Transcript {
        name: "undeclared_arguments_and_tools",
        text: "<tool_call>send<arg_key>n</arg_key><arg_value> 12345678901234567890123 </arg_value><arg_key>t</arg_key><arg_value>hi there</arg_value></tool_call><tool_call>get_time<arg_key>x</arg_key><arg_value>[]</arg_value></tool_call>",
        calls: &[
            ("send", r#"{"n": 12345678901234567890123, "t": "hi there"}"#),
            ("get_time", r#"{"x": []}"#),
        ],
        ..PLAIN
    },
    Transcript {
        name: "missing_end_of_thinking",
        prompt: "<think>",
        text: "I shall ask.\n<tool_call>get_time</tool_call></think>",
        reasoning: "I shall ask.",
        calls: &[("get_time", "{}")],
        ..PLAIN
    },
    Transcript {
        name: "cut_in_a_string",
        text: "<tool_call>get_weather<arg_key>days</arg_key><arg_value>2</arg_value><arg_key>city</arg_key><arg_value>Kö</arg_val",
        calls: &[("get_weather", r#"{"days": 2, "city": "Kö"#)],
        finish: "length",
        limit: true,
        ..PLAIN
    },
    Transcript {
        name: "cut_in_a_list",
        text: "<tool_call>lookup<arg_key>ok</arg_key><arg_value>true</arg_value><arg_key>tags</arg_key><arg_value>[\"a",
        calls: &[("lookup", r#"{"ok": true"#)],
        finish: "length",
        limit: true,
        ..PLAIN
    },
    Transcript {
        name: "cut_between_pairs",
        text: "<tool_call>lookup<arg_key>ok</arg_key><arg_value>true</arg_value>",
        calls: &[("lookup", r#"{"ok": true"#)],
        finish: "length",
        limit: true,
        ..PLAIN
    },
    Transcript {
        name: "cut_in_a_name",
        text: "Sure. <tool_call>get_we",
        content: "Sure.",
        finish: "length",
        limit: true,
        ..PLAIN
    },
    Transcript {
        name: "turn_ends_without_the_closing_tag",
        text: "<tool_call>lookup<arg_key>ok</arg_key><arg_value>true</arg_value>",
        calls: &[("lookup", r#"{"ok": true}"#)],
        finish: "length",
        ..PLAIN
    },
    Transcript {
        name: "turn_ends_after_a_known_name",
        text: "<tool_call>get_time</tool",
        calls: &[("get_time", "{}")],
        finish: "length",
        ..PLAIN
    },
    Transcript {
        name: "turn_ends_in_a_tag_that_was_only_mentioned",
        text: "The tag is <tool_call>.</tool",
        content: "The tag is <tool_call>.</tool",
        finish: "stop",
        ..PLAIN
    },
    Transcript {
        name: "no_name_is_no_call",
        text: "a <tool_call>\n </tool_call> b",
        content: "a <tool_call>\n </tool_call> b",
        finish: "stop",
        ..PLAIN
    },
    Transcript {
        name: "text_around_calls",
        text: "One. <tool_call>get_time</tool_call> \n<tool_call>get_time</tool_call>\nTwo. <tool_call>get_time</tool_call>\n",
        content: "One.\nTwo.",
        calls: &[("get_time", "{}"), ("get_time", "{}"), ("get_time", "{}")],
        ..PLAIN
    },
    Transcript {
        name: "thinking_without_a_tag_in_the_prompt",
        prompt: "<|assistant|>\n",
        text: " \n <think>\nHm.\n\nSo.\n</think>\n\n  Yes.\n",
        reasoning: "Hm.\n\nSo.",
        content: "  Yes.\n",
        finish: "stop",
        ..PLAIN
    },
    Transcript {
        name: "no_thinking_after_all",
        prompt: "<|assistant|>",
        text: " \nHello <think> there",
        content: " \nHello <think> there",
        finish: "stop",
        ..PLAIN
    },
    Transcript {
        name: "stray_end_of_thinking",
        text: "Yes</think> and </think>no",
        content: "Yes and </think>no",
        finish: "stop",
        ..PLAIN
    },
    Transcript {
        name: "almost_marks",
        text: "<tool_<tool_cal <</thin <tool>\n\n",
        content: "<tool_<tool_cal <</thin <tool>\n\n",
        finish: "stop",
        ..PLAIN
    },
    Transcript {
        name: "cut_while_thinking",
        prompt: "<think>",
        text: "Let me see\n</thi",
        reasoning: "Let me see\n</thi",
        finish: "length",
        limit: true,
        ..PLAIN
    },
];

const V3: Transcript = Transcript { syntax: "deepseek_v3", ..PLAIN };
const V31: Transcript = Transcript { syntax: "deepseek_v31", ..PLAIN };
const V32: Transcript = Transcript { syntax: "deepseek_v32", ..PLAIN };
const KIMI: Transcript = Transcript { syntax: "kimi_k2", ..PLAIN };
const HERMES: Transcript = Transcript { syntax: "hermes", ..PLAIN };

pub(crate) const OTHERS: &[Transcript] = &[
    Transcript {
        name: "v3_two_calls",
        prompt: "<｜Assistant｜><think>\n",
        text: "R1\n</think>\n\nSure.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"Köln }\", \"days\": 2}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_time\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        reasoning: "R1",
        content: "Sure.",
        calls: &[("get_weather", r#"{"city": "Köln }", "days": 2}"#), ("get_time", "{}")],
        ..V3
    },
    Transcript {
        name: "v3_cut_in_the_arguments",
        text: "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"K",
        calls: &[("get_weather", "{\"city\": \"K")],
        finish: "length",
        limit: true,
        ..V3
    },
    Transcript {
        name: "v31_two_calls",
        text: "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Köln\",\n \"days\": 2}<｜tool▁call▁end｜><｜tool▁call▁begin｜>get_time<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        calls: &[("get_weather", "{\"city\": \"Köln\",\n \"days\": 2}"), ("get_time", "{}")],
        ..V31
    },
    Transcript {
        name: "v31_mark_in_a_json_string",
        text: "<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"<｜tool▁call▁end｜>\\\"\"}\n<｜tool▁call▁end｜> Done.",
        content: " Done.",
        calls: &[("get_weather", r#"{"city": "<｜tool▁call▁end｜>\""}"#)],
        ..V31
    },
    Transcript {
        name: "v31_turn_ends_without_the_closing_marks",
        text: "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"days\": 2}",
        calls: &[("get_weather", r#"{"days": 2}"#)],
        finish: "length",
        ..V31
    },
    Transcript {
        name: "v32_two_calls",
        prompt: "<think>",
        text: "R1</think>Sure.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Kö\"ln\n</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"get_time\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        reasoning: "R1",
        content: "Sure.",
        calls: &[("get_weather", "{\"city\": \"Kö\\\"ln\\n\", \"days\": 2}"), ("get_time", "{}")],
        ..V32
    },
    Transcript {
        name: "v32_strings_are_what_the_attribute_says",
        text: "<｜DSML｜function_calls><｜DSML｜invoke name=\"send\"><｜DSML｜parameter name=\"a\" string=\"true\">1</｜DSML｜parameter><｜DSML｜parameter name=\"b\" string=\"false\">[1]</｜DSML｜parameter><｜DSML｜parameter name=\"c\" string=\"false\">one</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜function_calls>",
        calls: &[("send", r#"{"a": "1", "b": [1], "c": "one"}"#)],
        ..V32
    },
    Transcript {
        name: "kimi_two_calls",
        prompt: "<|im_assistant|>assistant<|im_middle|>",
        text: "<think>R1</think>Sure.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \"Köln\"}<|tool_call_end|><|tool_call_begin|> functions.get_time:1 <|tool_call_argument_begin|> <|tool_call_end|><|tool_calls_section_end|>",
        reasoning: "R1",
        content: "Sure.",
        calls: &[("get_weather", r#"{"city": "Köln"}"#), ("get_time", "{}")],
        ..KIMI
    },
    Transcript {
        name: "kimi_call_inside_reasoning",
        prompt: "<think>",
        text: "R1 <|tool_calls_section_begin|><|tool_call_begin|>functions.a.b:12<|tool_call_argument_begin|>{\"x\": [\"}\"]}<|tool_call_end|><|tool_calls_section_end|> Then",
        reasoning: "R1 ",
        content: " Then",
        calls: &[("a.b", r#"{"x": ["}"]}"#)],
        ..KIMI
    },
    Transcript {
        name: "kimi_arguments_that_are_no_json",
        text: "<|tool_call_begin|>functions.get_time:0<|tool_call_argument_begin|>{x: 1}<|tool_call_end|>",
        calls: &[("get_time", "{x: 1}")],
        ..KIMI
    },
    Transcript {
        name: "hermes_two_calls",
        prompt: "<|im_start|>assistant\n<think>\n\n</think>\n\n",
        text: "Sure.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Köln\", \"in\": {\"a\": [1, 2]}} }\n</tool_call>\n<tool_call>\n{\"name\": \"get_time\", \"arguments\": {}}\n</tool_call>",
        content: "Sure.",
        calls: &[("get_weather", r#"{"city": "Köln", "in": {"a": [1, 2]}}"#), ("get_time", "{}")],
        ..HERMES
    },
    Transcript {
        name: "hermes_arguments_first",
        text: "<tool_call>{\"arguments\": {\"name\": \"x, }\\\"\", \"days\": 2}, \"id\": 7, \"name\": \"get_weather\"}</tool_call>",
        calls: &[("get_weather", r#"{"name": "x, }\"", "days": 2}"#)],
        ..HERMES
    },
    Transcript {
        name: "hermes_arguments_as_a_string",
        text: "<tool_call>{\"name\": \"get_weather\", \"arguments\": \"{\\\"days\\\": 2}\"}</tool_call><tool_call>{\"name\": \"get_time\"}</tool_call>",
        calls: &[("get_weather", r#"{"days": 2}"#), ("get_time", "{}")],
        ..HERMES
    },
    Transcript {
        name: "hermes_mark_in_a_json_string",
        text: "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"a</tool_call>b\"}}</tool_call>",
        calls: &[("get_weather", r#"{"city": "a</tool_call>b"}"#)],
        ..HERMES
    },
    Transcript {
        name: "hermes_without_a_name",
        text: "Write <tool_call>[1]</tool_call> so.",
        content: "Write <tool_call>[1]</tool_call> so.",
        finish: "stop",
        ..HERMES
    },
    Transcript {
        name: "hermes_cut_in_the_arguments",
        text: "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Kö",
        calls: &[("get_weather", "{\"city\": \"Kö")],
        finish: "length",
        limit: true,
        ..HERMES
    },
    Transcript {
        name: "none_thinks_only_if_the_prompt_opened_it",
        syntax: "none",
        prompt: "<think>\n",
        text: "Hm.</think>\n\nYes <tool_call>get_time</tool_call></think>",
        reasoning: "Hm.",
        content: "Yes <tool_call>get_time</tool_call></think>",
        finish: "stop",
        ..PLAIN
    },
    Transcript {
        name: "none_is_raw",
        syntax: "none",
        prompt: "assistant\n",
        text: "\n<think>Hm.</think>\n\nYes",
        content: "\n<think>Hm.</think>\n\nYes",
        finish: "stop",
        ..PLAIN
    },
];
