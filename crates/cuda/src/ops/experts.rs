//! The chosen experts' gated feed-forwards, weighed and added.

use shardwright_model::plan::LocalWeight;

use crate::lower::Lower;
use crate::program::{Axis, Scratch, Slot};
use crate::unit::Unit;
use crate::{Error, Result};

pub(crate) fn experts(l: &mut Lower<'_>, used: usize) -> Result<()> {
    let [gate, up, down] = l.local().weights.as_slice() else {
        return Err(Error::Plan("experts have three weights".into()));
    };
    let inner = gate.rows.len();
    let act = l.program.scratch(Scratch::Experts, l.rows() * used * inner.max(1) * 4);
    if inner > 0 && !gate.copies.is_empty() {
        if gate.quant == up.quant {
            let [g, u] = [l.weight(0), l.weight(1)];
            half(l, gate, used, [g, u], act.clone());
        } else {
            let bytes = l.rows() * used * inner * 4;
            let [g, u] = [Scratch::Gates, Scratch::Ups].map(|what| l.program.scratch(what, bytes));
            let (gates, ups) = (l.weight(0), l.weight(1));
            half(l, gate, used, [gates, Slot::None], g.clone());
            half(l, up, used, [ups, Slot::None], u.clone());
            let unit = l.unit("pointwise").int("WIDTH", used * inner).int("WHAT", "SWIGLU");
            l.along(unit, used * inner, 256, vec![Slot::Step, g, u, act.clone()]);
        }
    }
    let fast = l.rounds(down);
    let [x, scales] = l.passing(act, used * inner, fast);
    let unit = held(l.matrix("down", down, fast), down).int("OUTS", down.rows.len()).int("USED", used);
    let args = vec![Slot::Step, l.input(1), l.weight(2), x, scales, l.output(0)];
    let blocks = Axis::Blocks(down.rows.len().div_ceil(8) as u32);
    l.call(unit, [blocks, Axis::Blocks(1), Axis::Rows(1)], 256, args);
    Ok(())
}

/// One weight's products, or both with the gate applied.
fn half(l: &mut Lower<'_>, w: &LocalWeight, used: usize, weights: [Slot; 2], to: Slot) {
    let fast = l.rounds(w);
    let [x, scales] = l.activations(&l.local().inputs[0], fast);
    let pair = u8::from(weights[1] != Slot::None);
    let unit =
        held(l.matrix("experts", w, fast), w).int("OUTS", w.rows.len()).int("USED", used).int("PAIR", pair);
    let [gate, up] = weights;
    let args = vec![Slot::Step, l.input(1), gate, up, x, scales, to];
    let grid = [Axis::Blocks(w.rows.len().div_ceil(8) as u32), Axis::Blocks(used as u32), Axis::Rows(1)];
    l.call(unit, grid, 256, args);
}

/// Which experts are here.
fn held(unit: Unit, w: &LocalWeight) -> Unit {
    unit.int("FIRST", w.copies.start).int("COPIES", w.copies.len())
}
