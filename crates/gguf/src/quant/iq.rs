//! IQ types: codebooks of grid rows, and 4-bit quants with uneven steps.

use bytemuck::{Pod, Zeroable};

use super::codes::{Coded, halves};
use super::{grid, half};

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

/// The uneven steps: whole numbers, as floats because decoding looks up floats faster than it converts.
pub(super) const STEPS: [f32; 16] = [
    -127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0,
];

/// What IQ1 types add to each value of a grid row, with either sign, and the unit of their codes.
const SHIFT: f32 = 0.125;

fn step(q: u8) -> f32 {
    STEPS[usize::from(q)]
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

/// -1 in the places of the set bits of each byte, else 0.
static MINUS: [[i8; 8]; 256] = {
    let mut rows = [[0; 8]; 256];
    let mut i = 0;
    while i < 8 * 256 {
        rows[i / 8][i % 8] = -(((i / 8) >> (i % 8) & 1) as i8);
        i += 1;
    }
    rows
};

/// A grid row, negated where the sign bit is set.
fn signed(out: &mut [i8; 8], row: &[i8; 8], signs: u8) {
    let minus = &MINUS[usize::from(signs)];
    for k in 0..8 {
        out[k] = (row[k] ^ minus[k]) - minus[k];
    }
}

/// Two grid rows of 4 as one of 8.
fn join(a: &[i8; 4], b: &[i8; 4]) -> [i8; 8] {
    bytemuck::cast([*a, *b])
}

/// `scale * (value + shift)`, the last two in units of [`SHIFT`].
fn shifted(out: &mut [f32; 8], (row, shift): (&[i8; 8], i8), scale: f32) {
    out.iter_mut().zip(row).for_each(|(y, &v)| *y = scale * (f32::from(v) + f32::from(shift)));
}

/// Eights of elements in a block, each with its number 0 to 31.
fn eights<T>(out: &mut [T; 256]) -> impl Iterator<Item = (usize, &mut [T; 8])> {
    out.as_chunks_mut::<8>().0.iter_mut().enumerate()
}

impl Coded<32> for IQ4NL {
    fn quants(&self, out: &mut [i8; 32]) {
        halves(&self.qs, out, |q| step(q) as i8);
    }

    fn scale(&self, _g: usize) -> f32 {
        half(self.d)
    }

    fn values(&self, out: &mut [f32; 32]) {
        let d = half(self.d);
        halves(&self.qs, out, |q| d * step(q));
    }
}

impl Coded<256> for IQ4XS {
    fn quants(&self, out: &mut [i8; 256]) {
        out.chunks_exact_mut(32).zip(&self.qs).for_each(|(out, qs)| halves(qs, out, |q| step(q) as i8));
    }

    fn scale(&self, g: usize) -> f32 {
        let high = u16::from_le_bytes(self.scales_h) >> (2 * g);
        let scale = i32::from(nibble(&self.scales_l, g)) | i32::from(high & 3) << 4;
        half(self.d) * (scale - 32) as f32
    }

    fn values(&self, out: &mut [f32; 256]) {
        for ((out, qs), d) in out.chunks_exact_mut(32).zip(&self.qs).zip(self.scales()) {
            halves(qs, out, |q| d * step(q));
        }
    }
}

impl IQ2XXS {
    /// The four sign indices of group `g`, and its scale in the top four bits.
    fn signs(&self, g: usize) -> u32 {
        let [.., a, b, c, d] = self.qs[g];
        u32::from_le_bytes([a, b, c, d])
    }
}

impl Coded<256> for IQ2XXS {
    fn quants(&self, out: &mut [i8; 256]) {
        for (n, out) in eights(out) {
            let row = self.qs[n / 4][n % 4];
            signed(out, &grid::IQ2_XXS[usize::from(row)], even_signs(self.signs(n / 4) >> (7 * (n % 4))));
        }
    }

    fn scale(&self, g: usize) -> f32 {
        half(self.d) * (0.5 + (self.signs(g) >> 28) as f32) * 0.25
    }
}

impl Coded<256> for IQ2XS {
    const GROUP_LEN: usize = 16;

    fn quants(&self, out: &mut [i8; 256]) {
        for (n, out) in eights(out) {
            let v = u16::from_le_bytes(self.qs[n]);
            signed(out, &grid::IQ2_XS[usize::from(v & 511)], even_signs((v >> 9).into()));
        }
    }

    fn scale(&self, g: usize) -> f32 {
        half(self.d) * (0.5 + f32::from(nibble(&self.scales, g))) * 0.25
    }
}

impl Coded<256> for IQ2S {
    const GROUP_LEN: usize = 16;

    fn quants(&self, out: &mut [i8; 256]) {
        for (n, out) in eights(out) {
            let high = (usize::from(self.qh[n / 4]) >> (2 * (n % 4))) & 3;
            signed(out, &grid::IQ2_S[usize::from(self.qs[n]) | high << 8], self.signs[n]);
        }
    }

    fn scale(&self, g: usize) -> f32 {
        half(self.d) * (0.5 + f32::from(nibble(&self.scales, g))) * 0.25
    }
}

impl Coded<256> for IQ3XXS {
    fn quants(&self, out: &mut [i8; 256]) {
        for (n, out) in eights(out) {
            let signs = even_signs(u32::from_le_bytes(self.signs[n / 4]) >> (7 * (n % 4)));
            let row = |m: usize| &grid::IQ3_XXS[usize::from(self.qs[m])];
            signed(out, &join(row(2 * n), row(2 * n + 1)), signs);
        }
    }

    fn scale(&self, g: usize) -> f32 {
        half(self.d) * (0.5 + (u32::from_le_bytes(self.signs[g]) >> 28) as f32) * 0.5
    }
}

impl Coded<256> for IQ3S {
    fn quants(&self, out: &mut [i8; 256]) {
        for (n, out) in eights(out) {
            let row = |m: usize| {
                let ninth = (usize::from(self.qh[n / 4]) >> (m % 8)) & 1;
                &grid::IQ3_S[usize::from(self.qs[m]) | ninth << 8]
            };
            signed(out, &join(row(2 * n), row(2 * n + 1)), self.signs[n]);
        }
    }

    fn scale(&self, g: usize) -> f32 {
        half(self.d) * f32::from(1 + 2 * nibble(&self.scales, g))
    }
}

impl IQ1S {
    /// The row of eight number `n` and its shift, in units of [`SHIFT`].
    fn row(&self, n: usize) -> (&'static [i8; 8], i8) {
        let qh = usize::from(u16::from_le_bytes(self.qh[n / 4]));
        let row = usize::from(self.qs[n]) | ((qh >> (3 * (n % 4))) & 7) << 8;
        (&grid::IQ1[row], if qh & 0x8000 == 0 { 1 } else { -1 })
    }
}

impl Coded<256> for IQ1S {
    fn quants(&self, out: &mut [i8; 256]) {
        for (n, out) in eights(out) {
            let (row, shift) = self.row(n);
            *out = row.map(|v| v + shift);
        }
    }

    fn scale(&self, g: usize) -> f32 {
        let scale = (u16::from_le_bytes(self.qh[g]) >> 12) & 7;
        half(self.d) * f32::from(2 * scale + 1) * SHIFT
    }

    fn values(&self, out: &mut [f32; 256]) {
        let scales = self.scales();
        eights(out).for_each(|(n, out)| shifted(out, self.row(n), scales[n / 4]));
    }
}

impl IQ1M {
    /// The row of eight number `n` and its shift, in units of [`SHIFT`].
    fn row(&self, n: usize) -> (&'static [i8; 8], i8) {
        let q = nibble(&self.qh, n);
        let row = usize::from(self.qs[n]) | usize::from(q & 7) << 8;
        (&grid::IQ1[row], if q & 8 == 0 { 1 } else { -1 })
    }
}

impl Coded<256> for IQ1M {
    const GROUP_LEN: usize = 16;

    fn quants(&self, out: &mut [i8; 256]) {
        for (n, out) in eights(out) {
            let (row, shift) = self.row(n);
            *out = row.map(|v| v + shift);
        }
    }

    fn scale(&self, g: usize) -> f32 {
        let scales = self.scales.map(u16::from_le_bytes);
        let d = (0..4).fold(0, |bits, i| bits | (scales[i] >> 12) << (4 * i));
        let scale = (scales[g / 4] >> (3 * (g % 4))) & 7;
        half(d.to_le_bytes()) * f32::from(2 * scale + 1) * SHIFT
    }

    fn values(&self, out: &mut [f32; 256]) {
        let scales = self.scales();
        eights(out).for_each(|(n, out)| shifted(out, self.row(n), scales[n / 2]));
    }
}
