//! The lightning indexer of sparse attention: which positions a row attends to.

use crate::cache::{Cache, place};
use crate::dot::dot;
use crate::rank::Step;
use crate::rows::Rows;
use std::cmp::Ordering;

/// Writes the step's index keys, then chooses the `keep` best positions up to each row's own: ascending, padded
/// with -1.
pub(crate) fn index(
    step: &Step<'_>,
    heads: usize,
    keep: usize,
    [q, k, gate]: [Rows<'_>; 3],
    cache: &mut Cache,
    out: &mut [f32],
) {
    cache.write(step.batch, k, 0);
    let cache = &*cache;
    let factor = 1.0 / ((heads * k.width) as f64).sqrt();
    step.team.runs(out, keep, |i, out| {
        let (table, position) = place(step.batch, i);
        out.fill(-1.0);
        if position < keep {
            return out.iter_mut().take(position + 1).enumerate().for_each(|(t, o)| *o = t as f32);
        }
        let score = |t: usize| {
            let key = cache.row(table, t);
            let heads = q.row(i).chunks_exact(k.width).zip(gate.row(i));
            let sum: f64 = heads.map(|(q, g)| f64::from(*g) * dot(q, key).max(0.0)).sum();
            sum * factor
        };
        best((0..=position).map(|t| (t, score(t))).collect(), out);
    });
}

/// A score of either precision.
pub(crate) trait Score: Copy {
    fn order(&self, other: &Self) -> Ordering;
}

impl Score for f64 {
    fn order(&self, other: &f64) -> Ordering {
        self.total_cmp(other)
    }
}

impl Score for f32 {
    fn order(&self, other: &f32) -> Ordering {
        self.total_cmp(other)
    }
}

/// The places of the best scores, as many as `out` holds: larger first, then lower place.
pub(crate) fn best<T: Score>(mut scored: Vec<(usize, T)>, out: &mut [f32]) {
    let order = |a: &(usize, T), b: &(usize, T)| -> Ordering { b.1.order(&a.1).then(a.0.cmp(&b.0)) };
    scored.select_nth_unstable_by(out.len() - 1, order);
    scored.truncate(out.len());
    scored.sort_unstable_by_key(|s| s.0);
    out.iter_mut().zip(scored).for_each(|(o, (t, _))| *o = t as f32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_scores_first_then_lower_positions() {
        let mut out = [0.0; 3];
        best([0.5, 0.0, 2.0, 0.0, 0.0].into_iter().enumerate().collect(), &mut out);
        assert_eq!(out, [0.0, 1.0, 2.0]);
        best([0.0, -1.0, 0.0, 0.0, 3.0].into_iter().enumerate().collect(), &mut out);
        assert_eq!(out, [0.0, 2.0, 4.0]);
    }
}
