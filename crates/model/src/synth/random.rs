//! Random weights of every type, with scales that keep activations near unit variance.

use shardwright_gguf::QuantType;

/// SplitMix64 (Steele, Lea, Flood 2014): small, fast, and the same on every machine.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A stream of its own for each seed and name.
    pub fn new(seed: u64, name: &str) -> Rng {
        // FNV-1a
        let hash =
            name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ hash)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// From 0 to 1, without 1.
    pub fn uniform(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u32 << 24) as f32
    }

    /// Mean 0, variance 1: the sum of four uniform numbers, near enough to a normal one.
    pub fn normal(&mut self) -> f32 {
        let bits = self.bits();
        let sum: u32 = (0..4).map(|i| (bits >> (16 * i)) as u32 & 0xffff).sum();
        (sum as f32 / 65_536.0 - 2.0) * 3f32.sqrt()
    }
}

/// Fills whole blocks with values of mean 0 and standard deviation `std`.
///
/// # Panics
/// If `out` is no whole number of blocks, or `quant` is no type of weights.
pub fn fill(quant: QuantType, std: f32, rng: &mut Rng, out: &mut [u8]) {
    assert!(out.len().is_multiple_of(quant.block_bytes()) && quant.is_weight(), "whole blocks of weights");
    match quant {
        QuantType::F32 => {
            out.as_chunks_mut::<4>().0.iter_mut().for_each(|b| *b = (rng.normal() * std).to_le_bytes())
        }
        QuantType::F16 => out.as_chunks_mut::<2>().0.iter_mut().for_each(|b| *b = half(rng.normal() * std)),
        QuantType::BF16 => out.as_chunks_mut::<2>().0.iter_mut().for_each(|b| {
            let [_, _, low, high] = (rng.normal() * std).to_le_bytes();
            *b = [low, high];
        }),
        _ => blocks(quant, std, rng, out),
    }
}

fn blocks(quant: QuantType, std: f32, rng: &mut Rng, out: &mut [u8]) {
    for chunk in out.chunks_mut(8) {
        let bits = rng.bits().to_le_bytes();
        chunk.copy_from_slice(&bits[..chunk.len()]);
    }
    let n = quant.block_bytes();
    let unit = unit_deviation(quant);
    out.chunks_exact_mut(n).for_each(|block| set_scale(quant, std / unit, rng, block));
}

/// The standard deviation of a type's values where the scale of its blocks is 1.
fn unit_deviation(quant: QuantType) -> f32 {
    const BLOCKS: usize = 256;
    let (n, len) = (quant.block_bytes(), quant.block_len());
    let mut rng = Rng::new(0, quant.name());
    let mut bytes: Vec<u8> = (0..n * BLOCKS).map(|_| rng.bits() as u8).collect();
    bytes.chunks_exact_mut(n).for_each(|block| set_scale(quant, 1.0, &mut rng, block));
    let mut values = vec![0.0; len * BLOCKS];
    quant.decode(&bytes, &mut values);
    let square: f64 = values.iter().map(|v| f64::from(*v).powi(2)).sum();
    (square / values.len() as f64).sqrt() as f32
}

/// Scales differ from block to block by up to this share, as in real files.
const JITTER: f32 = 0.4;

/// Gives a block of random bits the scale `d` (and the minimum that makes its mean 0).
fn set_scale(quant: QuantType, d: f32, rng: &mut Rng, block: &mut [u8]) {
    use QuantType::*;
    let d = d * (1.0 + JITTER * (2.0 * rng.uniform() - 1.0));
    // quants are not even around 0 in some types: a scale of either sign is
    let signed = if rng.uniform() < 0.5 { d } else { -d };
    let mut put = |at: usize, x: f32| block[at..at + 2].copy_from_slice(&half(x));
    match quant {
        Q4_1 => [(0, 1.0), (2, -7.5)].iter().for_each(|(at, f)| put(*at, f * d)),
        Q5_1 => [(0, 1.0), (2, -15.5)].iter().for_each(|(at, f)| put(*at, f * d)),
        Q2_K => [(80, 1.0), (82, 1.5)].iter().for_each(|(at, f)| put(*at, f * d)),
        Q4_K => [(0, 1.0), (2, 7.5)].iter().for_each(|(at, f)| put(*at, f * d)),
        Q5_K => [(0, 1.0), (2, 15.5)].iter().for_each(|(at, f)| put(*at, f * d)),
        Q3_K => put(108, signed),
        Q6_K => put(208, signed),
        TQ1_0 => put(52, signed),
        TQ2_0 => put(64, signed),
        IQ1_M => {
            // a nibble of the f16 scale in the top of each of four words
            let bits = u16::from_le_bytes(half(d));
            (0..4).for_each(|i| {
                let high = &mut block[49 + 2 * i];
                *high = (*high & 0x0f) | ((bits >> (4 * i)) as u8 & 0x0f) << 4;
            });
        }
        MXFP4 => block[0] = code(1..=254, d, rng, |c| 2f32.powi(i32::from(c) - 128)),
        NVFP4 => (0..4).for_each(|i| block[i] = code(0..=126, d, rng, e4m3_half)),
        _ => put(0, signed),
    }
}

/// One of the two codes around `d`, by a chance that keeps the mean square.
fn code(codes: std::ops::RangeInclusive<u8>, d: f32, rng: &mut Rng, value: impl Fn(u8) -> f32) -> u8 {
    let (first, last) = (*codes.start(), *codes.end());
    let low = codes.rev().find(|c| value(*c) <= d).unwrap_or(first);
    if low == last {
        return last;
    }
    let (a, b) = (value(low).powi(2), value(low + 1).powi(2));
    low + u8::from(rng.uniform() < (d * d - a) / (b - a))
}

/// Half the value of an unsigned E4M3 code below its NaN.
fn e4m3_half(code: u8) -> f32 {
    let (e, m) = (i32::from(code >> 3), f32::from(code & 7));
    if e == 0 { m / 1024.0 } else { (1.0 + m / 8.0) * 2f32.powi(e - 8) }
}

/// Half precision, rounded to nearest; beyond its range the greatest number.
fn half(x: f32) -> [u8; 2] {
    const GREATEST: f32 = 65_504.0;
    const LEAST_NORMAL: f32 = 6.103_515_6e-5;
    let size = x.abs().min(GREATEST);
    let bits = match size < LEAST_NORMAL {
        true => (size * (1u32 << 24) as f32).round() as u16,
        false => ((size.to_bits() + 0xfff + ((size.to_bits() >> 13) & 1) - (112 << 23)) >> 13) as u16,
    };
    (bits | u16::from(x.is_sign_negative()) << 15).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_of_weights_gets_the_deviation_asked_for() {
        for quant in QuantType::ALL.iter().copied().filter(|q| q.is_weight()) {
            for std in [1.0, 0.0128] {
                let blocks = (1 << 17) / quant.block_len();
                let mut bytes = vec![0; blocks * quant.block_bytes()];
                fill(quant, std, &mut Rng::new(7, "x"), &mut bytes);
                let mut values = vec![0.0; blocks * quant.block_len()];
                quant.decode(&bytes, &mut values);
                let n = values.len() as f64;
                let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / n;
                let rms = (values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / n).sqrt();
                let (mean, rms) = (mean / f64::from(std), rms / f64::from(std));
                assert!((0.93..1.1).contains(&rms), "{quant} at {std}: {rms}");
                assert!(mean.abs() < 0.1, "{quant} at {std}: mean {mean}");
            }
        }
    }

    #[test]
    fn half_precision_is_that_of_the_decoder() {
        for x in [1.0, -2.5, 65_504.0, 6.1e-5, 5.96e-8, 0.333_251_95, 1e-7] {
            let mut back = [0.0];
            QuantType::F16.decode(&half(x), &mut back);
            assert!((back[0] - x).abs() <= x.abs() * 4.9e-4 + 3e-8, "{x} {}", back[0]);
        }
    }
}
