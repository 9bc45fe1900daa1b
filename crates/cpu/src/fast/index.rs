//! The lightning indexer in f32: scores of all positions, sixteen at a time, then the best of them.

use super::attend::scores;
use super::lines::{Lines, Positions};
use crate::cache::{Cache, place};
use crate::ops::index::best;
use crate::rank::Step;
use crate::rows::Rows;
use crate::scratch::{sized, vectors};
use crate::simd::{Kernel, LANES, Simd, Sixteen};

/// Tiles of sixteen positions that a thread scores together.
const TOGETHER: usize = 32;
/// Scores held at once, at most (unless one row has more), in tiles.
const HELD: usize = 1 << 18;

/// Writes the step's index keys, then chooses the `keep` best positions up to each row's own: ascending, padded
/// with -1.
pub(crate) fn index(
    step: &Step<'_>,
    keep: usize,
    [q, k, gate]: [Rows<'_>; 3],
    cache: &mut Cache,
    out: &mut [f32],
    memory: &mut Vec<Sixteen>,
) {
    cache.write(step.batch, k, 0);
    let keys = cache.lines(0, k.width);
    let reach = |i: usize| place(step.batch, i).1 + 1;
    let tiles = (0..q.count).map(|i| reach(i).div_ceil(LANES)).max().unwrap_or(0);
    let together = (HELD / tiles.max(1)).max(1);
    for first in (0..q.count).step_by(together) {
        let count = together.min(q.count - first);
        let scores = sized(memory, count * tiles);
        let pieces = scores.chunks_mut(tiles).enumerate().flat_map(|(i, row)| {
            let (i, used) = (first + i, reach(first + i).div_ceil(LANES));
            let row = if reach(i) > keep { &mut row[..used] } else { &mut [] };
            row.chunks_mut(TOGETHER).enumerate().map(move |(c, piece)| (i, c * TOGETHER, piece))
        });
        step.team.share(pieces, |(i, tile, out)| {
            let positions = Positions::All(place(step.batch, i).0);
            let (queries, gates, most) = (q.row(i), gate.row(i), reach(i));
            vectors(|memory| {
                step.isa.run(Score { keys, positions, queries, gates, tile, most, out, memory })
            });
        });
        let scores = &*scores;
        step.team.runs(&mut out[first * keep..][..count * keep], keep, |i, out| {
            out.fill(-1.0);
            match reach(first + i) {
                few if few <= keep => out[..few].iter_mut().enumerate().for_each(|(t, o)| *o = t as f32),
                many => best(
                    scores[i * tiles..].as_flattened()[..many].iter().copied().enumerate().collect(),
                    out,
                ),
            }
        });
    }
}

/// Scores of the tiles from `tile` on, up to a factor that is the same for all.
#[derive(Debug)]
struct Score<'a> {
    keys: Lines<'a>,
    positions: Positions<'a>,
    queries: &'a [f32],
    gates: &'a [f32],
    tile: usize,
    most: usize,
    out: &'a mut [Sixteen],
    memory: &'a mut Vec<Sixteen>,
}

impl Kernel for Score<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        let (width, heads) = (self.keys.width, self.gates.len());
        self.memory.clear();
        self.memory.resize(2 * width + heads, [0.0; LANES]);
        let (turned, rest) = self.memory.split_at_mut(width);
        let (copied, dots) = rest.split_at_mut(width);
        for (t, out) in self.out.iter_mut().enumerate() {
            let first = (self.tile + t) * LANES;
            self.keys.turn::<S>(self.positions, first, self.most, turned, copied);
            scores::<S, 1>([turned], self.queries, 0, 1, dots);
            let mut sum = S::splat(0.0);
            for (dot, gate) in dots.iter().zip(self.gates) {
                sum = S::fma(S::splat(*gate), S::max(S::load(dot), S::splat(0.0)), sum);
            }
            S::store(sum, out);
        }
    }
}
