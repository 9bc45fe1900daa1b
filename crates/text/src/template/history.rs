//! Tool calls of earlier turns: clients send their arguments as text, most templates want an object.

use std::borrow::Cow;

use serde_json::{Map, Value as Json, json};
use shardwright_gguf::short;

use super::{ChatTemplate, TemplateInput};

/// How a template wants the arguments of earlier calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arguments {
    /// As objects.
    Objects,
    /// As JSON text.
    Texts,
}

/// Finds out by trying: a template that adds arguments to a text fails on an object.
pub(super) fn wanted_arguments(template: &ChatTemplate) -> Arguments {
    let kwargs = Map::new();
    let works = |arguments: Json| {
        let call = json!({"id": "call_0", "type": "function", "function": {"name": "probe", "arguments": arguments}});
        let messages = [
            json!({"role": "user", "content": "probe"}),
            json!({"role": "assistant", "content": "", "tool_calls": [call]}),
        ];
        let input = TemplateInput {
            messages: &messages,
            tools: &[],
            kwargs: &kwargs,
            add_generation_prompt: false,
            bos: "",
            eos: "",
            now: 0,
            markers: None,
        };
        template.render_messages(&input, &messages).is_ok()
    };
    match !works(json!({"probe": "probe"})) && works(json!(r#"{"probe": "probe"}"#)) {
        true => Arguments::Texts,
        false => Arguments::Objects,
    }
}

/// The messages with all arguments in the wanted form. What is no JSON object becomes an empty one, with a warning:
/// a call that was cut off must not make the rest of the conversation unusable.
pub(super) fn with_arguments<'a>(
    messages: &'a [Json],
    wanted: Arguments,
    warnings: &mut Vec<String>,
) -> Cow<'a, [Json]> {
    if messages.iter().all(|m| m.get("tool_calls").is_none()) {
        return Cow::Borrowed(messages);
    }
    let mut messages = messages.to_vec();
    for (at, message) in messages.iter_mut().enumerate() {
        let calls = message.get_mut("tool_calls").and_then(Json::as_array_mut).into_iter().flatten();
        for call in calls {
            // Some clients leave out the "function" level.
            let holder = if call.get("function").is_some() { &mut call["function"] } else { call };
            let name = holder.get("name").and_then(Json::as_str).unwrap_or_default().to_owned();
            let Some(arguments) = holder.get_mut("arguments") else { continue };
            if let Err(why) = convert(arguments, wanted) {
                warnings.push(format!(
                    "message {at}: the arguments of the call of `{}` {why}; taken as {{}}",
                    short(&name)
                ));
            }
        }
    }
    Cow::Owned(messages)
}

fn convert(arguments: &mut Json, wanted: Arguments) -> Result<(), String> {
    let object = match &*arguments {
        Json::String(text) if text.trim().is_empty() => Ok(Map::new()),
        Json::String(text) => match serde_json::from_str(text) {
            Ok(Json::Object(map)) => Ok(map),
            Ok(_) => Err("are no JSON object".to_owned()),
            Err(e) => Err(format!("are not valid JSON ({e})")),
        },
        Json::Object(map) => Ok(map.clone()),
        Json::Null => Ok(Map::new()),
        _ => Err("are no JSON object".to_owned()),
    };
    let is_text = arguments.is_string();
    let (object, fault) = match object {
        Ok(map) if wanted == Arguments::Texts && is_text && !map.is_empty() => return Ok(()),
        Ok(map) => (map, None),
        Err(why) => (Map::new(), Some(why)),
    };
    *arguments = match wanted {
        Arguments::Objects => Json::Object(object),
        Arguments::Texts => Json::String(Json::Object(object).to_string()),
    };
    fault.map_or(Ok(()), Err)
}
