//! Shardwright's command line.
#![forbid(unsafe_code)]

mod commands;
mod compare;
mod device;
mod files;
mod gpu;
mod hub;
mod links;
mod memory;
mod overrides;
mod progress;
mod stages;
mod steps;
mod table;
mod wire;

use clap::{ArgAction, CommandFactory, Parser, Subcommand};
use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use wire::{BackendArgs, ModelArgs};

/// Runs GGUF-quantized giants tensor-parallel, and proves its answers right.
#[derive(Parser)]
#[command(name = "shardwright", version = env!("SHARDWRIGHT_VERSION"), arg_required_else_help = true, after_help = AFTER)]
pub(crate) struct Cli {
    /// Say more on standard error; twice for still more. RUST_LOG, if set, decides instead.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    /// Only errors on standard error.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

const AFTER: &str = "\
Examples:
  shardwright run model.gguf                      chat
  shardwright run model.gguf -p \"Say hello\"       one answer
  shardwright run --hf OWNER/REPO:Q4_K_M          the same with a model of the Hugging Face hub
  shardwright serve model.gguf --port 8080        the APIs of OpenAI, for many clients
  shardwright inspect model.gguf                  what is in the file
  shardwright plan model.gguf --tp 8              memory per rank, bytes a token

Any part of a split file stands for the whole: model-00001-of-00011.gguf.

Exit status: 0 done, 1 failed (one line on standard error says why), 2 wrong usage, 130 stopped by Ctrl-C.
Colours follow NO_COLOR, the log follows RUST_LOG.";

#[derive(Subcommand)]
enum Command {
    Run(commands::run::Args),
    Serve(Box<commands::serve::Args>),
    Inspect(commands::inspect::Args),
    Plan(commands::plan::Args),
    Doctor(commands::doctor::Args),
    Kernels(commands::kernels::Args),
    Pull(commands::pull::Args),
    Verify(commands::verify::Args),
    Synth(commands::synth::Args),
    Eval(commands::eval::Args),
    Bench(commands::bench::Args),
    Quantize(commands::quantize::Args),
    Logits(commands::logits::Args),
    Generate(commands::generate::Args),
    Tokenize(commands::tokenize::Args),
    Completions(commands::completions::Args),
}

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(report_panic));
    let cli = Cli::parse_from(commands::serve::foreign::translate(std::env::args_os()));
    match &cli.command {
        Command::Serve(args) => commands::serve::start_log(args, level(&cli)),
        _ => start_log(level(&cli)),
    }
    match dispatch(cli.command) {
        Ok(code) => code,
        // The reader of our output has gone: nothing is wrong and nobody listens.
        Err(e) if is_closed_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            // With standard error closed there is only the exit status left to tell.
            let _ = writeln!(std::io::stderr(), "error: {}", table::printable(&format!("{e:#}")));
            ExitCode::FAILURE
        }
    }
}

/// The commands that run in stages: what a later stage needs of their flags.
fn staged(command: &Command) -> Option<(&ModelArgs, &BackendArgs)> {
    match command {
        Command::Run(a) => Some((&a.model, &a.backend)),
        Command::Serve(a) => Some((&a.model, &a.backend)),
        Command::Eval(a) => Some((&a.model, &a.backend)),
        Command::Logits(a) => Some((&a.model, &a.backend)),
        Command::Generate(a) => Some((&a.model, &a.backend)),
        _ => None,
    }
}

fn dispatch(command: Command) -> anyhow::Result<ExitCode> {
    if let Some((model, backend)) = staged(&command)
        && let Some(place) = backend.stages.later_place()?
    {
        stages::work(model, backend, &place)?;
        return Ok(ExitCode::SUCCESS);
    }
    match command {
        Command::Run(a) => return commands::run::run(&a),
        Command::Serve(a) => return commands::serve::run(*a),
        Command::Inspect(a) => commands::inspect::run(&a),
        Command::Plan(a) => commands::plan::run(&a),
        Command::Doctor(a) => commands::doctor::run(&a),
        Command::Kernels(a) => commands::kernels::run(&a),
        Command::Pull(a) => commands::pull::run(&a),
        Command::Verify(a) => commands::verify::run(&a),
        Command::Synth(a) => commands::synth::run(&a),
        Command::Eval(a) => commands::eval::run(&a),
        Command::Bench(a) => commands::bench::run(&a),
        Command::Quantize(a) => commands::quantize::run(&a),
        Command::Logits(a) => commands::logits::run(&a),
        Command::Generate(a) => commands::generate::run(&a),
        Command::Tokenize(a) => commands::tokenize::run(&a),
        Command::Completions(a) => commands::completions::run(&a),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Ends the program as clap does for a flag that makes no sense.
pub(crate) fn usage(command: &str, text: &str) -> ! {
    let mut cli = Cli::command();
    cli.build();
    let command = cli.find_subcommand_mut(command).expect("a command of ours");
    command.error(clap::error::ErrorKind::ValueValidation, text).exit()
}

fn is_closed_pipe(e: &anyhow::Error) -> bool {
    let io = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe)
    };
    e.chain().any(io)
}

fn level(cli: &Cli) -> &'static str {
    match (cli.quiet, cli.verbose) {
        (true, _) => "error",
        (_, 0) => "shardwright=info",
        (_, 1) => "shardwright=debug",
        _ => "shardwright=trace",
    }
}

/// Lines such as `note: ...`, without times or module names: they are for a person.
fn start_log(level: &str) {
    let line = |buffer: &mut env_logger::fmt::Formatter, record: &log::Record<'_>| {
        let word = match record.level() {
            log::Level::Error => "error",
            log::Level::Warn => "warning",
            log::Level::Info => "note",
            log::Level::Debug => "debug",
            log::Level::Trace => "trace",
        };
        let style = buffer.default_level_style(record.level());
        writeln!(buffer, "{style}{word}{style:#}: {}", table::printable(&record.args().to_string()))
    };
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(level)).format(line).init();
}

/// A panic is always our own fault; no file or flag should cause one.
fn report_panic(info: &std::panic::PanicHookInfo<'_>) {
    let what = info.payload_as_str().unwrap_or("no message");
    let place = info.location().map_or(String::new(), |l| format!(" at {}:{}", l.file(), l.line()));
    let what = what.replace('\n', " ");
    let home = env!("CARGO_PKG_REPOSITORY");
    // A closed standard error must not panic inside the panic.
    let _ = writeln!(
        std::io::stderr(),
        "error: internal error{place}: {what}; please report it at {home}/issues"
    );
}
