//! Products of many rows, by tensor cores: what such a product has beside its matrices is made by launches of its own.

use shardwright_model::plan::LocalWeight;

use crate::lines;
use crate::lower::Lower;
use crate::ops::{norm, softmax};
use crate::product::{Input, NAMES, PARTS, Part, Product};
use crate::program::{Axis, Slot};
use crate::unit::Unit;

/// Rows of activations and of weights, of both of a pair together, that a block multiplies at a time (kernels/common/tiles.cuh).
pub(crate) const TILE: usize = 64;
const SPAN: usize = 128;

/// Most blocks of a launch over experts: enough to share out evenly, few enough that those without work cost nothing.
const BLOCKS: usize = 2048;

/// Makes it calls. Parts that take activations as they are go the way of few rows.
pub(crate) fn launch(product: Product<'_>, l: &mut Lower<'_>) {
    let Product { parts, input, answer, lines, pushes } = product;
    if !lines.is_empty() {
        lines::launch(l, &lines);
    }
    let (rounded, rest): (Vec<_>, Vec<_>) = parts.into_iter().partition(|p| p.all_round(l));
    if let Some(first) = rounded.first() {
        let x = rows(l, &input, first.weight);
        multiply(l, &rounded, x, answer);
    }
    Product { parts: rest, input, answer, lines: vec![], pushes }.few(l);
}

/// The rows in front of a matrix, rounded.
fn rows(l: &mut Lower<'_>, input: &Input, w: &LocalWeight) -> [Slot; 2] {
    let (heads, cols) = (w.copies.len(), w.cols.len());
    match input {
        Input::Value(place) => l.activations(place, true),
        Input::Copied { from, unit, start } => {
            l.passing_runs(from.clone(), heads * cols, [cols, *unit, *start])
        }
        Input::Normed { from, op } => norm::rounded(l, from.clone(), *op),
        Input::Merged(parts) => {
            let to = l.passing_room(heads * cols);
            softmax::join(l, parts, [heads, cols], Slot::None, Some(to.clone()));
            to
        }
    }
}

fn multiply(l: &mut Lower<'_>, parts: &[Part<'_>], [codes, scales]: [Slot; 2], answer: bool) {
    let heads = parts[0].weight.copies.len();
    let mut unit = l.unit("matmul").int("TILE", TILE).int("HEADS", heads).int("ANSWER", u8::from(answer));
    let mut end = 0;
    for (part, (name, ends)) in parts.iter().zip(NAMES) {
        let described = described(&mut unit, part);
        end += spans(part);
        unit = unit.int(name, described).int(ends, end);
    }
    let mut args = vec![Slot::Step, codes, scales];
    for slot in [|p: &Part<'_>| p.slot.clone(), |p: &Part<'_>| p.second(), |p: &Part<'_>| p.to.clone()] {
        args.extend((0..PARTS).map(|i| parts.get(i).map_or(Slot::None, slot)));
    }
    args.extend(parts.iter().find_map(|p| p.rounded.clone()).unwrap_or([Slot::None, Slot::None]));
    let grid = [Axis::Rows(TILE as u32), Axis::Blocks(end as u32), Axis::Blocks(heads as u32)];
    l.call(unit.int("PARTS", parts.len()), grid, 256, args);
}

/// Blocks along the outputs of a part.
fn spans(part: &Part<'_>) -> usize {
    part.weight.rows.len().div_ceil(SPAN / part.weights().count())
}

/// What a kernel is told of a part.
fn described(unit: &mut Unit, part: &Part<'_>) -> String {
    let mut kinds = part.weights().map(|w| unit.decoder(w.quant, w.bytes_a_row(), w.cols.len()));
    let first = kinds.next().unwrap_or_default();
    let second = kinds.next().unwrap_or_else(|| first.clone());
    let form = part.form.name();
    format!("{first}, {second}, {}, {form}, {}", part.weight.rows.len(), u8::from(part.rounded.is_some()))
}

/// What the rows of a step ask of experts, in the order of these.
pub(crate) struct Asks {
    /// Experts that a row uses.
    pub(crate) used: usize,
    /// The asks, and runs of them.
    pub(crate) lists: [Slot; 2],
}

/// One half of the asked experts: `part` of `x`, which is a row's or, where `each`, an ask's.
pub(crate) fn experts(l: &mut Lower<'_>, asks: &Asks, part: &Part<'_>, x: [Slot; 2], each: bool) {
    let mut unit = l.unit("matmul_experts").int("TILE", TILE);
    let described = described(&mut unit, part);
    let spans = spans(part);
    let unit = unit.int("PART", described).int("BLOCKS", spans).int("PER", if each { 1 } else { asks.used });
    let [asked, tiles] = asks.lists.clone();
    let [codes, scales] = x;
    let mut args = vec![asked, tiles, part.slot.clone(), part.second(), codes, scales, part.to.clone()];
    args.extend(part.rounded.clone().unwrap_or([Slot::None, Slot::None]));
    let most = most_tiles(l.rows() * asks.used, part.weight.copies.len()) * spans;
    let grid = [Axis::Blocks(most.min(BLOCKS) as u32), Axis::Blocks(1), Axis::Blocks(1)];
    l.call(unit, grid, 256, args);
}

/// Most tiles of so many asks of so many experts.
pub(crate) fn most_tiles(asks: usize, experts: usize) -> usize {
    asks / TILE + experts.min(asks)
}
