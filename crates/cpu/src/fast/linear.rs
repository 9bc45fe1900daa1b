//! Matrices: projections, one small matrix a head, and the logits.

use super::product::{Factors, Job, in_order, line_up, products, tiles};
use super::rounded::{RUN, Rounded};
use super::tile::Picked;
use crate::rank::Step;
use crate::rows::Rows;
use crate::scratch::sized;
use crate::simd::Sixteen;
use crate::weights::Stored;

/// Memory between the steps of a product.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    pub(crate) x: Rounded,
    pub(crate) tiles: Vec<Sixteen>,
}

/// Several quantized matrices over one value.
pub(crate) fn linear(
    step: &Step<'_>,
    biased: &[bool],
    w: &[Stored],
    x: Rows<'_>,
    outs: &mut [Vec<f32>],
    b: &mut Buffers,
) {
    b.x.set(step.team, step.isa, x);
    let (w, vectors) = w.split_at(biased.len());
    let each = |w: &Stored| tiles(w.rows()) * x.count;
    let mut rest = sized(&mut b.tiles, w.iter().map(each).sum());
    let mut job = |weight| {
        let out = rest.split_off_mut(..each(weight)).expect("room for all");
        let picked = Picked::From(0);
        Job { factors: Factors { weight, copy: 0, x: &b.x, first: 0, picked, count: x.count }, out }
    };
    let mut jobs: Vec<Job<'_>> = w.iter().map(&mut job).collect();
    products(step, &mut jobs);
    let mut vectors = vectors.iter();
    for ((job, biased), out) in jobs.iter().zip(biased).zip(outs) {
        let bias = biased.then(|| vectors.next().expect("a bias").vector.as_slice());
        in_order(step, job.out, bias, x.count, out);
    }
}

/// Head h of the output is `W_h x_h`.
pub(crate) fn per_head(step: &Step<'_>, w: &Stored, x: Rows<'_>, out: &mut [f32], b: &mut Buffers) {
    b.x.set(step.team, step.isa, x);
    let each = tiles(w.rows()) * x.count;
    let tiles = sized(&mut b.tiles, each * w.copies());
    let job = |(copy, out)| {
        let (first, picked) = (copy * (w.cols() / RUN), Picked::From(0));
        Job { factors: Factors { weight: w, copy, x: &b.x, first, picked, count: x.count }, out }
    };
    if each > 0 {
        let mut jobs: Vec<Job<'_>> = tiles.chunks_mut(each).enumerate().map(job).collect();
        products(step, &mut jobs);
    }
    let n = w.rows();
    step.team.fill(out, n, |unit, out| {
        let (i, copy) = (unit / w.copies(), unit % w.copies());
        line_up(&tiles[copy * each + i..], x.count, out);
    });
}

/// The rank's slice of the logits of the rows that want them.
pub(crate) fn logits(step: &Step<'_>, w: &Stored, x: Rows<'_>, out: &mut [f32], b: &mut Buffers) {
    let wanted: Vec<u32> = step.wanted.iter().map(|i| *i as u32).collect();
    b.x.set(step.team, step.isa, x);
    let out_tiles = sized(&mut b.tiles, tiles(w.rows()) * wanted.len());
    let picked = Picked::These(&wanted);
    let factors = Factors { weight: w, copy: 0, x: &b.x, first: 0, picked, count: wanted.len() };
    products(step, &mut [Job { factors, out: out_tiles }]);
    in_order(step, out_tiles, None, wanted.len(), out);
}
