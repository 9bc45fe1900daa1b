//! Values as rows of f32.

use rayon::prelude::*;

/// A value: `count` rows of `width` elements, one behind the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows<'a> {
    data: &'a [f32],
    pub(crate) width: usize,
    pub(crate) count: usize,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(data: &'a [f32], width: usize, count: usize) -> Rows<'a> {
        Rows { data: &data[..width * count], width, count }
    }

    pub(crate) fn row(self, i: usize) -> &'a [f32] {
        &self.data[i * self.width..][..self.width]
    }

    /// `count` rows from `first` on.
    pub(crate) fn part(self, first: usize, count: usize) -> Rows<'a> {
        Rows::new(&self.data[first * self.width..], self.width, count)
    }

    pub(crate) fn all(self) -> &'a [f32] {
        self.data
    }
}

/// Fewer elements than this are no work for a second thread.
const LEAST: usize = 4096;

/// Fills the runs of `width` elements of `out`, in parallel.
pub(crate) fn fill(out: &mut [f32], width: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
    let Some(least) = LEAST.checked_div(width) else { return };
    out.par_chunks_mut(width).with_min_len(least.max(1)).enumerate().for_each(|(i, run)| f(i, run));
}
