//! Elements moved, none computed.

use crate::rank::Step;
use crate::rows::Rows;
use std::ops::Range;

/// `[a ; b]`.
pub(crate) fn concat(step: &Step<'_>, a: Rows<'_>, b: Rows<'_>, out: &mut [f32]) {
    step.team.fill(out, a.width + b.width, |i, out| {
        out[..a.width].copy_from_slice(a.row(i));
        out[a.width..].copy_from_slice(b.row(i));
    });
}

/// The elements `part` of each run of `unit`.
pub(crate) fn part(x: Rows<'_>, unit: usize, part: Range<usize>, out: &mut [f32]) {
    let runs = x.all().chunks_exact(unit);
    for (out, run) in out.chunks_exact_mut(part.len()).zip(runs) {
        out.copy_from_slice(&run[part.clone()]);
    }
}
