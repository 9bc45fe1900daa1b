//! The indexer of sparse attention: its scores by tensor cores, against plain loops, and the positions chosen by them.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod emulator;
mod kernels;

use emulator::Emulator;
use kernels::{Bench, Random, Rows, cache, call, float, number};
use shardwright_cuda::gate::{choices, program};

/// Positions of rows, each of a sequence of its own: all are kept up to 2048, and a block sorts out 4096.
const COUNTS: [usize; 9] = [1, 2047, 2048, 2049, 2064, 2065, 32_768, 32_769, 70_000];

/// Bins of a row's scores, which are there twice.
const BINS: usize = 1 << 12;
const COPIES: usize = 2;

/// A number that orders as the score does.
fn ordered(score: f32) -> u32 {
    let bits = score.to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

/// How many scores lie in each bin: of all there can be, or of those around a key.
fn binned<'a>(scores: impl Iterator<Item = &'a f32>, around: u32) -> Vec<u32> {
    let mut bins = vec![0; BINS];
    let bin = |key: u32| match around {
        0 => key >> 20,
        _ => key.saturating_sub(around.saturating_sub(1 << 24)) >> 13,
    };
    scores.for_each(|score| bins[(bin(ordered(*score)) as usize).min(BINS - 1)] += 1);
    bins
}

#[test]
fn scores_are_those_of_plain_loops() {
    let Some(device) = Emulator::new() else { return };
    let mut bench = Bench(device);
    let program = program("glm-5", 4, 1, choices(COUNTS.len(), 1, true)).unwrap();
    let (_, index, unit) = call(&program, "index_tiles");
    let [heads, width, keep] = ["HEADS", "WIDTH", "KEEP"].map(|n| number(unit, n));
    let factor = f64::from(float(unit, "FACTOR"));
    let mut random = Random(3);
    let rows: Vec<(usize, usize)> = COUNTS.iter().enumerate().map(|(i, count)| (i, count - 1)).collect();
    let rows = Rows::new(&rows, &mut random);
    let context = rows.context();
    let positions = COUNTS.iter().enumerate().flat_map(|(i, count)| (0..*count).map(move |t| (i, t)));
    let written: Vec<usize> = positions.map(|(i, t)| rows.line(i, t)).collect();
    let keys = cache(rows.lines, width, &written, &mut random);
    // what f16 holds and what it does not; where nothing is known of the scores, and where it is
    for (exact, around) in [(true, 0), (false, 0), (false, ordered(0.25))] {
        let mut element = || {
            let v = random.float() * 2.0;
            if exact { (v * 32.0).round() / 32.0 } else { v }
        };
        let q: Vec<f32> = (0..COUNTS.len() * heads * width).map(|_| element()).collect();
        let gate: Vec<f32> = (0..COUNTS.len() * heads).map(|_| element()).collect();
        let [queries, gates] = [&q, &gate].map(|v| bench.put(v));
        let lines = bench.put(&keys);
        let scores = bench.poisoned(COUNTS.len() * context);
        let bins = bench.put(&[0u32; COUNTS.len() * COPIES * BINS]);
        let known = bench.put(&[around; COUNTS.len()]);
        bench.run(&program, index, &rows, &[queries, gates, lines, scores, bins, known]);
        let got = bench.get(scores, COUNTS.len() * context);
        let counted = bench.get(bins, COUNTS.len() * COPIES * BINS);
        for (i, count) in COUNTS.iter().enumerate() {
            let written = got[i * context..][..context].iter().filter(|v| !v.is_nan()).count();
            assert_eq!(written, if *count > keep { *count } else { 0 }, "row of {count}");
            let scores = got[i * context..][..context].iter().filter(|v| !v.is_nan());
            let counted = &counted[i * COPIES * BINS..][..COPIES * BINS];
            let summed = (0..BINS).map(|b| counted[b].to_bits() + counted[BINS + b].to_bits());
            assert!(summed.eq(binned(scores, around)), "bins of a row of {count}");
            for t in (0..if *count > keep { *count } else { 0 }).step_by(1 + count / 500).chain([count - 1]) {
                if *count <= keep {
                    continue;
                }
                let key = &keys[rows.line(i, t) * width..][..width];
                let (mut score, mut sum, mut off) = (0.0, 0.0, 0.0);
                for h in 0..heads {
                    let query = &q[(i * heads + h) * width..][..width];
                    let terms = query.iter().zip(key).map(|(q, k)| f64::from(*q) * k.to_f64());
                    let (dot, squares) = terms.fold((0f64, 0f64), |(d, s), v| (d + v, s + v * v));
                    let g = f64::from(gate[i * heads + h]);
                    score += g * dot.max(0.0) * factor;
                    sum += (g * dot * factor).abs();
                    off += g * g * squares;
                }
                let rounding = if exact { 0.0 } else { 4.0 / 2048.0 * factor * off.sqrt() };
                let off = (f64::from(got[i * context + t]) - score).abs();
                assert!(off <= rounding + 2e-6 * sum, "position {t} of {count}: {off} from {score}");
            }
        }
    }
}

#[test]
fn the_best_are_chosen_and_of_equals_the_first() {
    let Some(device) = Emulator::new() else { return };
    let mut bench = Bench(device);
    let program = program("glm-5", 4, 1, choices(COUNTS.len(), 1, true)).unwrap();
    let (_, select, unit) = call(&program, "select");
    let keep = number(unit, "KEEP");
    let mut random = Random(4);
    let rows: Vec<(usize, usize)> = COUNTS.iter().enumerate().map(|(i, count)| (i, count - 1)).collect();
    let rows = Rows::new(&rows, &mut random);
    let context = rows.context();
    let marks = bench.poisoned(COUNTS.len() * context / 32 * 2);
    // as they are from the beginning, and as one step leaves them to the next
    let done = bench.put(&[0u32; COUNTS.len()]);
    let mut near = Random(5);
    let mut coarse = Random(6);
    let kinds: [(&str, &mut dyn FnMut(usize) -> f32); 7] = [
        ("any", &mut |_| random.float()),
        // a bin of several scores, each of many
        ("coarse", &mut |_| (coarse.float() * 256.0).round() / 256.0),
        // all in one bin: more or fewer than are listed
        ("near", &mut |_| 1.0 + near.float().abs() / 64.0),
        ("few", &mut |t| (t * 7919 % 5) as f32 - 2.0),
        ("one", &mut |_| 1.5),
        ("rising", &mut |t| t as f32),
        ("falling", &mut |t| -(t as f32)),
    ];
    let around = bench.put(&[0u32; COUNTS.len()]);
    for (kind, score) in kinds {
        let mut scores = vec![f32::NAN; COUNTS.len() * context];
        for (i, count) in COUNTS.iter().enumerate() {
            scores[i * context..][..*count].iter_mut().enumerate().for_each(|(t, v)| *v = score(t));
        }
        let from = bench.put(&scores);
        // what other scores have left, and then these
        for turn in 0..2 {
            let to = bench.poisoned(COUNTS.len() * keep);
            let known = bench.get(around, COUNTS.len());
            let row = |(i, count): (usize, &usize)| {
                let few = *count <= keep;
                let own = &scores[i * context..][..if few { 0 } else { *count }];
                // some in each copy
                let (some, others) = own.split_at(own.len() / 3);
                [some, others].map(|part| binned(part.iter(), known[i].to_bits())).concat()
            };
            let bins: Vec<u32> = COUNTS.iter().enumerate().flat_map(row).collect();
            let bins = bench.put(&bins);
            bench.run(&program, select, &rows, &[from, bins, marks, done, around, to]);
            let zero = |v: Vec<f32>| v.iter().all(|n| n.to_bits() == 0);
            assert!(zero(bench.get(bins, COUNTS.len() * COPIES * BINS)), "{kind}: bins are left");
            assert!(zero(bench.get(done, COUNTS.len())), "{kind}: blocks are left");
            let [got, left] = [(to, keep), (around, 1)].map(|(at, each)| bench.get(at, COUNTS.len() * each));
            for (i, count) in COUNTS.iter().enumerate() {
                let (want, least) = best(&scores[i * context..][..*count], keep);
                assert!(got[i * keep..][..keep] == want[..], "{kind} scores of {count}, turn {turn}");
                let least = least.map_or(0, ordered);
                assert_eq!(left[i].to_bits(), least, "{kind} scores of {count}, turn {turn}");
            }
        }
    }
}

/// The positions of the best scores in order, and the least of these if there are others.
fn best(scores: &[f32], keep: usize) -> (Vec<f32>, Option<f32>) {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    // stable
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    order.truncate(keep);
    let least = (scores.len() > keep).then(|| scores[order[keep - 1]]);
    order.sort_unstable();
    let mut best: Vec<f32> = order.iter().map(|t| *t as f32).collect();
    best.resize(keep, -1.0);
    (best, least)
}
