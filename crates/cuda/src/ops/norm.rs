//! Norms.

use shardwright_model::op::Kind;
use shardwright_model::plan::LocalOp;

use super::sum;
use crate::fuse::Block;
use crate::lower::Lower;
use crate::program::{Axis, Slot};

/// Most elements of a thread, and most threads. The order of sums does not depend on it.
const EACH: usize = 2;
const BLOCK: usize = 1024;

/// Most elements of a sum over devices that a norm receives: it holds them in shared memory.
const RECEIVED: usize = 11_264;

pub(crate) fn rms(l: &mut Lower<'_>, width: usize, eps: f32) {
    // what comes from other ranks is received by a launch of its own, and what stands in its place comes before one
    let here = !l.choices.apart() && l.choices.delay == 0;
    if l.choices.fuse && l.plans.len() == 1 && here && may_wait(l) && Stream::of(l, l.at).free {
        l.waiting = Some(l.at);
        return;
    }
    launch(l, l.at, Moments { width, eps, rms: true });
}

pub(crate) fn layer(l: &mut Lower<'_>, eps: f32) {
    let width = l.local().inputs[0].width;
    launch(l, l.at, Moments { width, eps, rms: false });
}

/// Width and epsilon of an RMS norm.
pub(crate) fn rms_of(op: &LocalOp) -> (usize, f32) {
    match op.kind {
        Kind::RmsNorm { width, eps } => (width, eps),
        ref other => unreachable!("fuse.rs takes {} for a norm", other.name()),
    }
}

/// Is this a norm of the stream that the next op's launch can make, and nobody reads but those that are made with that op?
/// Each block makes it anew, which costs less than a launch only where the stream is narrow.
fn may_wait(l: &Lower<'_>) -> bool {
    let (op, next) = (l.local(), l.at + 1);
    let last = match l.fused.blocks.get(&next) {
        Some(block) => block.last(),
        None if l.fused.gated.contains(&next) => next,
        None => return false,
    };
    let to = op.outputs[0];
    let hidden = l.plans[l.rank].hidden.is_some_and(|place| place.value == to.value);
    let first = l.op_at(next).inputs[0].value == to.value;
    let narrow = to.width <= l.choices.narrow && op.inputs[0].width == rms_of(op).0;
    narrow && first && l.last_read(to.value) <= last && !hidden
}

/// A norm that the next launch makes on its way, and what one of its blocks writes beside.
pub(crate) struct Stream {
    /// The stream as it was, and what is added to it, if anything.
    pub(crate) addends: Vec<Slot>,
    /// The stream as it then is, and the norm of it.
    pub(crate) x: Slot,
    pub(crate) y: Slot,
    /// May other blocks still read while it is written?
    pub(crate) free: bool,
}

impl Stream {
    pub(crate) fn of(l: &mut Lower<'_>, op: usize) -> Stream {
        let places = l.fused.residuals.get(&op).cloned().unwrap_or_default();
        let addends: Vec<Slot> = places.iter().map(|place| l.value(place)).collect();
        apart(l, op, &addends);
        let (x, y) = (l.value(&l.op_at(op).inputs[0]), l.value(&l.op_at(op).outputs[0]));
        let free = match &addends[..] {
            [] => y != x,
            addends => !addends.contains(&y) && !addends.contains(&x),
        };
        Stream { addends, x, y, free }
    }

    /// Do others than the first launch of the ops behind it read the norm? Experts do.
    pub(crate) fn read_on(l: &Lower<'_>, op: usize) -> bool {
        matches!(l.fused.blocks.get(&(op + 1)), Some(Block::Moe(_)))
    }
}

/// Gives the stream and the norm of it memory of their own, where what is added up might lie in theirs, unless they are read for
/// longer than that is theirs: the stream's until the norm after the next, the norm's until the next.
fn apart(l: &mut Lower<'_>, op: usize, addends: &[Slot]) {
    let Some(stream) = addends.first() else { return };
    let next = l.fused.residuals.keys().copied().filter(|at| *at > op).min().unwrap_or(usize::MAX);
    let (x, y) = (l.op_at(op).inputs[0], l.op_at(op).outputs[0]);
    let hidden = l.plans[l.rank].hidden.is_some_and(|place| place.value == y.value);
    if l.last_read(x.value) > next || l.last_read(y.value) >= next || hidden {
        return;
    }
    let name = if *stream == l.between("stream", x.width) { "next_stream" } else { "stream" };
    l.apart(name, &x);
    l.apart("normed", &y);
}

/// Does this norm receive what is added to the stream, a sum over devices that comes in one leg? One block does that, in shared memory.
pub(crate) fn receives(l: &Lower<'_>, op: usize) -> bool {
    let (width, _) = rms_of(l.op_at(op));
    let here = l.choices.inbox > 0 && l.choices.legs == 1 && width <= RECEIVED;
    here && l.fused.residuals.contains_key(&op)
}

/// What a norm divides by.
struct Moments {
    width: usize,
    eps: f32,
    rms: bool,
}

/// The norm that waits, after all.
pub(crate) fn now(l: &mut Lower<'_>, op: usize) {
    let (width, eps) = rms_of(l.op_at(op));
    launch(l, op, Moments { width, eps, rms: true });
}

/// What the RMS norm that is op `op` makes of whole rows elsewhere, rounded.
pub(crate) fn rounded(l: &mut Lower<'_>, from: Slot, op: usize) -> [Slot; 2] {
    let (width, eps) = rms_of(l.op_at(op));
    let unit = l.unit("norm").int("WIDTH", width).int("RUNS", 1).float("EPS", eps).int("RMS", 1);
    let unit = unit.int("ROUND", 1).int("ADDENDS", 0).int("SHARES", 1).int("RECEIVE", 0);
    let block = threads(width);
    let (normed, to, none) = (l.between("low_normed", width), l.passing_room(width), || Slot::None);
    let (weight, number, [codes, scales]) = (l.weight_of(op, 0), l.number(op), to.clone());
    let mut args = vec![Slot::Step, from, weight, none(), normed, Slot::Spoiled, number];
    args.extend([none(), none(), none(), codes, scales, none(), none()]);
    l.call(unit.int("BLOCK", block), [Axis::Blocks(1), Axis::Blocks(1), Axis::Rows(1)], block, args);
    to
}

/// Threads for a run of so many elements.
fn threads(width: usize) -> u32 {
    width.div_ceil(EACH).next_power_of_two().clamp(128, BLOCK) as u32
}

/// A norm in a launch of its own.
fn launch(l: &mut Lower<'_>, op: usize, Moments { width, eps, rms }: Moments) {
    let (whole, to) = (l.op_at(op).inputs[0].width, l.op_at(op).outputs[0]);
    let Stream { mut addends, x, y, free } = Stream::of(l, op);
    let round = l.choices.fuse && width.is_multiple_of(32) && l.wanted_rounded(to.value);
    let unit = l.unit("norm").int("WIDTH", width).int("RUNS", whole / width).float("EPS", eps);
    let unit = unit.int("RMS", u8::from(rms)).int("ROUND", u8::from(round));
    let block = threads(width);
    let receives = !addends.is_empty() && receives(l, op);
    if l.choices.apart() && !addends.is_empty() && !receives {
        let sum = l.between("sum", width);
        sum::whole(l, &addends[1..], sum.clone(), width);
        addends.splice(1.., [sum]);
    }
    if !addends.is_empty() {
        sum::pass(l);
    }
    let shares = if width == whole && free && !receives { width.div_ceil(block as usize) } else { 1 };
    let mut unit = unit
        .int("ADDENDS", addends.len())
        .int("BLOCK", block)
        .int("SHARES", shares)
        .int("RECEIVE", u8::from(receives));
    let mut inbox = [Slot::None, Slot::None];
    if receives {
        unit = sum::grouped(unit, l);
        inbox = sum::push(l, &addends[1..], width);
    }
    let bias = if rms { Slot::None } else { l.weight_of(op, 1) };
    let number = l.number(op);
    let mut args = vec![Slot::Step, x, l.weight_of(op, 0), bias, y, Slot::Spoiled, number];
    args.extend((0..3).map(|i| addends.get(i).cloned().unwrap_or(Slot::None)));
    args.extend(if round { l.room(&to) } else { [Slot::None, Slot::None] });
    args.extend(inbox);
    let blocks = Axis::Blocks((whole / width * shares) as u32);
    l.call(unit, [blocks, Axis::Blocks(1), Axis::Rows(1)], block, args);
}
