//! `shardwright synth`: random model files of any size, and existing ones in other orders and parts.

use crate::progress::Written;
use crate::table::{bytes, parse_bytes};
use anyhow::bail;
use shardwright_gguf::{QuantType, Reader, Split};
use shardwright_model::hyper::Options;
use shardwright_model::presets::{self, Preset, RECIPES, Recipe};
use shardwright_model::synth::{self, Fuse, Layout, Order};
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

/// Write a random model file of any architecture and size, or an existing one in another order or other parts.
///
/// A random model has the exact shapes and block formats of a real one, a usable byte-level tokenizer and a chat
/// template: it loads, runs and times like the real thing, and says nothing sensible. The same seed gives the same
/// weights in whatever order and parts they are written.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shardwright synth tiny-glm-dsa                                    a small GLM-5 to test with
  shardwright synth glm-5 --layers 7 --recipe ud-q4_k_xl            real widths, few layers
  shardwright synth llama-3-8b --set embedding_length=1024 --vocab 4096
  shardwright synth glm-5.2 --recipe ud-q4_k_s-like --sparse --split-bytes 45G --no-tensor-first-split
  shardwright synth --like model.gguf --order shuffled:7 -o permuted.gguf
  shardwright synth --list                                          presets and recipes")]
pub(crate) struct Args {
    /// The model to be imitated.
    #[arg(value_name = "PRESET", required_unless_present_any = ["like", "list"])]
    preset: Option<String>,
    /// Rewrite this file instead: the same tensors, bit for bit.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["preset", "recipe", "set", "tensor_type", "sized", "seed"])]
    like: Option<PathBuf>,
    /// List presets and recipes.
    #[arg(long)]
    list: bool,
    /// The file to write [default: PRESET-RECIPE.gguf].
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["preset", "list"])]
    output: Option<PathBuf>,
    /// Quantization: the type of each tensor by its name.
    #[arg(long, value_name = "NAME", default_value = "q4_k_m")]
    recipe: String,
    /// Give tensors with PART in their names this type. May be repeated.
    #[arg(long, value_name = "PART=TYPE", value_parser = tensor_type)]
    tensor_type: Vec<(String, QuantType)>,
    /// Replace a metadata key, with or without the architecture's prefix. May be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,
    #[command(flatten)]
    sized: Sized,
    /// Seed of the weights.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Order of the tensors: as-is, reversed, kv-first or shuffled:SEED.
    #[arg(long, value_name = "ORDER", default_value = "as-is")]
    order: Order,
    /// With --like: join rows that may lie in one tensor. May be repeated.
    #[arg(long, value_name = "qkv|gate-up", value_parser = fuse, conflicts_with = "preset")]
    fuse: Vec<Fuse>,
    /// Write parts of at most so many bytes.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    split_bytes: Option<u64>,
    /// Write parts of at most so many tensors.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    split_tensors: Option<u32>,
    /// The first part has metadata only.
    #[arg(long)]
    no_tensor_first_split: bool,
    /// Headers and lengths only: the weights are holes, which take no space and read as zeros.
    #[arg(long)]
    sparse: bool,
}

/// Sizes that are often changed.
#[derive(clap::Args)]
#[group(id = "sized", multiple = true)]
struct Sized {
    /// Layers, the next-token layer aside.
    #[arg(long, value_name = "N")]
    layers: Option<u32>,
    /// Experts.
    #[arg(long, value_name = "N")]
    experts: Option<u32>,
    /// Elements of the stream.
    #[arg(long, value_name = "N")]
    width: Option<u32>,
    /// Entries of the vocabulary.
    #[arg(long, value_name = "N")]
    vocab: Option<u32>,
    /// Context length.
    #[arg(long, value_name = "N")]
    context: Option<u32>,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').ok_or("must look like KEY=VALUE")?;
    Ok((pair.0.to_owned(), pair.1.to_owned()))
}

fn tensor_type(text: &str) -> Result<(String, QuantType), String> {
    let (part, name) = key_value(text)?;
    let quant = QuantType::from_name(&name).map_err(|e| e.to_string())?;
    match quant.is_weight() {
        true => Ok((part, quant)),
        false => Err(format!("{quant} is no type of weights")),
    }
}

fn fuse(text: &str) -> Result<Fuse, String> {
    match text {
        "qkv" => Ok(Fuse::Qkv),
        "gate-up" => Ok(Fuse::GateUp),
        _ => Err("must be qkv or gate-up".into()),
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if args.list {
        return list();
    }
    let layout = Layout { order: args.order, split: args.split(), sparse: args.sparse };
    let start = Instant::now();
    let (files, size) = match (&args.like, &args.preset) {
        (Some(like), _) => args.rewrite(like, &layout)?,
        (None, Some(name)) => args.random(name, &layout)?,
        (None, None) => bail!("name a preset, or a file with --like; --list shows the presets"),
    };
    for file in &files {
        writeln!(std::io::stdout(), "{}", file.display())?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let rate =
        if args.sparse { String::new() } else { format!(", {}/s", bytes((size as f64 / seconds) as u64)) };
    log::info!("{} in {} file(s), {seconds:.1} s{rate}", bytes(size), files.len());
    Ok(())
}

impl Args {
    fn split(&self) -> Option<Split> {
        let split = Split {
            max_tensors: self.split_tensors.map(|n| n as usize),
            max_bytes: self.split_bytes,
            metadata_first: self.no_tensor_first_split,
        };
        (split != Split::default()).then_some(split)
    }

    fn random(&self, name: &str, layout: &Layout) -> anyhow::Result<(Vec<PathBuf>, u64)> {
        let mut preset = Preset::find(name)?;
        let s = &self.sized;
        if let Some(n) = s.layers {
            preset.set_layers(n)?;
        }
        let keys = [
            ("expert_count", s.experts),
            ("embedding_length", s.width),
            ("vocab_size", s.vocab),
            ("context_length", s.context),
        ];
        for (key, n) in keys.into_iter().filter_map(|(k, n)| Some((k, n?))) {
            preset.set(key, &n.to_string())?;
        }
        self.set.iter().try_for_each(|(k, v)| preset.set(k, v))?;
        let recipe = Recipe::find(&self.recipe)?;
        let mut header = preset.header(recipe, Options::default())?;
        for (part, quant) in &self.tensor_type {
            if header.retype(part, *quant)? == 0 {
                bail!("no tensor has `{part}` in its name");
            }
        }
        let default = || PathBuf::from(format!("{}-{}.gguf", preset.name, recipe.name));
        let output = self.output.clone().unwrap_or_else(default);
        let mut bar = Written::new(header.bytes());
        let files = synth::random(&header, &output, self.seed, layout, &mut |n| bar.add(n))?;
        Ok((files, header.bytes()))
    }

    fn rewrite(&self, like: &std::path::Path, layout: &Layout) -> anyhow::Result<(Vec<PathBuf>, u64)> {
        let reader = Reader::open(like)?;
        let size = reader.tensors().iter().map(|t| t.bytes).sum();
        let output = self.output.as_deref().unwrap_or(like);
        // the file is mapped while it is read: writing over it would pull the rug
        let same = |f: &PathBuf| output.canonicalize().is_ok_and(|o| f.canonicalize().is_ok_and(|f| f == o));
        if reader.files().iter().any(same) {
            bail!("{} is the file to be rewritten; name another with -o", output.display());
        }
        let mut bar = Written::new(size);
        Ok((synth::rewrite(&reader, output, &self.fuse, layout, &mut |n| bar.add(n))?, size))
    }
}

fn list() -> anyhow::Result<()> {
    let mut presets_table = crate::table::Table::new(2, ["preset", "model"]);
    presets::all().for_each(|(name, title)| presets_table.row([name.to_owned(), title.to_owned()]));
    let mut recipes = crate::table::Table::new(2, ["recipe", "types"]);
    RECIPES.iter().for_each(|r| recipes.row([r.name.to_owned(), r.about.to_owned()]));
    Ok(writeln!(std::io::stdout(), "{presets_table}\n{recipes}")?)
}
