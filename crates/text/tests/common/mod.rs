//! Small vocabularies: the 256 bytes, `<eos>`, and what a test adds.
#![allow(dead_code, reason = "each test file uses a part")]

use std::time::{Duration, Instant};

use shardwright_gguf::{Array, Meta, Strings, Value};
use shardwright_text::tokenizer::Tokenizer;

pub(crate) fn strings<S: AsRef<str>>(list: &[S]) -> Value {
    let mut strings = Strings::with_capacity(list.len(), 0);
    list.iter().for_each(|s| strings.push(s.as_ref().as_bytes()));
    Value::Array(Array::Strings(strings))
}

/// GPT-2's character of a byte.
fn char_of(b: u8) -> char {
    let printable = |b: &u8| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let code = match printable(&b) {
        true => u32::from(b),
        false => 0x100 + (0..b).filter(|x| !printable(x)).count() as u32,
    };
    char::from_u32(code).unwrap()
}

fn spell(text: &str) -> String {
    text.bytes().map(char_of).collect()
}

pub(crate) struct Vocabulary {
    pre: String,
    tokens: Vec<String>,
    types: Vec<i32>,
    merges: Option<Vec<String>>,
    scores: Option<Vec<f32>>,
}

impl Vocabulary {
    pub(crate) fn new(pre: &str) -> Vocabulary {
        let tokens: Vec<String> = (0..=255).map(|b| char_of(b).to_string()).collect();
        let vocabulary = Vocabulary {
            pre: pre.to_owned(),
            tokens,
            types: vec![1; 256],
            merges: Some(Vec::new()),
            scores: None,
        };
        vocabulary.specials(&["<eos>"])
    }

    /// Adds markers: control tokens, or user-defined ones for reasoning and tools.
    pub(crate) fn specials(mut self, list: &[&str]) -> Vocabulary {
        for text in list {
            let open =
                ["think", "tool_", "arg_"].iter().any(|p| text.trim_start_matches(['<', '/']).starts_with(p));
            self.tokens.push((*text).to_owned());
            self.types.push(if open { 4 } else { 3 });
        }
        self
    }

    pub(crate) fn merges(mut self, list: &[(&str, &str)]) -> Vocabulary {
        for (a, b) in list {
            self.tokens.push(spell(&format!("{a}{b}")));
            self.types.push(1);
            self.merges.as_mut().unwrap().push(format!("{} {}", spell(a), spell(b)));
        }
        self
    }

    pub(crate) fn doubles(mut self, list: &[&str]) -> Vocabulary {
        for text in list {
            self.tokens.push((*text).to_owned());
            self.types.push(1);
        }
        self
    }

    pub(crate) fn without_merges(mut self) -> Vocabulary {
        self.merges = None;
        self
    }

    /// Turns it into a SentencePiece vocabulary with these longer pieces, best first.
    pub(crate) fn sentence_piece(mut self, pieces: &[&str]) -> Vocabulary {
        self.tokens = (0..=255)
            .map(|b| format!("<0x{b:02X}>"))
            .chain(["<eos>".to_owned(), "a".to_owned(), "▁".to_owned()])
            .collect();
        self.types = [vec![6; 256], vec![3, 1, 1]].concat();
        let scores =
            vec![-1000.0; self.tokens.len()].into_iter().chain((0..pieces.len()).map(|i| -(i as f32)));
        self.scores = Some(scores.collect());
        self.tokens.extend(pieces.iter().map(|p| (*p).to_owned()));
        self.types.resize(self.tokens.len(), 1);
        self
    }

    pub(crate) fn meta(&self) -> Meta {
        let mut meta = Meta::new();
        meta.set("tokenizer.ggml.model", if self.scores.is_some() { "llama" } else { "gpt2" });
        meta.set("tokenizer.ggml.pre", self.pre.as_str());
        meta.set("tokenizer.ggml.tokens", strings(&self.tokens));
        meta.set("tokenizer.ggml.token_type", self.types.clone());
        meta.set("tokenizer.ggml.eos_token_id", 256u32);
        if let Some(merges) = self.merges.as_ref().filter(|_| self.scores.is_none()) {
            meta.set("tokenizer.ggml.merges", strings(merges));
        }
        if let Some(scores) = &self.scores {
            meta.set("tokenizer.ggml.scores", scores.clone());
        }
        meta
    }

    pub(crate) fn tokenizer(&self) -> Tokenizer {
        Tokenizer::from_meta(&self.meta()).unwrap()
    }
}

/// Time that this thread spent on a processor, so that other work on the machine does not count.
pub(crate) fn busy() -> Duration {
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = stat.and_then(|s| s.split(' ').next()?.parse().ok());
    nanos.map_or_else(|| START.elapsed(), Duration::from_nanos)
}
