//! One card in the place of several: what a step is predicted to take, time in place of the sums over ranks, and launches dealt for
//! any number of multiprocessors.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../cpu/tests/common/mod.rs"]
mod common;
mod emulator;
mod models;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::*;
use emulator::Emulator;
use models::{fast, steps};
use shardwright_cuda::device::{Device, Launch};
use shardwright_cuda::gate::{choices, program};
use shardwright_cuda::lower::{Choices, Tier};
use shardwright_cuda::predict::{Asked, Card, Prediction, step};
use shardwright_cuda::program::{Call, Program};
use shardwright_cuda::unit::Unit;
use shardwright_cuda::{CudaExecutor, CudaOptions};
use shardwright_gguf::Reader;
use shardwright_model::arch;
use shardwright_model::exec::{Executor, Ranks, Want};
use shardwright_model::hyper::Options;
use shardwright_model::plan::plan;
use shardwright_model::presets::{Preset, Recipe};

/// The card, whole and the part of it that eight multiprocessors are, and steps behind up to 128 tokens
/// (2026-12-01, 3e86c68, one start each; they are not in `bench/`).
const H200: Card = Card { bandwidth: 4.54e12, multiprocessors: 132 };
const PART: Card = Card { bandwidth: 1.267e12, multiprocessors: 8 };
type Measured = (&'static str, &'static str, Option<u32>, usize, Card, f64);
const MEASURED: [Measured; 5] = [
    ("glm-5", "q4_k-experts", Some(7), 1, H200, 1142.0),
    ("glm-4.7-flash", "q4_k-experts", None, 1, H200, 2016.0),
    ("llama-3-8b", "q4_k_m", None, 1, H200, 1997.0),
    ("glm-5", "q4_k-experts", None, 8, H200, 3667.0),
    ("glm-5", "q4_k-experts", None, 8, PART, 15462.0),
];

fn predicted(
    (preset, recipe, layers, ranks): (&str, &str, Option<u32>, usize),
    us: u64,
    card: &Card,
) -> Prediction {
    let mut preset = Preset::find(preset).unwrap();
    if let Some(n) = layers {
        preset.set_layers(n).unwrap();
    }
    let header = preset.header(Recipe::find(recipe).unwrap(), Options::default()).unwrap();
    let d = arch::describe(&header.hyper);
    let plans = plan(&d, &|n| header.tensor(n), ranks).unwrap();
    let asked = Asked { context: 33, last: 1, fast: true, exchange: Duration::from_micros(us) };
    step(&d, &plans[0], &asked, card).unwrap()
}

#[test]
fn steps_that_were_measured_are_predicted_within_a_tenth() {
    for (preset, recipe, layers, ranks, card, us) in MEASURED {
        let found = predicted((preset, recipe, layers, ranks), 0, &card);
        let off = found.seconds() * 1e6 / us - 1.0;
        println!("{preset} {ranks}: {us} us measured, {:+.1} %, {found:?}", off * 100.0);
        assert!(off.abs() < 0.1, "{preset} over {ranks}: {:.0} us for {us}", found.seconds() * 1e6);
        assert_eq!((found.sums, found.exchanges), (0, 0.0));
    }
    let launches = MEASURED.map(|(p, r, l, n, ..)| predicted((p, r, l, n), 0, &H200).launches);
    assert_eq!(launches, [79, 427, 293, 860, 860], "as `bench --per-kernel` has counted them");
}

#[test]
fn a_prediction_grows_by_its_sums() {
    let rank = ("glm-5", "q4_k-experts", None, 8);
    let none = predicted(rank, 0, &H200);
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} for {b}");
    for us in [2, 8, 11, 14, 30, 135] {
        let found = predicted(rank, us, &H200);
        assert_eq!((found.sums, found.launches), (156, none.launches + 156));
        near(found.exchanges, 156e-6 * us as f64);
        near(found.seconds() - predicted(rank, 1, &H200).seconds(), 156e-6 * (us - 1) as f64);
        assert_eq!(found.read, none.read);
    }
    // a whole model has nobody to exchange with
    assert_eq!(predicted(("llama-3-8b", "q4_k_m", None, 1), 8, &H200).sums, 0);
    // fewer multiprocessors and slower memory cost what goes through them, and no latency
    let part = predicted(rank, 0, &Card { bandwidth: H200.bandwidth / 4.0, multiprocessors: 33 });
    near(part.reading, none.reading * 4.0);
    near(part.computing, none.computing * 4.0);
    assert!((part.latency - none.latency).abs() < 0.05 * none.latency);
}

/// A rank's step with so many nanoseconds for each sum: kernels in order.
fn rank_of_eight(preset: &str, layers: u32, delay: u64) -> Vec<(Unit, Call)> {
    let choices = Choices { tier: Tier::Short, ranks: Ranks::default(), delay, ..choices(1, 1, true) };
    let Program { units, calls, .. } = program(preset, layers, 8, choices).unwrap();
    let named = |call: Call| (units[call.unit].clone(), Call { unit: 0, ..call });
    calls.into_iter().map(named).collect()
}

#[test]
fn time_passes_where_ranks_would_exchange() {
    let delayed = rank_of_eight("glm-5", 78, 2000);
    let places = (0..delayed.len()).filter(|i| delayed[*i].0.stem == "delay");
    let places: Vec<usize> = places.collect();
    assert_eq!(places.len(), 156);
    for (n, at) in places.iter().enumerate() {
        let [before, delay, after] = [at - 1, *at, at + 1].map(|i| &delayed[i]);
        // attention's output first, then the feed-forward's; dense layers have one matrix for that
        let expected = if n % 2 == 1 && n / 2 >= 3 { "down" } else { "linear" };
        assert_eq!((before.0.stem, after.0.stem), (expected, "norm"), "sum {n}");
        assert!(delay.0.label().contains("NANOSECONDS=2000"));
        assert_eq!((delay.1.blocks(1), delay.1.block, delay.1.args.len()), ([1, 1, 1], 1, 0));
    }
    let plain = rank_of_eight("glm-5", 78, 0);
    assert!(plain.iter().all(|(unit, _)| unit.stem != "delay"));
    let rest = delayed.into_iter().filter(|(unit, _)| unit.stem != "delay");
    assert!(rest.eq(plain), "all else is as it was");
    // a narrow stream's norms wait for a launch of their own, as they do where ranks do exchange
    let narrow = rank_of_eight("glm-4.7-flash", 4, 2000);
    let stems: Vec<&str> = narrow.iter().map(|(unit, _)| unit.stem).collect();
    assert_eq!(stems.iter().filter(|stem| **stem == "delay").count(), 8);
    assert!(stems.windows(2).all(|two| two[0] != "delay" || two[1] == "norm"), "{stems:?}");
}

#[test]
fn a_delay_takes_its_time_and_ends() {
    let Some(mut device) = Emulator::new() else { return };
    let unit = Unit::new("delay").int("NANOSECONDS", 3_000_000);
    let kernel = device.load(&[unit]).unwrap()[0];
    let begun = Instant::now();
    device.launch(&Launch { kernel, grid: [1; 3], block: 1, shared: 0, args: vec![] }).unwrap();
    let took = begun.elapsed();
    assert!((3..1000).contains(&took.as_millis()), "{took:?}");
}

/// Rank 0 of two by itself.
fn alone(options: &CudaOptions) -> Option<CudaExecutor> {
    let file = Arc::new(Reader::open(&files("glm-dsa-tp8-kq")[0]).unwrap());
    let trunk = described(&file, PLAIN.options).0;
    let mut plans = plan(&trunk, &|n| file.tensor(n), 2).unwrap();
    plans.truncate(1);
    let device = Box::new(Emulator::new()?) as Box<dyn Device>;
    let options = CudaOptions { alone: true, tiles: vec![1, 8], ..options.clone() };
    Some(CudaExecutor::new(vec![device], &file, (&trunk, plans), None, &options, &mut |_| {}).unwrap())
}

#[test]
fn a_step_with_delays_answers_the_same_and_later() {
    let ids = Gold::open("golden/glm-dsa-tp8-kq.npz").unwrap().ids(0);
    let delay = Duration::from_millis(20);
    let Some(mut plain) = alone(&fast()) else { return };
    let mut delayed = alone(&CudaOptions { delay, ..fast() }).unwrap();
    let want = steps(&mut plain, &ids);
    assert!(want.iter().any(|bits| *bits != 0));
    assert!(steps(&mut delayed, &ids) == want);
    let batch = step_of(&[(&ids[..1], 0, &TABLE)], Want::Logits);
    let begun = Instant::now();
    delayed.step(&batch).unwrap();
    let file = Reader::open(&files("glm-dsa-tp8-kq")[0]).unwrap();
    let sums = described(&file, PLAIN.options).0.sums() as u32;
    assert!(sums > 1 && begun.elapsed() >= sums * delay, "{:?} for {sums} sums", begun.elapsed());
}

/// How rows are dealt to blocks decides who multiplies, not in which order.
#[test]
fn launches_dealt_for_other_cards_answer_the_same() {
    let ids = Gold::open("golden/glm-dsa-tp8-kq.npz").unwrap().ids(0);
    let Some(mut usual) = alone(&fast()) else { return };
    let want = steps(&mut usual, &ids);
    for multiprocessors in [2, 188] {
        let mut other = alone(&CudaOptions { multiprocessors, ..fast() }).unwrap();
        assert!(steps(&mut other, &ids) == want, "dealt for {multiprocessors}");
    }
}

#[test]
fn launches_are_dealt_for_the_card() {
    let dealt = |multiprocessors: usize| {
        let choices = Choices { multiprocessors, tier: Tier::Short, ..choices(1, 1, true) };
        program("glm-5", 4, 8, choices).unwrap()
    };
    // attention's output: 6,144 rows of one matrix
    let blocks = |Program { units, calls, .. }: &Program| {
        let output = |call: &&Call| units[call.unit].label().contains("m0::Matrix, 6144, ");
        calls.iter().find(output).map(|call| call.blocks(1)[0]).unwrap()
    };
    let [few, usual, many] = [48, 132, 188].map(dealt);
    assert_eq!([&few, &usual].map(blocks), [96, 256], "two a multiprocessor");
    assert_ne!(usual.units, many.units);
    let stems = |p: &Program| p.calls.iter().map(|call| p.units[call.unit].stem).collect::<Vec<_>>();
    assert!(stems(&few) == stems(&usual) && stems(&many) == stems(&usual), "the same launches");
}
