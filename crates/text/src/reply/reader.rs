//! The reader: cuts a reply at the marks legal in its state and deals the parts out.

use std::mem;

use serde_json::Value;

use super::{
    Syntax, THINK, THINK_END,
    grammar::Grammar,
    message::{End, Event, Finish, Message},
    output::Output,
};
use crate::stream::Utf8Decoder;

/// What a request asks of the reader.
#[derive(Clone, Debug)]
pub struct Options {
    /// The request's tools, in OpenAI's form or as bare functions. Leave empty if there are none or
    /// `tool_choice` is `none`: calls are then not looked for and their text is content.
    pub tools: Vec<Value>,
    /// Stop strings: they end the reply when they occur in content.
    pub stops: Vec<String>,
    /// Whether stop strings also end reasoning.
    pub stop_in_reasoning: bool,
    /// Whether events are passed on as they come. If not, text before a stray `</think>` becomes reasoning.
    pub streamed: bool,
    /// Whether a call ends reasoning that was not closed.
    pub calls_end_reasoning: bool,
    /// Whether calls of tools that are not in `tools` are content.
    pub only_known_tools: bool,
    /// Marks that count only as one token, never when spelled out.
    pub only_by_id: Vec<String>,
    /// Generated ids are this and the call's index: make it unique for each reply.
    pub id_prefix: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tools: Vec::new(),
            stops: Vec::new(),
            stop_in_reasoning: false,
            streamed: true,
            calls_end_reasoning: true,
            only_known_tools: false,
            only_by_id: Vec::new(),
            id_prefix: "call_".to_owned(),
        }
    }
}

/// Where in the reply we are, calls aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// At the beginning; the first text decides.
    Maybe,
    Reasoning,
    Content,
}

/// Splits a reply into reasoning, content and tool calls while it streams.
///
/// However the reply is cut into tokens, the joined events and the message are the same.
#[derive(Debug)]
pub struct ReplyReader {
    grammar: Option<Box<dyn Grammar>>,
    out: Output,
    utf8: Utf8Decoder,
    /// Text that may be the beginning of a mark.
    held: String,
    part: Part,
    /// The reasoning was closed, or cannot be: further `</think>` are text.
    closed: bool,
    /// White space before anything else.
    lead: String,
    streamed: bool,
    calls_end_reasoning: bool,
    only_by_id: Vec<String>,
}

impl ReplyReader {
    /// A reader for the reply to a rendered prompt, of which only the end matters.
    pub fn new(syntax: Syntax, prompt: &str, options: Options) -> Self {
        let prompt = prompt.trim_end();
        let part = match prompt {
            _ if prompt.ends_with(THINK) => Part::Reasoning,
            _ if prompt.ends_with(THINK_END) || syntax == Syntax::NONE => Part::Content,
            _ => Part::Maybe,
        };
        let grammar = syntax.0.grammar.filter(|_| !options.tools.is_empty()).map(|new| new());
        let out = Output::new(&options, grammar.is_some(), prompt.ends_with(THINK_END));
        Self {
            grammar,
            out,
            utf8: Utf8Decoder::default(),
            held: String::new(),
            part,
            closed: syntax == Syntax::NONE && part == Part::Content,
            lead: String::new(),
            streamed: options.streamed,
            calls_end_reasoning: options.calls_end_reasoning,
            only_by_id: options.only_by_id,
        }
    }

    /// Takes one token: its bytes, and whether its id is that of one of [`Syntax::marks`].
    ///
    /// Leave out the token that ends the turn.
    pub fn push(&mut self, bytes: &[u8], is_mark: bool) -> Vec<Event> {
        let name = std::str::from_utf8(bytes).ok().filter(|_| is_mark);
        if self.legal_mark(name).is_some() {
            let text = self.utf8.finish();
            self.feed(&text);
            let held = mem::take(&mut self.held);
            self.text(&held);
        }
        // What was held back may have changed the state.
        if let Some(mark) = self.legal_mark(name) {
            self.mark(mark, true);
        } else {
            let text = self.utf8.push(bytes);
            self.feed(&text);
        }
        self.out.take_events()
    }

    /// From now on, do stop strings that become complete count? At first they do.
    pub fn heed(&mut self, heed: bool) {
        self.out.heed(heed);
    }

    /// The stop string that ended the reply: nothing more will come, generation may end.
    pub fn stopped(&self) -> Option<&str> {
        self.out.stopped()
    }

    /// Ends the reply: the last events, and the message.
    pub fn finish(mut self, end: End) -> (Vec<Event>, Message) {
        let text = self.utf8.finish();
        self.feed(&text);
        let held = mem::take(&mut self.held);
        match &mut self.grammar {
            // The beginning of a mark is no part of a call, but it is of text that never became one.
            Some(grammar) if grammar.busy() && self.out.in_call() => {
                self.out.record(&held);
                if end == End::Turn {
                    grammar.end(&mut self.out);
                }
            }
            _ => self.text(&held),
        }
        let lead = mem::take(&mut self.lead);
        self.out.content(&lead);
        self.out.finish();
        let stop = self.out.stopped().map(str::to_owned);
        let events = self.out.take_events();
        let mut message = self.out.message;
        message.finish = match end {
            _ if stop.is_none() && (self.out.cut || end == End::Limit) => Finish::Length,
            _ if message.calls.is_empty() => Finish::Stop,
            _ => Finish::ToolCalls,
        };
        message.stop = stop;
        (events, message)
    }

    /// The marks legal now.
    fn marks(&self) -> Vec<&'static str> {
        let calls = match &self.grammar {
            Some(grammar) if grammar.busy() => return grammar.marks(),
            Some(grammar) => grammar.marks(),
            None => Vec::new(),
        };
        match self.part {
            Part::Maybe => [vec![THINK, THINK_END], calls].concat(),
            Part::Reasoning if !self.calls_end_reasoning => vec![THINK_END],
            Part::Content if self.closed => calls,
            Part::Reasoning | Part::Content => [vec![THINK_END], calls].concat(),
        }
    }

    fn legal_mark(&self, name: Option<&str>) -> Option<&'static str> {
        name.and_then(|name| self.marks().into_iter().find(|mark| *mark == name))
    }

    /// The marks legal now that count when spelled out.
    fn spelled_marks(&self) -> Vec<&'static str> {
        let mut marks = self.marks();
        marks.retain(|mark| !self.only_by_id.iter().any(|by_id| by_id == mark));
        marks
    }

    fn feed(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let text = mem::take(&mut self.held) + text;
        let mut rest = text.as_str();
        loop {
            let marks = self.spelled_marks();
            let (before, mark) = next_mark(rest, &marks);
            self.text(&rest[..before]);
            rest = &rest[before..];
            if self.spelled_marks() != marks {
                continue; // The text before it decided what the mark means.
            }
            let Some(mark) = mark else { break };
            rest = &rest[mark.len()..];
            self.mark(mark, false);
        }
        rest.clone_into(&mut self.held);
    }

    fn text(&mut self, text: &str) {
        if text.is_empty() || self.out.stopped().is_some() {
            return;
        }
        if let Some(grammar) = self.grammar.as_mut().filter(|grammar| grammar.busy()) {
            self.out.record(text);
            return grammar.text(text, &mut self.out);
        }
        match self.part {
            Part::Reasoning => self.out.reasoning(text),
            Part::Content => self.out.content(text),
            Part::Maybe if text.trim_start().is_empty() => self.lead.push_str(text),
            Part::Maybe => {
                self.part = Part::Content;
                let lead = mem::take(&mut self.lead);
                self.out.content(&(lead + text));
            }
        }
    }

    fn mark(&mut self, mark: &'static str, by_id: bool) {
        if self.out.stopped().is_some() {
            return;
        }
        let lead = mem::take(&mut self.lead);
        match mark {
            THINK => self.part = Part::Reasoning,
            THINK_END => self.end_reasoning(),
            _ => {
                if self.part == Part::Reasoning {
                    self.out.end_reasoning();
                }
                self.out.content(&lead);
                self.part = Part::Content;
                if let Some(grammar) = &mut self.grammar {
                    self.out.record(mark);
                    grammar.mark(mark, by_id, &mut self.out);
                }
            }
        }
    }

    fn end_reasoning(&mut self) {
        let stray = self.part == Part::Content && self.out.message.reasoning.is_empty();
        if self.part == Part::Reasoning {
            self.out.end_reasoning();
        } else if stray && !self.streamed && self.out.message.calls.is_empty() {
            self.out.content_was_reasoning();
        }
        if self.out.message.content.is_empty() {
            self.out.skip_newlines();
        }
        self.part = Part::Content;
        self.closed = true;
    }
}

/// How much of the text comes before the first mark, and that mark; without one, before what may become one.
fn next_mark(text: &str, marks: &[&'static str]) -> (usize, Option<&'static str>) {
    for (at, _) in text.char_indices() {
        let rest = &text[at..];
        if let Some(mark) = marks.iter().find(|mark| rest.starts_with(**mark)) {
            return (at, Some(mark));
        }
        if marks.iter().any(|mark| mark.starts_with(rest)) {
            return (at, None);
        }
    }
    (text.len(), None)
}
