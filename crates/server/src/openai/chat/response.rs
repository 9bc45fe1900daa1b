//! What a chat is answered with, whole or in pieces.

use crate::usage::Usage;
use serde::Serialize;
use shardwright_engine::sample::Choice as Token;
use shardwright_text::tokenizer::Tokenizer;
use utoipa::ToSchema;

/// A whole answer.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatCompletion {
    /// Names the answer.
    pub(crate) id: String,
    /// `chat.completion`.
    pub(crate) object: &'static str,
    /// Seconds since 1970.
    pub(crate) created: u64,
    /// The model's name.
    pub(crate) model: String,
    /// The answers.
    pub(crate) choices: Vec<ChatChoice>,
    /// Tokens.
    pub(crate) usage: Usage,
    /// Names the build.
    pub(crate) system_fingerprint: String,
}

/// One answer.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatChoice {
    /// Its place.
    pub(crate) index: usize,
    /// What the model says.
    pub(crate) message: Message,
    /// How likely its tokens were, if asked for.
    pub(crate) logprobs: Option<Logprobs>,
    /// `stop`, `length` or `tool_calls`.
    pub(crate) finish_reason: &'static str,
}

/// What the model says.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Message {
    /// `assistant`.
    pub(crate) role: &'static str,
    /// The answer; null if there are calls instead.
    pub(crate) content: Option<String>,
    /// Always null: a refusal is an answer like another.
    pub(crate) refusal: Option<String>,
    /// What the model thought before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reasoning_content: Option<String>,
    /// Calls of tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tool_calls: Vec<ToolCall>,
}

/// A call of a tool.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ToolCall {
    /// To be given back with the result.
    pub(crate) id: String,
    /// `function`.
    pub(crate) r#type: &'static str,
    /// What is called.
    pub(crate) function: CalledFunction,
}

/// What is called.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CalledFunction {
    /// The tool.
    pub(crate) name: String,
    /// JSON text.
    pub(crate) arguments: String,
}

/// How likely tokens were.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct Logprobs {
    /// One entry a token.
    pub(crate) content: Vec<TokenLogprob>,
}

/// How likely a token was.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TokenLogprob {
    /// Its text; bytes that are no whole character show as U+FFFD.
    token: String,
    /// Natural logarithm of its probability.
    logprob: f32,
    /// Its bytes.
    bytes: Vec<u8>,
    /// The likeliest tokens.
    top_logprobs: Vec<TopLogprob>,
}

/// How likely a token would have been.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TopLogprob {
    /// Its text.
    token: String,
    /// Natural logarithm of its probability.
    logprob: f32,
    /// Its bytes.
    bytes: Vec<u8>,
}

/// Less likely than anything that has a number: infinity is none in JSON.
pub(crate) const LEAST: f32 = -9999.0;

impl TokenLogprob {
    /// Of a chosen token, if its probabilities were asked for.
    pub(crate) fn of(tokenizer: &Tokenizer, token: &Token) -> Option<TokenLogprob> {
        let logprobs = token.logprobs.as_ref()?;
        let top = |(id, logprob): &(u32, f32)| {
            let bytes = tokenizer.token_bytes(*id).to_vec();
            TopLogprob {
                token: String::from_utf8_lossy(&bytes).into_owned(),
                logprob: logprob.max(LEAST),
                bytes,
            }
        };
        let TopLogprob { token, logprob, bytes } = top(&(token.token, logprobs.chosen));
        Some(TokenLogprob { token, logprob, bytes, top_logprobs: logprobs.top.iter().map(top).collect() })
    }
}

/// A piece of an answer.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatChunk {
    /// Names the answer; the same in all pieces.
    pub(crate) id: String,
    /// `chat.completion.chunk`.
    pub(crate) object: &'static str,
    /// Seconds since 1970.
    pub(crate) created: u64,
    /// The model's name.
    pub(crate) model: String,
    /// One entry, or none in the piece with the number of tokens.
    pub(crate) choices: Vec<ChunkChoice>,
    /// Tokens, in the last piece, if asked for; null in the others then.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Usage>)]
    pub(crate) usage: Option<Option<Usage>>,
    /// Names the build.
    pub(crate) system_fingerprint: String,
}

/// A piece of one answer.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChunkChoice {
    /// The place of the answer.
    pub(crate) index: usize,
    /// What is new.
    pub(crate) delta: Delta,
    /// How likely the new tokens were, if asked for.
    pub(crate) logprobs: Option<Logprobs>,
    /// Why the answer ended, in its last piece.
    pub(crate) finish_reason: Option<&'static str>,
}

/// What is new.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct Delta {
    /// `assistant`, in the first piece.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) role: Option<&'static str>,
    /// More of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content: Option<String>,
    /// More of what the model thinks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reasoning_content: Option<String>,
    /// A call, or more of its arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tool_calls: Option<Vec<CallDelta>>,
}

/// A call, or more of its arguments.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CallDelta {
    /// The place of the call.
    pub(crate) index: usize,
    /// To be given back with the result; in the first piece.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    /// `function`; in the first piece.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) r#type: Option<&'static str>,
    /// What is called.
    pub(crate) function: FunctionDelta,
}

/// What is called.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FunctionDelta {
    /// The tool; in the first piece.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// More of the JSON text.
    pub(crate) arguments: String,
}
