//! Messages and tools of this API, checked, and brought into the form of chats.

use crate::error::ApiError;
use serde_json::{Map, Value, json};

/// A block of a message.
enum Block<'a> {
    Text(&'a str),
    Thought(&'a str),
    /// A thought that only its author can read.
    Sealed,
    Call {
        id: &'a str,
        name: &'a str,
        input: &'a Map<String, Value>,
    },
    Result {
        id: &'a str,
        content: Option<&'a Value>,
    },
}

fn wrong(place: &str, why: &str) -> ApiError {
    ApiError::field(place, format!("`{place}` {why}"))
}

/// The messages of the chat.
pub(super) fn messages(system: Option<&Value>, given: &[Value]) -> Result<Vec<Value>, ApiError> {
    let mut chat = Vec::new();
    if let Some(system) = system.filter(|s| !s.is_null()) {
        let parts = texts("system", system)?;
        if !parts.is_empty() {
            chat.push(json!({"role": "system", "content": content(&parts)}));
        }
    }
    let Some(last) = given.last() else {
        return Err(wrong("messages", "is empty, a conversation needs at least one"));
    };
    for (at, message) in given.iter().enumerate() {
        add(&mut chat, &format!("messages[{at}]"), message)?;
    }
    match last["role"] == "assistant" {
        false => Ok(chat),
        true => {
            let place = format!("messages[{}]", given.len() - 1);
            Err(wrong(&place, "is the assistant's: its turn always begins anew, end with the user's"))
        }
    }
}

fn add(chat: &mut Vec<Value>, place: &str, message: &Value) -> Result<(), ApiError> {
    if !message.is_object() {
        return Err(wrong(place, "must be an object"));
    }
    let (of, what) = (format!("{place}.content"), &message["content"]);
    match message["role"].as_str() {
        Some("user") => user(chat, &of, what),
        Some("assistant") => {
            chat.push(assistant(&of, what)?);
            Ok(())
        }
        Some("system") => {
            chat.push(json!({"role": "system", "content": content(&texts(&of, what)?)}));
            Ok(())
        }
        _ => Err(wrong(&format!("{place}.role"), "must be `user`, `assistant` or `system`")),
    }
}

/// What the user says, and what tools returned: messages of their own in chats.
fn user(chat: &mut Vec<Value>, place: &str, what: &Value) -> Result<(), ApiError> {
    let begun = chat.len();
    let mut said = Vec::new();
    for (place, block) in blocks(place, what)? {
        match block {
            Block::Text(text) => said.push(text),
            Block::Result { id, content: output } => {
                if !said.is_empty() {
                    chat.push(json!({"role": "user", "content": content(&std::mem::take(&mut said))}));
                }
                let output = output.map(|o| texts(&format!("{place}.content"), o)).transpose()?;
                let output = content(&output.unwrap_or_default());
                chat.push(json!({"role": "tool", "tool_call_id": id, "content": output}));
            }
            _ => return Err(wrong(&place, "is what only the assistant can say")),
        }
    }
    if !said.is_empty() || chat.len() == begun {
        chat.push(json!({"role": "user", "content": content(&said)}));
    }
    Ok(())
}

/// What the assistant said: thoughts, text and calls are one message in chats.
fn assistant(place: &str, what: &Value) -> Result<Value, ApiError> {
    let (mut said, mut thoughts, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for (place, block) in blocks(place, what)? {
        match block {
            Block::Text(text) => said.push(text),
            Block::Thought(text) => thoughts.push(text),
            Block::Sealed => {}
            Block::Call { id, name, input } => {
                let function = json!({"name": name, "arguments": json!(input).to_string()});
                calls.push(json!({"id": id, "type": "function", "function": function}));
            }
            Block::Result { .. } => return Err(wrong(&place, "is what only the user can say")),
        }
    }
    let mut message = json!({"role": "assistant", "content": content(&said)});
    if !thoughts.is_empty() {
        message["reasoning_content"] = thoughts.join("\n").into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    Ok(message)
}

/// One text stays one.
fn content(texts: &[&str]) -> Value {
    match texts {
        [] => "".into(),
        [text] => (*text).into(),
        _ => texts.iter().map(|text| json!({"type": "text", "text": text})).collect(),
    }
}

fn texts<'a>(place: &str, value: &'a Value) -> Result<Vec<&'a str>, ApiError> {
    let text = |(place, block): (String, Block<'a>)| match block {
        Block::Text(text) => Ok(text),
        _ => Err(wrong(&place, "must be of type `text`")),
    };
    blocks(place, value)?.into_iter().map(text).collect()
}

/// The blocks with their places; a text is a block, too.
fn blocks<'a>(place: &str, value: &'a Value) -> Result<Vec<(String, Block<'a>)>, ApiError> {
    match value {
        Value::String(text) => Ok(vec![(place.to_owned(), Block::Text(text))]),
        Value::Array(list) => {
            let read = |(at, value): (usize, &'a Value)| {
                let place = format!("{place}[{at}]");
                block(&place, value).map(|block| (place, block))
            };
            list.iter().enumerate().map(read).collect()
        }
        _ => Err(wrong(place, "must be a text or a list of blocks")),
    }
}

fn block<'a>(place: &str, value: &'a Value) -> Result<Block<'a>, ApiError> {
    let text = |name: &str| {
        let found = value.get(name).and_then(Value::as_str);
        found.ok_or_else(|| wrong(&format!("{place}.{name}"), "must be a text"))
    };
    let kind = value.get("type").and_then(Value::as_str);
    match kind.ok_or_else(|| wrong(place, "must be an object with a `type`"))? {
        "text" => text("text").map(Block::Text),
        "thinking" => text("thinking").map(Block::Thought),
        "redacted_thinking" => Ok(Block::Sealed),
        "tool_use" => {
            let input = value.get("input").and_then(Value::as_object);
            let input = input.ok_or_else(|| wrong(&format!("{place}.input"), "must be an object"))?;
            Ok(Block::Call { id: text("id")?, name: text("name")?, input })
        }
        "tool_result" => {
            let content = value.get("content").filter(|c| !c.is_null());
            Ok(Block::Result { id: text("tool_use_id")?, content })
        }
        kind => {
            Err(wrong(place, &format!("is of type `{}`: this model reads text only", kind.escape_debug())))
        }
    }
}

/// The tools in the form of chats.
pub(super) fn tools(given: &[Value]) -> Result<Vec<Value>, ApiError> {
    let tool = |(at, tool): (usize, &Value)| {
        let place = |field: &str| format!("tools[{at}]{field}");
        let fields = tool.as_object().ok_or_else(|| wrong(&place(""), "must be an object"))?;
        match fields.get("type") {
            None | Some(Value::Null) => {}
            Some(kind) if kind == "custom" => {}
            Some(kind) => {
                let why = format!("is {kind}: only tools that bring an `input_schema` can be called");
                return Err(wrong(&place(".type"), &why));
            }
        }
        let name = fields.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| wrong(&place(".name"), "is missing"))?;
        let schema = fields.get("input_schema").filter(|s| s.is_object());
        let schema =
            schema.ok_or_else(|| wrong(&place(".input_schema"), "must be a JSON schema, an object"))?;
        let mut function = json!({"name": name});
        if let Some(text) = fields.get("description").filter(|d| d.is_string()) {
            function["description"] = text.clone();
        }
        function["parameters"] = schema.clone();
        Ok(json!({"type": "function", "function": function}))
    };
    given.iter().enumerate().map(tool).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_become_messages() {
        let system = json!([{"type": "text", "text": "be kind", "cache_control": {"type": "ephemeral"}}]);
        let given = json!([
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "any"}, {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "Sure."},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"b": 1, "a": "x"}},
                {"type": "tool_use", "id": "t2", "name": "g", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "one", "is_error": false},
                {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "two"}]},
                {"type": "tool_result", "tool_use_id": "t3"},
                {"type": "text", "text": "a", "unheard_of": 1}, {"type": "text", "text": "b"}]},
        ]);
        let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
        let result = |id: &str, text: &str| json!({"role": "tool", "tool_call_id": id, "content": text});
        let expected = [
            json!({"role": "system", "content": "be kind"}),
            json!({"role": "user", "content": "q"}),
            json!({"role": "assistant", "content": "Sure.", "reasoning_content": "hm",
                "tool_calls": [call("t1", "f", r#"{"b":1,"a":"x"}"#), call("t2", "g", "{}")]}),
            result("t1", "one"),
            result("t2", "two"),
            result("t3", ""),
            json!({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
        ];
        assert_eq!(messages(Some(&system), given.as_array().unwrap()).unwrap(), expected);
    }

    #[test]
    fn what_is_no_message_is_named() {
        let check = |given: Value, param: &str| {
            let e = messages(None, given.as_array().unwrap()).unwrap_err();
            assert_eq!(e.param.as_deref(), Some(param), "{given}");
        };
        let user = |content: Value| json!([{"role": "user", "content": content}]);
        check(json!([]), "messages");
        check(json!([7]), "messages[0]");
        check(json!([{"content": "x"}]), "messages[0].role");
        check(json!([{"role": "tool", "content": "x"}]), "messages[0].role");
        check(json!([{"role": "user"}]), "messages[0].content");
        check(json!([{"role": "assistant", "content": "The answer is ("}]), "messages[0]");
        check(user(json!(["x"])), "messages[0].content[0]");
        check(user(json!([{"type": "text"}])), "messages[0].content[0].text");
        check(user(json!([{"type": "image", "source": {}}])), "messages[0].content[0]");
        check(user(json!([{"type": "document", "source": {}}])), "messages[0].content[0]");
        check(user(json!([{"type": "thinking", "thinking": "x"}])), "messages[0].content[0]");
        check(user(json!([{"type": "tool_result"}])), "messages[0].content[0].tool_use_id");
        let nested = json!([{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image", "source": {}}]}]);
        check(user(nested), "messages[0].content[0].content[0]");
        let call = json!([{"type": "tool_use", "id": "t", "name": "f", "input": "x"}]);
        check(json!([{"role": "assistant", "content": call}]), "messages[0].content[0].input");
    }

    #[test]
    fn tools_bring_a_schema() {
        let check = |tool: Value, param: Option<&str>| {
            let e = tools(std::slice::from_ref(&tool)).err().and_then(|e| e.param);
            assert_eq!(e.as_deref(), param, "{tool}");
        };
        check(json!({"name": "f", "input_schema": {}}), None);
        check(json!({"type": "custom", "name": "f", "input_schema": {}, "cache_control": null}), None);
        check(json!({"type": "web_search_20250305", "name": "web_search"}), Some("tools[0].type"));
        check(json!({"input_schema": {}}), Some("tools[0].name"));
        check(json!({"name": "f"}), Some("tools[0].input_schema"));
        check(json!("f"), Some("tools[0]"));
    }
}
