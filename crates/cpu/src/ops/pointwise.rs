//! Element by element.

use crate::rank::Step;
use crate::rows::Rows;

/// `silu(a) * b`.
pub(crate) fn swiglu(step: &Step<'_>, a: Rows<'_>, b: Rows<'_>, out: &mut [f32]) {
    step.team.fill(out, a.width, |i, out| {
        for ((out, a), b) in out.iter_mut().zip(a.row(i)).zip(b.row(i)) {
            let a = f64::from(*a);
            *out = (a / (1.0 + (-a).exp()) * f64::from(*b)) as f32;
        }
    });
}

/// `a + b`.
pub(crate) fn add(a: Rows<'_>, b: Rows<'_>, out: &mut [f32]) {
    for ((out, a), b) in out.iter_mut().zip(a.all()).zip(b.all()) {
        *out = a + b;
    }
}
