//! The lines of a cache in half precision, read sixteen at a time.

use crate::simd::{LANES, Rows16, Simd, Sixteen, prefetch};
use half::f16;
use shardwright_model::exec::BLOCK;

/// A part of each line of a cache: keys or values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lines<'a> {
    pub(crate) cache: &'a [f16],
    /// Elements from one line to the next.
    pub(crate) stride: usize,
    /// Where our part of a line begins, and how long it is.
    pub(crate) start: usize,
    pub(crate) width: usize,
}

/// Which lines are read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Positions<'a> {
    /// All from 0 on, in these cache blocks.
    All(&'a [u32]),
    /// These, in such blocks.
    Picked(&'a [u32], &'a [f32]),
}

impl Positions<'_> {
    #[inline(always)]
    pub(super) fn line(&self, n: usize) -> usize {
        let (table, p) = match *self {
            Positions::All(table) => (table, n),
            Positions::Picked(table, picked) => (table, picked[n] as usize),
        };
        table[p / BLOCK] as usize * BLOCK + p % BLOCK
    }
}

impl<'a> Lines<'a> {
    #[inline(always)]
    pub(super) fn line(&self, at: usize) -> &'a [f16] {
        &self.cache[at * self.stride + self.start..][..self.width]
    }

    /// Sixteen lines from position `first` on, turned: element by element. Past the last of `most` positions that one is
    /// taken again. `copied` is memory for `width` vectors.
    #[inline(always)]
    pub(super) fn turn<S: Simd>(
        &self,
        positions: Positions<'_>,
        first: usize,
        most: usize,
        turned: &mut [Sixteen],
        copied: &mut [Sixteen],
    ) {
        let rows = match positions {
            // a block holds a multiple of sixteen lines
            Positions::All(_) => {
                for next in first + LANES..most.min(first + 2 * LANES) {
                    prefetch(bytemuck::cast_slice(self.line(positions.line(next))));
                }
                let from = positions.line(first) * self.stride + self.start;
                Rows16::new(bytemuck::cast_slice(&self.cache[from..]), 2 * self.stride, 2 * self.width)
            }
            Positions::Picked(..) => {
                let copied: &mut [f16] = bytemuck::cast_slice_mut(copied.as_flattened_mut());
                for r in 0..LANES {
                    let line = self.line(positions.line((first + r).min(most - 1)));
                    copied[r * self.width..][..self.width].copy_from_slice(line);
                }
                Rows16::new(bytemuck::cast_slice(copied), 2 * self.width, 2 * self.width)
            }
        };
        let (eights, rest) = turned.as_chunks_mut::<8>();
        for (j, out) in eights.iter_mut().enumerate() {
            let columns = S::columns(rows, 16 * j);
            for k in 0..4 {
                S::store(S::halves(columns[k]), &mut out[2 * k]);
                S::store(S::halves(S::shr::<16>(columns[k])), &mut out[2 * k + 1]);
            }
        }
        for (k, out) in rest.iter_mut().enumerate() {
            S::store(S::halves(S::short_column(rows, 16 * eights.len() + 2 * k)), out);
        }
    }
}
