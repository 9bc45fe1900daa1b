//! Grammars that an answer must keep to: JSON schemas, regular expressions, Lark grammars, by way of `llguidance`.

use crate::guide::{Allowed, Guide};
use crate::regex::empty_copies;
use crate::{Error, Result, schema};
use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::toktrie::{ApproximateTokEnv, SimpleVob, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::Value as Json;
use shardwright_text::tokenizer::Tokenizer;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Most bytes of a grammar.
const MOST_BYTES: usize = 1 << 20;

/// Deepest nesting of brackets in a grammar. Parsers descend as deep, and have only so much stack.
const DEEPEST: usize = 100;

/// Most different references in a schema: a parser descends as deep as they lead on from one to the next.
const MOST_REFERENCES: usize = 2000;

/// Most copies of what may be empty in a regular expression.
const MOST_EMPTY_COPIES: usize = 500;

/// Stack of the thread that compiles: several times what the deepest grammar that is taken was seen to use.
const STACK: usize = 256 << 20;

/// How long a grammar may take to compile.
const PATIENCE: Duration = Duration::from_secs(1);

/// Most grammars that are compiled at a time, those included for which nobody waits any more.
const MOST_AT_ONCE: usize = 32;

/// Most characters of what a grammar's error says; it may quote the grammar.
const MOST_WORDS: usize = 300;

/// The form of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Grammar {
    /// JSON that fits a schema.
    JsonSchema(Json),
    /// A regular expression for the whole answer.
    Regex(String),
    /// A grammar in `llguidance`'s variant of Lark. `<name>` stands for a control token, or a mark, of that name.
    Lark(String),
}

/// Compiles grammars for one vocabulary. Cheap to clone.
#[derive(Clone)]
pub struct Grammars {
    factory: Arc<ParserFactory>,
    patience: Duration,
    /// How many are being compiled.
    compiling: Arc<AtomicUsize>,
}

/// Counts as one that is being compiled until it is dropped.
struct Compiling(Arc<AtomicUsize>);

impl Drop for Compiling {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Grammars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammars").finish_non_exhaustive()
    }
}

impl Grammars {
    /// For the tokens of a model with `vocab` of them, of which `marks` are never text: like control tokens they come
    /// where a grammar names them, and nowhere else. Takes a moment: a table of all tokens is made.
    ///
    /// # Errors
    /// The vocabulary has no end token, or does not fit the model's.
    pub fn new(
        tokenizer: &Tokenizer,
        vocab: usize,
        marks: impl IntoIterator<Item = u32>,
    ) -> Result<Grammars> {
        let unusable = |why: String| Error::Grammar { kind: "vocabulary", why };
        let ends = tokenizer.end_tokens();
        let Some(&end) = ends.first() else {
            return Err(unusable("it has no token that ends an answer".into()));
        };
        if ends.iter().any(|id| *id as usize >= vocab) {
            return Err(unusable(format!("an end token is not among the model's {vocab}")));
        }
        let ids = u32::try_from(vocab).map_err(|_| unusable(format!("{vocab} tokens are too many")))?;
        let marks: BTreeSet<u32> = marks.into_iter().collect();
        let words: Vec<Vec<u8>> = (0..ids).map(|id| word(tokenizer, id, &marks)).collect();
        let trie = TokTrie::from(&TokRxInfo::new(ids, end), &words).with_eos_tokens(ends);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = ParserFactory::new_simple(&env).map_err(|e| unusable(one_line(&e)))?;
        *factory.limits_mut() = ParserLimits { verbose_errors: false, ..ParserLimits::default() };
        factory.quiet();
        Ok(Grammars { factory: Arc::new(factory), patience: PATIENCE, compiling: Arc::default() })
    }

    /// With another limit for the time that a grammar may take to compile; usually it is a second.
    #[must_use]
    pub fn patient(self, patience: Duration) -> Grammars {
        Grammars { patience, ..self }
    }

    /// A guide for one answer. May take a second: not for a thread that serves others.
    ///
    /// # Errors
    /// The grammar is wrong, too large, takes too long, or no text at all fits it; or too many are being compiled.
    pub fn guide(&self, grammar: &Grammar) -> Result<Box<dyn Guide>> {
        let kind = grammar.kind();
        let wrong = |why: String| Error::Grammar { kind, why };
        grammar.check_size().map_err(wrong)?;
        if let Grammar::JsonSchema(schema) = grammar {
            schema::check(schema).map_err(wrong)?;
        }
        let queued = self.compiling.fetch_add(1, Ordering::Relaxed);
        let running = Compiling(self.compiling.clone());
        if queued >= MOST_AT_ONCE {
            return Err(Error::Busy { queued });
        }
        let (done, result) = channel();
        let (factory, grammar) = (self.factory.clone(), grammar.clone());
        // The parser is recursive: on a small stack a hostile grammar would end the process. And it cannot be stopped.
        let thread = std::thread::Builder::new().name("grammar".into()).stack_size(STACK);
        let spawned = thread.spawn(move || {
            let guide = compile(&factory, grammar);
            drop(running);
            // If nobody waits any more it was too late.
            let _ = done.send(guide);
        });
        spawned.map_err(|e| wrong(format!("no thread to be had: {e}")))?;
        result.recv_timeout(self.patience).map_err(|e| match e {
            RecvTimeoutError::Timeout => {
                wrong(format!("it takes longer than {:?} to compile", self.patience))
            }
            RecvTimeoutError::Disconnected => wrong("the parser of grammars has failed".into()),
        })?
    }
}

fn compile(factory: &ParserFactory, grammar: Grammar) -> Result<Box<dyn Guide>> {
    let kind = grammar.kind();
    let wrong = |why: String| Error::Grammar { kind, why };
    let grammar = match grammar {
        Grammar::JsonSchema(schema) => TopLevelGrammar::from_json_schema(schema),
        Grammar::Regex(regex) => TopLevelGrammar::from_regex(&regex),
        Grammar::Lark(lark) => TopLevelGrammar::from_lark(lark),
    };
    let parser = factory.create_parser(grammar).map_err(|e| wrong(one_line(&e)))?;
    let mut guide = Parser { matcher: Matcher::new(Ok(parser)), allowed: SimpleVob::new() };
    if guide.allowed().map_err(|e| wrong(e.to_string()))?.0.iter().all(|word| *word == 0) {
        return Err(wrong("no text fits it".into()));
    }
    Ok(Box::new(guide))
}

/// The bytes of a token as a grammar sees it; none for what must never be said.
fn word(tokenizer: &Tokenizer, id: u32, marks: &BTreeSet<u32>) -> Vec<u8> {
    let bytes = tokenizer.token_bytes(id);
    if tokenizer.unusable_tokens().binary_search(&id).is_ok() {
        Vec::new()
    } else if tokenizer.is_control(id) || marks.contains(&id) {
        [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat()
    } else {
        bytes.to_vec()
    }
}

impl Grammar {
    fn kind(&self) -> &'static str {
        match self {
            Grammar::JsonSchema(_) => "JSON schema",
            Grammar::Regex(_) => "regular expression",
            Grammar::Lark(_) => "grammar",
        }
    }

    fn check_size(&self) -> std::result::Result<(), String> {
        let size = match self {
            Grammar::JsonSchema(schema) => measure(schema),
            Grammar::Regex(text) | Grammar::Lark(text) => {
                Measured { bytes: text.len(), depth: text_depth(text), ..Measured::default() }
            }
        };
        let Measured { bytes, depth, references, patterns } = size;
        if references > MOST_REFERENCES {
            return Err(format!("it has {references} different references, more than {MOST_REFERENCES}"));
        }
        if bytes > MOST_BYTES {
            return Err(format!("it has {bytes} bytes, more than {MOST_BYTES}"));
        }
        if depth > DEEPEST {
            return Err(format!("it nests {depth} deep, more than {DEEPEST}"));
        }
        let expressions = if let Grammar::Regex(text) = self { vec![text.as_str()] } else { patterns };
        match expressions.into_iter().map(empty_copies).max() {
            Some(copies) if copies > MOST_EMPTY_COPIES => {
                Err(format!("it repeats what may be empty {copies} times, more than {MOST_EMPTY_COPIES}"))
            }
            _ => Ok(()),
        }
    }
}

/// How large a grammar is.
#[derive(Default)]
struct Measured<'a> {
    bytes: usize,
    /// How deep it nests.
    depth: usize,
    /// Different references.
    references: usize,
    /// Regular expressions within it.
    patterns: Vec<&'a str>,
}

/// How large a schema is.
fn measure(schema: &Json) -> Measured<'_> {
    let (mut deepest, mut references, mut patterns) = (0, BTreeSet::new(), Vec::new());
    let mut left = vec![(schema, 1)];
    while let Some((json, depth)) = left.pop() {
        deepest = deepest.max(depth);
        match json {
            Json::Array(items) => left.extend(items.iter().map(|item| (item, depth + 1))),
            Json::Object(fields) => {
                references.extend(fields.get("$ref").and_then(Json::as_str));
                patterns.extend(fields.get("pattern").and_then(Json::as_str));
                left.extend(fields.values().map(|value| (value, depth + 1)));
            }
            _ => {}
        }
    }
    Measured { bytes: schema.to_string().len(), depth: deepest, references: references.len(), patterns }
}

/// Brackets open at a time, at most; those that stand for themselves are counted too.
fn text_depth(text: &str) -> usize {
    let (mut open, mut deepest) = (0usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => open += 1,
            b')' | b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(open);
    }
    deepest
}

/// The first line of what went wrong, without what may follow of the parser's state.
fn one_line(error: &impl ToString) -> String {
    let text = error.to_string();
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no reason given");
    line.chars().take(MOST_WORDS).collect()
}

/// Follows an answer through a grammar.
struct Parser {
    matcher: Matcher,
    allowed: SimpleVob,
}

impl fmt::Debug for Parser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parser").field("stopped", &self.matcher.is_stopped()).finish_non_exhaustive()
    }
}

impl Guide for Parser {
    fn allowed(&mut self) -> Result<Allowed<'_>> {
        self.allowed = self.matcher.compute_mask_or_eos().map_err(|e| Error::Guide(one_line(&e)))?;
        Ok(Allowed(self.allowed.as_slice()))
    }

    fn accept(&mut self, token: u32) -> Result<bool> {
        self.matcher.consume_token(token).map_err(|e| Error::Guide(one_line(&e)))?;
        Ok(self.matcher.is_stopped())
    }
}
