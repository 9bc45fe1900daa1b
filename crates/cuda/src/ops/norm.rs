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
    let runs = l.local().inputs[0].width / width;
    let unit = l.unit("norm").int("WIDTH", width).int("RUNS", runs).float("EPS", eps);
    let unit = unit.int("RMS", u8::from(rms));
    let op = l.program.constant(&[f32::from_bits(l.at as u32)]);
    let bias = if rms { Slot::None } else { l.weight(1) };
    let args = vec![Slot::Step, l.input(0), l.weight(0), bias, l.output(0), Slot::Spoiled, op];
    l.call(unit, [Axis::Blocks(runs as u32), Axis::Blocks(1), Axis::Rows(1)], 256, args);
}
