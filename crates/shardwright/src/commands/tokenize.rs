//! `shardwright tokenize`: the token ids of a text.

use crate::wire::{ModelArgs, tokenizer};
use anyhow::Context;
use shardwright_text::tokenizer::Special;
use std::io::Write;
use std::path::PathBuf;

/// Print the token ids of a text.
///
/// Nothing is added: no newline, no BOS token. The last line of the output holds the ids. With `-v` each token is
/// listed before, on a line of its own.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shardwright tokenize model.gguf --text prompt.txt
  printf 'Hello' | shardwright tokenize model.gguf --text - --json")]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// A UTF-8 file; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    text: PathBuf,
    /// Take the texts of control tokens, such as <|user|>, for those tokens.
    #[arg(long)]
    parse_special: bool,
    /// Print ids and token texts as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let reader = args.model.read()?;
    let tokenizer = tokenizer(&reader)?;
    let text = match args.text.as_os_str() == "-" {
        true => std::io::read_to_string(std::io::stdin()),
        false => std::fs::read_to_string(&args.text),
    };
    let text = text.with_context(|| args.text.display().to_string())?;
    let special = if args.parse_special { Special::Parse } else { Special::AsText };
    let ids = tokenizer.encode(&text, special)?;
    let mut out = std::io::stdout().lock();
    if args.json {
        let texts: Vec<_> =
            ids.iter().map(|id| String::from_utf8_lossy(tokenizer.token_bytes(*id)).into_owned()).collect();
        return Ok(writeln!(out, "{}", serde_json::json!({ "ids": ids, "texts": texts }))?);
    }
    for id in ids.iter().filter(|_| log::log_enabled!(log::Level::Debug)) {
        writeln!(out, "{id:>8}  {:?}", String::from_utf8_lossy(tokenizer.token_bytes(*id)))?;
    }
    let words: Vec<String> = ids.iter().map(u32::to_string).collect();
    Ok(writeln!(out, "{}", words.join(" "))?)
}
