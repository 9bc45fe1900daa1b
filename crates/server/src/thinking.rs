//! How much a model is to think: many servers' words for it, brought into the variables that templates read.

use crate::error::ApiError;
use crate::model::Model;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// From little to much.
const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// Fields about thinking. `chat_template_kwargs` has the last word.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(default)]
pub(crate) struct ThinkingFields {
    /// Variables for the chat template, such as `{"enable_thinking": false}`.
    pub(crate) chat_template_kwargs: Option<Map<String, Value>>,
    /// `none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`.
    pub(crate) reasoning_effort: Option<String>,
    /// Think before the answer?
    pub(crate) enable_thinking: Option<bool>,
    /// Leave the thoughts of earlier turns out?
    pub(crate) clear_thinking: Option<bool>,
    /// The same as an object.
    pub(crate) thinking: Option<Thinking>,
}

/// Z.ai's form, and Anthropic's.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub(crate) struct Thinking {
    /// `enabled`, `disabled` or `adaptive`.
    r#type: Option<Switch>,
    /// Anthropic's bound on thoughts; the model is not held to it.
    budget_tokens: Option<u64>,
    /// Leave the thoughts of earlier turns out?
    clear_thinking: Option<bool>,
}

/// On, off, or neither.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Switch {
    /// On.
    Enabled,
    /// Off.
    Disabled,
    /// As the model does by itself.
    Adaptive,
}

impl ThinkingFields {
    /// The variables of a request's template.
    pub(crate) fn kwargs(&self, model: &Model) -> Result<Map<String, Value>, ApiError> {
        let mut kwargs = model.kwargs().clone();
        let mut thinks = self.enable_thinking;
        if let Some(effort) = &self.reasoning_effort {
            let at = EFFORTS.iter().position(|e| e == effort).ok_or_else(|| {
                let why = format!("`reasoning_effort` must be one of {}", EFFORTS.join(", "));
                ApiError::field("reasoning_effort", why)
            })?;
            if at > 0 {
                kwargs.insert("reasoning_effort".into(), known_effort(model, at).into());
            }
            thinks = thinks.or(Some(at > 0));
        }
        let object = self.thinking.as_ref();
        match object.and_then(|t| t.r#type) {
            None | Some(Switch::Adaptive) => {}
            Some(switch) => thinks = Some(switch == Switch::Enabled),
        }
        if let Some(thinks) = thinks {
            // GLM and Qwen read the first, DeepSeek and Kimi the second.
            kwargs.insert("enable_thinking".into(), thinks.into());
            kwargs.insert("thinking".into(), thinks.into());
        }
        if let Some(clear) = self.clear_thinking.or(object.and_then(|t| t.clear_thinking)) {
            kwargs.insert("clear_thinking".into(), clear.into());
        }
        kwargs.extend(self.chat_template_kwargs.clone().unwrap_or_default());
        Ok(kwargs)
    }
}

/// The effort itself, or the next stronger one if only that is a word of the template: one that knows `high` and
/// takes all else for more would think longest when asked for little.
fn known_effort(model: &Model, at: usize) -> &'static str {
    let known = EFFORTS[at..].iter().find(|effort| model.template_names(effort));
    known.copied().unwrap_or(EFFORTS[at])
}
