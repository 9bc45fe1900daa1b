//! IQ types: codebooks of grid rows, and 4-bit quants with uneven steps.

use bytemuck::{Pod, Zeroable};

use super::{Block, grid, half};

/// 4 bits: `d * STEPS[q]`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct IQ4NL {
    /// f16 scale.
    pub d: [u8; 2],
    /// Nibbles in halves.
    pub qs: [u8; 16],
}

/// 4 bits: `d * (scale - 32) * STEPS[q]`, groups of 32.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct IQ4XS {
    /// f16 scale of the scales.
    pub d: [u8; 2],
    /// u16, two high bits of each scale.
    pub scales_h: [u8; 2],
    /// Low nibbles of the scales.
    pub scales_l: [u8; 4],
    /// Nibbles of each group, in halves.
    pub qs: [[u8; 16]; 8],
}

/// Four grid rows of 8 and four 7-bit sign indices for each 32 elements.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct IQ2XXS {
    /// f16 scale.
    pub d: [u8; 2],
    /// Of each group four row numbers, then a u32: sign indices and, in the top four bits, the scale.
    pub qs: [[u8; 8]; 8],
}

/// Nine bits of row number and seven of sign index for each 8 elements.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct IQ2XS {
    /// f16 scale.
    pub d: [u8; 2],
    /// u16: row number in the low nine bits, sign index above.
    pub qs: [[u8; 2]; 32],
    /// A nibble for each 16 elements.
    pub scales: [u8; 8],
}

/// Ten bits of row number and eight signs for each 8 elements.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct IQ2S {
    /// f16 scale.
    pub d: [u8; 2],
    /// Low eight bits of the row numbers.
    pub qs: [u8; 32],
    /// Sign bits.
    pub signs: [u8; 32],
    /// Two high bits of each row number.
    pub qh: [u8; 8],
    /// A nibble for each 16 elements.
    pub scales: [u8; 8],
}

/// Eight grid rows of 4 and four 7-bit sign indices for each 32 elements.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct IQ3XXS {
    /// f16 scale.
    pub d: [u8; 2],
    /// Row numbers.
    pub qs: [u8; 64],
    /// u32: sign indices and, in the top four bits, the scale.
    pub signs: [[u8; 4]; 8],
}

/// Nine bits of row number for each 4 elements, and all signs.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct IQ3S {
    /// f16 scale.
    pub d: [u8; 2],
    /// Low eight bits of the row numbers.
    pub qs: [u8; 64],
    /// Ninth bit of the eight row numbers of each group.
    pub qh: [u8; 8],
    /// Sign bits.
    pub signs: [u8; 32],
    /// A nibble for each group of 32.
    pub scales: [u8; 4],
}

/// Ternary grid rows of 8 under a scale and a shift for each 32 elements.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct IQ1S {
    /// f16 scale.
    pub d: [u8; 2],
    /// Low eight bits of the row numbers.
    pub qs: [u8; 32],
    /// u16 a group: four times three high bits, scale, and the sign of the shift.
    pub qh: [[u8; 2]; 8],
}

/// As [`IQ1S`] with a scale for each 16 and a shift for each 8 elements.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct IQ1M {
    /// Low eight bits of the row numbers.
    pub qs: [u8; 32],
    /// A nibble for each 8 elements: three high bits and the sign of the shift.
    pub qh: [u8; 16],
    /// u16: four 3-bit scales each; the four top nibbles together are the f16 scale.
    pub scales: [[u8; 2]; 4],
}

const STEPS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// What IQ1 types add to each value of a grid row, with either sign.
const SHIFT: f32 = 0.125;

fn step(q: u8) -> f32 {
    STEPS[usize::from(q)].into()
}

/// A nibble of a list of them, low one first.
fn nibble(bytes: &[u8], i: usize) -> u8 {
    (bytes[i / 2] >> (4 * (i % 2))) & 15
}

/// The eight sign bits of a 7-bit index: the eighth makes their number even.
fn even_signs(index: u32) -> u8 {
    let bits = (index & 127) as u8;
    let fold = bits ^ bits >> 4;
    let fold = fold ^ fold >> 2;
    bits | (fold ^ fold >> 1) << 7
}

/// `scale * value`, negated where the sign bit is set.
fn signed(out: &mut [f32; 8], row: &[i8; 8], scale: f32, signs: u8) {
    for k in 0..8 {
        let scale = if signs & (1 << k) != 0 { -scale } else { scale };
        out[k] = scale * f32::from(row[k]);
    }
}

/// Two grid rows of 4 as one of 8.
fn join(a: &[i8; 4], b: &[i8; 4]) -> [i8; 8] {
    std::array::from_fn(|k| if k < 4 { a[k] } else { b[k - 4] })
}

fn shifted(out: &mut [f32; 8], row: &[i8; 8], scale: f32, shift: f32) {
    out.iter_mut().zip(row).for_each(|(y, &v)| *y = scale * (f32::from(v) + shift));
}

/// Eights of elements in a block, each with its number 0 to 31.
fn eights(out: &mut [f32; 256]) -> impl Iterator<Item = (usize, &mut [f32; 8])> {
    out.as_chunks_mut::<8>().0.iter_mut().enumerate()
}

impl Block<32> for IQ4NL {
    fn decode(&self, out: &mut [f32; 32]) {
        let d = half(self.d);
        for (j, &b) in self.qs.iter().enumerate() {
            out[j] = d * step(b & 15);
            out[16 + j] = d * step(b >> 4);
        }
    }
}

impl Block<256> for IQ4XS {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = half(self.d);
        let high = u16::from_le_bytes(self.scales_h);
        for (g, (y, qs)) in out.as_chunks_mut::<32>().0.iter_mut().zip(&self.qs).enumerate() {
            let scale = i32::from(nibble(&self.scales_l, g)) | i32::from((high >> (2 * g)) & 3) << 4;
            let d = d * (scale - 32) as f32;
            for (j, &b) in qs.iter().enumerate() {
                y[j] = d * step(b & 15);
                y[16 + j] = d * step(b >> 4);
            }
        }
    }
}

impl Block<256> for IQ2XXS {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = half(self.d);
        for (n, y) in eights(out) {
            let [a, b, c, e, signs @ ..] = self.qs[n / 4];
            let signs = u32::from_le_bytes(signs);
            let row = [a, b, c, e][n % 4];
            let scale = d * (0.5 + (signs >> 28) as f32) * 0.25;
            signed(y, &grid::IQ2_XXS[usize::from(row)], scale, even_signs(signs >> (7 * (n % 4))));
        }
    }
}

/// The scale of the 16 elements that hold eight number `n`, of IQ2_XS and IQ2_S.
fn iq2_scale(d: f32, scales: &[u8; 8], n: usize) -> f32 {
    d * (0.5 + f32::from(nibble(scales, n / 2))) * 0.25
}

impl Block<256> for IQ2XS {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = half(self.d);
        for (n, y) in eights(out) {
            let v = u16::from_le_bytes(self.qs[n]);
            let scale = iq2_scale(d, &self.scales, n);
            signed(y, &grid::IQ2_XS[usize::from(v & 511)], scale, even_signs((v >> 9).into()));
        }
    }
}

impl Block<256> for IQ2S {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = half(self.d);
        for (n, y) in eights(out) {
            let high = (usize::from(self.qh[n / 4]) >> (2 * (n % 4))) & 3;
            let row = &grid::IQ2_S[usize::from(self.qs[n]) | high << 8];
            signed(y, row, iq2_scale(d, &self.scales, n), self.signs[n]);
        }
    }
}

impl Block<256> for IQ3XXS {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = half(self.d);
        for (n, y) in eights(out) {
            let bits = u32::from_le_bytes(self.signs[n / 4]);
            let scale = d * (0.5 + (bits >> 28) as f32) * 0.5;
            let signs = even_signs(bits >> (7 * (n % 4)));
            let row = |m: usize| &grid::IQ3_XXS[usize::from(self.qs[m])];
            signed(y, &join(row(2 * n), row(2 * n + 1)), scale, signs);
        }
    }
}

impl Block<256> for IQ3S {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = half(self.d);
        for (n, y) in eights(out) {
            let scale = d * f32::from(1 + 2 * nibble(&self.scales, n / 4));
            let row = |m: usize| {
                let ninth = (usize::from(self.qh[n / 4]) >> (m % 8)) & 1;
                &grid::IQ3_S[usize::from(self.qs[m]) | ninth << 8]
            };
            signed(y, &join(row(2 * n), row(2 * n + 1)), scale, self.signs[n]);
        }
    }
}

impl Block<256> for IQ1S {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = half(self.d);
        for (n, y) in eights(out) {
            let qh = usize::from(u16::from_le_bytes(self.qh[n / 4]));
            let scale = d * (2 * ((qh >> 12) & 7) + 1) as f32;
            let shift = if qh & 0x8000 == 0 { SHIFT } else { -SHIFT };
            let row = usize::from(self.qs[n]) | ((qh >> (3 * (n % 4))) & 7) << 8;
            shifted(y, &grid::IQ1[row], scale, shift);
        }
    }
}

impl Block<256> for IQ1M {
    fn decode(&self, out: &mut [f32; 256]) {
        let scales = self.scales.map(u16::from_le_bytes);
        let bits = (0..4).fold(0, |bits, i| bits | (scales[i] >> 12) << (4 * i));
        let d = half(bits.to_le_bytes());
        for (n, y) in eights(out) {
            let scale = (scales[n / 8] >> (3 * (n / 2 % 4))) & 7;
            let q = nibble(&self.qh, n);
            let shift = if q & 8 == 0 { SHIFT } else { -SHIFT };
            let row = usize::from(self.qs[n]) | usize::from(q & 7) << 8;
            shifted(y, &grid::IQ1[row], d * f32::from(2 * scale + 1), shift);
        }
    }
}
