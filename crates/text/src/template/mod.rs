//! Chat templates: a conversation to the prompt text, by the program that the model file carries.
//!
//! The environment is that of Hugging Face's `apply_chat_template`. A template is a stranger's program: steps and memory
//! (fuel), depth and output are limited, and it sees nothing but its input. Messages are strangers' text: see
//! [`Markers`] for how control tokens in them are defused.

mod formatting;
mod guard;
mod history;
mod json;
mod library;
mod source;

use std::fmt;
use std::io;
use std::sync::Arc;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind};
use serde_json::{Map, Value as Json};
use shardwright_gguf::{Meta, short};

use crate::error::{Error, Result};
use crate::tokenizer::Markers;
use guard::Guard;
use history::Arguments;

const KEY: &str = "tokenizer.chat_template";

/// Instructions, and 64-byte units of data, that a render may use beyond what its input accounts for: about a second.
const FUEL: u64 = 5_000_000;

/// Bytes that a render may write beyond eight times its input.
const OUTPUT: usize = 4 << 20;

/// Nested blocks, macros and calls; the engine's recursion then fits the stack of any thread.
const DEPTH: usize = 120;

/// Characters that are told of why a template failed.
const REASON: usize = 500;

/// A part of a rendered prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The text.
    pub text: String,
    /// False for text that must not take part in a marker (control token).
    pub trusted: bool,
}

/// What a template is rendered with.
#[derive(Debug, Clone, Copy)]
pub struct TemplateInput<'a> {
    /// The conversation, each message as the client sent it (role, content, `tool_calls`, …).
    pub messages: &'a [Json],
    /// The tools the model may call; none if empty.
    pub tools: &'a [Json],
    /// Further variables from the client: `enable_thinking`, `clear_thinking`, `reasoning_effort`, ….
    pub kwargs: &'a Map<String, Json>,
    /// Whether the prompt ends with the opening of the model's turn.
    pub add_generation_prompt: bool,
    /// Text of the beginning-of-text token, if there is one.
    pub bos: &'a str,
    /// Text of the end-of-text token, if there is one.
    pub eos: &'a str,
    /// Seconds since 1970, for `strftime_now` (in UTC).
    pub now: i64,
    /// The tokenizer's markers, which messages must not spell. Without them everything is trusted: the whole text is
    /// searched for markers, as Hugging Face's code does.
    pub markers: Option<&'a Arc<Markers>>,
}

/// A rendered prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The prompt, in parts.
    pub segments: Vec<Segment>,
    /// What was repaired in the conversation, for the log.
    pub warnings: Vec<String>,
}

impl Rendered {
    /// The prompt as one text.
    pub fn text(&self) -> String {
        self.segments.iter().map(|s| s.text.as_str()).collect()
    }
}

/// A compiled chat template.
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    arguments: Arguments,
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate")
            .field("source", &self.source)
            .field("arguments", &self.arguments)
            .finish()
    }
}

impl ChatTemplate {
    /// The template of a file: the one of this name, or the default one. None if the file has no default.
    ///
    /// # Errors
    /// There is no template of this name, or it does not compile.
    pub fn from_meta(meta: &Meta, name: Option<&str>) -> Result<Option<ChatTemplate>> {
        let key = name.map_or_else(|| KEY.to_owned(), |n| format!("{KEY}.{n}"));
        match (meta.may::<String>(&key)?, name) {
            (Some(source), _) => ChatTemplate::from_source(&source).map(Some),
            (None, None) => Ok(None),
            (None, Some(name)) => {
                let names = meta.iter().filter_map(|(k, _)| k.strip_prefix(KEY)?.strip_prefix('.'));
                let known: Vec<_> = names.take(20).map(|n| format!("`{}`", short(n))).collect();
                let known = if known.is_empty() { "the default one".to_owned() } else { known.join(", ") };
                Err(Error::NoTemplate { name: short(name), known })
            }
        }
    }

    /// Compiles a template.
    ///
    /// # Errors
    /// The source is no valid template.
    pub fn from_source(source: &str) -> Result<ChatTemplate> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        let syntax = syntax.map_err(|e| Error::Template(printable(&e.to_string())))?;
        environment.set_syntax(syntax.clone());
        environment.set_recursion_limit(DEPTH);
        library::install(&mut environment);
        let compiled = environment.add_template_owned("chat", source::prepare(source, &syntax)?);
        compiled.map_err(|e| failure(&e, None))?;
        let mut template =
            ChatTemplate { environment, source: source.to_owned(), arguments: Arguments::Objects };
        template.arguments = history::wanted_arguments(&template);
        Ok(template)
    }

    /// The source, for telling formats apart.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The prompt of a conversation.
    ///
    /// # Errors
    /// The template refuses the conversation ([`Error::Refused`], the client's fault) or fails.
    pub fn render(&self, input: &TemplateInput<'_>) -> Result<Rendered> {
        let mut warnings = Vec::new();
        let messages = history::with_arguments(input.messages, self.arguments, &mut warnings);
        let segments = self.render_messages(input, &messages)?;
        Ok(Rendered { segments, warnings })
    }

    fn render_messages(&self, input: &TemplateInput<'_>, messages: &[Json]) -> Result<Vec<Segment>> {
        let guard = Arc::new(Guard::new(input, messages, &self.source)?);
        let size = guard.input_bytes();
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(FUEL.saturating_add(size as u64)));
        let template = environment.get_template("chat").map_err(|e| failure(&e, None))?;
        let mut out = Limited { bytes: Vec::new(), limit: size.saturating_mul(8).saturating_add(OUTPUT) };
        let context = library::context(input, messages, &guard);
        template.render_captured_to(context, &mut out).map_err(|e| failure(&e, Some(&guard)))?;
        let text = String::from_utf8(out.bytes).map_err(|e| Error::Template(e.to_string()))?;
        Ok(guard.segments(&text))
    }
}

/// What the template said itself, or what is wrong with it: one line, whatever the template quotes.
fn failure(error: &minijinja::Error, guard: Option<&Guard>) -> Error {
    let clean = |text: &str| printable(&guard.map_or_else(|| text.to_owned(), |g| g.unguarded(text)));
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(raised) = cause.downcast_ref::<library::Raised>() {
            return Error::Refused(clean(&raised.0));
        }
        source = cause.source();
    }
    match error.kind() {
        ErrorKind::OutOfFuel => Error::Template("it takes too many steps or too much memory".to_owned()),
        ErrorKind::WriteFailure => Error::Template("its output is too long".to_owned()),
        _ => Error::Template(clean(&error.to_string())),
    }
}

/// An error may quote what a template holds, of any length: no terminal should obey it.
fn printable(text: &str) -> String {
    let show = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().take(REASON).map(show).collect()
}

/// Takes bytes up to a limit.
struct Limited {
    bytes: Vec<u8>,
    limit: usize,
}

impl io::Write for Limited {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + data.len() > self.limit {
            return Err(io::Error::other("output limit"));
        }
        self.bytes.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
