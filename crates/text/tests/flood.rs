//! Small hostile inputs that would take gigabytes; alone in this process, whose peak of memory is looked at.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::{Map, json};
use shardwright_text::template::{ChatTemplate, TemplateInput};
use shardwright_text::tokenizer::Tokenizer;

mod common;
use common::Vocabulary;

/// The most memory that this process ever had, in bytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// A marker of `n` bytes of many values.
fn long_marker(n: usize) -> String {
    let chars: Vec<char> = ('\u{21}'..='\u{7e}').chain('\u{e9}'..='\u{7ff}').collect();
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        chars[state as usize % chars.len()]
    };
    let mut text = String::new();
    while text.len() < n {
        text.push(next());
    }
    text
}

#[test]
fn floods_of_memory_do_not_come() {
    let marker = long_marker(2 << 20);
    let tokenizer: Tokenizer = Vocabulary::new("glm4").specials(&[&marker]).tokenizer();
    let ids = tokenizer.encode(&format!("a{marker}b"), shardwright_text::tokenizer::Special::Parse).unwrap();
    assert_eq!(ids.len(), 3, "the marker is found all the same");
    assert!(peak_memory() < 1 << 30, "a long marker: {} MiB", peak_memory() >> 20);

    for (source, why) in [
        ("{{ range(20000) | list | tojson(separators=('x' * 100000, ':')) }}", "separators"),
        ("{{ range(20000) | list | tojson(indent='x' * 100000) }}", "an indent of many characters"),
        (
            "{% macro n(x, d) %}{% if d %}{{ n([x], d - 1) }}{% else %}{{ x | tojson(indent=64) }}{% endif %}{% endmacro %}{{ n([range(99999) | list] * 9, 50) }}",
            "an indent of many levels",
        ),
    ] {
        let kwargs = Map::new();
        let input = TemplateInput {
            messages: &[json!({"role": "user", "content": "q"})],
            tools: &[],
            kwargs: &kwargs,
            add_generation_prompt: true,
            bos: "",
            eos: "",
            now: 0,
            markers: None,
        };
        assert!(ChatTemplate::from_source(source).unwrap().render(&input).is_err(), "{why}");
        assert!(peak_memory() < 1 << 30, "{why}: {} MiB", peak_memory() >> 20);
    }
}
