//! A conversation to be answered, in no API's own form: every chat endpoint makes one of these.

use crate::app::Service;
use crate::error::ApiError;
use crate::form::Form;
use crate::messages::tool_name;
use crate::model::{Conversation, Prompt};
use serde_json::Value;
use shardwright_engine::reader::Reader;
use shardwright_engine::request::{Ending, Request};
use shardwright_engine::sample::Sampling;
use shardwright_text::reply::Options;
use uuid::Uuid;

/// What is to be answered, and how.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turn {
    pub(crate) chat: Conversation,
    pub(crate) sampling: Sampling,
    pub(crate) stops: Vec<String>,
    pub(crate) ending: Ending,
    /// Most tokens of an answer; None = the server's limit.
    pub(crate) max_tokens: Option<usize>,
    /// How many answers.
    pub(crate) choices: usize,
    /// What the answer must be.
    pub(crate) form: Option<Form>,
    /// Whether events are passed on as they come.
    pub(crate) streamed: bool,
}

/// Whether the model may or must call tools.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ToolChoice {
    None,
    Auto,
    Required,
    Named(String),
}

/// The tools that may be called, and the form of an answer that must be a call.
pub(crate) fn callable(
    tools: Vec<Value>,
    choice: &ToolChoice,
    many: bool,
) -> Result<(Vec<Value>, Option<Form>), ApiError> {
    match choice {
        ToolChoice::Auto => Ok((tools, None)),
        ToolChoice::None => Ok((Vec::new(), None)),
        ToolChoice::Required if tools.is_empty() => {
            Err(ApiError::field("tool_choice", "`tool_choice` asks for a call, but there are no `tools`"))
        }
        ToolChoice::Required => Ok((tools.clone(), Some(Form::calls(tools, many)))),
        ToolChoice::Named(name) => {
            let Some(tool) = tools.iter().find(|t| tool_name(t) == Some(name)) else {
                let why = format!("`tool_choice` names `{}`, which is not in `tools`", name.escape_debug());
                return Err(ApiError::field("tool_choice", why));
            };
            let form = Form::calls(vec![tool.clone()], false);
            Ok((tools, Some(form)))
        }
    }
}

impl Turn {
    /// The prompt, and one request for each answer. The choices of a request differ in their seeds only.
    pub(crate) fn requests(&self, service: &Service) -> Result<Vec<Request>, ApiError> {
        let model = &service.model;
        let prompt = model.chat(&self.chat)?;
        fits(prompt.ids.len(), model.context())?;
        let max_tokens = self.max_tokens.or(service.defaults.max_tokens);
        let request = |choice: u64| {
            let sampling = Sampling {
                seed: self.sampling.seed.wrapping_add(choice),
                never: model.never().clone(),
                ..self.sampling.clone()
            };
            Ok(Request {
                guide: self.form.as_ref().map(|f| model.guide(f, &prompt.text)).transpose()?,
                sampling,
                max_tokens,
                ending: self.ending.clone(),
                reader: self.reader(service, &prompt),
                ..Request::new(prompt.ids.clone())
            })
        };
        (0..self.choices as u64).map(request).collect()
    }

    fn reader(&self, service: &Service, prompt: &Prompt) -> Reader {
        // An answer of a given form says nothing with a mark that is spelled out: it would be in a text.
        let marks = service.model.marks().keys().map(|mark| (*mark).to_owned());
        let options = Options {
            tools: self.chat.tools.clone(),
            stops: self.stops.clone(),
            streamed: self.streamed,
            only_by_id: if self.form.is_some() { marks.collect() } else { Vec::new() },
            id_prefix: id("call_"),
            ..Options::default()
        };
        let model = &service.model;
        Reader::reply(model.tokenizer().clone(), model.syntax(), &prompt.text, options)
    }
}

/// Is there room for an answer? Said before anything is queued, with all numbers.
pub(crate) fn fits(prompt: usize, context: usize) -> Result<(), ApiError> {
    match prompt < context {
        true => Ok(()),
        false => Err(shardwright_engine::Error::PromptTooLong { prompt, context }.into()),
    }
}

/// A name that nothing else has.
pub(crate) fn id(prefix: &str) -> String {
    format!("{prefix}{}", Uuid::new_v4().simple())
}
