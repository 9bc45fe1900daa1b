//! Hermes, as Qwen writes it: a JSON object with name and arguments between two tags.

use std::mem;

use super::{Row, grammar::Grammar, json::Nesting, output::Output};

const CALL: &str = "<tool_call>";
const CALL_END: &str = "</tool_call>";

pub(super) const ROW: Row = Row {
    name: "hermes",
    aliases: &["qwen", "qwen2", "qwen3"],
    detect: |template| template.contains(CALL) && !template.contains("<function="),
    marks: &[CALL, CALL_END],
    grammar: Some(|| Box::<Hermes>::default()),
};

#[derive(Debug, Default)]
struct Hermes {
    busy: bool,
    nesting: Nesting,
    member: Member,
    /// Arguments that came before the name.
    early: String,
    named: bool,
}

/// Where in the outer object we are.
#[derive(Debug, Default)]
enum Member {
    #[default]
    Before,
    Key(String),
    Value {
        key: Key,
        text: String,
    },
    /// Arguments that go out as they come.
    Arguments,
    After,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Name,
    Arguments,
    Other,
}

impl Hermes {
    fn step(&mut self, character: char, out: &mut Output) {
        let outer = self.nesting.depth == 1;
        self.nesting.step(character);
        // What separates members does so outside strings and inner values.
        let separates = outer && self.nesting.depth <= 1 && !self.nesting.in_string;
        let ends_object = self.nesting.depth == 0;
        match &mut self.member {
            Member::Before if character == '{' => self.member = Member::Key(String::new()),
            Member::Before | Member::After => {}
            Member::Key(_) if ends_object => self.member = Member::After,
            Member::Key(key) if separates && character == ':' => {
                let key = match key.trim_matches(|c: char| c.is_whitespace() || c == ',') {
                    "\"name\"" => Key::Name,
                    "\"arguments\"" | "\"parameters\"" => Key::Arguments,
                    _ => Key::Other,
                };
                self.member = Member::Value { key, text: String::new() };
            }
            Member::Key(key) => key.push(character),
            Member::Value { key: Key::Arguments, text }
                if self.named && character == '{' && text.is_empty() =>
            {
                out.arguments("{");
                self.member = Member::Arguments;
            }
            Member::Value { .. } | Member::Arguments if separates && matches!(character, ',' | '}') => {
                self.end_member(out);
                self.member = if ends_object { Member::After } else { Member::Key(String::new()) };
            }
            Member::Value { text, .. } if !(text.is_empty() && character.is_whitespace()) => {
                text.push(character)
            }
            Member::Value { .. } => {}
            Member::Arguments if outer => {} // White space after the value.
            Member::Arguments => out.arguments(character.encode_utf8(&mut [0; 4])),
        }
    }

    fn end_member(&mut self, out: &mut Output) {
        let Member::Value { key, text } = mem::take(&mut self.member) else { return };
        let text = text.trim();
        let decoded = serde_json::from_str::<String>(text).ok();
        match key {
            // Some models encode the arguments once more, as the API does.
            Key::Arguments => self.early = decoded.unwrap_or_else(|| text.to_owned()),
            Key::Name => {
                let name = decoded.unwrap_or_default();
                // A call that is not wanted becomes content as a whole, at its end.
                self.named = self.named || out.wants(&name) && out.start_call(None, &name);
            }
            Key::Other => {}
        }
        if self.named {
            out.arguments(&mem::take(&mut self.early));
        }
    }

    fn end_call(&self, out: &mut Output) {
        if self.named {
            out.end_call(matches!(self.member, Member::After));
        } else {
            out.reject();
        }
    }
}

impl Grammar for Hermes {
    fn busy(&self) -> bool {
        self.busy
    }

    fn marks(&self) -> Vec<&'static str> {
        vec![if self.busy { CALL_END } else { CALL }]
    }

    fn mark(&mut self, mark: &'static str, by_id: bool, out: &mut Output) {
        if !self.busy {
            out.begin_call(mark);
            *self = Self { busy: true, ..Self::default() };
        } else if self.nesting.in_string && !by_id {
            self.text(mark, out);
        } else {
            self.end_call(out);
            self.busy = false;
        }
    }

    fn text(&mut self, text: &str, out: &mut Output) {
        for character in text.chars() {
            self.step(character, out);
        }
    }

    fn end(&mut self, out: &mut Output) {
        if !self.named {
            out.reject();
        } else if matches!(self.member, Member::After) {
            out.end_unclosed_call(true);
        }
    }
}
