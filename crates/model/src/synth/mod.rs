//! Writes model files: random ones of any preset and size, and existing ones in other orders and parts. Weights are
//! streamed: the largest model needs a few hundred megabytes of memory to be written, and none to be laid out sparse.

pub mod random;
mod rewrite;
mod vocab;

pub use rewrite::{Fuse, rewrite};
pub use vocab::add as add_tokenizer;

use crate::presets::Header;
use crate::{Error, Result};
use random::{Rng, fill};
use shardwright_gguf::{Meta, QuantType, Split, TensorInfo, Writer};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// How tensors lie in the file or files.
#[derive(Clone, Copy, Debug, Default)]
pub struct Layout {
    /// Their order.
    pub order: Order,
    /// How they are cut into parts.
    pub split: Option<Split>,
    /// Headers and lengths only: all weights are holes, which read as zeros.
    pub sparse: bool,
}

/// An order of tensors; none means anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As described.
    #[default]
    AsIs,
    /// The other way round.
    Reversed,
    /// Keys and values before queries, up before gate, then by name.
    KvFirst,
    /// At random.
    Shuffled(u64),
}

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Order, String> {
        let wanted = || format!("`{text}` is no order; there are: as-is, reversed, kv-first, shuffled:SEED");
        match text.split_once(':') {
            Some(("shuffled", seed)) => seed.parse().map(Order::Shuffled).map_err(|_| wanted()),
            None if text == "as-is" => Ok(Order::AsIs),
            None if text == "reversed" => Ok(Order::Reversed),
            None if text == "kv-first" => Ok(Order::KvFirst),
            _ => Err(wanted()),
        }
    }
}

impl Order {
    fn arrange<T>(self, all: &mut [T], name: impl Fn(&T) -> &str) {
        match self {
            Order::AsIs => {}
            Order::Reversed => all.reverse(),
            Order::KvFirst => {
                all.sort_by_key(|t| {
                    (name(t).contains("attn_q") || name(t).contains("gate"), name(t).to_owned())
                });
            }
            Order::Shuffled(seed) => {
                let mut rng = Rng::new(seed, "order");
                (1..all.len()).rev().for_each(|i| all.swap(i, rng.below(i as u64 + 1) as usize));
            }
        }
    }
}

/// Writes a random model: `header`'s tensors, its metadata with a small tokenizer. The same seed gives each tensor the
/// same bytes in whatever order and parts. `progress` is told of bytes as they are written.
///
/// # Errors
/// The system's, or the vocabulary is too small for a tokenizer.
pub fn random(
    header: &Header,
    path: &Path,
    seed: u64,
    layout: &Layout,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<PathBuf>> {
    let mut meta = header.meta.clone();
    vocab::add(&mut meta, header.hyper.vocab)?;
    let specs: Vec<_> =
        header.tensors().iter().map(|t| (t.name.as_str(), t.quant, t.dims().to_vec())).collect();
    let mut tiles = Tiles::default();
    let tied = header.hyper.head == "token_embd";
    put_all(meta, &specs, path, layout, progress, &mut |name, out| {
        let t = header.tensor(name).expect("the writer asks for what it was given");
        tensor(t, tied, seed, &mut tiles, out)
    })
}

type Sink<'a> = dyn FnMut(&[u8]) -> Result<()> + 'a;

/// Writes tensors by name, type and dimensions; `data` gives the bytes of one after the other.
fn put_all(
    meta: Meta,
    specs: &[(&str, QuantType, Vec<u64>)],
    path: &Path,
    layout: &Layout,
    progress: &mut dyn FnMut(u64),
    data: &mut dyn FnMut(&str, &mut Sink<'_>) -> Result<()>,
) -> Result<Vec<PathBuf>> {
    let mut order: Vec<&(&str, QuantType, Vec<u64>)> = specs.iter().collect();
    layout.order.arrange(&mut order, |t| t.0);
    let mut writer = Writer::new(meta)?;
    if let Some(split) = layout.split {
        writer = writer.split(split);
    }
    for (name, quant, ne) in order {
        writer.tensor(name, *quant, ne)?;
    }
    if layout.sparse {
        return Ok(writer.write_sparse(path)?);
    }
    Ok(writer.write(path, |spec, to| {
        let mut out = |bytes: &[u8]| {
            to.write_all(bytes).map_err(shardwright_gguf::Error::from)?;
            progress(bytes.len() as u64);
            Ok(())
        };
        data(&spec.name, &mut out).map_err(|e| match e {
            Error::Meta(e) => e,
            other => shardwright_gguf::Error::Write { why: other.to_string() },
        })
    })?)
}

/// Tensors up to this size have numbers of their own; larger ones are cut from a tile of random blocks, from a random
/// block on and as often as needed: nobody will miss the difference, and it is written as fast as the disk takes it.
const OWN: u64 = 4 << 20;
const TILE: usize = 16 << 20;

/// Random blocks of each type and deviation.
#[derive(Default)]
struct Tiles(HashMap<(QuantType, u32), Vec<u8>>);

fn tensor(t: &TensorInfo, tied: bool, seed: u64, tiles: &mut Tiles, out: &mut Sink<'_>) -> Result<()> {
    let mut rng = Rng::new(seed, &t.name);
    let std = deviation(t, tied);
    if t.dims().len() == 1 && t.quant == QuantType::F32 {
        let mean = if t.name.ends_with("norm.weight") { 1.0 } else { 0.0 };
        let values = (0..t.ne[0]).flat_map(|_| (mean + std * rng.normal()).to_le_bytes());
        return out(&values.collect::<Vec<u8>>());
    }
    if t.bytes <= OWN {
        let mut bytes = vec![0; t.bytes as usize];
        fill(t.quant, std, &mut rng, &mut bytes);
        return out(&bytes);
    }
    let block = t.quant.block_bytes();
    let tile = tiles.0.entry((t.quant, std.to_bits())).or_insert_with(|| {
        let mut bytes = vec![0; TILE / block * block];
        fill(t.quant, std, &mut Rng::new(seed, t.quant.name()), &mut bytes);
        bytes
    });
    let mut start = rng.below((tile.len() / block) as u64) as usize * block;
    let mut left = t.bytes as usize;
    while left > 0 {
        let n = left.min(tile.len() - start);
        out(&tile[start..start + n])?;
        (start, left) = (0, left - n);
    }
    Ok(())
}

/// Logits spread this much, so that there are likely and unlikely tokens.
const LOGITS: f32 = 3.0;

/// The standard deviation of a tensor's elements: matrices take unit variance to unit variance.
fn deviation(t: &TensorInfo, tied: bool) -> f32 {
    let unit = 1.0 / (t.ne[0] as f32).sqrt();
    match t.name.as_str() {
        "output.weight" => LOGITS * unit,
        "token_embd.weight" => {
            if tied {
                LOGITS * unit
            } else {
                1.0
            }
        }
        n if n.ends_with("norm.weight") => 0.1,
        n if n.ends_with(".bias") => 0.05,
        _ => unit,
    }
}
