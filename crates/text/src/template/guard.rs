//! Carries messages through a template so that the markers in them can be told from the template's own.

use std::collections::HashSet;
use std::sync::Arc;

use minijinja::Value;
use serde_json::Value as Json;

use super::{Segment, TemplateInput};
use crate::error::{Error, Result};
use crate::tokenizer::Markers;

/// The sentinel of one rendering, and the markers to keep from messages.
#[derive(Debug)]
pub(super) struct Guard {
    markers: Option<Arc<Markers>>,
    sentinel: char,
    input_bytes: usize,
}

impl minijinja::value::Object for Guard {}

impl Guard {
    /// Chooses a sentinel that occurs neither in the input nor in the template.
    pub(super) fn new(input: &TemplateInput<'_>, messages: &[Json], source: &str) -> Result<Guard> {
        let mut input_bytes = 0;
        let mut used = HashSet::new();
        let private = |c: &char| (0xf_0000..=0x10_ffff).contains(&(*c as u32));
        let mut visit = |text: &str| {
            input_bytes += text.len() + 16;
            used.extend(text.chars().filter(private));
        };
        visit(source);
        messages.iter().chain(input.tools).for_each(|v| strings(v, &mut visit));
        for (key, value) in input.kwargs {
            visit(key);
            strings(value, &mut visit);
        }
        let free = ('\u{f0000}'..='\u{ffffd}').find(|c| !used.contains(c));
        let sentinel = free.ok_or_else(|| {
            Error::Refused("the conversation uses every private character from U+F0000 to U+FFFFD".to_owned())
        })?;
        Ok(Guard { markers: input.markers.cloned(), sentinel, input_bytes })
    }

    /// Size of the input and the template; every value counts a little.
    pub(super) fn input_bytes(&self) -> usize {
        self.input_bytes
    }

    /// The character that marks the one before it.
    pub(super) fn sentinel(&self) -> char {
        self.sentinel
    }

    /// A value for the template, its texts guarded.
    pub(super) fn value(&self, json: &Json) -> Value {
        match json {
            Json::Null => Value::from(()),
            Json::Bool(b) => Value::from(*b),
            Json::Number(n) => match (n.as_i64(), n.as_u64()) {
                (Some(i), _) => Value::from(i),
                (None, Some(u)) => Value::from(u),
                (None, None) => Value::from(n.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Value::from(self.guarded(text)),
            Json::Array(list) => list.iter().map(|v| self.value(v)).collect::<Vec<_>>().into(),
            Json::Object(map) => {
                Value::from_pairs(map.iter().map(|(k, v)| (Value::from(self.guarded(k)), self.value(v))))
            }
        }
    }

    fn guarded(&self, text: &str) -> String {
        match &self.markers {
            Some(markers) => markers.guard(text, self.sentinel),
            None => text.to_owned(),
        }
    }

    /// The text without sentinels.
    pub(super) fn unguarded(&self, text: &str) -> String {
        text.replace(self.sentinel, "")
    }

    /// The rendered text in parts: the characters before sentinels are untrusted.
    pub(super) fn segments(&self, text: &str) -> Vec<Segment> {
        let mut out: Vec<Segment> = Vec::new();
        let mut push = |text: &str, trusted| match out.last_mut() {
            _ if text.is_empty() => {}
            Some(last) if last.trusted == trusted => last.text.push_str(text),
            _ => out.push(Segment { text: text.to_owned(), trusted }),
        };
        let mut parts = text.split(self.sentinel).peekable();
        while let Some(part) = parts.next() {
            let last = part.chars().next_back().filter(|_| parts.peek().is_some()).map_or(0, char::len_utf8);
            let (before, marked) = part.split_at(part.len() - last);
            push(before, true);
            push(marked, false);
        }
        out
    }
}

/// Every text in a value, keys too.
fn strings(json: &Json, visit: &mut impl FnMut(&str)) {
    match json {
        Json::String(text) => visit(text),
        Json::Array(list) => list.iter().for_each(|v| strings(v, visit)),
        Json::Object(map) => map.iter().for_each(|(k, v)| {
            visit(k);
            strings(v, visit);
        }),
        Json::Null | Json::Bool(_) | Json::Number(_) => visit(""),
    }
}
