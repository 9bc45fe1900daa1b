//! What goes into the engine, and what comes out.

use crate::guide::Guide;
use crate::pager::blocks_for;
use crate::reader::Reader;
use crate::sample::{Choice, Logprobs, Sampling};
use crate::{Error, Result};
use shardwright_model::exec::Limits;
use shardwright_text::reply::{Event, Message};
use std::collections::BTreeSet;

/// A prompt and how to continue it.
#[derive(Debug)]
pub struct Request {
    /// Token ids, as they are.
    pub prompt: Vec<u32>,
    /// How to choose.
    pub sampling: Sampling,
    /// Most tokens of the answer; None = until the context is full.
    pub max_tokens: Option<usize>,
    /// Which tokens end the answer.
    pub ending: Ending,
    /// Makes text of the answer, and knows its stop strings.
    pub reader: Reader,
    /// Says at each place of the answer which tokens may come next.
    pub guide: Option<Box<dyn Guide>>,
    /// Report how likely the tokens of the prompt were, and so many likeliest at each place.
    pub prompt_logprobs: Option<usize>,
    /// Instead of an answer, the prompt's hidden state, pooled so.
    pub pooling: Option<Pooling>,
}

/// Which tokens end an answer, and from when on it may end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// Go on after the model's end tokens.
    pub ignore_eos: bool,
    /// Tokens that end it beside those of the model.
    pub tokens: BTreeSet<u32>,
    /// No token and no stop string ends it before it has so many tokens.
    pub min_tokens: usize,
}

impl Ending {
    /// Does this token end the answer? `ends` are the model's.
    pub(crate) fn is_end(&self, token: u32, ends: &BTreeSet<u32>) -> bool {
        self.tokens.contains(&token) || !self.ignore_eos && ends.contains(&token)
    }
}

/// How one hidden state is made of those of all tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// That of the last token.
    Last,
    /// Their mean.
    Mean,
}

/// Names a request; given in order of submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub(crate) u64);

/// One piece of news about a request.
#[derive(Debug)]
pub struct Reply {
    /// The request.
    pub id: Id,
    /// The news.
    pub part: Part,
}

/// What happened.
#[derive(Debug)]
pub enum Part {
    /// It waits no longer; its prompt is being read.
    Started {
        /// Tokens of the prompt that were found in the cache.
        reused: usize,
    },
    /// The prompt has been read, and how likely its tokens were was asked for: from the second token on.
    Prompt(Vec<Logprobs>),
    /// A token was chosen. The token that ends the turn is not reported.
    Token {
        /// The token.
        choice: Choice,
        /// The text that is certain with it, if any.
        events: Vec<Event>,
    },
    /// The answer is over.
    Done(Box<Done>),
    /// The request failed; nothing more comes.
    Failed(Error),
}

/// The end of an answer.
#[derive(Debug)]
pub struct Done {
    /// Why it ended.
    pub finish: Finish,
    /// Text that was held back until now.
    pub events: Vec<Event>,
    /// The whole answer.
    pub message: Message,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Those of them that were found in the cache.
    pub reused: usize,
    /// Tokens chosen, the one that ended the turn included.
    pub answered: usize,
    /// The pooled hidden state, if that was asked for.
    pub embedding: Option<Vec<f32>>,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model ended its turn.
    EndToken,
    /// A stop string came; `Message::stop` names it.
    StopString,
    /// `max_tokens` are reached.
    MaxTokens,
    /// The context is full.
    ContextFull,
    /// It was cancelled.
    Cancelled,
}

impl Request {
    /// The greedy continuation of `prompt`, as ids only.
    pub fn new(prompt: Vec<u32>) -> Request {
        Request {
            prompt,
            sampling: Sampling::default(),
            max_tokens: None,
            ending: Ending::default(),
            reader: Reader::ids(),
            guide: None,
            prompt_logprobs: None,
            pooling: None,
        }
    }

    /// Can it be run at all?
    pub(crate) fn check(&self, limits: &Limits) -> Result<()> {
        self.sampling.check()?;
        if self.max_tokens == Some(0) && !self.only_reads() {
            return Err(Error::Parameter { name: "max_tokens", found: "0".into(), wanted: "at least 1" });
        }
        if self.prompt.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        if let Some(&id) = self.prompt.iter().find(|id| **id as usize >= limits.vocab) {
            return Err(Error::UnknownToken { id, vocab: limits.vocab });
        }
        if self.prompt.len() + usize::from(!self.only_reads()) > limits.context {
            return Err(Error::PromptTooLong { prompt: self.prompt.len(), context: limits.context });
        }
        match blocks_for(self.most(limits.context)) {
            needed if needed > limits.blocks => Err(Error::CacheTooSmall { needed, blocks: limits.blocks }),
            _ => Ok(()),
        }
    }

    /// There is to be no answer.
    pub(crate) fn only_reads(&self) -> bool {
        self.pooling.is_some() || self.prompt_logprobs.is_some() && self.max_tokens == Some(0)
    }

    /// Most tokens of prompt and answer together.
    pub(crate) fn most(&self, context: usize) -> usize {
        let answer = if self.only_reads() { Some(0) } else { self.max_tokens };
        let wanted = answer.map_or(context, |n| self.prompt.len().saturating_add(n));
        wanted.min(context)
    }
}
