//! Element by element, and the sum over ranks.

use shardwright_model::exec::Wire;

use crate::lower::Lower;
use crate::program::Slot;

pub(crate) fn swiglu(l: &mut Lower<'_>) {
    let (a, b) = (l.input(0), l.input(1));
    pointwise(l, "SWIGLU", a, b);
}

pub(crate) fn add(l: &mut Lower<'_>) {
    let (a, b) = (l.input(0), l.input(1));
    pointwise(l, "ADD", a, b);
}

/// `from` as it is.
pub(crate) fn copy(l: &mut Lower<'_>, from: Slot) {
    pointwise(l, "COPY", from, Slot::None);
}

fn pointwise(l: &mut Lower<'_>, what: &'static str, a: Slot, b: Slot) {
    let width = l.local().outputs[0].width;
    let unit = l.unit("pointwise").int("WIDTH", width).int("WHAT", what);
    l.along(unit, width, 256, vec![Slot::Step, a, b, l.output(0)]);
}

/// The same of ranks on one device.
pub(crate) fn sum(l: &mut Lower<'_>) {
    if let [_] = l.plans {
        return copy(l, l.input(0));
    }
    let width = l.local().outputs[0].width;
    let of = |place: fn(&shardwright_model::plan::LocalOp) -> usize| {
        let slots =
            l.plans.iter().enumerate().map(|(rank, p)| Slot::Value { rank, slot: place(&p.ops[l.at]) });
        Slot::List(slots.collect())
    };
    let args = vec![Slot::Step, of(|op| op.inputs[0].slot), of(|op| op.outputs[0].slot)];
    let wire = match l.choices.ranks.wire {
        Wire::F32 => "F32",
        Wire::Bf16 => "BF16",
    };
    let unit = l.unit("sum").int("WIDTH", width).int("RANKS", l.plans.len()).int("WIRE", wire);
    l.along(unit, width, 256, args);
}
