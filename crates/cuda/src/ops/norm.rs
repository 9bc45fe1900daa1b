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

/// Gives the stream and the norm of it memory of their own, where what is added up might lie in theirs, unless they are read for
/// longer than that is theirs: the stream's until the norm after the next, the norm's until the next.
fn apart(l: &mut Lower<'_>, addends: &[Slot]) {
    let (Some(stream), at) = (addends.first(), l.at) else { return };
    let next = l.fused.residuals.keys().copied().filter(|op| *op > at).min().unwrap_or(usize::MAX);
    let (x, y) = (l.local().inputs[0], l.local().outputs[0]);
    let hidden = l.plans[l.rank].hidden.is_some_and(|place| place.value == y.value);
    if l.last_read(x.value) > next || l.last_read(y.value) >= next || hidden {
        return;
    }
    let name = if *stream == l.between("stream", x.width) { "next_stream" } else { "stream" };
    l.apart(name, &x);
    l.apart("normed", &y);
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
    let addends: Vec<Slot> = addends.iter().map(|place| l.value(place)).collect();
    apart(l, &addends);
    // what a block writes others may still have to read
    let (x, y) = (l.local().inputs[0], l.output(0));
    let crossed = if addends.is_empty() {
        y == l.value(&x)
    } else {
        addends.contains(&y) || addends.contains(&l.value(&x))
    };
    let shares = if width == whole && !crossed { width.div_ceil(block as usize) } else { 1 };
    let unit = unit.int("SHARES", shares);
    let mut args = vec![Slot::Step, l.input(0), l.weight(0), bias, l.output(0), Slot::Spoiled, op];
    args.extend((0..3).map(|i| addends.get(i).cloned().unwrap_or(Slot::None)));
    args.extend(if round { l.room(&to) } else { [Slot::None, Slot::None] });
    // nothing is received
    args.extend([Slot::None, Slot::None]);
    l.call(
        unit,
        [Axis::Blocks((whole / width * shares) as u32), Axis::Blocks(1), Axis::Rows(1)],
        block,
        args,
    );
}
