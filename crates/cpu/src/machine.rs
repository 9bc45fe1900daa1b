//! A description run by its ranks in lockstep: one after the other up to the next sum, which is made in rank order.

use crate::Result;
use crate::rank::{Rank, Step, alike};
use crate::rows::Rows;
use shardwright_gguf::Reader;
use shardwright_model::exec::{Probe, Seen};
use shardwright_model::op::{Description, Kind, Lay};
use shardwright_model::plan::{Place, RankPlan};
use std::ops::Range;

/// All ranks of one description.
#[derive(Debug)]
pub(crate) struct Machine {
    description: Description,
    /// Full names of the values.
    paths: Vec<String>,
    ranks: Vec<Rank>,
}

impl Machine {
    pub(crate) fn new(
        d: &Description,
        plans: Vec<RankPlan>,
        reader: &Reader,
        blocks: usize,
        half: bool,
    ) -> Result<Machine> {
        alike(&plans)?;
        let ranks = plans.into_iter().map(|p| Rank::new(p, reader, blocks, half)).collect::<Result<_>>()?;
        let paths = d.values.iter().map(|v| v.path()).collect();
        Ok(Machine { description: d.clone(), paths, ranks })
    }

    /// Ops in a step.
    pub(crate) fn ops(&self) -> usize {
        self.description.ops.len()
    }

    /// Gets ready for a step of `rows` rows.
    pub(crate) fn begin(&mut self, rows: usize) {
        self.ranks.iter_mut().for_each(|r| r.begin(rows));
    }

    /// Runs a range of ops on all ranks.
    pub(crate) fn run(&mut self, step: &Step<'_>, ops: Range<usize>) {
        let mut at = ops.start;
        while at < ops.end {
            let is_sum = |at: &usize| self.description.ops[*at].kind == Kind::Sum;
            let sum = (at..ops.end).find(is_sum);
            let segment = at..sum.unwrap_or(ops.end);
            self.ranks.iter_mut().for_each(|rank| segment.clone().for_each(|at| rank.run(step, at)));
            at = segment.end;
            if sum.is_some() {
                self.sum(step, at);
                at += 1;
            }
        }
    }

    /// Adds the summands in rank order and gives every rank the result.
    fn sum(&mut self, step: &Step<'_>, at: usize) {
        let (first, others) = self.ranks.split_first_mut().expect("there is a rank");
        let count = step.batch.rows();
        let summand = |rank: &Rank| rank.plan.ops[at].inputs[0];
        first.write(step, at, count, |first, outs| {
            let out = outs[0].as_mut_slice();
            out.copy_from_slice(first.value(&summand(first)).all());
            for rank in &*others {
                add(out, rank.value(&summand(rank)).all());
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

    /// Vocabulary rows.
    pub(crate) fn vocab(&self) -> usize {
        let logits = self.description.ops.last().expect("plans end with logits").outputs[0];
        self.description.values[logits].width
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

fn add(sum: &mut [f32], summand: &[f32]) {
    sum.iter_mut().zip(summand).for_each(|(s, x)| *s += x);
}
