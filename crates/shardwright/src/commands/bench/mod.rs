//! `shardwright bench`: how fast a model reads and writes, in this process or behind an HTTP server.

pub(crate) mod dummy;
mod kernels;
mod ladder;
mod launches;
mod local;
mod url;

use crate::wire::ModelArgs;
use clap::ArgGroup;
use serde_json::{Value as Json, json};
use std::time::SystemTime;

/// Measure how many tokens a second a model reads and writes.
///
/// Of a model file: a prompt of random ids is read in steps of as many rows as `run` uses, then greedy tokens are added one
/// by one; the first of them belongs to the prompt. Nothing else should run on the machine meanwhile.
///
/// Of a shape (--dummy): the same on a GPU without the model's file.
///
/// Launch by launch (--per-kernel): a step on a GPU is recorded once more with a stamp of its clock between its launches. Each has a line
/// with what it takes, the bytes that it must read, and the share that it reaches of the speed at which the card's memory can be read.
///
/// Of GPUs (--kernels): matrices of GLM-5 alone, by the share of the memory's speed that they are read with; of all that `--device`
/// lists, one after the other. As JSON each has a line.
///
/// Of a box (ladder): what each thing that makes steps faster brings here, beside what `doctor` and `plan` say.
///
/// Of a server (--url): any that speaks OpenAI's chat API. For each length of prompt and number of streams, requests are sent
/// at once, each over a connection of its own, and their answers watched as they stream.
/// `cold` are prompts that the server has not seen; `warm` ones share all but their last words with one that it has.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    subcommand_negates_reqs = true,
    mut_group("Which", |which| which.required(false)),
    mut_arg("model", |model| model.help("The same as MODEL; with --url, the server's name for it [default: the first it lists]")),
    group(ArgGroup::new("measured").args(["MODEL", "model", "hf", "demo", "url", "dummy", "kernels", "read"]).required(true).multiple(true)),
    after_help = "\
Examples:
  shardwright bench model.gguf
  shardwright bench model.gguf -p 4096 -n 64 -r 5 --threads 8 --json
  shardwright bench --dummy glm-5 --layers 7 --device cuda -p 1 --depth 4096
  shardwright bench model.gguf --device cuda --tp 2 --allreduce nccl
  shardwright bench --dummy glm-5 --tp-rank 0/8 --device cuda -p 1 --depth 4096 --per-kernel
  shardwright bench --dummy glm-5 --tp-rank 0/8 --exchange-us 11 --multiprocessors 48 --device cuda -p 1
  shardwright bench --kernels --device cuda:0,1 --json
  shardwright bench ladder --html ladder.html
  shardwright bench --url http://localhost:8080
  shardwright bench --url http://host:8000 --concurrency 1,8,64 --context 0,8k,64k --plot rates.svg"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    of: Option<Of>,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    local: local::LocalArgs,
    #[command(flatten)]
    server: url::UrlArgs,
    /// Measure kernels of each GPU that is named, or of the first, instead of a model.
    #[arg(long, conflicts_with_all = ["MODEL", "model", "hf", "demo", "dummy"])]
    kernels: bool,
    /// Measure only how fast the GPU's memory is read.
    #[arg(long, conflicts_with_all = ["MODEL", "model", "hf", "demo", "dummy", "kernels", "url"])]
    read: bool,
    #[command(flatten)]
    how: How,
}

/// What is no model.
#[derive(clap::Subcommand)]
enum Of {
    Ladder(ladder::Args),
}

/// What both ways have in common.
#[derive(clap::Args)]
struct How {
    /// Tokens of an answer.
    #[arg(short = 'n', long, visible_alias = "tokens", value_name = "N", default_value_t = 128,
          value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    predict: u32,
    /// How often everything is measured.
    #[arg(short, long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: u32,
    /// Print the figures as JSON.
    #[arg(long)]
    json: bool,
    /// Use so many of the GPU's multiprocessors only, and leave the others idle; most cards part them by eights.
    #[arg(long, value_name = "N", conflicts_with = "url", value_parser = clap::value_parser!(u32).range(1..=4096))]
    multiprocessors: Option<u32>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(Of::Ladder(ladder)) = &args.of {
        return ladder::run(ladder);
    }
    args.local.dummy.check()?;
    match args.server.url() {
        _ if args.kernels => kernels::run(&args.local.cards()?, &args.how),
        _ if args.read => local::read(&args.local, &args.how),
        Some(url) => url::run(&args.server, url, args.model.served(), &args.how),
        None => local::run(&args.local, &args.model, &args.how),
    }
}

/// Figures as machines read them, with what they are of.
fn report(card: Option<&str>, results: Vec<Json>) -> Json {
    let seconds = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_secs());
    let commit = env!("SHARDWRIGHT_VERSION");
    json!({ "card": card, "date": date(seconds / 86_400), "commit": commit, "results": results })
}

/// The day so many days after the first of 1970. Years begin in March here, so that leap days come last.
fn date(days: u64) -> String {
    let (era, day) = ((days + 719_468) / 146_097, (days + 719_468) % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_dates() {
        let check = |days, expected: &str| assert_eq!(date(days), expected, "{days}");
        check(0, "1970-01-01");
        check(31 + 28, "1970-03-01");
        check(11_016, "2000-02-29");
        check(11_017, "2000-03-01");
        check(20_788, "2026-12-01");
        check(20_818, "2026-12-31");
    }
}
