//! What the tests of this crate share: headers of presets, plans of them, golden texts.
#![allow(dead_code, clippy::unwrap_used)] // each test file uses its part

use shardwright_gguf::Meta;
use shardwright_model::hyper::{Hyper, Options, Source};
use shardwright_model::op::Description;
use shardwright_model::plan::{RankPlan, plan};
use shardwright_model::presets::{Header, Preset, Recipe};
use shardwright_model::{Result, arch};
use std::path::Path;

/// The preset with some keys replaced.
pub(crate) fn preset(name: &str, keys: &[(&str, &str)]) -> Preset {
    let mut preset = Preset::find(name).unwrap();
    keys.iter().for_each(|(k, v)| preset.set(k, v).unwrap());
    preset
}

pub(crate) fn header(name: &str, keys: &[(&str, &str)], recipe: &str) -> Header {
    preset(name, keys).header(Recipe::find(recipe).unwrap(), Options::default()).unwrap()
}

pub(crate) fn planned(h: &Header, d: &Description, ranks: usize) -> Result<Vec<RankPlan>> {
    plan(d, &|name| h.tensor(name), ranks)
}

pub(crate) fn plans(h: &Header, ranks: usize) -> Result<Vec<RankPlan>> {
    planned(h, &arch::describe(&h.hyper), ranks)
}

/// The metadata of a preset without the keys that end in one of `without`.
pub(crate) fn meta(name: &str, without: &[&str], with: &[(&str, &str)]) -> Meta {
    let mut meta = Meta::new();
    let full = preset(name, with);
    let stays = |k: &str| !without.iter().any(|end| k.ends_with(end));
    full.meta().iter().filter(|(k, _)| stays(k)).for_each(|(k, v)| meta.set(k, v.clone()));
    meta
}

/// The numbers that metadata and a list of tensors say; a tensor is there if its name ends with one of `tensors`. The
/// first layer's norm always is.
pub(crate) fn read(meta: &Meta, tensors: &[&str]) -> Result<Hyper> {
    let has =
        |name: &str| Some(name == "blk.0.attn_norm.weight" || tensors.iter().any(|t| name.ends_with(t)));
    arch::read(&Source { meta, has: &has, options: Options::default() })
}

/// Compares with `tests/golden/NAME`; with `UPDATE=1` writes it instead.
pub(crate) fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    let line = text.lines().zip(want.lines()).position(|(a, b)| a != b);
    assert!(
        text == want,
        "{} differs in line {}; UPDATE=1 renews it\n{text}",
        path.display(),
        line.map_or_else(|| want.lines().count().min(text.lines().count()) + 1, |l| l + 1)
    );
}
