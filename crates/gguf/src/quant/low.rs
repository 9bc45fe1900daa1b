//! One and two bits an element: ternary and binary types with one scale a block.

use bytemuck::{Pod, Zeroable};

use super::codes::Coded;
use super::half;
use super::k::two_bits;

/// Ternary: `d * (t - 1)`, five elements a byte as digits of a base-3 fraction.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct TQ1_0 {
    /// Elements 0 to 239, five in each byte.
    pub qs: [u8; 48],
    /// Elements 240 to 255, four in each byte.
    pub qh: [u8; 4],
    /// f16 scale.
    pub d: [u8; 2],
}

/// Ternary: `d * (q - 1)`, two bits an element.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct TQ2_0 {
    /// Byte `32 * (i / 128) + i % 32`, shift `2 * (i % 128 / 32)`.
    pub qs: [u8; 64],
    /// f16 scale.
    pub d: [u8; 2],
}

/// Binary: `d` where bit `i` is set, else `-d`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q1_0 {
    /// f16 scale.
    pub d: [u8; 2],
    /// Bits, least significant first.
    pub qs: [u8; 16],
}

/// Two bits: `d * (q - 1)`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q2_0 {
    /// f16 scale.
    pub d: [u8; 2],
    /// Four elements a byte, the first in the low bits.
    pub qs: [u8; 16],
}

/// Digit `n` of the base-3 fraction in a byte.
fn trit(byte: u8, n: usize) -> u8 {
    const POWERS: [u8; 5] = [1, 3, 9, 27, 81];
    ((u16::from(byte.wrapping_mul(POWERS[n])) * 3) >> 8) as u8
}

impl Coded<256> for TQ1_0 {
    fn quants(&self, out: &mut [i8; 256]) {
        let (first, rest) = out.split_at_mut(160);
        let (second, third) = rest.split_at_mut(80);
        let parts = [(first, &self.qs[..32]), (second, &self.qs[32..]), (third, &self.qh[..])];
        for (out, bytes) in parts {
            for (n, out) in out.chunks_exact_mut(bytes.len()).enumerate() {
                out.iter_mut().zip(bytes).for_each(|(q, &b)| *q = trit(b, n) as i8 - 1);
            }
        }
    }

    fn scale(&self, _g: usize) -> f32 {
        half(self.d)
    }
}

impl Coded<256> for TQ2_0 {
    fn quants(&self, out: &mut [i8; 256]) {
        two_bits(&self.qs, out);
        out.iter_mut().for_each(|q| *q -= 1);
    }

    fn scale(&self, _g: usize) -> f32 {
        half(self.d)
    }
}

impl Coded<128> for Q1_0 {
    fn quants(&self, out: &mut [i8; 128]) {
        for (i, q) in out.iter_mut().enumerate() {
            *q = if self.qs[i / 8] & (1 << (i % 8)) != 0 { 1 } else { -1 };
        }
    }

    fn scale(&self, _g: usize) -> f32 {
        half(self.d)
    }
}

impl Coded<64> for Q2_0 {
    fn quants(&self, out: &mut [i8; 64]) {
        for (i, q) in out.iter_mut().enumerate() {
            *q = ((self.qs[i / 4] >> (2 * (i % 4))) & 3) as i8 - 1;
        }
    }

    fn scale(&self, _g: usize) -> f32 {
        half(self.d)
    }
}
