//! Replies read whole, byte by byte and cut anywhere: always the same reasoning, content and calls.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod cases;
mod properties;
mod transcripts;

use serde_json::Value;
use shardwright_text::reply::{End, Event, Finish, Message, Options, ReplyReader, Syntax};
use transcripts::Transcript;

/// A reply's tokens: bytes, and whether the id is a mark's.
type Tokens<'a> = Vec<(&'a [u8], bool)>;

fn syntax(name: &str) -> Syntax {
    Syntax::by_name(name).unwrap()
}

/// Reads tokens; the events are joined where they go on with each other, and checked against the message.
fn read(syntax: Syntax, prompt: &str, options: &Options, tokens: &Tokens, end: End) -> (Vec<Event>, Message) {
    let mut reader = ReplyReader::new(syntax, prompt, options.clone());
    let mut events: Vec<Event> = tokens.iter().flat_map(|(bytes, mark)| reader.push(bytes, *mark)).collect();
    let (last, message) = reader.finish(end);
    events.extend(last);
    let events = join(events);
    if options.streamed {
        assert_eq!(summed(&events), (message.reasoning.clone(), message.content.clone(), calls(&message)));
    }
    (events, message)
}

fn join(events: Vec<Event>) -> Vec<Event> {
    let mut joined: Vec<Event> = Vec::new();
    for event in events {
        match (joined.last_mut(), event) {
            (Some(Event::Reasoning(all)), Event::Reasoning(more)) => all.push_str(&more),
            (Some(Event::Content(all)), Event::Content(more)) => all.push_str(&more),
            (
                Some(Event::CallArguments { index, delta }),
                Event::CallArguments { index: other, delta: more },
            ) if *index == other => delta.push_str(&more),
            (_, event) => joined.push(event),
        }
    }
    joined
}

/// Reasoning, content and calls (id, name, arguments) as a client of the stream sees them.
fn summed(events: &[Event]) -> (String, String, Vec<[String; 3]>) {
    let (mut reasoning, mut content, mut calls) = (String::new(), String::new(), Vec::new());
    for event in events {
        match event {
            Event::Reasoning(more) => reasoning.push_str(more),
            Event::Content(more) => content.push_str(more),
            Event::CallStart { index, id, name } => {
                assert_eq!(*index, calls.len());
                calls.push([id.clone(), name.clone(), String::new()]);
            }
            Event::CallArguments { index, delta } => calls[*index][2].push_str(delta),
            Event::CallEnd { index } => assert_eq!(index + 1, calls.len()),
        }
    }
    (reasoning, content, calls)
}

fn calls(message: &Message) -> Vec<[String; 3]> {
    message.calls.iter().map(|call| [call.id.clone(), call.name.clone(), call.arguments.clone()]).collect()
}

fn whole(text: &str) -> Tokens<'_> {
    vec![(text.as_bytes(), false)]
}

fn bytes(text: &str) -> Tokens<'_> {
    text.as_bytes().chunks(1).map(|byte| (byte, false)).collect()
}

fn with_tools(tools: Vec<Value>) -> Options {
    Options { tools, ..Options::default() }
}

fn end(transcript: &Transcript) -> End {
    if transcript.limit { End::Limit } else { End::Turn }
}

fn finish(name: &str) -> Finish {
    match name {
        "stop" => Finish::Stop,
        "tool_calls" => Finish::ToolCalls,
        "length" => Finish::Length,
        _ => panic!("no finish reason {name}"),
    }
}

/// The transcript means what it should: whole, byte by byte, and cut in two at every place.
fn check(transcript: &Transcript) {
    let name = transcript.name;
    let options = with_tools(transcripts::tools());
    let read = |tokens: &Tokens| {
        read(syntax(transcript.syntax), transcript.prompt, &options, tokens, end(transcript))
    };
    let (events, message) = read(&whole(transcript.text));
    assert_eq!(message.reasoning, transcript.reasoning, "{name}");
    assert_eq!(message.content, transcript.content, "{name}");
    let calls: Vec<_> =
        message.calls.iter().map(|call| (call.name.as_str(), call.arguments.as_str())).collect();
    assert_eq!(calls, transcript.calls, "{name}");
    assert_eq!(message.finish, finish(transcript.finish), "{name}");
    for call in &message.calls {
        assert_eq!(call.whole, serde_json::from_str::<Value>(&call.arguments).is_ok(), "{name}");
    }
    assert_eq!(read(&bytes(transcript.text)), (events.clone(), message.clone()), "{name} byte by byte");
    for at in 1..transcript.text.len() {
        let (head, tail) = transcript.text.as_bytes().split_at(at);
        assert_eq!(
            read(&vec![(head, false), (tail, false)]),
            (events.clone(), message.clone()),
            "{name} at {at}"
        );
    }
}

#[test]
fn glm_transcripts() {
    transcripts::GLM.iter().for_each(check);
}

#[test]
fn transcripts_of_other_syntaxes() {
    transcripts::OTHERS.iter().for_each(check);
}

/// Marks that come as one token mean the same as marks that are spelled.
#[test]
fn marks_by_id_mean_the_same() {
    for transcript in transcripts::GLM.iter().chain(transcripts::OTHERS) {
        let syntax = syntax(transcript.syntax);
        let options = with_tools(transcripts::tools());
        let spelled = read(syntax, transcript.prompt, &options, &whole(transcript.text), end(transcript));
        // In a JSON string the two differ, and should.
        if transcript.name.contains("in_a_json_string") {
            continue;
        }
        let mut tokens = Tokens::new();
        let mut rest = transcript.text;
        while let Some(first) = rest.chars().next() {
            let mark = syntax.marks().find(|mark| rest.starts_with(mark));
            let (token, after) = rest.split_at(mark.map_or(first.len_utf8(), str::len));
            tokens.push((token.as_bytes(), mark.is_some()));
            rest = after;
        }
        assert_eq!(
            read(syntax, transcript.prompt, &options, &tokens, end(transcript)),
            spelled,
            "{}",
            transcript.name
        );
    }
}
