//! The chosen experts' gated feed-forwards, weighed and added; also with the router in front and the shared expert beside.

use shardwright_model::op::Kind;
use shardwright_model::plan::{LocalWeight, Place};

use super::linear::gated;
use super::route::{self, Choice};
use super::sum;
use crate::fuse::{Moe, Shared};
use crate::lower::Lower;
use crate::matmul::{self, Asks};
use crate::product::{Form, Input, Part, Product};
use crate::program::{Axis, Scratch, Slot};
use crate::unit::Unit;
use crate::wave::{self, Deal};
use crate::{Error, Result};

/// Threads of a block.
const THREADS: usize = 256;

/// Experts of a row whose second halves have a warp each in a block.
const MOST_USED: usize = 32;

pub(crate) fn experts(l: &mut Lower<'_>, used: usize) -> Result<()> {
    let (op, to) = (l.at, l.output(0));
    if grouped(l, op) {
        return many(l, op, used, Many { picked: l.input(1), shared: None, to });
    }
    let act = first_half(l, op, used, l.input(1), None)?;
    let x = match act {
        Act::Plain(x) if l.rounds(&l.op_at(op).weights[2]) => Act::Rounded(l.passing(x, width(l, op, used))),
        other => other,
    };
    let pushes = sum::pushes(l, op);
    second_half(l, op, used, Ends { picked: l.input(1), act: x, shared: None, to, pushes })
}

/// Router, experts and shared expert in three launches.
pub(crate) fn moe(l: &mut Lower<'_>, moe: &Moe) -> Result<()> {
    let local = l.op_at(moe.route);
    let Kind::Route(routing) = &local.kind else { return Err(Error::Plan("a router routes".into())) };
    let picked = l.apart("picked", &local.outputs[0]);
    let (router, bias) = route::router(l, routing);
    let choice = Choice { routing, logits: router.to.clone(), bias };
    let mut parts = vec![router];
    parts.extend(moe.shared.as_ref().map(|s| gated(l, s.gate)));
    Product::new(parts, Input::Value(local.inputs[0])).launch(l);
    let (to, pushes) = (l.value(&l.op_at(moe.last()).outputs[0]), sum::pushes(l, moe.last()));
    let gate = &l.op_at(moe.experts).weights[0];
    let grouped = grouped(l, moe.experts);
    if grouped || gate.rows.is_empty() || gate.copies.is_empty() {
        route::choose(l, &choice, picked.clone());
    }
    if grouped {
        return many(l, moe.experts, routing.used, Many { picked, shared: moe.shared.as_ref(), to });
    }
    let act = first_half(l, moe.experts, routing.used, picked.clone(), Some(choice))?;
    second_half(l, moe.experts, routing.used, Ends { picked, act, shared: moe.shared.as_ref(), to, pushes })
}

/// What the first half leaves.
enum Act {
    Plain(Slot),
    Rounded([Slot; 2]),
}

/// Elements of a row of it.
fn width(l: &Lower<'_>, op: usize, used: usize) -> usize {
    used * l.op_at(op).weights[0].rows.len()
}

/// `silu(gate x) * (up x)` of the chosen experts of op `op`; with a choice, the same launch makes that.
fn first_half(
    l: &mut Lower<'_>,
    op: usize,
    used: usize,
    picked: Slot,
    choice: Option<Choice<'_>>,
) -> Result<Act> {
    let [gate, up, down] = l.op_at(op).weights.as_slice() else {
        return Err(Error::Plan("experts have three weights".into()));
    };
    let (input, inner, width) = (l.op_at(op).inputs[0], gate.rows.len(), width(l, op, used));
    let round = choice.is_some() && l.rounds(down) && width > l.choices.narrow && inner.is_multiple_of(32);
    let act = match round {
        true => Act::Rounded(l.passing_room(width)),
        false => Act::Plain(l.program.scratch(Scratch::Experts, l.rows() * width.max(1) * 4)),
    };
    if inner == 0 || gate.copies.is_empty() {
        return Ok(act);
    }
    let [for_gate, for_up] = [gate, up].map(|w| l.rounds(w));
    let [codes, scales] = l.activations(&input, for_gate || for_up);
    let mut unit = held(l.unit("experts"), gate).int("OUTS", inner).int("USED", used);
    for (name, w, fast) in [("GATE", gate, for_gate), ("UP", up, for_up)] {
        let kind = unit.matrix(w.quant, w.bytes_a_row(), w.cols.len(), fast);
        unit = unit.int(name, kind);
    }
    let bytes = gate.bytes_a_row() + up.bytes_a_row();
    // rows have blocks of their own, and those of all rows are a wave
    let all = inner * used * bytes * l.tile();
    let (unit, deal) = wave::deal(unit, all, [THREADS, l.choices.multiprocessors, 1], |most| {
        let own = wave::own(inner, bytes, all.div_ceil(most), if round { 32 } else { 4 });
        Deal { blocks: l.tile() * used * inner.div_ceil(own), largest: own * bytes, what: own }
    });
    let unit = unit.int("OWN", deal.what).int("ROUND", u8::from(round)).int("BLOCK", THREADS);
    let (unit, chosen) = route::here(unit, choice);
    let mut args = vec![Slot::Step];
    args.extend(chosen);
    args.extend([picked, l.weight_of(op, 0), l.weight_of(op, 1), l.value(&input), codes, scales]);
    args.extend(match &act {
        Act::Plain(out) => [out.clone(), Slot::None, Slot::None],
        Act::Rounded([codes, scales]) => [Slot::None, codes.clone(), scales.clone()],
    });
    let blocks = inner.div_ceil(deal.what) as u32;
    let grid = [Axis::Blocks(blocks), Axis::Blocks(used as u32), Axis::Rows(1)];
    l.call(unit, grid, THREADS as u32, args);
    Ok(act)
}

/// What the second half begins and ends with.
struct Ends<'a> {
    picked: Slot,
    act: Act,
    shared: Option<&'a Shared>,
    to: Slot,
    /// Is what comes out pushed to the other ranks?
    pushes: bool,
}

fn second_half(l: &mut Lower<'_>, op: usize, used: usize, ends: Ends<'_>) -> Result<()> {
    let down = &l.op_at(op).weights[2];
    let fast = l.rounds(down);
    let mut unit = held(l.unit("down"), down).int("OUTS", down.rows.len()).int("USED", used);
    unit.matrix(down.quant, down.bytes_a_row(), down.cols.len(), fast);
    let here = fast && !down.cols.is_empty() && matches!(ends.act, Act::Plain(_));
    let mut args = vec![Slot::Step, ends.picked, l.weight_of(op, 2)];
    args.extend(match ends.act {
        Act::Plain(x) => [x, Slot::None, Slot::None],
        Act::Rounded([codes, scales]) => [Slot::None, codes, scales],
    });
    let (unit, shared) = beside(l, unit, ends.shared);
    args.extend(shared);
    let (unit, peers) = sum::pushing(unit, l, ends.pushes);
    args.extend([ends.to, peers]);
    if used > MOST_USED {
        return Err(Error::Plan(format!("a token uses {used} experts, kernels have room for {MOST_USED}")));
    }
    let teams = (THREADS / 32).div_ceil(used);
    let (outs, threads) = (down.rows.len(), 32 * teams * used);
    let all = outs * l.tile();
    let (unit, deal) = wave::deal(unit, all, [threads, l.choices.multiprocessors, 1], |most| {
        let least = teams.next_multiple_of(sum::sets(l, ends.pushes));
        let own = wave::own(outs, 1, all.div_ceil(most), least);
        Deal { blocks: l.tile() * outs.div_ceil(own), largest: own, what: own }
    });
    let unit =
        unit.int("ROUND", u8::from(here)).int("OWN", deal.what).int("TEAMS", teams).int("BLOCK", threads);
    let grid = [Axis::Blocks(outs.div_ceil(deal.what) as u32), Axis::Blocks(1), Axis::Rows(1)];
    l.call(unit, grid, threads as u32, args);
    Ok(())
}

/// The shared expert's second half: its weight and activations.
fn beside(l: &mut Lower<'_>, mut unit: Unit, shared: Option<&Shared>) -> (Unit, [Slot; 4]) {
    let none = || Slot::None;
    let Some(shared) = shared else {
        return (unit.int("SHARED", 0).int("ROUND_H", 0), [none(), none(), none(), none()]);
    };
    let op = l.op_at(shared.down);
    let (w, h): (&LocalWeight, Place) = (&op.weights[0], op.inputs[0]);
    let fast = l.rounds(w);
    let known = l.known(&h).filter(|_| fast);
    let second = unit.matrix(w.quant, w.bytes_a_row(), w.cols.len(), fast);
    let unit = unit.int("SHARED", 1).int("SECOND", second);
    let unit = unit.int("ROUND_H", u8::from(fast && known.is_none() && !w.cols.is_empty()));
    let [codes, scales] = known.unwrap_or([none(), none()]);
    (unit, [l.weight_of(shared.down, 0), l.value(&h), codes, scales])
}

/// Are rows grouped by the experts that they use?
fn grouped(l: &Lower<'_>, op: usize) -> bool {
    let weights = &l.op_at(op).weights;
    l.many() && weights.iter().all(|w| l.rounds(w) && !w.rows.is_empty() && !w.copies.is_empty())
}

/// What experts of many rows begin and end with.
struct Many<'a> {
    picked: Slot,
    shared: Option<&'a Shared>,
    to: Slot,
}

/// Both halves for many rows, by tensor cores, and the shared expert's second half.
fn many(l: &mut Lower<'_>, op: usize, used: usize, Many { picked, shared, to }: Many<'_>) -> Result<()> {
    let [gate, up, down] = l.op_at(op).weights.as_slice() else {
        return Err(Error::Plan("experts have three weights".into()));
    };
    let (input, inner, outs) = (l.op_at(op).inputs[0], gate.rows.len(), down.rows.len());
    let asks = asks(l, gate, used, picked.clone());
    // in this order, as the room for one may be the other's
    let act = l.passing_room(used * inner);
    let x = l.activations(&input, true);
    let form = Form::Gated(up, l.weight_of(op, 1));
    let first =
        Part { form, rounded: Some(act.clone()), ..Part::plain(gate, l.weight_of(op, 0), Slot::None) };
    matmul::experts(l, &asks, &first, x, false);
    let made = l.program.scratch(Scratch::Experts, l.rows() * used * outs * 4);
    let second = Part::plain(down, l.weight_of(op, 2), made.clone());
    matmul::experts(l, &asks, &second, act, true);
    let beside = shared.map_or(Slot::None, |shared| {
        let down = l.op_at(shared.down);
        let beside = l.between("beside", outs);
        let part = Part::plain(&down.weights[0], l.weight_of(shared.down, 0), beside.clone());
        Product::new(vec![part], Input::Value(down.inputs[0])).launch(l);
        beside
    });
    let unit = held(l.unit("weigh"), down).int("WIDTH", outs).int("USED", used);
    let unit = unit.int("BESIDE", u8::from(shared.is_some()));
    l.along(unit, outs, 256, vec![Slot::Step, picked, made, beside, to]);
    Ok(())
}

/// Groups the rows by the experts that they use.
fn asks(l: &mut Lower<'_>, w: &LocalWeight, used: usize, picked: Slot) -> Asks {
    let (all, experts) = (l.rows() * used, w.copies.len());
    let asked = l.program.scratch(Scratch::Asks, all * 4);
    let tiles = l.program.scratch(Scratch::Tiles, (1 + matmul::most_tiles(all, experts)) * 16);
    let unit = held(l.unit("group"), w).int("USED", used).int("TILE", matmul::TILE);
    let one = Axis::Blocks(1);
    l.call(unit, [one, one, one], 1024, vec![Slot::Step, picked, asked.clone(), tiles.clone()]);
    Asks { used, lists: [asked, tiles] }
}

/// Which experts are here.
fn held(unit: Unit, w: &LocalWeight) -> Unit {
    unit.int("FIRST", w.copies.start).int("COPIES", w.copies.len())
}
