//! `shardwright completions`: what a shell needs to complete our command lines.

use clap::CommandFactory;
use clap_complete::Shell;
use std::io::Write;

/// Print shell completions.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shardwright completions bash > ~/.local/share/bash-completion/completions/shardwright
  shardwright completions zsh > ~/.zfunc/_shardwright
  shardwright completions fish > ~/.config/fish/completions/shardwright.fish")]
pub(crate) struct Args {
    /// Which shell.
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "shardwright", &mut script);
    Ok(std::io::stdout().write_all(&script)?)
}
