//! GLM: name, then tagged pairs of key and raw value; 4.5 and 4.6 with newlines between, 4.7 and 5 without.
//!
//! White space between tags means nothing, so one machine reads both. Values are taken as they stand: the
//! templates of neither version put newlines around them.

use std::mem;

use super::{Row, grammar::Grammar, json::PairWriter, output::Output};

const CALL: &str = "<tool_call>";
const CALL_END: &str = "</tool_call>";
const KEY: &str = "<arg_key>";
const KEY_END: &str = "</arg_key>";
const VALUE: &str = "<arg_value>";
const VALUE_END: &str = "</arg_value>";

pub(super) const ROW: Row = Row {
    name: "glm",
    aliases: &["glm45", "glm46", "glm47", "glm4_moe", "glm5"],
    // A bare `<tool_call>` says little; Hermes always spells its keys, Qwen3-Coder its XML.
    detect: |template| {
        template.contains(KEY)
            || template.contains(CALL) && !template.contains("arguments") && !template.contains("<function=")
    },
    marks: &[CALL, CALL_END, KEY, KEY_END, VALUE, VALUE_END],
    grammar: Some(|| Box::<Glm>::default()),
};

#[derive(Debug, Default)]
struct Glm {
    state: State,
    pairs: PairWriter,
    /// Something in the call belonged nowhere.
    junk: bool,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Outside,
    Name(String),
    /// Between pairs.
    Gap,
    Key(String),
    AfterKey(String),
    Value,
}

impl Glm {
    fn start(&mut self, name: &str, out: &mut Output) {
        *self = Self::default();
        if out.start_call(None, name.trim()) {
            self.state = State::Gap;
        }
    }

    /// After the name or a pair: the next key or the end.
    fn next(&mut self, mark: &str, out: &mut Output) {
        if mark == KEY {
            self.state = State::Key(String::new());
        } else if mark == CALL_END {
            self.pairs.close(out);
            out.end_call(!self.junk);
            self.state = State::Outside;
        }
    }
}

impl Grammar for Glm {
    fn busy(&self) -> bool {
        !matches!(self.state, State::Outside)
    }

    fn marks(&self) -> Vec<&'static str> {
        match self.state {
            State::Outside => vec![CALL],
            State::Name(_) => vec!["\n", KEY, CALL_END],
            State::Gap => vec![KEY, CALL_END],
            State::Key(_) => vec![KEY_END],
            State::AfterKey(_) => vec![VALUE, KEY, CALL_END],
            State::Value => vec![VALUE_END],
        }
    }

    fn mark(&mut self, mark: &'static str, _by_id: bool, out: &mut Output) {
        match &mut self.state {
            State::Outside => {
                out.begin_call(mark);
                self.state = State::Name(String::new());
            }
            State::Name(name) if mark == "\n" && name.trim().is_empty() => {}
            State::Name(name) => {
                let name = mem::take(name);
                self.start(&name, out);
                if self.busy() {
                    self.next(mark, out);
                }
            }
            State::Gap => self.next(mark, out),
            State::Key(key) => self.state = State::AfterKey(mem::take(key)),
            State::AfterKey(key) if mark == VALUE => {
                let key = key.trim();
                self.pairs.begin(key, out.kinds(key), out);
                self.state = State::Value;
            }
            State::AfterKey(_) => {
                self.junk = true;
                self.next(mark, out);
            }
            State::Value => {
                self.pairs.end(out);
                self.state = State::Gap;
            }
        }
    }

    fn text(&mut self, text: &str, out: &mut Output) {
        match &mut self.state {
            State::Name(name) => name.push_str(text),
            State::Key(key) => key.push_str(text),
            State::Value => self.pairs.text(text, out),
            State::Gap | State::AfterKey(_) => self.junk |= !text.trim().is_empty(),
            State::Outside => {}
        }
    }

    fn end(&mut self, out: &mut Output) {
        if let State::Name(name) = &mut self.state {
            let name = mem::take(name);
            if !out.tools.has(name.trim()) {
                return out.reject();
            }
            self.start(&name, out);
        }
        if matches!(self.state, State::Gap) {
            self.pairs.close(out);
            out.end_unclosed_call(!self.junk);
        }
    }
}
