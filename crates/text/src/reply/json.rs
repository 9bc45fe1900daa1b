//! Arguments as JSON text: written pair by pair, or found in what the model wrote as JSON itself.

use std::mem;

use serde_json::Value;

use super::{output::Output, schema::Kinds};

/// Writes the arguments of syntaxes that give them as pairs of key and value.
///
/// Strings stream as they come, other values when they are complete. A pair is begun in the output only
/// when its value is, so that a cut shows complete pairs and at most one open string.
#[derive(Debug, Default)]
pub(super) struct PairWriter {
    count: usize,
    value: PairValue,
}

#[derive(Debug, Default)]
enum PairValue {
    #[default]
    None,
    /// Already in the output up to here.
    Open,
    Pending {
        key: String,
        kinds: Kinds,
        text: String,
    },
}

impl PairWriter {
    /// A value begins.
    pub(super) fn begin(&mut self, key: &str, kinds: Kinds, out: &mut Output) {
        if kinds == Kinds::STRING {
            let head = self.head(key) + "\"";
            out.arguments(&head);
            self.value = PairValue::Open;
        } else {
            self.value = PairValue::Pending { key: key.to_owned(), kinds, text: String::new() };
        }
    }

    /// More of the value.
    pub(super) fn text(&mut self, more: &str, out: &mut Output) {
        match &mut self.value {
            PairValue::None => {}
            PairValue::Open => {
                let quoted = Value::from(more).to_string();
                out.arguments(&quoted[1..quoted.len() - 1]);
            }
            PairValue::Pending { text, .. } => text.push_str(more),
        }
    }

    /// The value is complete.
    pub(super) fn end(&mut self, out: &mut Output) {
        match mem::take(&mut self.value) {
            PairValue::None => {}
            PairValue::Open => out.arguments("\""),
            PairValue::Pending { key, kinds, text } => {
                let pair = self.head(&key) + &kinds.encode(&text);
                out.arguments(&pair);
            }
        }
    }

    /// All pairs are complete.
    pub(super) fn close(&mut self, out: &mut Output) {
        if mem::take(&mut self.count) > 0 {
            out.arguments("}");
        }
    }

    fn head(&mut self, key: &str) -> String {
        self.count += 1;
        let before = if self.count == 1 { "{" } else { ", " };
        format!("{before}{}: ", Value::from(key))
    }
}

/// Knows, character by character, where in a JSON text we are.
#[derive(Debug, Default)]
pub(super) struct Nesting {
    /// How many objects and lists are open.
    pub(super) depth: usize,
    pub(super) in_string: bool,
    escaped: bool,
}

impl Nesting {
    pub(super) fn step(&mut self, character: char) {
        match character {
            _ if self.escaped => self.escaped = false,
            '\\' if self.in_string => self.escaped = true,
            '"' => self.in_string = !self.in_string,
            _ if self.in_string => {}
            '{' | '[' => self.depth += 1,
            '}' | ']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }
}

/// Lets the first JSON object of a text through and drops what is around it.
#[derive(Debug, Default)]
pub(super) struct ObjectTap {
    nesting: Nesting,
    /// The object is complete.
    pub(super) done: bool,
    /// More than white space and the fence of a code block was dropped.
    pub(super) junk: bool,
}

impl ObjectTap {
    /// The part of `text` that belongs to the object.
    pub(super) fn push<'a>(&mut self, text: &'a str) -> &'a str {
        let start = match text.find('{') {
            _ if self.done => text.len(),
            _ if self.nesting.depth > 0 => 0,
            found => found.unwrap_or(text.len()),
        };
        let (before, text) = text.split_at(start);
        let mut end = text.len();
        for (at, character) in text.char_indices() {
            self.nesting.step(character);
            if self.nesting.depth == 0 {
                self.done = true;
                end = at + 1;
                break;
            }
        }
        let (object, after) = text.split_at(end);
        self.junk |= [before, after].concat().contains(|c: char| !c.is_whitespace() && !"`json".contains(c));
        object
    }

    /// Whether a mark that is spelled out here is part of a JSON string.
    pub(super) fn in_string(&self) -> bool {
        self.nesting.in_string
    }
}
