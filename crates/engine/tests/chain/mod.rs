//! A model whose next token depends only on the current token, with exact probabilities, and its vocabulary.
#![allow(dead_code, clippy::unwrap_used)] // each test file uses a part of it

use shardwright_engine::generate::Generator;
use shardwright_engine::reader::Reader;
use shardwright_engine::request::{Done, Id, Part, Request};
use shardwright_engine::sample::Logprobs;
use shardwright_engine::{Error, Result};
use shardwright_gguf::{Array, Meta, Strings, Value};
use shardwright_model::exec::*;
use shardwright_text::reply::Event;
use shardwright_text::tokenizer::Tokenizer;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

/// The token that ends a turn, and follows where nothing else is said.
pub(crate) const EOS: &str = "<eos>";

/// Probabilities of the tokens that may follow one.
type Successors = BTreeMap<u32, Vec<(u32, f64)>>;

/// Ids 0 to 255 are the bytes; then come control tokens, then longer pieces.
#[derive(Default)]
pub(crate) struct Chain {
    texts: Vec<String>,
    kinds: Vec<i32>,
    ids: BTreeMap<Vec<u8>, u32>,
    next: Successors,
    nan: Option<u32>,
    meta: Meta,
    tokenizer: OnceLock<Arc<Tokenizer>>,
}

/// The letters that byte-level vocabularies write bytes with.
fn letter(byte: u8) -> char {
    let plain = |b: u8| matches!(b, 33..=126 | 161..=172 | 174..=255);
    match plain(byte) {
        true => char::from(byte),
        false => char::from_u32(256 + (0..byte).filter(|b| !plain(*b)).count() as u32).unwrap(),
    }
}

fn spelled(piece: &[u8]) -> String {
    piece.iter().map(|b| letter(*b)).collect()
}

impl Chain {
    /// `controls` are control tokens beside [`EOS`]; marks of reasoning and calls are user-defined, as in GLM's files.
    pub(crate) fn new(controls: &[&str]) -> Chain {
        let mut chain = Chain::default();
        (0..=255u8).for_each(|b| chain.add(&[b], spelled(&[b]), 1));
        for control in [&[EOS], controls].concat() {
            let name = control.trim_start_matches(['<', '/']);
            let is_mark = ["think", "tool_", "arg_"].iter().any(|begin| name.starts_with(begin));
            chain.add(control.as_bytes(), control.to_owned(), if is_mark { 4 } else { 3 });
        }
        chain
    }

    fn add(&mut self, piece: &[u8], text: String, kind: i32) {
        assert!(self.tokenizer.get().is_none(), "the vocabulary is in use");
        self.ids.insert(piece.to_vec(), self.texts.len() as u32);
        self.texts.push(text);
        self.kinds.push(kind);
    }

    pub(crate) fn id(&mut self, piece: &[u8]) -> u32 {
        if !self.ids.contains_key(piece) {
            self.add(piece, spelled(piece), 1);
        }
        self.ids[piece]
    }

    /// After `start` the model says the pieces, then ends.
    pub(crate) fn script(mut self, start: &str, pieces: &[&[u8]]) -> Chain {
        let mut from = self.id(start.as_bytes());
        for piece in pieces.iter().copied().chain([EOS.as_bytes()]) {
            let to = self.id(piece);
            let other = self.next.insert(from, vec![(to, 1.0)]);
            assert!(other.is_none_or(|o| o == [(to, 1.0)]), "a token has one successor");
            from = to;
        }
        self
    }

    /// Exact probabilities after `start`.
    pub(crate) fn fork(mut self, start: &str, to: &[(&str, f64)]) -> Chain {
        let to = to.iter().map(|(piece, p)| (self.id(piece.as_bytes()), *p)).collect();
        let from = self.id(start.as_bytes());
        self.next.insert(from, to);
        self
    }

    /// The embedding of this token is NaN.
    pub(crate) fn nan(mut self, piece: &str) -> Chain {
        self.nan = Some(self.id(piece.as_bytes()));
        self
    }

    /// More end tokens, by metadata key.
    pub(crate) fn end(mut self, key: &str, piece: &str) -> Chain {
        let id = self.id(piece.as_bytes());
        self.meta.set(key, Value::U32(id));
        self
    }

    pub(crate) fn tokenizer(&self) -> Arc<Tokenizer> {
        self.tokenizer.get_or_init(|| Arc::new(Tokenizer::from_meta(&self.meta()).unwrap())).clone()
    }

    fn meta(&self) -> Meta {
        let mut meta = self.meta.clone();
        let mut texts = Strings::default();
        self.texts.iter().for_each(|t| texts.push(t.as_bytes()));
        meta.set("tokenizer.ggml.model", Value::String(b"gpt2".to_vec()));
        meta.set("tokenizer.ggml.pre", Value::String(b"glm4".to_vec()));
        meta.set("tokenizer.ggml.tokens", Value::Array(Array::Strings(texts)));
        meta.set("tokenizer.ggml.token_type", Value::Array(Array::I32(self.kinds.clone())));
        meta.set("tokenizer.ggml.merges", Value::Array(Array::Strings(Strings::default())));
        meta.set("tokenizer.ggml.eos_token_id", Value::U32(self.ids[EOS.as_bytes()]));
        meta.set("tokenizer.ggml.add_bos_token", Value::Bool(false));
        meta
    }

    /// An executor with this much room.
    pub(crate) fn executor(&self, rows: usize, blocks: usize, context: usize) -> Box<dyn Executor> {
        let limits =
            Limits { vocab: self.texts.len(), rows, blocks, context, width: 1, drafts: false, takes: 0 };
        let eos = self.ids[EOS.as_bytes()];
        Box::new(Runner { limits, eos, next: self.next.clone(), nan: self.nan, cache: HashMap::new() })
    }

    /// Vocabulary rows.
    pub(crate) fn vocab(&self) -> usize {
        self.texts.len()
    }

    /// A generator with room for 16 sequences of 512 tokens.
    pub(crate) fn generator(&self) -> Generator {
        Generator::new(self.executor(32, 128, 512), self.tokenizer().end_tokens().iter().copied())
    }

    /// A request for plain text. A prompt has one token a byte.
    pub(crate) fn request(&self, prompt: &str, stops: &[&str]) -> Request {
        let stops: Vec<String> = stops.iter().map(|s| (*s).to_owned()).collect();
        Request {
            reader: Reader::text(self.tokenizer(), &stops),
            ..Request::new(prompt.bytes().map(u32::from).collect())
        }
    }
}

/// Runs the chain, and is strict about the contract: a row's past must be in the blocks that its sequence holds.
struct Runner {
    limits: Limits,
    eos: u32,
    next: Successors,
    nan: Option<u32>,
    /// The token cached at (block, row).
    cache: HashMap<(u32, usize), u32>,
}

impl Runner {
    fn logits(&self, token: u32) -> Vec<f32> {
        let mut row = vec![-30.0; self.limits.vocab];
        let ends = vec![(self.eos, 1.0)];
        for (id, p) in self.next.get(&token).unwrap_or(&ends) {
            row[*id as usize] = p.ln() as f32;
        }
        row
    }

    fn answer(&self, past: &[u32], want: Want) -> RowOutput {
        if self.nan.is_some_and(|nan| past.contains(&nan)) {
            return RowOutput::NonFinite { at: "blk.3.attn_norm".into() };
        }
        let logits = self.logits(*past.last().unwrap());
        match want {
            Want::Nothing => RowOutput::Nothing,
            Want::Logits => RowOutput::Logits(logits),
            Want::Candidates => candidates(&logits),
        }
    }
}

pub(crate) fn candidates(logits: &[f32]) -> RowOutput {
    let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
    ids.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b)));
    ids.truncate(CANDIDATES);
    let log_sum_exp = logits.iter().map(|l| f64::from(*l).exp()).sum::<f64>().ln() as f32;
    RowOutput::Candidates { logits: ids.iter().map(|id| logits[*id as usize]).collect(), ids, log_sum_exp }
}

impl Executor for Runner {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn step_probed(
        &mut self,
        batch: &StepBatch,
        _: Option<&mut dyn Probe>,
    ) -> std::result::Result<StepOutput, ExecError> {
        assert!((1..=self.limits.rows).contains(&batch.rows()));
        let mut holders = BTreeMap::new();
        batch.tables.iter().flatten().for_each(|block| *holders.entry(*block).or_insert(0) += 1);
        let mut rows = Vec::new();
        for i in 0..batch.rows() {
            let (position, table) = (batch.positions[i] as usize, &batch.tables[batch.sequences[i] as usize]);
            assert!(position < self.limits.context);
            let place = |p: usize| (table[p / BLOCK], p % BLOCK);
            assert_eq!(holders[&place(position).0], 1, "others hold a block that is written to");
            self.cache.insert(place(position), batch.tokens[i]);
            let past: Vec<u32> = (0..=position).map(|p| self.cache[&place(p)]).collect();
            rows.push(self.answer(&past, batch.wants[i]));
        }
        // the hidden state of a row is its token
        let hidden = || batch.tokens.iter().map(|t| *t as f32).collect();
        Ok(StepOutput { rows, hidden: batch.want_hidden.then(hidden).unwrap_or_default() })
    }
}

/// What came of a request, the streamed text apart from the message.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) deltas: Vec<String>,
    pub(crate) tokens: Vec<u32>,
    pub(crate) prompt: Option<Vec<Logprobs>>,
    pub(crate) done: Box<Done>,
}

fn texts(events: Vec<Event>) -> impl Iterator<Item = String> {
    events.into_iter().map(|e| match e {
        Event::Content(text) => text,
        other => panic!("plain text has no {other:?}"),
    })
}

/// Runs until idle; the outcomes by id.
pub(crate) fn drain(generator: &mut Generator) -> BTreeMap<Id, Result<Outcome>> {
    let mut running: BTreeMap<Id, (Vec<String>, Vec<u32>)> = BTreeMap::new();
    let (mut over, mut prompts) = (BTreeMap::new(), BTreeMap::new());
    while !generator.is_idle() {
        for reply in generator.step().unwrap() {
            let (deltas, tokens) = running.entry(reply.id).or_default();
            match reply.part {
                Part::Started { .. } => {}
                Part::Prompt(found) => {
                    assert!(tokens.is_empty(), "the prompt after the answer");
                    prompts.insert(reply.id, found);
                }
                Part::Token { choice, events } => {
                    tokens.push(choice.token);
                    deltas.extend(texts(events));
                }
                Part::Done(mut done) => {
                    deltas.extend(texts(std::mem::take(&mut done.events)));
                    let (deltas, tokens) = running.remove(&reply.id).unwrap();
                    assert_eq!(deltas.concat(), done.message.content, "streamed and whole differ");
                    let prompt = prompts.remove(&reply.id);
                    over.insert(reply.id, Ok(Outcome { deltas, tokens, prompt, done }));
                }
                Part::Failed(e) => {
                    over.insert(reply.id, Err::<Outcome, Error>(e));
                }
            }
        }
    }
    over
}

/// Runs one request alone.
pub(crate) fn complete(chain: &Chain, request: Request) -> Outcome {
    let mut generator = chain.generator();
    let id = generator.submit(request).unwrap();
    drain(&mut generator).remove(&id).unwrap().unwrap()
}
