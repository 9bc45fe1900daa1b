//! 4-bit floats (E2M1) with 8-bit scales: MXFP4 and NVFP4.

use bytemuck::{Pod, Zeroable};

use super::codes::{Coded, halves};

/// Power-of-two scale: `2^(e - 128) * E2M1[q]`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct MXFP4 {
    /// Exponent of the scale.
    pub e: u8,
    /// Nibbles in halves.
    pub qs: [u8; 16],
}

/// Float scales of 16 elements each: `ue4m3(scale) * E2M1[q]`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct NVFP4 {
    /// Unsigned E4M3 of each sub-block.
    pub scales: [u8; 4],
    /// Nibbles of each sub-block, in halves.
    pub qs: [[u8; 8]; 4],
}

/// Twice the values of a 4-bit float, so that they are whole; the -0 counts as 0 where they are integers.
pub(super) const E2M1: [f32; 16] =
    [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, -0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0];

fn e2m1(q: u8) -> f32 {
    E2M1[usize::from(q)]
}

/// `2^(e - 128)`; the two smallest are denormal.
fn exponent_scale(e: u8) -> f32 {
    match e {
        0 => f32::from_bits(1 << 21),
        1 => f32::from_bits(1 << 22),
        e => f32::from_bits((u32::from(e) - 1) << 23),
    }
}

/// Half the value of an unsigned E4M3 float; its NaN counts as 0.
fn e4m3_scale(v: u8) -> f32 {
    let (e, m) = ((v & 0x7F) >> 3, f32::from(v & 7));
    match (v & 0x7F, e) {
        (0x7F, _) => 0.0,
        (_, 0) => m / 1024.0,
        _ => (1.0 + m / 8.0) * exponent_scale(e + 120),
    }
}

impl Coded<32> for MXFP4 {
    fn quants(&self, out: &mut [i8; 32]) {
        halves(&self.qs, out, |q| e2m1(q) as i8);
    }

    fn scale(&self, _g: usize) -> f32 {
        exponent_scale(self.e)
    }

    fn values(&self, out: &mut [f32; 32]) {
        let d = exponent_scale(self.e);
        halves(&self.qs, out, |q| d * e2m1(q));
    }
}

impl Coded<64> for NVFP4 {
    const GROUP_LEN: usize = 16;

    fn quants(&self, out: &mut [i8; 64]) {
        out.chunks_exact_mut(16).zip(&self.qs).for_each(|(out, qs)| halves(qs, out, |q| e2m1(q) as i8));
    }

    fn scale(&self, g: usize) -> f32 {
        e4m3_scale(self.scales[g])
    }

    fn values(&self, out: &mut [f32; 64]) {
        for ((out, qs), &scale) in out.as_chunks_mut::<16>().0.iter_mut().zip(&self.qs).zip(&self.scales) {
            let d = e4m3_scale(scale);
            halves(qs, out, |q| d * e2m1(q));
        }
    }
}
