//! `shardwright generate`: the greedy continuation of given token ids, for machines that compare.

use crate::files::read_ids;
use crate::progress::Progress;
use crate::wire::{BackendArgs, ModelArgs, Size};
use anyhow::bail;
use shardwright_engine::generate::Generator;
use shardwright_engine::request::{Part, Request};
use std::io::Write;
use std::path::PathBuf;

/// Print the greedy continuation of token ids.
///
/// The ids are fed exactly as they are, without adding a BOS token; the likeliest token follows, N times, whether or
/// not it ends a turn. The last line of the output holds the new ids.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shardwright generate model.gguf --ids ids.txt -n 64
  shardwright generate model.gguf --ids ids.txt -n 64 --tp 4 --json")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) backend: BackendArgs,
    /// Text file of token ids between white space.
    #[arg(long, value_name = "FILE")]
    ids: PathBuf,
    /// How many tokens to add.
    #[arg(short = 'n', long = "n", visible_alias = "predict", value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..))]
    n: u32,
    /// Rows of one step.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    chunk: u32,
    /// Print the ids as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let opened = args.model.open()?;
    let prompt = read_ids(&args.ids, opened.hyper.vocab)?;
    let n = args.n as usize;
    let context = prompt.len() + n;
    let rows = (args.chunk as usize).min(prompt.len());
    opened.tell_if_beyond(context);
    let executor = opened.executor(&args.backend, Size { context, rows })?;
    let mut generator = Generator::new(executor, []);
    generator.submit(Request { max_tokens: Some(n), ..Request::new(prompt) })?;
    let mut progress = Progress::new("tokens", n);
    let mut ids = Vec::with_capacity(n.min(1 << 20));
    while !generator.is_idle() {
        for reply in generator.step()? {
            match reply.part {
                Part::Token { choice, .. } => ids.push(choice.token),
                Part::Started { .. } | Part::Prompt(_) | Part::Done(_) => {}
                Part::Failed(e) => bail!(e),
            }
        }
        progress.at(ids.len());
    }
    drop(progress);
    let mut out = std::io::stdout();
    if args.json {
        return Ok(writeln!(out, "{}", serde_json::json!({ "ids": ids }))?);
    }
    let words: Vec<String> = ids.iter().map(u32::to_string).collect();
    Ok(writeln!(out, "{}", words.join(" "))?)
}
