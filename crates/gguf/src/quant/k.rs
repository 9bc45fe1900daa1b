//! K-quants: super-blocks of 256 elements whose groups have small integer scales under one f16 scale.

use bytemuck::{Pod, Zeroable};

use super::{Block, half};

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
