//! AVX-512 with VNNI: one register a vector.
#![allow(unsafe_code)]

use super::{Kernel, LANES, Rows16, Simd, Sixteen};
use half::f16;
use std::arch::x86_64::*;

/// The instruction set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx512;

/// Runs a kernel compiled for it.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn run<K: Kernel>(kernel: K) -> K::Out {
    kernel.run::<Avx512>()
}

type F = __m512;
type U = __m512i;

/// Calls an intrinsic.
macro_rules! do512 {
    ($call:expr) => {
        // SAFETY: `Avx512` is used by kernels under `run` only, which is compiled for these instructions; loads and
        // stores are of references to 64 bytes, or of 16 that `Rows16` has checked.
        unsafe { $call }
    };
}

/// Lane q of the result holds 16 bytes of row 4 q + j.
#[inline(always)]
fn four(rows: Rows16<'_>, j: usize, offset: usize) -> U {
    do512!({
        let x = _mm512_castsi128_si512(_mm_loadu_si128(rows.at::<16>(j, offset).as_ptr().cast()));
        let x = _mm512_inserti32x4::<1>(x, _mm_loadu_si128(rows.at::<16>(4 + j, offset).as_ptr().cast()));
        let x = _mm512_inserti32x4::<2>(x, _mm_loadu_si128(rows.at::<16>(8 + j, offset).as_ptr().cast()));
        _mm512_inserti32x4::<3>(x, _mm_loadu_si128(rows.at::<16>(12 + j, offset).as_ptr().cast()))
    })
}

impl Simd for Avx512 {
    const REGISTERS: usize = 32;
    type F = F;
    type U = U;

    #[inline(always)]
    fn splat(x: f32) -> F {
        do512!(_mm512_set1_ps(x))
    }
    #[inline(always)]
    fn load(x: &Sixteen) -> F {
        do512!(_mm512_loadu_ps(x.as_ptr()))
    }
    #[inline(always)]
    fn load_halves(x: &[f16; LANES]) -> F {
        do512!(_mm512_cvtph_ps(_mm256_loadu_si256(x.as_ptr().cast())))
    }
    #[inline(always)]
    fn store(x: F, out: &mut Sixteen) {
        do512!(_mm512_storeu_ps(out.as_mut_ptr(), x));
    }
    #[inline(always)]
    fn add(a: F, b: F) -> F {
        do512!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(a: F, b: F) -> F {
        do512!(_mm512_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(a: F, b: F) -> F {
        do512!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(a: F, b: F) -> F {
        do512!(_mm512_div_ps(a, b))
    }
    #[inline(always)]
    fn max(a: F, b: F) -> F {
        do512!(_mm512_max_ps(a, b))
    }
    #[inline(always)]
    fn min(a: F, b: F) -> F {
        do512!(_mm512_min_ps(a, b))
    }
    #[inline(always)]
    fn fma(a: F, b: F, c: F) -> F {
        do512!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn words(x: u32) -> U {
        do512!(_mm512_set1_epi32(x.cast_signed()))
    }
    #[inline(always)]
    fn load_words(x: &[u32; LANES]) -> U {
        do512!(_mm512_loadu_si512(x.as_ptr().cast()))
    }
    #[inline(always)]
    fn store_words(x: U, out: &mut [u32; LANES]) {
        do512!(_mm512_storeu_si512(out.as_mut_ptr().cast(), x));
    }
    #[inline(always)]
    fn and(a: U, b: U) -> U {
        do512!(_mm512_and_si512(a, b))
    }
    #[inline(always)]
    fn or(a: U, b: U) -> U {
        do512!(_mm512_or_si512(a, b))
    }
    #[inline(always)]
    fn xor(a: U, b: U) -> U {
        do512!(_mm512_xor_si512(a, b))
    }
    #[inline(always)]
    fn shl<const N: u32>(a: U) -> U {
        do512!(_mm512_slli_epi32::<N>(a))
    }
    #[inline(always)]
    fn shr<const N: u32>(a: U) -> U {
        do512!(_mm512_srli_epi32::<N>(a))
    }
    #[inline(always)]
    fn plus(a: U, b: U) -> U {
        do512!(_mm512_add_epi32(a, b))
    }
    #[inline(always)]
    fn float(a: U) -> F {
        do512!(_mm512_cvtepi32_ps(a))
    }
    #[inline(always)]
    fn nearest(a: F) -> U {
        do512!(_mm512_cvtps_epi32(a))
    }
    #[inline(always)]
    fn bits(a: F) -> U {
        do512!(_mm512_castps_si512(a))
    }
    #[inline(always)]
    fn from_bits(a: U) -> F {
        do512!(_mm512_castsi512_ps(a))
    }
    #[inline(always)]
    fn halves(a: U) -> F {
        do512!(_mm512_cvtph_ps(_mm512_cvtepi32_epi16(a)))
    }
    #[inline(always)]
    fn dot<const SMALL: bool>(acc: U, a: U, x: u32) -> U {
        do512!(_mm512_dpbusd_epi32(acc, a, _mm512_set1_epi32(x.cast_signed())))
    }
    #[inline(always)]
    fn look_up(table: &[u8; 16], a: U) -> U {
        do512!({
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(table, a)
        })
    }
    #[inline(always)]
    fn columns(rows: Rows16<'_>, offset: usize) -> [U; 4] {
        let (a, b, c, d) =
            (four(rows, 0, offset), four(rows, 1, offset), four(rows, 2, offset), four(rows, 3, offset));
        do512!({
            let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
            let (ef, gh) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
            [
                _mm512_unpacklo_epi64(ab, cd),
                _mm512_unpackhi_epi64(ab, cd),
                _mm512_unpacklo_epi64(ef, gh),
                _mm512_unpackhi_epi64(ef, gh),
            ]
        })
    }
}
