//! From a file to what the server serves.

use super::flags::{ChatArgs, SelfTest, SizeArgs};
use crate::wire::{BackendArgs, ModelArgs, Opened, Size, name, tokenizer};
use anyhow::{Context, bail};
use shardwright_engine::engine::Engine;
use shardwright_engine::replicas::Replicas;
use shardwright_engine::selftest;
use shardwright_model::exec::Executor;
use shardwright_server::gate::Gate;
use shardwright_server::model::{Model, Parts};
use shardwright_server::serve::Loaded;
use shardwright_text::template::ChatTemplate;
use shardwright_text::tokenizer::{Special, Tokenizer};
use std::path::Path;
use std::sync::Arc;

/// Tokens of the cache if nothing else is said, unless one sequence needs more.
const CACHE: usize = 65_536;

/// All that loading needs to know.
pub(super) struct Plan {
    pub(super) model: ModelArgs,
    pub(super) backend: BackendArgs,
    pub(super) size: SizeArgs,
    pub(super) chat: ChatArgs,
    /// What clients may call the model.
    pub(super) names: Vec<String>,
}

impl Plan {
    /// Opens the file, makes an executor, starts the engine.
    pub(super) fn load(&self, gate: &Gate) -> anyhow::Result<Loaded> {
        gate.loading("the header of the file");
        let opened = self.model.open()?;
        let tokenizer = Arc::new(tokenizer(&opened.reader)?);
        for warning in tokenizer.warnings() {
            log::warn!("{warning}");
        }
        let template = self.template(&opened)?;
        if template.is_none() {
            log::info!("the file has no chat template: only /v1/completions continues texts");
        }
        gate.loading("the weights");
        let context = self.context(opened.hyper.context);
        let tokens = self.size.cache_tokens.unwrap_or_else(|| context.max(CACHE));
        if tokens < context {
            bail!("--cache-tokens {tokens} is less than one sequence of {context} tokens may need");
        }
        let rows = (self.size.batch as usize).min(tokens);
        let (count, mut engines, mut fault) = (self.size.replicas as usize, vec![], None);
        for at in 0..count {
            let backend = self.backend.fast().replica(at, count)?;
            let mut executor = opened.executor_for_many(&backend, Size { context, rows }, tokens)?;
            if self.size.self_test == SelfTest::On && fault.is_none() {
                gate.testing();
                fault = test(&mut *executor, &tokenizer)?;
            }
            let ends = tokenizer.end_tokens().iter().copied();
            engines.push(Engine::start(executor, ends, self.size.engine())?);
        }
        let model = Model::new(Parts {
            names: self.names.clone(),
            tokenizer: tokenizer.clone(),
            template,
            syntax: self.chat.tool_call_parser,
            context,
            vocab: opened.hyper.vocab,
            kwargs: self.chat.chat_template_kwargs.clone().unwrap_or_default(),
        });
        Ok(Loaded { engine: Replicas::new(engines)?, model, fault })
    }

    fn template(&self, opened: &Opened) -> anyhow::Result<Option<ChatTemplate>> {
        let Some(given) = &self.chat.chat_template else {
            return ChatTemplate::from_meta(opened.reader.meta(), None).with_context(|| name(&opened.reader));
        };
        let source = match ["{{", "{%"].iter().any(|mark| given.contains(mark)) {
            true => given.clone(),
            false => std::fs::read_to_string(Path::new(given))
                .with_context(|| format!("the chat template `{given}` is no Jinja text and no file"))?,
        };
        Ok(Some(ChatTemplate::from_source(&source).context("--chat-template")?))
    }

    /// As asked for, but no more than the model was made for without a word.
    fn context(&self, made_for: usize) -> usize {
        match self.size.context as usize {
            0 => made_for,
            asked if asked > made_for => {
                log::warn!("the context is {made_for} tokens: the model was made for no more");
                made_for
            }
            asked => asked,
        }
    }
}

/// What is wrong with what the executor computes, if anything is.
fn test(executor: &mut dyn Executor, tokenizer: &Tokenizer) -> anyhow::Result<Option<String>> {
    let text = tokenizer.encode(selftest::TEXT, Special::AsText)?;
    let text: Vec<u32> = tokenizer.prefix().into_iter().chain(text).collect();
    Ok(match selftest::check(executor, &text, tokenizer.end_tokens()) {
        Ok(report) => {
            log::info!("self-test passed: {report}");
            None
        }
        Err(fault) => Some(format!("{fault}; start with `--self-test off` to serve it all the same")),
    })
}
