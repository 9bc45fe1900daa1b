//! `shardwright pull`: a model of the Hugging Face hub, fetched and nothing more.

use shardwright_hub::Wanted;
use std::io::Write;

/// Fetch a model from the Hugging Face hub, and print where it is.
///
/// All parts of a split model are fetched, several at a time. What an earlier run left unfinished is continued; sizes
/// and hashes are checked. Files go into the cache that other tools of the hub use too, and what those have fetched is
/// not fetched again. The path that is printed is that of the first part, which stands for all.
///
/// QUANT is a quantization by its name, in upper or lower case, or a file of the repository. Without it Q4_K_M is
/// taken, or the only model there is.
///
/// HF_TOKEN is needed for private and gated repositories. HF_HOME and HF_HUB_CACHE say where the cache is
/// [default: ~/.cache/huggingface/hub], HF_ENDPOINT names another hub, HF_HUB_OFFLINE=1 forbids to ask any.
/// HTTPS_PROXY, NO_PROXY and SSL_CERT_FILE are heeded.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shardwright pull unsloth/GLM-5-GGUF:UD-Q4_K_XL
  shardwright run --hf unsloth/GLM-5-GGUF:UD-Q4_K_XL         fetches it first, if need be
  shardwright quantize \"$(shardwright pull unsloth/GLM-5-GGUF:BF16)\" glm-5.gguf Q4_K")]
pub(crate) struct Args {
    /// The repository, and which of its models.
    #[arg(value_name = "OWNER/REPO[:QUANT]")]
    wanted: Wanted,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let path = crate::hub::model(&args.wanted)?;
    Ok(writeln!(std::io::stdout(), "{}", path.display())?)
}
