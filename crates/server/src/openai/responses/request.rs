//! What a request for a response says, and the chat that it means.

use crate::app::Service;
use crate::body::{FromJson, part};
use crate::error::ApiError;
use crate::form::Form;
use crate::messages;
use crate::model::Conversation;
use crate::refuse::refuse;
use crate::sampling::{SamplingFields, count};
use crate::tail::Tail;
use crate::thinking::ThinkingFields;
use crate::turn::{self, ToolChoice, Turn};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

/// A conversation to be answered. Nothing is kept: each request brings the whole conversation.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ResponsesRequest {
    #[serde(flatten)]
    pub(crate) fields: ResponsesFields,
    #[serde(flatten)]
    pub(crate) sampling: SamplingFields,
    #[serde(flatten)]
    pub(crate) thinking: ThinkingFields,
}

/// The fields of responses alone.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub(crate) struct ResponsesFields {
    /// One of the model's names.
    model: Option<String>,
    /// A text, or messages, calls and their results.
    input: Input,
    /// What the model is told before the conversation.
    pub(super) instructions: Option<String>,
    /// Most tokens of the answer.
    #[schema(minimum = 1)]
    pub(super) max_output_tokens: Option<i64>,
    /// Send events as the answer comes?
    pub(super) stream: Option<bool>,
    /// What the model may call: `{"type": "function", "name": ..., "parameters": ...}`.
    #[schema(value_type = Option<Vec<Map<String, Value>>>)]
    pub(super) tools: Option<Vec<Value>>,
    /// `auto`, `none`, `required`, or `{"type": "function", "name": ...}`.
    #[schema(value_type = Option<Value>)]
    pub(super) tool_choice: Option<Value>,
    /// May there be several calls in one answer?
    pub(super) parallel_tool_calls: Option<bool>,
    /// How much to think.
    pub(super) reasoning: Option<Reasoning>,
    /// The form of the answer.
    text: Option<TextField>,
    /// Not kept here.
    previous_response_id: Option<String>,
    /// Not kept here.
    conversation: Option<Value>,
    /// Not kept here.
    prompt: Option<Value>,
    /// Answers are not computed behind a client's back.
    background: Option<bool>,
    /// Given back.
    pub(super) metadata: Option<Map<String, Value>>,
}

/// What is to be answered.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(untagged)]
enum Input {
    /// What the user says.
    Text(String),
    /// Messages, calls and their results.
    #[schema(value_type = Vec<Map<String, Value>>)]
    Items(Vec<Value>),
}

/// How much to think.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub(crate) struct Reasoning {
    /// `none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`.
    pub(super) effort: Option<String>,
    /// Thoughts are given as they are, never summed up.
    pub(super) summary: Option<String>,
}

/// The form of the answer.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
struct TextField {
    /// `{"type": "text"}`, `{"type": "json_object"}` or `{"type": "json_schema", "schema": ...}`.
    format: Option<Map<String, Value>>,
}

impl FromJson for ResponsesRequest {
    fn from_json(object: &Map<String, Value>) -> Result<Self, ApiError> {
        refuse(object, &[])?;
        Ok(ResponsesRequest { fields: part(object)?, sampling: part(object)?, thinking: part(object)? })
    }
}

impl ResponsesRequest {
    /// Checked. Names the field that is wrong.
    pub(super) fn turn(&self, service: &Service) -> Result<Turn, ApiError> {
        let (fields, model) = (&self.fields, &service.model);
        model.check_name(fields.model.as_deref())?;
        fields.refuse_memory()?;
        let mut thinking = self.thinking.clone();
        if let Some(effort) = fields.reasoning.as_ref().and_then(|r| r.effort.clone()) {
            thinking.reasoning_effort = Some(effort);
        }
        let many = fields.parallel_tool_calls.unwrap_or(true);
        let (tools, call) = turn::callable(fields.chat_tools()?, &fields.choice()?, many)?;
        let form = call.or(fields.form()?);
        Ok(Turn {
            chat: Conversation {
                messages: messages::check(&fields.messages()?, model.takes_parts())?,
                tools,
                kwargs: thinking.kwargs(model)?,
                tail: Tail::Opened,
            },
            sampling: self.sampling.sampling(service)?,
            stops: self.sampling.stops()?,
            ending: self.sampling.ending(model, form.as_ref())?,
            max_tokens: count("max_output_tokens", fields.max_output_tokens, 1, usize::MAX)?,
            choices: 1,
            form,
            streamed: fields.stream.unwrap_or(false),
        })
    }
}

impl ResponsesFields {
    /// As asked for.
    pub(super) fn format(&self) -> Option<&Map<String, Value>> {
        self.text.as_ref()?.format.as_ref()
    }

    fn form(&self) -> Result<Option<Form>, ApiError> {
        let Some(format) = self.format() else { return Ok(None) };
        let wrong = |why: &str| Err(ApiError::field("text.format", format!("`text.format` {why}")));
        match (format.get("type").and_then(Value::as_str), format.get("schema")) {
            (Some("text"), _) => Ok(None),
            (Some("json_object"), _) => Ok(Some(Form::object("text.format"))),
            (Some("json_schema"), Some(schema)) => Ok(Some(Form::json("text.format", schema.clone()))),
            (Some("json_schema"), None) => wrong("has no `schema`"),
            _ => wrong("must be of type `text`, `json_object` or `json_schema`"),
        }
    }

    fn refuse_memory(&self) -> Result<(), ApiError> {
        let why = "nothing is kept between requests; send the whole conversation";
        let asked = [
            ("previous_response_id", self.previous_response_id.is_some()),
            ("conversation", self.conversation.is_some()),
            ("prompt", self.prompt.is_some()),
            ("background", self.background.unwrap_or(false)),
        ];
        match asked.iter().find(|(_, asked)| *asked) {
            Some((name, _)) => Err(ApiError::unsupported(name, why)),
            None => Ok(()),
        }
    }

    /// The tools in the form of chats.
    fn chat_tools(&self) -> Result<Vec<Value>, ApiError> {
        let nested = |tool: &Value| match tool.as_object() {
            Some(flat) if flat.contains_key("name") && !flat.contains_key("function") => {
                let mut function = flat.clone();
                let kind = function.remove("type");
                json!({"type": kind, "function": function})
            }
            _ => tool.clone(),
        };
        let tools: Vec<Value> = self.tools.iter().flatten().map(nested).collect();
        messages::check_tools(&tools)?;
        Ok(tools)
    }

    fn choice(&self) -> Result<ToolChoice, ApiError> {
        let wrong = || {
            let why = "`tool_choice` must be `auto`, `none`, `required`, or an object that names a function";
            ApiError::field("tool_choice", why)
        };
        match &self.tool_choice {
            None => Ok(ToolChoice::Auto),
            Some(Value::String(word)) => match word.as_str() {
                "auto" => Ok(ToolChoice::Auto),
                "none" => Ok(ToolChoice::None),
                "required" => Ok(ToolChoice::Required),
                _ => Err(wrong()),
            },
            Some(object) => {
                let name = object.get("name").and_then(Value::as_str);
                name.filter(|_| object["type"] == "function")
                    .map(|n| ToolChoice::Named(n.into()))
                    .ok_or_else(wrong)
            }
        }
    }

    /// The messages of the chat: calls and thoughts join the assistant's message that they belong to.
    fn messages(&self) -> Result<Vec<Value>, ApiError> {
        let mut chat: Vec<Value> = Vec::new();
        if let Some(text) = &self.instructions {
            chat.push(json!({"role": "system", "content": text}));
        }
        match &self.input {
            Input::Text(text) => chat.push(json!({"role": "user", "content": text})),
            Input::Items(items) => {
                for (at, item) in items.iter().enumerate() {
                    add(&mut chat, item).map_err(|why| {
                        let place = format!("input[{at}]");
                        ApiError::field(place.clone(), format!("`{place}` {why}"))
                    })?;
                }
            }
        }
        Ok(chat)
    }
}

fn add(chat: &mut Vec<Value>, item: &Value) -> Result<(), String> {
    let text = |name: &str| {
        item.get(name).and_then(Value::as_str).ok_or_else(|| format!("must have a `{name}` that is a text"))
    };
    match item.get("type").and_then(Value::as_str).unwrap_or("message") {
        "message" => {
            let role = text("role")?;
            let content = item.get("content").cloned().unwrap_or(Value::Null);
            match (role, chat.last_mut()) {
                // thoughts that came before
                ("assistant", Some(last)) if last["role"] == "assistant" && last["content"].is_null() => {
                    last["content"] = plain(content);
                }
                _ => chat.push(json!({"role": role, "content": plain(content)})),
            }
        }
        "function_call" => {
            let function = json!({"name": text("name")?, "arguments": text("arguments")?});
            let call = json!({"id": text("call_id")?, "type": "function", "function": function});
            let message = assistant(chat);
            match message.get_mut("tool_calls").and_then(Value::as_array_mut) {
                Some(calls) => calls.push(call),
                None => message["tool_calls"] = json!([call]),
            }
        }
        "function_call_output" => {
            let output = item.get("output").cloned().unwrap_or(Value::Null);
            let id = text("call_id")?;
            chat.push(json!({"role": "tool", "tool_call_id": id, "content": plain(output)}));
        }
        "reasoning" => {
            let parts = [item.get("content"), item.get("summary")];
            let parts = parts.into_iter().flatten().filter_map(Value::as_array).find(|p| !p.is_empty());
            let texts = parts.into_iter().flatten().filter_map(|p| p.get("text")?.as_str());
            let thoughts = texts.collect::<Vec<_>>().join("\n");
            if !thoughts.is_empty() {
                chat.push(json!({"role": "assistant", "content": null, "reasoning_content": thoughts}));
            }
        }
        other => return Err(format!("is of type `{}`, which is not known here", other.escape_debug())),
    }
    Ok(())
}

/// The assistant's message that is being told of.
fn assistant(chat: &mut Vec<Value>) -> &mut Value {
    if chat.last().is_none_or(|last| last["role"] != "assistant") {
        chat.push(json!({"role": "assistant", "content": null}));
    }
    let last = chat.len() - 1;
    &mut chat[last]
}

/// Parts under the name that chats have for them.
fn plain(mut content: Value) -> Value {
    for part in content.as_array_mut().into_iter().flatten() {
        if part.get("type").is_some_and(|t| t == "input_text" || t == "output_text") {
            part["type"] = "text".into();
        }
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_become_messages() {
        let items = json!([
            {"role": "user", "content": [{"type": "input_text", "text": "q"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "one"},
            {"type": "message", "role": "assistant", "content": "a"},
        ]);
        let object = json!({"input": items, "instructions": "be kind"});
        let fields: ResponsesFields = part(object.as_object().unwrap()).unwrap();
        let call = |id: &str, name: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}});
        let expected = [
            json!({"role": "system", "content": "be kind"}),
            json!({"role": "user", "content": [{"type": "text", "text": "q"}]}),
            json!({"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [call("c1", "f"), call("c2", "g")]}),
            json!({"role": "tool", "tool_call_id": "c1", "content": "one"}),
            json!({"role": "assistant", "content": "a"}),
        ];
        assert_eq!(fields.messages().unwrap(), expected);
    }

    #[test]
    fn what_is_not_kept_is_refused_by_name() {
        for name in ["previous_response_id", "conversation", "background"] {
            let value = if name == "background" { json!(true) } else { json!("resp_1") };
            let mut object = json!({"input": "x"});
            object[name] = value;
            let fields: ResponsesFields = part(object.as_object().unwrap()).unwrap();
            assert_eq!(fields.refuse_memory().unwrap_err().param.as_deref(), Some(name));
        }
    }
}
