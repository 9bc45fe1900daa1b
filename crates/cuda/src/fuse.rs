//! Which ops become one kernel, or some few. The list of ops without this is the reference.

mod block;

use std::collections::{HashMap, HashSet};

use shardwright_model::op::Kind;
use shardwright_model::plan::{LocalOp, Place, RankPlan};

pub(crate) use block::{Block, Gqa, Indexer, Made, Mla, Moe, Shared};

/// What was found to fuse.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fused {
    /// Ops that others do on their way.
    pub(crate) swallowed: Vec<bool>,
    /// Norms that first add to the stream: the stream as it was, and one or two values added to it.
    pub(crate) residuals: HashMap<usize, Vec<Place>>,
    /// Gate and up projections that end with `silu(a) * b`, which the next op would make.
    pub(crate) gated: HashSet<usize>,
    /// Runs of ops that are made as one, by the first of them.
    pub(crate) blocks: HashMap<usize, Block>,
}

impl Fused {
    /// Nothing.
    pub(crate) fn none(ops: usize) -> Fused {
        Fused { swallowed: vec![false; ops], ..Fused::default() }
    }

    /// All rules. What goes over the ranks' sums holds for one rank only.
    pub(crate) fn of(plans: &[RankPlan]) -> Fused {
        let ops = &plans[0].ops;
        let mut fused = Fused::none(ops.len());
        for block in block::all(ops) {
            fused.swallowed[block.first() + 1..=block.last()].fill(true);
            fused.blocks.insert(block.first(), block);
        }
        for at in 0..ops.len() {
            if !fused.inside(at) && gated(ops, at) {
                fused.swallowed[at + 1] = true;
                fused.gated.insert(at);
            }
            if let ([_], Some((first, places))) = (plans, residual(ops, at, &fused)) {
                fused.swallowed[first..at].fill(true);
                fused.residuals.insert(at, places);
            }
        }
        fused
    }

    /// Is an op part of a block?
    fn inside(&self, at: usize) -> bool {
        self.blocks.values().any(|b| (b.first()..=b.last()).contains(&at))
    }
}

/// How often a value is read.
fn uses(ops: &[LocalOp], value: usize) -> usize {
    ops.iter().flat_map(|op| &op.inputs).filter(|p| p.value == value).count()
}

/// `norm(x + sum(a))` or `norm(x + sum(a + b))`, ending at op `at`: the first op of it, and `[x, a]` or `[x, a, b]`.
fn residual(ops: &[LocalOp], at: usize, fused: &Fused) -> Option<(usize, Vec<Place>)> {
    let Kind::RmsNorm { width, .. } = ops[at].kind else { return None };
    let [sum, add] = [at.checked_sub(2)?, at - 1].map(|i| &ops[i]);
    let joined = add.kind == Kind::Add && sum.kind == Kind::Sum;
    let read = ops[at].inputs[0].value == add.outputs[0].value && width == ops[at].inputs[0].width;
    let once = |op: &LocalOp| uses(ops, op.outputs[0].value) == 1;
    if !joined || !read || add.inputs[1].value != sum.outputs[0].value || !once(sum) {
        return None;
    }
    let stream = add.inputs[0];
    let before = at.checked_sub(3).filter(|i| !fused.swallowed[*i]).map(|i| &ops[i]);
    let both = before.filter(|b| b.kind == Kind::Add && b.outputs[0].value == sum.inputs[0].value && once(b));
    Some(match both {
        Some(both) => (at - 3, vec![stream, both.inputs[0], both.inputs[1]]),
        None => (at - 2, vec![stream, sum.inputs[0]]),
    })
}

/// Are there two projections without biases at op `at`, of which the next op makes `silu(a) * b` and nothing else anything?
fn gated(ops: &[LocalOp], at: usize) -> bool {
    let (op, Some(next)) = (&ops[at], ops.get(at + 1)) else { return false };
    let pair = op.kind == Kind::Linear { biased: vec![false, false] } && next.kind == Kind::SwiGlu;
    let fits = |j: usize| next.inputs[j].value == op.outputs[j].value && uses(ops, op.outputs[j].value) == 1;
    pair && fits(0) && fits(1)
}
