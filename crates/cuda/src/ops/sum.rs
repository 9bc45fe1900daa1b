//! The sum over ranks that have a device each: every rank pushes what it adds into the others' inboxes (kernels/exchange.cu), or a library
//! adds up.

use shardwright_model::exec::Wire;
use shardwright_model::plan::Place;

use super::{norm, pointwise};
use crate::lower::Lower;
use crate::program::{Axis, Scratch, Slot};
use crate::unit::Unit;

/// Most blocks of a launch, which must all fit on a device at once, beside whatever else runs there.
const BLOCKS: usize = 48;
pub(crate) const BLOCK: u32 = 128;

/// Elements of a packet.
pub(crate) fn packet(wire: Wire) -> usize {
    match wire {
        Wire::F32 => 4,
        Wire::Bf16 => 8,
    }
}

/// Blocks for so many packets: a thread for each, or for several that it takes in turn.
pub(crate) fn blocks(packets: usize) -> usize {
    packets.div_ceil(BLOCK as usize).clamp(1, BLOCKS)
}

/// The ranks' summands in rank order, to every rank; of one rank, a copy.
pub(crate) fn sum(l: &mut Lower<'_>) {
    if !l.choices.apart() {
        pass(l);
        return pointwise::sum(l);
    }
    let (from, to) = (l.input(0), l.output(0));
    let width = l.local().outputs[0].width;
    whole(l, &[from], to, width);
}

/// The sum over devices of this rank's summand, which may be of two values.
pub(crate) fn whole(l: &mut Lower<'_>, summand: &[Slot], to: Slot, width: usize) {
    if l.choices.nccl {
        return library(l, summand, to, width);
    }
    exchange(l, summand, to, width, Some(l.choices.legs));
}

/// The same by the devices' library, which takes numbers as they travel and leaves sums that are such numbers. Nothing is pushed or
/// received on the way, so it takes launches of its own.
fn library(l: &mut Lower<'_>, summand: &[Slot], to: Slot, width: usize) {
    let wire = l.choices.ranks.wire;
    let second = summand.get(1).cloned();
    let travels = match (wire, &second) {
        (Wire::F32, None) => summand[0].clone(),
        (Wire::F32, Some(second)) => {
            let unit = l.unit("pointwise").int("WIDTH", width).int("WHAT", "ADD");
            l.along(unit, width, 256, vec![Slot::Step, summand[0].clone(), second.clone(), to.clone()]);
            to.clone()
        }
        (Wire::Bf16, _) => {
            let travels = l.between("wire", width);
            let args = vec![Slot::Step, summand[0].clone(), second.unwrap_or(Slot::None), travels.clone()];
            l.along(wired(l, width, summand.len()), width, 256, args);
            travels
        }
    };
    let sums = if wire == Wire::F32 { to.clone() } else { travels.clone() };
    let grid = [Axis::Blocks(1), Axis::Blocks(1), Axis::Rows(1)];
    l.call(Unit::all_reduce(width, wire), grid, 1, vec![travels, sums.clone()]);
    if wire == Wire::Bf16 {
        l.along(wired(l, width, 0), width, 256, vec![Slot::Step, sums, Slot::None, to]);
    }
}

/// The kernel between what a rank adds, so many values, and what travels; of none, back.
fn wired(l: &Lower<'_>, width: usize, addends: usize) -> Unit {
    l.unit("wire").int("WIDTH", width).int("ADDENDS", addends)
}

/// This rank's part of a sum that a norm receives, which a product may have pushed: the inbox, and how it waits.
pub(crate) fn push(l: &mut Lower<'_>, summand: &[Slot], width: usize) -> [Slot; 2] {
    let slot = l.pushed.take().unwrap_or_else(|| exchange(l, summand, Slot::None, width, None));
    [Slot::Inbox(slot), Slot::Wait]
}

/// Are the rows that op `op` makes best pushed by the product that makes them? That is so where a norm behind it receives their sum, and
/// they are all that a rank adds to it.
pub(crate) fn pushes(l: &Lower<'_>, op: usize) -> bool {
    // the sum and what adds it to the stream lie between
    let (summand, norm) = (l.op_at(op).outputs[0].value, op + 3);
    let alone = |places: &Vec<Place>| matches!(places[..], [_, place] if place.value == summand);
    !l.many() && l.fused.residuals.get(&norm).is_some_and(alone) && norm::receives(l, norm)
}

/// What a product is told that pushes what it makes, or does not.
pub(crate) fn pushing(unit: Unit, l: &mut Lower<'_>, pushes: bool) -> (Unit, Slot) {
    let unit = unit.int("PUSH", u8::from(pushes));
    if !pushes {
        return (unit, Slot::None);
    }
    let slot = next(l);
    l.pushed = Some(slot);
    (grouped(unit, l), Slot::Peers(slot))
}

/// Rows of a product's blocks come in sets of so many if it pushes them, as packets are of one block.
pub(crate) fn sets(l: &Lower<'_>, pushes: bool) -> usize {
    if pushes { packet(l.choices.ranks.wire) } else { 1 }
}

/// The slot of the next exchange.
fn next(l: &mut Lower<'_>) -> usize {
    l.program.exchanges += 1;
    (l.program.exchanges - 1) % 2
}

/// A step has an even number of exchanges, so that each has the same one of the two slots in every step.
pub(crate) fn make_even(l: &mut Lower<'_>) {
    if !l.program.exchanges.is_multiple_of(2) {
        let width = packet(l.choices.ranks.wire);
        let bytes = l.rows() * width * 4;
        let nothing = l.program.scratch(Scratch::Nothing, bytes);
        exchange(l, std::slice::from_ref(&nothing), nothing.clone(), width, Some(1));
    }
}

/// The slot of an exchange by a launch of its own, which also receives, in so many legs, or pushes only.
fn exchange(l: &mut Lower<'_>, summand: &[Slot], to: Slot, width: usize, legs: Option<usize>) -> usize {
    let slot = next(l);
    let unit = l.unit("exchange").int("WIDTH", width).int("ADDENDS", summand.len());
    let blocks = blocks(l.choices.tile as usize * width / packet(l.choices.ranks.wire));
    let unit = unit.int("RECEIVE", u8::from(legs.is_some())).int("LEGS", legs.unwrap_or(1));
    let unit = unit.int("BLOCKS", blocks).int("BLOCK", BLOCK);
    let unit = grouped(unit, l);
    let second = summand.get(1).cloned().unwrap_or(Slot::None);
    let number = l.number(l.at);
    let args = vec![
        Slot::Step,
        summand[0].clone(),
        second,
        to,
        Slot::Peers(slot),
        Slot::Inbox(slot),
        Slot::Wait,
        number,
    ];
    l.call(unit, [Axis::Blocks(blocks as u32), Axis::Blocks(1), Axis::Blocks(1)], BLOCK, args);
    slot
}

/// What stands in the place of a sum over ranks where one rank is run by itself: only its time passes.
pub(crate) fn pass(l: &mut Lower<'_>) {
    if l.choices.delay > 0 && l.plans[l.rank].ranks > 1 {
        l.call(delay(l.choices.delay), [Axis::Blocks(1); 3], 1, vec![]);
    }
}

/// The kernel that does nothing for so many nanoseconds.
pub(crate) fn delay(nanoseconds: u64) -> Unit {
    Unit::new("delay").int("NANOSECONDS", nanoseconds)
}

/// What a kernel must know of the group.
pub(crate) fn grouped(unit: Unit, l: &Lower<'_>) -> Unit {
    let bf16 = u8::from(l.choices.ranks.wire == Wire::Bf16);
    unit.int("RANKS", l.plans[l.rank].ranks).int("BF16", bf16).int("CAPACITY", l.choices.inbox)
}
