//! Kernels that must compile for every architecture before a change is taken, at sizes that models have.

use std::collections::BTreeSet;

use shardwright_gguf::QuantType;
use shardwright_model::exec::{Ranks, Wire};
use shardwright_model::hyper::Options;
use shardwright_model::plan::plan;
use shardwright_model::presets::{Preset, Recipe};
use shardwright_model::{Error, arch};

use crate::Result;
use crate::lower::{Choices, lower};
use crate::program::Program;
use crate::step::StepLayout;
use crate::unit::Unit;

/// Presets, and how many layers show all their kinds.
const MODELS: [(&str, u32); 4] = [("glm-5", 5), ("glm-4.5-air", 3), ("deepseek-v3", 5), ("llama-3-8b", 2)];

/// The program of a model's first rank of some, of few layers and long contexts.
///
/// # Errors
/// If there is no such preset, or it can't be cut that way.
pub fn program(
    preset: &str,
    layers: u32,
    ranks: usize,
    [rows, tile]: [usize; 2],
    fast: bool,
) -> Result<Program> {
    let wrong = |e: Error| crate::Error::Plan(format!("{preset}: {e}"));
    let mut preset = Preset::find(preset).map_err(wrong)?;
    preset.set_layers(layers).map_err(wrong)?;
    let recipe = Recipe::find("ud-q4_k_xl").map_err(wrong)?;
    let header = preset.header(recipe, Options::default()).map_err(wrong)?;
    let description = arch::describe(&header.hyper);
    let mut plans = plan(&description, &|name| header.tensor(name), ranks).map_err(wrong)?;
    plans.truncate(1);
    let context = 131_072;
    let layout = StepLayout::new(rows, context);
    let ranks = Ranks { wire: Wire::Bf16, check: true };
    lower(&plans, Choices { layout, context, fast, tile: tile as u32, fuse: true, ranks })
}

/// Every kernel: those of whole models, and the matrix kernels for each type of weight.
///
/// # Errors
/// If a preset can't be lowered.
pub fn units() -> Result<BTreeSet<Unit>> {
    let mut units = BTreeSet::new();
    for (preset, layers) in MODELS {
        for (ranks, fast) in [(1, true), (1, false), (8, true)] {
            units.extend(program(preset, layers, ranks, [64, 8], fast)?.units);
        }
    }
    let sizes = |stem| Unit::new(stem).int("MAX_ROWS", 64).int("TABLE", 2048);
    for quant in QuantType::ALL.iter().copied().filter(|q| q.is_weight()) {
        let bytes = quant.row_bytes(2048).unwrap_or_default();
        let matrix = |stem, fast: u8| {
            sizes(stem).quant(quant).int("ROW_BYTES", bytes).int("COLS", 2048).int("FAST", fast)
        };
        let linear = |fast| matrix("linear", fast).int("HEADS", 1).int("PARTS", 1).int("ENDS", 4096);
        let linear = |fast| linear(fast).int("PAIR", 0).int("BIAS", 0).int("ANSWER", 0);
        units.extend([linear(1).int("TILE", 1), linear(1).int("TILE", 8), linear(0).int("TILE", 8)]);
        let embed = sizes("embed").quant(quant).int("ROW_BYTES", bytes).int("WIDTH", 2048);
        units.insert(embed.int("ROWS", 1000).int("FIRST", 0));
    }
    let transposed = sizes("transposed").quant(QuantType::Q8_0).int("ROW_BYTES", 544);
    units.insert(transposed.int("HEADS", 16).int("COLS", 512).int("OUTS", 512));
    for wire in ["F32", "BF16"] {
        units.insert(sizes("sum").int("WIDTH", 6144).int("RANKS", 8).int("WIRE", wire));
    }
    units.insert(Unit::new("hash").int("WIDTH", 1));
    units.insert(sizes("pointwise").int("WIDTH", 4096).int("WHAT", "COPY"));
    Ok(units)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::unit::FILES;

    #[test]
    fn no_source_is_left_out() {
        let units = units().unwrap();
        println!("{} kernels", units.len());
        let kernels = FILES.iter().map(|(name, _)| *name).filter(|name| !name.starts_with("common/"));
        for kernel in kernels {
            assert!(units.iter().any(|unit| unit.stem == kernel), "{kernel}");
        }
    }

    /// What a layer costs in launches, so that it can only become less.
    #[test]
    fn a_layer_takes_so_many_launches() {
        let calls = |preset, layers| program(preset, layers, 1, [64, 1], true).unwrap().calls.len();
        for (preset, layers, most) in [("glm-5", 4, 39), ("llama-3-8b", 1, 13)] {
            let layer = calls(preset, layers + 1) - calls(preset, layers);
            println!("{preset}: {layer} launches a layer");
            assert!(layer <= most, "{preset}: {layer} launches a layer");
        }
    }
}
