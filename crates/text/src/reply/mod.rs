//! Reading a model's reply: reasoning, content and tool calls told apart while it streams.
//!
//! A syntax is one file here and one row in [`ROWS`]. It brings a [`grammar::Grammar`] that reads its
//! calls; everything else (reasoning, hold-back, stop strings, JSON, end of the reply) is shared.

mod deepseek_v3;
mod deepseek_v31;
mod deepseek_v32;
mod delimited;
mod glm;
mod grammar;
mod hermes;
mod json;
mod kimi_k2;
mod message;
mod none;
mod output;
mod reader;
mod schema;

pub use message::{Call, End, Event, Finish, Message};
pub use reader::{Options, ReplyReader};

use grammar::Grammar;

/// Opens and closes reasoning, in every syntax.
const THINK: &str = "<think>";
const THINK_END: &str = "</think>";

/// All syntaxes, in the order in which a template is tried for them.
const ROWS: [&Row; 7] = [
    &deepseek_v32::ROW,
    &kimi_k2::ROW,
    &deepseek_v3::ROW,
    &deepseek_v31::ROW,
    &glm::ROW,
    &hermes::ROW,
    &none::ROW,
];

/// What a syntax file says about itself.
#[derive(Debug)]
struct Row {
    name: &'static str,
    /// Names that other servers use for the same syntax.
    aliases: &'static [&'static str],
    /// Whether a chat template teaches the model this syntax.
    detect: fn(&str) -> bool,
    /// Texts that a vocabulary may hold as one token.
    marks: &'static [&'static str],
    /// A new reader of calls; absent if there are none to read.
    grammar: Option<fn() -> Box<dyn Grammar>>,
}

/// How a model writes reasoning and tool calls.
#[derive(Clone, Copy, Debug)]
pub struct Syntax(&'static Row);

impl PartialEq for Syntax {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Syntax {
    /// No tool calls; reasoning only if the prompt opened it.
    pub const NONE: Self = Self(&none::ROW);

    /// The syntax of that name or alias.
    pub fn by_name(name: &str) -> Option<Self> {
        ROWS.iter().find(|row| row.name == name || row.aliases.contains(&name)).map(|row| Self(row))
    }

    /// The syntax that the text of a chat template teaches; [`Syntax::NONE`] if it is none of ours.
    pub fn detect(template: &str) -> Self {
        ROWS.iter().find(|row| (row.detect)(template)).map_or(Self::NONE, |row| Self(row))
    }

    /// Names of all syntaxes, for help texts.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ROWS.iter().map(|row| row.name)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Texts that count as marks if the vocabulary has them as one token: look their ids up once, and
    /// tell [`ReplyReader::push`] when one comes.
    pub fn marks(self) -> impl Iterator<Item = &'static str> {
        [THINK, THINK_END].into_iter().chain(self.0.marks.iter().copied())
    }
}
