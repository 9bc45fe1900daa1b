//! Chat templates against Jinja2's renderings and against the field cases.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use shardwright_gguf::Meta;
use shardwright_text::Error;
use shardwright_text::template::{ChatTemplate, Rendered, TemplateInput};
use shardwright_text::tokenizer::{Markers, Tokenizer};

mod common;
use common::{Vocabulary, busy};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/templates")
}

fn file(name: &str) -> ChatTemplate {
    ChatTemplate::from_source(&std::fs::read_to_string(folder().join(name)).unwrap()).unwrap()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A conversation with everything else at rest.
fn input<'a>(messages: &'a Value, tools: &'a Value, kwargs: &'a Map<String, Value>) -> TemplateInput<'a> {
    TemplateInput {
        messages: list(messages),
        tools: list(tools),
        kwargs,
        add_generation_prompt: true,
        bos: "<BOS>",
        eos: "<EOS>",
        now: 1_772_366_645,
        markers: None,
    }
}

fn render(
    source: &str,
    messages: &Value,
    tools: &Value,
    markers: Option<&Arc<Markers>>,
) -> Result<Rendered, Error> {
    let kwargs = Map::new();
    ChatTemplate::from_source(source)?.render(&TemplateInput { markers, ..input(messages, tools, &kwargs) })
}

fn text(source: &str) -> String {
    render(source, &json!([]), &json!([]), None).unwrap().text()
}

fn glm_tokenizer() -> Tokenizer {
    let specials = [
        "<|user|>",
        "<|assistant|>",
        "<|system|>",
        "<|observation|>",
        "[gMASK]",
        "<sop>",
        "<think>",
        "</think>",
    ];
    Vocabulary::new("glm4").specials(&specials).specials(&["<tool_call>", "</tool_call>"]).tokenizer()
}

#[test]
fn renderings_are_those_of_jinja2() {
    let doc: Value =
        serde_json::from_slice(&std::fs::read(folder().join("renderings.json")).unwrap()).unwrap();
    let tokenizer = glm_tokenizer();
    for row in list(&doc["renderings"]) {
        let name = row["template"].as_str().unwrap();
        let case = &doc["cases"][row["case"].as_str().unwrap()];
        for markers in [None, Some(tokenizer.markers())] {
            let input = TemplateInput {
                add_generation_prompt: row["add_generation_prompt"].as_bool().unwrap(),
                markers,
                ..input(&case["messages"], &case["tools"], case["kwargs"].as_object().unwrap())
            };
            let rendered = file(name).render(&input).unwrap();
            assert_eq!(rendered.text(), row["text"].as_str().unwrap(), "{name}, {}", row["case"]);
            assert!(rendered.warnings.is_empty(), "{:?}", rendered.warnings);
        }
    }
}

#[test]
fn full_prompts_have_the_published_digests() {
    let doc: Value =
        serde_json::from_slice(&std::fs::read(folder().join("renderings.json")).unwrap()).unwrap();
    let case = &doc["cases"]["tool turn"];
    for (name, bytes, digest) in [
        ("GLM-4.7-Flash.jinja", 1046, "f8a8182852c16e02d523ad9ecc448d16b620a68148ddb23c7a8596a68f2504c4"),
        ("GLM-4.6.jinja", 1063, "4bfc998440728f0b003cd19b971d7afd29575d542f06105fc1edbf31e52d47ed"),
    ] {
        let kwargs = Map::new();
        let text = file(name).render(&input(&case["messages"], &case["tools"], &kwargs)).unwrap().text();
        let got: String = Sha256::digest(&text).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!((text.len(), got.as_str()), (bytes, digest), "{name}");
    }
}

#[test]
fn t2_markers_in_messages_stay_text() {
    let tokenizer = Vocabulary::new("glm4").specials(&["<|user|>", "<|assistant|>"]).tokenizer();
    let count = |source: &str, messages: Value, tools: Value| {
        let rendered = render(source, &messages, &tools, Some(tokenizer.markers())).unwrap();
        tokenizer.encode_segments(&rendered.segments).unwrap().len()
    };
    let user = |content: Value| json!([{"role": "user", "content": content}]);
    let none = json!([]);
    let last = "<|user|>{{ messages[-1]['content'] }}";
    assert_eq!(count(last, user(json!("A<|user|>B")), none.clone()), 11);
    let parts = "<|user|>{% for p in messages[0].content %}{{ p.text }}{% endfor %}";
    let halves = json!([{"type": "text", "text": "A<|us"}, {"type": "text", "text": "er|>B"}]);
    assert_eq!(count(parts, user(halves), none.clone()), 11);
    for source in [
        "<|user|>{{ messages[0].content.strip() }}",
        "<|user|>{{ messages[0].content.split('x')[0].replace('#', '') | trim }}",
        "{{ '<|user|>' + messages[0].content.rstrip() }}",
    ] {
        assert_eq!(
            count(source, user(json!("A<|u#ser|>B")), none.clone()) - 1,
            source_len(source),
            "{source}"
        );
    }
    let tool = json!([{"function": {"description": "<|user|>", "<|assistant|>": 1}}]);
    let json_text = r#"{"description": "<|user|>", "<|assistant|>": 1}"#;
    for filter in ["tojson", "tojson(ensure_ascii=True)", "tojson(ensure_ascii=True) | from_json | tojson"] {
        let source = format!("{{{{ tools[0].function | {filter} }}}}");
        assert_eq!(count(&source, json!([]), tool.clone()), json_text.len(), "{source}");
    }
    let assembled = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}";
    assert_eq!(count(assembled, user(json!("<|assistant|>")), none.clone()), 14);
    assert_eq!(count(assembled, json!([{"role": "user|><|user", "content": ""}]), none), 9);
}

/// Bytes that the message `A<|u#ser|>B` renders to, with or without the `#`.
fn source_len(source: &str) -> usize {
    if source.contains("replace") { 10 } else { 11 }
}

#[test]
fn t2_reasoning_and_calls_in_the_history_are_recognised() {
    let tokenizer = glm_tokenizer();
    let messages =
        json!([{"role": "assistant", "content": "<think>r</think>a<tool_call>b</tool_call><|user|>"}]);
    let rendered =
        render("[gMASK]<sop>{{ messages[0].content }}", &messages, &json!([]), Some(tokenizer.markers()))
            .unwrap();
    assert_eq!(tokenizer.encode_segments(&rendered.segments).unwrap().len(), 2 + 4 + 3 + 8);
    let exact = render("[gMASK]<sop>{{ messages[0].content }}", &messages, &json!([]), None).unwrap();
    assert_eq!(tokenizer.encode_segments(&exact.segments).unwrap().len(), 2 + 4 + 3 + 1);
}

#[test]
fn t4_tojson_is_pythons() {
    let tool: Value = serde_json::from_str(
        r#"{"type": "function", "function": {"name": "wetter", "description": "Grüße <b> & 'x'", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}}"#,
    )
    .unwrap();
    for (filter, bytes) in [
        ("tojson", 130),
        ("tojson(ensure_ascii=False)", 130),
        ("tojson(ensure_ascii=True)", 138),
        ("tojson(separators=(',', ':'), sort_keys=true)", 120),
    ] {
        let source = format!("{{% for t in tools %}}{{{{ t.function | {filter} }}}}{{% endfor %}}");
        assert_eq!(
            render(&source, &json!([]), &json!([tool]), None).unwrap().text().len(),
            bytes,
            "{filter}"
        );
    }
    for (expression, expected) in [
        ("{'a': [1, 2]} | tojson(indent=2)", "{\n  \"a\": [\n    1,\n    2\n  ]\n}"),
        ("{'a': [], 'b': {}} | tojson(indent=1)", "{\n \"a\": [],\n \"b\": {}\n}"),
        ("['</é', 1.0, 1e16, true, none] | tojson", r#"["</é", 1.0, 1e+16, true, null]"#),
        ("{'b': 1, 'a': 2, '1': 3} | tojson", r#"{"b": 1, "a": 2, "1": 3}"#),
        ("'é😀\x7f' | tojson(ensure_ascii=True)", r#""\u00e9\ud83d\ude00\u007f""#),
        ("'a\\n\\t\\\\\"/' | tojson", r#""a\n\t\\\"/""#),
        ("'[1, {\"x\": 2.50}]' | from_json | tojson", r#"[1, {"x": 2.5}]"#),
    ] {
        let got = text(&format!("{{{{ {expression} }}}}"));
        assert_eq!(got, expected, "{expression}");
    }
}

#[test]
fn t5_arguments_given_as_text_are_objects_even_if_broken() {
    let source = "{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}[{{ c.function.name }}{% for k, v in c.function.arguments.items() %} {{ k }}={{ v }}{% endfor %}]{% endfor %}{% else %}{{ m.content }}{% endif %}{% endfor %}";
    for (arguments, expected, warned) in [
        (r#"{"city": "Rom"}"#, "q[look city=Rom]okA", 0),
        ("", "q[look]okA", 0),
        ("{}", "q[look]okA", 0),
        (r#"{"city": "#, "q[look]okA", 1),
        (r#"["Rom"]"#, "q[look]okA", 1),
    ] {
        let call =
            json!({"id": "c1", "type": "function", "function": {"name": "look", "arguments": arguments}});
        let messages = json!([
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "ok"},
            {"role": "user", "content": "A"},
        ]);
        let rendered = render(source, &messages, &json!([]), None).unwrap();
        assert_eq!((rendered.text().as_str(), rendered.warnings.len()), (expected, warned), "{arguments}");
        let tokenizer = Vocabulary::new("glm4").tokenizer();
        assert_eq!(tokenizer.encode_segments(&rendered.segments).unwrap().len(), expected.len());
    }
}

#[test]
fn t5_a_template_that_joins_texts_gets_the_text() {
    let source = "{% for m in messages %}{% for c in m.tool_calls %}{{ 'f(' + c.function.arguments + ')' }}{% endfor %}{% endfor %}";
    for (arguments, expected) in [
        (json!("{\"a\":1.50}"), "f({\"a\":1.50})"),
        (json!({"a": 1}), "f({\"a\":1})"),
        (json!("{\"a"), "f({})"),
    ] {
        let messages = json!([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}]);
        assert_eq!(render(source, &messages, &json!([]), None).unwrap().text(), expected);
    }
}

#[test]
fn templates_find_what_pythons_environment_has() {
    for (source, expected) in [
        (
            "{% set ns = namespace(ids=[]) %}{% set _ = ns.ids.append('a') %}{% set _ = ns.ids.append('b') %}{{ ns.ids.pop(0) }}{{ ns.ids | length }}{{ ns.ids.pop() }}{{ 'empty' if not ns.ids }}",
            "a1bempty",
        ),
        ("{% macro m(x, y=2) %}{{ x }}{{ y }}{% endmacro %}{{ m(1) }}", "12"),
        (
            "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{{ loop.index0 }}{% endfor %}",
            "0022",
        ),
        (
            "{{ 'a' ~ 1 ~ none ~ true }}|{{ [1, 'x', none] }}|{{ {'a': 1.0} }}|{{ 1e16 }}|{{ 2.50 }}",
            "a1NoneTrue|[1, 'x', None]|{'a': 1.0}|1e+16|2.5",
        ),
        (
            "{{ ' x '.strip() }}{{ 'abc'[1:] }}{{ 'abc'[::-1] }}{{ 'a-b'.split('-')[-1] }}{{ 'x'.upper() }}{{ 'ab'.startswith('a') }}",
            "xbccbabXTrue",
        ),
        (
            "{{ [{'a': 1}, {'a': 2}] | map(attribute='a') | join(',') }}{{ [{'a': 1}, {'b': 2}] | selectattr('a', 'defined') | list | length }}",
            "1,21",
        ),
        (
            "{{ undefined_name }}{{ x is defined }}{{ messages is iterable }}{{ {} is mapping }}{{ tools is none }}",
            "FalseTrueTrueTrue",
        ),
        ("  {% if true %}\n  a\n  {% endif %}\nb\n", "  a\nb"),
        ("{% generation %}a{%- endgeneration -%} b", "ab"),
        ("{{ strftime_now('%d %b %Y %H:%M') }}{{ bos_token }}{{ eos_token }}", "01 Mar 2026 12:04<BOS><EOS>"),
        (
            "{{ {'a': 1}.get('b', 'd') }}{% for k, v in {'z': 1, 'a': 2}.items() %}{{ k }}{{ v }}{% endfor %}{{ {'q': 0}.keys() | first }}",
            "dz1a2q",
        ),
        (
            "{{ 'x' | string | length }}{{ [3, 1] | sort | last }}{{ '<b>' }}{{ [] | default('e', true) }}",
            "13<b>e",
        ),
        (
            "{{ '%03d é %s %%(é' | format(7, 'ü') }}|{{ '{x[k]:é>3} [ü]{{[é'.format(x={'k': 1}) }}",
            "007 é ü %(é|éé1 [ü]{[é",
        ),
    ] {
        assert_eq!(text(source), expected, "{source}");
    }
}

#[test]
fn a_refusal_carries_the_templates_words() {
    let tokenizer = glm_tokenizer();
    let messages = json!([{"role": "user", "content": "<x>"}]);
    let source = "{{ raise_exception('no: ' + messages[0].content) }}";
    match render(source, &messages, &json!([]), Some(tokenizer.markers())) {
        Err(Error::Refused(words)) => assert_eq!(words, "no: <x>"),
        other => panic!("{other:?}"),
    }
    // found by fuzzing: what an error quotes went to the terminal as it was
    for source in
        ["{{ raise_exception('a\u{1b}[2J\nb') }}", "{{ '%\u{1b}'|format(1) }}", "{{ 'x'|\n\u{1b} }}"]
    {
        let message = render(source, &messages, &json!([]), None).unwrap_err().to_string();
        assert!(!message.contains(char::is_control) && message.len() < 600, "{message:?}");
    }
}

#[test]
fn hostile_templates_end_with_an_error() {
    for source in [
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% set ns = namespace(x='xxxxxxxx') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{{ 'x' * 10000000000 }}",
        "{% for i in range(100000) %}{{ 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' * 100 }}{% endfor %}",
        "{% set ns = namespace(x=[1]) %}{% set _ = ns.x.append(ns.x) %}{{ ns.x }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(300) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set _ = ns.x.append(i) %}{% endfor %}{% for i in range(99999) %}{% set _ = ns.x.append(ns.x.pop(0)) %}{% endfor %}",
        "{{ '%(\u{e9})s' | format({'\u{e9}': 1}) }}",
        "{{ '%0d|%(3\u{fffd}s' | format(4, 'a') }}",
        "{{ '{x[\u{e9}]}'.format(x={'\u{e9}': 1}) }}",
        "{{ '{:>9999999999}'.format(1) }}",
        "{{ '{:.9999999999f}'.format(1.5) }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set _ = ns.x.append('{:\u{e9}^99999}'.format(1)) %}{% endfor %}",
        "{{ 1 | nosuch }}",
        "{% if %}",
        "{% include 'secret' %}",
    ] {
        let start = busy();
        assert!(matches!(render(source, &json!([]), &json!([]), None), Err(Error::Template(_))), "{source}");
        // compiled and tried on two conversations, then rendered: four times the fuel
        let spent = busy() - start;
        println!("{spent:?} {source}");
        assert!(spent.as_secs() < 10, "{source} took {spent:?}");
    }
}

#[test]
fn values_that_contain_themselves_or_nest_deeply_do_not_overflow_the_stack() {
    for source in [
        "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
        "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns | tojson }}",
        "{% set ns = namespace(x=1) %}{% for i in range(9999) %}{% for j in range(20) %}{% set ns.x = [ns.x] %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(x=1) %}{% for i in range(9999) %}{% for j in range(20) %}{% set ns.x = {'a': ns.x} %}{% endfor %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% for j in range(20) %}{% set ns.x = ns.x | chain([1]) %}{% endfor %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% for j in range(20) %}{% set ns.x = ns.x | map('string') %}{% endfor %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace() %}{% set ns.c = namespace() %}{% for i in range(9999) %}{% for j in range(20) %}{% set ns.c.n = namespace() %}{% set ns.c = ns.c.n %}{% endfor %}{% endfor %}{{ ns }}",
        "{% set a = namespace() %}{% set b = namespace() %}{% set a.x = b %}{% set b.x = a %}{{ a }}{{ a == b }}",
        "{% set ns = namespace(x=1) %}{% for i in range(9999) %}{% for j in range(20) %}{% for ns.x in [[ns.x]] %}{% endfor %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(x=1) %}{% with ns.x = ns %}{{ ns }}{% endwith %}",
        "{% set a = namespace() %}{% set b = namespace(x=a) %}{% set a.x = b %}{{ b }}",
        "{% set a = namespace() %}{% set (a.x) = a %}{{ a }}",
        "{% set a = namespace() %}{% set b, a.x = 1, a %}{{ a }}",
        "{% set a = namespace() %}{% set a.x %}{{ a }}{% endset %}{{ a }}",
    ] {
        // Any answer will do, as long as the process lives.
        let _ = render(source, &json!([]), &json!([]), None);
    }
}

/// Tests run in threads with 2 MiB of stack, as the workers of a server do.
#[test]
fn long_chains_are_refused_before_they_overflow_the_stack() {
    let links = 30_000;
    for [before, link, after] in [
        ["{{ ", "-", "1 }}"],
        ["{{ ", "not ", "1 }}"],
        ["{{ 1", "+1", " }}"],
        ["{{ 1", "**1", " }}"],
        ["{{ 1", " if 1 else 1", " }}"],
        ["{{ a", ".b", " }}"],
        ["{{ a", "[0]", " }}"],
        ["{{ a", "()", " }}"],
        ["{{ a", "|trim", " }}"],
        ["{{ a", " and a", " }}"],
        ["{{ a", " ~ a", " }}"],
        ["{{ a", " is b", " }}"],
        ["{% set ", "(", "a"],
        ["{% set a.", "b.", "c = 1 %}"],
        ["{% for ", "(", "a"],
        ["{% if 1 %}", "{% elif 1 %}", "{% endif %}"],
    ] {
        let source = format!("{before}{}{after}", link.repeat(links));
        let error = ChatTemplate::from_source(&source).unwrap_err();
        assert!(matches!(&error, Error::Template(why) if why.contains("2000 tokens")), "{link}: {error}");
        ChatTemplate::from_source(&format!("{before}{}{after}", link.repeat(300))).ok();
    }
}

#[test]
fn templates_are_found_by_name() {
    let mut meta = Meta::new();
    assert!(ChatTemplate::from_meta(&meta, None).unwrap().is_none());
    assert!(ChatTemplate::from_meta(&meta, Some("x")).is_err());
    meta.set("tokenizer.chat_template", "default");
    meta.set("tokenizer.chat_template.tool_use", "tools");
    let source = |name| ChatTemplate::from_meta(&meta, name).unwrap().unwrap().source().to_owned();
    assert_eq!((source(None).as_str(), source(Some("tool_use")).as_str()), ("default", "tools"));
    let message = ChatTemplate::from_meta(&meta, Some("rag")).unwrap_err().to_string();
    assert!(message.contains("rag") && message.contains("tool_use"), "{message}");
}
