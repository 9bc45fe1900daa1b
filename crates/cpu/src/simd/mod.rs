//! Sixteen lanes of f32 or of 32-bit words, on whatever the processor has.
//!
//! Each operation gives the same bits on every instruction set, so a kernel written with them does too.
#![allow(unsafe_code)]

use half::f16;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod plain;

/// Lanes of a vector.
pub(crate) const LANES: usize = 16;

/// Sixteen numbers in memory.
pub(crate) type Sixteen = [f32; LANES];

/// Rows of bytes that are read side by side: row `r` begins at `r * stride`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows16<'a> {
    bytes: &'a [u8],
    stride: usize,
    /// Bytes of a row.
    len: usize,
}

impl<'a> Rows16<'a> {
    /// Sixteen rows of `len` bytes.
    pub(crate) fn new(bytes: &'a [u8], stride: usize, len: usize) -> Rows16<'a> {
        assert!((LANES - 1) * stride + len <= bytes.len(), "sixteen rows");
        Rows16 { bytes, stride, len }
    }

    /// `len` bytes of a row.
    pub(crate) fn row(self, row: usize, offset: usize, len: usize) -> &'a [u8] {
        &self.bytes[row * self.stride + offset..][..len]
    }

    /// `N` bytes of a row from `offset` on.
    #[inline(always)]
    fn at<const N: usize>(self, row: usize, offset: usize) -> &'a [u8; N] {
        debug_assert!(row < LANES && offset + N <= self.len);
        let start = row * self.stride + offset;
        // SAFETY: `new` has seen that all rows lie within `bytes`; kernels stay within a row, which the tests of every
        // type check in debug builds.
        unsafe { &*self.bytes.as_ptr().add(start).cast::<[u8; N]>() }
    }
}

/// Asks for bytes that will be read soon: sixteen rows are read in turns, a pattern that processors do not foresee.
pub(crate) fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 processor has the instruction, and it reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) }
    }
}

/// An instruction set.
pub(crate) trait Simd: Copy {
    /// Vector registers of sixteen lanes, about.
    const REGISTERS: usize;
    /// Sixteen f32.
    type F: Copy;
    /// Sixteen 32-bit words.
    type U: Copy;

    fn splat(x: f32) -> Self::F;
    fn load(x: &Sixteen) -> Self::F;
    fn load_halves(x: &[f16; LANES]) -> Self::F;
    fn store(x: Self::F, out: &mut Sixteen);
    fn add(a: Self::F, b: Self::F) -> Self::F;
    fn sub(a: Self::F, b: Self::F) -> Self::F;
    fn mul(a: Self::F, b: Self::F) -> Self::F;
    fn div(a: Self::F, b: Self::F) -> Self::F;
    /// The larger; `b` where one is NaN.
    fn max(a: Self::F, b: Self::F) -> Self::F;
    /// The smaller; `b` where one is NaN.
    fn min(a: Self::F, b: Self::F) -> Self::F;
    /// `a b + c`, rounded once.
    fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;

    fn words(x: u32) -> Self::U;
    fn load_words(x: &[u32; LANES]) -> Self::U;
    fn store_words(x: Self::U, out: &mut [u32; LANES]);
    fn and(a: Self::U, b: Self::U) -> Self::U;
    fn or(a: Self::U, b: Self::U) -> Self::U;
    fn xor(a: Self::U, b: Self::U) -> Self::U;
    fn shl<const N: u32>(a: Self::U) -> Self::U;
    fn shr<const N: u32>(a: Self::U) -> Self::U;
    /// Sum of integers of 32 bits, wrapping.
    fn plus(a: Self::U, b: Self::U) -> Self::U;
    /// Signed integers to f32.
    fn float(a: Self::U) -> Self::F;
    /// The nearest integers, ties to even.
    fn nearest(a: Self::F) -> Self::U;
    /// The bits of f32 as words.
    fn bits(a: Self::F) -> Self::U;
    /// Words as the bits of f32.
    fn from_bits(a: Self::U) -> Self::F;
    /// The f16 in the lower half of each word.
    fn halves(a: Self::U) -> Self::F;
    /// `acc` plus, in each lane, the dot product of its four unsigned bytes with the four signed bytes of `x`. With `SMALL` no
    /// byte of `a` is above 127.
    fn dot<const SMALL: bool>(acc: Self::U, a: Self::U, x: u32) -> Self::U;
    /// The bytes of `table` at the places that the bytes of `a`, all below 16, name.
    fn look_up(table: &[u8; 16], a: Self::U) -> Self::U;
    /// 16 bytes of each row from `offset` on, turned: word k holds bytes 4k..4k+4, lane r those of row r.
    fn columns(rows: Rows16<'_>, offset: usize) -> [Self::U; 4];
    /// 4 bytes of each row.
    #[inline(always)]
    fn column(rows: Rows16<'_>, offset: usize) -> Self::U {
        let mut words = [0; LANES];
        for (r, word) in words.iter_mut().enumerate() {
            *word = u32::from_le_bytes(*rows.at(r, offset));
        }
        Self::load_words(&words)
    }
    /// 2 bytes of each row, in the lower half of the words.
    #[inline(always)]
    fn short_column(rows: Rows16<'_>, offset: usize) -> Self::U {
        let mut words = [0; LANES];
        for (r, word) in words.iter_mut().enumerate() {
            *word = u32::from(u16::from_le_bytes(*rows.at(r, offset)));
        }
        Self::load_words(&words)
    }
}

/// Work that is written once for all instruction sets.
pub(crate) trait Kernel {
    /// What it gives.
    type Out;
    /// Does it. To be marked `#[inline(always)]`, like all that it calls with `S`.
    fn run<S: Simd>(self) -> Self::Out;
}

/// The instruction set to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isa {
    /// 512-bit vectors with integer dot products.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// 256-bit vectors.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// What the compiler makes of plain loops.
    Plain,
}

impl Isa {
    /// All that this processor has, the best first.
    pub(crate) fn found() -> Vec<Isa> {
        #[allow(unused_mut)]
        let mut found = vec![Isa::Plain];
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c");
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni");
            found.splice(0..0, avx2.then_some(Isa::Avx2));
            found.splice(0..0, (avx2 && avx512).then_some(Isa::Avx512));
        }
        found
    }

    /// Runs a kernel.
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Out {
        match self {
            // SAFETY: these instruction sets are made by `found` alone, which has seen their instructions.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => unsafe { avx512::run(kernel) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { avx2::run(kernel) },
            Isa::Plain => kernel.run::<plain::Plain>(),
        }
    }
}

/// The sum of sixteen numbers, always in the same order.
#[inline(always)]
pub(crate) fn total(x: &Sixteen) -> f32 {
    let eight: [f32; 8] = std::array::from_fn(|i| x[i] + x[i + 8]);
    let four: [f32; 4] = std::array::from_fn(|i| eight[i] + eight[i + 4]);
    (four[0] + four[2]) + (four[1] + four[3])
}

/// `e^x`, to a few units of the last place; 0 far below, a large number far above.
#[inline(always)]
pub(crate) fn exp<S: Simd>(x: S::F) -> S::F {
    let x = S::min(S::max(x, S::splat(-87.0)), S::splat(88.0));
    let n = S::float(S::nearest(S::mul(x, S::splat(std::f32::consts::LOG2_E))));
    // ln 2 in two parts, the first one short enough for exact products
    let r = S::fma(n, S::splat(-0.693_359_4), x);
    let r = S::fma(n, S::splat(2.121_944_4e-4), r);
    let terms = [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];
    let mut p = S::splat(1.0 / 5040.0);
    for t in terms {
        p = S::fma(p, r, S::splat(t));
    }
    let power = S::shl::<23>(S::plus(S::nearest(n), S::words(127)));
    S::mul(p, S::from_bits(power))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Odd numbers of all sizes.
    fn words(n: usize) -> Vec<u32> {
        let mut s = 0x9e37_79b9u32;
        let mut next = || {
            s ^= s << 13;
            s ^= s >> 17;
            s ^= s << 5;
            s
        };
        (0..n).map(|_| next()).collect()
    }

    fn numbers(n: usize) -> Vec<f32> {
        words(n).into_iter().map(|w| f32::from_bits((w & 0x87ff_ffff) + 0x3c00_0000)).collect()
    }

    /// All operations, each result as words.
    struct All;

    impl Kernel for All {
        type Out = Vec<[u32; LANES]>;

        #[inline(always)]
        fn run<S: Simd>(self) -> Self::Out {
            let mut results = Vec::new();
            let mut keep = |x: S::U| {
                let mut out = [0; LANES];
                S::store_words(x, &mut out);
                results.push(out);
            };
            let n = numbers(48);
            let n: Vec<&Sixteen> = n.as_chunks::<LANES>().0.iter().collect();
            let (a, b, c) = (S::load(n[0]), S::load(n[1]), S::load(n[2]));
            for f in [
                S::add(a, b),
                S::sub(a, b),
                S::mul(a, b),
                S::div(a, b),
                S::max(a, b),
                S::min(a, b),
                S::fma(a, b, c),
                exp::<S>(a),
            ] {
                keep(S::bits(f));
            }
            keep(S::nearest(S::mul(a, S::splat(1000.5))));
            keep(S::nearest(S::splat(2.5)));
            keep(S::nearest(S::splat(-3.5)));
            let w = words(32);
            let w: Vec<&[u32; LANES]> = w.as_chunks::<LANES>().0.iter().collect();
            let (u, v) = (S::load_words(w[0]), S::load_words(w[1]));
            for x in [S::and(u, v), S::or(u, v), S::xor(u, v), S::plus(u, v), S::shl::<5>(u), S::shr::<7>(u)]
            {
                keep(x);
            }
            keep(S::bits(S::float(u)));
            keep(S::look_up(&std::array::from_fn(|i| 200 - i as u8), S::and(u, S::words(0x0f0f_0f0f))));
            for x in [0x7f7f_7f7f, 0x8181_8181, 0x817f_7f81, 0x0102_03fc] {
                keep(S::dot::<false>(v, u, x));
                keep(S::dot::<false>(v, S::words(u32::MAX), x));
                keep(S::dot::<true>(v, S::and(u, S::words(0x7f7f_7f7f)), x));
                keep(S::dot::<true>(v, S::words(0x7f7f_7f7f), x));
            }
            let bytes: Vec<u8> = words(500).iter().flat_map(|w| w.to_le_bytes()).collect();
            let rows = Rows16::new(&bytes, 101, 64);
            S::columns(rows, 3).into_iter().for_each(&mut keep);
            keep(S::column(rows, 60));
            keep(S::short_column(rows, 62));
            // every f16 but the NaNs, whose bits may differ
            for h in (0..=u16::MAX).step_by(LANES).filter(|h| h & 0x7c00 != 0x7c00) {
                let halves: [f16; LANES] = std::array::from_fn(|i| f16::from_bits(h + i as u16));
                keep(S::bits(S::load_halves(&halves)));
                let words: [u32; LANES] = std::array::from_fn(|i| 0xabcd_0000 + u32::from(h) + i as u32);
                keep(S::bits(S::halves(S::load_words(&words))));
            }
            results
        }
    }

    #[test]
    fn every_instruction_set_gives_the_same_bits() {
        let plain = Isa::Plain.run(All);
        assert!(plain.len() > 7900);
        for isa in Isa::found() {
            for (i, (got, want)) in isa.run(All).into_iter().zip(&plain).enumerate() {
                assert_eq!(got, *want, "{isa:?}, result {i}");
            }
        }
    }

    #[test]
    fn exp_is_exp() {
        struct Exp(Sixteen);
        impl Kernel for Exp {
            type Out = Sixteen;
            #[inline(always)]
            fn run<S: Simd>(mut self) -> Sixteen {
                S::store(exp::<S>(S::load(&self.0)), &mut self.0);
                self.0
            }
        }
        for k in -860..860 {
            let x: Sixteen = std::array::from_fn(|i| (k as f32 + i as f32 / 16.0) / 10.0);
            for (got, x) in Isa::Plain.run(Exp(x)).into_iter().zip(x) {
                let want = f64::from(x).exp();
                assert!((f64::from(got) / want - 1.0).abs() < 4e-7, "{x}: {got}, not {want}");
            }
        }
    }
}
