//! The events of a reply in the making, and the message they add up to.

use std::mem;

use serde_json::{Map, Value};

use super::{
    message::{Call, Event, Message},
    reader::Options,
    schema::{Kinds, Tools},
};
use crate::stream::StopFinder;

fn is_newline(character: char) -> bool {
    matches!(character, '\n' | '\r')
}

/// Text on its way to a field of the message, past stop strings and white space that may only separate.
#[derive(Debug)]
struct Channel {
    /// Newlines are dropped until other text comes.
    skip_newlines: bool,
    stops: StopFinder,
    /// White space of this kind at the end of the text waits in `held`.
    waits: fn(char) -> bool,
    held: String,
}

impl Channel {
    fn push(&mut self, text: &str) -> String {
        let text = if self.skip_newlines { text.trim_start_matches(is_newline) } else { text };
        self.skip_newlines &= text.is_empty();
        let text = self.stops.push(text);
        self.release(&text)
    }

    /// What a stop string can no longer swallow, since the field ends here or something else follows.
    fn flush(&mut self) -> String {
        let text = self.stops.finish();
        self.release(&text)
    }

    fn release(&mut self, text: &str) -> String {
        let keep = text.trim_end_matches(self.waits).len();
        let ready = if keep > 0 { mem::take(&mut self.held) + &text[..keep] } else { String::new() };
        self.held.push_str(&text[keep..]);
        ready
    }
}

/// Collects events and message; knows tools, stop strings and the call that is being read.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) message: Message,
    events: Vec<Event>,
    reasoning: Channel,
    content: Channel,
    pub(super) tools: Tools,
    only_known_tools: bool,
    id_prefix: String,
    /// The text of a call that has no name yet, to become content if it never gets one.
    nameless: Option<String>,
    open: bool,
    /// The last call ended and no text followed yet.
    after_call: bool,
    /// The reply ended within a call.
    pub(super) cut: bool,
}

impl Output {
    pub(super) fn new(options: &Options, has_calls: bool, skip_newlines: bool) -> Self {
        let waits: fn(char) -> bool = if has_calls { char::is_whitespace } else { |_| false };
        let reasoning_stops: &[String] = if options.stop_in_reasoning { &options.stops } else { &[] };
        let channel = |skip_newlines, stops: &[String], waits| Channel {
            skip_newlines,
            stops: StopFinder::new(stops),
            waits,
            held: String::new(),
        };
        Self {
            message: Message::default(),
            events: Vec::new(),
            reasoning: channel(true, reasoning_stops, is_newline),
            content: channel(skip_newlines, &options.stops, waits),
            tools: Tools::new(options.tools.clone()),
            only_known_tools: options.only_known_tools,
            id_prefix: options.id_prefix.clone(),
            nameless: None,
            open: false,
            after_call: false,
            cut: false,
        }
    }

    pub(super) fn take_events(&mut self) -> Vec<Event> {
        mem::take(&mut self.events)
    }

    pub(super) fn heed(&mut self, heed: bool) {
        self.content.stops.heed(heed);
        self.reasoning.stops.heed(heed);
    }

    pub(super) fn stopped(&self) -> Option<&str> {
        self.content.stops.found().or(self.reasoning.stops.found())
    }

    pub(super) fn reasoning(&mut self, text: &str) {
        let ready = self.reasoning.push(text);
        self.show_reasoning(ready);
    }

    /// The reasoning is over; newlines at its end were only layout.
    pub(super) fn end_reasoning(&mut self) {
        let rest = self.reasoning.flush();
        self.show_reasoning(rest);
        self.reasoning.held.clear();
    }

    /// Newlines between reasoning and content are only layout.
    pub(super) fn skip_newlines(&mut self) {
        self.content.skip_newlines = true;
    }

    /// What was content until now was reasoning. Only for replies that nobody has seen yet.
    pub(super) fn content_was_reasoning(&mut self) {
        let rest = self.content.flush();
        self.show_content(rest);
        self.content.held.clear();
        let text = mem::take(&mut self.message.content);
        text.trim_matches(is_newline).clone_into(&mut self.message.reasoning);
        self.events.clear();
        self.emit(Event::Reasoning(self.message.reasoning.clone()));
    }

    pub(super) fn content(&mut self, text: &str) {
        let ready = self.content.push(text);
        self.show_content(ready);
    }

    /// A call begins with this mark. White space before it only separates.
    pub(super) fn begin_call(&mut self, mark: &str) {
        let rest = self.content.flush();
        self.show_content(rest);
        self.nameless = Some(mem::take(&mut self.content.held) + mark);
    }

    /// Keeps the source text of a call that has no name yet.
    pub(super) fn record(&mut self, text: &str) {
        if let Some(source) = &mut self.nameless {
            source.push_str(text);
        }
    }

    /// What began as a call is none: its text is content after all.
    pub(super) fn reject(&mut self) {
        if let Some(source) = self.nameless.take() {
            self.content(&source);
        }
    }

    /// Whether a call of that name is to be passed on.
    pub(super) fn wants(&self, name: &str) -> bool {
        !name.is_empty() && (!self.only_known_tools || self.tools.has(name))
    }

    /// The call has a name. False if it is not wanted and went to content.
    #[must_use]
    pub(super) fn start_call(&mut self, id: Option<&str>, name: &str) -> bool {
        if !self.wants(name) {
            self.reject();
            return false;
        }
        self.nameless = None;
        self.open = true;
        let index = self.message.calls.len();
        let id = id.map_or_else(|| format!("{}{index}", self.id_prefix), str::to_owned);
        self.message.calls.push(Call { id: id.clone(), name: name.to_owned(), ..Call::default() });
        self.emit(Event::CallStart { index, id, name: name.to_owned() });
        true
    }

    /// More JSON text for the open call.
    pub(super) fn arguments(&mut self, delta: &str) {
        let count = self.message.calls.len();
        if let Some(call) = self.message.calls.last_mut().filter(|_| self.open && !delta.is_empty()) {
            call.arguments.push_str(delta);
            self.emit(Event::CallArguments { index: count - 1, delta: delta.to_owned() });
        }
    }

    /// The types declared for an argument of the open call.
    pub(super) fn kinds(&self, key: &str) -> Kinds {
        self.message.calls.last().map_or(Kinds::UNDECLARED, |call| self.tools.kinds(&call.name, key))
    }

    /// The open call is over; `clean` if nothing in it was dropped.
    pub(super) fn end_call(&mut self, clean: bool) {
        if self.message.calls.last().is_some_and(|call| call.arguments.is_empty()) {
            self.arguments("{}");
        }
        self.open = false;
        self.after_call = true;
        let index = self.message.calls.len().saturating_sub(1);
        if let Some(call) = self.message.calls.last_mut() {
            call.whole = clean && serde_json::from_str::<Map<String, Value>>(&call.arguments).is_ok();
            self.emit(Event::CallEnd { index });
        }
    }

    /// The reply ended before the open call did, but nothing is missing from its arguments.
    pub(super) fn end_unclosed_call(&mut self, clean: bool) {
        self.cut = true;
        self.end_call(clean);
    }

    /// Whether a call is open or about to be.
    pub(super) fn in_call(&self) -> bool {
        self.open || self.nameless.is_some()
    }

    /// Ends the reply: what still waited is text, except white space after a call.
    pub(super) fn finish(&mut self) {
        self.cut |= self.in_call();
        let rest = self.reasoning.flush();
        self.show_reasoning(rest);
        let rest = self.content.flush();
        self.show_content(rest);
        let held = mem::take(&mut self.reasoning.held);
        self.show_reasoning(held);
        let held = mem::take(&mut self.content.held);
        if !self.after_call {
            self.show_content(held);
        }
    }

    fn show_reasoning(&mut self, text: String) {
        if !text.is_empty() {
            self.message.reasoning.push_str(&text);
            self.emit(Event::Reasoning(text));
        }
    }

    fn show_content(&mut self, text: String) {
        if !text.is_empty() {
            self.after_call = false;
            self.message.content.push_str(&text);
            self.emit(Event::Content(text));
        }
    }

    /// Adds an event, joined to the last one if it goes on with it.
    fn emit(&mut self, event: Event) {
        match (self.events.last_mut(), event) {
            (Some(Event::Reasoning(all)), Event::Reasoning(more))
            | (Some(Event::Content(all)), Event::Content(more)) => all.push_str(&more),
            (Some(Event::CallArguments { delta, .. }), Event::CallArguments { delta: more, .. }) => {
                delta.push_str(&more);
            }
            (_, event) => self.events.push(event),
        }
    }
}
