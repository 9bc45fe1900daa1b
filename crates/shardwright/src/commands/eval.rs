//! `shardwright eval`: perplexity of a text, and how far a model is from another.

use crate::compare::{Agreement, agreement, log_softmax};
use crate::files::read_ids;
use crate::progress::Progress;
use crate::steps::{logits, steps};
use crate::wire::{BackendArgs, ModelArgs, Opened, Size, tokenizer};
use anyhow::{Context, bail};
use serde_json::json;
use shardwright_model::exec::Executor;
use shardwright_text::tokenizer::Special;
use std::io::Write;
use std::path::PathBuf;

/// Measure perplexity on a text, and agreement with a reference file.
///
/// The text's tokens are cut into windows, each fed into an empty context without a BOS token; every token of a
/// window but the first is scored. Perplexity is the exponential of the mean negative log-likelihood.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shardwright eval model.gguf --text book.txt
  shardwright eval model-Q4_K.gguf --text book.txt --against model-BF16.gguf   what did quantization cost?
  shardwright eval model.gguf --text book.txt --activations q8 --json")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) backend: BackendArgs,
    /// A UTF-8 text.
    #[arg(long, value_name = "FILE", required_unless_present = "ids")]
    text: Option<PathBuf>,
    /// Text file of token ids instead of a text.
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    ids: Option<PathBuf>,
    /// Also run this file, exactly and on one rank, and report how far the model is from it.
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Tokens of a window.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(2..))]
    window: u32,
    /// Stop after so many windows [default: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    windows: Option<u32>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

/// Rows of one step: enough to decode a weight seldom, few enough to keep the working memory small.
const ROWS: usize = 128;

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let opened = args.model.open()?;
    let ids = tokens(args, &opened)?;
    let width = (args.window as usize).min(ids.len());
    let windows: Vec<&[u32]> = ids.chunks(width).filter(|w| w.len() > 1).collect();
    let windows = &windows[..args.windows.map_or(windows.len(), |n| windows.len().min(n as usize))];
    opened.tell_if_beyond(width);
    let size = Size { context: width, rows: width.min(ROWS) };
    let mut executor = opened.executor(&args.backend, size)?;
    let mut reference = match &args.against {
        Some(path) => Some(args.model.open_at(path)?.executor(&args.backend.reference(), size)?),
        None => None,
    };
    let vocab = opened.hyper.vocab;
    if let Some(other) = reference.as_ref().map(|r| r.limits().vocab).filter(|n| *n != vocab) {
        bail!("the vocabularies differ: {vocab} tokens in the model, {other} in the reference");
    }
    let mut report = Report { vocab, ..Report::default() };
    let mut progress = Progress::new("windows", windows.len());
    for (done, window) in windows.iter().enumerate() {
        let found = feed(executor.as_mut(), window, size.rows)?;
        let expected = reference.as_mut().map(|r| feed(r.as_mut(), window, size.rows)).transpose()?;
        report.add(window, &found, expected.as_deref());
        progress.at(done + 1);
    }
    drop(progress);
    let mut out = std::io::stdout();
    match args.json {
        true => writeln!(out, "{}", report.json())?,
        false => writeln!(out, "{report}")?,
    }
    Ok(())
}

fn tokens(args: &Args, opened: &Opened) -> anyhow::Result<Vec<u32>> {
    let ids = match (&args.ids, &args.text) {
        (Some(path), _) => read_ids(path, opened.hyper.vocab)?,
        (None, Some(path)) => {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            tokenizer(&opened.reader)?.encode(&text, Special::AsText)?
        }
        (None, None) => bail!("name a text with --text, or token ids with --ids"),
    };
    match ids.len() {
        0 | 1 => bail!("two tokens are needed at least, there are {}", ids.len()),
        _ => Ok(ids),
    }
}

fn feed(executor: &mut dyn Executor, window: &[u32], rows: usize) -> anyhow::Result<Vec<f32>> {
    let mut all = vec![];
    for batch in steps(window, rows) {
        for (row, at) in executor.step(&batch)?.rows.into_iter().zip(&batch.positions) {
            all.extend(logits(row, *at as usize)?);
        }
    }
    Ok(all)
}

#[derive(Default)]
struct Report {
    vocab: usize,
    windows: usize,
    tokens: usize,
    loss: f64,
    reference_loss: f64,
    /// Each window's agreement, with its number of rows.
    agreements: Vec<(Agreement, usize)>,
}

impl Report {
    fn add(&mut self, window: &[u32], found: &[f32], expected: Option<&[f32]>) {
        self.windows += 1;
        self.tokens += window.len() - 1;
        self.loss += self.losses(window, found);
        if let Some(expected) = expected {
            self.reference_loss += self.losses(window, expected);
            self.agreements.push((agreement(expected, found, self.vocab), window.len()));
        }
    }

    /// Sum of the negative log-likelihoods of all tokens but the first.
    fn losses(&self, window: &[u32], logits: &[f32]) -> f64 {
        let rows = logits.chunks_exact(self.vocab).zip(&window[1..]);
        rows.map(|(row, next)| -log_softmax(row)[*next as usize]).sum()
    }

    fn perplexity(&self) -> f64 {
        (self.loss / self.tokens as f64).exp()
    }

    /// The reference's perplexity, and the agreement over all rows.
    fn compared(&self) -> Option<(f64, Agreement)> {
        let rows: usize = self.agreements.iter().map(|a| a.1).sum();
        let mean = |f: fn(&Agreement) -> f64| {
            self.agreements.iter().map(|(a, n)| f(a) * *n as f64).sum::<f64>() / rows as f64
        };
        let max_abs = self.agreements.iter().map(|a| a.0.max_abs).fold(0.0, f64::max);
        let all = Agreement { max_abs, kl: mean(|a| a.kl), top1: mean(|a| a.top1) };
        (rows > 0).then(|| ((self.reference_loss / self.tokens as f64).exp(), all))
    }

    fn json(&self) -> serde_json::Value {
        let compared = self.compared().map(|(perplexity, a)| {
            json!({"perplexity": perplexity, "kl": a.kl, "top1": a.top1, "max_abs": a.max_abs})
        });
        json!({"perplexity": self.perplexity(), "tokens": self.tokens, "windows": self.windows, "reference": compared})
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "perplexity {:.6} over {} tokens in {} windows",
            self.perplexity(),
            self.tokens,
            self.windows
        )?;
        if let Some((perplexity, a)) = self.compared() {
            let more = 100.0 * (self.perplexity() / perplexity - 1.0);
            write!(f, "\nreference  {perplexity:.6}, so {more:+.3} %; KL {:.3e} nats, ", a.kl)?;
            write!(
                f,
                "same likeliest token in {:.2} %, largest difference {:.3e}",
                100.0 * a.top1,
                a.max_abs
            )?;
        }
        Ok(())
    }
}
