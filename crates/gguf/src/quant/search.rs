//! Choosing scales: the search that the encoders share.
//!
//! Errors are weighted by `rms + |x|` of their group: a large weight moves an output more than a small one.

/// Whole steps between the ends of a candidate list.
const CANDIDATES: i32 = 9;

/// How much the error of each element of a group counts.
fn weights<const N: usize>(x: &[f32; N]) -> [f32; N] {
    let rms = (x.iter().map(|x| x * x).sum::<f32>() / N as f32).sqrt();
    x.map(|x| rms + x.abs())
}

/// `x / step` as a whole number within the range; a step of 0 gives the number nearest to 0.
pub(super) fn quantize(x: f32, step: f32, low: i32, high: i32) -> i32 {
    if step == 0.0 { 0.clamp(low, high) } else { ((x / step).round() as i32).clamp(low, high) }
}

/// The step `d`, of either sign, for which `d * q` with `q` from `low` (negative) to `high` comes nearest to `x`.
pub(super) fn step<const N: usize>(x: &[f32; N], low: i32, high: i32) -> f32 {
    let largest = x.iter().fold(0f32, |a, &b| if b.abs() > a.abs() { b } else { a });
    if largest == 0.0 {
        return 0.0;
    }
    let w = weights(x);
    let (mut best, mut best_gain) = (largest / low as f32, 0.0);
    for i in -CANDIDATES..=CANDIDATES {
        // The largest value falls near the far end of the range, which has one number more.
        let start = largest / (low as f32 + 0.1 * i as f32);
        let (mut xq, mut qq) = (0.0, 0.0);
        for (&x, &w) in x.iter().zip(&w) {
            let q = quantize(x, start, low, high) as f32;
            xq += w * x * q;
            qq += w * q * q;
        }
        // With these q the best step is xq / qq, and it takes xq^2 / qq off the error of the step 0.
        if qq > 0.0 && xq * xq / qq > best_gain {
            (best, best_gain) = (xq / qq, xq * xq / qq);
        }
    }
    best
}

/// The step `d >= 0` and minimum `m` for which `d * q + m` with `q` from 0 to `high` comes nearest to `x`.
/// `m` is at most `highest_minimum`.
pub(super) fn step_and_minimum<const N: usize>(x: &[f32; N], high: i32, highest_minimum: f32) -> (f32, f32) {
    let lowest = x.iter().copied().fold(highest_minimum, f32::min);
    let range = x.iter().copied().fold(lowest, f32::max) - lowest;
    if range == 0.0 {
        return (0.0, lowest);
    }
    let w = weights(x);
    let mut best = (range / high as f32, lowest);
    let mut best_error = affine_error(x, &w, high, best);
    for i in -CANDIDATES..=CANDIDATES {
        let start = range / (high as f32 + 0.1 * i as f32);
        let fit = refit(x, &w, high, (start, lowest), highest_minimum);
        let error = affine_error(x, &w, high, fit);
        if error < best_error {
            (best, best_error) = (fit, error);
        }
    }
    best
}

/// Weighted squared error of `d * q + m` with the best `q`.
pub(super) fn affine_error(x: &[f32], w: &[f32], high: i32, (d, m): (f32, f32)) -> f32 {
    let term = |(&x, &w): (&f32, &f32)| {
        let miss = d * quantize(x - m, d, 0, high) as f32 + m - x;
        w * miss * miss
    };
    x.iter().zip(w).map(term).sum()
}

/// The best `d` and `m` for the `q` that a first pair leads to: weighted least squares.
fn refit(x: &[f32], w: &[f32], high: i32, (d, m): (f32, f32), highest_minimum: f32) -> (f32, f32) {
    let (mut sw, mut sq, mut sqq, mut sx, mut sxq) = (0f64, 0f64, 0f64, 0f64, 0f64);
    for (&x, &w) in x.iter().zip(w) {
        let q = f64::from(quantize(x - m, d, 0, high));
        let (x, w) = (f64::from(x), f64::from(w));
        sw += w;
        sq += w * q;
        sqq += w * q * q;
        sx += w * x;
        sxq += w * x * q;
    }
    let det = sw * sqq - sq * sq;
    let (fit_d, fit_m) = ((sw * sxq - sq * sx) / det, (sqq * sx - sq * sxq) / det);
    let limit = f64::from(highest_minimum);
    if det > 0.0 && fit_d > 0.0 && fit_m <= limit {
        return (fit_d as f32, fit_m as f32);
    }
    // The minimum is at its limit: only the step is free.
    let fit_d = (sxq - limit * sq) / sqq;
    if sqq > 0.0 && fit_d > 0.0 && limit.is_finite() { (fit_d as f32, highest_minimum) } else { (d, m) }
}

/// Among the whole numbers around `start` the one with the least weighted error of `number * unit * q`.
pub(super) fn scale_near<const N: usize>(
    x: &[f32; N],
    unit: f32,
    start: i32,
    scales: (i32, i32),
    (low, high): (i32, i32),
) -> i32 {
    let w = weights(x);
    let error = |scale: i32| -> f32 {
        let d = unit * scale as f32;
        let miss = |x: f32| d * quantize(x, d, low, high) as f32 - x;
        x.iter().zip(&w).map(|(&x, &w)| w * miss(x) * miss(x)).sum()
    };
    let near = (start - 1).max(scales.0)..=(start + 1).min(scales.1);
    near.min_by(|&a, &b| error(a).total_cmp(&error(b))).expect("the start is within the range")
}

/// Among the pairs of whole numbers around `start` the one with the least weighted error of
/// `scale * d * q - minimum * dmin`.
pub(super) fn scale_and_minimum_near<const N: usize>(
    x: &[f32; N],
    (d, dmin): (f32, f32),
    start: (i32, i32),
    most: i32,
    high: i32,
) -> (i32, i32) {
    let w = weights(x);
    let near = |n: i32| (n - 1).max(0)..=(n + 1).min(most);
    let error = |&(s, m): &(i32, i32)| affine_error(x, &w, high, (d * s as f32, -dmin * m as f32));
    near(start.0)
        .flat_map(|s| near(start.1).map(move |m| (s, m)))
        .min_by(|a, b| error(a).total_cmp(&error(b)))
        .expect("the start is within the range")
}
