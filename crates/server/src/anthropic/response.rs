//! What a conversation is answered with.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// Thoughts are not signed here, but clients pass on only those that have a signature.
pub(super) const SIGNATURE: &str = "unsigned";

/// An answer.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct MessageResponse {
    /// Names the answer.
    pub(super) id: String,
    /// `message`.
    pub(super) r#type: &'static str,
    /// `assistant`.
    pub(super) role: &'static str,
    /// The model's name.
    pub(super) model: String,
    /// Thoughts, texts and calls, in order.
    pub(super) content: Vec<ContentBlock>,
    /// `end_turn`, `max_tokens`, `stop_sequence` or `tool_use`.
    pub(super) stop_reason: Option<&'static str>,
    /// The text that ended it, if one did.
    pub(super) stop_sequence: Option<String>,
    /// Tokens.
    pub(super) usage: MessageUsage,
}

/// One thing that the model did.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ContentBlock {
    /// It thought.
    Thinking {
        /// The thoughts.
        thinking: String,
        /// Thoughts are not signed here: always the same word.
        signature: &'static str,
    },
    /// It said something.
    Text {
        /// What it said.
        text: String,
    },
    /// It called a tool.
    ToolUse {
        /// To be given back with the result.
        id: String,
        /// The tool.
        name: String,
        /// The arguments; empty if the call was cut off.
        #[schema(value_type = Object)]
        input: Value,
    },
}

/// Tokens of a request.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
pub(crate) struct MessageUsage {
    /// Of the prompt, without those found in the cache.
    pub(super) input_tokens: usize,
    /// Always 0: what is kept in the cache costs nothing.
    pub(super) cache_creation_input_tokens: usize,
    /// Of the prompt, found in the cache.
    pub(super) cache_read_input_tokens: usize,
    /// Of the answer.
    pub(super) output_tokens: usize,
    /// About the answer.
    pub(super) output_tokens_details: ThinkingTokens,
}

/// About an answer's tokens.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
pub(crate) struct ThinkingTokens {
    /// Of the thoughts before the answer.
    pub(super) thinking_tokens: usize,
}

/// Tokens of a conversation.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TokenCount {
    /// How many there are.
    pub(super) input_tokens: usize,
}
