//! Shardwright's command line.
#![forbid(unsafe_code)]

mod commands;
mod wire;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Runs GGUF-quantized giants tensor-parallel, and proves its answers right.
#[derive(Parser)]
#[command(name = "shardwright", version = env!("SHARDWRIGHT_VERSION"), arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(commands::run::Args),
    Inspect(commands::inspect::Args),
    Plan(commands::plan::Args),
    Verify(commands::verify::Args),
    Synth(commands::synth::Args),
    Logits(commands::logits::Args),
    Generate(commands::generate::Args),
    Tokenize(commands::tokenize::Args),
    Completions(commands::completions::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(a) => commands::run::run(&a),
        Command::Inspect(a) => commands::inspect::run(&a),
        Command::Plan(a) => commands::plan::run(&a),
        Command::Verify(a) => commands::verify::run(&a),
        Command::Synth(a) => commands::synth::run(&a),
        Command::Logits(a) => commands::logits::run(&a),
        Command::Generate(a) => commands::generate::run(&a),
        Command::Tokenize(a) => commands::tokenize::run(&a),
        Command::Completions(a) => commands::completions::run(&a),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}
