//! What attention needs beside its matrices: runs of a row normed, rotated, and written to where they are wanted.

use shardwright_model::op::{Kind, RopeStyle};

use crate::lower::Lower;
use crate::program::{Axis, Slot};
use crate::unit::Unit;

/// Where the runs go.
pub(crate) enum To {
    /// To a value of its own, one behind the other.
    Value(Slot),
    /// To each row's line of a cache slot, from an element on.
    Cache(usize, usize),
}

/// The runs of one value.
pub(crate) struct Way {
    pub(crate) from: Slot,
    pub(crate) runs: usize,
    /// Elements of a run, taken from `start` on of every `unit` of them.
    pub(crate) width: usize,
    pub(crate) unit: usize,
    pub(crate) start: usize,
    /// The ops that norm and rotate them.
    pub(crate) norm: Option<usize>,
    pub(crate) rotate: Option<usize>,
    pub(crate) to: To,
}

/// The same as a kernel is told of it.
pub(crate) struct Line {
    pub(crate) runs: usize,
    kind: String,
    args: [Slot; 8],
}

impl Way {
    pub(crate) fn line(self, l: &mut Lower<'_>) -> Line {
        let none = || Slot::None;
        let (norm, eps) = match self.norm.map(|op| &l.op_at(op).kind) {
            Some(Kind::RmsNorm { eps, .. }) => ("LINE_RMS", *eps),
            Some(Kind::LayerNorm { eps }) => ("LINE_LAYER", *eps),
            _ => ("0", 0.0),
        };
        let weight = self.norm.map_or(none(), |op| l.weight_of(op, 0));
        let bias = self.norm.filter(|_| norm == "LINE_LAYER").map_or(none(), |op| l.weight_of(op, 1));
        let number = self.norm.map_or(none(), |op| l.number(op));
        let (rotation, [freqs, divisors]) = self.rotation(l);
        let (to, ends) = match self.to {
            To::Value(slot) => (slot, format!("0, {}, {}, 0", self.runs * self.width, self.width)),
            To::Cache(slot, start) => {
                (l.cache(slot), format!("1, {}, {}, {start}", l.line(slot), self.width))
            }
        };
        let Way { runs, width, unit, start, .. } = self;
        let from = format!("{runs}, {width}, {}, {unit}, {start}", runs * unit);
        let kind = format!("Line<{from}, {norm}, {:#x}, {rotation}, {ends}>", eps.to_bits());
        let args = [self.from, weight, bias, freqs, divisors, to, Slot::Spoiled, number];
        Line { runs, kind, args }
    }

    /// How many elements turn and how, with the addresses for that.
    fn rotation(&self, l: &mut Lower<'_>) -> (String, [Slot; 2]) {
        let op = self.rotate.map(|at| (at, l.op_at(at)));
        let Some((at, (Kind::Rotate { rope, .. }, weights))) =
            op.map(|(at, op)| (at, (&op.kind, &op.weights)))
        else {
            return ("0, 0, 0, 0".into(), [Slot::None, Slot::None]);
        };
        let interleaved = u8::from(rope.style == RopeStyle::Interleaved);
        let divisors = if weights.is_empty() { Slot::None } else { l.weight_of(at, 0) };
        let divided = u8::from(divisors != Slot::None);
        let text = format!("{}, {interleaved}, {divided}, {:#x}", rope.rotated, rope.magnitude.to_bits());
        (text, [l.program.constant(&rope.freqs), divisors])
    }
}

/// Tells a kernel of its lines.
pub(crate) fn described(unit: Unit, l: &Lower<'_>, lines: &[Line]) -> Unit {
    let kinds: Vec<&str> = lines.iter().map(|line| line.kind.as_str()).collect();
    let unit = unit.int("HALF", u8::from(l.choices.fast)).int("HAS_LINES", u8::from(!lines.is_empty()));
    unit.int("LINES", kinds.join(", "))
}

/// The addresses of lines.
pub(crate) fn args(lines: &[Line]) -> Slot {
    if lines.is_empty() {
        return Slot::None;
    }
    Slot::List(lines.iter().flat_map(|line| line.args.iter().cloned()).collect())
}

/// A launch of lines alone.
pub(crate) fn launch(l: &mut Lower<'_>, lines: &[Line]) {
    let runs: usize = lines.iter().map(|line| line.runs).sum();
    let unit = described(l.unit("lines"), l, lines);
    let grid = [Axis::Blocks(runs as u32), Axis::Blocks(1), Axis::Rows(1)];
    l.call(unit, grid, 256, vec![Slot::Step, args(lines)]);
}
