//! What the engine itself costs: 64 streams of text from an executor that computes nothing.
//!
//!     cargo run --release -p shardwright-engine --example overhead -- demo/glm-dsa-demo-UD-Q4_K_XL.gguf
//!
//! Prints JSON. A step's overhead is the time from the end of one step of the executor to the beginning of the next:
//! choosing tokens, making text of them, delivering it, and setting up the batch.

use serde_json::json;
use shardwright_engine::engine::{Engine, Flow, Options, Sink};
use shardwright_engine::reader::Reader;
use shardwright_engine::request::{Part, Request};
use shardwright_model::exec::{ExecError, Executor, Limits, Probe, StepBatch, StepOutput};
use shardwright_model::null::Null;
use shardwright_text::reply::Event;
use shardwright_text::tokenizer::Tokenizer;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const STREAMS: usize = 64;
const TOKENS: usize = 4000;
const PROMPT: usize = 32;
const VOCABULARY: usize = 8192;

/// Notes when steps begin and end.
struct Timed {
    null: Null,
    ended: Option<Instant>,
    /// Overheads, and what the executor itself took.
    seen: Arc<Mutex<(Vec<Duration>, Duration)>>,
}

impl Executor for Timed {
    fn limits(&self) -> Limits {
        self.null.limits()
    }
    fn step_probed(
        &mut self,
        batch: &StepBatch,
        probe: Option<&mut dyn Probe>,
    ) -> Result<StepOutput, ExecError> {
        let begun = Instant::now();
        let output = self.null.step_probed(batch, probe)?;
        let ended = Instant::now();
        let mut seen = self.seen.lock().map_err(|e| ExecError(e.to_string()))?;
        // Only steps in which all take part.
        if let Some(before) = self.ended.replace(ended).filter(|_| batch.rows() == STREAMS) {
            seen.0.push(begun - before);
        }
        seen.1 += ended - begun;
        Ok(output)
    }
}

/// Keeps the text in memory.
struct Memory {
    text: String,
    /// Gets the number of tokens and of bytes.
    ended: Sender<(usize, usize)>,
}

impl Sink for Memory {
    fn put(&mut self, part: Part) -> Flow {
        let events = match part {
            Part::Token { events, .. } => events,
            Part::Done(done) => {
                let _ = self.ended.send((done.answered, done.message.content.len()));
                done.events
            }
            Part::Started { .. } | Part::Prompt(_) | Part::Failed(_) => Vec::new(),
        };
        for event in events {
            if let Event::Content(text) = event {
                self.text.push_str(&text);
            }
        }
        Flow::Open
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("name a GGUF file, for its vocabulary")?;
    let tokenizer = Tokenizer::from_meta(shardwright_gguf::Reader::open(path.as_ref())?.meta())?;
    let (texts, tokenizer) = (tokenizer.vocab_len(), Arc::new(tokenizer));
    let context = PROMPT + TOKENS;
    let blocks = STREAMS * context.div_ceil(64);
    let limits = Limits {
        vocab: VOCABULARY.max(texts),
        rows: 512,
        blocks,
        context,
        width: 1,
        drafts: false,
        takes: 0,
    };
    let usual = 300..texts as u32 - 300;
    let next = move |token: u32, position: u32| {
        usual.start + (token.wrapping_mul(7919) + position) % (usual.end - usual.start)
    };
    let seen = Arc::default();
    let timed = Timed { null: Null::new(limits, next), ended: None, seen: Arc::clone(&seen) };
    let engine = Engine::start(Box::new(timed), [], Options::default())?;
    let (ended, ends) = channel();
    let started = Instant::now();
    let tickets = (0..STREAMS)
        .map(|i| {
            let request = Request {
                max_tokens: Some(TOKENS),
                reader: Reader::text(tokenizer.clone(), &[]),
                ..Request::new((0..PROMPT).map(|t| 300 + (i * PROMPT + t) as u32).collect())
            };
            engine.submit(request, Box::new(Memory { text: String::new(), ended: ended.clone() }))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let ends: Vec<_> = ends.iter().take(STREAMS).collect();
    let took = started.elapsed();
    let (tokens, bytes) = ends.iter().fold((0, 0), |sum, end| (sum.0 + end.0, sum.1 + end.1));
    if bytes == 0 {
        return Err("no text was made".into());
    }
    drop(tickets);
    let (mut steps, executor) =
        seen.lock().map(|mut seen| std::mem::take(&mut *seen)).map_err(|e| e.to_string())?;
    steps.sort_unstable();
    let micros = |share: f64| steps[((steps.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
    let result = json!({
        "streams": STREAMS,
        "vocabulary": limits.vocab,
        "tokens": tokens,
        "bytes_of_text": bytes,
        "seconds": took.as_secs_f64(),
        "tokens_per_second": tokens as f64 / took.as_secs_f64(),
        "executor_seconds": executor.as_secs_f64(),
        "steps": steps.len(),
        "step_overhead_us": {"p50": micros(0.5), "p90": micros(0.9), "p99": micros(0.99), "max": micros(1.0)},
    });
    println!("{result:#}");
    Ok(())
}
