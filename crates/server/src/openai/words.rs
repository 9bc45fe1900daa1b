//! `/tokenize` and `/detokenize`, in the words of vLLM and of llama-server.

use crate::app::{Open, off_thread};
use crate::body::{FromJson, JsonBody, part};
use crate::error::{ApiError, Errors};
use crate::messages;
use crate::model::Conversation;
use crate::tail::Tail;
use crate::thinking::ThinkingFields;
use axum::Json;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use shardwright_text::tokenizer::Special;
use utoipa::ToSchema;

/// A text, or a conversation.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub(crate) struct TokenizeRequest {
    /// One of the model's names.
    model: Option<String>,
    /// The text.
    #[serde(alias = "content")]
    prompt: Option<String>,
    /// Instead of a text: a conversation, for the chat template.
    #[schema(value_type = Option<Vec<messages::ChatMessage>>)]
    messages: Option<Vec<Value>>,
    /// Tools that the template tells the model about.
    #[schema(value_type = Option<Vec<messages::Tool>>)]
    tools: Option<Vec<Value>>,
    /// Open the model's turn at the end of a conversation?
    add_generation_prompt: Option<bool>,
    /// Leave the last message of a conversation open instead?
    continue_final_message: Option<bool>,
    /// Begin with the token that texts of this model begin with?
    #[serde(alias = "add_special")]
    add_special_tokens: Option<bool>,
    /// Take the texts of control tokens for those tokens?
    parse_special: Option<bool>,
    /// Return the texts of the tokens too?
    #[serde(alias = "with_pieces")]
    return_token_strs: Option<bool>,
}

/// With the variables of the template.
#[derive(Debug)]
pub(crate) struct Tokenize {
    fields: TokenizeRequest,
    thinking: ThinkingFields,
}

impl FromJson for Tokenize {
    fn from_json(object: &Map<String, Value>) -> Result<Self, ApiError> {
        Ok(Tokenize { fields: part(object)?, thinking: part(object)? })
    }
}

/// Token ids.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TokenizeResponse {
    /// How many there are.
    count: usize,
    /// Most tokens of prompt and answer.
    max_model_len: usize,
    /// The ids.
    tokens: Vec<u32>,
    /// Their texts, if asked for; bytes that are no whole character show as U+FFFD.
    #[serde(skip_serializing_if = "Option::is_none")]
    token_strs: Option<Vec<String>>,
}

/// Token ids of a text or a conversation.
#[utoipa::path(post, path = "/tokenize", tag = "text", request_body = TokenizeRequest,
    responses((status = 200, body = TokenizeResponse), Errors))]
pub(crate) async fn tokenize(
    Open(service): Open,
    JsonBody(request): JsonBody<Tokenize>,
) -> Result<Json<TokenizeResponse>, ApiError> {
    let Tokenize { fields, thinking } = request;
    off_thread(move || {
        let model = &service.model;
        model.check_name(fields.model.as_deref())?;
        let tokenizer = model.tokenizer();
        let tokens = match (&fields.prompt, &fields.messages) {
            (Some(text), None) => {
                let special = fields.parse_special.unwrap_or(true);
                let ids = model.encode(text, if special { Special::Parse } else { Special::AsText })?;
                let begin = tokenizer.prefix().filter(|bos| ids.first() != Some(bos));
                let begin = begin.filter(|_| fields.add_special_tokens.unwrap_or(true));
                begin.into_iter().chain(ids).collect()
            }
            (None, Some(list)) => {
                let tools = fields.tools.unwrap_or_default();
                messages::check_tools(&tools)?;
                let chat = Conversation {
                    messages: messages::check(list, model.takes_parts())?,
                    tools,
                    kwargs: thinking.kwargs(model)?,
                    tail: Tail::of(fields.add_generation_prompt, fields.continue_final_message)?,
                };
                model.chat(&chat)?.ids
            }
            _ => return Err(ApiError::field("prompt", "give either `prompt` or `messages`")),
        };
        let text = |id: &u32| String::from_utf8_lossy(tokenizer.token_bytes(*id)).into_owned();
        let wanted = fields.return_token_strs.unwrap_or(false);
        Ok(Json(TokenizeResponse {
            count: tokens.len(),
            max_model_len: model.context(),
            token_strs: wanted.then(|| tokens.iter().map(text).collect()),
            tokens,
        }))
    })
    .await
}

/// Token ids.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub(crate) struct DetokenizeRequest {
    /// One of the model's names.
    model: Option<String>,
    /// The ids.
    tokens: Vec<u32>,
}

impl FromJson for DetokenizeRequest {
    fn from_json(object: &Map<String, Value>) -> Result<Self, ApiError> {
        part(object)
    }
}

/// Their text.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DetokenizeResponse {
    /// As vLLM calls it.
    prompt: String,
    /// The same, as llama-server calls it.
    content: String,
}

/// The text of token ids, control tokens included.
#[utoipa::path(post, path = "/detokenize", tag = "text", request_body = DetokenizeRequest,
    responses((status = 200, body = DetokenizeResponse), Errors))]
pub(crate) async fn detokenize(
    Open(service): Open,
    JsonBody(request): JsonBody<DetokenizeRequest>,
) -> Result<Json<DetokenizeResponse>, ApiError> {
    service.model.check_name(request.model.as_deref())?;
    let bytes = service.model.tokenizer().decode(&request.tokens, true)?;
    let prompt = String::from_utf8_lossy(&bytes).into_owned();
    Ok(Json(DetokenizeResponse { content: prompt.clone(), prompt }))
}
