//! Blocks as small integers under scales: what an integer dot product works on, and what decoding multiplies out.

use bytemuck::Pod;

use super::Block;

/// One block as small integers: element `j` is `scale[j / group] * codes[j] + min[j / group]`, where `group` is
/// [`QuantType::group`](super::QuantType::group). In f32 that is the decoded value, exactly
/// (of zeros the sign may differ).
///
/// The first `block_len` entries of `codes` and the first `block_len / group` of `scale` and `min` belong to the block;
/// the others are left as they were.
///
/// | types | codes |
/// | --- | --- |
/// | with a minimum: Q2_K; Q4_1, Q4_K; Q5_1, Q5_K | 0 to 3; 0 to 15; 0 to 31 |
/// | Q3_K; Q4_0; Q5_0; Q6_K | -4 to 3; -8 to 7; -16 to 15; -32 to 31 |
/// | Q8_0, Q8_1, Q8_K | -128 to 127, stored as they are |
/// | Q1_0; TQ1_0; TQ2_0, Q2_0 | -1 and 1; -1 to 1; -1 to 2 |
/// | IQ1_S, IQ1_M | grid value and shift in eighths, -9 to 9 |
/// | IQ2_XXS, IQ2_XS, IQ2_S; IQ3_XXS; IQ3_S | grid value with its sign, up to 43; 62; 15 |
/// | IQ4_NL, IQ4_XS | the uneven steps, -127 to 113 |
/// | MXFP4, NVFP4 | twice the 4-bit float, -12 to 12 |
#[derive(Clone, Debug)]
pub struct Codes {
    /// An integer for each element.
    pub codes: [i8; 256],
    /// The worth of code 1 above that of code 0, for each group.
    pub scale: [f32; 16],
    /// The worth of code 0, for each group: 0 in types without a minimum.
    pub min: [f32; 16],
}

impl Default for Codes {
    fn default() -> Codes {
        Codes { codes: [0; 256], scale: [0.0; 16], min: [0.0; 16] }
    }
}

/// A block whose elements are small integers under a scale, and in some types a minimum, for each group.
pub trait Coded<const LEN: usize>: Pod {
    /// See [`QuantType::group`](super::QuantType::group).
    const GROUP_LEN: usize = 32;
    /// See [`QuantType::has_min`](super::QuantType::has_min).
    const AFFINE: bool = false;

    /// The integer of each element.
    fn quants(&self, out: &mut [i8; LEN]);

    /// The scale of group `g`.
    fn scale(&self, g: usize) -> f32;

    /// The minimum of group `g`.
    fn min(&self, _g: usize) -> f32 {
        0.0
    }

    /// The scales of all groups, and zeros.
    #[inline(always)] // called, it would pass them through memory
    fn scales(&self) -> [f32; 16] {
        let mut scales = [0.0; 16];
        (0..LEN / Self::GROUP_LEN).for_each(|g| scales[g] = self.scale(g));
        scales
    }

    /// The minima of all groups, and zeros.
    #[inline(always)] // as above
    fn minima(&self) -> [f32; 16] {
        let mut minima = [0.0; 16];
        (0..LEN / Self::GROUP_LEN).for_each(|g| minima[g] = self.min(g));
        minima
    }

    /// The integers multiplied out. Types have their own way where that is faster, to the same values.
    fn values(&self, out: &mut [f32; LEN]) {
        let mut quants = [0; LEN];
        self.quants(&mut quants);
        // All scales first: mixed into the loop below they lead the compiler to vectors across groups.
        let (scales, minima) = (self.scales(), self.minima());
        let groups = out.chunks_exact_mut(Self::GROUP_LEN).zip(quants.chunks_exact(Self::GROUP_LEN));
        for ((values, quants), (scale, min)) in groups.zip(scales.into_iter().zip(minima)) {
            for (y, &q) in values.iter_mut().zip(quants) {
                let product = scale * f32::from(q);
                // Adding a minimum of 0 would turn -0 into 0.
                *y = if Self::AFFINE { product + min } else { product };
            }
        }
    }
}

impl<const LEN: usize, B: Coded<LEN>> Block<LEN> for B {
    const GROUP: Option<usize> = Some(B::GROUP_LEN);
    const HAS_MIN: bool = B::AFFINE;

    fn decode(&self, out: &mut [f32; LEN]) {
        self.values(out);
    }

    fn to_codes(&self, out: &mut Codes) {
        self.quants(&mut out.codes.as_chunks_mut().0[0]);
        let groups = LEN / B::GROUP_LEN;
        out.scale[..groups].copy_from_slice(&self.scales()[..groups]);
        out.min[..groups].copy_from_slice(&self.minima()[..groups]);
    }
}

/// Nibbles in halves: the low nibble of byte `j` is element `j`, its high nibble element `N + j`.
#[inline(always)] // a loop for each `value`
pub(super) fn halves<const N: usize, T>(qs: &[u8; N], out: &mut [T], value: impl Fn(u8) -> T) {
    let (low, high) = out.split_at_mut(N);
    for ((low, high), b) in low.iter_mut().zip(high).zip(qs) {
        *low = value(b & 15);
        *high = value(b >> 4);
    }
}

/// Whole numbers as integers.
pub(super) const fn whole(values: &[f32; 16]) -> [i8; 16] {
    let mut integers = [0; 16];
    let mut i = 0;
    while i < 16 {
        integers[i] = values[i] as i8;
        i += 1;
    }
    integers
}
