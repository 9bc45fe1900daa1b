//! Choosing scales: the search that the encoders share.
//!
//! Errors are weighted by `rms + |x|` of their group: a large weight moves an output more than a small one.

/// Whole steps between the ends of a candidate list.
const CANDIDATES: i32 = 9;

/// Rounding to whole steps. The step is kept as a factor: dividing each number would take four times as long.
#[derive(Clone, Copy)]
pub(super) struct Rounder {
    per_step: f32,
    low: f32,
    high: f32,
}

impl Rounder {
    /// Rounds to whole steps from `low` to `high`, a range that holds 0; a step of 0 makes everything 0.
    pub(super) fn new(step: f32, low: f32, high: f32) -> Rounder {
        let per_step = 1.0 / step;
        Rounder { per_step: if per_step.is_finite() { per_step } else { 0.0 }, low, high }
    }

    /// The number of steps nearest to `x`.
    pub(super) fn round(self, x: f32) -> f32 {
        // Adding 1.5 * 2^23 leaves no bits for a fraction: rounds to nearest, without a call for each number.
        const ROUND: f32 = 12_582_912.0;
        (x * self.per_step).max(self.low).min(self.high) + ROUND - ROUND
    }
}

/// `K` sums over a group, with the weight of each element; in lanes, so that they need not wait for each other.
fn sums<const K: usize, const N: usize>(
    x: &[f32; N],
    w: &[f32; N],
    term: impl Fn(f32, f32) -> [f32; K],
) -> [f32; K] {
    const LANES: usize = 8;
    let mut lanes = [[0f32; LANES]; K];
    let (x, w) = (x.as_chunks::<LANES>(), w.as_chunks::<LANES>());
    debug_assert!(x.1.is_empty(), "groups are multiples of the lanes");
    for (x, w) in x.0.iter().zip(w.0) {
        for l in 0..LANES {
            let term = term(x[l], w[l]);
            (0..K).for_each(|k| lanes[k][l] += term[k]);
        }
    }
    lanes.map(|lanes| lanes.iter().sum())
}

/// How much the error of each element of a group counts.
fn weights<const N: usize>(x: &[f32; N]) -> [f32; N] {
    let [squares] = sums(x, x, |x, _| [x * x]);
    let rms = (squares / N as f32).sqrt();
    x.map(|x| rms + x.abs())
}

/// The step `d`, of either sign, for which `d * q` with `q` from `low` (negative) to `high` comes nearest to `x`.
pub(super) fn step<const N: usize>(x: &[f32; N], low: f32, high: f32) -> f32 {
    let largest = x.iter().fold(0f32, |a, &b| if b.abs() > a.abs() { b } else { a });
    if largest == 0.0 {
        return 0.0;
    }
    let w = weights(x);
    let (mut best, mut best_gain) = (largest / low, 0.0);
    for i in -CANDIDATES..=CANDIDATES {
        // The largest value falls near the far end of the range, which has one number more.
        let start = largest / (low + 0.1 * i as f32);
        let steps = Rounder::new(start, low, high);
        let [xq, qq] = sums(x, &w, |x, w| {
            let q = steps.round(x);
            [w * x * q, w * q * q]
        });
        // With these q the best step is xq / qq, and it takes xq^2 / qq off the error of the step 0.
        if qq > 0.0 && xq * xq / qq > best_gain {
            (best, best_gain) = (xq / qq, xq * xq / qq);
        }
    }
    best
}

/// The step `d >= 0` and minimum `m` for which `d * q + m` with `q` from 0 to `high` comes nearest to `x`.
/// `m` is at most `highest_minimum`.
pub(super) fn step_and_minimum<const N: usize>(x: &[f32; N], high: f32, highest_minimum: f32) -> (f32, f32) {
    let lowest = x.iter().copied().fold(highest_minimum, f32::min);
    let range = x.iter().copied().fold(lowest, f32::max) - lowest;
    if range == 0.0 {
        return (0.0, lowest);
    }
    let w = weights(x);
    let mut best = (range / high, lowest);
    let mut best_error = affine_error(x, &w, high, best);
    for i in -CANDIDATES..=CANDIDATES {
        let start = range / (high + 0.1 * i as f32);
        let fit = refit(x, &w, high, (start, lowest), highest_minimum);
        let error = affine_error(x, &w, high, fit);
        if error < best_error {
            (best, best_error) = (fit, error);
        }
    }
    best
}

/// Weighted squared error of `d * q + m` with the best `q`.
fn affine_error<const N: usize>(x: &[f32; N], w: &[f32; N], high: f32, (d, m): (f32, f32)) -> f32 {
    let steps = Rounder::new(d, 0.0, high);
    let [error] = sums(x, w, |x, w| {
        let miss = d * steps.round(x - m) + m - x;
        [w * miss * miss]
    });
    error
}

/// The best `d` and `m` for the `q` that a first pair leads to: weighted least squares.
fn refit<const N: usize>(
    x: &[f32; N],
    w: &[f32; N],
    high: f32,
    (d, m): (f32, f32),
    highest_minimum: f32,
) -> (f32, f32) {
    let steps = Rounder::new(d, 0.0, high);
    let [sw, sq, sqq, sx, sxq] = sums(x, w, |x, w| {
        let q = steps.round(x - m);
        [w, w * q, w * q * q, w * x, w * x * q]
    });
    let det = sw * sqq - sq * sq;
    let (fit_d, fit_m) = ((sw * sxq - sq * sx) / det, (sqq * sx - sq * sxq) / det);
    if det > 0.0 && fit_d > 0.0 && fit_m <= highest_minimum {
        return (fit_d, fit_m);
    }
    // The minimum is at its limit: only the step is free.
    let fit_d = (sxq - highest_minimum * sq) / sqq;
    if sqq > 0.0 && fit_d > 0.0 && fit_d.is_finite() { (fit_d, highest_minimum) } else { (d, m) }
}

/// Among the whole numbers around `start` the one with the least weighted error of `number * unit * q`.
pub(super) fn scale_near<const N: usize>(
    x: &[f32; N],
    unit: f32,
    start: i32,
    scales: (i32, i32),
    (low, high): (f32, f32),
) -> i32 {
    let w = weights(x);
    let error = |scale: i32| -> f32 {
        let d = unit * scale as f32;
        let steps = Rounder::new(d, low, high);
        let [error] = sums(x, &w, |x, w| {
            let miss = d * steps.round(x) - x;
            [w * miss * miss]
        });
        error
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
    high: f32,
) -> (i32, i32) {
    let w = weights(x);
    let near = |n: i32| (n - 1).max(0)..=(n + 1).min(most);
    let error = |(s, m): (i32, i32)| affine_error(x, &w, high, (d * s as f32, -dmin * m as f32));
    near(start.0)
        .flat_map(|s| near(start.1).map(move |m| (s, m)))
        .map(|pair| (pair, error(pair)))
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .expect("the start is within the range")
        .0
}
