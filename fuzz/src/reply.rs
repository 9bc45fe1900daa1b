//! Replies of any tokens: the events add up to the message, and spelled text may be cut anywhere.

use serde_json::{Map, Value, json};
use shardwright_text::reply::{End, Event, Message, Options, ReplyReader, Syntax};

use crate::Input;

/// A token's bytes, and whether its id is that of a mark.
type Token<'a> = (&'a [u8], bool);

/// Choices, tools, then tokens.
pub fn reply(data: &[u8]) {
    let mut input = Input::new(data);
    let syntaxes: Vec<&str> = Syntax::names().collect();
    let syntax = Syntax::by_name(input.pick(&syntaxes)).expect("one of its names");
    let flags = input.byte();
    let prompt = input.pick(&["", "<think>", "</think>"]);
    let end = if flags & 1 == 1 { End::Turn } else { End::Limit };
    let tools = serde_json::from_slice(input.bytes()).unwrap_or_else(|_| usual());
    let options = Options {
        tools: if flags & 2 == 2 { Vec::new() } else { tools },
        stops: (0..input.byte() % 4).map(|_| input.text().into_owned()).collect(),
        stop_in_reasoning: flags & 4 == 4,
        streamed: flags & 8 == 0,
        calls_end_reasoning: flags & 16 == 16,
        only_known_tools: flags & 32 == 32,
        only_by_id: if flags & 64 == 64 { syntax.marks().map(str::to_owned).collect() } else { Vec::new() },
        ..Options::default()
    };
    let mut tokens: Vec<Token<'_>> = Vec::new();
    while !input.is_empty() {
        let head = input.byte();
        tokens.push((input.take(usize::from(head >> 1)), head & 1 == 1));
    }
    let read = |tokens: &[Token<'_>]| read(ReplyReader::new(syntax, prompt, options.clone()), tokens, end);
    let (events, message) = read(&tokens);
    check(&events, &message, options.streamed);
    if tokens.iter().all(|(_, mark)| !mark) {
        let whole = tokens.iter().map(|t| t.0).collect::<Vec<_>>().concat();
        assert_eq!(read(&[(&whole, false)]).1, message, "one piece");
        let bytes: Vec<Token<'_>> = whole.chunks(1).map(|byte| (byte, false)).collect();
        assert_eq!(read(&bytes).1, message, "byte by byte");
    }
}

fn read(mut reader: ReplyReader, tokens: &[Token<'_>], end: End) -> (Vec<Event>, Message) {
    let mut events: Vec<Event> = tokens.iter().flat_map(|(bytes, mark)| reader.push(bytes, *mark)).collect();
    let (last, message) = reader.finish(end);
    events.extend(last);
    (events, message)
}

/// What a client of the stream puts together is the message.
fn check(events: &[Event], message: &Message, streamed: bool) {
    let (mut reasoning, mut content, mut calls) = (String::new(), String::new(), Vec::new());
    for event in events {
        match event {
            Event::Reasoning(more) => reasoning += more,
            Event::Content(more) => content += more,
            Event::CallStart { index, id, name } => {
                assert_eq!(*index, calls.len());
                calls.push([id.clone(), name.clone(), String::new()]);
            }
            Event::CallArguments { index, delta } => calls[*index][2] += delta,
            Event::CallEnd { index } => assert_eq!(index + 1, calls.len()),
        }
    }
    let same: Vec<_> =
        message.calls.iter().map(|c| [c.id.clone(), c.name.clone(), c.arguments.clone()]).collect();
    assert_eq!(calls, same);
    assert!(!streamed || (&reasoning, &content) == (&message.reasoning, &message.content));
    for call in message.calls.iter().filter(|c| c.whole) {
        serde_json::from_str::<Map<String, Value>>(&call.arguments)
            .expect("a whole call's arguments are JSON");
    }
}

/// Tools where the input has none.
fn usual() -> Vec<Value> {
    vec![
        json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
        "s": {"type": "string"}, "n": {"type": "integer"}, "r": {"$ref": "#/properties/r"},
        "a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}}}),
    ]
}
