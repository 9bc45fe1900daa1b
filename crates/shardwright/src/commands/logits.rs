//! `shardwright logits`: every logit of given token ids, for machines that compare.

use crate::files::read_ids;
use crate::progress::Progress;
use crate::steps::{logits, steps};
use crate::wire::{BackendArgs, ModelArgs, Size};
use anyhow::Context;
use std::fs::File;
use std::io::{BufWriter, Write};
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
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) backend: BackendArgs,
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
    opened.tell_if_beyond(ids.len());
    let mut executor = opened.executor(&args.backend, Size { context: ids.len(), rows })?;
    let place = || args.out.display().to_string();
    let mut out = BufWriter::new(File::create(&args.out).with_context(place)?);
    let mut progress = Progress::new("tokens", ids.len());
    let started = Instant::now();
    for batch in steps(&ids, rows) {
        for (row, at) in executor.step(&batch)?.rows.into_iter().zip(&batch.positions) {
            for logit in logits(row, *at as usize)? {
                out.write_all(&logit.to_le_bytes()).with_context(place)?;
            }
            progress.at(*at as usize + 1);
        }
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
