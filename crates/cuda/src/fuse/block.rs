//! Runs of ops that are made as one: latent attention, grouped-query attention, mixtures of experts. They are found by their
//! ends, and by what makes the values that these read.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use shardwright_model::op::Kind;
use shardwright_model::plan::LocalOp;

use super::gated;

/// An op and which of its outputs.
pub(crate) type Made = (usize, usize);

/// A run of ops.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Block {
    Mla(Mla),
    Gqa(Gqa),
    Moe(Moe),
}

impl Block {
    pub(crate) fn first(&self) -> usize {
        match self {
            Block::Mla(b) => b.first,
            Block::Gqa(b) => b.first,
            Block::Moe(b) => b.route,
        }
    }

    pub(crate) fn last(&self) -> usize {
        match self {
            Block::Mla(b) => b.out,
            Block::Gqa(b) => b.attend,
            Block::Moe(b) => b.last(),
        }
    }
}

/// Absorbed latent attention, from the projections of the stream to the matrix that takes values out of latent space.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mla {
    pub(crate) first: usize,
    /// The query, or what it is projected from in a second step, and the norm before that.
    pub(crate) query: Made,
    pub(crate) low: Option<(Made, usize)>,
    /// What of it goes into latent space, what rotates, and the rotation.
    pub(crate) nope: usize,
    pub(crate) rope: usize,
    pub(crate) query_rope: usize,
    /// What becomes the cache line: its latent front and its back, which rotates.
    pub(crate) latent: Made,
    pub(crate) front: usize,
    pub(crate) back: usize,
    pub(crate) latent_norm: usize,
    pub(crate) key_rope: usize,
    pub(crate) index: Option<Indexer>,
    pub(crate) into: usize,
    pub(crate) attend: usize,
    pub(crate) out: usize,
}

/// The indexer of sparse attention.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Indexer {
    pub(crate) query: Made,
    pub(crate) query_rope: usize,
    pub(crate) key: Made,
    pub(crate) key_norm: usize,
    pub(crate) key_rope: usize,
    pub(crate) gate: Made,
    pub(crate) at: usize,
}

/// Grouped-query attention, from the projections on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Gqa {
    pub(crate) first: usize,
    /// Norm and rotation of query, key and value, where there are any.
    pub(crate) ways: [(Option<usize>, Option<usize>); 3],
    pub(crate) attend: usize,
}

/// Router, chosen experts, and the shared expert if there is one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Moe {
    pub(crate) route: usize,
    pub(crate) experts: usize,
    pub(crate) shared: Option<Shared>,
}

/// Gate and up, down, and the sum with what the chosen experts give.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shared {
    pub(crate) gate: usize,
    pub(crate) down: usize,
    pub(crate) add: usize,
}

impl Moe {
    pub(crate) fn last(&self) -> usize {
        self.shared.as_ref().map_or(self.experts, |s| s.add)
    }
}

/// All runs of a list of ops.
pub(crate) fn all(ops: &[LocalOp]) -> Vec<Block> {
    let outputs = ops
        .iter()
        .enumerate()
        .flat_map(|(i, op)| op.outputs.iter().enumerate().map(move |(j, place)| (place.value, (i, j))));
    let finder = Finder { ops, makers: outputs.collect() };
    let block = |at: usize| match ops[at].kind {
        Kind::AttendMla { .. } => finder.mla(at).map(Block::Mla),
        Kind::AttendGqa { .. } => finder.gqa(at).map(Block::Gqa),
        Kind::Route(_) => finder.moe(at).map(Block::Moe),
        _ => None,
    };
    (0..ops.len()).filter_map(block).collect()
}

struct Finder<'a> {
    ops: &'a [LocalOp],
    /// By value, what makes it.
    makers: HashMap<usize, Made>,
}

impl Finder<'_> {
    fn input(&self, op: usize, i: usize) -> usize {
        self.ops[op].inputs[i].value
    }

    /// What makes input `i` of an op, if it is of this kind.
    fn made(&self, op: usize, i: usize, is: fn(&Kind) -> bool) -> Option<Made> {
        let made = *self.makers.get(&self.input(op, i))?;
        is(&self.ops[made.0].kind).then_some(made)
    }

    /// Are these ops all of a run, whose values nobody else reads but those of ops in `open`?
    fn whole(&self, run: Range<usize>, ops: &[usize], open: &[usize]) -> bool {
        let found: BTreeSet<usize> = ops.iter().copied().collect();
        let inner = |value: &usize| {
            self.makers.get(value).is_some_and(|m| run.contains(&m.0) && !open.contains(&m.0))
        };
        let mut outside = self.ops.iter().enumerate().filter(|(i, _)| !run.contains(i));
        found.into_iter().eq(run.clone())
            && !outside.any(|(_, op)| op.inputs.iter().any(|place| inner(&place.value)))
    }

    fn mla(&self, attend: usize) -> Option<Mla> {
        let out = attend + 1;
        let straight = |op: usize| self.ops[op].kind == Kind::PerHead { transposed: false };
        if !straight(out) || self.input(out, 0) != self.ops[attend].outputs[0].value {
            return None;
        }
        let (into, _) = self.made(attend, 0, |k| *k == Kind::PerHead { transposed: false })?;
        let (nope, _) = self.made(into, 0, is_part)?;
        let (query_rope, _) = self.made(attend, 1, is_rotate)?;
        let (rope, _) = self.made(query_rope, 0, is_part)?;
        let (latent_norm, _) = self.made(attend, 2, is_rms)?;
        let (front, _) = self.made(latent_norm, 0, is_part)?;
        let (key_rope, _) = self.made(attend, 3, is_rotate)?;
        let (back, _) = self.made(key_rope, 0, is_part)?;
        let (query, latent) = (self.made(nope, 0, is_linear)?, self.made(front, 0, is_linear)?);
        let norm =
            self.made(query.0, 0, is_rms).filter(|_| self.input(query.0, 0) != self.input(latent.0, 0));
        let low = match norm {
            Some((norm, _)) => Some((self.made(norm, 0, is_linear)?, norm)),
            None => None,
        };
        let first = low.map_or(query.0, |(made, _)| made.0).min(latent.0);
        let picks = self.ops[attend].inputs.get(4).and_then(|p| self.makers.get(&p.value));
        let index = match picks.filter(|m| m.0 > first) {
            Some((at, _)) => Some(self.indexer(*at)?),
            None => None,
        };
        let mut ops = vec![nope, rope, query.0, query_rope, front, back, latent.0, latent_norm, key_rope];
        ops.extend([into, attend, out]);
        ops.extend(low.iter().flat_map(|(made, norm)| [made.0, *norm]));
        ops.extend(index.iter().flat_map(Indexer::ops));
        let open: Vec<usize> = index.iter().map(|i| i.at).chain([out]).collect();
        let same = self.input(nope, 0) == self.input(rope, 0) && self.input(front, 0) == self.input(back, 0);
        let stream = self.input(first, 0);
        let from_stream = |made: Made| self.input(made.0, 0) == stream;
        let sources = low.map_or(query, |l| l.0);
        let indexed = |i: &Indexer| {
            from_stream(i.key)
                && from_stream(i.gate)
                && low.is_some()
                && self.input(i.query.0, 0) == self.input(query.0, 0)
        };
        let fits = same && from_stream(sources) && from_stream(latent) && index.iter().all(indexed);
        (fits && self.whole(first..out + 1, &ops, &open)).then_some(Mla {
            first,
            query,
            low,
            nope,
            rope,
            query_rope,
            latent,
            front,
            back,
            latent_norm,
            key_rope,
            index,
            into,
            attend,
            out,
        })
    }

    fn indexer(&self, at: usize) -> Option<Indexer> {
        let (query_rope, _) = self.made(at, 0, is_rotate)?;
        let (key_rope, _) = self.made(at, 1, is_rotate)?;
        let (key_norm, _) = self.made(key_rope, 0, |k| matches!(k, Kind::LayerNorm { .. }))?;
        Some(Indexer {
            query: self.made(query_rope, 0, is_linear)?,
            query_rope,
            key: self.made(key_norm, 0, is_linear)?,
            key_norm,
            key_rope,
            gate: self.made(at, 2, is_linear)?,
            at,
        })
    }

    fn gqa(&self, attend: usize) -> Option<Gqa> {
        let (mut ops, mut ways, mut made) = (vec![attend], vec![], vec![]);
        for i in 0..3 {
            let (mut op, mut input) = (attend, i);
            let mut step = |is: fn(&Kind) -> bool| {
                let found = self.made(op, input, is)?.0;
                (op, input) = (found, 0);
                ops.push(found);
                Some(found)
            };
            let rotate = step(is_rotate);
            ways.push((step(is_rms), rotate));
            made.push(self.made(op, input, |k| matches!(k, Kind::Linear { .. }))?);
        }
        let first = made[0].0;
        ops.push(first);
        let ways = ways.try_into().ok()?;
        let projected = made == [(first, 0), (first, 1), (first, 2)];
        (projected && self.whole(first..attend + 1, &ops, &[attend])).then_some(Gqa { first, ways, attend })
    }

    fn moe(&self, route: usize) -> Option<Moe> {
        let experts = route + 1;
        let used = matches!(self.ops.get(experts)?.kind, Kind::Experts { .. });
        let routed = |op: usize| self.input(op, 0) == self.input(route, 0);
        if !used || !routed(experts) || self.input(experts, 1) != self.ops[route].outputs[0].value {
            return None;
        }
        let shared = Shared { gate: route + 2, down: route + 4, add: route + 5 };
        let beside = self.ops.get(shared.add).is_some_and(|add| {
            let down = &self.ops[shared.down];
            let summed = add
                .inputs
                .iter()
                .map(|p| p.value)
                .eq([self.ops[experts].outputs[0].value, down.outputs[0].value]);
            let alone = down.kind == Kind::Linear { biased: vec![false] };
            let after = alone && down.inputs[0].value == self.ops[shared.down - 1].outputs[0].value;
            add.kind == Kind::Add && summed && after && gated(self.ops, shared.gate) && routed(shared.gate)
        });
        let moe = Moe { route, experts, shared: beside.then_some(shared) };
        let ops: Vec<usize> = (route..=moe.last()).collect();
        self.whole(route..moe.last() + 1, &ops, &[moe.last()]).then_some(moe)
    }
}

impl Indexer {
    fn ops(&self) -> [usize; 7] {
        let Indexer { query, query_rope, key, key_norm, key_rope, gate, at } = *self;
        [query.0, query_rope, key.0, key_norm, key_rope, gate.0, at]
    }
}

fn is_part(kind: &Kind) -> bool {
    matches!(kind, Kind::Part { .. })
}

fn is_rotate(kind: &Kind) -> bool {
    matches!(kind, Kind::Rotate { .. })
}

fn is_rms(kind: &Kind) -> bool {
    matches!(kind, Kind::RmsNorm { .. })
}

/// Projections without biases.
fn is_linear(kind: &Kind) -> bool {
    matches!(kind, Kind::Linear { biased } if biased.iter().all(|b| !b))
}
