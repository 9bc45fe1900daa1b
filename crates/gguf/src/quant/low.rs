//! One and two bits an element: ternary and binary types with one scale a block.

use bytemuck::{Pod, Zeroable};

use super::{Block, half};

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

/// `d * (q - 1)`.
fn centred(d: f32, q: u8) -> f32 {
    d * (i32::from(q) - 1) as f32
}

impl Block<256> for TQ1_0 {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = half(self.d);
        let (first, rest) = out.split_at_mut(160);
        let (second, third) = rest.split_at_mut(80);
        let parts = [(first, &self.qs[..32]), (second, &self.qs[32..]), (third, &self.qh[..])];
        for (out, bytes) in parts {
            for (n, y) in out.chunks_exact_mut(bytes.len()).enumerate() {
                y.iter_mut().zip(bytes).for_each(|(y, &b)| *y = centred(d, trit(b, n)));
            }
        }
    }
}

impl Block<256> for TQ2_0 {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = half(self.d);
        let bytes = self.qs.as_chunks::<32>().0;
        for (g, y) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let shift = 2 * (g % 4);
            y.iter_mut().zip(&bytes[g / 4]).for_each(|(y, b)| *y = centred(d, (b >> shift) & 3));
        }
    }
}

impl Block<128> for Q1_0 {
    fn decode(&self, out: &mut [f32; 128]) {
        let d = half(self.d);
        for (i, y) in out.iter_mut().enumerate() {
            *y = if (self.qs[i / 8] >> (i % 8)) & 1 == 1 { d } else { -d };
        }
    }
}

impl Block<64> for Q2_0 {
    fn decode(&self, out: &mut [f32; 64]) {
        let d = half(self.d);
        for (i, y) in out.iter_mut().enumerate() {
            *y = centred(d, (self.qs[i / 4] >> (2 * (i % 4))) & 3);
        }
    }
}
