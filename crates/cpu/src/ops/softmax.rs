//! The heart of every attention: softmax over scores, then the weighted sum of values, in the order given.

use crate::dot::add_scaled;
use crate::scratch::doubles;

/// `out = sum_t softmax(score)(t) value(t)` over t = 0..count, in f64, rounded once.
pub(crate) fn attend<'a>(
    count: usize,
    score: impl Fn(usize) -> f64,
    value: impl Fn(usize) -> &'a [f32],
    out: &mut [f32],
) {
    doubles(count + out.len(), |memory| {
        let (weights, sum) = memory.split_at_mut(count);
        weights.iter_mut().enumerate().for_each(|(t, w)| *w = score(t));
        let most = weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        weights.iter_mut().for_each(|w| *w = (*w - most).exp());
        let all: f64 = weights.iter().sum();
        sum.fill(0.0);
        weights.iter().enumerate().for_each(|(t, w)| add_scaled(sum, w / all, value(t)));
        out.iter_mut().zip(sum).for_each(|(o, s)| *o = *s as f32);
    });
}
