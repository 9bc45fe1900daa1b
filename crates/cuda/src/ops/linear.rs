//! Matrices: projections, one small matrix a head, and the logits.

use shardwright_model::exec::CANDIDATES;
use shardwright_model::plan::LocalWeight;

use crate::found::Found;
use crate::lower::Lower;
use crate::program::{Axis, Scratch, Slot};

/// Logits that a block looks through.
const CHUNK: usize = 4096;

pub(crate) fn linear(l: &mut Lower<'_>, biased: &[bool]) {
    for (j, own) in biased.iter().enumerate() {
        // biases follow the matrices
        let before = biased[..j].iter().filter(|b| **b).count();
        let bias = if *own { l.weight(biased.len() + before) } else { Slot::None };
        let (from, to) = (l.input(0), l.output(j));
        let matrix = Matrix { weight: &l.local().weights[j], slot: l.weight(j), bias, answer: false };
        product(l, &matrix, from, to, true);
    }
}

pub(crate) fn per_head(l: &mut Lower<'_>, transposed: bool) {
    let w = &l.local().weights[0];
    if transposed {
        let unit = l.unit("transposed").quant(w.quant).int("ROW_BYTES", w.bytes_a_row());
        let unit = unit.int("HEADS", w.copies.len()).int("COLS", w.rows.len()).int("OUTS", w.cols.len());
        let grid = [Axis::Blocks(w.copies.len() as u32), Axis::Blocks(1), Axis::Rows(1)];
        return l.call(unit, grid, 256, vec![Slot::Step, l.weight(0), l.input(0), l.output(0)]);
    }
    let (from, to) = (l.input(0), l.output(0));
    let matrix = Matrix { weight: w, slot: l.weight(0), bias: Slot::None, answer: false };
    product(l, &matrix, from, to, true);
}

pub(crate) fn logits(l: &mut Lower<'_>) {
    let (from, to) = (l.input(0), l.output(0));
    let matrix = Matrix { weight: &l.local().weights[0], slot: l.weight(0), bias: Slot::None, answer: true };
    product(l, &matrix, from, to.clone(), true);
    best(l, to);
}

/// The best candidates of the logits that were just made.
fn best(l: &mut Lower<'_>, logits: Slot) {
    let (rows, vocab) = (l.rows(), &l.local().weights[0].rows);
    let chunks = vocab.len().div_ceil(CHUNK);
    let list = l.program.scratch(Scratch::Candidates, rows * chunks * size_of::<Found>());
    let unit = |last: u8| {
        let unit = l.unit("answer").int("VOCAB", vocab.len()).int("FIRST", vocab.start).int("CHUNK", CHUNK);
        unit.int("CANDIDATES", CANDIDATES).int("LAST", last)
    };
    let (first, last) = (unit(0), unit(1));
    let found = l.program.scratch(Scratch::Found(l.rank), rows * size_of::<Found>());
    let grid = |blocks| [Axis::Blocks(blocks as u32), Axis::Blocks(1), Axis::Rows(1)];
    l.call(first, grid(chunks), 256, vec![Slot::Step, logits, list.clone()]);
    l.call(last, grid(chunks.min(1)), 256, vec![Slot::Step, list, found]);
}

/// A stack of matrices, one a head.
pub(crate) struct Matrix<'a> {
    pub(crate) weight: &'a LocalWeight,
    pub(crate) slot: Slot,
    pub(crate) bias: Slot,
    /// Only for the rows that want an answer?
    pub(crate) answer: bool,
}

/// `to` = the stack times `from`, whose activations may be rounded.
pub(crate) fn product(l: &mut Lower<'_>, m: &Matrix<'_>, from: Slot, to: Slot, may_round: bool) {
    let w = m.weight;
    let (heads, n, tile) = (w.copies.len(), w.rows.len(), l.choices.tile);
    if heads * n == 0 {
        return;
    }
    let fast = may_round && l.rounds(w);
    let [x, scales] = l.activations(from, heads * w.cols.len(), fast);
    let unit = l.matrix("linear", w, fast).int("OUTS", n).int("HEADS", heads).int("TILE", tile);
    let unit = unit.int("BIAS", u8::from(m.bias != Slot::None)).int("ANSWER", u8::from(m.answer));
    let grid = [Axis::Blocks(n.div_ceil(8) as u32), Axis::Rows(tile), Axis::Blocks(heads as u32)];
    l.call(unit, grid, 256, vec![Slot::Step, m.slot.clone(), x, scales, m.bias.clone(), to]);
}
