//! Rotary position embedding.

use shardwright_model::op::{Rope, RopeStyle};

use crate::lower::Lower;
use crate::program::{Axis, Slot};

pub(crate) fn rotate(l: &mut Lower<'_>, width: usize, rope: &Rope) {
    let heads = l.local().inputs[0].width / width;
    let freqs = l.program.constant(&rope.freqs);
    let divisors = if l.local().weights.is_empty() { Slot::None } else { l.weight(0) };
    let unit = l.unit("rotate").int("HEADS", heads).int("WIDTH", width).int("ROTATED", rope.rotated);
    let unit = unit.int("INTERLEAVED", u8::from(rope.style == RopeStyle::Interleaved));
    let unit = unit.int("DIVISORS", u8::from(divisors != Slot::None)).float("MAGNITUDE", rope.magnitude);
    let args = vec![Slot::Step, l.input(0), freqs, divisors, l.output(0)];
    l.call(unit, [Axis::Blocks(heads as u32), Axis::Blocks(1), Axis::Rows(1)], 128, args);
}
