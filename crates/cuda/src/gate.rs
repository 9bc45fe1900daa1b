//! Kernels that must compile for every architecture before a change is taken, at sizes that models have.

use std::collections::BTreeSet;

use shardwright_gguf::QuantType;
use shardwright_model::exec::{Ranks, Wire};
use shardwright_model::hyper::Options;
use shardwright_model::plan::plan;
use shardwright_model::presets::{Preset, Recipe};
use shardwright_model::{Error, arch};

use crate::load;
use crate::lower::{Choices, Tier, lower};
use crate::matmul::TILE;
use crate::measure;
use crate::ops::sum;
use crate::program::Program;
use crate::step::StepLayout;
use crate::unit::Unit;
use crate::wave::MULTIPROCESSORS;
use crate::{CudaOptions, Result};

/// Presets, and how many layers show all their kinds.
const MODELS: [(&str, u32); 5] =
    [("glm-5", 5), ("glm-4.7-flash", 2), ("glm-4.5-air", 3), ("deepseek-v3", 5), ("llama-3-8b", 2)];

/// Those of which every program is compiled.
const WHOLE: [&str; 3] = ["glm-5", "glm-4.7-flash", "llama-3-8b"];

/// Steps of at most `rows` rows over a long context, all ops fused.
pub fn choices(rows: usize, tile: u32, fast: bool) -> Choices {
    let (context, narrow) = (131_072, CudaOptions::NARROW);
    let layout = StepLayout::new(rows, context);
    let ranks = Ranks { wire: Wire::Bf16, check: true };
    let (tier, inbox, legs, multiprocessors) = (Tier::Long, 0, 1, MULTIPROCESSORS);
    let (fuse, nccl) = (true, false);
    let delay = 0;
    Choices {
        layout,
        context,
        fast,
        tile,
        fuse,
        ranks,
        tier,
        narrow,
        inbox,
        nccl,
        multiprocessors,
        delay,
        legs,
    }
}

/// The program of a model's first rank of some, of few layers.
///
/// # Errors
/// If there is no such preset, or it can't be cut that way.
pub fn program(preset: &str, layers: u32, ranks: usize, choices: Choices) -> Result<Program> {
    of_rank(preset, layers, [0, ranks], choices)
}

/// The same of any rank of some.
fn of_rank(preset: &str, layers: u32, [rank, ranks]: [usize; 2], choices: Choices) -> Result<Program> {
    let wrong = |e: Error| crate::Error::Plan(format!("{preset}: {e}"));
    let mut preset = Preset::find(preset).map_err(wrong)?;
    preset.set_layers(layers).map_err(wrong)?;
    let recipe = Recipe::find("ud-q4_k_xl").map_err(wrong)?;
    let header = preset.header(recipe, Options::default()).map_err(wrong)?;
    let description = arch::describe(&header.hyper);
    let plans = plan(&description, &|name| header.tensor(name), ranks).map_err(wrong)?;
    lower(&plans[rank..=rank], choices)
}

/// Every kernel: those of whole models, and the matrix kernels for each type of weight, dealt for so many multiprocessors.
///
/// # Errors
/// If a preset can't be lowered.
pub fn units(multiprocessors: usize) -> Result<BTreeSet<Unit>> {
    let mut units = BTreeSet::new();
    for (preset, layers) in MODELS {
        let fast = Choices { multiprocessors, ..choices(64, 8, true) };
        let short = Choices { tier: Tier::Short, tile: 1, ..fast };
        let single = Choices { fuse: false, ..fast };
        // each rank on a device of its own, whose peers' part of an inbox holds 64 rows of 12,288 elements
        let group = Choices { inbox: 98_304, ..short };
        let many = Choices { multiprocessors, ..choices(512, 64, true) };
        let exact = Choices { multiprocessors, ..choices(64, 8, false) };
        let [two, three, four] = [2, 3, 4].map(|tile| Choices { tile, ..short });
        let f32 = Ranks { wire: Wire::F32, ..fast.ranks };
        // the same of f32, eight rows at a time: twice as many packets
        let wide = Choices { inbox: 2 * group.inbox, ranks: f32, ..fast };
        let all = [
            (1, fast),
            (1, short),
            (8, group),
            (1, many),
            (8, wide),
            (1, two),
            (1, three),
            (1, four),
            (1, single),
            (1, exact),
        ];
        // those of few rows, unfused and exact ones of the others are of the same kinds
        let some = if WHOLE.contains(&preset) { &all[..] } else { &all[..4] };
        for (ranks, choices) in some {
            units.extend(program(preset, layers, *ranks, *choices)?.units);
        }
    }
    // its experts have six super-blocks, of which the last of eight ranks has none
    let idle = Choices { multiprocessors, ..choices(64, 8, true) };
    units.extend(of_rank("glm-4.7-flash", 2, [7, 8], idle)?.units);
    let sizes = |stem| Unit::new(stem).int("MAX_ROWS", 64);
    for quant in QuantType::ALL.iter().copied().filter(|q| q.is_weight()) {
        let bytes = quant.row_bytes(2048).unwrap_or_default();
        let matrix = measure::Matrix { quant, cols: 2048, outs: 4096 };
        for (tile, fast) in [(1, true), (8, true), (8, false)] {
            units.insert(matrix.unit(tile, fast, multiprocessors)?.0.int("MAX_ROWS", 64));
        }
        let embed = sizes("embed").quant(quant).int("ROW_BYTES", bytes).int("WIDTH", 2048);
        units.insert(embed.int("ROWS", 1000).int("FIRST", 0));
    }
    units.extend(many_rows());
    let transposed = sizes("transposed").quant(QuantType::Q8_0).int("ROW_BYTES", 544);
    units.insert(transposed.int("HEADS", 16).int("COLS", 512).int("OUTS", 512));
    for wire in ["F32", "BF16"] {
        units.insert(sizes("sum").int("WIDTH", 6144).int("RANKS", 8).int("WIRE", wire));
    }
    units.extend([Unit::new("hash").int("WIDTH", 1), Unit::new("read").int("ROUNDS", 8), Unit::new("stamp")]);
    units.extend(load::units(QuantType::ALL.iter().copied()));
    units.insert(sum::delay(2000));
    units.extend(exchanges());
    units.extend(["COPY", "ADD"].map(|what| sizes("pointwise").int("WIDTH", 4096).int("WHAT", what)));
    units.extend([0, 1, 2].map(|addends| sizes("wire").int("WIDTH", 6144).int("ADDENDS", addends)));
    Ok(units)
}

/// What sums over eight ranks, and norms that receive the sum of two and of eight.
fn exchanges() -> Vec<Unit> {
    let sizes = |stem| Unit::new(stem).int("MAX_ROWS", 64);
    let exchange = |receive: u8, legs: u8| {
        let unit = sizes("exchange")
            .int("RANKS", 8)
            .int("CAPACITY", 98_304)
            .int("BF16", legs - 1)
            .int("WIDTH", 6144);
        let unit = unit.int("ADDENDS", 2).int("RECEIVE", receive).int("LEGS", legs);
        unit.int("BLOCK", 128).int("BLOCKS", 48)
    };
    let mut units = vec![exchange(0, 1), exchange(1, 1), exchange(1, 2)];
    let norm = sizes("norm")
        .int("WIDTH", 6144)
        .int("RUNS", 1)
        .float("EPS", 1e-5)
        .int("RMS", 1)
        .int("ROUND", 1)
        .int("SHARES", 1);
    for ranks in [2, 8] {
        let unit = norm.clone().int("ADDENDS", 3).int("BLOCK", 256).int("RECEIVE", 1).int("RANKS", ranks);
        units.push(unit.int("CAPACITY", 98_304).int("BF16", 1));
    }
    units
}

/// Products of many rows, for each type of weight.
fn many_rows() -> impl Iterator<Item = Unit> {
    let quantized = QuantType::ALL.iter().copied().filter(|q| q.is_weight() && q.group().is_some());
    quantized.map(|quant| {
        let mut unit = Unit::new("matmul").int("MAX_ROWS", 64).int("TILE", TILE);
        let kind = unit.decoder(quant, quant.row_bytes(2048).unwrap_or_default(), 2048);
        let unit = unit.int("PART0", format!("{kind}, {kind}, 4096, GATED, 1")).int("END0", 64);
        unit.int("PARTS", 1).int("HEADS", 1).int("ANSWER", 0)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::unit::FILES;

    #[test]
    fn no_source_is_left_out() {
        let units = units(MULTIPROCESSORS).unwrap();
        println!("{} kernels", units.len());
        let kernels = FILES.iter().map(|(name, _)| *name).filter(|name| !name.starts_with("common/"));
        for kernel in kernels {
            assert!(units.iter().any(|unit| unit.stem == kernel), "{kernel}");
        }
    }

    /// A kernel that ended without waiting for those in front of it would have those behind it believe that all are done.
    #[test]
    fn every_kernel_waits_for_its_turn() {
        for (name, text) in FILES.iter().filter(|(name, _)| !name.starts_with("common/")) {
            // some have two forms
            for kernel in text.split("__global__").skip(1) {
                assert!(kernel.contains("in_turn(") || kernel.contains("await_earlier();"), "{name}");
            }
        }
    }

    /// What a layer costs in launches, in decode steps of a single rank and of one of eight that have a device each, so that it can only
    /// become less.
    #[test]
    fn a_layer_takes_so_many_launches() {
        // preset, layers before the one that counts, launches in the short and in the long tier, the same of eight ranks
        let bounds = [
            ("glm-5", 1, [10, 12], [10, 12]),
            ("glm-5", 4, [11, 13], [11, 13]),
            ("glm-5.2", 1, [10, 12], [10, 12]),
            ("glm-5.2", 4, [11, 11], [11, 11]),
            ("glm-4.7-flash", 4, [9, 9], [11, 11]),
            ("llama-3-8b", 1, [9, 9], [9, 9]),
        ];
        for (preset, layers, one, eight) in bounds {
            let cases = [(1, 0, one), (8, 98_304, eight)];
            for (tile, (count, inbox, most)) in (1..=4).flat_map(|tile| cases.map(|case| (tile, case))) {
                for (tier, most) in [Tier::Short, Tier::Long].into_iter().zip(most) {
                    let plain = choices(64, tile, true);
                    let ranks = Ranks { check: false, ..plain.ranks };
                    let choices = Choices { tier, inbox, ranks, ..plain };
                    let calls = |layers| program(preset, layers, count, choices).unwrap().calls.len();
                    let what = format!("{preset} over {count}, layer {layers}, {tier:?} tier");
                    let layer = calls(layers + 1) - calls(layers);
                    println!("{what}: {layer} launches");
                    assert!(layer <= most, "{what}: {layer} launches, at most {most}");
                }
            }
        }
    }

    /// A library's sums take launches of their own: nothing is pushed by a product or received by a norm. Those of bf16 take two more each.
    #[test]
    fn sums_of_a_library_are_launches() {
        let plain = Choices { tier: Tier::Short, ..choices(64, 1, true) };
        // preset, layers before the one that counts, launches by inboxes, and by a library of bf16 and of f32
        let all = [("glm-5", 1, [10, 16, 12]), ("glm-5", 4, [11, 17, 13]), ("llama-3-8b", 1, [9, 15, 11])];
        for (preset, layers, expected) in all {
            let f32 = Ranks { wire: Wire::F32, check: false };
            let ranks = Ranks { check: false, ..plain.ranks };
            let made = [
                Choices { inbox: 98_304, ranks, ..plain },
                Choices { nccl: true, ranks, ..plain },
                Choices { nccl: true, ranks: f32, ..plain },
            ];
            let counts = made.map(|choices| {
                let made = |layers| program(preset, layers, 8, choices).unwrap();
                let (less, more) = (made(layers), made(layers + 1));
                let sums = |program: &Program| {
                    program.calls.iter().filter(|call| program.units[call.unit].reduced().is_some()).count()
                };
                assert_eq!(sums(&more) - sums(&less), if choices.nccl { 2 } else { 0 }, "{preset}");
                let exchanges = |unit: &Unit| {
                    let on =
                        |(name, value): &(&str, String)| ["PUSH", "RECEIVE"].contains(name) && value == "1";
                    unit.stem == "exchange" || unit.defines.iter().any(on)
                };
                assert_eq!(more.units.iter().any(exchanges), !choices.nccl, "{preset}");
                more.calls.len() - less.calls.len()
            });
            assert_eq!(counts, expected, "{preset}, layer {layers}");
        }
    }
}
