//! A description run by its ranks in lockstep: one after the other up to the next sum, which is made in rank order.

use crate::rank::{Rank, Step};
use crate::rows::Rows;
use crate::{Error, Result};
use shardwright_gguf::Reader;
use shardwright_model::exec::{Probe, Ranks, Seen, Wire};
use shardwright_model::hash;
use shardwright_model::op::{Description, Kind, Lay};
use shardwright_model::plan::{Place, RankPlan, audit};
use shardwright_model::watch::{Parted, Watch};
use std::ops::Range;

/// All ranks of one description.
#[derive(Debug)]
pub(crate) struct Machine {
    description: Description,
    /// Full names of the values.
    paths: Vec<String>,
    ranks: Vec<Rank>,
    /// How summands go to the other ranks, if there are others.
    wire: Wire,
    watch: Watch,
    /// Of the step that runs, by rank, if it is watched.
    hashes: Option<Vec<Vec<u64>>>,
}

impl Machine {
    pub(crate) fn new(
        d: &Description,
        plans: Vec<RankPlan>,
        reader: &Reader,
        blocks: usize,
        half: bool,
        options: Ranks,
    ) -> Result<Machine> {
        audit(d, &plans).map_err(Error::Plan)?;
        let watch = Watch::new(d, &plans, options.check);
        let wire = if plans.len() == 1 { Wire::F32 } else { options.wire };
        let ranks = plans.into_iter().map(|p| Rank::new(p, reader, blocks, half)).collect::<Result<_>>()?;
        let paths = d.values.iter().map(|v| v.path()).collect();
        Ok(Machine { description: d.clone(), paths, ranks, wire, watch, hashes: None })
    }

    /// Ops in a step.
    pub(crate) fn ops(&self) -> usize {
        self.description.ops.len()
    }

    /// Gets ready for a step of `rows` rows.
    pub(crate) fn begin(&mut self, rows: usize) {
        self.ranks.iter_mut().for_each(|r| r.begin(rows));
        let watched = self.watch.begin();
        self.hashes = watched.then(|| vec![vec![]; self.ranks.len()]);
    }

    /// Has every rank held the same in this step?
    pub(crate) fn end(&self) -> Result<(), Parted> {
        self.hashes.as_ref().map_or(Ok(()), |hashes| self.watch.compare(hashes))
    }

    /// Runs a range of ops on all ranks.
    pub(crate) fn run(&mut self, step: &Step<'_>, ops: Range<usize>) {
        let mut at = ops.start;
        while at < ops.end {
            let is_sum = |at: &usize| self.description.ops[*at].kind == Kind::Sum;
            let sum = (at..ops.end).find(is_sum);
            let segment = at..sum.unwrap_or(ops.end);
            (0..self.ranks.len()).for_each(|rank| segment.clone().for_each(|at| self.op(step, rank, at)));
            at = segment.end;
            if sum.is_some() {
                self.sum(step, at);
                at += 1;
            }
        }
    }

    /// Runs an op on a rank, and notes what it made where the others must have made the same.
    fn op(&mut self, step: &Step<'_>, rank: usize, at: usize) {
        let this = &mut self.ranks[rank];
        this.run(step, at);
        if let Some(hashes) = self.hashes.as_mut().filter(|_| self.watch.has(at)) {
            hashes[rank].push(hash::of(this.value(&this.plan.ops[at].outputs[0]).all()));
        }
    }

    /// Adds the summands in rank order and gives every rank the result.
    fn sum(&mut self, step: &Step<'_>, at: usize) {
        let (first, others) = self.ranks.split_first_mut().expect("there is a rank");
        let (count, wire) = (step.batch.rows(), self.wire);
        let summand = |rank: &Rank| rank.plan.ops[at].inputs[0];
        first.write(step, at, count, |first, outs| {
            let out = outs[0].as_mut_slice();
            out.copy_from_slice(first.value(&summand(first)).all());
            out.iter_mut().for_each(|x| *x = sent(*x, wire));
            for rank in &*others {
                let summands = rank.value(&summand(rank)).all();
                out.iter_mut().zip(summands).for_each(|(sum, x)| *sum += sent(*x, wire));
            }
        });
        let total = first.value(&first.plan.ops[at].outputs[0]).all();
        for rank in others {
            rank.write(step, at, count, |_, outs| outs[0].copy_from_slice(total));
        }
    }

    /// Shows the outputs of an op, whole.
    pub(crate) fn show(&self, at: usize, probe: &mut dyn Probe) {
        let op = &self.description.ops[at];
        for (j, v) in op.outputs.iter().enumerate() {
            let value = &self.description.values[*v];
            let data = self.whole(value.lay, value.width, |plan| &plan.ops[at].outputs[j]);
            probe.see(&Seen {
                path: &self.paths[*v],
                layer: value.layer,
                op: op.kind.name(),
                width: value.width,
                data: &data,
            });
        }
    }

    /// A value of `width` elements, joined or added from the ranks.
    fn whole(&self, lay: Lay, width: usize, place: impl Fn(&RankPlan) -> &Place) -> Vec<f32> {
        let part = |rank: &'_ Rank| -> Vec<f32> { rank.value(place(&rank.plan)).all().to_vec() };
        let mut whole = part(&self.ranks[0]);
        match lay {
            Lay::Full => {
                let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                let same = |r: &Rank| bits(&part(r)) == bits(&whole);
                debug_assert!(self.ranks.iter().all(same), "a value that all ranks hold is the same on all");
            }
            Lay::Partial => self.ranks[1..].iter().for_each(|r| add(&mut whole, &part(r))),
            Lay::Split { .. } => {
                let count = self.count(&place);
                whole = vec![0.0; count * width];
                (0..count).for_each(|i| self.join(i, &place, &mut whole[i * width..][..width]));
            }
        }
        whole
    }

    fn count(&self, place: &impl Fn(&RankPlan) -> &Place) -> usize {
        self.ranks.iter().map(|r| r.value(place(&r.plan)).count).max().unwrap_or(0)
    }

    /// Row `i` of a value of which each rank holds a part.
    fn join(&self, i: usize, place: &impl Fn(&RankPlan) -> &Place, out: &mut [f32]) {
        for rank in &self.ranks {
            let p = place(&rank.plan);
            if p.width > 0 {
                out[p.start..p.start + p.width].copy_from_slice(rank.value(p).row(i));
            }
        }
    }

    /// Row `i` of the logits that were computed.
    pub(crate) fn logits(&self, i: usize, out: &mut [f32]) {
        self.join(i, &|plan| &plan.ops[plan.ops.len() - 1].outputs[0], out);
    }

    /// Vocabulary rows, of the logits or of the embedding.
    pub(crate) fn vocab(&self) -> usize {
        let ends = [self.description.ops.last(), self.description.ops.first()];
        let known = ends.into_iter().flatten().find(|o| matches!(o.kind, Kind::Logits | Kind::Embed));
        known.map_or(0, |op| op.weights[0].rows)
    }

    /// Are there logits? A stage that is not the last has none.
    pub(crate) fn answers(&self) -> bool {
        self.description.ops.last().is_some_and(|o| o.kind == Kind::Logits)
    }

    /// Elements of the hidden rows that the ops begin with, if they do.
    pub(crate) fn takes(&self) -> usize {
        let begin = self.description.ops.first().filter(|o| o.kind == Kind::Hidden);
        begin.map_or(0, |op| self.description.values[op.outputs[0]].width)
    }

    /// The stream after the final norm.
    pub(crate) fn hidden(&self) -> Option<Rows<'_>> {
        let rank = &self.ranks[0];
        rank.plan.hidden.as_ref().map(|p| rank.value(p))
    }

    /// Elements of a hidden row.
    pub(crate) fn width(&self) -> usize {
        self.ranks[0].plan.hidden.map_or(0, |p| p.width)
    }

    /// The first value in which a row of the step was not finite.
    pub(crate) fn spoiled(&self, row: usize) -> Option<&str> {
        let first = self.ranks.iter().filter_map(|r| r.spoiled[row]).min()?;
        Some(&self.paths[self.description.ops[first.0].outputs[first.1]])
    }
}

/// A summand as it arrives.
fn sent(x: f32, wire: Wire) -> f32 {
    match wire {
        Wire::F32 => x,
        Wire::Bf16 => half::bf16::from_f32(x).to_f32(),
    }
}

fn add(sum: &mut [f32], summand: &[f32]) {
    sum.iter_mut().zip(summand).for_each(|(s, x)| *s += x);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::team::Team;
    use crate::testing;
    use shardwright_model::arch;
    use shardwright_model::exec::{StepBatch, Want};
    use shardwright_model::hyper::{Options, Source};
    use shardwright_model::plan::plan;
    use std::path::Path;

    const ROWS: usize = 5;

    /// A model of sparse attention and experts over some ranks.
    fn opened(ranks: usize, wire: Wire) -> (Reader, Machine) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/models/glm-dsa-tp8-kq.gguf");
        let reader = Reader::open(&path).unwrap();
        let has = |name: &str| Some(reader.tensor(name).is_some());
        let source = Source { meta: reader.meta(), has: &has, options: Options::default() };
        let d = arch::describe(&arch::read(&source).unwrap());
        let plans = plan(&d, &|n: &str| reader.tensor(n), ranks).unwrap();
        let machine = Machine::new(&d, plans, &reader, 1, false, Ranks { wire, check: false }).unwrap();
        (reader, machine)
    }

    fn batch() -> StepBatch {
        StepBatch {
            tokens: vec![1, 5, 9, 13, 2],
            positions: (0..ROWS as u32).collect(),
            sequences: vec![0; ROWS],
            tables: vec![vec![0]],
            wants: vec![Want::Nothing; ROWS],
            ..StepBatch::default()
        }
    }

    /// What the watch says of a step in which `fault` was done to the value `path` of a rank, just after it was made.
    fn told(ranks: usize, rank: usize, path: &str, fault: impl Fn(&mut [f32])) -> Option<Parted> {
        let (reader, mut machine) = opened(ranks, Wire::F32);
        let (team, batch) = (Team::new(1).unwrap(), batch());
        let step = testing::step(&reader, &batch, &team);
        let value = machine.paths.iter().position(|p| p == path).unwrap();
        let at = machine.description.ops.iter().position(|op| op.outputs.contains(&value)).unwrap();
        let j = machine.description.ops[at].outputs.iter().position(|v| *v == value).unwrap();
        machine.begin(ROWS);
        machine.run(&step, 0..at + 1);
        let faulty = &mut machine.ranks[rank];
        fault(&mut faulty.values[faulty.plan.ops[at].outputs[j].slot]);
        machine.run(&step, at + 1..machine.ops());
        machine.end().err()
    }

    #[test]
    fn what_a_rank_alone_has_wrong_is_named_with_its_layer() {
        let flip = |bit: u32| move |x: &mut [f32]| x[77] = f32::from_bits(x[77].to_bits() ^ 1 << bit);
        let check = |ranks, rank, path: &str, fault: &dyn Fn(&mut [f32]), named: &str| {
            let found = told(ranks, rank, path, fault).unwrap_or_else(|| panic!("{path} passed"));
            assert_eq!((found.path.as_str(), found.ranks), (named, vec![rank]), "{path}");
            assert!(named.starts_with(&format!("blk.{}.", found.layer.unwrap())));
        };
        // what a sum has brought, with a bit flipped on its way, not at all, or twice
        check(2, 1, "blk.1.attn_out", &flip(20), "blk.1.ffn_inp");
        check(4, 2, "blk.0.ffn_out", &flip(31), "blk.0.l_out");
        check(4, 0, "blk.0.ffn_out", &flip(23), "blk.0.l_out");
        check(2, 1, "blk.1.ffn_out", &|x| x.fill(0.0), "blk.1.l_out");
        check(2, 1, "blk.1.ffn_out", &|x| x.iter_mut().for_each(|v| *v *= 2.0), "blk.1.l_out");
        // a choice of experts or positions that others have not made
        check(2, 1, "blk.1.ffn_norm", &|x| x.iter_mut().for_each(|v| *v = -*v), "blk.1.ffn_moe_topk");
        assert_eq!(told(8, 5, "blk.1.ffn_out", |_| {}), None, "what is right passes");
    }

    /// A summand that was wrong before anybody added it is wrong for all.
    #[test]
    fn what_all_ranks_have_wrong_alike_is_not_seen() {
        let part = |path: &str| told(2, 1, path, |x| x.iter_mut().for_each(|v| *v *= 2.0));
        assert_eq!(part("blk.1.ffn_down_shexp_part"), None);
    }

    #[test]
    fn summands_are_rounded_as_the_wire_does_and_one_rank_sends_none() {
        let sums = |ranks, wire| {
            let (reader, mut machine) = opened(ranks, wire);
            let (team, batch) = (Team::new(1).unwrap(), batch());
            let step = testing::step(&reader, &batch, &team);
            let at = machine.description.ops.iter().position(|op| op.kind == Kind::Sum).unwrap();
            machine.begin(ROWS);
            machine.run(&step, 0..at);
            let of = |r: &Rank, p: &Place| r.value(p).all().to_vec();
            let parts: Vec<Vec<f32>> =
                machine.ranks.iter().map(|r| of(r, &r.plan.ops[at].inputs[0])).collect();
            machine.run(&step, at..at + 1);
            let sums: Vec<Vec<f32>> =
                machine.ranks.iter().map(|r| of(r, &r.plan.ops[at].outputs[0])).collect();
            assert!(sums.iter().all(|s| *s == sums[0]), "every rank has the same");
            (parts, sums[0].clone())
        };
        for ranks in [2, 4] {
            let (parts, found) = sums(ranks, Wire::Bf16);
            let round = |x: f32| half::bf16::from_f32(x).to_f32();
            let first = parts[0].iter().map(|x| round(*x)).collect::<Vec<_>>();
            let expected = parts[1..]
                .iter()
                .fold(first, |sum, part| sum.iter().zip(part).map(|(s, x)| s + round(*x)).collect());
            assert_eq!(found, expected, "{ranks} ranks");
            assert_ne!(found, sums(ranks, Wire::F32).1, "something is rounded");
        }
        let (parts, alone) = sums(1, Wire::Bf16);
        assert_eq!(alone, parts[0]);
    }
}
