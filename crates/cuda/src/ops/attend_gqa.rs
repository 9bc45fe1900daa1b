//! Causal grouped-query attention over the cache.

use shardwright_model::op::Kind;

use super::linear::part;
use super::softmax::{self, Attention};
use crate::fuse::Gqa;
use crate::lines::{self, To, Way};
use crate::lower::Lower;
use crate::product::{Input, Product};
use crate::program::Slot;

pub(crate) fn attend(l: &mut Lower<'_>, cache: [usize; 2]) {
    let Some(attention) = attention(l, l.at, l.input(0)) else { return };
    softmax::write(l, 1, cache[0], 0);
    softmax::write(l, 2, cache[1], 0);
    softmax::attend(l, &attention, l.output(0), None);
}

/// The numbers of the attention at `op`. None if a rank has no heads of it.
fn attention(l: &Lower<'_>, op: usize, query: Slot) -> Option<Attention> {
    let local = l.op_at(op);
    let Kind::AttendGqa { group, key, value, scale, cache } = local.kind else { return None };
    let (heads, first) = (local.inputs[0].width / key, [0, 1].map(|i| local.inputs[i].start / key));
    let query = [query, Slot::None];
    (heads > 0).then_some(Attention {
        heads,
        key,
        rope: 0,
        value,
        scale,
        group,
        shared: local.inputs[1].width / key,
        first,
        query,
        cache,
        picked: None,
        keep: 0,
    })
}

/// Projections, lines of query, key and value, attention.
pub(crate) fn fused(l: &mut Lower<'_>, gqa: &Gqa) {
    let local = l.op_at(gqa.attend);
    let Kind::AttendGqa { key, value, cache, .. } = local.kind else { return };
    let projected = [0, 1, 2].map(|i| l.between(["query", "key", "value"][i], local.inputs[i].width));
    let parts = (0..3).map(|j| part(l, gqa.first, j, projected[j].clone())).collect();
    Product::new(parts, Input::Value(l.op_at(gqa.first).inputs[0])).launch(l);
    let turned = l.between("query_rope", local.inputs[0].width);
    let Some(attention) = attention(l, gqa.attend, turned.clone()) else { return };
    let to = [To::Value(turned), To::Cache(cache[0], 0), To::Cache(cache[1], 0)];
    let widths = [key, key, value];
    let mut all = vec![];
    for (i, (from, to)) in projected.into_iter().zip(to).enumerate() {
        let (width, (norm, rotate)) = (widths[i], gqa.ways[i]);
        let runs = local.inputs[i].width / width;
        all.push(Way { from, runs, width, unit: width, start: 0, norm, rotate, to }.line(l));
    }
    lines::launch(l, &all);
    let place = local.outputs[0];
    let (out, rounded) = l.handed("heads", &place, value);
    softmax::attend(l, &attention, out, rounded);
}
