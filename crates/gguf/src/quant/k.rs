//! K-quants: super-blocks of 256 elements whose groups have small integer scales under one f16 scale.

use bytemuck::{Pod, Zeroable};

use super::search::{Rounder, scale_and_minimum_near, scale_near, step, step_and_minimum};
use super::{Block, Encode, half, to_half};

/// 2 bits: `d * scale * q - dmin * min`, groups of 16.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q2K {
    /// Low nibble the scale of a group, high nibble its minimum.
    pub scales: [u8; 16],
    /// Two bits an element: byte `32 * (i / 128) + i % 32`, shift `2 * (i % 128 / 32)`.
    pub qs: [u8; 64],
    /// f16 scale of the scales.
    pub d: [u8; 2],
    /// f16 scale of the minima.
    pub dmin: [u8; 2],
}

/// 3 bits: `d * (scale - 32) * (q - 4)`, groups of 16.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q3K {
    /// Third bit: byte `i % 32`, bit `i / 32`.
    pub hmask: [u8; 32],
    /// Low two bits, placed as in [`Q2K`].
    pub qs: [u8; 64],
    /// Sixteen 6-bit scales, packed.
    pub scales: [u8; 12],
    /// f16 scale of the scales.
    pub d: [u8; 2],
}

/// 4 bits: `d * scale * q - dmin * min`, groups of 32.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q4K {
    /// f16 scale of the scales.
    pub d: [u8; 2],
    /// f16 scale of the minima.
    pub dmin: [u8; 2],
    /// Eight 6-bit scales and eight 6-bit minima, packed.
    pub scales: [u8; 12],
    /// Byte `32 * (i / 64) + i % 32`, low nibble for even groups.
    pub qs: [u8; 128],
}

/// 5 bits: `d * scale * q - dmin * min`, groups of 32.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q5K {
    /// f16 scale of the scales.
    pub d: [u8; 2],
    /// f16 scale of the minima.
    pub dmin: [u8; 2],
    /// Packed as in [`Q4K`].
    pub scales: [u8; 12],
    /// Fifth bit: byte `i % 32`, bit `i / 32`.
    pub qh: [u8; 32],
    /// Low four bits, placed as in [`Q4K`].
    pub qs: [u8; 128],
}

/// 6 bits: `d * scale * (q - 32)`, groups of 16.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q6K {
    /// Low four bits: byte `64 * (i / 128) + i % 64`, low nibble if `i % 128 < 64`.
    pub ql: [u8; 128],
    /// High two bits: byte `32 * (i / 128) + i % 32`, shift `2 * (i % 128 / 32)`.
    pub qh: [u8; 64],
    /// Signed scale of each group.
    pub scales: [i8; 16],
    /// f16 scale of the scales.
    pub d: [u8; 2],
}

/// 8 bits: `d * q`, with the sums that integer dot products need.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q8K {
    /// f32 scale.
    pub d: [u8; 4],
    /// Signed quants.
    pub qs: [[i8; 32]; 8],
    /// i16 sum of each 16 quants.
    pub bsums: [[u8; 2]; 16],
}

impl Block<256> for Q2K {
    fn decode(&self, out: &mut [f32; 256]) {
        let (d, dmin) = (half(self.d), half(self.dmin));
        for (k, y) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let (byte, shift) = two_bits_at(k);
            let scale = d * f32::from(self.scales[k] & 15);
            let min = dmin * f32::from(self.scales[k] >> 4);
            for (y, b) in y.iter_mut().zip(&self.qs[byte..byte + 16]) {
                *y = scale * f32::from((b >> shift) & 3) - min;
            }
        }
    }
}

/// First byte and shift of the two-bit quants of group `k` of 16.
fn two_bits_at(k: usize) -> (usize, usize) {
    (32 * (k / 8) + 16 * (k % 2), 2 * (k % 8 / 2))
}

impl Q3K {
    /// The scale of group `k`, -32 to 31.
    fn scale(&self, k: usize) -> i32 {
        let s = &self.scales;
        let low = if k < 8 { s[k] & 15 } else { s[k - 8] >> 4 };
        let high = (s[8 + k % 4] >> (2 * (k / 4))) & 3;
        i32::from(low | high << 4) - 32
    }
}

impl Block<256> for Q3K {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = half(self.d);
        for (k, y) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let (byte, shift) = two_bits_at(k);
            let half = 16 * (k % 2);
            let scale = d * self.scale(k) as f32;
            for (j, y) in y.iter_mut().enumerate() {
                let low = (self.qs[byte + j] >> shift) & 3;
                let high = (self.hmask[half + j] >> (k / 2)) & 1;
                *y = scale * (i32::from(low | high << 2) - 4) as f32;
            }
        }
    }
}

/// The 6-bit scale and minimum of group `g` of [`Q4K`] and [`Q5K`].
fn scale_min(s: &[u8; 12], g: usize) -> (f32, f32) {
    let (scale, min) = match g < 4 {
        true => (s[g] & 63, s[g + 4] & 63),
        false => ((s[g + 4] & 15) | (s[g - 4] >> 6) << 4, (s[g + 4] >> 4) | (s[g] >> 6) << 4),
    };
    (scale.into(), min.into())
}

impl Block<256> for Q4K {
    fn decode(&self, out: &mut [f32; 256]) {
        let (d, dmin) = (half(self.d), half(self.dmin));
        let bytes = self.qs.as_chunks::<32>().0;
        for (g, y) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let (scale, min) = scale_min(&self.scales, g);
            let (scale, min) = (d * scale, dmin * min);
            let shift = 4 * (g % 2);
            for (y, b) in y.iter_mut().zip(&bytes[g / 2]) {
                *y = scale * f32::from((b >> shift) & 15) - min;
            }
        }
    }
}

impl Block<256> for Q5K {
    fn decode(&self, out: &mut [f32; 256]) {
        let (d, dmin) = (half(self.d), half(self.dmin));
        let bytes = self.qs.as_chunks::<32>().0;
        for (g, y) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let (scale, min) = scale_min(&self.scales, g);
            let (scale, min) = (d * scale, dmin * min);
            let shift = 4 * (g % 2);
            for ((y, b), h) in y.iter_mut().zip(&bytes[g / 2]).zip(&self.qh) {
                *y = scale * f32::from((b >> shift) & 15 | ((h >> g) & 1) << 4) - min;
            }
        }
    }
}

impl Block<256> for Q6K {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = half(self.d);
        for (k, y) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let (n, group, part) = (k / 8, k % 8 / 2, 16 * (k % 2));
            let low = &self.ql[64 * n + 32 * (group % 2) + part..][..16];
            let high = &self.qh[32 * n + part..][..16];
            let scale = d * f32::from(self.scales[k]);
            for ((y, l), h) in y.iter_mut().zip(low).zip(high) {
                let q = (l >> (4 * (group / 2))) & 15 | ((h >> (2 * group)) & 3) << 4;
                *y = scale * (i32::from(q) - 32) as f32;
            }
        }
    }
}

impl Block<256> for Q8K {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = f32::from_le_bytes(self.d);
        out.iter_mut().zip(self.qs.as_flattened()).for_each(|(y, &q)| *y = d * f32::from(q));
    }
}

/// A super-block of `G` groups of `N` elements as `d * scale * q - dmin * minimum`.
struct Affine<const G: usize> {
    d: [u8; 2],
    dmin: [u8; 2],
    scales: [u8; G],
    minima: [u8; G],
    q: [u8; 256],
}

/// Fits scales and minima from 0 to `most` and quants from 0 to `high`.
fn affine<const G: usize, const N: usize>(x: &[f32; 256], most: u8, high: f32) -> Affine<G> {
    let top = f32::from(most);
    let groups = x.as_chunks::<N>().0;
    let fits: [(f32, f32); G] = std::array::from_fn(|g| step_and_minimum(&groups[g], high, 0.0));
    let (d, d_value) = to_half(fits.iter().fold(0f32, |a, f| a.max(f.0)) / top);
    let (dmin, dmin_value) = to_half(fits.iter().fold(0f32, |a, f| a.max(-f.1)) / top);
    let mut block = Affine { d, dmin, scales: [0; G], minima: [0; G], q: [0; 256] };
    for (g, x) in groups.iter().enumerate() {
        let near = |fit: f32, unit: f32| Rounder::new(unit, 0.0, top).round(fit) as i32;
        let start = (near(fits[g].0, d_value), near(-fits[g].1, dmin_value));
        let (scale, minimum) = scale_and_minimum_near(x, (d_value, dmin_value), start, most.into(), high);
        (block.scales[g], block.minima[g]) = (scale as u8, minimum as u8);
        let minimum = dmin_value * minimum as f32;
        let steps = Rounder::new(d_value * scale as f32, 0.0, high);
        for (q, &x) in block.q[N * g..].iter_mut().zip(x) {
            *q = steps.round(x + minimum) as u8;
        }
    }
    block
}

/// Fits 16 scales from `-scale_zero` to `scale_zero - 1` and quants from `-zero` to `zero - 1`, stored with `zero` added.
fn symmetric(x: &[f32; 256], scale_zero: i32, zero: f32) -> ([u8; 2], [i32; 16], [u8; 256]) {
    let groups = x.as_chunks::<16>().0;
    let (low, high) = (-zero, zero - 1.0);
    let fits: [f32; 16] = std::array::from_fn(|g| step(&groups[g], low, high));
    let largest = fits.iter().fold(0f32, |a, &b| if b.abs() > a.abs() { b } else { a });
    let (field, d) = to_half(largest / -scale_zero as f32);
    let range = (-scale_zero, scale_zero - 1);
    let scales: [i32; 16] = std::array::from_fn(|g| {
        let start = Rounder::new(d, range.0 as f32, range.1 as f32).round(fits[g]) as i32;
        scale_near(&groups[g], d, start, range, (low, high))
    });
    let steps = scales.map(|scale| Rounder::new(d * scale as f32, low, high));
    (field, scales, std::array::from_fn(|i| (steps[i / 16].round(x[i]) + zero) as u8))
}

/// The low two bits of each quant, placed as in [`Q2K`].
fn pack_two_bits(q: &[u8; 256]) -> [u8; 64] {
    let mut qs = [0; 64];
    for (i, q) in q.iter().enumerate() {
        qs[32 * (i / 128) + i % 32] |= (q & 3) << (2 * (i % 128 / 32));
    }
    qs
}

/// One bit of each quant, in byte `i % 32` bit `i / 32`.
fn pack_bit(q: &[u8; 256], bit: u32) -> [u8; 32] {
    let mut bits = [0; 32];
    q.iter().enumerate().for_each(|(i, q)| bits[i % 32] |= ((q >> bit) & 1) << (i / 32));
    bits
}

/// The low four bits of each quant, placed as in [`Q4K`].
fn pack_nibbles(q: &[u8; 256]) -> [u8; 128] {
    std::array::from_fn(|b| {
        let i = 64 * (b / 32) + b % 32;
        (q[i] & 15) | (q[i + 32] & 15) << 4
    })
}

/// The inverse of [`scale_min`].
fn pack_scales(scales: &[u8; 8], minima: &[u8; 8]) -> [u8; 12] {
    let mut s = [0; 12];
    for g in 0..4 {
        s[g] = scales[g] | (scales[g + 4] >> 4) << 6;
        s[g + 4] = minima[g] | (minima[g + 4] >> 4) << 6;
        s[g + 8] = (scales[g + 4] & 15) | (minima[g + 4] & 15) << 4;
    }
    s
}

impl Encode<256> for Q2K {
    fn encode(x: &[f32; 256]) -> Q2K {
        let b = affine::<16, 16>(x, 15, 3.0);
        let scales = std::array::from_fn(|g| b.scales[g] | b.minima[g] << 4);
        Q2K { scales, qs: pack_two_bits(&b.q), d: b.d, dmin: b.dmin }
    }
}

impl Encode<256> for Q3K {
    fn encode(x: &[f32; 256]) -> Q3K {
        let (d, fitted, q) = symmetric(x, 32, 4.0);
        let mut scales = [0; 12];
        for (k, scale) in fitted.iter().enumerate() {
            let s = (scale + 32) as u8;
            scales[k % 8] |= (s & 15) << (4 * (k / 8));
            scales[8 + k % 4] |= (s >> 4) << (2 * (k / 4));
        }
        Q3K { hmask: pack_bit(&q, 2), qs: pack_two_bits(&q), scales, d }
    }
}

impl Encode<256> for Q4K {
    fn encode(x: &[f32; 256]) -> Q4K {
        let b = affine::<8, 32>(x, 63, 15.0);
        Q4K { d: b.d, dmin: b.dmin, scales: pack_scales(&b.scales, &b.minima), qs: pack_nibbles(&b.q) }
    }
}

impl Encode<256> for Q5K {
    fn encode(x: &[f32; 256]) -> Q5K {
        let b = affine::<8, 32>(x, 63, 31.0);
        let scales = pack_scales(&b.scales, &b.minima);
        Q5K { d: b.d, dmin: b.dmin, scales, qh: pack_bit(&b.q, 4), qs: pack_nibbles(&b.q) }
    }
}

impl Encode<256> for Q6K {
    fn encode(x: &[f32; 256]) -> Q6K {
        let (d, fitted, q) = symmetric(x, 128, 32.0);
        let (mut ql, mut qh) = ([0; 128], [0; 64]);
        for (i, q) in q.iter().enumerate() {
            let (n, group) = (i / 128, i % 128 / 32);
            ql[64 * n + i % 64] |= (q & 15) << (4 * (group / 2));
            qh[32 * n + i % 32] |= (q >> 4) << (2 * group);
        }
        Q6K { ql, qh, scales: fitted.map(|s| s as i8), d }
    }
}
