//! Attention by tensor cores, at the sizes of models, against plain loops.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod emulator;
mod kernels;

use emulator::Emulator;
use half::f16;
use kernels::{Bench, Random, Rows, cache, call, float, number};
use shardwright_cuda::gate::{choices, program};
use shardwright_cuda::lower::Choices;
use shardwright_cuda::program::Program;

/// Half a unit of f16's last place, of a number's size.
const ROUNDING: f64 = 1.0 / 2048.0;

/// Keys of a row: around a tile's 16 and 32 and a block's 64, of one part and of all. Rows of one sequence among them.
const COUNTS: [(usize, usize); 10] =
    [(0, 1), (1, 15), (1, 16), (1, 17), (2, 63), (2, 64), (2, 65), (3, 1000), (4, 2049), (5, 4100)];

/// An attention and its numbers.
struct Case {
    program: Program,
    at: usize,
    heads: usize,
    key: usize,
    rope: usize,
    value: usize,
    strides: [usize; 2],
    keep: usize,
    latent: bool,
    scale: f64,
    rows: Rows,
    /// Positions that each row reads.
    picked: Vec<Vec<usize>>,
    query: [Vec<f32>; 2],
    keys: Vec<f16>,
    values: Vec<f16>,
}

impl Case {
    /// `exact`: queries that f16 holds.
    fn new(preset: &str, layers: u32, ranks: usize, exact: bool) -> Case {
        let unfused = Choices { fuse: false, ..choices(COUNTS.len(), 1, true) };
        let program = program(preset, layers, ranks, unfused).unwrap();
        let (at, _, unit) = call(&program, "attend_tiles");
        let n = |name| number(unit, name);
        let (heads, key, rope, value, keep) = (n("HEADS"), n("KEY"), n("ROPE"), n("VALUE"), n("KEEP"));
        let (strides, latent) = ([n("STRIDE_K"), n("STRIDE_V")], n("LATENT") == 1);
        let scale = f64::from(float(unit, "SCALE"));
        let mut random = Random(key as u64);
        let rows: Vec<(usize, usize)> = COUNTS.iter().map(|(s, count)| (*s, count - 1)).collect();
        let rows = Rows::new(&rows, &mut random);
        let picked: Vec<Vec<usize>> =
            COUNTS.iter().map(|(_, count)| picks(*count, keep, &mut random)).collect();
        let read = picked.iter().enumerate().flat_map(|(i, own)| own.iter().map(move |t| (i, *t)));
        let written: Vec<usize> = read.map(|(i, t)| rows.line(i, t)).collect();
        let keys = cache(rows.lines, strides[0], &written, &mut random);
        let values = if latent { keys.clone() } else { cache(rows.lines, strides[1], &written, &mut random) };
        let mut element = || {
            let v = random.float() * 2.0;
            if exact { (v * 32.0).round() / 32.0 } else { v }
        };
        let query = [key - rope, rope].map(|width| {
            let all = (0..COUNTS.len() * heads * width).map(|_| element());
            all.collect::<Vec<f32>>()
        });
        Case {
            program,
            at,
            heads,
            key,
            rope,
            value,
            strides,
            keep,
            latent,
            scale,
            rows,
            picked,
            query,
            keys,
            values,
        }
    }

    /// What the kernels make of rows, which are the case's from `first` on.
    fn run(&self, bench: &mut Bench, rows: &Rows, first: usize) -> Vec<f32> {
        let [attend, combine] = [0, 1].map(|n| &self.program.calls[self.at + n]);
        let count = rows.rows.len();
        let query = [self.key - self.rope, self.rope].map(|w| w * self.heads);
        let [q, rope] = [0, 1].map(|n| bench.put(&self.query[n][first * query[n]..][..count * query[n]]));
        let keys = bench.put(&self.keys);
        let values = if self.latent { keys } else { bench.put(&self.values) };
        let mut list = vec![f32::NAN; count * self.keep];
        for (own, list) in self.picked[first..].iter().zip(list.chunks_mut(self.keep.max(1))) {
            // whose positions are all read needs no list
            let sparse = own.iter().enumerate().any(|(n, t)| n != *t);
            list.iter_mut().zip(own).filter(|_| sparse).for_each(|(to, t)| *to = *t as f32);
        }
        let list = bench.put(&list);
        let unit = &self.program.units[attend.unit];
        let (most, parts) = (number(unit, "MAX_ROWS"), number(unit, "PARTS"));
        let part = bench.poisoned(most * self.heads * parts * (self.value + 2));
        let width = self.heads * self.value;
        let [out, codes, scales] = [width, width / 4, width / 8].map(|n| bench.poisoned(count * n));
        bench.run(&self.program, attend, rows, &[q, rope, keys, values, list, part]);
        bench.run(&self.program, combine, rows, &[part, out, codes, scales]);
        bench.get(out, count * width)
    }

    /// A head of a row, and for each element how far rounding may lead from it. Weights are rounded by up to a part of
    /// themselves, one as likely up as down; so are the terms of a score, unless queries are exact.
    fn expected(&self, i: usize, head: usize, exact: bool) -> (Vec<f64>, Vec<f64>) {
        let unit = &self.program.units[self.program.calls[self.at].unit];
        let n = |name| number(unit, name);
        let kv = (n("FIRST") + head) / n("GROUP") - n("FIRST_KV");
        let own = self.key - self.rope;
        let row = i * self.heads + head;
        let query =
            [&self.query[0][row * own..][..own], &self.query[1][row * self.rope..][..self.rope]].concat();
        let wide = |x: &[f16]| -> Vec<f64> { x.iter().map(|v| v.to_f64()).collect() };
        let (mut scores, mut values, mut squares) = (vec![], vec![], 0f64);
        for t in &self.picked[i] {
            let line = self.rows.line(i, *t);
            let key = wide(&self.keys[line * self.strides[0] + kv * self.key..][..self.key]);
            let terms = query.iter().zip(key).map(|(q, k)| f64::from(*q) * k);
            let (sum, square) = terms.fold((0.0, 0.0), |(s, q), v| (s + v, q + v * v));
            scores.push(sum * self.scale);
            squares = squares.max(square);
            values.push(wide(&self.values[line * self.strides[1] + kv * self.value..][..self.value]));
        }
        let most = scores.iter().copied().fold(f64::MIN, f64::max);
        let weights: Vec<f64> = scores.iter().map(|s| (s - most).exp()).collect();
        let total: f64 = weights.iter().sum();
        let off = ROUNDING * (1.0 + if exact { 0.0 } else { squares.sqrt() * self.scale });
        let element = |k: usize| {
            let mean = weights.iter().zip(&values).map(|(w, v)| w / total * v[k]).sum::<f64>();
            let spread =
                weights.iter().zip(&values).map(|(w, v)| (w / total * (v[k] - mean)).powi(2)).sum::<f64>();
            (mean, 4.0 * off * spread.sqrt() + 2e-5)
        };
        (0..self.value).map(element).unzip()
    }

    fn check(&self, name: &str, exact: bool) {
        let Some(device) = Emulator::new() else { return };
        let mut bench = Bench(device);
        let out = self.run(&mut bench, &self.rows, 0);
        for i in 0..COUNTS.len() {
            let own = &out[i * self.heads * self.value..][..self.heads * self.value];
            // the first of all columns and the last ones, in one block of heads or several
            for head in (0..self.heads).step_by(7).chain([self.heads - 1]) {
                let (want, room) = self.expected(i, head, exact);
                for (k, (want, room)) in want.iter().zip(room).enumerate() {
                    let got = f64::from(own[head * self.value + k]);
                    let at = format!("{name}, {} keys, head {head}, element {k}", COUNTS[i].1);
                    assert!((got - want).abs() <= room, "{at}: {got}, not {want} within {room}");
                }
            }
            // some by themselves: alone in its sequence, one of several, sparse where any is
            if exact && [0, 6, 8].contains(&i) {
                let alone = self.run(&mut bench, &self.rows.only(i), i);
                let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<u32>>();
                assert!(bits(&alone) == bits(own), "{name}: {} keys alone", COUNTS[i].1);
            }
        }
    }
}

/// Positions below `count`, ascending: all, or `keep` of them.
fn picks(count: usize, keep: usize, random: &mut Random) -> Vec<usize> {
    let mut all: Vec<usize> = (0..count).collect();
    while keep > 0 && all.len() > keep {
        all.remove(random.below(all.len()));
    }
    all
}

#[test]
fn sparse_latent_attention_of_64_heads() {
    Case::new("glm-5", 4, 1, true).check("glm-5", true);
}

#[test]
fn sparse_latent_attention_of_a_rank_of_eight() {
    Case::new("glm-5", 4, 8, true).check("glm-5 over 8", true);
    Case::new("glm-5", 4, 8, false).check("glm-5 over 8, any query", false);
}

#[test]
fn latent_attention_of_20_heads() {
    Case::new("glm-4.7-flash", 2, 1, true).check("glm-4.7-flash", true);
}

#[test]
fn grouped_queries() {
    Case::new("llama-3-8b", 1, 1, true).check("llama-3-8b", true);
    Case::new("llama-3-8b", 1, 1, false).check("llama-3-8b, any query", false);
    Case::new("glm-4.5-air", 2, 8, true).check("glm-4.5-air over 8", true);
}
