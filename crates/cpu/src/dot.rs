//! The dot product: one order of accumulation for every caller and every instruction set.
//!
//! A product of two f32 is exact in f64, so fused and separate multiply-adds give the same bits.
#![allow(unsafe_code)]

/// Running sums; lane l takes the elements l, l + LANES, l + 2 LANES, ...
const LANES: usize = 8;

/// Dot products of `a` with each of `b`, all of the same length.
pub(crate) fn dots<const N: usize>(a: &[f32], b: [&[f32]; N]) -> [f64; N] {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the instructions that the function is compiled for have just been found.
        return unsafe { dots_avx2(a, b) };
    }
    lanes::<N, false>(a, b)
}

/// Dot product of two rows.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f64 {
    dots(a, [b])[0]
}

/// `sum += factor * row`, element by element.
pub(crate) fn add_scaled(sum: &mut [f64], factor: f64, row: &[f32]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the instructions that the function is compiled for have just been found.
        return unsafe { add_scaled_avx2(sum, factor, row) };
    }
    scaled(sum, factor, row)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn dots_avx2<const N: usize>(a: &[f32], b: [&[f32]; N]) -> [f64; N] {
    lanes::<N, true>(a, b)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn add_scaled_avx2(sum: &mut [f64], factor: f64, row: &[f32]) {
    scaled(sum, factor, row)
}

/// Compiled once for each instruction set.
#[inline(always)]
fn lanes<const N: usize, const FUSED: bool>(a: &[f32], b: [&[f32]; N]) -> [f64; N] {
    assert!(b.iter().all(|b| b.len() == a.len()), "rows of one length");
    let (a, a_rest) = a.as_chunks::<LANES>();
    let b = b.map(|b| b.as_chunks::<LANES>());
    let mut sums = [[0f64; LANES]; N];
    for i in 0..a.len() {
        let x = a[i].map(f64::from);
        for (sums, b) in sums.iter_mut().zip(&b) {
            let y = b.0[i].map(f64::from);
            for l in 0..LANES {
                sums[l] = if FUSED { x[l].mul_add(y[l], sums[l]) } else { x[l] * y[l] + sums[l] };
            }
        }
    }
    for (sums, b) in sums.iter_mut().zip(&b) {
        for (l, (x, y)) in a_rest.iter().zip(b.1).enumerate() {
            sums[l] += f64::from(*x) * f64::from(*y);
        }
    }
    sums.map(|s| ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7])))
}

/// Never fused: a factor of 53 bits makes no exact product.
#[inline(always)]
fn scaled(sum: &mut [f64], factor: f64, row: &[f32]) {
    assert_eq!(sum.len(), row.len(), "rows of one length");
    for (s, x) in sum.iter_mut().zip(row) {
        *s += factor * f64::from(*x);
    }
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
        for len in [0, 1, 7, 8, 9, 15, 16, 64, 100, 577] {
            let [a, b, c] = [1, 2, 3].map(|seed| row(seed + len as u32, len));
            let plain = lanes::<2, false>(&a, [&b, &c]);
            assert_eq!(dots(&a, [&b, &c]).map(f64::to_bits), plain.map(f64::to_bits), "{len}");
            assert_eq!(dot(&c, &a).to_bits(), plain[1].to_bits(), "either way round, alone: {len}");
            let (mut fast, mut slow) = (vec![0.1; len], vec![0.1; len]);
            add_scaled(&mut fast, 1.0 / 3.0, &a);
            scaled(&mut slow, 1.0 / 3.0, &a);
            assert_eq!(fast, slow, "{len}");
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
