//! The heart of every attention: lines written to the cache, then parts of the keys, then the parts joined.

use crate::lower::Lower;
use crate::program::{Axis, Scratch, Slot};

/// Keys of a part, where there are enough parts.
const PART: usize = 256;

/// Most parts: with some heads enough blocks for any card.
const PARTS: usize = 32;

/// One attention.
pub(crate) struct Attention {
    pub(crate) heads: usize,
    /// Elements of a key, of them those rotated apart from the others, and elements of a value.
    pub(crate) key: usize,
    pub(crate) rope: usize,
    pub(crate) value: usize,
    pub(crate) scale: f32,
    /// Query heads that share a KV head; the first query head and the first KV head here.
    pub(crate) group: usize,
    pub(crate) first: [usize; 2],
    pub(crate) query: [Slot; 2],
    /// Cache slots of keys and values.
    pub(crate) cache: [usize; 2],
    /// The positions to read, and how many they are at most.
    pub(crate) picked: Option<(Slot, usize)>,
}

/// Writes a value's rows to a cache slot, from element `start` of each line on.
pub(crate) fn write(l: &mut Lower<'_>, input: usize, slot: usize, start: usize) {
    let width = l.local().inputs[input].width;
    let unit = cached(l, "cache").int("WIDTH", width).int("STRIDE", l.line(slot)).int("START", start);
    l.along(unit, width, 256, vec![Slot::Step, l.input(input), l.cache(slot)]);
}

/// A kernel that knows the cache's elements.
pub(crate) fn cached(l: &Lower<'_>, stem: &'static str) -> crate::unit::Unit {
    l.unit(stem).int("HALF", u8::from(l.choices.fast))
}

/// Attends to each part of the keys: what comes of them, and how many there are.
pub(crate) fn parts(l: &mut Lower<'_>, a: &Attention) -> (Slot, usize) {
    let parts = l.choices.context.div_ceil(PART).clamp(1, PARTS);
    let [keys, values] = a.cache;
    let (picked, keep) = a.picked.clone().unwrap_or((Slot::None, 0));
    let unit = cached(l, "attend").int("HEADS", a.heads).int("KEY", a.key).int("ROPE", a.rope);
    let unit = unit.int("VALUE", a.value).int("STRIDE_K", l.line(keys)).int("STRIDE_V", l.line(values));
    let unit = unit.int("GROUP", a.group).int("FIRST", a.first[0]).int("FIRST_KV", a.first[1]);
    let unit = unit.int("PICKED", u8::from(a.picked.is_some())).int("KEEP", keep).int("PARTS", parts);
    let unit = unit.float("SCALE", a.scale);
    let bytes = l.rows() * a.heads * parts * (a.value + 2) * 4;
    let part = l.program.scratch(Scratch::Parts, bytes);
    let [q, rope] = a.query.clone();
    let args = vec![Slot::Step, q, rope, l.cache(keys), l.cache(values), picked, part.clone()];
    l.call(unit, [Axis::Blocks(a.heads as u32), Axis::Blocks(parts as u32), Axis::Rows(1)], 128, args);
    (part, parts)
}

/// Attends to all keys: what comes of it goes to `out`, or rounded, or both.
pub(crate) fn attend(l: &mut Lower<'_>, a: &Attention, out: Slot, rounded: Option<[Slot; 2]>) {
    let (part, parts) = parts(l, a);
    let unit = l.unit("combine").int("HEADS", a.heads).int("VALUE", a.value).int("PARTS", parts);
    let unit = unit.int("ROUND", u8::from(rounded.is_some()));
    let [codes, scales] = rounded.unwrap_or([Slot::None, Slot::None]);
    let grid = [Axis::Blocks(a.heads as u32), Axis::Blocks(1), Axis::Rows(1)];
    l.call(unit, grid, 128, vec![Slot::Step, part, out, codes, scales]);
}
