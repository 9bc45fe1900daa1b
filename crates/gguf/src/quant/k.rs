//! K-quants: super-blocks of 256 elements whose groups have small integer scales under one f16 scale.

use bytemuck::{Pod, Zeroable};

use super::codes::{Coded, halves};
use super::search::{Rounder, scale_and_minimum_near, scale_near, step, step_and_minimum};
use super::{Encode, half, to_half};

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

/// Two bits of each element, placed as in [`Q2K`].
pub(super) fn two_bits(qs: &[u8; 64], out: &mut [i8; 256]) {
    for (n, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        out.iter_mut().zip(&qs[32 * (n / 4)..]).for_each(|(q, b)| *q = (b >> (2 * (n % 4)) & 3) as i8);
    }
}

/// Adds `value` to the elements whose bit is set: byte `i % 32`, bit `i / 32`.
fn add_bit(bits: &[u8; 32], value: i8, out: &mut [i8; 256]) {
    for (n, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        out.iter_mut().zip(bits).for_each(|(q, b)| *q += if b & (1 << n) != 0 { value } else { 0 });
    }
}

impl Coded<256> for Q2K {
    const GROUP_LEN: usize = 16;
    const AFFINE: bool = true;

    fn quants(&self, out: &mut [i8; 256]) {
        two_bits(&self.qs, out);
    }

    fn scale(&self, g: usize) -> f32 {
        half(self.d) * f32::from(self.scales[g] & 15)
    }

    fn min(&self, g: usize) -> f32 {
        -(half(self.dmin) * f32::from(self.scales[g] >> 4))
    }
}

impl Coded<256> for Q3K {
    const GROUP_LEN: usize = 16;

    fn quants(&self, out: &mut [i8; 256]) {
        two_bits(&self.qs, out);
        add_bit(&self.hmask, 4, out);
        out.iter_mut().for_each(|q| *q -= 4);
    }

    fn scale(&self, g: usize) -> f32 {
        let s = &self.scales;
        let low = if g < 8 { s[g] & 15 } else { s[g - 8] >> 4 };
        let high = (s[8 + g % 4] >> (2 * (g / 4))) & 3;
        half(self.d) * (i32::from(low | high << 4) - 32) as f32
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

/// Four bits of each element, placed as in [`Q4K`].
fn four_bits(qs: &[u8; 128], out: &mut [i8; 256]) {
    let bytes = qs.as_chunks::<32>().0;
    out.chunks_exact_mut(64).zip(bytes).for_each(|(out, qs)| halves(qs, out, |q| q as i8));
}

impl Coded<256> for Q4K {
    const AFFINE: bool = true;

    fn quants(&self, out: &mut [i8; 256]) {
        four_bits(&self.qs, out);
    }

    fn scale(&self, g: usize) -> f32 {
        half(self.d) * scale_min(&self.scales, g).0
    }

    fn min(&self, g: usize) -> f32 {
        -(half(self.dmin) * scale_min(&self.scales, g).1)
    }
}

impl Coded<256> for Q5K {
    const AFFINE: bool = true;

    fn quants(&self, out: &mut [i8; 256]) {
        four_bits(&self.qs, out);
        add_bit(&self.qh, 16, out);
    }

    fn scale(&self, g: usize) -> f32 {
        half(self.d) * scale_min(&self.scales, g).0
    }

    fn min(&self, g: usize) -> f32 {
        -(half(self.dmin) * scale_min(&self.scales, g).1)
    }
}

impl Coded<256> for Q6K {
    const GROUP_LEN: usize = 16;

    fn quants(&self, out: &mut [i8; 256]) {
        let (low, high) = (self.ql.as_chunks::<32>().0, self.qh.as_chunks::<32>().0);
        for (g, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let (n, part) = (g / 4, g % 4);
            for ((y, l), h) in out.iter_mut().zip(&low[2 * n + part % 2]).zip(&high[n]) {
                *y = (l >> (4 * (part / 2)) & 15 | (h >> (2 * part) & 3) << 4) as i8 - 32;
            }
        }
    }

    fn scale(&self, g: usize) -> f32 {
        half(self.d) * f32::from(self.scales[g])
    }
}

impl Coded<256> for Q8K {
    fn quants(&self, out: &mut [i8; 256]) {
        out.as_chunks_mut().0.copy_from_slice(&self.qs);
    }

    fn scale(&self, _g: usize) -> f32 {
        f32::from_le_bytes(self.d)
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
