//! Matrices: projections, one small matrix a head, and the logits.

use crate::product::{Buffers, Stack, product};
use crate::rank::Step;
use crate::rows::Rows;
use crate::scratch::sized;
use crate::weights::Stored;

/// Output j of several matrices over one value.
pub(crate) fn linear(
    step: &Step<'_>,
    biased: &[bool],
    j: usize,
    w: &[Stored],
    x: Rows<'_>,
    out: &mut [f32],
    buffers: &mut Buffers,
) {
    let before = biased[..j].iter().filter(|b| **b).count();
    let bias = biased[j].then(|| w[biased.len() + before].vector.as_slice());
    product(step, &Stack::plain(&w[j]), x, bias, out, buffers);
}

/// Head h of the output is `W_h x_h`.
pub(crate) fn per_head(
    step: &Step<'_>,
    transposed: bool,
    w: &Stored,
    x: Rows<'_>,
    out: &mut [f32],
    buffers: &mut Buffers,
) {
    let stack = Stack { weight: w, copies: 0..w.copies(), transposed };
    product(step, &stack, x, None, out, buffers);
}

/// The rank's slice of the logits of the rows that want them.
pub(crate) fn logits(
    step: &Step<'_>,
    w: &Stored,
    x: Rows<'_>,
    out: &mut [f32],
    gathered: &mut Vec<f32>,
    buffers: &mut Buffers,
) {
    let wanted = sized(gathered, step.wanted.len() * x.width);
    for (row, i) in wanted.chunks_exact_mut(x.width).zip(step.wanted) {
        row.copy_from_slice(x.row(*i));
    }
    let x = Rows::new(wanted, x.width, step.wanted.len());
    product(step, &Stack::plain(w), x, None, out, buffers);
}
