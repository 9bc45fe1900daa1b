//! The chosen experts' gated feed-forwards, weighed and added: all experts' gates and ups at once, then all downs.

use super::pointwise::silu_times;
use super::product::{Factors, Job, products, tiles};
use super::rounded::{RUN, Rounded, Run, round};
use super::tile::Picked;
use crate::rank::Step;
use crate::rows::Rows;
use crate::scratch::sized;
use crate::simd::{Kernel, LANES, Simd, Sixteen};
use crate::weights::Stored;
use std::ops::Range;

/// Who uses which expert, and memory for their rows.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    users: Users,
    x: Rounded,
    gates: Vec<Sixteen>,
    ups: Vec<Sixteen>,
    act: Rounded,
    downs: Vec<Sixteen>,
}

/// Uses of the experts here, expert by expert.
#[derive(Debug, Default)]
struct Users {
    /// For each expert, its uses.
    ranges: Vec<Range<usize>>,
    /// For each use, the row and its weight.
    rows: Vec<u32>,
    weights: Vec<f32>,
    /// For each row, its uses in ascending order; `most` places a row, of which `counts` are taken.
    places: Vec<usize>,
    counts: Vec<usize>,
    most: usize,
}

/// Expert by expert; a row adds its experts in ascending order. Zero where a rank holds none.
pub(crate) fn experts(
    step: &Step<'_>,
    used: usize,
    w: &[Stored],
    [x, picked]: [Rows<'_>; 2],
    out: &mut [f32],
    b: &mut Buffers,
) {
    let [gate, up, down] = w else { unreachable!("experts have three weights") };
    if gate.rows() == 0 {
        return out.fill(0.0);
    }
    let Buffers { users, x: rounded, gates, ups, act, downs } = b;
    users.set(used, gate.first_copy()..gate.first_copy() + gate.copies(), picked);
    rounded.set(step.team, step.isa, x);
    let uses = users.rows.len();
    let [gates, ups] = [gates, ups].map(|v| sized(v, tiles(gate.rows()) * uses));
    let mut jobs = users.jobs(gate, rounded, false, gates);
    jobs.extend(users.jobs(up, rounded, false, ups));
    products(step, &mut jobs);
    users.activate(step, gates, ups, act.resize(gate.rows(), uses));
    let downs = sized(downs, tiles(x.width) * uses);
    products(step, &mut users.jobs(down, act, true, downs));
    users.add_up(step, downs, x.width, out);
}

impl Users {
    fn set(&mut self, used: usize, experts: Range<usize>, picked: Rows<'_>) {
        let Users { ranges, rows, weights, places, counts, most } = self;
        ranges.clear();
        rows.clear();
        weights.clear();
        counts.clear();
        *most = used;
        counts.resize(picked.count, 0);
        places.resize(picked.count * used, 0);
        for e in experts {
            let start = rows.len();
            for i in 0..picked.count {
                let (ids, w) = picked.row(i).split_at(used);
                if let Some(j) = ids.iter().position(|id| *id == e as f32) {
                    places[i * used + counts[i]] = rows.len();
                    counts[i] += 1;
                    rows.push(i as u32);
                    weights.push(w[j]);
                }
            }
            ranges.push(start..rows.len());
        }
    }

    /// The expert of a use.
    fn range(&self, place: usize) -> &Range<usize> {
        &self.ranges[self.ranges.partition_point(|r| r.end <= place)]
    }

    /// One product for each expert in use: its rows of `x`, or with `by_use` the rows of its uses.
    fn jobs<'a>(
        &'a self,
        weight: &'a Stored,
        x: &'a Rounded,
        by_use: bool,
        out: &'a mut [Sixteen],
    ) -> Vec<Job<'a>> {
        let mut rest = out;
        let mut job = |(copy, range): (usize, &Range<usize>)| {
            let out = rest.split_off_mut(..tiles(weight.rows()) * range.len()).expect("room for all uses");
            let picked = match by_use {
                true => Picked::From(range.start),
                false => Picked::These(&self.rows[range.clone()]),
            };
            let factors = Factors { weight, copy, x, first: 0, picked, count: range.len() };
            Job { factors, out }
        };
        self.ranges.iter().enumerate().filter(|(_, r)| !r.is_empty()).map(&mut job).collect()
    }

    /// `silu(gate) * up` of every use, rounded.
    fn activate(&self, step: &Step<'_>, gates: &[Sixteen], ups: &[Sixteen], act: &mut [Run]) {
        let width = act.len() / self.rows.len().max(1);
        step.team.runs(act, width, |place, runs| {
            let range = self.range(place);
            let tiles = range.start * (width * RUN / LANES)..;
            let (count, i) = (range.len(), place - range.start);
            step.isa.run(Activate { gates: &gates[tiles.clone()], ups: &ups[tiles], count, i, runs });
        });
    }

    fn add_up(&self, step: &Step<'_>, downs: &[Sixteen], width: usize, out: &mut [f32]) {
        step.team.fill(out, width, |i, out| {
            out.fill(0.0);
            for place in &self.places[i * self.most..][..self.counts[i]] {
                let (range, weight) = (self.range(*place), self.weights[*place]);
                let first = range.start * tiles(width) + place - range.start;
                for (t, out) in out.chunks_mut(LANES).enumerate() {
                    let y = &downs[first + t * range.len()];
                    out.iter_mut().zip(y).for_each(|(o, y)| *o += weight * y);
                }
            }
        });
    }
}

/// Makes the runs of use `i` of the `count` whose tiles these are.
struct Activate<'a> {
    gates: &'a [Sixteen],
    ups: &'a [Sixteen],
    count: usize,
    i: usize,
    runs: &'a mut [Run],
}

impl Kernel for Activate<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        for (r, run) in self.runs.iter_mut().enumerate() {
            let mut act = [S::splat(0.0); 2];
            for (half, act) in act.iter_mut().enumerate() {
                let at = (2 * r + half) * self.count + self.i;
                *act = silu_times::<S>(S::load(&self.gates[at]), S::load(&self.ups[at]));
            }
            round::<S>(act, run);
        }
    }
}
