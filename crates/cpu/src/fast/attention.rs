//! Attention over the cache, cut into pieces for the threads: some heads of some rows that read the same lines.

use super::attend::Attend;
use super::lines::{Lines, Positions};
use crate::cache::{Cache, place};
use crate::ops::attend_gqa::Heads;
use crate::rank::Step;
use crate::rows::Rows;
use crate::scratch::{floats, sized, vectors};
use std::ops::Range;

/// Queries in a piece, about: what has been read and turned once should serve many.
const QUERIES: usize = 32;
/// Heads in a piece, at most, where all read the same: the others are work for other threads.
const HEADS: usize = 8;

/// A piece of attention.
struct Piece<'a> {
    rows: Range<usize>,
    heads: Range<usize>,
    keys: Lines<'a>,
    values: Lines<'a>,
}

/// What all pieces share.
struct Shape<'a, Query> {
    scale: f32,
    /// Elements of a key and of a value.
    key: usize,
    value: usize,
    /// The positions of each row, if they are picked.
    pick: Option<Rows<'a>>,
    /// Writes the query of a row and head.
    query: Query,
}

/// Grouped-query attention.
pub(crate) fn grouped(
    step: &Step<'_>,
    heads: Heads,
    scale: f32,
    [q, k, v]: [Rows<'_>; 3],
    [keys, values]: [&mut Cache; 2],
    out: &mut [f32],
    memory: &mut Vec<f32>,
) {
    keys.write(step.batch, k, 0);
    values.write(step.batch, v, 0);
    let (keys, values) = (&*keys, &*values);
    let shape = Shape {
        scale,
        key: heads.key,
        value: heads.value,
        pick: None,
        query: |i: usize, h: usize, out: &mut [f32]| {
            out.copy_from_slice(&q.row(i)[h * heads.key..][..heads.key])
        },
    };
    let mut pieces = Vec::new();
    let mut h = 0;
    let count = q.width / heads.key;
    while h < count {
        let kv = heads.kv(h);
        let end = (h..count.min(h + QUERIES))
            .find(|other| heads.kv(*other) != kv)
            .unwrap_or(count.min(h + QUERIES));
        let keys = keys.lines(kv * heads.key, heads.key);
        let values = values.lines(kv * heads.value, heads.value);
        let rows = runs(step, QUERIES / (end - h), |_| true);
        pieces.extend(rows.map(|rows| Piece { rows, heads: h..end, keys, values }));
        h = end;
    }
    shape.attend(step, count, &pieces, out, memory);
}

/// Latent attention: one line serves all heads, as key whole and as value up to the latent's end.
pub(crate) fn latent(
    step: &Step<'_>,
    scale: f32,
    [q, q_rope, latent, k_rope]: [Rows<'_>; 4],
    pick: Option<Rows<'_>>,
    cache: &mut Cache,
    out: &mut [f32],
    memory: &mut Vec<f32>,
) {
    cache.write(step.batch, latent, 0);
    cache.write(step.batch, k_rope, latent.width);
    let (value, rope) = (latent.width, k_rope.width);
    let (keys, values) = (cache.lines(0, value + rope), cache.lines(0, value));
    let shape = Shape {
        scale,
        key: value + rope,
        value,
        pick,
        query: |i: usize, h: usize, out: &mut [f32]| {
            out[..value].copy_from_slice(&q.row(i)[h * value..][..value]);
            out[value..].copy_from_slice(&q_rope.row(i)[h * rope..][..rope]);
        },
    };
    let count = q.width / value;
    let parts = count.div_ceil(HEADS);
    let mut pieces = Vec::new();
    for part in 0..parts {
        let heads = part * count / parts..(part + 1) * count / parts;
        let rows = runs(step, QUERIES / heads.len(), |i| all_of(step, pick, i));
        pieces.extend(rows.map(|rows| Piece { rows, heads: heads.clone(), keys, values }));
    }
    shape.attend(step, count, &pieces, out, memory);
}

/// Does a row read all positions up to its own?
fn all_of(step: &Step<'_>, pick: Option<Rows<'_>>, i: usize) -> bool {
    let position = place(step.batch, i).1;
    pick.is_none_or(|pick| pick.row(i).get(position).is_some_and(|last| *last >= 0.0))
}

/// Rows of the step in runs of at most `most` of one sequence; one by one where they are not `alike`.
fn runs(step: &Step<'_>, most: usize, alike: impl Fn(usize) -> bool) -> impl Iterator<Item = Range<usize>> {
    let sequences = &step.batch.sequences;
    let mut next = 0;
    std::iter::from_fn(move || {
        let start = next;
        let sequence = sequences.get(start)?;
        next += 1;
        let joins = |i: usize| sequences.get(i) == Some(sequence) && alike(i);
        while alike(start) && next - start < most && joins(next) {
            next += 1;
        }
        Some(start..next)
    })
}

impl<Query: Fn(usize, usize, &mut [f32]) + Sync> Shape<'_, Query> {
    /// `heads` is the number of heads of a row of `out`.
    fn attend(
        &self,
        step: &Step<'_>,
        heads: usize,
        pieces: &[Piece<'_>],
        out: &mut [f32],
        memory: &mut Vec<f32>,
    ) {
        let len = |p: &Piece<'_>| p.rows.len() * p.heads.len() * self.value;
        let results = sized(memory, out.len());
        let mut rest = &mut *results;
        let split = pieces.iter().map(|p| (p, rest.split_off_mut(..len(p)).expect("pieces make the whole")));
        let work: Vec<_> = split.collect();
        step.team.share(work.into_iter(), |(p, out)| self.piece(step, p, out));
        let mut from = &*results;
        for p in pieces {
            for i in p.rows.clone() {
                let to = &mut out[(i * heads + p.heads.start) * self.value..][..p.heads.len() * self.value];
                to.copy_from_slice(from.split_off(..to.len()).expect("pieces make the whole"));
            }
        }
    }

    fn piece(&self, step: &Step<'_>, p: &Piece<'_>, out: &mut [f32]) {
        let (table, _) = place(step.batch, p.rows.start);
        let picked = self.pick.map(|pick| pick.row(p.rows.start));
        let picked = picked.filter(|_| !all_of(step, self.pick, p.rows.start));
        let count = |i: usize| match picked {
            Some(picked) => picked.iter().take_while(|t| **t >= 0.0).count(),
            None => place(step.batch, i).1 + 1,
        };
        let units = || p.rows.clone().flat_map(|i| p.heads.clone().map(move |h| (i, h)));
        let positions = match picked {
            Some(picked) => Positions::Picked(table, picked),
            None => Positions::All(table),
        };
        let counts: Vec<usize> = units().map(|(i, _)| count(i)).collect();
        floats(counts.len() * self.key, |queries| {
            for ((i, h), query) in units().zip(queries.chunks_exact_mut(self.key)) {
                (self.query)(i, h, query);
            }
            vectors(|memory| {
                let (scale, queries, counts) = (self.scale, &*queries, counts.as_slice());
                let (keys, values) = (p.keys, p.values);
                step.isa.run(Attend { keys, values, positions, scale, queries, counts, out, memory });
            });
        });
    }
}
