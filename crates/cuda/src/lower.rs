//! Rank plans to a program: which kernels each op becomes.

use std::collections::HashMap;

use shardwright_gguf::QuantType;
use shardwright_model::exec::Ranks;
use shardwright_model::op::Kind;
use shardwright_model::plan::{LocalOp, LocalWeight, Place, RankPlan};
use shardwright_model::watch;

use crate::fuse::{Block, Fused};
use crate::ops;
use crate::program::{Axis, Call, Program, Scratch, Slot};
use crate::step::StepLayout;
use crate::unit::Unit;
use crate::{Error, Result};

/// Values that lie rounded at a time: the stream's, a projection's, and what goes on from there.
const ROUNDED: usize = 3;

/// Words of a row for each block that hashes rows.
const HASHED: usize = 1024;

/// Rows of activations that kernels without tensor cores take at a time, at most.
pub(crate) const FEW: u32 = 8;

/// How far a step may look back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// No row has more positions than sparse attention keeps, so all are attended to, and none scored.
    Short,
    /// Any.
    Long,
}

impl Tier {
    /// Positions that every indexer of a model keeps; none if it has none.
    pub(crate) fn kept(plans: &[RankPlan]) -> Option<usize> {
        let ops = plans.iter().flat_map(|p| &p.ops);
        let keeps =
            ops.filter_map(|op| if let Kind::Index { keep, .. } = op.kind { Some(keep) } else { None });
        keeps.min()
    }

    /// Those that steps of a model may be of.
    pub(crate) fn of(plans: &[RankPlan], context: usize) -> &'static [Tier] {
        match Tier::kept(plans) {
            Some(keep) if context > keep => &[Tier::Short, Tier::Long],
            _ => &[Tier::Short],
        }
    }
}

/// What a program is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choices {
    /// Room for a step's numbers.
    pub layout: StepLayout,
    /// Most positions of a sequence.
    pub context: usize,
    /// Are activations rounded to 8 bits in front of quantized weights, and is the cache f16?
    pub fast: bool,
    /// Rows of activations that a matrix kernel takes at a time. More than eight: tensor cores take as many as is good for them.
    pub tile: u32,
    /// May ops become one kernel? Their values in between are then nowhere.
    pub fuse: bool,
    /// How ranks are summed, and whether what they must have in common is hashed.
    pub ranks: Ranks,
    /// How far steps look back.
    pub tier: Tier,
    /// Values of no more elements are rounded by each block that reads them, wider ones by those that write them.
    pub narrow: usize,
    /// Where each rank has a device of its own, packets that fit into a peer's part of its inbox; else none.
    pub inbox: usize,
    /// Where each rank has a device of its own, does a library add up over them, in place of inboxes?
    pub nccl: bool,
    /// Multiprocessors that launches are dealt for.
    pub multiprocessors: usize,
    /// Nanoseconds that pass in place of each sum over ranks, where one rank is run by itself; none if nothing stands there.
    pub delay: u64,
    /// Of sums over devices: one, or two, where each rank adds up a share for all.
    pub legs: usize,
}

impl Choices {
    /// Are products, where activations are rounded, of tensor cores?
    pub(crate) fn many(&self) -> bool {
        self.fast && self.tile > FEW
    }

    /// Do sums go over devices?
    pub(crate) fn apart(&self) -> bool {
        self.nccl || self.inbox > 0
    }
}

/// The program of all ranks of a description on one device, op by op.
///
/// # Errors
/// If an op has a form that this backend does not know.
pub fn lower(plans: &[RankPlan], choices: Choices) -> Result<Program> {
    let Some(first) = plans.first() else { return Err(Error::Zero("rank")) };
    let fused = if choices.fuse { Fused::of(plans) } else { Fused::none(first.ops.len()) };
    // what many rows read is best rounded once
    let narrow = if choices.many() { 0 } else { choices.narrow };
    let mut lower = Lower {
        choices: Choices { narrow, ..choices },
        plans,
        rank: 0,
        at: 0,
        fused,
        moved: HashMap::new(),
        rounded: [None; ROUNDED],
        turn: 0,
        waiting: None,
        pushed: None,
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
        let done = lower.fused.blocks.get(&at).map_or(at, Block::last);
        while !lower.fused.swallowed[at] && points.get(hashed).is_some_and(|op| *op <= done) {
            (0..plans.len()).for_each(|rank| lower.hash(rank, points[hashed], hashed));
            hashed += 1;
        }
        lower.program.ends.push(lower.program.calls.len());
    }
    ops::sum::make_even(&mut lower);
    // what comes last belongs to the last op
    if let Some(end) = lower.program.ends.last_mut() {
        *end = lower.program.calls.len();
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
    /// Where values of a rank lie that are made out of their turn, so that their slots are not yet or no longer theirs.
    moved: HashMap<(usize, usize), Slot>,
    /// The values that lie rounded in the scratch memories.
    rounded: [Option<Rounded>; ROUNDED],
    /// The last of them.
    turn: usize,
    /// A norm that the next launch makes on its way.
    pub(crate) waiting: Option<usize>,
    /// The slot of an exchange that a product has pushed, and the next norm receives.
    pub(crate) pushed: Option<usize>,
    pub(crate) program: Program,
}

impl<'a> Lower<'a> {
    pub(crate) fn local(&self) -> &'a LocalOp {
        self.op_at(self.at)
    }

    pub(crate) fn op_at(&self, op: usize) -> &'a LocalOp {
        &self.plans[self.rank].ops[op]
    }

    fn op(&mut self) -> Result<()> {
        match self.fused.blocks.get(&self.at).cloned() {
            Some(Block::Mla(mla)) => ops::attend_mla::fused(self, &mla),
            Some(Block::Gqa(gqa)) => ops::attend_gqa::fused(self, &gqa),
            Some(Block::Moe(moe)) => ops::experts::moe(self, &moe)?,
            None => self.alone()?,
        }
        Ok(())
    }

    fn alone(&mut self) -> Result<()> {
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
            Kind::AttendGqa { cache, .. } => ops::attend_gqa::attend(self, *cache),
            Kind::AttendMla { latent, cache, .. } => ops::attend_mla::attend(self, *latent, *cache),
            Kind::Index { cache, .. } => ops::index::index(self, *cache),
            Kind::SwiGlu => ops::pointwise::swiglu(self),
            Kind::Add => ops::pointwise::add(self),
            Kind::Route(routing) => ops::route::route(self, routing),
            Kind::Experts { used } => ops::experts::experts(self, *used)?,
            Kind::Sum => ops::sum::sum(self),
        }
        Ok(())
    }

    /// The hash of what an op of a rank has made.
    fn hash(&mut self, rank: usize, op: usize, point: usize) {
        self.rank = rank;
        let (kind, place) = (&self.op_at(op).kind, self.op_at(op).outputs[0]);
        if matches!(kind, Kind::Index { .. }) && self.choices.tier == Tier::Short {
            return;
        }
        let unit = Unit::new("hash").int("WIDTH", place.width);
        let blocks = place.width.div_ceil(HASHED) as u32;
        let grid = [Axis::Blocks(blocks), Axis::Blocks(1), Axis::Blocks(1)];
        let args = vec![Slot::Step, self.value(&place), Slot::Hash { rank, point }];
        self.call(unit, grid, 256, args);
    }

    /// A kernel of this step.
    pub(crate) fn unit(&self, stem: &'static str) -> Unit {
        Unit::new(stem).int("MAX_ROWS", self.rows())
    }

    /// A call, unless it has nothing to do.
    pub(crate) fn call(&mut self, unit: Unit, grid: [Axis; 3], block: u32, args: Vec<Slot>) {
        if grid.contains(&Axis::Blocks(0)) {
            return;
        }
        let shared = unit.shared();
        let unit = self.program.unit(unit);
        self.program.calls.push(Call { unit, grid, block, shared, args });
    }

    /// A call for each row, with blocks of `block` threads along `width` elements.
    pub(crate) fn along(&mut self, unit: Unit, width: usize, block: u32, args: Vec<Slot>) {
        let blocks = Axis::Blocks(width.div_ceil(block as usize) as u32);
        self.call(unit, [blocks, Axis::Blocks(1), Axis::Rows(1)], block, args);
    }

    pub(crate) fn value(&self, place: &Place) -> Slot {
        let moved = self.moved.get(&(self.rank, place.value)).cloned();
        moved.unwrap_or(Slot::Value { rank: self.rank, slot: place.slot })
    }

    /// Memory for rows of `width` elements that ops made as one leave each other.
    pub(crate) fn between(&mut self, what: &'static str, width: usize) -> Slot {
        let bytes = self.rows() * width * 4;
        self.program.scratch(Scratch::Between(what, self.rank), bytes)
    }

    /// Where a value goes that is made out of its turn: to memory of its own, rounded if it is wide and wanted so, and then
    /// only so if nobody wants it otherwise.
    /// It is written in runs of `run`.
    pub(crate) fn handed(
        &mut self,
        what: &'static str,
        place: &Place,
        run: usize,
    ) -> (Slot, Option<[Slot; 2]>) {
        let wide = place.width > self.choices.narrow && run.is_multiple_of(32);
        let rounded = (wide && self.wanted_rounded(place.value)).then(|| self.room(place));
        // what lies rounded for many ranks gives way before all of it is read
        let alone = rounded.is_some() && self.plans.len() == 1;
        if alone && self.readers(place.value).all(|op| self.reads_rounded(op)) {
            return (Slot::None, rounded);
        }
        (self.apart(what, place), rounded)
    }

    /// Memory of its own for a value that is made out of its turn.
    pub(crate) fn apart(&mut self, what: &'static str, place: &Place) -> Slot {
        let memory = self.between(what, place.width);
        self.moved.insert((self.rank, place.value), memory.clone());
        memory
    }

    /// The number of an op, for kernels that name it.
    pub(crate) fn number(&mut self, op: usize) -> Slot {
        self.program.constant(&[f32::from_bits(op as u32)])
    }

    pub(crate) fn input(&self, i: usize) -> Slot {
        self.value(&self.local().inputs[i])
    }

    pub(crate) fn output(&self, j: usize) -> Slot {
        self.value(&self.local().outputs[j])
    }

    pub(crate) fn weight(&self, index: usize) -> Slot {
        self.weight_of(self.at, index)
    }

    pub(crate) fn weight_of(&self, op: usize, index: usize) -> Slot {
        Slot::Weight { rank: self.rank, op, index }
    }

    pub(crate) fn cache(&self, slot: usize) -> Slot {
        Slot::Cache { rank: self.rank, slot }
    }

    /// Elements of a cache slot's line here.
    pub(crate) fn line(&self, slot: usize) -> usize {
        self.plans[self.rank].caches[slot].width
    }

    /// Is this a program for steps of many rows?
    pub(crate) fn many(&self) -> bool {
        self.choices.many()
    }

    /// Rows of activations that a kernel without tensor cores takes at a time.
    pub(crate) fn tile(&self) -> usize {
        self.choices.tile.min(FEW) as usize
    }

    /// Most rows of a step.
    pub(crate) fn rows(&self) -> usize {
        self.choices.layout.rows
    }

    /// Is a product with this weight one with rounded activations?
    pub(crate) fn rounds(&self, w: &LocalWeight) -> bool {
        self.choices.fast && !is_plain(w.quant)
    }

    /// A value rounded, if it's wanted so, and its scales. Each value is written once, so what lies rounded stays right.
    pub(crate) fn activations(&mut self, place: &Place, fast: bool) -> [Slot; 2] {
        if !fast {
            return [Slot::None, Slot::None];
        }
        self.known(place).unwrap_or_else(|| {
            let to = self.room(place);
            self.quantize(self.value(place), place.width, [place.width, place.width, 0], to)
        })
    }

    /// Where a value lies rounded, if it does.
    pub(crate) fn known(&mut self, place: &Place) -> Option<[Slot; 2]> {
        let known = Some(Rounded::Value { rank: self.rank, value: place.value });
        let n = self.rounded.iter().position(|r| *r == known)?;
        Some(self.places(n, place.width))
    }

    /// Rounds what lies in the scratch memory, which other ops write too: `width` elements a row.
    pub(crate) fn passing(&mut self, from: Slot, width: usize) -> [Slot; 2] {
        self.passing_runs(from, width, [width, width, 0])
    }

    /// The same of `[run, unit, start]`: runs that are taken from `start` on of every `unit` elements.
    pub(crate) fn passing_runs(&mut self, from: Slot, width: usize, runs: [usize; 3]) -> [Slot; 2] {
        let to = self.passing_room(width);
        self.quantize(from, width, runs, to)
    }

    /// Where such is about to be rounded to.
    pub(crate) fn passing_room(&mut self, width: usize) -> [Slot; 2] {
        self.next(Rounded::Passing, width)
    }

    fn quantize(
        &mut self,
        from: Slot,
        width: usize,
        [run, unit, start]: [usize; 3],
        [codes, scales]: [Slot; 2],
    ) -> [Slot; 2] {
        let runs = self.unit("quantize").int("WIDTH", width).int("RUN", run);
        let unit = runs.int("UNIT", unit).int("START", start);
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

    /// The ops that read a value.
    fn readers(&self, value: usize) -> impl Iterator<Item = &'a LocalOp> + use<'a> {
        let ops = &self.plans[self.rank].ops;
        ops.iter().filter(move |op| op.inputs.iter().any(|p| p.value == value))
    }

    /// The last op that reads a value.
    pub(crate) fn last_read(&self, value: usize) -> usize {
        let ops = &self.plans[self.rank].ops;
        ops.iter().rposition(|op| op.inputs.iter().any(|p| p.value == value)).unwrap_or(0)
    }

    /// Is a value wanted in 8 bits?
    pub(crate) fn wanted_rounded(&self, value: usize) -> bool {
        let first = |op: &&LocalOp| op.inputs[0].value == value;
        self.choices.fast
            && self.readers(value).filter(first).any(|op| match op.kind {
                Kind::Linear { .. } => op.weights[..op.outputs.len()].iter().any(|w| self.rounds(w)),
                Kind::PerHead { transposed: false } | Kind::Experts { .. } | Kind::Logits => {
                    self.rounds(&op.weights[0])
                }
                _ => false,
            })
    }

    /// Does an op read its input in 8 bits alone?
    fn reads_rounded(&self, op: &LocalOp) -> bool {
        let projects = matches!(op.kind, Kind::Linear { .. });
        projects && op.weights[..op.outputs.len()].iter().all(|w| self.rounds(w))
    }
}

/// Has this type a scale and a minimum for each block, or is each element a number of its own?
pub(crate) fn is_plain(quant: QuantType) -> bool {
    quant.block_len() == 1
}
