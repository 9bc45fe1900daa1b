//! Messages and tools as clients send them: checked, and brought into the form that templates read.

use crate::error::ApiError;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

const ROLES: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"];

/// A message, for the description of the interface; templates see all fields that the client sent.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub(crate) struct ChatMessage {
    /// Who speaks.
    role: Role,
    /// A text, or parts of type `text`.
    content: Option<Content>,
    /// What the model thought, in messages of the assistant.
    reasoning_content: Option<String>,
    /// The calls that the assistant made.
    tool_calls: Option<Vec<PastCall>>,
    /// The call that a message of role `tool` answers.
    tool_call_id: Option<String>,
    /// Of the speaker.
    name: Option<String>,
}

/// Who speaks in a message.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Role {
    System,
    Developer,
    User,
    Assistant,
    Tool,
    Function,
}

/// What a message says.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(untagged)]
enum Content {
    /// As one text.
    Text(String),
    /// In parts.
    Parts(Vec<TextPart>),
}

/// A part of a message.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
struct TextPart {
    /// `text`.
    r#type: TextType,
    /// The text.
    text: String,
}

/// The only type of part that is read.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum TextType {
    Text,
}

/// A call of an earlier turn.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
struct PastCall {
    /// Its name in this conversation.
    id: Option<String>,
    /// What was called.
    function: PastFunction,
}

/// What was called.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
struct PastFunction {
    /// The tool.
    name: String,
    /// JSON text.
    arguments: Option<String>,
}

/// A tool that the model may call.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub(crate) struct Tool {
    /// `function`.
    r#type: ToolType,
    /// What can be called.
    function: Function,
}

/// The only type of tool.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum ToolType {
    Function,
}

/// What can be called.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
struct Function {
    /// Its name.
    name: String,
    /// For the model.
    description: Option<String>,
    /// A JSON schema of its arguments.
    parameters: Option<Map<String, Value>>,
}

/// The messages, ready for a template. `takes_parts`: it reads content in parts.
pub(crate) fn check(messages: &[Value], takes_parts: bool) -> Result<Vec<Value>, ApiError> {
    if messages.is_empty() {
        return Err(ApiError::field("messages", "`messages` is empty, a conversation needs at least one"));
    }
    messages.iter().enumerate().map(|(at, m)| message(at, m, takes_parts)).collect()
}

fn message(at: usize, value: &Value, takes_parts: bool) -> Result<Value, ApiError> {
    let wrong = |field: &str, why: &str| {
        let place = format!("messages[{at}]{field}");
        ApiError::field(place.clone(), format!("`{place}` {why}"))
    };
    let mut message = value.as_object().cloned().ok_or_else(|| wrong("", "must be an object"))?;
    let role = message.get("role").and_then(Value::as_str).ok_or_else(|| wrong(".role", "must be a text"))?;
    if !ROLES.contains(&role) {
        let why = format!("is `{}`, expected one of {}", role.escape_debug(), ROLES.join(", "));
        return Err(wrong(".role", &why));
    }
    // Templates do not know OpenAI's newer word for it.
    if role == "developer" {
        message.insert("role".into(), "system".into());
    }
    match message.get("content") {
        None | Some(Value::Null | Value::String(_)) => {}
        Some(Value::Array(parts)) => {
            let texts = texts(parts).map_err(|(i, why)| wrong(&format!(".content[{i}]"), &why))?;
            if !takes_parts {
                message.insert("content".into(), texts.join("\n").into());
            }
        }
        Some(_) => return Err(wrong(".content", "must be a text or a list of parts")),
    }
    if let Some(calls) = message.get("tool_calls").filter(|c| !c.is_null()) {
        let calls = calls.as_array().ok_or_else(|| wrong(".tool_calls", "must be a list"))?;
        let is_call = |c: &Value| {
            let holder = c.get("function").unwrap_or(c);
            holder.get("name").is_some_and(Value::is_string)
        };
        if let Some(i) = calls.iter().position(|c| !is_call(c)) {
            return Err(wrong(&format!(".tool_calls[{i}]"), "must be an object that names a function"));
        }
    }
    // Templates ask whether there are calls, not whether there are any.
    message.retain(|name, value| !(name == "tool_calls" && is_nothing(value)));
    Ok(Value::Object(message))
}

fn is_nothing(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

/// The texts of content in parts; else the part that is none, and why.
fn texts(parts: &[Value]) -> Result<Vec<&str>, (usize, String)> {
    let text = |(i, part): (usize, &'_ Value)| -> Result<_, (usize, String)> {
        if let Value::String(_) = part {
            return Ok(i);
        }
        match part.get("type").and_then(Value::as_str) {
            Some("text" | "input_text" | "output_text") if part.get("text").is_some_and(Value::is_string) => {
                Ok(i)
            }
            Some("text" | "input_text" | "output_text") => Err((i, "must have a `text`".into())),
            Some(kind) => {
                Err((i, format!("is of type `{}`: this model reads text only", kind.escape_debug())))
            }
            None => Err((i, "must have a `type`".into())),
        }
    };
    parts.iter().enumerate().map(text).collect::<Result<Vec<_>, _>>()?;
    Ok(parts.iter().filter_map(|p| p.as_str().or_else(|| p.get("text")?.as_str())).collect())
}

/// Are these functions that can be called?
pub(crate) fn check_tools(tools: &[Value]) -> Result<(), ApiError> {
    for (at, tool) in tools.iter().enumerate() {
        let wrong = |field: &str, why: &str| {
            let place = format!("tools[{at}]{field}");
            ApiError::field(place.clone(), format!("`{place}` {why}"))
        };
        match tool.get("type").and_then(Value::as_str) {
            Some("function") => {}
            Some(other) => {
                let why = format!("is `{}`: only functions can be called", other.escape_debug());
                return Err(wrong(".type", &why));
            }
            None => return Err(wrong(".type", "is missing, expected `function`")),
        }
        if tool_name(tool).is_none_or(str::is_empty) {
            return Err(wrong(".function.name", "is missing"));
        }
        if tool["function"].get("parameters").is_some_and(|p| !(p.is_object() || p.is_null())) {
            return Err(wrong(".function.parameters", "must be a JSON schema, an object"));
        }
    }
    Ok(())
}

/// The name of a tool in OpenAI's form.
pub(crate) fn tool_name(tool: &Value) -> Option<&str> {
    tool.get("function")?.get("name")?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a2_what_is_no_message_is_named() {
        let refused = |messages: Value, param: &str| {
            let e = check(messages.as_array().unwrap(), false).unwrap_err();
            assert_eq!(e.param.as_deref(), Some(param), "{messages}");
        };
        refused(json!([]), "messages");
        refused(json!([null]), "messages[0]");
        refused(json!([{"content": "x"}]), "messages[0].role");
        refused(json!([{"role": "alien", "content": "x"}]), "messages[0].role");
        refused(json!([{"role": "user", "content": 7}]), "messages[0].content");
        let image = json!([{"type": "image_url", "image_url": {"url": "data:"}}]);
        refused(json!([{"role": "user", "content": image}]), "messages[0].content[0]");
        refused(json!([{"role": "assistant", "tool_calls": [1]}]), "messages[0].tool_calls[0]");
    }

    #[test]
    fn messages_become_what_templates_read() {
        let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        let given = [json!({"role": "developer", "content": parts, "tool_calls": []})];
        assert_eq!(check(&given, false).unwrap(), [json!({"role": "system", "content": "a\nb"})]);
        assert_eq!(check(&given, true).unwrap(), [json!({"role": "system", "content": parts})]);
    }

    #[test]
    fn tools_are_functions() {
        let check = |tool: Value, param: Option<&str>| {
            let e = check_tools(std::slice::from_ref(&tool)).err().and_then(|e| e.param);
            assert_eq!(e.as_deref(), param, "{tool}");
        };
        check(json!({"type": "function", "function": {"name": "f"}}), None);
        check(json!({"type": "function", "function": {"name": "f", "parameters": null}}), None);
        check(json!({"type": "function", "function": {}}), Some("tools[0].function.name"));
        check(json!({"type": "web_search"}), Some("tools[0].type"));
        check(json!(1), Some("tools[0].type"));
    }
}
