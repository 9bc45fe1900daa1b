//! The lightning indexer of sparse attention: which positions a row attends to.

use shardwright_model::exec::BLOCK;
use shardwright_model::op::Kind;

use super::softmax::{cached, write};
use crate::lower::{Lower, Tier};
use crate::program::{Axis, Scratch, Slot};

/// Blocks a multiprocessor that share a row's keys, and keys that one of them takes at a time: by tensor cores or without.
const TILED: [usize; 2] = [2, 128];
const PLAIN: [usize; 2] = [1, 8];

/// Bins of a row's scores, all copies of them (`kernels/common/bins.cuh`), positions that a block sorts out by them, and how many may
/// be left to be compared (`kernels/select.cu`).
const BINS: usize = 2 << 12;
const PART: usize = 4096;
const LISTED: usize = 8192;

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
    let scores = l.program.scratch(Scratch::Scores, l.rows() * l.choices.layout.table * BLOCK * 4);
    let bins = l.program.scratch(Scratch::Chosen(0), l.rows() * BINS * 4);
    let around = l.program.scratch(Scratch::Around(op), l.rows() * 4);
    let factor = (1.0 / ((heads * width) as f64).sqrt()) as f32;
    let tiled = l.choices.fast && width.is_multiple_of(32);
    let (stem, [blocks, keys]) = if tiled { ("index_tiles", TILED) } else { ("index", PLAIN) };
    let unit = cached(l, stem).int("HEADS", heads).int("WIDTH", width).int("KEEP", keep);
    let unit = unit.float("FACTOR", factor);
    let blocks = (blocks * l.choices.multiprocessors).min(context.div_ceil(keys)) as u32;
    let args = vec![Slot::Step, query, gate, l.cache(cache), scores.clone(), bins.clone(), around.clone()];
    l.call(unit, [Axis::Blocks(blocks), Axis::Blocks(1), Axis::Rows(1)], 256, args);
    select(l, keep, [scores, bins, around], l.value(&local.outputs[0]));
}

fn select(l: &mut Lower<'_>, keep: usize, [scores, bins, around]: [Slot; 3], to: Slot) {
    let (rows, table) = (l.rows(), l.choices.layout.table);
    let unit = l.unit("select").int("KEEP", keep).int("LISTED", LISTED);
    let marks = l.program.scratch(Scratch::Chosen(1), rows * table * BLOCK / 32 * 8);
    let done = l.program.scratch(Scratch::Chosen(2), rows * 4);
    let grid = [Axis::Blocks(l.choices.context.div_ceil(PART) as u32), Axis::Blocks(1), Axis::Rows(1)];
    l.call(unit, grid, 1024, vec![Slot::Step, scores, bins, marks, done, around, to]);
}
