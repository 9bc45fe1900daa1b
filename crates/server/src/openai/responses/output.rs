//! What the model does, as items that open, fill and close, with the events that tell of it.

use super::response::{Item, Part};
use crate::sse::Frame;
use crate::turn::id;
use serde_json::{Value, json};
use shardwright_text::reply::Event;

/// The items so far. The last one is open until something else begins.
#[derive(Debug, Default)]
pub(super) struct Output {
    items: Vec<Item>,
    open: bool,
    sequence: u64,
}

/// What an item is made of.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Reasoning,
    Message,
    Call,
}

impl Item {
    fn kind(&self) -> Kind {
        match self {
            Item::Reasoning { .. } => Kind::Reasoning,
            Item::Message { .. } => Kind::Message,
            Item::FunctionCall { .. } => Kind::Call,
        }
    }

    fn id(&self) -> &str {
        let (Item::Reasoning { id, .. } | Item::Message { id, .. } | Item::FunctionCall { id, .. }) = self;
        id
    }

    fn text(&mut self) -> Option<&mut String> {
        match self {
            Item::Reasoning { content, .. } | Item::Message { content, .. } => match content.first_mut()? {
                Part::ReasoningText { text } | Part::OutputText { text, .. } => Some(text),
            },
            Item::FunctionCall { arguments, .. } => Some(arguments),
        }
    }

    fn set_status(&mut self, to: &'static str) {
        let (Item::Reasoning { status, .. }
        | Item::Message { status, .. }
        | Item::FunctionCall { status, .. }) = self;
        *status = to;
    }
}

fn said(text: String) -> Part {
    Part::OutputText { text, annotations: Vec::new(), logprobs: Vec::new() }
}

impl Output {
    /// All items.
    pub(super) fn items(&self) -> &[Item] {
        &self.items
    }

    /// An event with a number, as all have.
    pub(super) fn event(&mut self, name: &'static str, mut data: Value) -> Frame {
        data["type"] = name.into();
        data["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        Frame::named(name, &data)
    }

    /// Something happened.
    pub(super) fn add(&mut self, event: Event) -> Vec<Frame> {
        let (kind, text) = match event {
            Event::Reasoning(text) => (Kind::Reasoning, text),
            Event::Content(text) => (Kind::Message, text),
            Event::CallArguments { delta, .. } => (Kind::Call, delta),
            Event::CallEnd { .. } => return self.close("completed"),
            Event::CallStart { id: call_id, name, .. } => {
                let mut frames = self.close("completed");
                let (status, arguments) = ("in_progress", String::new());
                let call = Item::FunctionCall { id: id("fc_"), status, call_id, name, arguments };
                frames.extend(self.begin(call));
                return frames;
            }
        };
        let mut frames = Vec::new();
        if !self.open || self.items.last().is_none_or(|item| item.kind() != kind) {
            frames.extend(self.close("completed"));
            let status = "in_progress";
            frames.extend(self.begin(match kind {
                Kind::Reasoning => {
                    Item::Reasoning { id: id("rs_"), status, summary: Vec::new(), content: Vec::new() }
                }
                _ => Item::Message { id: id("msg_"), status, role: "assistant", content: Vec::new() },
            }));
        }
        let place = self.place();
        if let Some(all) = self.items.last_mut().and_then(Item::text) {
            all.push_str(&text);
        }
        frames.push(self.tell(kind, "delta", place, json!({"delta": text})));
        frames
    }

    /// The open item is over.
    pub(super) fn close(&mut self, status: &'static str) -> Vec<Frame> {
        let place = self.place();
        let Some(item) = self.items.last_mut().filter(|_| self.open) else { return Vec::new() };
        item.set_status(status);
        let kind = item.kind();
        let text = item.text().map(|t| t.clone()).unwrap_or_default();
        let item = item.clone();
        self.open = false;
        let mut frames = Vec::new();
        let whole = match (kind, &item) {
            (Kind::Call, Item::FunctionCall { name, .. }) => json!({"arguments": text, "name": name}),
            _ => json!({"text": text}),
        };
        frames.push(self.tell(kind, "done", place.clone(), whole));
        if let Item::Reasoning { content, .. } | Item::Message { content, .. } = &item {
            frames.push(self.part("response.content_part.done", &place, &content[0]));
        }
        let index = place["output_index"].clone();
        frames.push(self.event("response.output_item.done", json!({"output_index": index, "item": item})));
        frames
    }

    fn begin(&mut self, mut item: Item) -> Vec<Frame> {
        let index = self.items.len();
        let mut frames =
            vec![self.event("response.output_item.added", json!({"output_index": index, "item": item}))];
        let part = match &mut item {
            Item::Reasoning { content, .. } => Some((content, Part::ReasoningText { text: String::new() })),
            Item::Message { content, .. } => Some((content, said(String::new()))),
            Item::FunctionCall { .. } => None,
        };
        let part = part.map(|(content, part)| {
            content.push(part.clone());
            part
        });
        self.items.push(item);
        self.open = true;
        if let Some(part) = part {
            let place = self.place();
            frames.push(self.part("response.content_part.added", &place, &part));
        }
        frames
    }

    /// Names the last item.
    fn place(&self) -> Value {
        let id = self.items.last().map(Item::id).unwrap_or_default();
        json!({"item_id": id, "output_index": self.items.len().saturating_sub(1)})
    }

    fn part(&mut self, name: &'static str, place: &Value, part: &Part) -> Frame {
        let mut data = place.clone();
        data["content_index"] = 0.into();
        data["part"] = json!(part);
        self.event(name, data)
    }

    /// `what` is delta or done.
    fn tell(&mut self, kind: Kind, what: &str, place: Value, more: Value) -> Frame {
        let name = match (kind, what) {
            (Kind::Reasoning, "delta") => "response.reasoning_text.delta",
            (Kind::Reasoning, _) => "response.reasoning_text.done",
            (Kind::Message, "delta") => "response.output_text.delta",
            (Kind::Message, _) => "response.output_text.done",
            (Kind::Call, "delta") => "response.function_call_arguments.delta",
            (Kind::Call, _) => "response.function_call_arguments.done",
        };
        let mut data = place;
        if kind != Kind::Call {
            data["content_index"] = 0.into();
        }
        if kind == Kind::Message {
            data["logprobs"] = json!([]);
        }
        more.as_object().into_iter().flatten().for_each(|(k, v)| data[k] = v.clone());
        self.event(name, data)
    }
}
