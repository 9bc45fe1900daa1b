//! Blocks of 32 elements with a scale of their own.
//!
//! Nibbles are split in halves: element `j < 16` is the low nibble of byte `j`, element `16 + j` its high nibble.

use bytemuck::{Pod, Zeroable};

use super::codes::{Coded, halves};
use super::search::{Rounder, step, step_and_minimum};
use super::{Encode, half, to_half};

/// 4 bits: `d * (q - 8)`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q4_0 {
    /// f16 scale.
    pub d: [u8; 2],
    /// Nibbles in halves.
    pub qs: [u8; 16],
}

/// 4 bits: `d * q + m`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q4_1 {
    /// f16 scale.
    pub d: [u8; 2],
    /// f16 minimum.
    pub m: [u8; 2],
    /// Nibbles in halves.
    pub qs: [u8; 16],
}

/// 5 bits: `d * (q - 16)`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q5_0 {
    /// f16 scale.
    pub d: [u8; 2],
    /// u32, bit `i` is the fifth bit of element `i`.
    pub qh: [u8; 4],
    /// Low four bits, nibbles in halves.
    pub qs: [u8; 16],
}

/// 5 bits: `d * q + m`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q5_1 {
    /// f16 scale.
    pub d: [u8; 2],
    /// f16 minimum.
    pub m: [u8; 2],
    /// u32, bit `i` is the fifth bit of element `i`.
    pub qh: [u8; 4],
    /// Low four bits, nibbles in halves.
    pub qs: [u8; 16],
}

/// 8 bits: `d * q`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q8_0 {
    /// f16 scale.
    pub d: [u8; 2],
    /// Signed quants.
    pub qs: [i8; 32],
}

/// 8 bits: `d * q`, with the sum that integer dot products need.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q8_1 {
    /// f16 scale.
    pub d: [u8; 2],
    /// f16 `d * sum of q`.
    pub s: [u8; 2],
    /// Signed quants.
    pub qs: [i8; 32],
}

impl Coded<32> for Q4_0 {
    fn quants(&self, out: &mut [i8; 32]) {
        halves(&self.qs, out, |q| q as i8 - 8);
    }

    fn scale(&self, _g: usize) -> f32 {
        half(self.d)
    }

    fn values(&self, out: &mut [f32; 32]) {
        let d = half(self.d);
        halves(&self.qs, out, |q| d * (i32::from(q) - 8) as f32);
    }
}

impl Coded<32> for Q4_1 {
    const AFFINE: bool = true;

    fn quants(&self, out: &mut [i8; 32]) {
        halves(&self.qs, out, |q| q as i8);
    }

    fn scale(&self, _g: usize) -> f32 {
        half(self.d)
    }

    fn min(&self, _g: usize) -> f32 {
        half(self.m)
    }

    fn values(&self, out: &mut [f32; 32]) {
        let (d, m) = (half(self.d), half(self.m));
        halves(&self.qs, out, |q| d * f32::from(q) + m);
    }
}

/// The values 0 to 31 of five-bit quants, less `zero`.
fn five_bits(qh: [u8; 4], qs: &[u8; 16], zero: i8, out: &mut [i8; 32]) {
    // Compared with a mask, not shifted: bytes side by side then need no shifts of different lengths.
    let fifth = |i: usize| if qh[i / 8] & (1 << (i % 8)) != 0 { 16 } else { 0 };
    for (j, b) in qs.iter().enumerate() {
        out[j] = (b & 15 | fifth(j)) as i8 - zero;
        out[16 + j] = (b >> 4 | fifth(16 + j)) as i8 - zero;
    }
}

impl Coded<32> for Q5_0 {
    fn quants(&self, out: &mut [i8; 32]) {
        five_bits(self.qh, &self.qs, 16, out);
    }

    fn scale(&self, _g: usize) -> f32 {
        half(self.d)
    }
}

impl Coded<32> for Q5_1 {
    const AFFINE: bool = true;

    fn quants(&self, out: &mut [i8; 32]) {
        five_bits(self.qh, &self.qs, 0, out);
    }

    fn scale(&self, _g: usize) -> f32 {
        half(self.d)
    }

    fn min(&self, _g: usize) -> f32 {
        half(self.m)
    }
}

impl Coded<32> for Q8_0 {
    fn quants(&self, out: &mut [i8; 32]) {
        *out = self.qs;
    }

    fn scale(&self, _g: usize) -> f32 {
        half(self.d)
    }
}

impl Coded<32> for Q8_1 {
    fn quants(&self, out: &mut [i8; 32]) {
        *out = self.qs;
    }

    fn scale(&self, _g: usize) -> f32 {
        half(self.d)
    }
}

/// Nibbles in halves.
fn pack_nibbles(q: &[u8; 32]) -> [u8; 16] {
    std::array::from_fn(|j| (q[j] & 15) | (q[16 + j] & 15) << 4)
}

/// The fifth bits, bit `i` of element `i`.
fn pack_fifth(q: &[u8; 32]) -> [u8; 4] {
    (0..32).fold(0u32, |bits, i| bits | u32::from(q[i] >> 4) << i).to_le_bytes()
}

/// Scale and quants of `d * (q - zero)` with `q` from 0 to `2 * zero - 1`.
fn symmetric(x: &[f32; 32], zero: f32) -> ([u8; 2], [u8; 32]) {
    let (field, d) = to_half(step(x, -zero, zero - 1.0));
    let steps = Rounder::new(d, -zero, zero - 1.0);
    (field, x.map(|x| (steps.round(x) + zero) as u8))
}

/// Scale, minimum and quants of `d * q + m` with `q` from 0 to `high`.
fn affine(x: &[f32; 32], high: f32) -> ([u8; 2], [u8; 2], [u8; 32]) {
    let (d, m) = step_and_minimum(x, high, f32::INFINITY);
    let ((d_field, d), (m_field, m)) = (to_half(d), to_half(m));
    let steps = Rounder::new(d, 0.0, high);
    (d_field, m_field, x.map(|x| steps.round(x - m) as u8))
}

impl Encode<32> for Q4_0 {
    fn encode(x: &[f32; 32]) -> Q4_0 {
        let (d, q) = symmetric(x, 8.0);
        Q4_0 { d, qs: pack_nibbles(&q) }
    }
}

impl Encode<32> for Q4_1 {
    fn encode(x: &[f32; 32]) -> Q4_1 {
        let (d, m, q) = affine(x, 15.0);
        Q4_1 { d, m, qs: pack_nibbles(&q) }
    }
}

impl Encode<32> for Q5_0 {
    fn encode(x: &[f32; 32]) -> Q5_0 {
        let (d, q) = symmetric(x, 16.0);
        Q5_0 { d, qh: pack_fifth(&q), qs: pack_nibbles(&q) }
    }
}

impl Encode<32> for Q5_1 {
    fn encode(x: &[f32; 32]) -> Q5_1 {
        let (d, m, q) = affine(x, 31.0);
        Q5_1 { d, m, qh: pack_fifth(&q), qs: pack_nibbles(&q) }
    }
}

impl Encode<32> for Q8_0 {
    fn encode(x: &[f32; 32]) -> Q8_0 {
        let largest = x.iter().fold(0f32, |a, &b| a.max(b.abs()));
        let (field, d) = to_half(largest / 127.0);
        let steps = Rounder::new(d, -127.0, 127.0);
        Q8_0 { d: field, qs: x.map(|x| steps.round(x) as i8) }
    }
}
