//! The lightning indexer of sparse attention: which positions a row attends to.

use super::softmax::{cached, write};
use crate::lower::Lower;
use crate::program::{Axis, Scratch, Slot};

/// Blocks that share a row's keys.
const BLOCKS: u32 = 64;

pub(crate) fn index(l: &mut Lower<'_>, heads: usize, width: usize, keep: usize, cache: usize) {
    write(l, 1, cache, 0);
    let context = l.choices.context;
    let scores = l.program.scratch(Scratch::Scores, l.rows() * context * 4);
    let factor = (1.0 / ((heads * width) as f64).sqrt()) as f32;
    let unit = cached(l, "index").int("HEADS", heads).int("WIDTH", width).int("KEEP", keep);
    let unit = unit.int("CONTEXT", context).float("FACTOR", factor);
    let blocks = BLOCKS.min(context.div_ceil(8) as u32);
    let args = vec![Slot::Step, l.input(0), l.input(2), l.cache(cache), scores.clone()];
    l.call(unit, [Axis::Blocks(blocks), Axis::Blocks(1), Axis::Rows(1)], 256, args);
    let unit = l.unit("select").int("KEEP", keep).int("CONTEXT", context);
    let grid = [Axis::Blocks(1), Axis::Blocks(1), Axis::Rows(1)];
    l.call(unit, grid, 512, vec![Slot::Step, scores, l.output(0)]);
}
