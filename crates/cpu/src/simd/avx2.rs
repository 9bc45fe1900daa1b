//! AVX2 with FMA and F16C: two registers a vector.
#![allow(unsafe_code)]

use super::{Kernel, LANES, Rows16, Simd, Sixteen};
use half::f16;
use std::arch::x86_64::*;

/// The instruction set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx2;

/// Runs a kernel compiled for it.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn run<K: Kernel>(kernel: K) -> K::Out {
    kernel.run::<Avx2>()
}

type F = [__m256; 2];
type U = [__m256i; 2];

/// Calls an intrinsic.
macro_rules! do256 {
    ($call:expr) => {
        // SAFETY: `Avx2` is used by kernels under `run` only, which is compiled for these instructions; loads and
        // stores are of references to as many bytes, or of 16 that `Rows16` has checked.
        unsafe { $call }
    };
}

/// The two halves of a result.
macro_rules! both {
    ($call:ident $(::<$n:ident>)?, $a:expr) => { do256!([$call $(::<$n>)?($a[0]), $call $(::<$n>)?($a[1])]) };
    ($call:ident, $a:expr, $b:expr) => { do256!([$call($a[0], $b[0]), $call($a[1], $b[1])]) };
    ($call:ident, $a:expr, $b:expr, $c:expr) => {
        do256!([$call($a[0], $b[0], $c[0]), $call($a[1], $b[1], $c[1])])
    };
}

/// Lane q of the result holds 16 bytes of row `row + 4 q`.
#[inline(always)]
fn two(rows: Rows16<'_>, row: usize, offset: usize) -> __m256i {
    do256!({
        let x = _mm256_castsi128_si256(_mm_loadu_si128(rows.at::<16>(row, offset).as_ptr().cast()));
        _mm256_inserti128_si256::<1>(x, _mm_loadu_si128(rows.at::<16>(row + 4, offset).as_ptr().cast()))
    })
}

/// The columns of the eight rows from `first` on.
#[inline(always)]
fn eight(rows: Rows16<'_>, first: usize, offset: usize) -> [__m256i; 4] {
    let (a, b) = (two(rows, first, offset), two(rows, first + 1, offset));
    let (c, d) = (two(rows, first + 2, offset), two(rows, first + 3, offset));
    do256!({
        let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
        let (ef, gh) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
        [
            _mm256_unpacklo_epi64(ab, cd),
            _mm256_unpackhi_epi64(ab, cd),
            _mm256_unpacklo_epi64(ef, gh),
            _mm256_unpackhi_epi64(ef, gh),
        ]
    })
}

impl Simd for Avx2 {
    const REGISTERS: usize = 8;
    type F = F;
    type U = U;

    #[inline(always)]
    fn splat(x: f32) -> F {
        [do256!(_mm256_set1_ps(x)); 2]
    }
    #[inline(always)]
    fn load(x: &Sixteen) -> F {
        do256!([_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(x.as_ptr().add(8))])
    }
    #[inline(always)]
    fn load_halves(x: &[f16; LANES]) -> F {
        do256!([
            _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().cast())),
            _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().add(8).cast()))
        ])
    }
    #[inline(always)]
    fn store(x: F, out: &mut Sixteen) {
        do256!({
            _mm256_storeu_ps(out.as_mut_ptr(), x[0]);
            _mm256_storeu_ps(out.as_mut_ptr().add(8), x[1]);
        });
    }
    #[inline(always)]
    fn add(a: F, b: F) -> F {
        both!(_mm256_add_ps, a, b)
    }
    #[inline(always)]
    fn sub(a: F, b: F) -> F {
        both!(_mm256_sub_ps, a, b)
    }
    #[inline(always)]
    fn mul(a: F, b: F) -> F {
        both!(_mm256_mul_ps, a, b)
    }
    #[inline(always)]
    fn div(a: F, b: F) -> F {
        both!(_mm256_div_ps, a, b)
    }
    #[inline(always)]
    fn max(a: F, b: F) -> F {
        both!(_mm256_max_ps, a, b)
    }
    #[inline(always)]
    fn min(a: F, b: F) -> F {
        both!(_mm256_min_ps, a, b)
    }
    #[inline(always)]
    fn fma(a: F, b: F, c: F) -> F {
        both!(_mm256_fmadd_ps, a, b, c)
    }
    #[inline(always)]
    fn words(x: u32) -> U {
        [do256!(_mm256_set1_epi32(x.cast_signed())); 2]
    }
    #[inline(always)]
    fn load_words(x: &[u32; LANES]) -> U {
        do256!([_mm256_loadu_si256(x.as_ptr().cast()), _mm256_loadu_si256(x.as_ptr().add(8).cast())])
    }
    #[inline(always)]
    fn store_words(x: U, out: &mut [u32; LANES]) {
        do256!({
            _mm256_storeu_si256(out.as_mut_ptr().cast(), x[0]);
            _mm256_storeu_si256(out.as_mut_ptr().add(8).cast(), x[1]);
        });
    }
    #[inline(always)]
    fn and(a: U, b: U) -> U {
        both!(_mm256_and_si256, a, b)
    }
    #[inline(always)]
    fn or(a: U, b: U) -> U {
        both!(_mm256_or_si256, a, b)
    }
    #[inline(always)]
    fn xor(a: U, b: U) -> U {
        both!(_mm256_xor_si256, a, b)
    }
    #[inline(always)]
    fn shl<const N: u32>(a: U) -> U {
        let by = do256!(_mm_cvtsi32_si128(N.cast_signed()));
        do256!([_mm256_sll_epi32(a[0], by), _mm256_sll_epi32(a[1], by)])
    }
    #[inline(always)]
    fn shr<const N: u32>(a: U) -> U {
        let by = do256!(_mm_cvtsi32_si128(N.cast_signed()));
        do256!([_mm256_srl_epi32(a[0], by), _mm256_srl_epi32(a[1], by)])
    }
    #[inline(always)]
    fn plus(a: U, b: U) -> U {
        both!(_mm256_add_epi32, a, b)
    }
    #[inline(always)]
    fn float(a: U) -> F {
        both!(_mm256_cvtepi32_ps, a)
    }
    #[inline(always)]
    fn nearest(a: F) -> U {
        both!(_mm256_cvtps_epi32, a)
    }
    #[inline(always)]
    fn bits(a: F) -> U {
        both!(_mm256_castps_si256, a)
    }
    #[inline(always)]
    fn from_bits(a: U) -> F {
        both!(_mm256_castsi256_ps, a)
    }
    #[inline(always)]
    fn halves(a: U) -> F {
        do256!({
            let low = _mm256_set1_epi32(0xffff);
            let packed = _mm256_packus_epi32(_mm256_and_si256(a[0], low), _mm256_and_si256(a[1], low));
            // packing goes by lanes of 128 bits
            let packed = _mm256_permute4x64_epi64::<0b11_01_10_00>(packed);
            let [lower, upper] = [_mm256_castsi256_si128(packed), _mm256_extracti128_si256::<1>(packed)];
            [_mm256_cvtph_ps(lower), _mm256_cvtph_ps(upper)]
        })
    }
    #[inline(always)]
    fn dot<const SMALL: bool>(acc: U, a: U, x: u32) -> U {
        do256!({
            let x = _mm256_set1_epi32(x.cast_signed());
            if SMALL {
                // two products of 127 by 127 fit into 16 bits
                let one = _mm256_set1_epi16(1);
                let low = _mm256_madd_epi16(_mm256_maddubs_epi16(a[0], x), one);
                let high = _mm256_madd_epi16(_mm256_maddubs_epi16(a[1], x), one);
                return [_mm256_add_epi32(acc[0], low), _mm256_add_epi32(acc[1], high)];
            }
            let (even, odd) = (_mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(x)), _mm256_srai_epi16::<8>(x));
            let mut sum = acc;
            for (sum, a) in sum.iter_mut().zip(a) {
                let e = _mm256_and_si256(a, _mm256_set1_epi16(0xff));
                let o = _mm256_srli_epi16::<8>(a);
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(e, even));
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(o, odd));
            }
            sum
        })
    }
    #[inline(always)]
    fn look_up(table: &[u8; 16], a: U) -> U {
        do256!({
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            [_mm256_shuffle_epi8(table, a[0]), _mm256_shuffle_epi8(table, a[1])]
        })
    }
    #[inline(always)]
    fn columns(rows: Rows16<'_>, offset: usize) -> [U; 4] {
        let (lower, upper) = (eight(rows, 0, offset), eight(rows, 8, offset));
        [[lower[0], upper[0]], [lower[1], upper[1]], [lower[2], upper[2]], [lower[3], upper[3]]]
    }
}
