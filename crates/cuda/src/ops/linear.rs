//! Matrices: projections, one small matrix a head, and the logits.

use shardwright_model::exec::CANDIDATES;
use shardwright_model::plan::LocalWeight;

use crate::found::Found;
use crate::lower::Lower;
use crate::program::{Axis, Scratch, Slot};

/// Logits that a block looks through.
const CHUNK: usize = 4096;

/// Matrices that one call takes.
const PARTS: usize = 4;

pub(crate) fn linear(l: &mut Lower<'_>, biased: &[bool]) {
    let weights = &l.local().weights[..biased.len()];
    if let Some(to) = l.gated() {
        let part = |j: usize| Part {
            slot: l.weight(j),
            bias: Slot::None,
            outs: weights[j].rows.len(),
            to: l.value(&to),
        };
        return product(l, &weights[0], &[part(0), part(1)], Form::Gated);
    }
    let mut done = vec![false; biased.len()];
    for j in 0..biased.len() {
        if done[j] {
            continue;
        }
        let same = |i: usize| {
            weights[i].quant == weights[j].quant && biased[i] == biased[j] && (l.choices.fuse || i == j)
        };
        let group: Vec<usize> = (j..biased.len()).filter(|i| !done[*i] && same(*i)).take(PARTS).collect();
        group.iter().for_each(|i| done[*i] = true);
        let parts: Vec<Part> = group.into_iter().map(|i| part(l, biased, i)).collect();
        product(l, &weights[j], &parts, Form::Plain);
    }
}

fn part(l: &Lower<'_>, biased: &[bool], j: usize) -> Part {
    // biases follow the matrices
    let before = biased[..j].iter().filter(|b| **b).count();
    let bias = if biased[j] { l.weight(biased.len() + before) } else { Slot::None };
    Part { slot: l.weight(j), bias, outs: l.local().weights[j].rows.len(), to: l.output(j) }
}

pub(crate) fn per_head(l: &mut Lower<'_>, transposed: bool) {
    let w = &l.local().weights[0];
    if transposed {
        let unit = l.unit("transposed").quant(w.quant).int("ROW_BYTES", w.bytes_a_row());
        let unit = unit.int("HEADS", w.copies.len()).int("COLS", w.rows.len()).int("OUTS", w.cols.len());
        let grid = [Axis::Blocks(w.copies.len() as u32), Axis::Blocks(1), Axis::Rows(1)];
        return l.call(unit, grid, 256, vec![Slot::Step, l.weight(0), l.input(0), l.output(0)]);
    }
    product(l, w, &[part(l, &[false], 0)], Form::Plain);
}

pub(crate) fn logits(l: &mut Lower<'_>) {
    let part = part(l, &[false], 0);
    let logits = part.to.clone();
    product(l, &l.local().weights[0], &[part], Form::Answer);
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

/// What is made of the products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Themselves.
    Plain,
    /// The same, of activations that are never rounded.
    Exact,
    /// `silu(a) * b` of two.
    Gated,
    /// Themselves, of the rows that want an answer.
    Answer,
}

/// One of the matrices over a value.
pub(crate) struct Part {
    pub(crate) slot: Slot,
    pub(crate) bias: Slot,
    /// Rows of the matrix.
    pub(crate) outs: usize,
    pub(crate) to: Slot,
}

/// Stacks of matrices alike in all but their rows, `w` the first, times the op's first input.
pub(crate) fn product(l: &mut Lower<'_>, w: &LocalWeight, parts: &[Part], form: Form) {
    let (heads, tile, gated) = (w.copies.len(), l.choices.tile, form == Form::Gated);
    // parts that a rank has nothing of would be ends without a row
    let parts: Vec<&Part> = parts.iter().filter(|p| p.outs > 0).collect();
    let Some(first) = parts.first() else { return };
    let fast = form != Form::Exact && l.rounds(w);
    let [x, scales] = l.activations(&l.local().inputs[0], fast);
    let mut ends = vec![first.outs];
    if !gated {
        parts[1..].iter().for_each(|p| ends.push(ends[ends.len() - 1] + p.outs));
    }
    let (count, all) = (ends.len(), ends[ends.len() - 1]);
    let ends: Vec<String> = ends.iter().map(usize::to_string).collect();
    let unit = l.matrix("linear", w, fast).int("HEADS", heads).int("TILE", tile).int("PARTS", count);
    let unit = unit.int("ENDS", ends.join(",")).int("PAIR", u8::from(gated));
    let unit =
        unit.int("BIAS", u8::from(first.bias != Slot::None)).int("ANSWER", u8::from(form == Form::Answer));
    let mut args = vec![Slot::Step, x, scales];
    for slot in [|p: &Part| p.slot.clone(), |p: &Part| p.bias.clone(), |p: &Part| p.to.clone()] {
        args.extend((0..PARTS).map(|i| parts.get(i).map_or(Slot::None, |p| slot(p))));
    }
    let grid = [Axis::Blocks(all.div_ceil(8) as u32), Axis::Rows(tile), Axis::Blocks(heads as u32)];
    l.call(unit, grid, 256, args);
}
