//! Sixteen weight rows side by side as small integers, and their products with rounded activations.
//!
//! Within a group of 16 or 32 columns the products of integers are summed exactly. Each output then takes one group after
//! the other: `out += (scale_w scale_x) sum`, and where the type has a minimum `out += min_w (scale_x sum_x)`, fused
//! operations in f32. This order is the same for any number of rows and for every instruction set.

use super::rounded::{RUN, Rounded, Run, WORDS};
use crate::simd::{Kernel, LANES, Simd, Sixteen};

/// Columns of a tile, at most.
pub(crate) const COLS: usize = 256;

/// Up to 256 columns of sixteen rows.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Tile {
    /// Word `k` of row `r`: the codes of columns 4k..4k+4, each plus `zero`.
    pub(crate) codes: [[u32; LANES]; COLS / 4],
    /// For each group and row, what a code of 1 is worth.
    pub(crate) scale: [Sixteen; COLS / 16],
    /// For each group and row, what is added to every element.
    pub(crate) min: [Sixteen; COLS / 16],
    pub(crate) form: Form,
}

/// What a tile's numbers mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Form {
    /// Columns that share a scale: 16 or 32.
    pub(crate) group: usize,
    /// What was added to the codes to make them unsigned.
    pub(crate) zero: i32,
    /// Is there a minimum? Then `zero` is 0.
    pub(crate) min: bool,
}

impl Tile {
    pub(crate) const fn new() -> Tile {
        Tile {
            codes: [[0; LANES]; COLS / 4],
            scale: [[0.0; LANES]; COLS / 16],
            min: [[0.0; LANES]; COLS / 16],
            form: Form { group: RUN, zero: 0, min: false },
        }
    }
}

/// Takes 32 columns of sixteen rows at a time, in order: words of four codes, and what they are worth. With `SMALL` all codes
/// are below 128, with `MIN` there is a minimum.
pub(crate) trait Runs<S: Simd> {
    /// One scale for all.
    fn whole<const SMALL: bool, const MIN: bool>(
        &mut self,
        run: usize,
        codes: [S::U; 8],
        scale: S::F,
        min: S::F,
    );
    /// One scale for each half.
    fn halves<const SMALL: bool>(&mut self, run: usize, codes: [S::U; 8], scale: [S::F; 2]);
}

impl<S: Simd> Runs<S> for Tile {
    #[inline(always)]
    fn whole<const SMALL: bool, const MIN: bool>(
        &mut self,
        run: usize,
        codes: [S::U; 8],
        scale: S::F,
        min: S::F,
    ) {
        for (k, word) in codes.into_iter().enumerate() {
            S::store_words(word, &mut self.codes[run * WORDS + k]);
        }
        S::store(scale, &mut self.scale[run]);
        if MIN {
            S::store(min, &mut self.min[run]);
        }
    }

    #[inline(always)]
    fn halves<const SMALL: bool>(&mut self, run: usize, codes: [S::U; 8], scale: [S::F; 2]) {
        for (k, word) in codes.into_iter().enumerate() {
            S::store_words(word, &mut self.codes[run * WORDS + k]);
        }
        for (part, scale) in scale.into_iter().enumerate() {
            S::store(scale, &mut self.scale[2 * run + part]);
        }
    }
}

/// The products with one row of activations.
pub(crate) struct Single<'a, S: Simd> {
    x: &'a [Run],
    zero: i32,
    pub(crate) sum: S::F,
}

impl<'a, S: Simd> Single<'a, S> {
    #[inline(always)]
    pub(crate) fn new(x: &'a [Run], out: &Sixteen, form: Form) -> Single<'a, S> {
        Single { x, zero: form.zero, sum: S::load(out) }
    }
}

impl<S: Simd> Runs<S> for Single<'_, S> {
    #[inline(always)]
    fn whole<const SMALL: bool, const MIN: bool>(
        &mut self,
        run: usize,
        codes: [S::U; 8],
        scale: S::F,
        min: S::F,
    ) {
        let x = &self.x[run];
        let sum = x.sums[0].wrapping_add(x.sums[1]);
        let mut dots = S::words(if MIN { 0 } else { sum.wrapping_mul(-self.zero).cast_unsigned() });
        for k in 0..WORDS {
            dots = S::dot::<SMALL>(dots, codes[k], x.codes[k]);
        }
        self.sum = S::fma(S::float(dots), S::mul(scale, S::splat(x.scale)), self.sum);
        if MIN {
            self.sum = S::fma(min, S::splat(x.scale * sum as f32), self.sum);
        }
    }

    #[inline(always)]
    fn halves<const SMALL: bool>(&mut self, run: usize, codes: [S::U; 8], scale: [S::F; 2]) {
        let x = &self.x[run];
        for part in 0..2 {
            let mut dots = S::words(x.sums[part].wrapping_mul(-self.zero).cast_unsigned());
            for k in 4 * part..4 * part + 4 {
                dots = S::dot::<SMALL>(dots, codes[k], x.codes[k]);
            }
            self.sum = S::fma(S::float(dots), S::mul(scale[part], S::splat(x.scale)), self.sum);
        }
    }
}

/// Which rows of activations.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Picked<'a> {
    /// So many from this one on.
    From(usize),
    /// These.
    These(&'a [u32]),
}

impl Picked<'_> {
    #[inline(always)]
    pub(super) fn at(self, i: usize) -> usize {
        match self {
            Picked::From(first) => first + i,
            Picked::These(ids) => ids[i] as usize,
        }
    }
}

/// Adds the products of a tile with the runs of some rows to their outputs.
#[derive(Debug)]
pub(crate) struct Multiply<'a> {
    pub(crate) tile: &'a Tile,
    pub(crate) x: &'a Rounded,
    pub(crate) picked: Picked<'a>,
    /// The runs of a row that meet the tile's columns.
    pub(crate) first: usize,
    pub(crate) runs: usize,
    /// One for each row of activations.
    pub(crate) out: &'a mut [Sixteen],
}

impl Kernel for Multiply<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        let form = self.tile.form;
        // the types with a minimum have few bits
        match (form.group, form.min, form.zero < 128) {
            (RUN, true, _) => self.all::<S, RUN, true, true>(),
            (RUN, false, true) => self.all::<S, RUN, false, true>(),
            (RUN, false, false) => self.all::<S, RUN, false, false>(),
            (_, true, _) => self.all::<S, 16, true, true>(),
            (_, false, true) => self.all::<S, 16, false, true>(),
            (_, false, false) => self.all::<S, 16, false, false>(),
        }
    }
}

impl Multiply<'_> {
    #[inline(always)]
    fn all<S: Simd, const GROUP: usize, const MIN: bool, const SMALL: bool>(mut self) {
        let mut done = 0;
        if S::REGISTERS >= 32 {
            done = self.several::<S, GROUP, MIN, SMALL, 8>(done);
        }
        done = self.several::<S, GROUP, MIN, SMALL, 2>(done);
        self.several::<S, GROUP, MIN, SMALL, 1>(done);
    }

    /// Takes `R` rows at a time from row `done` on, as long as there are as many; how far it came.
    #[inline(always)]
    fn several<S: Simd, const GROUP: usize, const MIN: bool, const SMALL: bool, const R: usize>(
        &mut self,
        mut done: usize,
    ) -> usize {
        while let Some(out) = self.out.get_mut(done..).and_then(|out| out.first_chunk_mut::<R>()) {
            let mut x: [&[Run]; R] = [&[]; R];
            for (i, x) in x.iter_mut().enumerate() {
                *x = &self.x.row(self.picked.at(done + i))[self.first..][..self.runs];
            }
            multiply::<S, GROUP, MIN, SMALL, R>(self.tile, x, out);
            done += R;
        }
        done
    }
}

#[inline(always)]
fn multiply<S: Simd, const GROUP: usize, const MIN: bool, const SMALL: bool, const R: usize>(
    tile: &Tile,
    x: [&[Run]; R],
    out: &mut [Sixteen; R],
) {
    let runs = x[0].len().min(COLS / RUN);
    let mut sum = [S::splat(0.0); R];
    for i in 0..R {
        sum[i] = S::load(&out[i]);
    }
    for b in 0..runs {
        let mut run = [&x[0][b]; R];
        for i in 1..R {
            run[i] = &x[i][b];
        }
        let x = run;
        for part in 0..RUN / GROUP {
            let g = b * (RUN / GROUP) + part;
            let mut sums = [0i32; R];
            let mut dots = [S::words(0); R];
            for i in 0..R {
                sums[i] =
                    if GROUP == RUN { x[i].sums[0].wrapping_add(x[i].sums[1]) } else { x[i].sums[part] };
                if !MIN {
                    dots[i] = S::words(sums[i].wrapping_mul(-tile.form.zero).cast_unsigned());
                }
            }
            for k in 0..GROUP / 4 {
                let codes = S::load_words(&tile.codes[g * (GROUP / 4) + k]);
                for i in 0..R {
                    dots[i] = S::dot::<SMALL>(dots[i], codes, x[i].codes[part * (GROUP / 4) + k]);
                }
            }
            let scale = S::load(&tile.scale[g]);
            for i in 0..R {
                sum[i] = S::fma(S::float(dots[i]), S::mul(scale, S::splat(x[i].scale)), sum[i]);
            }
            if MIN {
                let min = S::load(&tile.min[g]);
                for i in 0..R {
                    sum[i] = S::fma(min, S::splat(x[i].scale * sums[i] as f32), sum[i]);
                }
            }
        }
    }
    for i in 0..R {
        S::store(sum[i], &mut out[i]);
    }
}
