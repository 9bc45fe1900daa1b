//! Fields that other servers know and this one does not honour: refused by name unless they ask for nothing.
// tidy: table

use crate::error::ApiError;
use serde_json::{Map, Value};

/// When a field asks for nothing.
enum Neutral {
    /// Only `null`, `false`, `""`, `[]` and `{}`.
    Empty,
    /// Numbers up to this, too.
    UpTo(f64),
    /// `true`, which is what happens anyway.
    True,
    /// Exactly this text.
    Text(&'static str),
}

use Neutral::{Empty, Text, True, UpTo};

/// Field, what asks for nothing, why it is refused.
const FIELDS: &[(&str, Neutral, &str)] = &[
    ("audio", Empty, "this server writes text only"),
    ("modalities", Empty, "this server writes text only"),
    ("web_search_options", Empty, "this server searches nothing"),
    ("functions", Empty, "use `tools`"),
    ("function_call", Text("none"), "use `tool_choice`"),
    ("lora", Empty, "no adapters can be loaded"),
    ("lora_request", Empty, "no adapters can be loaded"),
    ("adapter", Empty, "no adapters can be loaded"),
    ("image_data", Empty, "this model reads text only"),
    ("mm_processor_kwargs", Empty, "this model reads text only"),
    ("use_beam_search", Empty, "answers are sampled"),
    ("best_of", UpTo(1.0), "use `n`"),
    ("length_penalty", UpTo(1.0), "it belongs to beam search"),
    ("bad_words", Empty, "use `logit_bias`"),
    ("allowed_token_ids", Empty, "use `logit_bias`"),
    ("logits_processors", Empty, "programs from requests are not run"),
    ("prompt_logprobs", Empty, "only the answer's tokens are reported"),
    ("truncate_prompt_tokens", Empty, "a prompt that is too long is refused, never cut"),
    ("include_stop_str_in_output", Empty, "the stop string is never part of the answer"),
    ("skip_special_tokens", True, "control tokens are no text"),
    ("spaces_between_special_tokens", True, "control tokens are no text"),
    ("continue_final_message", Empty, "the model's turn always begins anew here; chats can be continued"),
    ("documents", Empty, "put them into a message"),
    ("mcp_servers", Empty, "this server calls no tools itself"),
    ("container", Empty, "this server calls no tools itself"),
    ("chat_template", Empty, "templates from requests are not run"),
    ("mirostat", UpTo(0.0), "use `temperature`, `top_k`, `top_p` and `min_p`"),
    ("typical_p", UpTo(1.0), "use `temperature`, `top_k`, `top_p` and `min_p`"),
    ("top_n_sigma", UpTo(0.0), "use `temperature`, `top_k`, `top_p` and `min_p`"),
    ("xtc_probability", UpTo(0.0), "use `temperature`, `top_k`, `top_p` and `min_p`"),
    ("dry_multiplier", UpTo(0.0), "use the penalties"),
    ("dynatemp_range", UpTo(0.0), "use `temperature`"),
    ("grammar", Empty, "write it in Lark's syntax, as `structured_outputs.grammar`"),
    ("kv_transfer_params", Empty, "the cache stays in this process"),
];

/// Refuses the first field that asks for something this server does not do, but for those that the endpoint honours.
pub(crate) fn refuse(object: &Map<String, Value>, honoured: &[&str]) -> Result<(), ApiError> {
    let asks = |(name, neutral, _): &&(&str, Neutral, &str)| {
        !honoured.contains(name) && object.get(*name).is_some_and(|value| !is_neutral(value, neutral))
    };
    match FIELDS.iter().find(asks) {
        Some((name, _, why)) => Err(ApiError::unsupported(name, why)),
        None => Ok(()),
    }
}

fn is_neutral(value: &Value, neutral: &Neutral) -> bool {
    let text_only = |list: &Vec<Value>| list.iter().all(|v| v == "text");
    match value {
        Value::Null => true,
        Value::Bool(b) => *b == matches!(neutral, True),
        Value::Number(n) => matches!(neutral, UpTo(most) if n.as_f64().is_some_and(|n| n <= *most)),
        Value::String(s) => s.is_empty() || matches!(neutral, Text(text) if s == text),
        Value::Array(list) => text_only(list),
        Value::Object(map) => map.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_asks_for_nothing_is_taken() {
        let check = |value: Value, expected: Option<&str>| {
            let param = refuse(value.as_object().unwrap(), &[]).err().and_then(|e| e.param);
            assert_eq!(param.as_deref(), expected, "{value}");
        };
        check(json!({"audio": null, "best_of": 1, "functions": [], "mirostat": 0}), None);
        check(json!({"modalities": ["text"], "skip_special_tokens": true, "unheard_of": 1}), None);
        check(json!({"modalities": ["text", "audio"]}), Some("modalities"));
        check(json!({"best_of": 2}), Some("best_of"));
        check(json!({"skip_special_tokens": false}), Some("skip_special_tokens"));
        check(json!({"lora": [{"id": 0, "scale": 1.0}]}), Some("lora"));
        check(json!({"continue_final_message": true}), Some("continue_final_message"));
        let continued = json!({"continue_final_message": true});
        assert!(refuse(continued.as_object().unwrap(), &["continue_final_message"]).is_ok());
        check(json!({"function_call": "none"}), None);
        check(json!({"function_call": "auto"}), Some("function_call"));
    }
}
