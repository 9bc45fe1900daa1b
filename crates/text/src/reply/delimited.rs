//! Calls of the form BEGIN header SEP json END, perhaps in a section: the grammar of DeepSeek and Kimi.

use super::{grammar::Grammar, json::ObjectTap, output::Output};

/// The marks of such a syntax, and how to read a header.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) section: &'static str,
    pub(super) begin: &'static str,
    /// Ends the header; JSON follows, perhaps in a fence.
    pub(super) separator: &'static str,
    pub(super) end: &'static str,
    pub(super) section_end: &'static str,
    /// The model's own id, if any, and the tool's name.
    pub(super) header: fn(&str) -> (Option<&str>, &str),
}

#[derive(Debug)]
pub(super) struct Delimited {
    table: &'static Table,
    state: State,
}

#[derive(Debug)]
enum State {
    Outside,
    Section,
    Header(String),
    Arguments(ObjectTap),
}

impl Delimited {
    pub(super) fn new(table: &'static Table) -> Self {
        Self { table, state: State::Outside }
    }

    /// The state after a header: its arguments, or the section if it was none.
    fn start(&self, header: &str, out: &mut Output) -> State {
        let (id, name) = (self.table.header)(header);
        if out.start_call(id, name) { State::Arguments(ObjectTap::default()) } else { State::Section }
    }
}

impl Grammar for Delimited {
    fn busy(&self) -> bool {
        !matches!(self.state, State::Outside)
    }

    fn marks(&self) -> Vec<&'static str> {
        let table = self.table;
        match self.state {
            State::Outside => vec![table.section, table.begin],
            State::Section => vec![table.begin, table.section_end],
            State::Header(_) => vec![table.separator, table.end],
            State::Arguments(_) => vec![table.end],
        }
    }

    fn mark(&mut self, mark: &'static str, by_id: bool, out: &mut Output) {
        match &mut self.state {
            State::Outside | State::Section if mark == self.table.begin => {
                out.begin_call(mark);
                self.state = State::Header(String::new());
            }
            State::Outside => self.state = State::Section,
            State::Section => self.state = State::Outside,
            State::Header(header) => {
                let header = std::mem::take(header);
                self.state = self.start(&header, out);
                if mark == self.table.end && matches!(self.state, State::Arguments(_)) {
                    out.end_call(true);
                    self.state = State::Section;
                }
            }
            State::Arguments(tap) if tap.in_string() && !by_id => out.arguments(tap.push(mark)),
            State::Arguments(tap) => {
                out.end_call(!tap.junk);
                self.state = State::Section;
            }
        }
    }

    fn text(&mut self, text: &str, out: &mut Output) {
        match &mut self.state {
            State::Header(header) => header.push_str(text),
            State::Arguments(tap) => out.arguments(tap.push(text)),
            State::Outside | State::Section => out.content(text),
        }
    }

    fn end(&mut self, out: &mut Output) {
        match &self.state {
            State::Header(_) => out.reject(),
            State::Arguments(tap) if tap.done => out.end_unclosed_call(!tap.junk),
            _ => {}
        }
    }
}
