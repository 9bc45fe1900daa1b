//! The table of tensor types: id, name, elements and bytes per block, decoder.
//!
//! A row of `n` elements is `n / block_len` blocks, one after the other. Element `i` of a block and the byte position
//! of its fields are as in ggml; each block struct's documentation gives the formula.

mod codes;
mod foreign;
mod grid;
pub mod iq;
pub mod k;
pub mod legacy;
pub mod low;
pub mod mx;
pub mod plain;
mod search;

use std::fmt;

use bytemuck::Pod;
use half::f16;

pub use codes::{Coded, Codes};

use crate::error::{Error, Result, UnknownId};

/// A block of `LEN` elements as it lies in a file, at any address.
pub trait Block<const LEN: usize>: Pod {
    /// See [`QuantType::group`].
    const GROUP: Option<usize> = None;
    /// See [`QuantType::has_min`].
    const HAS_MIN: bool = false;

    /// The values of the elements.
    fn decode(&self, out: &mut [f32; LEN]);

    /// The integer form.
    ///
    /// # Panics
    /// If the type has none.
    fn to_codes(&self, _out: &mut Codes) {
        panic!("codes: elements without blocks are no small integers");
    }
}

/// A block that can be made from values.
trait Encode<const LEN: usize>: Block<LEN> {
    /// The block that comes nearest to finite values of f16's range.
    fn encode(x: &[f32; LEN]) -> Self;
}

fn encode_blocks<const LEN: usize, B: Encode<LEN>>(values: &[f32], out: &mut Vec<u8>) {
    let (blocks, _) = values.as_chunks::<LEN>();
    blocks.iter().for_each(|x| out.extend_from_slice(bytemuck::bytes_of(&B::encode(x))));
}

fn decode_blocks<const LEN: usize, B: Block<LEN>>(bytes: &[u8], out: &mut [f32]) {
    let blocks: &[B] = bytemuck::cast_slice(bytes);
    let (values, rest) = out.as_chunks_mut::<LEN>();
    assert!(blocks.len() == values.len() && rest.is_empty(), "decode: the output does not match the blocks");
    blocks.iter().zip(values).for_each(|(block, values)| block.decode(values));
}

fn block_codes<const LEN: usize, B: Block<LEN>>(bytes: &[u8], out: &mut Codes) {
    assert_eq!(bytes.len(), size_of::<B>(), "codes: the bytes are not one block");
    bytemuck::from_bytes::<B>(bytes).to_codes(out);
}

macro_rules! quant_types {
    ($($(#[$doc:meta])* $name:ident = $id:literal, $len:literal, $bytes:literal, $block:ty;)*) => {
        /// How the elements of a tensor are stored.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[allow(non_camel_case_types)] // the names of the format
        pub enum QuantType { $($(#[$doc])* $name = $id,)* }

        $(const _: () = assert!(size_of::<$block>() == $bytes && align_of::<$block>() == 1);)*

        impl QuantType {
            /// Every type, by rising id.
            pub const ALL: &[QuantType] = &[$(QuantType::$name),*];

            /// The name that files and tools use: `Q4_K`.
            pub fn name(self) -> &'static str {
                match self { $(QuantType::$name => stringify!($name),)* }
            }

            /// Elements in a block; a row is a whole number of blocks.
            pub fn block_len(self) -> usize {
                match self { $(QuantType::$name => $len,)* }
            }

            /// Bytes of a block.
            pub fn block_bytes(self) -> usize {
                match self { $(QuantType::$name => $bytes,)* }
            }

            /// Decodes whole blocks at any address.
            ///
            /// # Panics
            /// If `bytes` is no whole number of blocks, or `out` has not one place for each element.
            pub fn decode(self, bytes: &[u8], out: &mut [f32]) {
                match self { $(QuantType::$name => decode_blocks::<$len, $block>(bytes, out),)* }
            }

            /// Elements that share a scale in the integer form, 16 or 32: the most of these two, of one scale by the
            /// format. None for types without blocks, whose elements are numbers of their own: they have no such form.
            pub fn group(self) -> Option<usize> {
                match self { $(QuantType::$name => <$block as Block<$len>>::GROUP,)* }
            }

            /// True if groups have a minimum beside the scale: Q4_1, Q5_1, Q2_K, Q4_K and Q5_K.
            pub fn has_min(self) -> bool {
                match self { $(QuantType::$name => <$block as Block<$len>>::HAS_MIN,)* }
            }

            /// The integer form of one block at any address.
            ///
            /// # Panics
            /// If `block` is not one block, or the type has no [`group`](QuantType::group).
            pub fn codes(self, block: &[u8], out: &mut Codes) {
                match self { $(QuantType::$name => block_codes::<$len, $block>(block, out),)* }
            }
        }
    };
}

quant_types! {
    /// 32-bit float.
    F32 = 0, 1, 4, plain::F32;
    /// 16-bit float.
    F16 = 1, 1, 2, plain::F16;
    /// 4 bits, scale.
    Q4_0 = 2, 32, 18, legacy::Q4_0;
    /// 4 bits, scale and minimum.
    Q4_1 = 3, 32, 20, legacy::Q4_1;
    /// 5 bits, scale.
    Q5_0 = 6, 32, 22, legacy::Q5_0;
    /// 5 bits, scale and minimum.
    Q5_1 = 7, 32, 24, legacy::Q5_1;
    /// 8 bits, scale.
    Q8_0 = 8, 32, 34, legacy::Q8_0;
    /// 8 bits, scale and sum; for activations, never in files.
    Q8_1 = 9, 32, 36, legacy::Q8_1;
    /// 2 bits in super-blocks.
    Q2_K = 10, 256, 84, k::Q2K;
    /// 3 bits in super-blocks.
    Q3_K = 11, 256, 110, k::Q3K;
    /// 4 bits in super-blocks.
    Q4_K = 12, 256, 144, k::Q4K;
    /// 5 bits in super-blocks.
    Q5_K = 13, 256, 176, k::Q5K;
    /// 6 bits in super-blocks.
    Q6_K = 14, 256, 210, k::Q6K;
    /// 8 bits with one scale; for activations, never in files.
    Q8_K = 15, 256, 292, k::Q8K;
    /// 2.06 bits, codebook.
    IQ2_XXS = 16, 256, 66, iq::IQ2XXS;
    /// 2.31 bits, codebook.
    IQ2_XS = 17, 256, 74, iq::IQ2XS;
    /// 3.06 bits, codebook.
    IQ3_XXS = 18, 256, 98, iq::IQ3XXS;
    /// 1.56 bits, codebook.
    IQ1_S = 19, 256, 50, iq::IQ1S;
    /// 4 bits, uneven steps.
    IQ4_NL = 20, 32, 18, iq::IQ4NL;
    /// 3.44 bits, codebook.
    IQ3_S = 21, 256, 110, iq::IQ3S;
    /// 2.56 bits, codebook.
    IQ2_S = 22, 256, 82, iq::IQ2S;
    /// 4.25 bits, uneven steps.
    IQ4_XS = 23, 256, 136, iq::IQ4XS;
    /// 8-bit integer.
    I8 = 24, 1, 1, plain::I8;
    /// 16-bit integer.
    I16 = 25, 1, 2, plain::I16;
    /// 32-bit integer.
    I32 = 26, 1, 4, plain::I32;
    /// 64-bit integer.
    I64 = 27, 1, 8, plain::I64;
    /// 64-bit float.
    F64 = 28, 1, 8, plain::F64;
    /// 1.75 bits, codebook.
    IQ1_M = 29, 256, 56, iq::IQ1M;
    /// The upper half of a 32-bit float.
    BF16 = 30, 1, 2, plain::BF16;
    /// Ternary, five elements a byte.
    TQ1_0 = 34, 256, 54, low::TQ1_0;
    /// Ternary, four elements a byte.
    TQ2_0 = 35, 256, 66, low::TQ2_0;
    /// 4-bit floats, power-of-two scale.
    MXFP4 = 39, 32, 17, mx::MXFP4;
    /// 4-bit floats, 8-bit float scales.
    NVFP4 = 40, 64, 36, mx::NVFP4;
    /// 1 bit, scale.
    Q1_0 = 41, 128, 18, low::Q1_0;
    /// 2 bits, scale.
    Q2_0 = 42, 64, 18, low::Q2_0;
}

impl QuantType {
    /// The type of an id.
    ///
    /// # Errors
    /// Ids that nobody uses, that ggml has removed, and that only other programs know: by name.
    pub fn from_id(id: u32) -> Result<QuantType> {
        QuantType::known(id).map_err(Error::QuantId)
    }

    pub(crate) fn known(id: u32) -> std::result::Result<QuantType, UnknownId> {
        QuantType::ALL.iter().copied().find(|q| q.id() == id).ok_or_else(|| foreign::describe(id))
    }

    /// The number in the file.
    pub fn id(self) -> u32 {
        self as u32
    }

    /// The type of a name, in upper or lower case.
    ///
    /// # Errors
    /// The name is unknown.
    pub fn from_name(name: &str) -> Result<QuantType> {
        let same = |q: &QuantType| q.name().eq_ignore_ascii_case(name);
        QuantType::ALL.iter().copied().find(same).ok_or_else(|| Error::QuantName(name.to_owned()))
    }

    /// Bytes of a row of `n` elements, if `n` is a whole number of blocks and the size fits.
    pub fn row_bytes(self, n: usize) -> Option<usize> {
        let whole = n.is_multiple_of(self.block_len());
        (n / self.block_len()).checked_mul(self.block_bytes()).filter(|_| whole)
    }

    /// Appends whole blocks that come as near to the values as the type allows.
    ///
    /// # Errors
    /// A type that is only read, a length that is no whole number of blocks, or (but for F32 and BF16) a value that is
    /// not finite or beyond the range of f16, in which the scales are stored.
    pub fn encode(self, values: &[f32], out: &mut Vec<u8>) -> Result<()> {
        let fail = |why: String| Err(Error::Encode { quant: self.name(), why });
        let len = self.block_len();
        if !values.len().is_multiple_of(len) {
            return fail(format!("{} values are no whole number of blocks of {len}", values.len()));
        }
        let in_range = |x: &f32| x.abs() <= f16::MAX.to_f32();
        let ranged = !matches!(self, QuantType::F32 | QuantType::BF16);
        if let Some(i) = values.iter().position(|x| ranged && !in_range(x)) {
            return fail(format!("value {i} is {}, expected at most {} either way", values[i], f16::MAX));
        }
        match self {
            QuantType::F32 => encode_blocks::<1, plain::F32>(values, out),
            QuantType::F16 => encode_blocks::<1, plain::F16>(values, out),
            QuantType::BF16 => encode_blocks::<1, plain::BF16>(values, out),
            QuantType::Q4_0 => encode_blocks::<32, legacy::Q4_0>(values, out),
            QuantType::Q4_1 => encode_blocks::<32, legacy::Q4_1>(values, out),
            QuantType::Q5_0 => encode_blocks::<32, legacy::Q5_0>(values, out),
            QuantType::Q5_1 => encode_blocks::<32, legacy::Q5_1>(values, out),
            QuantType::Q8_0 => encode_blocks::<32, legacy::Q8_0>(values, out),
            QuantType::Q2_K => encode_blocks::<256, k::Q2K>(values, out),
            QuantType::Q3_K => encode_blocks::<256, k::Q3K>(values, out),
            QuantType::Q4_K => encode_blocks::<256, k::Q4K>(values, out),
            QuantType::Q5_K => encode_blocks::<256, k::Q5K>(values, out),
            QuantType::Q6_K => encode_blocks::<256, k::Q6K>(values, out),
            _ => return fail("this type is only read".to_owned()),
        }
        Ok(())
    }

    /// True if weights are stored in this type: not for integers, f64, and the formats of activations.
    pub fn is_weight(self) -> bool {
        use QuantType::{F64, I8, I16, I32, I64, Q8_1, Q8_K};
        !matches!(self, I8 | I16 | I32 | I64 | F64 | Q8_1 | Q8_K)
    }

    /// The integers among which codes of this type are looked up, for decoders elsewhere: grid rows of 8, of 4 in IQ3
    /// types, one after another (before signs and, in IQ1 types, the shift of 1 either way); in 4-bit types sixteen
    /// values. Empty where codes are computed.
    pub fn codebook(self) -> &'static [i8] {
        match self {
            QuantType::IQ2_XXS => grid::IQ2_XXS.as_flattened(),
            QuantType::IQ2_XS => grid::IQ2_XS.as_flattened(),
            QuantType::IQ2_S => grid::IQ2_S.as_flattened(),
            QuantType::IQ3_XXS => grid::IQ3_XXS.as_flattened(),
            QuantType::IQ3_S => grid::IQ3_S.as_flattened(),
            QuantType::IQ1_S | QuantType::IQ1_M => grid::IQ1.as_flattened(),
            QuantType::IQ4_NL | QuantType::IQ4_XS => &const { codes::whole(&iq::STEPS) },
            QuantType::MXFP4 | QuantType::NVFP4 => &const { codes::whole(&mx::E2M1) },
            _ => &[],
        }
    }
}

impl fmt::Display for QuantType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The nearest half-precision number, as a field and as the value that a decoder will find there.
fn to_half(x: f32) -> ([u8; 2], f32) {
    // The best fit of values at the end of the range may lie a little beyond it.
    let half = f16::from_f32(x.clamp(f16::MIN.to_f32(), f16::MAX.to_f32()));
    (half.to_le_bytes(), half.to_f32())
}

/// The value of a half-precision field.
///
/// Own arithmetic, since the crate `half` asks for the processor's features at each number, which takes ten times as
/// long as this, and gives no way to many numbers at odd addresses.
fn half([low, high]: [u8; 2]) -> f32 {
    let bits = u32::from(u16::from_le_bytes([low, high]));
    // Exponent and mantissa moved to their places in an f32; the exponents count from -15 and -127.
    let magnitude = f32::from_bits((bits & 0x7FFF) << 13) * 2f32.powi(127 - 15);
    let infinite = if bits & 0x7C00 == 0x7C00 { 0x7F80_0000 } else { 0 };
    f32::from_bits(magnitude.to_bits() | infinite | (bits & 0x8000) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_has_its_value() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (half(bits.to_le_bytes()), f16::from_bits(bits).to_f32());
            let same = ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan());
            assert!(same, "{bits:04x}: {ours} and {theirs}");
        }
    }
}
