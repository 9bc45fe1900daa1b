//! What a request for a response is answered with.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A response.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ResponseObject {
    /// Names the response.
    pub(super) id: String,
    /// `response`.
    pub(super) object: &'static str,
    /// Seconds since 1970.
    pub(super) created_at: u64,
    /// `in_progress`, `completed`, `incomplete` or `failed`.
    pub(super) status: &'static str,
    /// What went wrong, if something did.
    pub(super) error: Option<Problem>,
    /// Why it is not complete, if it is not.
    pub(super) incomplete_details: Option<Incomplete>,
    /// What the model was told before the conversation.
    pub(super) instructions: Option<String>,
    /// Most tokens of the answer.
    pub(super) max_output_tokens: Option<i64>,
    /// The model's name.
    pub(super) model: String,
    /// Thoughts, messages and calls, in order.
    pub(super) output: Vec<Item>,
    /// Were several calls allowed?
    pub(super) parallel_tool_calls: bool,
    /// Always null: nothing is kept.
    pub(super) previous_response_id: Option<String>,
    /// How much to think.
    pub(super) reasoning: ReasoningEcho,
    /// Always false: nothing is kept.
    pub(super) store: bool,
    /// Of the draw.
    pub(super) temperature: f32,
    /// Of the draw.
    pub(super) top_p: f32,
    /// The form of the answer.
    pub(super) text: TextEcho,
    /// As asked for.
    #[schema(value_type = Value)]
    pub(super) tool_choice: Value,
    /// As asked for.
    #[schema(value_type = Vec<Map<String, Value>>)]
    pub(super) tools: Vec<Value>,
    /// Always `disabled`: a conversation that is too long is refused, never cut.
    pub(super) truncation: &'static str,
    /// Tokens, once it is over.
    pub(super) usage: Option<ResponseUsage>,
    /// As asked for.
    pub(super) metadata: Map<String, Value>,
}

/// What went wrong.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// For programs.
    pub(super) code: &'static str,
    /// For people.
    pub(super) message: String,
}

/// Why a response is not complete.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Incomplete {
    /// `max_output_tokens`.
    pub(super) reason: &'static str,
}

/// How much to think.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ReasoningEcho {
    /// As asked for.
    pub(super) effort: Option<String>,
    /// As asked for.
    pub(super) summary: Option<String>,
}

/// The form of the answer.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct TextEcho {
    /// The form.
    pub(super) format: Map<String, Value>,
}

/// One thing that the model did.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Item {
    /// It thought.
    Reasoning {
        /// Names the item.
        id: String,
        /// `in_progress`, `completed` or `incomplete`.
        status: &'static str,
        /// Always empty: thoughts are given as they are.
        summary: Vec<Value>,
        /// The thoughts.
        content: Vec<Part>,
    },
    /// It said something.
    Message {
        /// Names the item.
        id: String,
        /// `in_progress`, `completed` or `incomplete`.
        status: &'static str,
        /// `assistant`.
        role: &'static str,
        /// What it said.
        content: Vec<Part>,
    },
    /// It called a tool.
    FunctionCall {
        /// Names the item.
        id: String,
        /// `in_progress`, `completed` or `incomplete`.
        status: &'static str,
        /// To be given back with the result.
        call_id: String,
        /// The tool.
        name: String,
        /// JSON text.
        arguments: String,
    },
}

/// A part of what the model thought or said.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Part {
    /// Thoughts.
    ReasoningText {
        /// The text.
        text: String,
    },
    /// The answer.
    OutputText {
        /// The text.
        text: String,
        /// Always empty.
        annotations: Vec<Value>,
        /// Always empty.
        logprobs: Vec<Value>,
    },
}

/// Tokens of a response.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ResponseUsage {
    /// Of the conversation.
    pub(super) input_tokens: usize,
    /// About them.
    pub(super) input_tokens_details: InputDetails,
    /// Of the answer.
    pub(super) output_tokens: usize,
    /// About them.
    pub(super) output_tokens_details: OutputDetails,
    /// Both.
    pub(super) total_tokens: usize,
}

/// About the tokens of the conversation.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct InputDetails {
    /// Found in the cache.
    pub(super) cached_tokens: usize,
}

/// About the tokens of the answer.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct OutputDetails {
    /// Of the thoughts.
    pub(super) reasoning_tokens: usize,
}
