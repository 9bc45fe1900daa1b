//! Parts of an attention, joined by the matrix behind it: as the kernel that joins them alone does it, and the same bits whatever runs
//! beside a row, whose parts may be few where its neighbours' are many.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod emulator;
mod kernels;

use emulator::Emulator;
use kernels::{Bench, Random, Rows, call, number};
use shardwright_cuda::gate::{choices, program};
use shardwright_cuda::lower::Choices;
use shardwright_cuda::planes::lay;
use shardwright_cuda::program::Program;
use shardwright_gguf::QuantType;

/// Keys of rows, each of a sequence of its own: of one part, two, nine, ten, and all.
const COUNTS: [usize; 5] = [5, 257, 40, 2049, 300];
const OUTS: usize = 256;
const VALUE: usize = 512;

/// One rank of eight of GLM-5.
fn lowered(tile: u32, fuse: bool) -> Program {
    program("glm-5", 4, 8, Choices { fuse, ..choices(COUNTS.len(), tile, true) }).unwrap()
}

/// The matrix that joins, for `tile` rows at a time: its outputs, and heads.
fn joined(bench: &mut Bench, tile: u32, rows: &Rows, [part, weights]: [u64; 2]) -> (Vec<f32>, usize) {
    let program = lowered(tile, true);
    let merges = |c: &&shardwright_cuda::program::Call| {
        program.units[c.unit].defines.contains(&("PREPARE", "MERGED".into()))
    };
    let call = program.calls.iter().find(merges).unwrap();
    let unit = &program.units[call.unit];
    let (heads, room) = (number(unit, "HEADS"), rows.rows.len());
    let out = bench.poisoned(room * heads * OUTS);
    // where `linear.cu` has them, behind the step: rows, weights, and the first output
    let mut args = vec![0; 25];
    [args[0], args[3], args[11]] = [part, weights, out];
    bench.run(&program, call, rows, &args);
    (bench.get(out, room * heads * OUTS), heads)
}

/// Activations as kernels round them.
fn rounded(x: &[f32]) -> Vec<f32> {
    let group = |group: &[f32]| {
        let most = group.iter().fold(0f32, |m, v| m.max(v.abs()));
        group.iter().map(|v| (v * (127.0 / most)).round_ties_even() * (most / 127.0)).collect::<Vec<_>>()
    };
    x.chunks(32).flat_map(group).collect()
}

#[test]
fn parts_are_joined_alike_in_any_company() {
    let Some(device) = Emulator::new() else { return };
    let (mut bench, mut random) = (Bench(device), Random(11));
    let places: Vec<(usize, usize)> = COUNTS.iter().enumerate().map(|(i, count)| (i, count - 1)).collect();
    let rows = Rows::new(&places, &mut random);
    let alone = lowered(1, false);
    let (_, combine, unit) = call(&alone, "combine");
    let [heads, parts] = ["HEADS", "PARTS"].map(|name| number(unit, name));
    let lines = COUNTS.len() * heads * parts;
    // the largest score and the sum of weights of each, and then the sums
    let stats = (0..lines).flat_map(|_| [random.float() * 2.0, random.float() + 1.5]).collect::<Vec<_>>();
    let sums: Vec<f32> = (0..lines * VALUE).map(|_| random.float()).collect();
    let part = bench.put(&[stats, sums].concat());
    let mut blocks = emulator::Random(5);
    let weights = blocks.rows(QuantType::Q8_0, heads * OUTS, VALUE, 1e4);
    let mut laid = vec![];
    let row = weights.len() / heads / OUTS;
    weights.chunks(row).for_each(|row| lay(QuantType::Q8_0, row, &mut laid));
    laid.resize(laid.len() + 64, 0);
    let weights_at = bench.put(&laid);
    let width = heads * VALUE;
    let [out, codes, scales] = [width, width / 4, width / 8].map(|n| bench.poisoned(COUNTS.len() * n));
    bench.run(&alone, combine, &rows, &[part, out, codes, scales]);
    let x = rounded(&bench.get(out, COUNTS.len() * width));
    let mut w = vec![0f32; heads * OUTS * VALUE];
    QuantType::Q8_0.decode(&weights, &mut w);
    let (first, same_heads) = joined(&mut bench, 1, &rows, [part, weights_at]);
    assert_eq!(same_heads, heads);
    for (at, got) in first.iter().enumerate() {
        let (run, weights) = (at / OUTS, at % (heads * OUTS));
        let terms = x[run * VALUE..][..VALUE].iter().zip(&w[weights * VALUE..][..VALUE]);
        let terms = || terms.clone().map(|(x, w)| f64::from(*x) * f64::from(*w));
        let (want, size) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
        let off = (f64::from(*got) - want).abs();
        assert!(off <= 1e-5 * size, "output {at}: {got}, not {want}");
    }
    for tile in [2, 3, 4, 8] {
        let (other, _) = joined(&mut bench, tile, &rows, [part, weights_at]);
        let same = first.iter().zip(&other).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same, "{tile} rows at a time");
    }
}
