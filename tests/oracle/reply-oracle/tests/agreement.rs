//! Every transcript of the reply tests, read by the crates `reasoning-parser` and `tool-parser` too.

#[allow(dead_code)] // How a reply finished is nothing that those crates know.
#[path = "../../../../crates/text/tests/reply/transcripts.rs"]
mod transcripts;

use openai_protocol::common::Tool;
use reasoning_parser::{BaseReasoningParser, ParserConfig, ReasoningParser};
use serde_json::Value;
use shardwright_text::reply::{End, Options, ReplyReader, Syntax};
use tool_parser::{
    DeepSeek31Parser, DeepSeekDsmlParser, DeepSeekParser, Glm4MoeParser, KimiK2Parser, QwenParser, ToolParser,
};
use transcripts::Transcript;

/// Transcripts that they read otherwise, and why ours stays. All others must agree.
const DIFFERENCES: &[(&str, &str)] = &[
    (
        "tags_and_quotes_in_a_string",
        "a value ends at its own closing tag only; theirs cuts the call at the first </tool_call>",
    ),
    ("types_that_allow_strings", "of several types a string is kept unless the text is JSON of another one"),
    (
        "values_of_another_type_than_declared",
        "theirs does not follow $ref; the enumeration there holds strings",
    ),
    ("missing_end_of_thinking", "a call ends reasoning that was not closed"),
    ("cut_in_a_string", "a call that was cut is still a call, not content"),
    ("cut_in_a_list", "as above"),
    ("cut_between_pairs", "as above"),
    ("cut_in_a_name", "the opening tag was a call's, so it is not shown"),
    ("turn_ends_without_the_closing_tag", "all pairs are there: the call is emitted"),
    ("turn_ends_after_a_known_name", "as above, with no pairs"),
    ("text_around_calls", "text after a call is content; theirs drops it"),
    (
        "no_thinking_after_all",
        "<think> opens reasoning only at the beginning; theirs takes the whole reply for it",
    ),
    ("stray_end_of_thinking", "a stray </think> is dropped once"),
    ("v3_cut_in_the_arguments", "a call that was cut is still a call"),
    ("v31_mark_in_a_json_string", "a mark spelled within a JSON string belongs to it"),
    ("v31_turn_ends_without_the_closing_marks", "the arguments are complete: the call is emitted"),
    ("kimi_two_calls", "empty arguments are {}; theirs drops the call"),
    ("kimi_call_inside_reasoning", "a call ends reasoning that was not closed"),
    (
        "kimi_arguments_that_are_no_json",
        "they have been streamed by the time they turn out wrong; the call is marked as not whole",
    ),
    ("hermes_arguments_first", "the order of an object's members means nothing; theirs wants the name first"),
    ("hermes_arguments_as_a_string", "arguments encoded once more are decoded, absent ones are {}"),
    ("hermes_mark_in_a_json_string", "a mark spelled within a JSON string belongs to it"),
    ("hermes_cut_in_the_arguments", "a call that was cut is still a call"),
    ("none_is_raw", "without a syntax only the prompt can open reasoning"),
];

/// Reasoning and content without white space around them, calls with parsed arguments.
#[derive(Debug, PartialEq)]
struct Reading {
    reasoning: String,
    content: String,
    calls: Vec<(String, Result<Value, String>)>,
}

fn call(name: &str, arguments: &str) -> (String, Result<Value, String>) {
    (name.to_owned(), serde_json::from_str(arguments).map_err(|_| arguments.to_owned()))
}

fn ours(transcript: &Transcript) -> Reading {
    let syntax = Syntax::by_name(transcript.syntax).unwrap();
    let options = Options { tools: transcripts::tools(), ..Options::default() };
    let mut reader = ReplyReader::new(syntax, transcript.prompt, options);
    reader.push(transcript.text.as_bytes(), false);
    let (_, message) = reader.finish(if transcript.limit { End::Limit } else { End::Turn });
    Reading {
        reasoning: message.reasoning.trim().to_owned(),
        content: message.content.trim().to_owned(),
        calls: message.calls.iter().map(|one| call(&one.name, &one.arguments)).collect(),
    }
}

fn parser(transcript: &Transcript) -> Option<Box<dyn ToolParser>> {
    Some(match transcript.syntax {
        "glm" if transcript.name == "newline_style" => Box::new(Glm4MoeParser::glm45()),
        "glm" => Box::new(Glm4MoeParser::glm47()),
        "deepseek_v3" => Box::new(DeepSeekParser::new()),
        "deepseek_v31" => Box::new(DeepSeek31Parser::new()),
        "deepseek_v32" => Box::new(DeepSeekDsmlParser::v32()),
        "kimi_k2" => Box::new(KimiK2Parser::new()),
        "hermes" => Box::new(QwenParser::new()),
        _ => return None,
    })
}

async fn theirs(transcript: &Transcript) -> Reading {
    let mut reasoning = BaseReasoningParser::new(ParserConfig::default());
    if transcript.prompt.trim_end().ends_with("<think>") {
        reasoning.mark_reasoning_started();
    }
    let parts = reasoning.detect_and_parse_reasoning(transcript.text).unwrap();
    let tools: Vec<Tool> = serde_json::from_value(transcripts::tools().into()).unwrap();
    let (content, calls) = match parser(transcript) {
        Some(parser) => parser.parse_complete_with_tools(&parts.normal_text, &tools).await.unwrap(),
        None => (parts.normal_text, Vec::new()),
    };
    Reading {
        reasoning: parts.reasoning_text.trim().to_owned(),
        content: content.trim().to_owned(),
        calls: calls.iter().map(|one| call(&one.function.name, &one.function.arguments)).collect(),
    }
}

#[tokio::test]
async fn transcripts_agree_but_for_the_listed() {
    let mut differing = Vec::new();
    for transcript in transcripts::GLM.iter().chain(transcripts::OTHERS) {
        let (ours, theirs) = (ours(transcript), theirs(transcript).await);
        if ours != theirs {
            println!("{}:\n  ours   {ours:?}\n  theirs {theirs:?}", transcript.name);
            differing.push(transcript.name);
        }
    }
    let listed: Vec<&str> = DIFFERENCES.iter().map(|(name, _reason)| *name).collect();
    assert_eq!(differing, listed, "transcripts that differ against those listed");
}
