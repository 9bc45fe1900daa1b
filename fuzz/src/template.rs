//! Chat templates: strangers' programs, and strangers' conversations for honest ones.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use shardwright_gguf::{Meta, Strings};
use shardwright_text::template::{ChatTemplate, TemplateInput};
use shardwright_text::tokenizer::Tokenizer;

use crate::tokenizer::spell;
use crate::{Input, one_line};

/// The role that an honest template gives to each message.
const USER: &str = "<|user|>";

/// A tokenizer with a few markers.
static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
    let bytes = (0..=255).map(|b| spell(b).to_string());
    let tokens: Vec<String> =
        bytes.chain([USER, "<|assistant|>", "[gMASK]", "<think>"].map(str::to_owned)).collect();
    let mut meta = Meta::new();
    meta.set("tokenizer.ggml.model", "gpt2");
    meta.set("tokenizer.ggml.pre", "glm4");
    meta.set("tokenizer.ggml.token_type", [vec![1; 256], vec![3; 4]].concat());
    meta.set("tokenizer.ggml.tokens", tokens.iter().collect::<Strings>());
    meta.set("tokenizer.ggml.merges", Strings::default());
    Tokenizer::from_meta(&meta).expect("a good vocabulary")
});

static HONEST: LazyLock<ChatTemplate> = LazyLock::new(|| {
    let source = "{% for m in messages %}<|user|>{{ m.content }}{{ m | tojson }}{% endfor %}";
    ChatTemplate::from_source(source).expect("a good template")
});

/// A template and a conversation.
pub fn template(data: &[u8]) {
    let mut input = Input::new(data);
    let flags = input.byte();
    let source = input.text();
    let conversation: Value = serde_json::from_slice(input.rest()).unwrap_or_else(|_| usual());
    let list = |key: &str| conversation[key].as_array().cloned().unwrap_or_default();
    let (messages, tools) = (list("messages"), list("tools"));
    let kwargs: Map<String, Value> = conversation["kwargs"].as_object().cloned().unwrap_or_default();
    let input = TemplateInput {
        messages: &messages,
        tools: &tools,
        kwargs: &kwargs,
        add_generation_prompt: flags & 1 == 1,
        bos: "<s>",
        eos: "</s>",
        now: 1_772_366_645,
        markers: (flags & 2 == 2).then(|| TOKENIZER.markers()),
    };
    if !source.is_empty() {
        stranger(&source, &input);
    }
    honest(&TemplateInput { markers: Some(TOKENIZER.markers()), ..input });
}

/// Any answer will do that comes soon.
fn stranger(source: &str, input: &TemplateInput<'_>) {
    let rendered = ChatTemplate::from_source(source).and_then(|t| t.render(input));
    match rendered {
        Ok(rendered) => {
            TOKENIZER.encode_segments(&rendered.segments).expect("it has a token for each byte");
        }
        Err(e) => one_line(&e),
    }
}

/// No message speaks as somebody else.
fn honest(input: &TemplateInput<'_>) {
    let rendered = match HONEST.render(input) {
        Ok(rendered) => rendered,
        Err(e) => return one_line(&e),
    };
    rendered.warnings.iter().for_each(one_line);
    let ids = TOKENIZER.encode_segments(&rendered.segments).expect("it has a token for each byte");
    let user = TOKENIZER.token_id(USER).expect("it is in the list");
    let roles =
        ids.iter().filter(|id| **id >= user && TOKENIZER.token_text(**id).is_none_or(|t| t != "<think>"));
    assert_eq!(roles.count(), input.messages.len());
}

/// What a template is tried on where the input has no conversation.
fn usual() -> Value {
    let call =
        json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\": [1, {}]}"}});
    json!({
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": [{"type": "text", "text": "<|user|>"}]},
            {"role": "assistant", "content": "", "reasoning_content": "r", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "4.50"},
            {"role": "user", "content": "q"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        "kwargs": {"enable_thinking": true, "x": [0.1, null, "é"]},
    })
}
