//! Norms.

use shardwright_model::op::Kind;
use shardwright_model::plan::LocalOp;

use crate::lower::Lower;
use crate::program::{Axis, Slot};
use crate::unit::Unit;

/// Threads of a block, here and where others do a norm on their way: the order of its sums depends on it.
const BLOCK: u32 = 256;

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
    let unit = unit.int("BLOCK", BLOCK);
    let op = l.number(l.at);
    let bias = if rms { Slot::None } else { l.weight(1) };
    let mut args = vec![Slot::Step, l.input(0), l.weight(0), bias, l.output(0), Slot::Spoiled, op];
    args.extend((0..3).map(|i| addends.get(i).map_or(Slot::None, |place| l.value(place))));
    args.extend(if round { l.room(&to) } else { [Slot::None, Slot::None] });
    // nothing is received
    args.extend([Slot::None, Slot::None]);
    l.call(unit, [Axis::Blocks((whole / width) as u32), Axis::Blocks(1), Axis::Rows(1)], BLOCK, args);
}

/// Has the last block of a launch go on with the norm at `op`, of the stream to which the launch's output is added.
pub(crate) fn next(l: &mut Lower<'_>, unit: Unit, op: usize) -> (Unit, Slot) {
    let local = l.op_at(op);
    let ((width, eps), to) = (rms_of(local), local.outputs[0]);
    let round = width.is_multiple_of(32) && l.wanted_rounded(to.value);
    let unit = unit.int("NEXT_WIDTH", width).float("NEXT_EPS", eps).int("NEXT_ROUNDS", u8::from(round));
    let addends = l.fused.residuals[&op].iter().map(|place| l.value(place)).collect::<Vec<_>>();
    let mut args = vec![l.arrived(), l.value(&local.inputs[0]), l.weight_of(op, 0), l.value(&to)];
    args.push(l.number(op));
    args.extend(addends);
    args.extend(if round { l.room(&to) } else { [Slot::None, Slot::None] });
    (unit, Slot::List(args))
}
