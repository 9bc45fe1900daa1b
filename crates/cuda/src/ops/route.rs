//! The router: which experts a row uses, and with what weights.

use shardwright_model::op::{Gating, GroupScore, Routing};

use super::linear::{Form, Part, product};
use crate::lower::Lower;
use crate::program::{Axis, Scratch, Slot};

pub(crate) fn route(l: &mut Lower<'_>, routing: &Routing) {
    let logits = l.program.scratch(Scratch::Routes, l.rows() * routing.experts * 4);
    let w = &l.local().weights[0];
    let router = Part { slot: l.weight(0), bias: Slot::None, outs: w.rows.len(), to: logits.clone() };
    // near ties decide which experts run
    product(l, w, &[router], Form::Exact);
    let bias = if l.local().weights.len() > 1 { l.weight(1) } else { Slot::None };
    let (groups, kept, score) = routing.groups.unwrap_or((1, 1, GroupScore::Max));
    let unit = l.unit("route").int("EXPERTS", routing.experts).int("USED", routing.used);
    let unit = unit.int("SIGMOID", u8::from(routing.gating == Gating::Sigmoid));
    let unit = unit.int("BIAS", u8::from(bias != Slot::None)).int("NORMALIZE", u8::from(routing.normalize));
    let unit = unit.int("GROUPS", groups).int("KEPT", kept).float("SCALE", routing.scale);
    let unit = unit.int("BEST_TWO", u8::from(score == GroupScore::BestTwo));
    let grid = [Axis::Blocks(1), Axis::Blocks(1), Axis::Rows(1)];
    l.call(unit, grid, 256, vec![Slot::Step, logits, bias, l.output(0)]);
}
