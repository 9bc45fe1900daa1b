//! The router: which experts a row uses, and with what weights.

use shardwright_model::op::{Gating, GroupScore, Routing};

use crate::lower::Lower;
use crate::product::{Input, Part, Product};
use crate::program::{Axis, Scratch, Slot};
use crate::unit::Unit;

pub(crate) fn route(l: &mut Lower<'_>, routing: &Routing) {
    let (part, bias) = router(l, routing);
    let choice = Choice { routing, logits: part.to.clone(), bias };
    Product::new(vec![part], Input::Value(l.local().inputs[0])).launch(l);
    choose(l, &choice, l.output(0));
}

/// What experts are chosen by.
pub(crate) struct Choice<'a> {
    pub(crate) routing: &'a Routing,
    pub(crate) logits: Slot,
    pub(crate) bias: Slot,
}

/// Chooses in a launch of its own.
pub(crate) fn choose(l: &mut Lower<'_>, Choice { routing, logits, bias }: &Choice<'_>, to: Slot) {
    let unit = described(l.unit("route").int("USED", routing.used), routing, *bias != Slot::None);
    let grid = [Axis::Blocks(1), Axis::Blocks(1), Axis::Rows(1)];
    l.call(unit, grid, 256, vec![Slot::Step, logits.clone(), bias.clone(), to]);
}

/// Has a kernel choose for itself, if there is a choice to make.
pub(crate) fn here(unit: Unit, choice: Option<Choice<'_>>) -> (Unit, [Slot; 2]) {
    match choice {
        Some(Choice { routing, logits, bias }) => {
            (described(unit.int("CHOOSE", 1), routing, bias != Slot::None), [logits, bias])
        }
        None => (unit.int("CHOOSE", 0), [Slot::None, Slot::None]),
    }
}

/// The router's matrix, and what is added to its outputs for the choice.
pub(crate) fn router<'a>(l: &mut Lower<'a>, routing: &Routing) -> (Part<'a>, Slot) {
    let logits = l.program.scratch(Scratch::Routes, l.rows() * routing.experts * 4);
    let weights = &l.local().weights;
    let bias = if weights.len() > 1 { l.weight(1) } else { Slot::None };
    // near ties decide which experts run
    (Part { exact: true, ..Part::plain(&weights[0], l.weight(0), logits) }, bias)
}

/// Tells a kernel how experts are chosen.
pub(crate) fn described(unit: Unit, routing: &Routing, biased: bool) -> Unit {
    let (groups, kept, score) = routing.groups.unwrap_or((1, 1, GroupScore::Max));
    let [sigmoid, biased, normalize, two] =
        [routing.gating == Gating::Sigmoid, biased, routing.normalize, score == GroupScore::BestTwo]
            .map(u8::from);
    let Routing { experts, used, scale, .. } = routing;
    let scale = scale.to_bits();
    let rule =
        format!("{experts}, {used}, {sigmoid}, {biased}, {normalize}, {groups}, {kept}, {two}, {scale:#x}");
    unit.int("EXPERTS", experts).int("ROUTING", rule)
}
