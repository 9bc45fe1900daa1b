//! `shardwright bench`: how fast a model reads and writes, in this process or behind an HTTP server.

pub(crate) mod dummy;
mod kernels;
mod local;
mod url;

use crate::wire::ModelArgs;
use clap::ArgGroup;

/// Measure how many tokens a second a model reads and writes.
///
/// Of a model file: a prompt of random ids is read in steps of as many rows as `run` uses, then greedy tokens are added one
/// by one; the first of them belongs to the prompt. Nothing else should run on the machine meanwhile.
///
/// Of a shape (--dummy): the same on a GPU without the model's file.
///
/// Of a GPU (--kernels): matrices of GLM-5 alone, by the share of its memory's speed that they are read with.
///
/// Of a server (--url): any that speaks OpenAI's chat API. For each length of prompt and number of streams, requests are sent
/// at once, each over a connection of its own, and their answers watched as they stream.
/// `cold` are prompts that the server has not seen; `warm` ones share all but their last words with one that it has.
#[derive(clap::Args)]
#[command(
    mut_group("Which", |which| which.required(false)),
    mut_arg("model", |model| model.help("The same as MODEL; with --url, the server's name for it [default: the first it lists]")),
    group(ArgGroup::new("measured").args(["MODEL", "model", "hf", "demo", "url", "dummy", "kernels"]).required(true).multiple(true)),
    after_help = "\
Examples:
  shardwright bench model.gguf
  shardwright bench model.gguf -p 4096 -n 64 -r 5 --threads 8 --json
  shardwright bench --dummy glm-5 --layers 7 --device cuda -p 1 --depth 4096
  shardwright bench --kernels --json
  shardwright bench --url http://localhost:8080
  shardwright bench --url http://host:8000 --concurrency 1,8,64 --context 0,8k,64k --plot rates.svg"
)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    local: local::LocalArgs,
    #[command(flatten)]
    server: url::UrlArgs,
    /// Measure kernels of the GPU instead of a model.
    #[arg(long, conflicts_with_all = ["MODEL", "model", "hf", "demo", "dummy"])]
    kernels: bool,
    #[command(flatten)]
    how: How,
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
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match args.server.url() {
        _ if args.kernels => kernels::run(&args.how),
        Some(url) => url::run(&args.server, url, args.model.served(), &args.how),
        None => local::run(&args.local, &args.model, &args.how),
    }
}
