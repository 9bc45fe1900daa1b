//! Well-known models without their files: the keys and tensors of their headers, as published GGUF files have them.

mod recipe;
mod table;

pub use recipe::{RECIPES, Recipe};

use crate::hyper::{Hyper, Options, Source};
use crate::{Error, Result, arch};
use shardwright_gguf::{Meta, QuantType, TensorInfo, Value};
use std::collections::HashMap;
use table::{Index, ROWS, Row};

/// A model's metadata, and which optional tensors its files have.
#[derive(Clone, Debug)]
pub struct Preset {
    /// As on the command line.
    pub name: &'static str,
    /// As people call it.
    pub title: &'static str,
    meta: Meta,
    has: &'static [(&'static str, bool)],
    index: Index,
}

/// A header without a file: metadata, numbers, and the tensors with their types.
#[derive(Clone, Debug)]
pub struct Header {
    /// Metadata.
    pub meta: Meta,
    /// What they say.
    pub hyper: Hyper,
    tensors: Vec<TensorInfo>,
    by_name: HashMap<String, usize>,
}

/// Names and titles of all presets.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    ROWS.iter().map(|r| (r.name, r.title))
}

/// Where each tensor of a header starts, as in files that say nothing else.
const ALIGNMENT: u64 = 32;

impl Preset {
    /// The preset of a name.
    ///
    /// # Errors
    /// If there is none; the text lists them.
    pub fn find(name: &str) -> Result<Preset> {
        let row = ROWS.iter().find(|r| r.name.eq_ignore_ascii_case(name)).ok_or_else(|| Error::Unknown {
            what: "preset",
            found: name.into(),
            known: all().map(|p| p.0).collect::<Vec<_>>().join(", "),
        })?;
        let keys = keys(row);
        let arch = keys["general.architecture"];
        let mut meta = Meta::new();
        meta.set("general.architecture", arch);
        meta.set("general.type", "model");
        meta.set("general.name", row.title);
        meta.set("general.quantization_version", 2u32);
        let mut own: Vec<_> = keys.into_iter().filter(|(k, _)| *k != "general.architecture").collect();
        own.sort_unstable();
        own.iter().for_each(|(k, v)| meta.set(&format!("{arch}.{k}"), value(v)));
        let mut preset = Preset { name: row.name, title: row.title, meta, has: row.has, index: row.index };
        preset.fit_index_types()?;
        Ok(preset)
    }

    /// Its metadata.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Replace a key, given with or without the architecture's prefix; a number keeps the type it had.
    ///
    /// # Errors
    /// If the text does not fit the type, or the layers are wrong.
    pub fn set(&mut self, key: &str, text: &str) -> Result<()> {
        let arch: String = self.meta.need("general.architecture")?;
        let full = match key.starts_with("general.") || key.starts_with(&format!("{arch}.")) {
            true => key.to_owned(),
            false => format!("{arch}.{key}"),
        };
        let new = match (self.meta.get(&full), value(text)) {
            (Some(Value::F32(_)), Value::U32(n)) => Value::F32(n as f32),
            (_, new) => new,
        };
        if let Some(old) = self.meta.get(&full)
            && old.type_name() != new.type_name()
        {
            return Err(crate::hyper::wrong(full, format!("\"{text}\""), format!("a {}", old.type_name())));
        }
        self.meta.set(&full, new);
        self.fit_index_types()
    }

    /// Give the trunk `n` layers; of leading dense ones there are then at most so many.
    ///
    /// # Errors
    /// If a key is missing.
    pub fn set_layers(&mut self, n: u32) -> Result<()> {
        let arch: String = self.meta.need("general.architecture")?;
        let may = |key: &str| self.meta.may::<u32>(&format!("{arch}.{key}"));
        let next = may("nextn_predict_layers")?.unwrap_or(0);
        if may("leading_dense_block_count")?.is_some_and(|lead| lead > n) {
            self.meta.set(&format!("{arch}.leading_dense_block_count"), n);
        }
        self.set("block_count", &n.saturating_add(next).to_string())
    }

    /// The list of selecting layers is as long as the trunk.
    fn fit_index_types(&mut self) -> Result<()> {
        if self.index == Index::Shared {
            let s = self.source(Options::default(), &|_| None);
            let (key, layers) = (s.key("attention.indexer.types")?, s.trunk()?);
            let selects = |l: usize| (l + 1).saturating_sub(3).is_multiple_of(4);
            self.meta.set(&key, (0..layers).map(selects).collect::<Vec<bool>>());
        }
        Ok(())
    }

    fn source<'a>(&'a self, options: Options, has: &'a dyn Fn(&str) -> Option<bool>) -> Source<'a> {
        Source { meta: &self.meta, has, options }
    }

    /// Is an optional tensor in its files? None: as usual.
    fn has(&self, name: &str) -> Option<bool> {
        let ends =
            |end: &str| name.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        self.has.iter().find(|(end, _)| ends(end)).map(|(_, there)| *there)
    }

    /// Its numbers.
    ///
    /// # Errors
    /// If a replaced key makes no sense.
    pub fn hyper(&self, options: Options) -> Result<Hyper> {
        arch::read(&self.source(options, &|name| self.has(name)))
    }

    /// The header of a file by `recipe`.
    ///
    /// # Errors
    /// If a replaced key makes no sense, or a tensor has a size beyond all measure.
    pub fn header(&self, recipe: &Recipe, options: Options) -> Result<Header> {
        let hyper = self.hyper(options)?;
        let blocks = hyper.layers + usize::from(hyper.draft.is_some());
        let mut tensors = vec![];
        for (name, dims) in self.shapes(&hyper, blocks)? {
            let quant = recipe.quant(&name, &dims, blocks);
            let mut ne = [1; 4];
            ne[..dims.len()].copy_from_slice(&dims);
            tensors.push(TensorInfo { name, quant, ne, file: 0, offset: 0, bytes: 0 });
        }
        let by_name = tensors.iter().enumerate().map(|(i, t)| (t.name.clone(), i)).collect();
        let mut header = Header { meta: self.meta.clone(), hyper, tensors, by_name };
        header.lay()?;
        Ok(header)
    }

    /// Names and dimensions of all tensors, each once, in the order of the description.
    fn shapes(&self, hyper: &Hyper, blocks: usize) -> Result<Vec<(String, Vec<u64>)>> {
        let mut sparse = hyper.clone();
        if let crate::hyper::Attention::Mla(mla) = &mut sparse.attention
            && let Some(indexer) = &mut mla.indexer
            && self.index != Index::Plain
        {
            indexer.full = vec![true; hyper.layers];
        }
        let descriptions = [Some(arch::describe(&sparse)), arch::draft(hyper)];
        let mut seen = HashMap::new();
        let mut shapes: Vec<(String, Vec<u64>)> = vec![];
        for w in descriptions.iter().flatten().flat_map(|d| d.weights()) {
            if seen.insert(w.name.clone(), ()).is_none() {
                shapes.push((w.name.clone(), w.ne.clone()));
            }
        }
        // files carry an indexer on the next-token block too, which attends to everything and has no use for it
        if self.index != Index::Plain && blocks > hyper.layers {
            let first = |n: &str| n.strip_prefix("blk.0.indexer.").map(str::to_owned);
            let copies: Vec<_> = shapes
                .iter()
                .filter_map(|(n, ne)| {
                    Some((format!("blk.{}.indexer.{}", hyper.layers, first(n)?), ne.clone()))
                })
                .collect();
            shapes.extend(copies);
        }
        Ok(shapes)
    }
}

impl Header {
    /// All tensors.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of a name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.by_name.get(name).map(|i| &self.tensors[*i])
    }

    /// Bytes of all tensors.
    pub fn bytes(&self) -> u64 {
        self.tensors.iter().map(|t| t.bytes).sum()
    }

    /// Number of weights.
    pub fn params(&self) -> u64 {
        self.tensors.iter().map(TensorInfo::elements).sum()
    }

    /// Gives all tensors with `part` in their names another type; says how many they are.
    ///
    /// # Errors
    /// If the rows of one are no whole number of the type's blocks.
    pub fn retype(&mut self, part: &str, quant: QuantType) -> Result<usize> {
        let of = |t: &&mut TensorInfo| t.name.contains(part);
        let n = self.tensors.iter_mut().filter(of).map(|t| t.quant = quant).count();
        self.lay()?;
        Ok(n)
    }

    /// Sizes and places, by types and dimensions.
    fn lay(&mut self) -> Result<()> {
        let mut offset = 0;
        for t in &mut self.tensors {
            let size = bytes(t.quant, &t.ne).ok_or_else(|| {
                let block = t.quant.block_len();
                Error::Types(format!(
                    "{} (`{}` with dimensions {:?}: rows must be whole blocks of {block}, the size below 2^60 bytes)",
                    t.quant, t.name, t.dims()
                ))
            })?;
            (t.bytes, t.offset) = (size, offset);
            offset += size.next_multiple_of(ALIGNMENT);
        }
        Ok(())
    }
}

/// A row's keys: those of the row it is like, then its own.
fn keys(row: &Row) -> HashMap<&'static str, &'static str> {
    let base = row.like.map(|base| ROWS.iter().find(|r| r.name == base).expect("a row is like another row"));
    let mut all = base.map(keys).unwrap_or_default();
    for (key, text) in row.keys.split_whitespace().filter_map(|pair| pair.split_once('=')) {
        match text {
            "-" => all.remove(key),
            text => all.insert(key, text),
        };
    }
    all
}

/// A value by its looks: truth, whole number, other number, text.
fn value(text: &str) -> Value {
    if let Ok(b) = text.parse::<bool>() {
        return b.into();
    }
    if let Ok(n) = text.parse::<u32>() {
        return n.into();
    }
    match text.parse::<f32>() {
        Ok(x) => x.into(),
        Err(_) => text.into(),
    }
}

fn bytes(quant: QuantType, ne: &[u64; 4]) -> Option<u64> {
    let row = quant.row_bytes(usize::try_from(ne[0]).ok()?)? as u64;
    ne[1..].iter().try_fold(row, |all, n| all.checked_mul(*n)).filter(|all| *all < 1 << 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardwright_gguf::Array;

    #[test]
    fn a_row_replaces_and_takes_away_keys() {
        let lite = Preset::find("DeepSeek-V2-Lite").unwrap();
        assert_eq!(lite.meta.need::<u32>("deepseek2.block_count").unwrap(), 27);
        assert_eq!(lite.meta.get("deepseek2.attention.q_lora_rank"), None);
        assert_eq!(lite.meta.need::<f32>("deepseek2.rope.scaling.factor").unwrap(), 40.0);
    }

    #[test]
    fn a_set_key_keeps_its_type_and_the_selecting_layers_follow() {
        let mut p = Preset::find("glm-5.2").unwrap();
        p.set("rope.freq_base", "10").unwrap();
        assert_eq!(p.meta.get("glm-dsa.rope.freq_base"), Some(&Value::F32(10.0)));
        p.set("glm-dsa.block_count", "8").unwrap();
        let want = Value::Array(Array::Bool(vec![true, true, true, false, false, false, true]));
        assert_eq!(p.meta.get("glm-dsa.attention.indexer.types"), Some(&want));
        assert!(p.set("block_count", "many").unwrap_err().to_string().contains("a u32"));
    }
}
