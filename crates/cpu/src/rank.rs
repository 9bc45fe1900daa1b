//! One rank: its plan, its weights, its values and its cache, and how it runs an op.

use crate::Result;
use crate::cache::Cache;
use crate::fast;
use crate::ops;
use crate::rows::Rows;
use crate::scratch::Scratch;
use crate::simd::Isa;
use crate::team::Team;
use crate::weights::Stored;
use shardwright_gguf::Reader;
use shardwright_model::exec::StepBatch;
use shardwright_model::op::Kind;
use shardwright_model::plan::{Place, RankPlan};

/// What all ranks know of a step.
#[derive(Clone, Copy)]
pub(crate) struct Step<'a> {
    pub(crate) batch: &'a StepBatch,
    pub(crate) reader: &'a Reader,
    /// Are activations rounded to 8 bits in front of quantized weights, and all sums made in f32?
    pub(crate) fast: bool,
    /// Are they rounded in front of every other matrix too, but for the routers'?
    pub(crate) round_all: bool,
    pub(crate) isa: Isa,
    pub(crate) team: &'a Team,
    /// The rows whose logits are computed, ascending.
    pub(crate) wanted: &'a [usize],
}

/// A rank.
#[derive(Debug)]
pub(crate) struct Rank {
    pub(crate) plan: RankPlan,
    weights: Vec<Vec<Stored>>,
    pub(crate) values: Vec<Vec<f32>>,
    caches: Vec<Cache>,
    scratch: Scratch,
    /// For each row of the step, the first op and output that held a NaN or an infinity.
    pub(crate) spoiled: Vec<Option<(usize, usize)>>,
}

impl Rank {
    /// With `half` the cache has half precision.
    pub(crate) fn new(plan: RankPlan, reader: &Reader, blocks: usize, half: bool) -> Result<Rank> {
        let weights = plan.ops.iter().map(|op| Stored::of(op, reader)).collect::<Result<_>>()?;
        let caches = plan.caches.iter().map(|c| Cache::new(c, blocks, half)).collect::<Result<_>>()?;
        let values = vec![vec![]; plan.slots.len()];
        Ok(Rank { plan, weights, values, caches, scratch: Scratch::default(), spoiled: vec![] })
    }

    /// Gets ready for a step of `rows` rows.
    pub(crate) fn begin(&mut self, rows: usize) {
        self.spoiled.clear();
        self.spoiled.resize(rows, None);
    }

    /// A value's rows; logits have rows only for those wanted.
    pub(crate) fn value(&self, place: &Place) -> Rows<'_> {
        let data = &self.values[place.slot];
        Rows::new(data, place.width, data.len().checked_div(place.width).unwrap_or(0))
    }

    /// Runs an op that needs no other rank.
    pub(crate) fn run(&mut self, step: &Step<'_>, at: usize) {
        let count = match self.plan.ops[at].kind {
            Kind::Logits => step.wanted.len(),
            _ => step.batch.rows(),
        };
        self.write(step, at, count, |this, outs| {
            if !(step.fast && this.compute_fast(step, at, outs)) {
                outs.iter_mut().enumerate().for_each(|(j, out)| this.compute(step, at, j, out));
            }
        });
    }

    /// Lets `fill` make the outputs of an op, then looks for what is not finite in them.
    pub(crate) fn write(
        &mut self,
        step: &Step<'_>,
        at: usize,
        count: usize,
        fill: impl FnOnce(&mut Rank, &mut [Vec<f32>]),
    ) {
        let mut outs = std::mem::take(&mut self.scratch.outputs);
        for place in &self.plan.ops[at].outputs {
            let mut out = std::mem::take(&mut self.values[place.slot]);
            out.resize(count * place.width, 0.0);
            outs.push(out);
        }
        fill(self, &mut outs);
        let op = &self.plan.ops[at];
        for (j, (out, place)) in outs.drain(..).zip(&op.outputs).enumerate() {
            for (i, row) in out.chunks_exact(place.width.max(1)).enumerate() {
                let i = if op.kind == Kind::Logits { step.wanted[i] } else { i };
                if self.spoiled[i].is_none() && !finite(row) {
                    self.spoiled[i] = Some((at, j));
                }
            }
            self.values[place.slot] = out;
        }
        self.scratch.outputs = outs;
    }

    fn compute(&mut self, step: &Step<'_>, at: usize, j: usize, out: &mut [f32]) {
        let Rank { plan, weights, values, caches, scratch, .. } = self;
        let (op, w) = (&plan.ops[at], weights[at].as_slice());
        let x = |i: usize| Rows::new(&values[op.inputs[i].slot], op.inputs[i].width, step.batch.rows());
        let product = &mut scratch.product;
        match &op.kind {
            Kind::Embed => ops::embed::embed(step, &w[0], out),
            Kind::Hidden => ops::embed::hidden(step, out),
            Kind::Concat => ops::shape::concat(step, x(0), x(1), out),
            Kind::Part { unit, start, len } => ops::shape::part(x(0), *unit, *start..*start + *len, out),
            Kind::RmsNorm { width, eps } => ops::norm::rms(step, x(0), *width, *eps, &w[0].vector, out),
            Kind::LayerNorm { eps } => ops::norm::layer(step, x(0), *eps, &w[0].vector, &w[1].vector, out),
            Kind::Linear { biased } => ops::linear::linear(step, biased, j, w, x(0), out, product),
            Kind::PerHead { transposed } => {
                ops::linear::per_head(step, *transposed, &w[0], x(0), out, product);
            }
            Kind::Logits => ops::linear::logits(step, &w[0], x(0), out, &mut scratch.route, product),
            Kind::Rotate { width, rope } => ops::rotate::rotate(step, *width, rope, w.first(), x(0), out),
            Kind::AttendGqa { group, key, value, scale, cache } => {
                let heads = ops::attend_gqa::Heads::of(op, *group, *key, *value);
                let cache = caches.get_disjoint_mut(*cache).expect("K and V are two slots");
                ops::attend_gqa::attend(step, heads, *scale, [x(0), x(1), x(2)], cache, out);
            }
            Kind::AttendMla { scale, cache, .. } => {
                let pick = (op.inputs.len() > 4).then(|| x(4));
                let inputs = [x(0), x(1), x(2), x(3)];
                ops::attend_mla::attend(step, *scale, inputs, pick, &mut caches[*cache], out);
            }
            Kind::Index { heads, keep, cache, .. } => {
                ops::index::index(step, *heads, *keep, [x(0), x(1), x(2)], &mut caches[*cache], out);
            }
            Kind::SwiGlu => ops::pointwise::swiglu(step, x(0), x(1), out),
            Kind::Add => ops::pointwise::add(x(0), x(1), out),
            Kind::Route(routing) => {
                ops::route::route(step, routing, w, x(0), out, &mut scratch.route, product);
            }
            Kind::Experts { used } => {
                ops::experts::experts(step, *used, w, [x(0), x(1)], out, &mut scratch.experts, product);
            }
            Kind::Sum => unreachable!("sums are run over all ranks at once"),
        }
    }

    /// The kinds that have a fast path, where the weights allow it; false if nothing was done.
    fn compute_fast(&mut self, step: &Step<'_>, at: usize, outs: &mut [Vec<f32>]) -> bool {
        let Rank { plan, weights, values, caches, scratch, .. } = self;
        let (op, w) = (&plan.ops[at], weights[at].as_slice());
        let x = |i: usize| Rows::new(&values[op.inputs[i].slot], op.inputs[i].width, step.batch.rows());
        match &op.kind {
            Kind::Linear { biased } if w[..biased.len()].iter().all(Stored::quantized) => {
                fast::linear::linear(step, biased, w, x(0), outs, &mut scratch.linear);
            }
            Kind::PerHead { transposed: false } if w[0].quantized() => {
                fast::linear::per_head(step, &w[0], x(0), &mut outs[0], &mut scratch.linear);
            }
            Kind::Logits if w[0].quantized() => {
                fast::linear::logits(step, &w[0], x(0), &mut outs[0], &mut scratch.linear);
            }
            Kind::AttendGqa { group, key, value, scale, cache } => {
                let heads = ops::attend_gqa::Heads::of(op, *group, *key, *value);
                let cache = caches.get_disjoint_mut(*cache).expect("K and V are two slots");
                let inputs = [x(0), x(1), x(2)];
                let memory = &mut scratch.heads;
                fast::attention::grouped(step, heads, *scale, inputs, cache, &mut outs[0], memory);
            }
            Kind::AttendMla { scale, cache, .. } => {
                let pick = (op.inputs.len() > 4).then(|| x(4));
                let inputs = [x(0), x(1), x(2), x(3)];
                let (cache, memory) = (&mut caches[*cache], &mut scratch.heads);
                fast::attention::latent(step, *scale, inputs, pick, cache, &mut outs[0], memory);
            }
            Kind::Index { keep, cache, .. } => {
                let (cache, memory) = (&mut caches[*cache], &mut scratch.scores);
                fast::index::index(step, *keep, [x(0), x(1), x(2)], cache, &mut outs[0], memory);
            }
            Kind::SwiGlu => fast::pointwise::swiglu(step, x(0), x(1), &mut outs[0]),
            Kind::Experts { used } if w.iter().all(Stored::quantized) => {
                let memory = &mut scratch.fast_experts;
                fast::experts::experts(step, *used, w, [x(0), x(1)], &mut outs[0], memory);
            }
            _ => return false,
        }
        true
    }
}

fn finite(x: &[f32]) -> bool {
    // no early end: whole vectors are looked at together
    x.iter().fold(true, |all, v| all & v.is_finite())
}
