//! Matrices: projections, one small matrix a head, and the logits.

use shardwright_model::exec::CANDIDATES;
use shardwright_model::op::Kind;

use super::sum;
use crate::found::Found;
use crate::lower::Lower;
use crate::product::{Form, Input, PARTS, Part, Product};
use crate::program::{Axis, Scratch, Slot};

/// Logits that a block looks through.
const CHUNK: usize = 4096;

pub(crate) fn linear(l: &mut Lower<'_>, biased: &[bool]) {
    let input = l.local().inputs[0];
    if l.fused.gated.contains(&l.at) {
        let part = gated(l, l.at);
        return Product::new(vec![part], Input::Value(input)).launch(l);
    }
    let together = if l.choices.fuse { PARTS } else { 1 };
    let outputs: Vec<usize> = (0..biased.len()).collect();
    for some in outputs.chunks(together) {
        let parts = some.iter().map(|j| part(l, l.at, *j, l.output(*j))).collect();
        let mut product = Product::new(parts, Input::Value(input));
        product.pushes = sum::pushes(l, l.at);
        product.launch(l);
    }
}

/// Output `j` of the projections at `op`.
pub(crate) fn part<'a>(l: &Lower<'a>, op: usize, j: usize, to: Slot) -> Part<'a> {
    let local = l.op_at(op);
    let plain = Part::plain(&local.weights[j], l.weight_of(op, j), to);
    let Kind::Linear { biased } = &local.kind else { return plain };
    if !biased[j] {
        return plain;
    }
    // biases follow the matrices
    let before = biased[..j].iter().filter(|b| **b).count();
    Part { form: Form::Biased(l.weight_of(op, biased.len() + before)), ..plain }
}

/// Gate and up at `op`, with what the next op makes of them.
pub(crate) fn gated<'a>(l: &mut Lower<'a>, op: usize) -> Part<'a> {
    let (weights, place) = (&l.op_at(op).weights, l.op_at(op + 1).outputs[0]);
    let (to, rounded) = l.handed("hidden", &place, place.width);
    let form = Form::Gated(&weights[1], l.weight_of(op, 1));
    Part { form, rounded, ..Part::plain(&weights[0], l.weight_of(op, 0), to) }
}

pub(crate) fn per_head(l: &mut Lower<'_>, transposed: bool) {
    let w = &l.local().weights[0];
    if transposed {
        let unit = l.unit("transposed").quant(w.quant).int("ROW_BYTES", w.bytes_a_row());
        let unit = unit.int("HEADS", w.copies.len()).int("COLS", w.rows.len()).int("OUTS", w.cols.len());
        let grid = [Axis::Blocks(w.copies.len() as u32), Axis::Blocks(1), Axis::Rows(1)];
        return l.call(unit, grid, 256, vec![Slot::Step, l.weight(0), l.input(0), l.output(0)]);
    }
    let part = part(l, l.at, 0, l.output(0));
    Product::new(vec![part], Input::Value(l.local().inputs[0])).launch(l);
}

pub(crate) fn logits(l: &mut Lower<'_>) {
    let logits = l.output(0);
    let mut product = Product::new(vec![part(l, l.at, 0, logits.clone())], Input::Value(l.local().inputs[0]));
    product.answer = true;
    product.launch(l);
    best(l, logits);
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
    l.call(first, grid(chunks), 512, vec![Slot::Step, logits, list.clone()]);
    l.call(last, grid(chunks.min(1)), 512, vec![Slot::Step, list, found]);
}
