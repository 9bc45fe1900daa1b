//! Element by element.

use crate::rows::{Rows, fill};

/// `silu(a) * b`.
pub(crate) fn swiglu(a: Rows<'_>, b: Rows<'_>, out: &mut [f32]) {
    fill(out, a.width, |i, out| {
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
