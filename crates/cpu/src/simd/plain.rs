//! The definition of every operation, for processors without a better one.

use super::{LANES, Rows16, Simd, Sixteen};
use half::f16;
use std::array::from_fn;

/// No special instructions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plain;

type F = Sixteen;
type U = [u32; LANES];

impl Simd for Plain {
    const REGISTERS: usize = 16;
    type F = F;
    type U = U;

    fn splat(x: f32) -> F {
        [x; LANES]
    }
    fn load(x: &Sixteen) -> F {
        *x
    }
    fn load_halves(x: &[f16; LANES]) -> F {
        x.map(f16::to_f32)
    }
    fn store(x: F, out: &mut Sixteen) {
        *out = x;
    }
    fn add(a: F, b: F) -> F {
        from_fn(|i| a[i] + b[i])
    }
    fn sub(a: F, b: F) -> F {
        from_fn(|i| a[i] - b[i])
    }
    fn mul(a: F, b: F) -> F {
        from_fn(|i| a[i] * b[i])
    }
    fn div(a: F, b: F) -> F {
        from_fn(|i| a[i] / b[i])
    }
    fn max(a: F, b: F) -> F {
        from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    fn min(a: F, b: F) -> F {
        from_fn(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    fn fma(a: F, b: F, c: F) -> F {
        from_fn(|i| a[i].mul_add(b[i], c[i]))
    }
    fn words(x: u32) -> U {
        [x; LANES]
    }
    fn load_words(x: &U) -> U {
        *x
    }
    fn store_words(x: U, out: &mut U) {
        *out = x;
    }
    fn and(a: U, b: U) -> U {
        from_fn(|i| a[i] & b[i])
    }
    fn or(a: U, b: U) -> U {
        from_fn(|i| a[i] | b[i])
    }
    fn xor(a: U, b: U) -> U {
        from_fn(|i| a[i] ^ b[i])
    }
    fn shl<const N: u32>(a: U) -> U {
        a.map(|a| a << N)
    }
    fn shr<const N: u32>(a: U) -> U {
        a.map(|a| a >> N)
    }
    fn plus(a: U, b: U) -> U {
        from_fn(|i| a[i].wrapping_add(b[i]))
    }
    fn float(a: U) -> F {
        a.map(|a| a.cast_signed() as f32)
    }
    fn nearest(a: F) -> U {
        // out of range (or NaN) is the smallest integer, as the vector instructions have it
        let whole = |a: f32| if a.abs() < 2_147_483_648.0 { a.round_ties_even() as i32 } else { i32::MIN };
        a.map(|a| whole(a).cast_unsigned())
    }
    fn bits(a: F) -> U {
        a.map(f32::to_bits)
    }
    fn from_bits(a: U) -> F {
        a.map(f32::from_bits)
    }
    fn halves(a: U) -> F {
        a.map(|a| f16::from_bits(a as u16).to_f32())
    }
    fn dot<const SMALL: bool>(acc: U, a: U, x: u32) -> U {
        let x = x.to_le_bytes().map(|b| i32::from(b.cast_signed()));
        from_fn(|i| {
            let a = a[i].to_le_bytes().map(i32::from);
            let sum: i32 = (0..4).map(|j| a[j] * x[j]).sum();
            acc[i].wrapping_add(sum.cast_unsigned())
        })
    }
    fn look_up(table: &[u8; 16], a: U) -> U {
        a.map(|a| u32::from_le_bytes(a.to_le_bytes().map(|b| table[usize::from(b & 15)])))
    }
    fn columns(rows: Rows16<'_>, offset: usize) -> [U; 4] {
        from_fn(|k| Plain::column(rows, offset + 4 * k))
    }
}
