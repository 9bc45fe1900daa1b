//! The fields by which every endpoint says how tokens are chosen and where an answer ends.

use crate::app::Service;
use crate::error::ApiError;
use crate::form::Form;
use crate::model::Model;
use serde::{Deserialize, Serialize};
use shardwright_engine::request::Ending;
use shardwright_engine::sample::Sampling;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use utoipa::ToSchema;

/// OpenAI's bound. What `min_p` cuts is cut before the temperature, so with it more is of use.
const TEMPERATURE: f32 = 2.0;

/// Most stop strings, and the longest.
const STOPS: (usize, usize) = (64, 4096);

/// Most entries of `logit_bias`.
const BIASES: usize = 4096;

/// Most likeliest tokens reported with each token.
pub(crate) const TOP_LOGPROBS: usize = 20;

/// Most answers to one prompt.
const CHOICES: usize = 128;

/// How tokens are chosen, in the words of OpenAI, vLLM and llama-server.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(default)]
pub struct SamplingFields {
    /// 0 = always the likeliest token. Comes last: `top_k`, `top_p` and `min_p` choose by what the model itself says,
    /// before the temperature. Above 2 only together with `min_p`.
    #[schema(minimum = 0)]
    pub temperature: Option<f32>,
    /// Choose among the likeliest tokens that have this probability together.
    #[schema(minimum = 0, maximum = 1)]
    pub top_p: Option<f32>,
    /// Choose among so many likeliest tokens; 0 or -1 = all.
    #[schema(minimum = -1)]
    pub top_k: Option<i64>,
    /// Choose among tokens at least this times as likely as the likeliest.
    #[schema(minimum = 0, maximum = 1)]
    pub min_p: Option<f32>,
    /// Subtracted from the logits of tokens of the answer so far.
    #[schema(minimum = -2, maximum = 2)]
    pub presence_penalty: Option<f32>,
    /// Subtracted from the logits of tokens of the answer as often as they occurred.
    #[schema(minimum = -2, maximum = 2)]
    pub frequency_penalty: Option<f32>,
    /// Divides the logits of all tokens so far, prompt included.
    #[serde(alias = "repeat_penalty")]
    #[schema(exclusive_minimum = 0)]
    pub repetition_penalty: Option<f32>,
    /// The same seed gives the same answer; absent or -1 = another each time.
    pub seed: Option<i64>,
    /// Added to the logits of these token ids; -100 to 100.
    pub logit_bias: Option<BTreeMap<String, f32>>,
    /// The answer ends before the first of these texts.
    pub stop: Option<Stop>,
    /// How many answers to give.
    #[schema(minimum = 1, maximum = 128)]
    pub n: Option<i64>,
    /// Go on after tokens that end the answer.
    pub ignore_eos: Option<bool>,
    /// Ids of more tokens that end the answer, without being part of it.
    pub stop_token_ids: Option<Vec<u32>>,
    /// Neither a token nor a stop string ends the answer before it has so many tokens.
    #[schema(minimum = 0)]
    pub min_tokens: Option<i64>,
}

/// One stop string or several.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Stop {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

/// The server's own choices for what a request leaves open.
#[derive(Clone, Debug)]
pub struct Defaults {
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Of the draws; None = another for each request.
    pub seed: Option<u64>,
    /// Most tokens of an answer; None = until the context is full.
    pub max_tokens: Option<usize>,
}

impl Default for Defaults {
    fn default() -> Defaults {
        let sampling = Sampling { temperature: 1.0, ..Sampling::default() };
        Defaults { sampling, seed: None, max_tokens: None }
    }
}

impl SamplingFields {
    /// Checked, and filled up with the server's defaults. Names the field that is wrong.
    pub(crate) fn sampling(&self, service: &Service) -> Result<Sampling, ApiError> {
        let sampling = self.fill(&service.defaults)?;
        known("logit_bias", sampling.logit_bias.keys(), &service.model)?;
        Ok(sampling)
    }

    fn fill(&self, defaults: &Defaults) -> Result<Sampling, ApiError> {
        let d = &defaults.sampling;
        let sampling = Sampling {
            temperature: self.temperature.unwrap_or(d.temperature),
            top_p: self.top_p.unwrap_or(d.top_p),
            top_k: self.top_k.map_or(Ok(d.top_k), top_k)?,
            min_p: self.min_p.unwrap_or(d.min_p),
            presence_penalty: self.presence_penalty.unwrap_or(d.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(d.frequency_penalty),
            repetition_penalty: self.repetition_penalty.unwrap_or(d.repetition_penalty),
            logit_bias: self.biases()?,
            seed: seed(self.seed, defaults.seed),
            ..d.clone()
        };
        sampling.check()?;
        if sampling.temperature > TEMPERATURE && sampling.min_p <= 0.0 {
            let why = format!("`temperature` is {}, but without `min_p` at most 2", sampling.temperature);
            return Err(ApiError::field("temperature", why));
        }
        let penalties =
            [("presence_penalty", self.presence_penalty), ("frequency_penalty", self.frequency_penalty)];
        for (name, value) in penalties {
            within(name, value, -2.0, 2.0)?;
        }
        Ok(sampling)
    }

    fn biases(&self) -> Result<BTreeMap<u32, f32>, ApiError> {
        let given = self.logit_bias.iter().flatten();
        if self.logit_bias.as_ref().is_some_and(|b| b.len() > BIASES) {
            return Err(ApiError::field(
                "logit_bias",
                format!("`logit_bias` has more than {BIASES} entries"),
            ));
        }
        let read = |(id, bias): (&String, &f32)| match id.parse() {
            Ok(id) => Ok((id, *bias)),
            Err(_) => {
                let why = format!("`logit_bias` is keyed by token ids; `{}` is none", id.escape_debug());
                Err(ApiError::field("logit_bias", why))
            }
        };
        given.map(read).collect()
    }

    /// Which tokens end the answer. Where it has a form, that alone says when it may end.
    pub(crate) fn ending(&self, model: &Model, form: Option<&Form>) -> Result<Ending, ApiError> {
        let tokens: BTreeSet<u32> = self.stop_token_ids.iter().flatten().copied().collect();
        known("stop_token_ids", &tokens, model)?;
        let min_tokens = count("min_tokens", self.min_tokens, 0, usize::MAX)?.unwrap_or(0);
        if min_tokens > 0 && form.is_some() {
            return Err(ApiError::unsupported(
                "min_tokens",
                "an answer of a given form ends where the form does",
            ));
        }
        Ok(Ending { ignore_eos: self.ignore_eos.unwrap_or(false), tokens, min_tokens })
    }

    /// The stop strings.
    pub(crate) fn stops(&self) -> Result<Vec<String>, ApiError> {
        let stops = match &self.stop {
            None => Vec::new(),
            Some(Stop::One(stop)) => vec![stop.clone()],
            Some(Stop::Many(stops)) => stops.clone(),
        };
        check_stops("stop", stops)
    }

    /// How many answers are asked for.
    pub(crate) fn choices(&self) -> Result<usize, ApiError> {
        count("n", self.n, 1, CHOICES).map(|n| n.unwrap_or(1))
    }
}

/// Stop strings, within bounds.
pub(crate) fn check_stops(name: &str, stops: Vec<String>) -> Result<Vec<String>, ApiError> {
    let (most, longest) = STOPS;
    match stops.len() <= most && stops.iter().all(|s| s.len() <= longest) {
        true => Ok(stops),
        false => {
            let why = format!("`{name}` takes at most {most} strings of at most {longest} bytes");
            Err(ApiError::field(name, why))
        }
    }
}

/// A number of things, within bounds.
pub(crate) fn count(
    name: &str,
    value: Option<i64>,
    least: usize,
    most: usize,
) -> Result<Option<usize>, ApiError> {
    let Some(value) = value else { return Ok(None) };
    match usize::try_from(value) {
        Ok(n) if (least..=most).contains(&n) => Ok(Some(n)),
        _ if most == usize::MAX => {
            Err(ApiError::field(name, format!("`{name}` is {value}, but must be at least {least}")))
        }
        _ => Err(ApiError::field(name, format!("`{name}` is {value}, but must be {least} to {most}"))),
    }
}

/// Most tokens of an answer by llama-server's `n_predict`.
pub(crate) fn predict(given: Option<i64>) -> Result<Option<usize>, ApiError> {
    match given {
        Some(-1) => Ok(Some(usize::MAX)),
        given => count("n_predict", given, 1, usize::MAX),
    }
}

/// Are these ids of the model's tokens?
fn known<'a>(name: &str, ids: impl IntoIterator<Item = &'a u32>, model: &Model) -> Result<(), ApiError> {
    let vocab = model.vocab();
    match ids.into_iter().find(|id| **id as usize >= vocab) {
        None => Ok(()),
        Some(id) => {
            let why = format!("`{name}` has the token id {id}, but this model's are 0 to {}", vocab - 1);
            Err(ApiError::field(name, why))
        }
    }
}

fn within(name: &str, value: Option<f32>, least: f32, most: f32) -> Result<(), ApiError> {
    match value {
        Some(x) if !(least..=most).contains(&x) => {
            Err(ApiError::field(name, format!("`{name}` is {x}, but must be {least} to {most}")))
        }
        _ => Ok(()),
    }
}

fn top_k(k: i64) -> Result<usize, ApiError> {
    match usize::try_from(k) {
        Ok(k) => Ok(k),
        Err(_) if k == -1 => Ok(0),
        Err(_) => Err(ApiError::field("top_k", format!("`top_k` is {k}, but must be at least 0, or -1"))),
    }
}

/// -1 is llama.cpp's word for none.
fn seed(given: Option<i64>, default: Option<u64>) -> u64 {
    let fixed = match given {
        Some(-1) => None,
        Some(seed) => Some(seed as u64),
        None => default,
    };
    fixed.unwrap_or_else(|| RandomState::new().hash_one(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a2_fields_out_of_range_are_named() {
        let check = |value: serde_json::Value, param: Option<&str>| {
            let fields: SamplingFields = serde_json::from_value(value.clone()).unwrap();
            let e = fields.fill(&Defaults::default()).err();
            let e = e.or_else(|| fields.stops().err()).or_else(|| fields.choices().err());
            assert_eq!(e.and_then(|e| e.param).as_deref(), param, "{value}");
        };
        check(json!({"temperature": -1}), Some("temperature"));
        check(json!({"temperature": 3}), Some("temperature"));
        check(json!({"temperature": 3, "min_p": 0.5}), None);
        check(json!({"temperature": -0.0}), None);
        check(json!({"top_p": -0.1}), Some("top_p"));
        check(json!({"top_p": 1.1}), Some("top_p"));
        check(json!({"top_k": -1}), None);
        check(json!({"top_k": -2}), Some("top_k"));
        check(json!({"n": 0}), Some("n"));
        check(json!({"n": -1}), Some("n"));
        check(json!({"n": 10_000}), Some("n"));
        check(json!({"stop": vec!["x"; 1000]}), Some("stop"));
        check(json!({"stop": null, "n": null, "seed": null, "logit_bias": null}), None);
        check(json!({"logit_bias": {"abc": 1}}), Some("logit_bias"));
        check(json!({"logit_bias": {"5": -100}}), None);
        check(json!({"presence_penalty": 2.5}), Some("presence_penalty"));
        check(json!({"repeat_penalty": 0}), Some("repetition_penalty"));
    }

    #[test]
    fn llama_servers_limit_has_a_word_for_none() {
        let check = |given: Option<i64>, expected: Option<Option<usize>>| {
            assert_eq!(predict(given).ok(), expected, "{given:?}");
        };
        check(None, Some(None));
        check(Some(7), Some(Some(7)));
        check(Some(-1), Some(Some(usize::MAX)));
        check(Some(0), None);
        check(Some(-2), None);
    }

    #[test]
    fn seeds_differ_only_where_none_is_given() {
        assert_eq!(seed(Some(7), None), 7);
        assert_eq!(seed(None, Some(9)), 9);
        assert_eq!(seed(Some(7), Some(9)), 7);
        assert_ne!(seed(None, None), seed(None, None));
        assert_ne!(seed(Some(-1), Some(9)), seed(Some(-1), Some(9)));
        assert_eq!(seed(Some(-2), None), seed(Some(-2), None));
    }
}
