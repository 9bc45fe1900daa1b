//! Element by element, in f32.

use crate::rank::Step;
use crate::rows::Rows;
use crate::simd::{Kernel, LANES, Simd, exp};

/// `silu(a) * b`.
pub(crate) fn swiglu(step: &Step<'_>, a: Rows<'_>, b: Rows<'_>, out: &mut [f32]) {
    step.team.fill(out, a.width, |i, out| step.isa.run(SwiGlu { a: a.row(i), b: b.row(i), out }));
}

/// `silu(a) * b` of equally long runs.
#[derive(Debug)]
pub(crate) struct SwiGlu<'a> {
    pub(crate) a: &'a [f32],
    pub(crate) b: &'a [f32],
    pub(crate) out: &'a mut [f32],
}

impl Kernel for SwiGlu<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        for ((out, a), b) in self.out.chunks_mut(LANES).zip(self.a.chunks(LANES)).zip(self.b.chunks(LANES)) {
            let (mut x, mut y) = ([0.0; LANES], [0.0; LANES]);
            x[..a.len()].copy_from_slice(a);
            y[..b.len()].copy_from_slice(b);
            S::store(silu_times::<S>(S::load(&x), S::load(&y)), &mut x);
            out.copy_from_slice(&x[..out.len()]);
        }
    }
}

#[inline(always)]
pub(super) fn silu_times<S: Simd>(a: S::F, b: S::F) -> S::F {
    let below = S::add(S::splat(1.0), exp::<S>(S::sub(S::splat(0.0), a)));
    S::mul(S::div(a, below), b)
}
