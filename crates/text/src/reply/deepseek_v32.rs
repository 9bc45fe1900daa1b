//! DeepSeek V3.2: DSML, an XML of its own whose parameters say whether they are strings.

use std::mem;

use super::{Row, grammar::Grammar, json::PairWriter, output::Output, schema::Kinds};

const SECTION: &str = "<｜DSML｜function_calls>";
const SECTION_END: &str = "</｜DSML｜function_calls>";
const INVOKE: &str = "<｜DSML｜invoke name=\"";
const INVOKE_END: &str = "</｜DSML｜invoke>";
const PARAMETER: &str = "<｜DSML｜parameter name=\"";
const PARAMETER_END: &str = "</｜DSML｜parameter>";
/// Ends a name in an attribute and its tag.
const NAME_END: &str = "\">";
const IS_STRING: &str = "\" string=\"true\">";
const IS_JSON: &str = "\" string=\"false\">";

pub(super) const ROW: Row = Row {
    name: "deepseek_v32",
    aliases: &["deepseek_v3_2"],
    detect: |template| template.contains("｜DSML｜"),
    marks: &[],
    grammar: Some(|| Box::<Dsml>::default()),
};

#[derive(Debug, Default)]
struct Dsml {
    state: State,
    pairs: PairWriter,
    /// Something in the call belonged nowhere.
    junk: bool,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Outside,
    Section,
    Name(String),
    /// Between parameters.
    Gap,
    Key(String),
    Value,
}

impl Grammar for Dsml {
    fn busy(&self) -> bool {
        !matches!(self.state, State::Outside)
    }

    fn marks(&self) -> Vec<&'static str> {
        match self.state {
            State::Outside => vec![SECTION, INVOKE],
            State::Section => vec![INVOKE, SECTION_END],
            State::Name(_) => vec![NAME_END],
            State::Gap => vec![PARAMETER, INVOKE_END],
            State::Key(_) => vec![IS_STRING, IS_JSON, NAME_END],
            State::Value => vec![PARAMETER_END],
        }
    }

    fn mark(&mut self, mark: &'static str, _by_id: bool, out: &mut Output) {
        let next = match &mut self.state {
            State::Outside | State::Section if mark == INVOKE => {
                out.begin_call(mark);
                State::Name(String::new())
            }
            State::Outside => State::Section,
            State::Section => State::Outside,
            State::Name(name) => {
                let wanted = out.start_call(None, name.trim());
                self.pairs = PairWriter::default();
                self.junk = false;
                if wanted { State::Gap } else { State::Section }
            }
            State::Gap if mark == PARAMETER => State::Key(String::new()),
            State::Gap => {
                self.pairs.close(out);
                out.end_call(!self.junk);
                State::Section
            }
            State::Key(key) => {
                let key = mem::take(key);
                let kinds = match mark {
                    IS_STRING => Kinds::STRING,
                    IS_JSON => Kinds::UNDECLARED,
                    _ => out.kinds(&key),
                };
                self.pairs.begin(&key, kinds, out);
                State::Value
            }
            State::Value => {
                self.pairs.end(out);
                State::Gap
            }
        };
        self.state = next;
    }

    fn text(&mut self, text: &str, out: &mut Output) {
        match &mut self.state {
            State::Name(text_so_far) | State::Key(text_so_far) => text_so_far.push_str(text),
            State::Value => self.pairs.text(text, out),
            State::Gap => self.junk |= !text.trim().is_empty(),
            State::Outside | State::Section => out.content(text),
        }
    }

    fn end(&mut self, out: &mut Output) {
        match self.state {
            State::Name(_) => out.reject(),
            State::Gap => {
                self.pairs.close(out);
                out.end_unclosed_call(!self.junk);
            }
            _ => {}
        }
    }
}
