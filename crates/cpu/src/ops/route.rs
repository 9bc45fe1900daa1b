//! The router: which experts a row uses, and with what weights.

use crate::product::{Buffers, Stack, product};
use crate::rank::Step;
use crate::rows::Rows;
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
    product(&Step { round_all: false, ..*step }, &Stack::plain(&w[0]), x, None, logits, buffers);
    let bias = w.get(1).map(|b| b.vector.as_slice());
    step.team.fill(out, 2 * routing.used, |i, out| choose(routing, &logits[i * n..][..n], bias, out));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(routing: &Routing, logits: &[f32], bias: &[f32], want: &[(usize, f32)]) {
        let mut out = vec![0.0; 2 * routing.used];
        choose(routing, logits, Some(bias), &mut out);
        for (i, (expert, weight)) in want.iter().enumerate() {
            assert_eq!(out[i], *expert as f32, "{out:?}");
            assert!((out[routing.used + i] - weight).abs() < 5e-5, "{out:?}");
        }
    }

    const LOGITS: [f32; 12] = [2.0, -3.0, -3.0, 0.5, 0.4, -2.0, 0.3, 0.35, 0.1, -1.0, -1.2, -0.8];

    fn sigmoid(used: usize, groups: (usize, usize, GroupScore)) -> Routing {
        let gating = Gating::Sigmoid;
        Routing { experts: 12, used, gating, normalize: true, scale: 2.5, groups: Some(groups) }
    }

    #[test]
    fn m2_groups_by_their_best_two() {
        let want = [(3, 0.6532), (4, 0.6283), (6, 0.6028), (7, 0.6156)];
        check(&sigmoid(4, (4, 2, GroupScore::BestTwo)), &LOGITS, &[0.0; 12], &want);
        let by_best = sigmoid(4, (4, 2, GroupScore::Max));
        let mut out = [0.0; 8];
        choose(&by_best, &LOGITS, None, &mut out);
        assert_eq!(out[..4], [0.0, 3.0, 4.0, 5.0], "groups 0 and 1, by their single best");
    }

    #[test]
    fn m2_excluded_groups_are_out_even_where_all_scores_are_negative() {
        let mut bias = [-1.5; 12];
        bias[3..6].fill(-1.45);
        check(&sigmoid(2, (4, 1, GroupScore::BestTwo)), &LOGITS, &bias, &[(3, 1.2743), (4, 1.2257)]);
    }

    #[test]
    fn ties_go_to_the_lower_expert_and_softmax_is_over_all() {
        let routing = Routing {
            experts: 4,
            used: 2,
            gating: Gating::Softmax,
            normalize: false,
            scale: 1.0,
            groups: None,
        };
        check(&routing, &[1.0, 1.0, 1.0, 1.0], &[0.0; 4], &[(0, 0.25), (1, 0.25)]);
        check(&routing, &[0.0, 3f32.ln(), 0.0, 0.0], &[0.0, 0.0, 0.0, 1.0], &[(1, 0.5), (3, 1.0 / 6.0)]);
    }

    #[test]
    fn a_row_without_a_number_does_no_harm() {
        let mut out = [0.0; 4];
        choose(&sigmoid(2, (4, 2, GroupScore::BestTwo)), &[f32::NAN; 12], None, &mut out);
        assert!(out[..2].iter().all(|e| (0.0..12.0).contains(e)), "{out:?}");
    }
}
