//! `shardwright serve`: the APIs of OpenAI over one model, for many clients.

mod flags;
pub(crate) mod foreign;
mod load;
mod tokens;

use crate::wire::{BackendArgs, ModelArgs};
use flags::{ChatArgs, ListenArgs, LogFormat, SamplingArgs, SizeArgs};
use load::Plan;
use shardwright_server::serve::serve;
use std::net::SocketAddr;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

/// Serve a model to many clients over HTTP, as `vllm serve` and `llama-server` do.
///
/// OpenAI's endpoints under /v1, /tokenize, /detokenize, /metrics, /health; /openapi.json describes them all. The port
/// answers at once; /health turns 200 when the model is loaded and has passed its test.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shardwright serve model.gguf
  shardwright serve model.gguf --host 0.0.0.0 --port 8000 --api-key SECRET --served-model-name glm-5
  shardwright serve --demo
  curl http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json' \\
    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'

Flags of vLLM and llama-server that are not listed are taken if they have no work to do here (-ngl, -fa,
--gpu-memory-utilization, --enforce-eager, ...); a line of the log says what each means.

SIGTERM or Ctrl-C ends the server: running answers may finish for a while, a second signal ends them at once.")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) backend: BackendArgs,
    #[command(flatten)]
    listen: ListenArgs,
    #[command(flatten)]
    size: SizeArgs,
    #[command(flatten)]
    chat: ChatArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
}

/// Lines with a time, since many people's requests are in them.
pub(crate) fn start_log(args: &Args, level: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    match args.listen.log_format {
        LogFormat::Text => log.with_ansi(false).finish().init(),
        LogFormat::Json => log.json().flatten_event(true).finish().init(),
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    foreign::notes().for_each(|note| log::info!("{note}"));
    let names = args.chat.names(args.model.title());
    let options = flags::options(&args.listen, &args.sampling, &args.chat, names[0].clone())?;
    let is_open = args.listen.is_open();
    let bound = |address: SocketAddr| {
        log::info!("listening on http://{address}");
        if !address.ip().is_loopback() && is_open {
            log::warn!("everybody who reaches {address} may use this server: there is no --api-key");
        }
    };
    let Args { model, backend, size, chat, .. } = args;
    let plan = Plan { model, backend, size, chat, names };
    serve(options, bound, move |gate| plan.load(gate).map_err(|e| format!("{e:#}")))?;
    Ok(ExitCode::SUCCESS)
}
