//! Where the stream comes from: rows of the vocabulary, or hidden rows that came with the step.

use super::pointwise::copy;
use crate::lower::{Lower, is_plain};
use crate::program::Slot;

pub(crate) fn embed(l: &mut Lower<'_>) {
    let w = &l.local().weights[0];
    let width = w.cols.len();
    let unit = l.unit("embed").quant(w.quant).int("ROW_BYTES", w.bytes_a_row()).int("WIDTH", width);
    let unit = unit.int("ROWS", w.rows.len()).int("FIRST", w.rows.start);
    let threads = if is_plain(w.quant) { width } else { width / 32 };
    l.along(unit, threads, 128, vec![Slot::Step, l.weight(0), l.output(0)]);
}

pub(crate) fn hidden(l: &mut Lower<'_>) {
    copy(l, Slot::Hidden);
}
