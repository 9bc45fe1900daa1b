//! Types without blocks: each element is a number of its own.

use bytemuck::{Pod, Zeroable};
use half::{bf16, f16};

use super::{Block, Encode, half};

macro_rules! plain {
    ($($name:ident, $bytes:literal, $b:ident => $value:expr;)*) => { $(
        #[doc = concat!("One ", stringify!($name), ", little-endian.")]
        #[derive(Clone, Copy, Pod, Zeroable)]
        #[repr(C)]
        pub struct $name(pub [u8; $bytes]);

        impl Block<1> for $name {
            fn decode(&self, out: &mut [f32; 1]) {
                let $b = self.0;
                out[0] = $value;
            }
        }
    )* };
}

plain! {
    F32, 4, b => f32::from_le_bytes(b);
    F16, 2, b => half(b);
    BF16, 2, b => bf16::from_le_bytes(b).to_f32();
    F64, 8, b => f64::from_le_bytes(b) as f32;
    I8, 1, b => i8::from_le_bytes(b).into();
    I16, 2, b => i16::from_le_bytes(b).into();
    I32, 4, b => i32::from_le_bytes(b) as f32;
    I64, 8, b => i64::from_le_bytes(b) as f32;
}

impl Encode<1> for F32 {
    fn encode([x]: &[f32; 1]) -> F32 {
        F32(x.to_le_bytes())
    }
}

impl Encode<1> for F16 {
    fn encode(&[x]: &[f32; 1]) -> F16 {
        F16(f16::from_f32(x).to_le_bytes())
    }
}

impl Encode<1> for BF16 {
    fn encode(&[x]: &[f32; 1]) -> BF16 {
        BF16(bf16::from_f32(x).to_le_bytes())
    }
}
