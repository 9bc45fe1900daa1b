//! Rank plans to a program: which kernels each op becomes.

use shardwright_gguf::QuantType;
use shardwright_model::exec::Ranks;
use shardwright_model::op::Kind;
use shardwright_model::plan::{LocalOp, LocalWeight, Place, RankPlan};
use shardwright_model::watch;

use crate::fuse::Fused;
use crate::ops;
use crate::program::{Axis, Call, Program, Scratch, Slot};
use crate::step::StepLayout;
use crate::unit::Unit;
use crate::{Error, Result};

/// Values that lie rounded at a time: the stream's, a projection's, and what goes on from there.
const ROUNDED: usize = 3;

/// Words of a row for each block that hashes rows.
const HASHED: usize = 1024;

/// What a program is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choices {
    /// Room for a step's numbers.
    pub layout: StepLayout,
    /// Most positions of a sequence.
    pub context: usize,
    /// Are activations rounded to 8 bits in front of quantized weights, and is the cache f16?
    pub fast: bool,
    /// Rows of activations that a matrix kernel takes at a time.
    pub tile: u32,
    /// May ops become one kernel? Their values in between are then nowhere.
    pub fuse: bool,
    /// How ranks are summed, and whether what they must have in common is hashed.
    pub ranks: Ranks,
}

/// The program of all ranks of a description on one device, op by op.
///
/// # Errors
/// If an op has a form that this backend does not know.
pub fn lower(plans: &[RankPlan], choices: Choices) -> Result<Program> {
    let Some(first) = plans.first() else { return Err(Error::Zero("rank")) };
    let fused = if choices.fuse { Fused::of(plans) } else { Fused::none(first.ops.len()) };
    let mut lower = Lower {
        choices,
        plans,
        rank: 0,
        at: 0,
        fused,
        rounded: [None; ROUNDED],
        turn: 0,
        program: Program::default(),
    };
    let points = if choices.ranks.check && first.ranks > 1 { watch::points(&first.ops) } else { vec![] };
    let mut hashed = 0;
    for at in 0..first.ops.len() {
        // a sum is one call for all ranks
        let ranks = if first.ops[at].kind == Kind::Sum { 1 } else { plans.len() };
        for rank in 0..if lower.fused.swallowed[at] { 0 } else { ranks } {
            (lower.at, lower.rank) = (at, rank);
            lower.op()?;
        }
        // a value of an op that another one does lies there when that one is done
        while !lower.fused.swallowed[at] && points.get(hashed).is_some_and(|op| *op <= at) {
            (0..plans.len()).for_each(|rank| lower.hash(rank, points[hashed], hashed));
            hashed += 1;
        }
        lower.program.ends.push(lower.program.calls.len());
    }
    Ok(lower.program)
}

/// What lies in a memory for rounded values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rounded {
    /// A value of a rank.
    Value { rank: usize, value: usize },
    /// Something that nobody asks for again.
    Passing,
}

/// The op that is being lowered, and what was made so far.
pub(crate) struct Lower<'a> {
    pub(crate) choices: Choices,
    pub(crate) plans: &'a [RankPlan],
    pub(crate) rank: usize,
    pub(crate) at: usize,
    pub(crate) fused: Fused,
    /// The values that lie rounded in the scratch memories.
    rounded: [Option<Rounded>; ROUNDED],
    /// The last of them.
    turn: usize,
    pub(crate) program: Program,
}

impl<'a> Lower<'a> {
    pub(crate) fn local(&self) -> &'a LocalOp {
        &self.plans[self.rank].ops[self.at]
    }

    fn op(&mut self) -> Result<()> {
        match &self.local().kind {
            Kind::Embed => ops::embed::embed(self),
            Kind::Hidden => ops::embed::hidden(self),
            Kind::Concat => ops::shape::concat(self),
            Kind::Part { unit, start, len } => ops::shape::part(self, *unit, *start, *len),
            Kind::RmsNorm { width, eps } => ops::norm::rms(self, *width, *eps),
            Kind::LayerNorm { eps } => ops::norm::layer(self, *eps),
            Kind::Linear { biased } => ops::linear::linear(self, biased),
            Kind::PerHead { transposed } => ops::linear::per_head(self, *transposed),
            Kind::Logits => ops::linear::logits(self),
            Kind::Rotate { width, rope } => ops::rotate::rotate(self, *width, rope),
            Kind::AttendGqa { group, key, value, scale, cache } => {
                ops::attend_gqa::attend(self, *group, [*key, *value], *scale, *cache);
            }
            Kind::AttendMla { latent, rope, scale, cache } => {
                ops::attend_mla::attend(self, [*latent, *rope], *scale, *cache);
            }
            Kind::Index { heads, width, keep, cache } => {
                ops::index::index(self, *heads, *width, *keep, *cache);
            }
            Kind::SwiGlu => ops::pointwise::swiglu(self),
            Kind::Add => ops::pointwise::add(self),
            Kind::Route(routing) => ops::route::route(self, routing),
            Kind::Experts { used } => ops::experts::experts(self, *used)?,
            Kind::Sum => ops::pointwise::sum(self),
        }
        Ok(())
    }

    /// The hash of what an op of a rank has made.
    fn hash(&mut self, rank: usize, op: usize, point: usize) {
        let place = self.plans[rank].ops[op].outputs[0];
        let unit = Unit::new("hash").int("WIDTH", place.width);
        let blocks = place.width.div_ceil(HASHED) as u32;
        let value = Slot::Value { rank, slot: place.slot };
        let grid = [Axis::Blocks(blocks), Axis::Blocks(1), Axis::Blocks(1)];
        self.call(unit, grid, 256, vec![Slot::Step, value, Slot::Hash { rank, point }]);
    }

    /// Where the product of a gate goes that the op makes itself.
    pub(crate) fn gated(&self) -> Option<Place> {
        let next = self.plans[self.rank].ops.get(self.at + 1);
        next.filter(|_| self.fused.gated.contains(&self.at)).map(|next| next.outputs[0])
    }

    /// A kernel of this step.
    pub(crate) fn unit(&self, stem: &'static str) -> Unit {
        let StepLayout { rows, table } = self.choices.layout;
        Unit::new(stem).int("MAX_ROWS", rows).int("TABLE", table)
    }

    /// A call, unless it has nothing to do.
    pub(crate) fn call(&mut self, unit: Unit, grid: [Axis; 3], block: u32, args: Vec<Slot>) {
        if grid.contains(&Axis::Blocks(0)) {
            return;
        }
        let unit = self.program.unit(unit);
        self.program.calls.push(Call { unit, grid, block, args });
    }

    /// A call for each row, with blocks of `block` threads along `width` elements.
    pub(crate) fn along(&mut self, unit: Unit, width: usize, block: u32, args: Vec<Slot>) {
        let blocks = Axis::Blocks(width.div_ceil(block as usize) as u32);
        self.call(unit, [blocks, Axis::Blocks(1), Axis::Rows(1)], block, args);
    }

    pub(crate) fn value(&self, place: &Place) -> Slot {
        Slot::Value { rank: self.rank, slot: place.slot }
    }

    pub(crate) fn input(&self, i: usize) -> Slot {
        self.value(&self.local().inputs[i])
    }

    pub(crate) fn output(&self, j: usize) -> Slot {
        self.value(&self.local().outputs[j])
    }

    pub(crate) fn weight(&self, index: usize) -> Slot {
        Slot::Weight { rank: self.rank, op: self.at, index }
    }

    pub(crate) fn cache(&self, slot: usize) -> Slot {
        Slot::Cache { rank: self.rank, slot }
    }

    /// Elements of a cache slot's line here.
    pub(crate) fn line(&self, slot: usize) -> usize {
        self.plans[self.rank].caches[slot].width
    }

    /// Most rows of a step.
    pub(crate) fn rows(&self) -> usize {
        self.choices.layout.rows
    }

    /// Is a product with this weight one with rounded activations?
    pub(crate) fn rounds(&self, w: &LocalWeight) -> bool {
        self.choices.fast && !is_plain(w.quant)
    }

    /// A matrix kernel's unit for a weight: its format, the length of a row, and how activations come.
    pub(crate) fn matrix(&self, stem: &'static str, w: &LocalWeight, fast: bool) -> Unit {
        let unit = self.unit(stem).quant(w.quant).int("ROW_BYTES", w.bytes_a_row()).int("COLS", w.cols.len());
        unit.int("FAST", u8::from(fast))
    }

    /// A value as a matrix kernel takes it, and its scales. Each value is written once, so what lies rounded stays right.
    pub(crate) fn activations(&mut self, place: &Place, fast: bool) -> [Slot; 2] {
        if !fast {
            return [self.value(place), Slot::None];
        }
        let known = Some(Rounded::Value { rank: self.rank, value: place.value });
        match self.rounded.iter().position(|r| *r == known) {
            Some(n) => self.places(n, place.width),
            None => {
                let to = self.room(place);
                self.quantize(self.value(place), place.width, to)
            }
        }
    }

    /// The same for what lies in the scratch memory, which other ops write too: `width` elements a row.
    pub(crate) fn passing(&mut self, from: Slot, width: usize, fast: bool) -> [Slot; 2] {
        if !fast {
            return [from, Slot::None];
        }
        let to = self.next(Rounded::Passing, width);
        self.quantize(from, width, to)
    }

    fn quantize(&mut self, from: Slot, width: usize, [codes, scales]: [Slot; 2]) -> [Slot; 2] {
        let unit = self.unit("quantize").int("WIDTH", width);
        self.along(unit, width, 256, vec![Slot::Step, from, codes.clone(), scales.clone()]);
        [codes, scales]
    }

    /// Where a value is about to be rounded to.
    pub(crate) fn room(&mut self, place: &Place) -> [Slot; 2] {
        self.next(Rounded::Value { rank: self.rank, value: place.value }, place.width)
    }

    fn next(&mut self, what: Rounded, width: usize) -> [Slot; 2] {
        // they give way in turn
        self.turn = (self.turn + 1) % ROUNDED;
        self.rounded[self.turn] = Some(what);
        self.places(self.turn, width)
    }

    fn places(&mut self, n: usize, width: usize) -> [Slot; 2] {
        let rows = self.rows();
        let codes = self.program.scratch(Scratch::Codes(n), rows * width);
        [codes, self.program.scratch(Scratch::Scales(n), rows * width / 32 * 16)]
    }

    /// Is a value of this op wanted in 8 bits?
    pub(crate) fn wanted_rounded(&self, value: usize) -> bool {
        self.choices.fast && {
            let rest = &self.plans[self.rank].ops[self.at + 1..];
            rest.iter().filter(|op| op.inputs.first().is_some_and(|p| p.value == value)).any(|op| {
                match op.kind {
                    Kind::Linear { .. } => op.weights[..op.outputs.len()].iter().any(|w| self.rounds(w)),
                    Kind::PerHead { transposed: false } | Kind::Experts { .. } | Kind::Logits => {
                        self.rounds(&op.weights[0])
                    }
                    _ => false,
                }
            })
        }
    }
}

/// Has this type a scale and a minimum for each block, or is each element a number of its own?
pub(crate) fn is_plain(quant: QuantType) -> bool {
    quant.block_len() == 1
}
