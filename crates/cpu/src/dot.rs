//! The dot product: one order of accumulation for every caller and every instruction set.
//!
//! A product of two f32 is exact in f64, so fused and separate multiply-adds give the same bits.
#![allow(unsafe_code)]

/// Running sums; lane l takes the elements l, l + LANES, l + 2 LANES, ...
const LANES: usize = 8;

/// Dot products of `a` with each of `b`, all of the same length.
pub(crate) fn dots<const N: usize>(a: &[f32], b: [&[f32]; N]) -> [f64; N] {
    assert!(b.iter().all(|b| b.len() == a.len()), "rows of one length");
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = (b.map(|b| b.as_chunks::<LANES>().0), b.map(|b| b.as_chunks::<LANES>().1));
    let mut sums = lanes(a, b);
    for (sums, b) in sums.iter_mut().zip(b_rest) {
        for (l, (x, y)) in a_rest.iter().zip(b).enumerate() {
            sums[l] += f64::from(*x) * f64::from(*y);
        }
    }
    sums.map(|s| ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7])))
}

/// Dot product of two rows.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f64 {
    dots(a, [b])[0]
}

/// `sum += factor * row`, element by element. Never fused: a factor of 53 bits makes no exact product.
pub(crate) fn add_scaled(sum: &mut [f64], factor: f64, row: &[f32]) {
    assert_eq!(sum.len(), row.len(), "rows of one length");
    for (s, x) in sum.iter_mut().zip(row) {
        *s += factor * f64::from(*x);
    }
}

type Chunk = [f32; LANES];

fn lanes<const N: usize>(a: &[Chunk], b: [&[Chunk]; N]) -> [[f64; LANES]; N] {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the instructions that the function is compiled for have just been found.
        return unsafe { lanes_avx2(a, b) };
    }
    lanes_plain(a, b)
}

fn lanes_plain<const N: usize>(a: &[Chunk], b: [&[Chunk]; N]) -> [[f64; LANES]; N] {
    let mut sums = [[0f64; LANES]; N];
    for (sums, b) in sums.iter_mut().zip(b) {
        for (x, y) in a.iter().zip(b) {
            (0..LANES).for_each(|l| sums[l] += f64::from(x[l]) * f64::from(y[l]));
        }
    }
    sums
}

/// The lanes in two registers of four.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn lanes_avx2<const N: usize>(a: &[Chunk], b: [&[Chunk]; N]) -> [[f64; LANES]; N] {
    use std::arch::x86_64::*;
    #[target_feature(enable = "avx2")]
    fn widen(v: &Chunk) -> [__m256d; 2] {
        // SAFETY: eight floats are read where there are eight.
        let halves = unsafe { [_mm_loadu_ps(v.as_ptr()), _mm_loadu_ps(v.as_ptr().add(LANES / 2))] };
        [_mm256_cvtps_pd(halves[0]), _mm256_cvtps_pd(halves[1])]
    }
    let b = b.map(|b| &b[..a.len()]);
    let mut sums = [[_mm256_setzero_pd(); 2]; N];
    for i in 0..a.len() {
        let x = widen(&a[i]);
        for (s, b) in sums.iter_mut().zip(b) {
            let y = widen(&b[i]);
            *s = [_mm256_fmadd_pd(x[0], y[0], s[0]), _mm256_fmadd_pd(x[1], y[1], s[1])];
        }
    }
    // SAFETY: two registers of four f64 are eight f64.
    sums.map(|s| unsafe { std::mem::transmute::<[__m256d; 2], [f64; LANES]>(s) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(seed: u32, len: usize) -> Vec<f32> {
        let mut s = seed.wrapping_mul(2_654_435_761).max(1);
        let mut next = || {
            s ^= s << 13;
            s ^= s >> 17;
            s ^= s << 5;
            f32::from_bits(0x3000_0000 | (s & 0x8fff_ffff))
        };
        (0..len).map(|_| next()).collect()
    }

    #[test]
    fn every_instruction_set_gives_the_same_bits() {
        for len in [0, 1, 2, 8, 72, 577] {
            let flat: Vec<Vec<f32>> = (0..3).map(|seed| row(1 + seed + len as u32, len * LANES)).collect();
            let [a, b, c] = [0, 1, 2].map(|i| flat[i].as_chunks::<LANES>().0);
            let bits = |v: [[f64; LANES]; 2]| v.map(|s| s.map(f64::to_bits));
            assert_eq!(bits(lanes(a, [b, c])), bits(lanes_plain(a, [b, c])), "{len}");
        }
    }

    #[test]
    fn either_way_round_and_in_company_the_bits_are_the_same() {
        for len in [0, 1, 7, 8, 9, 100, 577] {
            let [a, b, c] = [1, 2, 3].map(|seed| row(seed + len as u32, len));
            let both = dots(&a, [&b, &c]).map(f64::to_bits);
            assert_eq!(both, [dot(&b, &a), dot(&c, &a)].map(f64::to_bits), "{len}");
        }
    }

    #[test]
    fn the_sum_is_that_of_plain_f64() {
        let (a, b) = (row(5, 1000), row(6, 1000));
        let plain: f64 = a.iter().zip(&b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum();
        let size: f64 = a.iter().zip(&b).map(|(x, y)| (f64::from(*x) * f64::from(*y)).abs()).sum();
        assert!((dot(&a, &b) - plain).abs() <= 1e-12 * size);
    }
}
