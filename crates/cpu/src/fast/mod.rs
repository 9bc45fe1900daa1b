//! The fast path: activations rounded to 8 bits in front of quantized weights, sums in f32.
//!
//! Like the exact path it gives a row the same bits whatever else is in the step, however many threads there are and
//! whatever instructions the processor has; unlike it, it is only as exact as 8 bits are.
// kernels walk several arrays of registers at once
#![allow(clippy::needless_range_loop)]

pub(crate) mod attend;
pub(crate) mod attention;
pub(crate) mod experts;
pub(crate) mod index;
pub(crate) mod linear;
pub(crate) mod lines;
pub(crate) mod pointwise;
pub(crate) mod product;
pub(crate) mod rounded;
pub(crate) mod tile;
pub(crate) mod unpack;
