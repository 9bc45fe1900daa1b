//! What a request for a message says, and the chat that it means.

use super::chat;
use crate::app::Service;
use crate::body::{FromJson, part};
use crate::error::ApiError;
use crate::form::Form;
use crate::model::Conversation;
use crate::refuse::refuse;
use crate::sampling::{SamplingFields, check_stops, count};
use crate::tail::Tail;
use crate::thinking::ThinkingFields;
use crate::turn::{self, ToolChoice, Turn};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A conversation to be answered. Nothing is kept: each request brings the whole conversation.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MessagesRequest {
    #[serde(flatten)]
    talk: TalkFields,
    #[serde(flatten)]
    answer: AnswerFields,
    #[serde(flatten)]
    sampling: SamplingFields,
    #[serde(flatten)]
    thinking: ThinkingFields,
}

/// A conversation whose tokens are to be counted.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CountRequest {
    #[serde(flatten)]
    talk: TalkFields,
    #[serde(flatten)]
    thinking: ThinkingFields,
}

/// The conversation.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub(crate) struct TalkFields {
    /// One of the model's names.
    model: Option<String>,
    /// What was said.
    #[schema(value_type = Vec<InputMessage>, min_items = 1)]
    messages: Vec<Value>,
    /// What the model is told before the conversation.
    #[schema(value_type = Option<BlocksOrText>)]
    system: Option<Value>,
    /// What the model may call.
    #[schema(value_type = Option<Vec<MessageTool>>)]
    tools: Option<Vec<Value>>,
    /// Whether tools are to be called.
    tool_choice: Option<MessageToolChoice>,
    /// How much to think, and the form of the answer.
    output_config: Option<OutputConfig>,
}

/// How the conversation is to be answered.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub(crate) struct AnswerFields {
    /// Most tokens of the answer.
    #[schema(minimum = 1)]
    max_tokens: i64,
    /// The answer ends before the first of these texts.
    stop_sequences: Option<Vec<String>>,
    /// Send events as the answer comes?
    stream: Option<bool>,
}

/// What somebody said.
#[derive(Serialize, ToSchema)]
#[allow(dead_code, reason = "only described, never made")]
struct InputMessage {
    /// Who.
    role: InputRole,
    /// What.
    content: BlocksOrText,
}

/// Who speaks in a message.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[allow(dead_code, reason = "only described, never made")]
enum InputRole {
    User,
    Assistant,
    System,
}

/// One text, or blocks of type `text`, `thinking`, `redacted_thinking`, `tool_use` and `tool_result`.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "only described, never made")]
enum BlocksOrText {
    /// One text.
    Text(String),
    /// Blocks.
    Blocks(Vec<Map<String, Value>>),
}

/// What the model may call.
#[derive(Serialize, ToSchema)]
#[allow(dead_code, reason = "only described, never made")]
struct MessageTool {
    /// Its name.
    name: String,
    /// For the model.
    description: Option<String>,
    /// A JSON schema of its arguments.
    input_schema: Map<String, Value>,
}

/// Whether tools are to be called.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
enum MessageToolChoice {
    /// The model decides.
    Auto {
        /// At most one call?
        disable_parallel_tool_use: Option<bool>,
    },
    /// Some tool must be called.
    Any {
        /// Exactly one call?
        disable_parallel_tool_use: Option<bool>,
    },
    /// This tool must be called.
    Tool {
        /// Its name.
        name: String,
        /// Exactly one call?
        disable_parallel_tool_use: Option<bool>,
    },
    /// No tool may be called.
    None,
}

/// How much to think, and the form of the answer.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
struct OutputConfig {
    /// `low`, `medium`, `high`, `xhigh` or `max`.
    effort: Option<String>,
    /// The form of the answer.
    format: Option<OutputFormat>,
}

/// The form of the answer.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum OutputFormat {
    /// JSON that fits a schema.
    JsonSchema {
        /// The schema.
        schema: Map<String, Value>,
    },
}

impl FromJson for MessagesRequest {
    fn from_json(object: &Map<String, Value>) -> Result<Self, ApiError> {
        refuse(object, &[])?;
        Ok(MessagesRequest {
            talk: part(object)?,
            answer: part(object)?,
            sampling: part(object)?,
            thinking: part(object)?,
        })
    }
}

impl FromJson for CountRequest {
    fn from_json(object: &Map<String, Value>) -> Result<Self, ApiError> {
        refuse(object, &[])?;
        Ok(CountRequest { talk: part(object)?, thinking: part(object)? })
    }
}

impl MessagesRequest {
    /// May there be one call at most?
    pub(super) fn one_call(&self) -> bool {
        self.talk.choice().1
    }

    /// Checked. Names the field that is wrong.
    pub(super) fn turn(&self, service: &Service) -> Result<Turn, ApiError> {
        let stops = self.answer.stop_sequences.clone().unwrap_or_default();
        let (chat, call) = self.talk.chat(&self.thinking, service)?;
        let form = call.or(self.talk.form());
        Ok(Turn {
            chat,
            sampling: self.sampling.sampling(service)?,
            stops: check_stops("stop_sequences", stops)?,
            ending: self.sampling.ending(&service.model, form.as_ref())?,
            max_tokens: count("max_tokens", Some(self.answer.max_tokens), 1, usize::MAX)?,
            choices: 1,
            form,
            streamed: self.answer.stream.unwrap_or(false),
        })
    }
}

impl CountRequest {
    /// Checked. Names the field that is wrong.
    pub(super) fn chat(&self, service: &Service) -> Result<Conversation, ApiError> {
        Ok(self.talk.chat(&self.thinking, service)?.0)
    }
}

impl TalkFields {
    /// The conversation, and the form of an answer that must be a call.
    fn chat(
        &self,
        thinking: &ThinkingFields,
        service: &Service,
    ) -> Result<(Conversation, Option<Form>), ApiError> {
        let model = &service.model;
        model.check_name(self.model.as_deref())?;
        let mut thinking = thinking.clone();
        if let Some(effort) = self.output_config.as_ref().and_then(|o| o.effort.clone()) {
            thinking.reasoning_effort = Some(effort);
        }
        let (choice, one_call) = self.choice();
        let tools = chat::tools(self.tools.as_deref().unwrap_or_default())?;
        let (tools, call) = turn::callable(tools, &choice, !one_call)?;
        let messages = chat::messages(self.system.as_ref(), &self.messages)?;
        let conversation = Conversation {
            messages: crate::messages::check(&messages, model.takes_parts())?,
            tools,
            kwargs: thinking.kwargs(model)?,
            tail: Tail::Opened,
        };
        Ok((conversation, call))
    }

    fn form(&self) -> Option<Form> {
        let OutputFormat::JsonSchema { schema } = self.output_config.as_ref()?.format.as_ref()?;
        Some(Form::json("output_config.format", schema.clone().into()))
    }

    /// Whether tools are to be called, and whether one at most.
    fn choice(&self) -> (ToolChoice, bool) {
        use MessageToolChoice::{Any, Auto, None as Never, Tool};
        let (choice, one) = match &self.tool_choice {
            None => (ToolChoice::Auto, &None),
            Some(Never) => (ToolChoice::None, &None),
            Some(Auto { disable_parallel_tool_use: one }) => (ToolChoice::Auto, one),
            Some(Any { disable_parallel_tool_use: one }) => (ToolChoice::Required, one),
            Some(Tool { name, disable_parallel_tool_use: one }) => (ToolChoice::Named(name.clone()), one),
        };
        (choice, one.unwrap_or(false))
    }
}
