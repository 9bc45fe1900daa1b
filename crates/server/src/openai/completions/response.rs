//! What texts are continued with, whole or in pieces.

use crate::openai::chat::LEAST;
use crate::usage::Usage;
use serde::Serialize;
use shardwright_engine::sample::Logprobs as Found;
use shardwright_text::tokenizer::Tokenizer;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Continued texts, or, streamed, a piece of one.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Completion {
    /// Names the answer; the same in all pieces.
    pub(crate) id: String,
    /// `text_completion`.
    pub(crate) object: &'static str,
    /// Seconds since 1970.
    pub(crate) created: u64,
    /// The model's name.
    pub(crate) model: String,
    /// The texts.
    pub(crate) choices: Vec<CompletionChoice>,
    /// Tokens; streamed, in the last piece, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Usage>)]
    pub(crate) usage: Option<Option<Usage>>,
    /// Names the build.
    pub(crate) system_fingerprint: String,
}

/// One text.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CompletionChoice {
    /// Its place: choices of the first prompt, then those of the second, and so on.
    pub(crate) index: usize,
    /// What follows the prompt.
    pub(crate) text: String,
    /// How likely its tokens were, if asked for.
    pub(crate) logprobs: Option<Logprobs>,
    /// `stop` or `length`; streamed, in the last piece.
    pub(crate) finish_reason: Option<&'static str>,
}

/// How likely tokens were.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = CompletionLogprobs)]
pub(crate) struct Logprobs {
    /// Texts of the tokens.
    tokens: Vec<String>,
    /// Natural logarithms of their probabilities.
    token_logprobs: Vec<Option<f32>>,
    /// The likeliest tokens in place of each.
    top_logprobs: Vec<Option<BTreeMap<String, f32>>>,
    /// Where each begins in the text, in characters.
    text_offset: Vec<usize>,
}

impl Logprobs {
    /// One more token; `at` is where it begins. Returns where the next one does. The first token of a prompt has no
    /// probability: nothing comes before it.
    pub(super) fn push(
        &mut self,
        tokenizer: &Tokenizer,
        token: u32,
        logprobs: Option<&Found>,
        at: usize,
    ) -> usize {
        let text = |id: u32| String::from_utf8_lossy(tokenizer.token_bytes(id)).into_owned();
        let chosen = text(token);
        let next = at + chosen.chars().count();
        self.tokens.push(chosen);
        self.token_logprobs.push(logprobs.map(|l| l.chosen.max(LEAST)));
        let top = |l: &Found| l.top.iter().map(|(id, l)| (text(*id), l.max(LEAST))).collect();
        self.top_logprobs.push(logprobs.map(top));
        self.text_offset.push(at);
        next
    }
}
