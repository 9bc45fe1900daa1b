//! Causal latent attention over the cache, absorbed: one row of `[latent ; rotated key]` a token serves all heads.

use shardwright_model::op::Kind;
use shardwright_model::plan::LocalOp;

use super::index;
use super::linear::part;
use super::softmax::{self, Attention};
use crate::fuse::{Indexer, Made, Mla};
use crate::lines::{Line, To, Way};
use crate::lower::{Lower, Tier};
use crate::product::{Input, Part, Product};
use crate::program::Slot;

pub(crate) fn attend(l: &mut Lower<'_>, latent: usize, cache: usize) {
    softmax::write(l, 2, cache, 0);
    softmax::write(l, 3, cache, latent);
    let query = [l.input(0), l.input(1)];
    if let Some(attention) = attention(l, l.at, query) {
        softmax::attend(l, &attention, l.output(0), None);
    }
}

/// The numbers of the attention at `op`. None if a rank has no heads of it.
fn attention(l: &Lower<'_>, op: usize, query: [Slot; 2]) -> Option<Attention> {
    let local = l.op_at(op);
    let Kind::AttendMla { latent, rope, scale, cache } = local.kind else { return None };
    let heads = local.inputs[0].width / latent;
    let long = l.choices.tier == Tier::Long;
    let from = local.inputs.get(4);
    // keys are dealt alike in both tiers
    let keep = from.map_or(0, |p| p.width);
    let picked = from.filter(|_| long).map(|p| l.value(p));
    let (key, first) = (latent + rope, [0, 0]);
    // one KV head for all query heads
    let (group, cache) = (heads, [cache, cache]);
    (heads > 0).then_some(Attention {
        heads,
        key,
        rope,
        value: latent,
        scale,
        group,
        shared: 1,
        first,
        query,
        cache,
        picked,
        keep,
    })
}

/// Latent attention in five launches, in the long tier with the indexer's two between.
pub(crate) fn fused(l: &mut Lower<'_>, mla: &Mla) {
    let scored = mla.index.as_ref().filter(|_| l.choices.tier == Tier::Long);
    project(l, mla, scored);
    let mut lines = cached(l, mla);
    if let Some((_, norm)) = mla.low {
        let mut parts = vec![made(l, "query", mla.query)];
        parts.extend(scored.map(|i| made(l, "index_query", i.query)));
        let input = Input::Normed { from: l.between("low", 0), op: norm };
        let mut product = Product::new(parts, input);
        product.lines = std::mem::take(&mut lines);
        product.launch(l);
    }
    lines.extend(turned(l, mla, scored));
    into_latent(l, mla, lines);
    if let Some(indexer) = scored {
        let [query, gate] = ["index_query_rope", "index_gate"].map(|what| l.between(what, 0));
        index::pick(l, indexer.at, query, gate);
    }
    let query = ["query_latent", "query_rope"].map(|what| l.between(what, 0));
    let Some(attention) = attention(l, mla.attend, query) else { return };
    let parts = softmax::parts(l, &attention);
    out_of_latent(l, mla, Input::Merged(parts));
}

/// All that is projected from the stream, of whatever types.
fn project(l: &mut Lower<'_>, mla: &Mla, scored: Option<&Indexer>) {
    let first = match mla.low {
        Some((low, _)) => made(l, "low", low),
        None => made(l, "query", mla.query),
    };
    let mut parts = vec![first, made(l, "latent", mla.latent)];
    parts.extend(mla.index.as_ref().map(|i| made(l, "index_key", i.key)));
    parts.extend(scored.map(|i| made(l, "index_gate", i.gate)));
    Product::new(parts, Input::Value(l.op_at(mla.first).inputs[0])).launch(l);
}

/// A projection to memory of that name.
fn made<'a>(l: &mut Lower<'a>, what: &'static str, (op, j): Made) -> Part<'a> {
    let to = l.between(what, l.op_at(op).outputs[j].width);
    part(l, op, j, to)
}

/// The lines of the cache: the latent normed, the key rotated, the indexer's key both.
fn cached(l: &mut Lower<'_>, mla: &Mla) -> Vec<Line> {
    let (Kind::AttendMla { latent, cache, .. }, from) = (&l.op_at(mla.attend).kind, l.between("latent", 0))
    else {
        return vec![];
    };
    let front = taken(l, mla.front, from.clone(), To::Cache(*cache, 0));
    let back = taken(l, mla.back, from, To::Cache(*cache, *latent));
    let mut ways =
        vec![Way { norm: Some(mla.latent_norm), ..front }, Way { rotate: Some(mla.key_rope), ..back }];
    if let Some(i) = &mla.index
        && let Kind::Index { width, cache, .. } = l.op_at(i.at).kind
    {
        let from = l.between("index_key", 0);
        let (norm, rotate, to) = (Some(i.key_norm), Some(i.key_rope), To::Cache(cache, 0));
        ways.push(Way { from, runs: 1, width, unit: width, start: 0, norm, rotate, to });
    }
    ways.into_iter().map(|way| way.line(l)).collect()
}

/// The runs that a part takes.
fn taken(l: &Lower<'_>, op: usize, from: Slot, to: To) -> Way {
    let local = l.op_at(op);
    let (unit, start, width) = part_of(local);
    Way { from, runs: local.inputs[0].width / unit, width, unit, start, norm: None, rotate: None, to }
}

fn part_of(op: &LocalOp) -> (usize, usize, usize) {
    match op.kind {
        Kind::Part { unit, start, len } => (unit, start, len),
        ref other => unreachable!("fuse.rs takes {} for a part", other.name()),
    }
}

/// The queries' parts that rotate.
fn turned(l: &mut Lower<'_>, mla: &Mla, scored: Option<&Indexer>) -> Vec<Line> {
    let to = l.between("query_rope", l.op_at(mla.query_rope).outputs[0].width);
    let from = l.between("query", 0);
    let query = taken(l, mla.rope, from, To::Value(to));
    let mut ways = vec![Way { rotate: Some(mla.query_rope), ..query }];
    if let Some(i) = scored
        && let Kind::Index { heads, width, .. } = l.op_at(i.at).kind
    {
        let [from, to] =
            [("index_query", 0), ("index_query_rope", heads * width)].map(|(w, n)| l.between(w, n));
        let (rotate, to) = (Some(i.query_rope), To::Value(to));
        ways.push(Way { from, runs: heads, width, unit: width, start: 0, norm: None, rotate, to });
    }
    ways.into_iter().map(|way| way.line(l)).collect()
}

fn into_latent(l: &mut Lower<'_>, mla: &Mla, lines: Vec<Line>) {
    let (unit, start, _) = part_of(l.op_at(mla.nope));
    let parts = vec![made(l, "query_latent", (mla.into, 0))];
    let input = Input::Copied { from: l.between("query", 0), unit, start };
    Product { lines, ..Product::new(parts, input) }.launch(l);
}

fn out_of_latent(l: &mut Lower<'_>, mla: &Mla, input: Input) {
    let local = l.op_at(mla.out);
    let (w, place) = (&local.weights[0], local.outputs[0]);
    let (to, rounded) = l.handed("heads", &place, w.rows.len());
    let part = Part { rounded, ..Part::plain(w, l.weight_of(mla.out, 0), to) };
    Product::new(vec![part], input).launch(l);
}
