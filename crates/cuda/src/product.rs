//! The launch that does most of the work: matrices of any types over the same rows, how these rows come to be, what else
//! rides along.

use shardwright_model::plan::{LocalWeight, Place};

use crate::lines::{self, Line};
use crate::lower::{FEW, Lower};
use crate::matmul;
use crate::ops::softmax::Parts;
use crate::ops::{norm, sum};
use crate::planes;
use crate::program::{Axis, Slot};
use crate::unit::Unit;
use crate::wave::{self, Deal};

/// Threads of a block, and of one that norms its rows: that is much work to do anew in each.
const BLOCK: usize = 256;
const NORMING: usize = 512;

/// Matrices that one launch takes.
pub(crate) const PARTS: usize = 4;

/// What kernels call a matrix's numbers and the end of its blocks.
pub(crate) const NAMES: [(&str, &str); PARTS] =
    [("PART0", "END0"), ("PART1", "END1"), ("PART2", "END2"), ("PART3", "END3")];

/// Bytes that a block has for rows that it makes itself.
const ROOM: usize = 39 << 10;

/// What is made of a matrix's products.
pub(crate) enum Form<'a> {
    Plain,
    /// With a bias added.
    Biased(Slot),
    /// `silu(a) * b`, b of another matrix of as many rows.
    Gated(&'a LocalWeight, Slot),
}

impl Form<'_> {
    /// As kernels call it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Form::Plain => "PLAIN",
            Form::Biased(_) => "BIASED",
            Form::Gated(..) => "GATED",
        }
    }
}

/// One of the matrices.
pub(crate) struct Part<'a> {
    pub(crate) weight: &'a LocalWeight,
    pub(crate) slot: Slot,
    pub(crate) form: Form<'a>,
    /// Are activations never rounded for it?
    pub(crate) exact: bool,
    pub(crate) to: Slot,
    /// Where the outputs go rounded.
    pub(crate) rounded: Option<[Slot; 2]>,
}

impl<'a> Part<'a> {
    pub(crate) fn plain(weight: &'a LocalWeight, slot: Slot, to: Slot) -> Part<'a> {
        Part { weight, slot, form: Form::Plain, exact: false, to, rounded: None }
    }

    /// Outputs that a block of so many threads makes, in sets of so many, which should read about `fair` bytes.
    fn own(&self, l: &Lower<'_>, threads: usize, sets: usize, fair: usize) -> usize {
        let w = self.weight;
        let (lanes, slices) =
            planes::lanes_and_slices(w.quant, w.bytes_a_row(), w.cols.len(), self.rounds(l, w));
        let at_once = threads / lanes.max(1) / slices;
        // what shares a scale is of one block
        let sets = if self.rounded.is_some() { 32 } else { sets };
        wave::own(self.outs(), self.bytes(), fair, at_once.next_multiple_of(sets))
    }

    /// Bytes that it reads for an output.
    fn bytes(&self) -> usize {
        self.weights().map(LocalWeight::bytes_a_row).sum()
    }

    fn outs(&self) -> usize {
        self.weight.rows.len()
    }

    /// Its weight, and that of its gate's other half.
    pub(crate) fn weights(&self) -> impl Iterator<Item = &'a LocalWeight> + use<'a> {
        let other = if let Form::Gated(w, _) = self.form { Some(w) } else { None };
        std::iter::once(self.weight).chain(other)
    }

    fn rounds(&self, l: &Lower<'_>, w: &LocalWeight) -> bool {
        !self.exact && l.rounds(w)
    }

    /// Are activations rounded for all of it?
    pub(crate) fn all_round(&self, l: &Lower<'_>) -> bool {
        self.weights().all(|w| self.rounds(l, w))
    }

    /// What the kernel is told of it.
    fn described(&self, l: &Lower<'_>, unit: &mut Unit, own: usize) -> String {
        let mut kinds =
            self.weights().map(|w| unit.matrix(w.quant, w.bytes_a_row(), w.cols.len(), self.rounds(l, w)));
        let first = kinds.next().unwrap_or_default();
        let second = kinds.next().unwrap_or_else(|| first.clone());
        let (form, rounds) = (self.form.name(), u8::from(self.rounded.is_some()));
        format!("{first}, {second}, {}, {own}, {form}, {rounds}", self.outs())
    }

    pub(crate) fn second(&self) -> Slot {
        match &self.form {
            Form::Plain => Slot::None,
            Form::Biased(slot) | Form::Gated(_, slot) => slot.clone(),
        }
    }
}

/// What the rows are.
pub(crate) enum Input {
    /// A value as it lies.
    Value(Place),
    /// Elements from `start` on of runs of `unit`, one a row and head.
    Copied { from: Slot, unit: usize, start: usize },
    /// Rows through the RMS norm that is this op.
    Normed { from: Slot, op: usize },
    /// The parts of an attention, joined.
    Merged(Parts),
}

/// All of it.
pub(crate) struct Product<'a> {
    pub(crate) parts: Vec<Part<'a>>,
    pub(crate) input: Input,
    /// Only of the rows that want an answer?
    pub(crate) answer: bool,
    pub(crate) lines: Vec<Line>,
    /// Does it push what its only matrix makes, this rank's summand of a sum over devices?
    pub(crate) pushes: bool,
}

impl<'a> Product<'a> {
    pub(crate) fn new(parts: Vec<Part<'a>>, input: Input) -> Product<'a> {
        // parts that a rank has nothing of
        let parts = parts.into_iter().filter(|p| !p.weight.rows.is_empty() && !p.weight.copies.is_empty());
        let parts = parts.collect();
        Product { parts, input, answer: false, lines: vec![], pushes: false }
    }

    /// Makes it calls.
    pub(crate) fn launch(self, l: &mut Lower<'_>) {
        if l.many() { matmul::launch(self, l) } else { self.few(l) }
    }

    /// Makes it one call, for few rows at a time.
    pub(crate) fn few(self, l: &mut Lower<'_>) {
        let Some(first) = self.parts.first() else {
            // others may read the norm that this launch would have made
            if let Some(op) = l.waiting.take() {
                norm::now(l, op);
            }
            return;
        };
        let heads = first.weight.copies.len();
        let source = self.source(l);
        let room = if source.prepare == "AS_IT_LIES" { 0 } else { self.room(l) };
        let tile = l.tile().min(ROOM / room.max(1)).max(1);
        let block = if source.prepare == "NORMED" { NORMING } else { BLOCK };
        let mut unit = l.unit("linear").int("BLOCK", block).int("TILE", tile).int("HEADS", heads);
        unit = source.described(unit).int("PREPARED", room).int("ANSWER", u8::from(self.answer));
        // what is not rounded is not fetched ahead either
        let rows = if l.choices.fast || tile == 1 { tile } else { FEW as usize };
        let blocks;
        (unit, blocks) = self.described(l, unit, [block, rows]);
        let lines: usize = self.lines.iter().map(|line| line.runs).sum();
        unit = lines::described(unit, l, &self.lines).int("MATRICES", blocks);
        let (unit, peers) = sum::pushing(unit, l, self.pushes);
        let mut args = vec![Slot::Step, source.x, source.rounded[0].clone(), source.rounded[1].clone()];
        for slot in [|p: &Part<'_>| p.slot.clone(), |p: &Part<'_>| p.second(), |p: &Part<'_>| p.to.clone()] {
            args.extend((0..PARTS).map(|i| self.parts.get(i).map_or(Slot::None, slot)));
        }
        let rounded = self.parts.iter().find_map(|p| p.rounded.clone());
        args.extend(rounded.unwrap_or([Slot::None, Slot::None]));
        args.extend([source.second, source.third, source.norm, Slot::Spoiled, source.op]);
        let wide = usize::from(!source.stream.is_empty()) + blocks + lines.div_ceil(heads);
        let stream = if source.stream.is_empty() { Slot::None } else { Slot::List(source.stream) };
        args.extend([stream, lines::args(&self.lines), peers]);
        let grid = [Axis::Blocks(wide as u32), Axis::Rows(tile as u32), Axis::Blocks(heads as u32)];
        l.call(unit, grid, block as u32, args);
    }

    /// Tells the kernel of the parts, which are dealt to blocks of so many threads that take so many rows; all blocks of a head.
    fn described(&self, l: &Lower<'_>, unit: Unit, [threads, tile]: [usize; 2]) -> (Unit, usize) {
        let heads = self.parts[0].weight.copies.len();
        let all: usize = self.parts.iter().map(|p| heads * p.outs() * p.bytes()).sum();
        // each block joins all parts of its head, so that they are fewer
        let joined =
            (l.choices.fast && matches!(self.input, Input::Merged(_))).then_some(l.choices.multiprocessors);
        let (mut unit, deal) = wave::deal(unit, all, [threads, l.choices.multiprocessors, tile], |most| {
            let most = joined.map_or(most, |joined| joined.min(most));
            let own = |p: &Part<'_>| p.own(l, threads, sum::sets(l, self.pushes), all.div_ceil(most));
            let owns: Vec<usize> = self.parts.iter().map(own).collect();
            let each = || self.parts.iter().zip(&owns);
            let blocks = each().map(|(p, own)| heads * p.outs().div_ceil(*own)).sum();
            let largest = each().map(|(p, own)| own * p.bytes()).max().unwrap_or(0);
            Deal { blocks, largest, what: owns }
        });
        let (mut end, mut numbers) = (0, vec![]);
        for ((part, own), (name, ends)) in self.parts.iter().zip(deal.what).zip(NAMES) {
            end += part.outs().div_ceil(own);
            numbers.extend([(name, part.described(l, &mut unit, own)), (ends, end.to_string())]);
        }
        numbers.push(("PARTS", self.parts.len().to_string()));
        unit.defines.extend(numbers);
        (unit, end)
    }

    /// The rows in front of the matrices.
    fn source(&self, l: &mut Lower<'_>) -> Source {
        match &self.input {
            Input::Value(place) => match l.waiting.take() {
                Some(op) if self.takes(l) => self.streamed(l, op),
                Some(op) => {
                    norm::now(l, op);
                    self.value(l, place)
                }
                None => self.value(l, place),
            },
            Input::Copied { from, unit, start } => Source::copied(from.clone(), *unit, *start),
            Input::Normed { from, op } => Source::normed(l, from.clone(), *op),
            Input::Merged(Parts { at, count, keep }) => {
                let numbers = vec![("PARTIALS", count.to_string()), ("KEEP", keep.to_string())];
                Source::new("MERGED", at.clone(), numbers)
            }
        }
    }

    /// Does it make the norm in front of it on its way? A tile of rows must have room, and be made once for both of a pair.
    fn takes(&self, l: &Lower<'_>) -> bool {
        let alike = |p: &Part<'_>| {
            let mut all = p.weights().map(|w| p.rounds(l, w));
            let first = all.next();
            all.all(|rounds| Some(rounds) == first)
        };
        let fits = l.tile() * self.room(l) <= ROOM;
        fits && !self.answer && self.parts.iter().all(alike)
    }

    /// Rows of the stream, with what is added to it, through a norm, and what of that others read.
    fn streamed(&self, l: &mut Lower<'_>, op: usize) -> Source {
        let norm::Stream { mut addends, x, y, .. } = norm::Stream::of(l, op);
        let read_on = norm::Stream::read_on(l, op);
        let place = l.op_at(op).outputs[0];
        let round = read_on && place.width.is_multiple_of(32) && l.wanted_rounded(place.value);
        let mut stream = vec![];
        if read_on || !addends.is_empty() {
            stream.extend([x.clone(), if read_on { y } else { Slot::None }]);
            stream.extend(if round { l.room(&place) } else { [Slot::None, Slot::None] });
        }
        addends.resize(addends.len().max(1), x);
        let mut source = Source::normed(l, addends[0].clone(), op);
        source.added = if addends.len() > 1 { addends.len() } else { 0 };
        let mut rest = addends.into_iter().skip(1);
        (source.second, source.third) =
            (rest.next().unwrap_or(Slot::None), rest.next().unwrap_or(Slot::None));
        (source.stream, source.round) = (stream, round);
        source
    }

    /// Bytes of a row that a block makes.
    fn room(&self, l: &Lower<'_>) -> usize {
        let bytes = |p: &Part<'_>| {
            let n = p.weight.cols.len();
            if p.rounds(l, p.weight) { n / 2 * 3 } else { n * 4 }
        };
        self.parts.iter().map(bytes).max().unwrap_or(0).next_multiple_of(16)
    }

    fn value(&self, l: &mut Lower<'_>, place: &Place) -> Source {
        let x = l.value(place);
        let gated = self.parts.iter().any(|p| matches!(p.form, Form::Gated(..)));
        let rounds = self.parts.iter().any(|p| p.weights().any(|w| p.rounds(l, w)));
        let whole = self.parts.iter().all(|p| p.weight.cols.len() == place.width);
        let narrow = (1..=l.choices.narrow).contains(&place.width);
        let here = l.choices.fuse && narrow && whole && !gated && !self.answer;
        if rounds && here && l.known(place).is_none() {
            return Source::copied(x, place.width, 0);
        }
        let mut source = Source::new("AS_IT_LIES", x, vec![]);
        if rounds {
            source.rounded = l.activations(place, true);
        }
        source
    }
}

/// Where a launch's rows come from, as its kernel is told.
struct Source {
    prepare: &'static str,
    x: Slot,
    rounded: [Slot; 2],
    /// What is added to x: as many as are added up.
    added: usize,
    second: Slot,
    third: Slot,
    norm: Slot,
    op: Slot,
    eps: Option<f32>,
    /// Where one block writes what others read of a norm, and whether rounded.
    stream: Vec<Slot>,
    round: bool,
    numbers: Vec<(&'static str, String)>,
}

impl Source {
    fn new(prepare: &'static str, x: Slot, numbers: Vec<(&'static str, String)>) -> Source {
        let none = || Slot::None;
        Source {
            prepare,
            x,
            rounded: [none(), none()],
            added: 0,
            second: none(),
            third: none(),
            norm: none(),
            op: none(),
            eps: None,
            stream: vec![],
            round: false,
            numbers,
        }
    }

    fn normed(l: &mut Lower<'_>, from: Slot, op: usize) -> Source {
        let (width, eps) = norm::rms_of(l.op_at(op));
        let numbers = vec![("X_UNIT", width.to_string()), ("X_FROM", "0".into())];
        let source = Source::new("NORMED", from, numbers);
        Source { norm: l.weight_of(op, 0), op: l.number(op), eps: Some(eps), ..source }
    }

    fn copied(x: Slot, unit: usize, start: usize) -> Source {
        Source::new("COPIED", x, vec![("X_UNIT", unit.to_string()), ("X_FROM", start.to_string())])
    }

    fn described(&self, mut unit: Unit) -> Unit {
        unit.defines.extend(self.numbers.iter().cloned());
        unit = unit.int("PREPARE", self.prepare).int("ADDED", self.added);
        unit = unit.int("STREAM", u8::from(!self.stream.is_empty())).int("NORM_ROUND", u8::from(self.round));
        self.eps.map_or(unit.clone(), |eps| unit.float("EPS", eps))
    }
}
