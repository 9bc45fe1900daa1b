//! What the model does, as blocks that open, fill and close one after the other.

use super::response::{ContentBlock, SIGNATURE};
use super::stream::event;
use crate::sse::Frame;
use serde_json::{Value, json};
use shardwright_text::reply::Event;

/// The blocks so far. The last one is open until something else begins.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    closed: Vec<ContentBlock>,
    open: Option<Open>,
    /// White space that is nothing unless a text follows.
    lead: String,
}

/// A block that is being filled.
#[derive(Debug)]
struct Open {
    kind: Kind,
    filled: String,
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Thinking,
    Text,
    ToolUse { id: String, name: String },
}

impl Open {
    fn block(self) -> ContentBlock {
        let Open { kind, filled } = self;
        match kind {
            Kind::Thinking => ContentBlock::Thinking { thinking: filled, signature: SIGNATURE },
            Kind::Text => ContentBlock::Text { text: filled },
            Kind::ToolUse { id, name } => {
                let input = serde_json::from_str(&filled).ok().filter(Value::is_object);
                ContentBlock::ToolUse { id, name, input: input.unwrap_or_else(|| json!({})) }
            }
        }
    }
}

impl Blocks {
    /// All blocks; none is open any more.
    pub(super) fn all(self) -> Vec<ContentBlock> {
        self.closed
    }

    /// Something happened.
    pub(super) fn add(&mut self, event: Event) -> Vec<Frame> {
        match event {
            Event::Reasoning(text) => self.fill(Kind::Thinking, text),
            Event::Content(text) => {
                let text = std::mem::take(&mut self.lead) + &text;
                let is_open = self.open.as_ref().is_some_and(|open| open.kind == Kind::Text);
                if !is_open && text.trim().is_empty() {
                    self.lead = text;
                    return Vec::new();
                }
                self.fill(Kind::Text, text)
            }
            Event::CallStart { id, name, .. } => {
                let id = match id.strip_prefix("call_") {
                    Some(rest) => format!("toolu_{rest}"),
                    None => id,
                };
                self.begin(Kind::ToolUse { id, name })
            }
            Event::CallArguments { delta, .. } => self.more(delta),
            Event::CallEnd { .. } => self.close(),
        }
    }

    /// The open block is over.
    pub(super) fn close(&mut self) -> Vec<Frame> {
        self.lead.clear();
        let index = self.closed.len();
        let Some(open) = self.open.take() else { return Vec::new() };
        let signature = json!({"type": "signature_delta", "signature": SIGNATURE});
        let signed = (open.kind == Kind::Thinking).then(|| delta(index, signature));
        self.closed.push(open.block());
        signed.into_iter().chain([event("content_block_stop", json!({"index": index}))]).collect()
    }

    fn fill(&mut self, kind: Kind, text: String) -> Vec<Frame> {
        let mut frames = Vec::new();
        if self.open.as_ref().is_none_or(|open| open.kind != kind) {
            frames.extend(self.begin(kind));
        }
        frames.extend(self.more(text));
        frames
    }

    fn begin(&mut self, kind: Kind) -> Vec<Frame> {
        let mut frames = self.close();
        let mut block = json!(Open { kind: kind.clone(), filled: String::new() }.block());
        if kind == Kind::Thinking {
            block["signature"] = "".into();
        }
        let index = self.closed.len();
        frames.push(event("content_block_start", json!({"index": index, "content_block": block})));
        self.open = Some(Open { kind, filled: String::new() });
        frames
    }

    fn more(&mut self, text: String) -> Vec<Frame> {
        let index = self.closed.len();
        let Some(open) = self.open.as_mut().filter(|_| !text.is_empty()) else { return Vec::new() };
        open.filled.push_str(&text);
        vec![delta(
            index,
            match open.kind {
                Kind::Thinking => json!({"type": "thinking_delta", "thinking": text}),
                Kind::Text => json!({"type": "text_delta", "text": text}),
                Kind::ToolUse { .. } => json!({"type": "input_json_delta", "partial_json": text}),
            },
        )]
    }
}

fn delta(index: usize, delta: Value) -> Frame {
    event("content_block_delta", json!({"index": index, "delta": delta}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_alone_is_no_block() {
        let said = |text: &str| Event::Content(text.into());
        let call = || {
            let id = "call_1".to_owned();
            vec![
                Event::CallStart { index: 0, id, name: "f".into() },
                Event::CallArguments { index: 0, delta: "{}".into() },
                Event::CallEnd { index: 0 },
            ]
        };
        let used = || ContentBlock::ToolUse { id: "toolu_1".into(), name: "f".into(), input: json!({}) };
        let text = |text: &str| ContentBlock::Text { text: text.into() };
        let check = |events: Vec<Event>, expected: Vec<ContentBlock>| {
            let mut blocks = Blocks::default();
            events.into_iter().for_each(|e| drop(blocks.add(e)));
            blocks.close();
            assert_eq!(blocks.all(), expected);
        };
        check(vec![said("\n")], vec![]);
        check([vec![said("\n"), said("\n")], call(), vec![said("\n")]].concat(), vec![used()]);
        check([vec![said("\n"), said("a"), said("\n")], call()].concat(), vec![text("\na\n"), used()]);
        check([call(), vec![said("\n")], call()].concat(), vec![used(), used()]);
    }
}
