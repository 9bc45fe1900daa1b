//! Causal attention over a cache in half precision: queries that read the same keys and values, sixteen keys at a time.
//! All sums are made in f32.
//!
//! A score is one fused multiply-add after the other over the elements of a key, the maximum and the sum of weights go
//! over the keys in sixteen lanes, and an element of the result is one fused multiply-add after the other over the keys.
//! None of it depends on how many queries share the work.

use super::lines::{Lines, Positions};
use crate::simd::{Kernel, LANES, Simd, Sixteen, exp, prefetch, total};
use half::f16;

/// Attention of some queries.
#[derive(Debug)]
pub(crate) struct Attend<'a> {
    pub(crate) keys: Lines<'a>,
    pub(crate) values: Lines<'a>,
    pub(crate) positions: Positions<'a>,
    pub(crate) scale: f32,
    /// Queries, one behind the other, each as wide as a key, and how many positions each of them reads.
    pub(crate) queries: &'a [f32],
    pub(crate) counts: &'a [usize],
    /// Results, each as wide as a value.
    pub(crate) out: &'a mut [f32],
    pub(crate) memory: &'a mut Vec<Sixteen>,
}

impl Kernel for Attend<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        let width = self.keys.width;
        let most = self.counts.iter().copied().max().unwrap_or(0);
        let tiles = most.div_ceil(LANES);
        self.memory.clear();
        self.memory.resize(3 * width + tiles * self.counts.len(), [0.0; LANES]);
        let (keys, weights) = self.memory.split_at_mut(3 * width);
        let (turned, copied) = keys.split_at_mut(2 * width);
        let (one, two) = turned.split_at_mut(width);
        // two tiles share the reading of the queries
        for t in (0..tiles).step_by(2) {
            self.keys.turn::<S>(self.positions, t * LANES, most, one, copied);
            if t + 1 < tiles {
                self.keys.turn::<S>(self.positions, (t + 1) * LANES, most, two, copied);
                scores::<S, 2>([one, two], self.queries, t, tiles, weights);
            } else {
                scores::<S, 1>([one], self.queries, t, tiles, weights);
            }
        }
        for (weights, count) in weights.chunks_exact_mut(tiles.max(1)).zip(self.counts) {
            softmax::<S>(self.scale, *count, weights);
        }
        let weights = Weights { weights, tiles, counts: self.counts };
        let mut q = 0;
        if S::REGISTERS >= 32 {
            q = sums::<S, 4>(&self.values, self.positions, weights, q, self.out);
        }
        q = sums::<S, 3>(&self.values, self.positions, weights, q, self.out);
        sums::<S, 1>(&self.values, self.positions, weights, q, self.out);
    }
}

/// Products of all queries with the turned keys of `K` tiles from tile `t` on.
#[inline(always)]
pub(super) fn scores<S: Simd, const K: usize>(
    keys: [&[Sixteen]; K],
    queries: &[f32],
    t: usize,
    tiles: usize,
    out: &mut [Sixteen],
) {
    let mut q = 0;
    if S::REGISTERS >= 32 {
        q = some_scores::<S, 8, K>(keys, queries, q, [t, tiles], out);
    }
    q = some_scores::<S, 3, K>(keys, queries, q, [t, tiles], out);
    some_scores::<S, 1, K>(keys, queries, q, [t, tiles], out);
}

/// The same for `R` queries at a time from query `q` on; how far it came.
#[inline(always)]
fn some_scores<S: Simd, const R: usize, const K: usize>(
    keys: [&[Sixteen]; K],
    queries: &[f32],
    mut q: usize,
    [t, tiles]: [usize; 2],
    out: &mut [Sixteen],
) -> usize {
    let width = keys[0].len();
    let keys = keys.map(|k| &k[..width]);
    while (q + R) * width <= queries.len() {
        let mut rows = [queries; R];
        for (i, row) in rows.iter_mut().enumerate() {
            *row = &queries[(q + i) * width..][..width];
        }
        let mut sum = [[S::splat(0.0); K]; R];
        for d in 0..width {
            for i in 0..R {
                let query = S::splat(rows[i][d]);
                for k in 0..K {
                    sum[i][k] = S::fma(query, S::load(&keys[k][d]), sum[i][k]);
                }
            }
        }
        for i in 0..R {
            for k in 0..K {
                S::store(sum[i][k], &mut out[(q + i) * tiles + t + k]);
            }
        }
        q += R;
    }
    q
}

/// From products to weights whose sum is 1; beyond `count` they are 0.
#[inline(always)]
fn softmax<S: Simd>(scale: f32, count: usize, weights: &mut [Sixteen]) {
    let weights = &mut weights[..count.div_ceil(LANES)];
    let Some((last, _)) = weights.split_last_mut() else { return };
    let beyond = count - (count - 1) / LANES * LANES;
    last[beyond..].fill(f32::NEG_INFINITY);
    let mut most = S::splat(f32::NEG_INFINITY);
    for w in &*weights {
        most = S::max(S::load(w), most);
    }
    let mut lanes = [0.0; LANES];
    S::store(most, &mut lanes);
    let most = S::splat(lanes.into_iter().fold(f32::NEG_INFINITY, f32::max));
    let mut sum = S::splat(0.0);
    let tiles = weights.len();
    for (t, w) in weights.iter_mut().enumerate() {
        S::store(exp::<S>(S::mul(S::sub(S::load(w), most), S::splat(scale))), w);
        if t + 1 == tiles {
            w[beyond..].fill(0.0);
        }
        sum = S::add(sum, S::load(w));
    }
    S::store(sum, &mut lanes);
    let factor = S::splat(1.0 / total(&lanes));
    for w in weights {
        S::store(S::mul(S::load(w), factor), w);
    }
}

/// Weights of all queries, and how many each has.
#[derive(Clone, Copy)]
struct Weights<'a> {
    weights: &'a [Sixteen],
    tiles: usize,
    counts: &'a [usize],
}

impl Weights<'_> {
    #[inline(always)]
    fn at(&self, q: usize, n: usize) -> f32 {
        self.weights[q * self.tiles + n / LANES][n % LANES]
    }
}

/// The weighted sums of `R` queries at a time from query `q` on; how far it came.
#[inline(always)]
fn sums<S: Simd, const R: usize>(
    values: &Lines<'_>,
    positions: Positions<'_>,
    weights: Weights<'_>,
    mut q: usize,
    out: &mut [f32],
) -> usize {
    let width = values.width;
    while q + R <= weights.counts.len() {
        let out = &mut out[q * width..][..R * width];
        let mut at = 0;
        while width - at >= 4 * LANES {
            part::<S, R, 4>(values, positions, weights, q, at, out);
            at += 4 * LANES;
        }
        while at < width {
            part::<S, R, 1>(values, positions, weights, q, at, out);
            at += LANES;
        }
        q += R;
    }
    q
}

/// Values asked for so many lines before they are read.
const SOON: usize = 8;

/// `C` vectors of the sums, from element `at` on.
#[inline(always)]
fn part<S: Simd, const R: usize, const C: usize>(
    values: &Lines<'_>,
    positions: Positions<'_>,
    weights: Weights<'_>,
    q: usize,
    at: usize,
    out: &mut [f32],
) {
    let len = (values.width - at).min(C * LANES);
    let mut sum = [[S::splat(0.0); C]; R];
    let counts = &weights.counts[q..q + R];
    let common = counts.iter().copied().min().unwrap_or(0);
    for n in 0..common {
        if n + SOON < common {
            prefetch(bytemuck::cast_slice(&values.line(positions.line(n + SOON))[at..at + len]));
        }
        let v = vectors::<S, C>(values, positions.line(n), at, len);
        for i in 0..R {
            let w = S::splat(weights.at(q + i, n));
            for c in 0..C {
                sum[i][c] = S::fma(w, v[c], sum[i][c]);
            }
        }
    }
    for i in 0..R {
        for n in common..counts[i] {
            let v = vectors::<S, C>(values, positions.line(n), at, len);
            let w = S::splat(weights.at(q + i, n));
            for c in 0..C {
                sum[i][c] = S::fma(w, v[c], sum[i][c]);
            }
        }
        let mut result = [[0.0; LANES]; C];
        for c in 0..C {
            S::store(sum[i][c], &mut result[c]);
        }
        out[i * values.width + at..][..len].copy_from_slice(&result.as_flattened()[..len]);
    }
}

/// `C` vectors of a line from element `at` on, of which `len` elements exist; zeros for the others.
#[inline(always)]
fn vectors<S: Simd, const C: usize>(values: &Lines<'_>, line: usize, at: usize, len: usize) -> [S::F; C] {
    let x = &values.line(line)[at..at + len];
    let mut padded = [[f16::ZERO; LANES]; C];
    let whole: &[[f16; LANES]; C] = match x.as_chunks::<LANES>().0.first_chunk() {
        Some(whole) => whole,
        None => {
            padded.as_flattened_mut()[..len].copy_from_slice(x);
            &padded
        }
    };
    let mut v = [S::splat(0.0); C];
    for c in 0..C {
        v[c] = S::load_halves(&whole[c]);
    }
    v
}
