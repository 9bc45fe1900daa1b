//! Causal grouped-query attention over the cache.

use super::softmax;
use crate::cache::{Cache, place};
use crate::dot::dot;
use crate::rank::Step;
use crate::rows::Rows;
use shardwright_model::plan::LocalOp;

/// Which heads a rank holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads {
    group: usize,
    pub(crate) key: usize,
    pub(crate) value: usize,
    /// The first query head and the first KV head here; a KV head may be held by two ranks.
    first: usize,
    first_kv: usize,
}

impl Heads {
    pub(crate) fn of(op: &LocalOp, group: usize, key: usize, value: usize) -> Heads {
        let [first, first_kv] = [0, 1].map(|i| op.inputs[i].start / key);
        Heads { group, key, value, first, first_kv }
    }

    /// The KV head here that query head `h` here reads.
    pub(crate) fn kv(self, h: usize) -> usize {
        (self.first + h) / self.group - self.first_kv
    }
}

/// Writes the step's keys and values, then attends to all positions up to each row's own.
pub(crate) fn attend(
    step: &Step<'_>,
    heads: Heads,
    scale: f32,
    [q, k, v]: [Rows<'_>; 3],
    [keys, values]: [&mut Cache; 2],
    out: &mut [f32],
) {
    keys.write(step.batch, k, 0);
    values.write(step.batch, v, 0);
    let (keys, values) = (&*keys, &*values);
    let count = q.width / heads.key;
    step.team.runs(out, heads.value, |unit, out| {
        let (i, h) = (unit / count, unit % count);
        let (table, position) = place(step.batch, i);
        let kv = heads.kv(h);
        let q = &q.row(i)[h * heads.key..][..heads.key];
        let key = |t| &keys.row(table, t)[kv * heads.key..][..heads.key];
        let value = |t| &values.row(table, t)[kv * heads.value..][..heads.value];
        softmax::attend(position + 1, |t| dot(q, key(t)) * f64::from(scale), value, out);
    });
}
