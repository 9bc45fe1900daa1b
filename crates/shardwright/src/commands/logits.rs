//! `shardwright logits`: every logit of given token ids, for machines that compare.

use crate::progress::Progress;
use crate::wire::{BackendArgs, ModelArgs, Size, read_ids};
use anyhow::{Context, bail};
use shardwright_model::exec::{BLOCK, RowOutput, StepBatch, Want};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::time::Instant;

/// Write the logits of token ids to a file.
///
/// The ids are fed exactly as they are, without adding a BOS token. The file gets raw little-endian float32 numbers,
/// one row of the vocabulary's length for each id.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shardwright logits model.gguf --ids ids.txt --out logits.f32
  shardwright logits model.gguf --ids ids.txt --out logits.f32 --tp 4 --chunk 7")]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    backend: BackendArgs,
    /// Text file of token ids between white space.
    #[arg(long, value_name = "FILE")]
    ids: PathBuf,
    /// Where to write the logits.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Rows of one step.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    chunk: u32,
    /// Print rows, vocabulary and seconds as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let opened = args.model.open()?;
    let vocab = opened.hyper.vocab;
    let ids = read_ids(&args.ids, vocab)?;
    let rows = (args.chunk as usize).min(ids.len());
    let mut executor = opened.executor(&args.backend, Size { context: ids.len(), rows })?;
    let place = || args.out.display().to_string();
    let mut out = BufWriter::new(File::create(&args.out).with_context(place)?);
    let mut progress = Progress::new("tokens", ids.len());
    let started = Instant::now();
    for start in (0..ids.len()).step_by(rows) {
        let end = (start + rows).min(ids.len());
        for (at, row) in (start..end).zip(executor.step(&batch(&ids, start..end))?.rows) {
            match row {
                RowOutput::Logits(logits) => {
                    for logit in logits {
                        out.write_all(&logit.to_le_bytes()).with_context(place)?;
                    }
                }
                RowOutput::NonFinite { at: value } => {
                    bail!(
                        "token {at}: the model computed non-finite values (NaN or infinity), first in `{value}`"
                    )
                }
                other => bail!("token {at}: the backend answered {other:?} instead of logits"),
            }
        }
        progress.at(end);
    }
    out.flush().with_context(place)?;
    drop(progress);
    if args.json {
        let seconds = started.elapsed().as_secs_f64();
        let report = serde_json::json!({ "rows": ids.len(), "vocab": vocab, "seconds": seconds });
        writeln!(std::io::stdout(), "{report}")?;
    }
    Ok(())
}

/// The rows of these positions of one sequence that has the whole cache.
fn batch(ids: &[u32], rows: Range<usize>) -> StepBatch {
    let n = rows.len();
    StepBatch {
        tokens: ids[rows.clone()].to_vec(),
        positions: rows.map(|p| p as u32).collect(),
        sequences: vec![0; n],
        tables: vec![(0..ids.len().div_ceil(BLOCK) as u32).collect()],
        wants: vec![Want::Logits; n],
        ..StepBatch::default()
    }
}
