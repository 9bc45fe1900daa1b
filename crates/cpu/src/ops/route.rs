//! The router: which experts a row uses, and with what weights.

use crate::product::{Buffers, Stack, product};
use crate::rank::Step;
use crate::rows::{Rows, fill};
use crate::scratch::{doubles, sized};
use crate::weights::Stored;
use shardwright_model::op::{Gating, GroupScore, Routing};

/// Chosen expert ids, ascending, then their weights. The router's inputs are never rounded to 8 bits.
pub(crate) fn route(
    step: &Step<'_>,
    routing: &Routing,
    w: &[Stored],
    x: Rows<'_>,
    out: &mut [f32],
    logits: &mut Vec<f32>,
    buffers: &mut Buffers,
) {
    let n = routing.experts;
    let logits = sized(logits, n * x.count);
    product(&Step { q8: false, ..*step }, &Stack::plain(&w[0]), x, None, logits, buffers);
    let bias = w.get(1).map(|b| b.vector.as_slice());
    fill(out, 2 * routing.used, |i, out| choose(routing, &logits[i * n..][..n], bias, out));
}

/// Smallest sum that weights are divided by (2^-14).
const LEAST_SUM: f32 = 6.103_515_6e-5;

fn choose(routing: &Routing, logits: &[f32], bias: Option<&[f32]>, out: &mut [f32]) {
    let mut p = logits.to_vec();
    match routing.gating {
        Gating::Sigmoid => p.iter_mut().for_each(|v| *v = (1.0 / (1.0 + (-f64::from(*v)).exp())) as f32),
        Gating::Softmax => softmax(&mut p),
    }
    let mut score = p.clone();
    bias.into_iter().for_each(|b| score.iter_mut().zip(b).for_each(|(s, b)| *s += b));
    if let Some((groups, kept, rule)) = routing.groups {
        exclude(&mut score, groups, kept, rule);
    }
    let mut chosen = largest(&score, routing.used);
    chosen.sort_unstable();
    let (ids, weights) = out.split_at_mut(routing.used);
    ids.iter_mut().zip(&chosen).for_each(|(o, e)| *o = *e as f32);
    weights.iter_mut().zip(&chosen).for_each(|(o, e)| *o = p[*e]);
    let sum: f32 = weights.iter().sum();
    let divisor = if routing.normalize { sum.max(LEAST_SUM) } else { 1.0 };
    weights.iter_mut().for_each(|w| *w = *w / divisor * routing.scale);
}

fn softmax(p: &mut [f32]) {
    doubles(p.len(), |exp| {
        let most = p.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        exp.iter_mut().zip(&*p).for_each(|(e, v)| *e = (f64::from(*v) - f64::from(most)).exp());
        let sum: f64 = exp.iter().sum();
        p.iter_mut().zip(exp).for_each(|(p, e)| *p = (*e / sum) as f32);
    });
}

/// Only the best `kept` groups stay in the race.
fn exclude(score: &mut [f32], groups: usize, kept: usize, rule: GroupScore) {
    let size = score.len() / groups;
    let of = |group: &[f32]| match rule {
        GroupScore::Max => group.iter().copied().fold(f32::NEG_INFINITY, f32::max),
        GroupScore::BestTwo => largest(group, 2).into_iter().map(|i| group[i]).sum(),
    };
    let scores: Vec<f32> = score.chunks_exact(size).map(of).collect();
    let stay = largest(&scores, kept);
    for (_, group) in score.chunks_exact_mut(size).enumerate().filter(|(g, _)| !stay.contains(g)) {
        group.fill(f32::NEG_INFINITY);
    }
}

/// The places of the `n` largest, largest first, ties by lower place.
fn largest(v: &[f32], n: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..v.len()).collect();
    all.sort_by(|a, b| v[*b].total_cmp(&v[*a]));
    all.truncate(n);
    all
}
