//! What a chat request says.

use crate::app::Service;
use crate::body::{FromJson, part};
use crate::error::ApiError;
use crate::form::{self, Form};
use crate::messages::{self, ChatMessage, Tool};
use crate::model::Conversation;
use crate::refuse::refuse;
use crate::sampling::{SamplingFields, TOP_LOGPROBS, count, predict};
use crate::tail::Tail;
use crate::thinking::ThinkingFields;
use crate::turn::{self, ToolChoice, Turn};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A conversation to be answered. Fields that are not listed are ignored, or refused by name where ignoring them
/// would give another answer than the client means.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatRequest {
    #[serde(flatten)]
    pub(crate) chat: ChatFields,
    #[serde(flatten)]
    pub(crate) sampling: SamplingFields,
    #[serde(flatten)]
    pub(crate) thinking: ThinkingFields,
    /// By vLLM's and llama-server's fields.
    #[serde(skip)]
    form: Option<Form>,
}

/// The fields of chats alone.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub(crate) struct ChatFields {
    /// One of the model's names.
    model: Option<String>,
    /// The conversation.
    #[schema(value_type = Vec<ChatMessage>, min_items = 1)]
    messages: Vec<Value>,
    /// Send the answer in pieces as it comes?
    pub(crate) stream: Option<bool>,
    /// About the pieces.
    pub(crate) stream_options: Option<StreamOptions>,
    /// What the model may call.
    #[schema(value_type = Option<Vec<Tool>>)]
    tools: Option<Vec<Value>>,
    /// `auto`, `none`, `required`, or a function's name in an object.
    tool_choice: Option<ToolChoiceField>,
    /// May there be several calls in one answer?
    pub(crate) parallel_tool_calls: Option<bool>,
    /// Most tokens of the answer.
    #[schema(minimum = 1)]
    max_tokens: Option<i64>,
    /// The same; this one counts if both are there.
    #[schema(minimum = 1)]
    max_completion_tokens: Option<i64>,
    /// The same in llama-server's words, where neither is there; -1 = until the context is full.
    #[schema(minimum = -1)]
    n_predict: Option<i64>,
    /// Report how likely each token was?
    logprobs: Option<bool>,
    /// And so many likeliest ones.
    #[schema(minimum = 0, maximum = 20)]
    top_logprobs: Option<i64>,
    /// The form of the answer.
    response_format: Option<ResponseFormat>,
    /// Open the model's turn at the end?
    add_generation_prompt: Option<bool>,
    /// Leave the last message open instead, for the model to continue?
    continue_final_message: Option<bool>,
    /// Return what the model thought before its answer?
    pub(crate) include_reasoning: Option<bool>,
}

/// About the pieces of a streamed answer.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(default)]
pub(crate) struct StreamOptions {
    /// Send the number of tokens at the end?
    pub(crate) include_usage: Option<bool>,
}

/// Whether tools are to be called.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(untagged)]
enum ToolChoiceField {
    Word(ToolChoiceWord),
    Function(NamedTool),
}

#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum ToolChoiceWord {
    None,
    Auto,
    Required,
}

/// This one.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
struct NamedTool {
    /// `function`.
    r#type: String,
    /// Which.
    function: FunctionName,
}

/// Which function.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
struct FunctionName {
    /// Its name.
    name: String,
}

/// The form of an answer.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ResponseFormat {
    /// Any.
    Text,
    /// A JSON object.
    JsonObject,
    /// JSON that fits a schema.
    JsonSchema {
        /// The schema and its name.
        json_schema: Value,
    },
}

impl FromJson for ChatRequest {
    fn from_json(object: &Map<String, Value>) -> Result<Self, ApiError> {
        refuse(object, &["continue_final_message"])?;
        let form = form::from_fields(object)?;
        Ok(ChatRequest { chat: part(object)?, sampling: part(object)?, thinking: part(object)?, form })
    }
}

impl ChatRequest {
    /// Checked. Names the field that is wrong.
    pub(crate) fn turn(&self, service: &Service) -> Result<Turn, ApiError> {
        let (chat, model) = (&self.chat, &service.model);
        model.check_name(chat.model.as_deref())?;
        let streamed = chat.stream.unwrap_or(false);
        if chat.stream_options.is_some() && !streamed {
            return Err(ApiError::field("stream_options", "`stream_options` needs `stream: true`"));
        }
        let max_tokens = count("max_tokens", chat.max_tokens, 1, usize::MAX)?;
        let max_tokens =
            count("max_completion_tokens", chat.max_completion_tokens, 1, usize::MAX)?.or(max_tokens);
        let max_tokens = max_tokens.or(predict(chat.n_predict)?);
        let mut sampling = self.sampling.sampling(service)?;
        sampling.logprobs = chat.logprobs()?;
        let tools = chat.tools.clone().unwrap_or_default();
        messages::check_tools(&tools)?;
        let many = chat.parallel_tool_calls.unwrap_or(true);
        let (tools, call) = turn::callable(tools, &chat.tool_choice()?, many)?;
        let conversation = Conversation {
            messages: messages::check(&chat.messages, model.takes_parts())?,
            tools,
            kwargs: self.thinking.kwargs(model)?,
            tail: Tail::of(chat.add_generation_prompt, chat.continue_final_message)?,
        };
        let form = call.or(chat.form()?).or(self.form.clone());
        Ok(Turn {
            chat: conversation,
            sampling,
            stops: self.sampling.stops()?,
            ending: self.sampling.ending(model, form.as_ref())?,
            max_tokens,
            choices: self.sampling.choices()?,
            form,
            streamed,
        })
    }
}

impl ChatFields {
    fn form(&self) -> Result<Option<Form>, ApiError> {
        match &self.response_format {
            None | Some(ResponseFormat::Text) => Ok(None),
            Some(ResponseFormat::JsonObject) => Ok(Some(Form::object("response_format"))),
            Some(ResponseFormat::JsonSchema { json_schema }) => match json_schema.get("schema") {
                Some(schema) if !schema.is_null() => Ok(Some(Form::json("response_format", schema.clone()))),
                _ => {
                    let param = "response_format.json_schema.schema";
                    Err(ApiError::field(param, format!("`{param}` is missing")))
                }
            },
        }
    }

    fn logprobs(&self) -> Result<Option<usize>, ApiError> {
        let top = count("top_logprobs", self.top_logprobs, 0, TOP_LOGPROBS)?;
        match (self.logprobs.unwrap_or(false), top) {
            (true, top) => Ok(Some(top.unwrap_or(0))),
            (false, None | Some(0)) => Ok(None),
            (false, Some(_)) => Err(ApiError::field("top_logprobs", "`top_logprobs` needs `logprobs: true`")),
        }
    }

    fn tool_choice(&self) -> Result<ToolChoice, ApiError> {
        Ok(match &self.tool_choice {
            None | Some(ToolChoiceField::Word(ToolChoiceWord::Auto)) => ToolChoice::Auto,
            Some(ToolChoiceField::Word(ToolChoiceWord::None)) => ToolChoice::None,
            Some(ToolChoiceField::Word(ToolChoiceWord::Required)) => ToolChoice::Required,
            Some(ToolChoiceField::Function(tool)) if tool.r#type == "function" => {
                ToolChoice::Named(tool.function.name.clone())
            }
            Some(ToolChoiceField::Function(tool)) => {
                let why = format!("type `{}` is not known, expected `function`", tool.r#type.escape_debug());
                return Err(ApiError::field("tool_choice", why));
            }
        })
    }
}
