//! The model as clients see it: its names, its words, its chat template, its context.

use crate::error::ApiError;
use crate::form::Form;
use crate::tail::{self, Tail};
use serde_json::{Map, Value, json};
use shardwright_engine::Error as EngineError;
use shardwright_engine::grammar::Grammars;
use shardwright_engine::guide::Guide;
use shardwright_text::reply::Syntax;
use shardwright_text::template::{ChatTemplate, TemplateInput};
use shardwright_text::tokenizer::{Special, Tokenizer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// What a model is made of.
#[derive(Debug)]
pub struct Parts {
    /// What clients may call it; the first is its own name, and there must be one.
    pub names: Vec<String>,
    /// Words to ids and back.
    pub tokenizer: Arc<Tokenizer>,
    /// Conversations to prompts; without one only texts can be continued.
    pub template: Option<ChatTemplate>,
    /// How it writes reasoning and tool calls; None = what the template teaches.
    pub syntax: Option<Syntax>,
    /// Most tokens of prompt and answer.
    pub context: usize,
    /// Rows of its logits.
    pub vocab: usize,
    /// Variables that every conversation's template sees, unless the request says otherwise.
    pub kwargs: Map<String, Value>,
}

/// A model that can be asked.
#[derive(Debug)]
pub struct Model {
    parts: Parts,
    syntax: Syntax,
    takes_parts: bool,
    never: BTreeSet<u32>,
    marks: BTreeMap<&'static str, u32>,
    created: u64,
    grammars: Result<Grammars, EngineError>,
}

/// A prompt, ready.
#[derive(Clone, Debug)]
pub(crate) struct Prompt {
    /// Token ids.
    pub(crate) ids: Vec<u32>,
    /// The text that they come from.
    pub(crate) text: String,
}

/// A conversation as a template sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conversation {
    /// Checked by [`crate::messages::check`].
    pub(crate) messages: Vec<Value>,
    /// In OpenAI's form; none if the model must not call any.
    pub(crate) tools: Vec<Value>,
    /// More variables.
    pub(crate) kwargs: Map<String, Value>,
    /// How it ends in the prompt.
    pub(crate) tail: Tail,
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

impl Model {
    /// Looks at the template, and which tokens must never come.
    pub fn new(parts: Parts) -> Model {
        let template = parts.template.as_ref();
        // Rows of the logits that have no token, and tokens that are mere padding.
        let nameless = parts.tokenizer.vocab_len() as u32..parts.vocab as u32;
        let syntax = parts.syntax.or(template.map(|t| Syntax::detect(t.source()))).unwrap_or(Syntax::NONE);
        let mark = |mark: &'static str| Some((mark, parts.tokenizer.token_id(mark)?));
        let marks: BTreeMap<_, _> = syntax.marks().filter_map(mark).collect();
        Model {
            syntax,
            takes_parts: template.is_some_and(takes_parts),
            never: nameless.chain(parts.tokenizer.unusable_tokens().iter().copied()).collect(),
            created: now(),
            grammars: Grammars::new(&parts.tokenizer, parts.vocab, marks.values().copied()),
            marks,
            parts,
        }
    }

    /// Its own name.
    pub fn name(&self) -> &str {
        self.parts.names.first().map_or("model", String::as_str)
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.parts.names
    }

    pub(crate) fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.parts.tokenizer
    }

    pub(crate) fn syntax(&self) -> Syntax {
        self.syntax
    }

    /// Does the template read content that comes in parts?
    pub(crate) fn takes_parts(&self) -> bool {
        self.takes_parts
    }

    pub(crate) fn context(&self) -> usize {
        self.parts.context
    }

    /// Rows of its logits.
    pub(crate) fn vocab(&self) -> usize {
        self.parts.vocab
    }

    pub(crate) fn created(&self) -> u64 {
        self.created
    }

    pub(crate) fn kwargs(&self) -> &Map<String, Value> {
        &self.parts.kwargs
    }

    pub(crate) fn never(&self) -> &BTreeSet<u32> {
        &self.never
    }

    /// The marks of its syntax that are one token.
    pub(crate) fn marks(&self) -> &BTreeMap<&'static str, u32> {
        &self.marks
    }

    /// Does the template speak of this word as a text of its own, such as `"high"`?
    pub(crate) fn template_names(&self, word: &str) -> bool {
        let source = self.parts.template.as_ref().map_or("", ChatTemplate::source);
        ['"', '\''].iter().any(|quote| source.contains(&format!("{quote}{word}{quote}")))
    }

    /// What holds an answer to a prompt to its form.
    pub(crate) fn guide(&self, form: &Form, prompt: &str) -> Result<Box<dyn Guide>, ApiError> {
        let refused = |e: EngineError| match e {
            EngineError::Grammar { .. } => ApiError::field(form.field, format!("`{}`: {e}", form.field)),
            e => e.into(),
        };
        let grammars = self.grammars.as_ref().map_err(|e| refused(e.clone()))?;
        let grammar = form.grammar(&self.parts.tokenizer, self.syntax, prompt)?;
        grammars.guide(&grammar).map_err(refused)
    }

    /// Is this one of its names? An absent one is.
    pub(crate) fn check_name(&self, name: Option<&str>) -> Result<(), ApiError> {
        let Some(name) = name.filter(|name| !self.parts.names.iter().any(|n| n == name)) else {
            return Ok(());
        };
        let known = self.parts.names.join("`, `");
        let message = format!("there is no model `{}` here, only `{known}`", name.escape_debug());
        Err(ApiError {
            code: Some("model_not_found"),
            status: axum::http::StatusCode::NOT_FOUND,
            ..ApiError::field("model", message)
        })
    }

    /// A text to be continued. Texts of control tokens are taken for those tokens: who writes a prompt may write them.
    pub(crate) fn raw(&self, text: &str) -> Result<Prompt, ApiError> {
        let ids = self.begun(self.encode(text, Special::Parse)?);
        Ok(Prompt { ids, text: text.to_owned() })
    }

    /// The tokens of a text, unless it is hopelessly long.
    pub(crate) fn encode(&self, text: &str, special: Special) -> Result<Vec<u32>, ApiError> {
        self.has_hope(self.parts.tokenizer.least(text))?;
        Ok(self.parts.tokenizer.encode(text, special)?)
    }

    /// Might so many tokens at least fit? Asked before a text is tokenized, which may take long.
    fn has_hope(&self, least: usize) -> Result<(), ApiError> {
        match least <= self.parts.context {
            true => Ok(()),
            false => {
                let context = self.parts.context;
                let why = format!("the prompt has at least {least} tokens, but the context holds {context}");
                Err(ApiError::too_long(why))
            }
        }
    }

    /// A conversation to be answered.
    pub(crate) fn chat(&self, chat: &Conversation) -> Result<Prompt, ApiError> {
        let tokenizer = &*self.parts.tokenizer;
        let Some(template) = &self.parts.template else {
            let why =
                "this model's file has no chat template; use /v1/completions, or start the server with one";
            return Err(ApiError::field("messages", why));
        };
        let spelled = |id: Option<u32>| id.and_then(|id| tokenizer.token_text(id)).unwrap_or_default();
        let mut rendered = template.render(&TemplateInput {
            messages: &chat.messages,
            tools: &chat.tools,
            kwargs: &chat.kwargs,
            add_generation_prompt: chat.tail == Tail::Opened,
            bos: spelled(tokenizer.bos()),
            eos: spelled(tokenizer.eos()),
            now: now() as i64,
            markers: Some(tokenizer.markers()),
        })?;
        for warning in &rendered.warnings {
            tracing::warn!("{warning}");
        }
        if chat.tail == Tail::Continued {
            tail::leave_open(&mut rendered.segments, &chat.messages)?;
        }
        let text = rendered.text();
        self.has_hope(tokenizer.least(&text))?;
        let ids = self.begun(tokenizer.encode_segments(&rendered.segments)?);
        Ok(Prompt { ids, text })
    }

    /// With the token that a text begins with, if the file wants one and it is not there.
    fn begun(&self, mut ids: Vec<u32>) -> Vec<u32> {
        if let Some(bos) = self.parts.tokenizer.prefix().filter(|bos| ids.first() != Some(bos)) {
            ids.insert(0, bos);
        }
        ids
    }
}

/// Finds out by trying: some templates read only texts, and would print a list as it is.
fn takes_parts(template: &ChatTemplate) -> bool {
    const PROBE: &str = "probe-of-parts";
    let messages = [json!({"role": "user", "content": [{"type": "text", "text": PROBE}]})];
    let rendered = template.render(&TemplateInput {
        messages: &messages,
        tools: &[],
        kwargs: &Map::new(),
        add_generation_prompt: true,
        bos: "",
        eos: "",
        now: 0,
        markers: None,
    });
    rendered.is_ok_and(|r| {
        let text = r.text();
        text.contains(PROBE) && !text.contains("'text'") && !text.contains("\"text\"")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_tell_whether_they_read_parts() {
        let check = |source: &str, expected: bool| {
            assert_eq!(takes_parts(&ChatTemplate::from_source(source).unwrap()), expected, "{source}");
        };
        check("{{ messages[-1]['content'] }}", false);
        check("{{ messages[-1]['content'] | tojson }}", false);
        check("{{ messages[-1].content[0].text }}", true);
        check("{{ 'x' + messages[-1].content }}", false);
    }
}
