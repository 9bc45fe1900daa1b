//! What a request to continue texts says.

use crate::app::Service;
use crate::body::{FromJson, part};
use crate::error::ApiError;
use crate::form::{self, Form};
use crate::model::{Model, Prompt};
use crate::openai::chat::StreamOptions;
use crate::refuse::refuse;
use crate::sampling::{SamplingFields, TOP_LOGPROBS, count, predict};
use crate::turn::fits;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use shardwright_engine::reader::Reader;
use shardwright_engine::request::Request;
use shardwright_engine::sample::Sampling;
use utoipa::ToSchema;

/// Most prompts of one request.
const PROMPTS: usize = 1024;

/// OpenAI's default.
const MAX_TOKENS: usize = 16;

/// Texts to be continued. Fields that are not listed are ignored, or refused by name where ignoring them would give
/// another answer than the client means.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CompletionRequest {
    #[serde(flatten)]
    pub(crate) fields: CompletionFields,
    #[serde(flatten)]
    pub(crate) sampling: SamplingFields,
    /// By vLLM's and llama-server's fields.
    #[serde(skip)]
    form: Option<Form>,
}

/// The fields of completions alone.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub(crate) struct CompletionFields {
    /// One of the model's names.
    model: Option<String>,
    /// A text, token ids, or a list of either. Texts of control tokens are taken for those tokens.
    prompt: PromptField,
    /// The text that is to follow the answer, for models that can fill in the middle.
    suffix: Option<String>,
    /// Most tokens of an answer; 16 if absent.
    #[schema(minimum = 1)]
    max_tokens: Option<i64>,
    /// The same in llama-server's words, where that is absent; -1 = until the context is full.
    #[schema(minimum = -1)]
    n_predict: Option<i64>,
    /// Begin the answer with the prompt?
    echo: Option<bool>,
    /// Report how likely each token was, and so many likeliest ones.
    #[schema(minimum = 0, maximum = 20)]
    logprobs: Option<i64>,
    /// Send the answer in pieces as it comes?
    pub(crate) stream: Option<bool>,
    /// About the pieces.
    pub(crate) stream_options: Option<StreamOptions>,
}

/// What is to be continued.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(untagged, expecting = "expected a text, token ids (whole numbers from 0), or a list of either")]
pub(crate) enum PromptField {
    /// A text.
    Text(String),
    /// Token ids.
    Ids(Vec<u32>),
    /// Texts.
    Texts(Vec<String>),
    /// Lists of token ids.
    Lists(Vec<Vec<u32>>),
}

/// Texts of the tokens that stand before what precedes the gap, before what follows it, and before what fills it.
const FILL: [[&str; 3]; 5] = [
    ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"],
    ["<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"],
    ["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"],
    ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"],
    ["<PRE>", "<SUF>", "<MID>"],
];

/// A request, ready for the engine.
pub(super) struct Ready {
    /// The choices of the first prompt, then those of the second, and so on.
    pub(super) requests: Vec<Request>,
    /// For each of them, what its text begins with.
    pub(super) echoes: Vec<String>,
    /// Tokens of all prompts, each counted once.
    pub(super) prompt_tokens: usize,
    /// Choices of a prompt.
    pub(super) choices: usize,
}

impl FromJson for CompletionRequest {
    fn from_json(object: &Map<String, Value>) -> Result<Self, ApiError> {
        refuse(object, &[])?;
        let form = form::from_fields(object)?;
        Ok(CompletionRequest { fields: part(object)?, sampling: part(object)?, form })
    }
}

impl CompletionRequest {
    /// Checked. Names the field that is wrong.
    pub(super) fn ready(&self, service: &Service) -> Result<Ready, ApiError> {
        let (fields, model) = (&self.fields, &service.model);
        model.check_name(fields.model.as_deref())?;
        if fields.stream_options.is_some() && !fields.stream.unwrap_or(false) {
            return Err(ApiError::field("stream_options", "`stream_options` needs `stream: true`"));
        }
        let echo = fields.echo.unwrap_or(false);
        // With the prompt's own probabilities there is something to say without an answer.
        let least = usize::from(!(echo && fields.logprobs.is_some()));
        let max_tokens = count("max_tokens", fields.max_tokens, least, usize::MAX)?;
        let max_tokens =
            max_tokens.or(predict(fields.n_predict)?).or(service.defaults.max_tokens).unwrap_or(MAX_TOKENS);
        let mut sampling = self.sampling.sampling(service)?;
        let ending = self.sampling.ending(model, self.form.as_ref())?;
        sampling.never = model.never().clone();
        sampling.logprobs = count("logprobs", fields.logprobs, 0, TOP_LOGPROBS)?;
        let (stops, choices) = (self.sampling.stops()?, self.sampling.choices()?);
        let prompts = fields.prompts(model)?;
        let (mut requests, mut echoes) = (Vec::new(), Vec::new());
        for prompt in &prompts {
            fits(prompt.ids.len(), model.context())?;
            for choice in 0..choices as u64 {
                let seed = sampling.seed.wrapping_add(choice);
                requests.push(Request {
                    guide: self.form.as_ref().map(|f| model.guide(f, "</think>")).transpose()?,
                    prompt_logprobs: sampling.logprobs.filter(|_| echo),
                    sampling: Sampling { seed, ..sampling.clone() },
                    max_tokens: Some(max_tokens),
                    ending: ending.clone(),
                    reader: Reader::text(model.tokenizer().clone(), &stops),
                    ..Request::new(prompt.ids.clone())
                });
                echoes.push(if echo { prompt.text.clone() } else { String::new() });
            }
        }
        let prompt_tokens = prompts.iter().map(|p| p.ids.len()).sum();
        Ok(Ready { requests, echoes, prompt_tokens, choices })
    }
}

impl CompletionFields {
    fn prompts(&self, model: &Model) -> Result<Vec<Prompt>, ApiError> {
        let prompts = match &self.prompt {
            PromptField::Text(text) => vec![self.text(model, text)?],
            PromptField::Texts(texts) => {
                few("prompt", texts.len())?;
                texts.iter().map(|text| self.text(model, text)).collect::<Result<_, _>>()?
            }
            PromptField::Ids(ids) if ids.is_empty() => Vec::new(),
            PromptField::Ids(ids) => vec![self.ids(model, ids)?],
            PromptField::Lists(lists) => {
                few("prompt", lists.len())?;
                lists.iter().map(|ids| self.ids(model, ids)).collect::<Result<_, _>>()?
            }
        };
        match prompts.is_empty() {
            true => Err(ApiError::field("prompt", "`prompt` is empty: there is nothing to continue")),
            false => Ok(prompts),
        }
    }

    fn text(&self, model: &Model, text: &str) -> Result<Prompt, ApiError> {
        let Some(suffix) = self.suffix.as_deref().filter(|s| !s.is_empty()) else { return model.raw(text) };
        let tokenizer = model.tokenizer();
        let known = FILL.iter().find(|marks| marks.iter().all(|mark| tokenizer.token_id(mark).is_some()));
        let Some([before, after, gap]) = known else {
            let why = "this model's vocabulary has no tokens for filling in the middle";
            return Err(ApiError::unsupported("suffix", why));
        };
        let ids = model.raw(&format!("{before}{text}{after}{suffix}{gap}"))?.ids;
        Ok(Prompt { ids, text: text.to_owned() })
    }

    fn ids(&self, model: &Model, ids: &[u32]) -> Result<Prompt, ApiError> {
        if self.suffix.as_deref().is_some_and(|s| !s.is_empty()) {
            return Err(ApiError::field("suffix", "`suffix` needs a `prompt` that is a text"));
        }
        fits(ids.len(), model.context())?;
        let bytes =
            model.tokenizer().decode(ids, true).map_err(|e| ApiError::field("prompt", e.to_string()))?;
        Ok(Prompt { ids: ids.to_vec(), text: String::from_utf8_lossy(&bytes).into_owned() })
    }
}

/// Not too many prompts.
pub(crate) fn few(field: &str, prompts: usize) -> Result<(), ApiError> {
    match prompts <= PROMPTS {
        true => Ok(()),
        false => Err(ApiError::field(field, format!("`{field}` has more than {PROMPTS} entries"))),
    }
}
