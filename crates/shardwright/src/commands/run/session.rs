//! A model ready to answer: prompts from messages, answers streamed, the cache kept from turn to turn.

use super::paint::Screen;
use super::{Args, INTERRUPTED};
use crate::progress::Progress;
use crate::wire::{Opened, ROWS, Size, name, tokenizer};
use anyhow::{Context, bail};
use serde_json::{Map, Value as Json};
use shardwright_engine::generate::Generator;
use shardwright_engine::reader::Reader;
use shardwright_engine::request::{Done, Ending, Finish, Part, Request};
use shardwright_engine::sample::Sampling;
use shardwright_text::reply::{Message, Options, Syntax};
use shardwright_text::template::{ChatTemplate, TemplateInput};
use shardwright_text::tokenizer::{Special, Tokenizer};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A model, ready.
pub(super) struct Session {
    generator: Generator,
    tokenizer: Arc<Tokenizer>,
    template: Option<ChatTemplate>,
    kwargs: Map<String, Json>,
    sampling: Sampling,
    max_tokens: Option<usize>,
    ignore_eos: bool,
}

/// Token ids, and what reads the answer to them.
pub(super) struct Prompt {
    ids: Vec<u32>,
    reader: Reader,
}

/// A whole answer.
pub(super) struct Answer {
    pub(super) message: Message,
    pub(super) finish: Finish,
    pub(super) speed: Speed,
}

/// How long an answer took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Speed {
    pub(super) prompt: usize,
    pub(super) reused: usize,
    pub(super) answered: usize,
    pub(super) prompt_time: Duration,
    pub(super) answer_time: Duration,
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = |n: usize, time: Duration| n as f64 / time.as_secs_f64().max(1e-9);
        let fresh = self.prompt - self.reused;
        write!(f, "prompt {} tokens", self.prompt)?;
        if self.reused > 0 {
            write!(f, " ({} cached)", self.reused)?;
        }
        write!(f, ", {:.1} tok/s; answer {} tokens", rate(fresh, self.prompt_time), self.answered)?;
        // The first token comes with the prompt.
        match self.answered {
            0 | 1 => Ok(()),
            n => write!(f, ", {:.1} tok/s", rate(n - 1, self.answer_time)),
        }
    }
}

impl Session {
    /// Opens everything that `run` needs.
    pub(super) fn open(args: &Args, sampling: Sampling) -> anyhow::Result<Session> {
        let opened = args.model.open()?;
        let tokenizer = tokenizer(&opened.reader)?;
        for warning in tokenizer.warnings() {
            log::warn!("{warning}");
        }
        let template = template(args, &opened)?;
        if template.is_none() && !args.raw {
            log::info!("the file has no chat template: prompts are continued as they are");
        }
        let context = context(args.ctx_size as usize, opened.hyper.context);
        let rows = ROWS.min(context);
        let executor = opened.executor(&args.backend.fast(), Size { context, rows })?;
        // Rows of the model's vocabulary that have no token, and tokens that are mere padding.
        let nameless = tokenizer.vocab_len() as u32..opened.hyper.vocab as u32;
        let never = nameless.chain(tokenizer.unusable_tokens().iter().copied()).collect();
        log::debug!("seed {}", sampling.seed);
        Ok(Session {
            generator: Generator::new(executor, tokenizer.end_tokens().iter().copied()),
            tokenizer: Arc::new(tokenizer),
            template,
            kwargs: args.chat_template_kwargs.clone().unwrap_or_default(),
            sampling: Sampling { never, ..sampling },
            max_tokens: usize::try_from(args.predict).ok(),
            ignore_eos: args.ignore_eos,
        })
    }

    /// Can it chat?
    pub(super) fn has_template(&self) -> bool {
        self.template.is_some()
    }

    /// A text to be continued.
    pub(super) fn raw(&self, text: &str, parse_special: bool) -> anyhow::Result<Prompt> {
        let special = if parse_special { Special::Parse } else { Special::AsText };
        let ids = self.begun(self.tokenizer.encode(text, special)?);
        Ok(Prompt { ids, reader: Reader::text(self.tokenizer.clone(), &[]) })
    }

    /// A conversation to be answered.
    pub(super) fn templated(&self, messages: &[Json]) -> anyhow::Result<Prompt> {
        let Some(template) = &self.template else {
            bail!(
                "this file has no chat template: give one with --chat-template-file, or continue a text with -p"
            )
        };
        let text = |id: Option<u32>| id.and_then(|id| self.tokenizer.token_text(id)).unwrap_or_default();
        let rendered = template.render(&TemplateInput {
            messages,
            tools: &[],
            kwargs: &self.kwargs,
            add_generation_prompt: true,
            bos: text(self.tokenizer.bos()),
            eos: text(self.tokenizer.eos()),
            now: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64),
            markers: Some(self.tokenizer.markers()),
        })?;
        for warning in &rendered.warnings {
            log::warn!("{warning}");
        }
        let ids = self.begun(self.tokenizer.encode_segments(&rendered.segments)?);
        let syntax = Syntax::detect(template.source());
        let reader = Reader::reply(self.tokenizer.clone(), syntax, &rendered.text(), Options::default());
        Ok(Prompt { ids, reader })
    }

    /// With the token that a text begins with, if the file wants one and it is not there.
    fn begun(&self, mut ids: Vec<u32>) -> Vec<u32> {
        if let Some(bos) = self.tokenizer.prefix().filter(|bos| ids.first() != Some(bos)) {
            ids.insert(0, bos);
        }
        ids
    }

    /// Answers, showing the text as it comes. Ctrl-C ends the answer.
    pub(super) fn answer(&mut self, prompt: Prompt, screen: &mut Screen) -> anyhow::Result<Answer> {
        INTERRUPTED.store(false, Ordering::Relaxed);
        let total = prompt.ids.len();
        let id = self.generator.submit(Request {
            sampling: self.sampling.clone(),
            max_tokens: self.max_tokens,
            ending: Ending { ignore_eos: self.ignore_eos, ..Ending::default() },
            reader: prompt.reader,
            ..Request::new(prompt.ids)
        })?;
        let started = Instant::now();
        let mut first = None;
        let mut progress = Some(Progress::new("reading the prompt", total));
        loop {
            let replies = match INTERRUPTED.swap(false, Ordering::Relaxed) {
                true => self.generator.cancel(id).into_iter().collect(),
                false => self.generator.step()?,
            };
            match (&mut progress, self.generator.cached(id)) {
                (Some(progress), Some(cached)) if cached < total => progress.at(cached),
                _ => progress = None,
            }
            for reply in replies {
                let events = match &reply.part {
                    Part::Started { .. } | Part::Prompt(_) => continue,
                    Part::Token { events, .. } => events,
                    Part::Done(done) => &done.events,
                    Part::Failed(_) => &Vec::new(),
                };
                first.get_or_insert_with(Instant::now);
                events.iter().try_for_each(|event| screen.show(event))?;
                match reply.part {
                    Part::Started { .. } | Part::Prompt(_) | Part::Token { .. } => {}
                    Part::Failed(e) => {
                        screen.end()?;
                        return Err(e.into());
                    }
                    Part::Done(done) => {
                        screen.end()?;
                        return Ok(answer(*done, started, first.unwrap_or(started)));
                    }
                }
            }
        }
    }
}

fn answer(done: Done, started: Instant, first: Instant) -> Answer {
    let speed = Speed {
        prompt: done.prompt,
        reused: done.reused,
        answered: done.answered,
        prompt_time: first - started,
        answer_time: first.elapsed(),
    };
    Answer { message: done.message, finish: done.finish, speed }
}

fn template(args: &Args, opened: &Opened) -> anyhow::Result<Option<ChatTemplate>> {
    match &args.chat_template_file {
        _ if args.raw => Ok(None),
        None => ChatTemplate::from_meta(opened.reader.meta(), None).with_context(|| name(&opened.reader)),
        Some(path) => {
            let place = || path.display().to_string();
            let source = std::fs::read_to_string(path).with_context(place)?;
            Ok(Some(ChatTemplate::from_source(&source).with_context(place)?))
        }
    }
}

/// Tokens of a conversation: as asked for, but no more than the model was made for without a word.
fn context(asked: usize, made_for: usize) -> usize {
    if asked == 0 {
        return made_for;
    }
    if asked > made_for {
        log::info!("the context is {made_for} tokens: the model was made for no more");
    }
    asked.min(made_for)
}
