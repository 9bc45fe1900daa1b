//! The heart of every attention: lines written to the cache, then parts of the keys, then the parts joined.

use crate::lower::Lower;
use crate::program::{Axis, Scratch, Slot};
use crate::unit::Unit;

/// Keys that lie in shared memory together, and the least of a part.
const TILE: usize = 32;

/// Keys of a part, and most parts, where a head has a block of its own.
const PART: usize = 256;
const PARTS: usize = 32;

/// Blocks that keep a card busy: one an SM where they take much shared memory, two where they don't.
const BLOCKS: [usize; 2] = [128, 256];
const MUCH: usize = 80 << 10;

/// Most parts that are joined, and most bytes of all rows' parts.
const MOST_PARTS: usize = 128;
const ROOM: usize = 1 << 30;

/// Parts that a thread adds alone where rows keep the card busy.
const FEW_PARTS: usize = 16;

/// The most shared memory of a block that all cards have.
const SHARED: usize = 99 << 10;

/// One attention.
pub(crate) struct Attention {
    pub(crate) heads: usize,
    /// Elements of a key, of them those rotated apart from the others, and elements of a value.
    pub(crate) key: usize,
    pub(crate) rope: usize,
    pub(crate) value: usize,
    pub(crate) scale: f32,
    /// Query heads that share a KV head, and KV heads here; the first query head and the first KV head here.
    pub(crate) group: usize,
    pub(crate) shared: usize,
    pub(crate) first: [usize; 2],
    pub(crate) query: [Slot; 2],
    /// Cache slots of keys and values; if they are one, the value is the front of the key.
    pub(crate) cache: [usize; 2],
    /// The positions to read of rows that have more than are kept; the most of them, or 0.
    pub(crate) picked: Option<Slot>,
    pub(crate) keep: usize,
}

/// What comes of the parts of the keys: where, how many there are, and the most keys of all, or 0.
pub(crate) struct Parts {
    pub(crate) at: Slot,
    pub(crate) count: usize,
    pub(crate) keep: usize,
}

/// How the work is cut.
struct Cut {
    unit: Unit,
    /// Blocks for the heads.
    blocks: usize,
    threads: u32,
    parts: usize,
}

/// Writes a value's rows to a cache slot, from element `start` of each line on.
pub(crate) fn write(l: &mut Lower<'_>, input: usize, slot: usize, start: usize) {
    let width = l.local().inputs[input].width;
    let unit = cached(l, "cache").int("WIDTH", width).int("STRIDE", l.line(slot)).int("START", start);
    l.along(unit, width, 256, vec![Slot::Step, l.input(input), l.cache(slot)]);
}

/// A kernel that knows the cache's elements.
pub(crate) fn cached(l: &Lower<'_>, stem: &'static str) -> Unit {
    l.unit(stem).int("HALF", u8::from(l.choices.fast))
}

/// Attends to each part of the keys.
pub(crate) fn parts(l: &mut Lower<'_>, a: &Attention) -> Parts {
    let ([keys, values], keep) = (a.cache, a.keep);
    let Cut { unit, blocks, threads, parts } = tiled(l, a).unwrap_or_else(|| plain(l, a));
    let unit = unit.int("HEADS", a.heads).int("KEY", a.key).int("ROPE", a.rope).int("VALUE", a.value);
    let unit = unit.int("STRIDE_K", l.line(keys)).int("STRIDE_V", l.line(values)).int("GROUP", a.group);
    let unit = unit.int("FIRST", a.first[0]).int("FIRST_KV", a.first[1]).float("SCALE", a.scale);
    let unit = unit.int("PICKED", u8::from(a.picked.is_some())).int("KEEP", keep).int("PARTS", parts);
    let bytes = l.rows() * a.heads * parts * (a.value + 2) * 4;
    let at = l.program.scratch(Scratch::Parts, bytes);
    let ([q, rope], picked) = (a.query.clone(), a.picked.clone().unwrap_or(Slot::None));
    let args = vec![Slot::Step, q, rope, l.cache(keys), l.cache(values), picked, at.clone()];
    l.call(unit, [Axis::Blocks(blocks as u32), Axis::Blocks(parts as u32), Axis::Rows(1)], threads, args);
    Parts { at, count: parts, keep }
}

/// Attends to all keys: what comes of it goes to `out`, or rounded, or both.
pub(crate) fn attend(l: &mut Lower<'_>, a: &Attention, out: Slot, rounded: Option<[Slot; 2]>) {
    let parts = parts(l, a);
    join(l, &parts, [a.heads, a.value], out, rounded);
}

/// Joins the parts of an attention of so many heads with so wide values.
pub(crate) fn join(
    l: &mut Lower<'_>,
    Parts { at, count, keep }: &Parts,
    [heads, value]: [usize; 2],
    out: Slot,
    rounded: Option<[Slot; 2]>,
) {
    let unit = l.unit("combine").int("HEADS", heads).int("VALUE", value).int("PARTS", count);
    let unit = unit.int("KEEP", keep).int("ROUND", u8::from(rounded.is_some()));
    let [codes, scales] = rounded.unwrap_or([Slot::None, Slot::None]);
    let wide = l.many() && *count <= FEW_PARTS;
    let unit = unit.int("WIDE", u8::from(wide));
    let slices = value.div_ceil(if wide { 256 } else { 32 });
    let grid = [Axis::Blocks(heads as u32), Axis::Blocks(slices as u32), Axis::Rows(1)];
    l.call(unit, grid, 256, vec![Slot::Step, at.clone(), out, codes, scales]);
}

/// A block for each head, which reads what it needs for itself.
fn plain(l: &Lower<'_>, a: &Attention) -> Cut {
    let parts = l.choices.context.div_ceil(PART).clamp(1, PARTS);
    Cut { unit: cached(l, "attend"), blocks: a.heads, threads: 128, parts }
}

/// Tensor cores, where the cache is of f16 and its lines are whole 16 bytes.
fn tiled(l: &Lower<'_>, a: &Attention) -> Option<Cut> {
    let ([keys, values], keep) = (a.cache, a.keep);
    let widths = [a.key, a.value, l.line(keys), l.line(values)];
    if !l.choices.fast || !widths.iter().all(|w| w.is_multiple_of(8)) || !a.rope.is_multiple_of(2) {
        return None;
    }
    let latent = keys == values;
    let eights = a.group.div_ceil(8);
    // few keys are read faster by more blocks, many by fewer
    let heads = eights.div_ceil(if keep > 0 { 2 } else { 4 });
    let columns = eights.div_ceil(heads);
    let line = a.key.next_multiple_of(16) + if latent { 0 } else { a.value.next_multiple_of(16) } + 8;
    // weights, four parts of the scores, and by how much sums shrink (attend_tiles.cu)
    let rest = 8 * columns * ((TILE + 8) * 2 + 4 * (TILE + 4) * 4 + 4);
    let stages = (SHARED.saturating_sub(rest) / (line * TILE * 2)).min(4);
    if stages < 2 {
        return None;
    }
    let shared = rest + stages * line * TILE * 2;
    let blocks = a.shared * heads;
    let busy = BLOCKS[usize::from(shared < MUCH)];
    let most = if keep > 0 { l.choices.context.min(keep) } else { l.choices.context };
    let room = ROOM / (l.rows() * a.heads * (a.value + 2) * 4);
    let parts = (busy / blocks).min(most.div_ceil(TILE)).min(room).clamp(1, MOST_PARTS);
    let unit = cached(l, "attend_tiles").int("LATENT", u8::from(latent)).int("COLUMNS", columns);
    let unit = unit.int("STAGES", stages).int("SHARED", shared.next_multiple_of(16));
    Some(Cut { unit, blocks, threads: 256, parts })
}
