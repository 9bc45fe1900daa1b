//! Quantized blocks: any bytes of any type, and any values.

use shardwright_gguf::QuantType;
use shardwright_gguf::quant::Codes;

use crate::{Input, one_line};

/// The greatest magnitude that scales in half precision allow.
const GREATEST: f32 = 65_504.0;

/// What the scale of a scale in half precision cannot tell from zero.
const LEAST: f32 = 1e-4;

/// Blocks of a type, and the same bytes as values to encode.
pub fn quant(data: &[u8]) {
    let mut input = Input::new(data);
    let quant = input.pick(QuantType::ALL);
    let to = input.pick(QuantType::ALL);
    let bytes = input.rest();
    let values = decode(quant, bytes);
    encode(to, &values);
    let floats: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    encode(to, &floats);
    let tame = |x: &f32| if x.is_finite() { x.clamp(-GREATEST, GREATEST) } else { 0.0 };
    encode(to, &floats.iter().map(tame).collect::<Vec<_>>());
}

/// Blocks mean the same alone and among others, and their integer form multiplies out to the values.
fn decode(quant: QuantType, bytes: &[u8]) -> Vec<f32> {
    let (n, len) = (quant.block_bytes(), quant.block_len());
    let bytes = &bytes[..bytes.len() / n * n];
    let mut values = vec![0.0; bytes.len() / n * len];
    quant.decode(bytes, &mut values);
    for (block, whole) in bytes.chunks_exact(n).zip(values.chunks_exact(len)) {
        let mut alone = vec![0.0; len];
        quant.decode(block, &mut alone);
        assert!(alone.iter().zip(whole).all(|(a, b)| a.to_bits() == b.to_bits()), "{quant}: {block:?}");
        if let Some(group) = quant.group() {
            let mut c = Codes::default();
            quant.codes(block, &mut c);
            let product = |j: usize| c.scale[j / group] * f32::from(c.codes[j]) + c.min[j / group];
            let same = |(j, y): (usize, &f32)| product(j) == *y || product(j).is_nan() && y.is_nan();
            assert!(whole.iter().enumerate().all(same), "{quant}: {block:?}");
        }
    }
    values
}

/// Values that can be written come back finite and no further from each other than their span; others are refused.
fn encode(quant: QuantType, values: &[f32]) {
    let values = &values[..values.len() / quant.block_len() * quant.block_len()];
    let mut bytes = Vec::new();
    if let Err(e) = quant.encode(values, &mut bytes) {
        assert!(bytes.is_empty());
        return one_line(&e);
    }
    assert_eq!(Some(bytes.len()), quant.row_bytes(values.len()));
    let back = decode(quant, &bytes);
    if quant == QuantType::F32 {
        return assert!(values.iter().zip(&back).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
    for (x, y) in values.chunks_exact(quant.block_len()).zip(back.chunks_exact(quant.block_len())) {
        let largest = x.iter().fold(0f32, |a, b| a.max(b.abs()));
        let far = x.iter().zip(y).find(|(x, y)| (*x - *y).abs() > largest + LEAST);
        let tame = largest <= GREATEST && !x.iter().any(|x| x.is_nan());
        assert!(!tame || far.is_none(), "{quant}: {far:?} among values up to {largest}");
    }
}
