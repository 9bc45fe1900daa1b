//! The lightning indexer of sparse attention: which positions a row attends to.

use shardwright_model::op::Kind;

use super::softmax::{cached, write};
use crate::lower::{Lower, Tier};
use crate::program::{Axis, Scratch, Slot};

/// Blocks that share a row's keys.
const BLOCKS: u32 = 64;

pub(crate) fn index(l: &mut Lower<'_>, cache: usize) {
    write(l, 1, cache, 0);
    if l.choices.tier == Tier::Long {
        pick(l, l.at, l.input(0), l.input(2));
    }
}

/// The positions that op `op` picks, from its queries and gates.
pub(crate) fn pick(l: &mut Lower<'_>, op: usize, query: Slot, gate: Slot) {
    let local = l.op_at(op);
    let Kind::Index { heads, width, keep, cache } = local.kind else { return };
    let context = l.choices.context;
    let scores = l.program.scratch(Scratch::Scores, l.rows() * context * 4);
    let factor = (1.0 / ((heads * width) as f64).sqrt()) as f32;
    let unit = cached(l, "index").int("HEADS", heads).int("WIDTH", width).int("KEEP", keep);
    let unit = unit.int("CONTEXT", context).float("FACTOR", factor);
    let blocks = BLOCKS.min(context.div_ceil(8) as u32);
    let args = vec![Slot::Step, query, gate, l.cache(cache), scores.clone()];
    l.call(unit, [Axis::Blocks(blocks), Axis::Blocks(1), Axis::Rows(1)], 256, args);
    let unit = l.unit("select").int("KEEP", keep).int("CONTEXT", context);
    let grid = [Axis::Blocks(1), Axis::Blocks(1), Axis::Rows(1)];
    l.call(unit, grid, 512, vec![Slot::Step, scores, l.value(&local.outputs[0])]);
}
