//! The tensors of an existing file in another order, other parts, or fused row by row; every weight keeps its bits.

use super::{Layout, put_all};
use crate::{Error, Result};
use shardwright_gguf::{Meta, QuantType, Reader, TensorInfo, short};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Weights that may lie in one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fuse {
    /// `attn_q`, `attn_k`, `attn_v` (and their biases) become `attn_qkv`.
    Qkv,
    /// `ffn_gate_exps`, `ffn_up_exps` become `ffn_gate_up_exps`.
    GateUp,
}

impl Fuse {
    fn names(self) -> (&'static [&'static str], &'static str) {
        match self {
            Fuse::Qkv => (&["attn_q", "attn_k", "attn_v"], "attn_qkv"),
            Fuse::GateUp => (&["ffn_gate_exps", "ffn_up_exps"], "ffn_gate_up_exps"),
        }
    }
}

/// A tensor to be written: the rows of its parts, one part behind the other in each matrix of a stack.
struct Item<'a> {
    name: String,
    parts: Vec<&'a TensorInfo>,
}

impl Item<'_> {
    fn quant(&self) -> QuantType {
        self.parts[0].quant
    }

    /// A vector's elements are its rows.
    fn ne(&self) -> Vec<u64> {
        let mut ne = self.parts[0].dims().to_vec();
        let along = usize::from(ne.len() > 1);
        ne[along] = self.parts.iter().map(|p| p.ne[along]).sum();
        ne
    }

    fn copies(&self) -> usize {
        self.parts[0].ne[2..].iter().product::<u64>() as usize
    }
}

/// Writes the model of `reader` anew.
///
/// # Errors
/// The system's; or tensors to be fused have different types or row lengths.
pub fn rewrite(
    reader: &Reader,
    path: &Path,
    fuse: &[Fuse],
    layout: &Layout,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<PathBuf>> {
    let mut meta = Meta::new();
    reader.meta().iter().filter(|(k, _)| !k.starts_with("split.")).for_each(|(k, v)| meta.set(k, v.clone()));
    let items = items(reader, fuse)?;
    let specs: Vec<_> = items.iter().map(|i| (i.name.as_str(), i.quant(), i.ne())).collect();
    let by_name: HashMap<&str, &Item<'_>> = items.iter().map(|i| (i.name.as_str(), i)).collect();
    put_all(meta, &specs, path, layout, progress, &mut |name, out| {
        let item = by_name[name];
        for copy in 0..item.copies() {
            for part in &item.parts {
                let bytes = reader.bytes(part);
                let one = bytes.len() / item.copies();
                out(&bytes[copy * one..(copy + 1) * one])?;
            }
        }
        Ok(())
    })
}

fn items<'a>(reader: &'a Reader, fuse: &[Fuse]) -> Result<Vec<Item<'a>>> {
    let mut swallowed: HashSet<&str> = HashSet::new();
    let mut items = vec![];
    for t in reader.tensors() {
        if swallowed.contains(t.name.as_str()) {
            continue;
        }
        let group = fuse.iter().find_map(|f| group(reader, t, *f));
        let item = match group {
            Some((name, parts)) => {
                swallowed.extend(parts.iter().map(|p| p.name.as_str()));
                alike(&name, &parts)?;
                Item { name, parts }
            }
            None => Item { name: t.name.clone(), parts: vec![t] },
        };
        items.push(item);
    }
    Ok(items)
}

/// The fused name and the parts in their order, if `t` is one of them.
fn group<'a>(reader: &'a Reader, t: &TensorInfo, fuse: Fuse) -> Option<(String, Vec<&'a TensorInfo>)> {
    let (parts, fused) = fuse.names();
    let mut words = t.name.splitn(4, '.');
    let (blk, layer, name, suffix) = (words.next()?, words.next()?, words.next()?, words.next()?);
    parts.contains(&name).then_some(())?;
    let all = parts.iter().map(|p| reader.tensor(&format!("{blk}.{layer}.{p}.{suffix}")));
    Some((format!("{blk}.{layer}.{fused}.{suffix}"), all.collect::<Option<_>>()?))
}

fn alike(name: &str, parts: &[&TensorInfo]) -> Result<()> {
    let vector = parts[0].dims().len() == 1;
    let shape = |t: &TensorInfo| (t.quant, if vector { 1 } else { t.ne[0] }, [t.ne[2], t.ne[3]]);
    match parts.iter().find(|p| shape(p) != shape(parts[0])) {
        None => Ok(()),
        Some(p) => Err(Error::Synth(format!(
            "`{}` needs parts of one type and row length, but `{}` is {} {:?} and `{}` {} {:?}",
            short(name),
            short(&parts[0].name),
            parts[0].quant,
            parts[0].dims(),
            short(&p.name),
            p.quant,
            p.dims()
        ))),
    }
}
