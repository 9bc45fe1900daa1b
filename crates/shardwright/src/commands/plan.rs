//! `shardwright plan`.

/// Show how a model is cut over ranks, what it needs and what it reads.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args) -> anyhow::Result<()> {
    anyhow::bail!("not built yet")
}
