//! A model without its weights: the header of a preset, over a file of holes.

use crate::device::Slice;
use crate::table::parse_microseconds;
use crate::wire::{ModelArgs, Opened};
use anyhow::{Context, bail};
use shardwright_model::hyper::Options;
use shardwright_model::presets::{Preset, Recipe};
use shardwright_model::synth::{self, Layout};
use std::time::Duration;

#[derive(clap::Args)]
pub(super) struct DummyArgs {
    /// Measure a model of this shape, its weights made up on the GPU; `shardwright synth --list` has the names.
    #[arg(long, value_name = "PRESET", conflicts_with_all = ["MODEL", "model", "hf", "demo"], help_heading = "Dummy models")]
    dummy: Option<String>,
    /// Types of the dummy model's weights.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "ud-q4_k_xl",
        requires = "dummy",
        help_heading = "Dummy models"
    )]
    recipe: String,
    /// Layers of the dummy model [default: all].
    #[arg(long, value_name = "N", requires = "dummy", help_heading = "Dummy models", value_parser = clap::value_parser!(u32).range(1..))]
    layers: Option<u32>,
    /// Only this rank of so many, such as 0/8; what ranks would exchange is left out, or is time that passes (--exchange-us).
    #[arg(
        long,
        value_name = "R/N",
        requires = "dummy",
        conflicts_with = "tp",
        help_heading = "Dummy models"
    )]
    tp_rank: Option<Slice>,
    /// With --tp-rank: what passes in place of each sum over ranks, in microseconds.
    #[arg(long, value_name = "US", default_value = "0", requires = "tp_rank", help_heading = "Dummy models", value_parser = parse_microseconds)]
    exchange_us: Duration,
    /// Tokens taken to be in the cache already.
    #[arg(short, long, value_name = "N", default_value_t = 0, requires = "dummy", help_heading = "Dummy models",
          value_parser = clap::value_parser!(u32).range(0..=1 << 24))]
    pub(super) depth: u32,
}

impl DummyArgs {
    /// What is of dummy models only is not left out in silence where there is none.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let given = [
            ("--layers", self.layers.is_some()),
            ("--tp-rank", self.tp_rank.is_some()),
            ("--depth", self.depth > 0),
        ];
        if let Some((flag, _)) = given.iter().find(|(_, given)| *given && self.dummy.is_none()) {
            bail!("`{flag}` is for dummy models: name one with `--dummy`, or leave it out");
        }
        if !self.exchange_us.is_zero() && self.tp_rank.is_none() {
            bail!("`--exchange-us` is for one rank by itself: name it with `--tp-rank`, or leave it out");
        }
        Ok(())
    }

    /// The model, if one is asked for.
    pub(super) fn open(&self, model: &ModelArgs) -> anyhow::Result<Option<Opened>> {
        let Some(name) = &self.dummy else { return Ok(None) };
        let mut preset = Preset::find(name)?;
        if let Some(layers) = self.layers {
            preset.set_layers(layers)?;
        }
        Ok(Some(of_shape(model, &preset, Recipe::find(&self.recipe)?)?.dummy(self.tp_rank, self.exchange_us)))
    }
}

/// A model of this shape, over a file of holes.
pub(crate) fn of_shape(model: &ModelArgs, preset: &Preset, recipe: &Recipe) -> anyhow::Result<Opened> {
    let header = preset.header(recipe, Options::default())?;
    let folder = tempfile::tempdir().context("a folder for the dummy model's header")?;
    let path = folder.path().join(format!("{}.gguf", preset.name));
    let layout = Layout { sparse: true, ..Layout::default() };
    synth::random(&header, &path, 1, &layout, &mut |_| {})?;
    // the file stays mapped when its name is gone
    model.open_at(&path)
}
