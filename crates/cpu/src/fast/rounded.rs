//! Activations rounded to 8 bits: runs of 32 share a scale of their largest magnitude / 127.

use crate::rows::Rows;
use crate::simd::{Isa, Kernel, LANES, Simd, Sixteen};
use crate::team::Team;

/// Elements that share a scale.
pub(crate) const RUN: usize = 32;
/// Words of four codes in a run.
pub(crate) const WORDS: usize = RUN / 4;

/// Thirty-two elements: element j is `scale * codes[j]`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Run {
    /// Four signed bytes a word.
    pub(crate) codes: [u32; WORDS],
    /// What a code of 1 is worth.
    pub(crate) scale: f32,
    /// Sums of the codes of the first and the second 16 elements.
    pub(crate) sums: [i32; 2],
}

/// Rows of runs.
#[derive(Debug, Default)]
pub(crate) struct Rounded {
    runs: Vec<Run>,
    /// Runs of a row.
    pub(crate) width: usize,
}

impl Rounded {
    /// Makes room for `count` rows of `width` elements, whose values are then set.
    pub(crate) fn resize(&mut self, width: usize, count: usize) -> &mut [Run] {
        debug_assert_eq!(width % RUN, 0);
        self.width = width / RUN;
        self.runs.resize(self.width * count, Run::default());
        &mut self.runs
    }

    /// Rounds rows whose width is a multiple of 32.
    pub(crate) fn set(&mut self, team: &Team, isa: Isa, x: Rows<'_>) {
        /// Fewer runs than this are no work for a second thread.
        const LEAST: usize = 512;
        let runs = self.resize(x.width, x.count);
        let x = x.all();
        let work = |(c, runs): (usize, &mut [Run])| isa.run(Round { x: &x[c * LEAST * RUN..], runs });
        match runs.len() {
            0..=LEAST => work((0, runs)),
            _ => team.share(runs.chunks_mut(LEAST).enumerate(), work),
        }
    }

    /// The runs of a row.
    #[inline(always)]
    pub(crate) fn row(&self, i: usize) -> &[Run] {
        &self.runs[i * self.width..][..self.width]
    }
}

/// Rounds as many runs as there are.
pub(crate) struct Round<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) runs: &'a mut [Run],
}

impl Kernel for Round<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        let (x, _) = self.x.as_chunks::<LANES>();
        for (run, x) in self.runs.iter_mut().zip(x.chunks_exact(2)) {
            round::<S>([S::load(&x[0]), S::load(&x[1])], run);
        }
    }
}

#[inline(always)]
pub(super) fn round<S: Simd>(x: [S::F; 2], run: &mut Run) {
    let mut most = [0.0; LANES];
    S::store(S::max(magnitude::<S>(x[0]), magnitude::<S>(x[1])), &mut most);
    let most = largest(&most);
    run.scale = most / 127.0;
    let factor = if most > 0.0 { 127.0 / most } else { 0.0 };
    for (half, x) in x.into_iter().enumerate() {
        let mut codes = [0u32; LANES];
        S::store_words(S::nearest(S::mul(x, S::splat(factor))), &mut codes);
        let codes = codes.map(|c| c.cast_signed());
        run.sums[half] = codes.iter().fold(0, |sum, c| sum.wrapping_add(*c));
        let (words, _) = codes.as_chunks::<4>();
        for (out, four) in run.codes[4 * half..].iter_mut().zip(words) {
            *out = u32::from_le_bytes(four.map(|c| c as u8));
        }
    }
}

#[inline(always)]
fn magnitude<S: Simd>(x: S::F) -> S::F {
    S::from_bits(S::and(S::bits(x), S::words(0x7fff_ffff)))
}

#[inline(always)]
fn largest(x: &Sixteen) -> f32 {
    let more = |a: f32, b: f32| if a > b { a } else { b };
    let eight: [f32; 8] = std::array::from_fn(|i| more(x[i], x[i + 8]));
    let four: [f32; 4] = std::array::from_fn(|i| more(eight[i], eight[i + 4]));
    more(more(four[0], four[2]), more(four[1], four[3]))
}
