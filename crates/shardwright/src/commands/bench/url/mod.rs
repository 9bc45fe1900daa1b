//! Any server that speaks OpenAI's chat API, over HTTP.

mod client;
mod measure;
pub(super) mod plot;
mod prompt;
mod report;
mod sse;

use super::How;
use crate::progress::Progress;
use anyhow::{Context, bail};
use client::Client;
use measure::{Bench, Cell};
use prompt::{Scale, Words};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// With one of these there is no server, and `requires` says nothing of what another flag excludes.
const FILES: [&str; 5] = ["MODEL", "hf", "demo", "dummy", "kernels"];

#[derive(clap::Args)]
#[command(next_help_heading = "Of a server")]
pub(super) struct UrlArgs {
    /// Measure the server at this address instead, such as http://localhost:8080.
    #[arg(long, value_name = "URL", conflicts_with_all = [
        "MODEL", "hf", "demo", "mtp", "override_kv", "dense_attention", "deal_embedding", "prompt", "chunk", "rows", "tp", "device",
        "activations", "allreduce_type", "allreduce", "check_ranks", "threads", "enforce_eager", "no_memory_check", "StageArgs",
        "dummy", "kernels",
    ])]
    url: Option<String>,
    /// The key that it wants.
    #[arg(long, value_name = "KEY", env = "SHARDWRIGHT_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// How many streams at a time.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,2,4,8,16", requires = "url", conflicts_with_all = FILES,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    concurrency: Vec<u32>,
    /// Tokens of the prompts, about; 8k is 8192, 0 is a short prompt.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "0", requires = "url", conflicts_with_all = FILES, value_parser = tokens)]
    context: Vec<u32>,
    /// Draw the figures into this file.
    #[arg(long, value_name = "FILE.svg", requires = "url", conflicts_with_all = FILES, value_parser = svg)]
    plot: Option<PathBuf>,
    /// Seconds without a byte after which a request has failed.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, requires = "url", conflicts_with_all = FILES, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
}

fn tokens(text: &str) -> Result<u32, String> {
    let (number, unit) = text.strip_suffix(['k', 'K']).map_or((text, 1), |number| (number, 1024));
    let tokens = number.parse::<u32>().ok().and_then(|n| n.checked_mul(unit)).filter(|n| *n <= 1 << 24);
    tokens.ok_or_else(|| "must be a number of tokens such as 8192 or 8k, at most 16384k".into())
}

fn svg(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match () {
        () if path.extension().is_none_or(|end| end != "svg") => Err("its name must end with .svg".into()),
        () if folder.is_some_and(|folder| !folder.is_dir()) => Err("there is no such folder".into()),
        () => Ok(path),
    }
}

impl UrlArgs {
    /// The server, if one is to be measured.
    pub(super) fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    /// What is measured, in order. Without context there is nothing that could be warm.
    fn cells(&self) -> Vec<Cell> {
        let cell = |context, warm, streams| Cell { context, warm, streams };
        let row = |context, warm| self.concurrency.iter().map(move |n| cell(context, warm, *n));
        self.context
            .iter()
            .flat_map(|c| row(*c, false).chain(row(*c, true).filter(|c| c.context > 0)))
            .collect()
    }
}

pub(super) fn run(args: &UrlArgs, url: &str, model: Option<&str>, how: &How) -> anyhow::Result<()> {
    let silence = Duration::from_secs(args.timeout);
    let client = Client::new(url, args.api_key.as_deref(), model, silence)?;
    let mut words = Words::new();
    let scale = Scale::measure(&client, &mut words)?;
    let cells = args.cells();
    let mut progress = Progress::new("measuring", cells.len());
    let mut bench = Bench { client: &client, words, scale, tokens: how.predict, rounds: how.repetitions };
    let mut rows = Vec::new();
    for (i, cell) in cells.into_iter().enumerate() {
        rows.push(bench.measure(cell)?);
        progress.at(i + 1);
    }
    drop(progress);
    let report = report::Report { url, client: &client, how, rows: &rows };
    let mut out = std::io::stdout();
    match how.json {
        true => writeln!(out, "{}", report.json())?,
        false => write!(out, "{report}")?,
    }
    if let Some(path) = &args.plot {
        std::fs::write(path, plot::draw(client.model(), &rows))
            .with_context(|| path.display().to_string())?;
    }
    let (failed, all) = rows.iter().fold((0, 0), |(f, a), row| (f + row.failed(), a + row.requests));
    if failed > 0 {
        bail!("{failed} of {all} requests failed");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_files() {
        let check = |text: &str, expected: Option<u32>| assert_eq!(tokens(text).ok(), expected, "{text}");
        check("0", Some(0));
        check("8k", Some(8192));
        check("128K", Some(131_072));
        for bad in ["", "k", "-1", "8M", "1.5k", "99999999k", "16777217"] {
            check(bad, None);
        }
        assert!(svg("a.svg").is_ok() && svg("a.png").is_err() && svg("/no/such/folder/a.svg").is_err());
    }
}
