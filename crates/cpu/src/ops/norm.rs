//! Norms, in f64, rounded once.

use crate::dot::dot;
use crate::rank::Step;
use crate::rows::Rows;

/// `x / sqrt(mean(x^2) + eps) * w` of each run of `width`.
pub(crate) fn rms(step: &Step<'_>, x: Rows<'_>, width: usize, eps: f32, w: &[f32], out: &mut [f32]) {
    let x = x.all();
    step.team.fill(out, width, |i, out| {
        let x = &x[i * width..][..width];
        let root = (dot(x, x) / width as f64 + f64::from(eps)).sqrt();
        for ((out, x), w) in out.iter_mut().zip(x).zip(w) {
            *out = (f64::from(*x) / root * f64::from(*w)) as f32;
        }
    });
}

/// `(x - mean) / sqrt(var + eps) * w + b` of each row, with the population's variance.
pub(crate) fn layer(step: &Step<'_>, x: Rows<'_>, eps: f32, w: &[f32], b: &[f32], out: &mut [f32]) {
    step.team.fill(out, x.width, |i, out| {
        let x = x.row(i);
        let mean = x.iter().map(|v| f64::from(*v)).sum::<f64>() / x.len() as f64;
        let var = x.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / x.len() as f64;
        let root = (var + f64::from(eps)).sqrt();
        for (i, out) in out.iter_mut().enumerate() {
            *out = ((f64::from(x[i]) - mean) / root * f64::from(w[i]) + f64::from(b[i])) as f32;
        }
    });
}
