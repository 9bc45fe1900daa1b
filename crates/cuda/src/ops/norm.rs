//! Norms.

use shardwright_model::op::Kind;
use shardwright_model::plan::LocalOp;

use crate::lower::Lower;
use crate::program::{Axis, Slot};

/// Most elements of a thread, and most threads. The order of sums does not depend on it.
const EACH: usize = 2;
const BLOCK: usize = 1024;

pub(crate) fn rms(l: &mut Lower<'_>, width: usize, eps: f32) {
    norm(l, width, eps, true);
}

pub(crate) fn layer(l: &mut Lower<'_>, eps: f32) {
    norm(l, l.local().inputs[0].width, eps, false);
}

/// Width and epsilon of an RMS norm.
pub(crate) fn rms_of(op: &LocalOp) -> (usize, f32) {
    match op.kind {
        Kind::RmsNorm { width, eps } => (width, eps),
        ref other => unreachable!("fuse.rs takes {} for a norm", other.name()),
    }
}

fn norm(l: &mut Lower<'_>, width: usize, eps: f32, rms: bool) {
    let (whole, to) = (l.local().inputs[0].width, l.local().outputs[0]);
    let addends = l.fused.residuals.get(&l.at).cloned().unwrap_or_default();
    let round = l.choices.fuse && width.is_multiple_of(32) && l.wanted_rounded(to.value);
    let unit = l.unit("norm").int("WIDTH", width).int("RUNS", whole / width).float("EPS", eps);
    let unit = unit.int("RMS", u8::from(rms)).int("ADDENDS", addends.len()).int("ROUND", u8::from(round));
    let block = width.div_ceil(EACH).next_power_of_two().clamp(128, BLOCK) as u32;
    let unit = unit.int("BLOCK", block);
    let op = l.number(l.at);
    let bias = if rms { Slot::None } else { l.weight(1) };
    let mut args = vec![Slot::Step, l.input(0), l.weight(0), bias, l.output(0), Slot::Spoiled, op];
    args.extend((0..3).map(|i| addends.get(i).map_or(Slot::None, |place| l.value(place))));
    args.extend(if round { l.room(&to) } else { [Slot::None, Slot::None] });
    // nothing is received
    args.extend([Slot::None, Slot::None]);
    l.call(unit, [Axis::Blocks((whole / width) as u32), Axis::Blocks(1), Axis::Rows(1)], block, args);
}
