//! Norms.

use crate::lower::Lower;
use crate::program::{Axis, Slot};

pub(crate) fn rms(l: &mut Lower<'_>, width: usize, eps: f32) {
    norm(l, width, eps, true);
}

pub(crate) fn layer(l: &mut Lower<'_>, eps: f32) {
    norm(l, l.local().inputs[0].width, eps, false);
}

fn norm(l: &mut Lower<'_>, width: usize, eps: f32, rms: bool) {
    let (whole, to) = (l.local().inputs[0].width, l.local().outputs[0]);
    let addends = l.fused.residuals.get(&l.at).cloned().unwrap_or_default();
    let round = l.choices.fuse && width.is_multiple_of(32) && l.wanted_rounded(to.value);
    let unit = l.unit("norm").int("WIDTH", width).int("RUNS", whole / width).float("EPS", eps);
    let unit = unit.int("RMS", u8::from(rms)).int("ADDENDS", addends.len()).int("ROUND", u8::from(round));
    // rows are few: a wide one gets all the threads that a block may have
    let threads = if width >= 2048 { 1024 } else { 256 };
    let unit = unit.int("BLOCK", threads);
    let op = l.program.constant(&[f32::from_bits(l.at as u32)]);
    let bias = if rms { Slot::None } else { l.weight(1) };
    let mut args = vec![Slot::Step, l.input(0), l.weight(0), bias, l.output(0), Slot::Spoiled, op];
    args.extend((0..3).map(|i| addends.get(i).map_or(Slot::None, |place| l.value(place))));
    args.extend(if round { l.room(&to) } else { [Slot::None, Slot::None] });
    l.call(unit, [Axis::Blocks((whole / width) as u32), Axis::Blocks(1), Axis::Rows(1)], threads, args);
}
