//! Matrices times rows, against sums of decoded weights; and the same bits whatever runs beside a row.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod emulator;

use emulator::{Emulator, Random};
use shardwright_cuda::device::{Device, Launch};
use shardwright_cuda::measure::{Matrix, Measure, reading};
use shardwright_cuda::planes::lay;
use shardwright_cuda::unit::Unit;
use shardwright_cuda::wave::MULTIPROCESSORS;
use shardwright_gguf::QuantType;

const OUTS: usize = 37;
const ROWS: usize = 3;

/// A matrix and the rows that it multiplies.
struct Product {
    quant: QuantType,
    cols: usize,
    weights: Vec<u8>,
    x: Vec<f32>,
}

/// Activations of 8 bits as kernels take them, and what they stand for.
fn rounded(x: &[f32]) -> (Vec<i8>, Vec<[f32; 4]>, Vec<f32>) {
    let (mut codes, mut scales, mut values) = (vec![], vec![], vec![]);
    for group in x.chunks(32) {
        let scale = group.iter().fold(0f32, |m, v| m.max(v.abs())) / 127.0;
        let here: Vec<i8> = group.iter().map(|v| (v / scale).round_ties_even() as i8).collect();
        let half = |n: usize| here[16 * n..][..16].iter().map(|c| f32::from(*c)).sum::<f32>() * scale;
        scales.push([scale, half(0), scale, half(1)]);
        values.extend(here.iter().map(|c| f32::from(*c) * scale));
        codes.extend(here);
    }
    (codes, scales, values)
}

impl Product {
    fn random(random: &mut Random, quant: QuantType, cols: usize) -> Product {
        let weights = random.rows(quant, OUTS, cols, 1e4);
        let x = (0..ROWS * cols).map(|_| f32::from(random.byte() as i8) / 64.0 + 0.01).collect();
        Product { quant, cols, weights, x }
    }

    /// What the kernel makes of it, for `tile` rows at a time.
    fn on(&self, device: &mut Emulator, tile: usize, fast: bool) -> Vec<f32> {
        let m = Matrix { quant: self.quant, cols: self.cols, outs: OUTS };
        let (unit, blocks) = m.unit(tile, fast, MULTIPROCESSORS).unwrap();
        let kernel = device.load(&[unit.int("MAX_ROWS", ROWS)]).unwrap()[0];
        let mut put = |bytes: &[u8]| {
            let at = device.alloc(bytes.len() + 64).unwrap();
            device.upload(at, bytes).unwrap();
            at
        };
        let mut out = vec![f32::NAN; ROWS * OUTS];
        let (codes, scales, _) = rounded(&self.x);
        let mut laid = vec![];
        let bytes = self.weights.len() / OUTS;
        self.weights.chunks(bytes).for_each(|row| lay(self.quant, row, &mut laid));
        let mut args = vec![0; 26];
        args[0] = put(bytemuck::bytes_of(&[ROWS as u32; 1]));
        args[1] = put(bytemuck::cast_slice(&self.x));
        args[2] = put(bytemuck::cast_slice(&codes));
        args[3] = put(bytemuck::cast_slice(&scales));
        args[4] = put(&laid);
        args[12] = put(bytemuck::cast_slice(&out));
        let (to, grid) = (args[12], [blocks as u32, ROWS.div_ceil(tile) as u32, 1]);
        device.launch(&Launch { kernel, grid, block: 256, shared: 0, args }).unwrap();
        device.download(to, bytemuck::cast_slice_mut(&mut out)).unwrap();
        out
    }

    fn check(&self, got: &[f32], fast: bool) {
        let x = if fast && self.quant.group().is_some() { rounded(&self.x).2 } else { self.x.clone() };
        let mut w = vec![0.0; OUTS * self.cols];
        self.quant.decode(&self.weights, &mut w);
        for (i, row) in x.chunks(self.cols).enumerate() {
            for (n, weights) in w.chunks(self.cols).enumerate() {
                let terms = || weights.iter().zip(row).map(|(w, x)| f64::from(*w) * f64::from(*x));
                let (want, size) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
                let off = (f64::from(got[i * OUTS + n]) - want).abs();
                assert!(
                    off <= 1e-5 * size,
                    "{} x {}, row {i}, output {n}: {off} of {size}",
                    self.quant,
                    self.cols
                );
            }
        }
    }
}

#[test]
fn products_are_right_in_any_company() {
    let Some(mut device) = Emulator::new() else { return };
    let mut random = Random(7);
    for &quant in QuantType::ALL.iter().filter(|q| q.is_weight()) {
        // rows that lie as they are and, of some types, in planes, that fill warps and that do not
        let block = quant.block_len().max(32);
        let planes = matches!(quant.name(), "Q8_0" | "Q4_K" | "Q5_K" | "Q6_K");
        let all = [9 * 256 + block % 256, block, 2048];
        for &cols in if planes { &all[..] } else { &all[..1] } {
            let product = Product::random(&mut random, quant, cols);
            let exact = product.on(&mut device, 1, false);
            product.check(&exact, false);
            let first = product.on(&mut device, 1, true);
            product.check(&first, true);
            let other = product.on(&mut device, 3, true);
            let same = first.iter().zip(&other).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{quant} x {cols}: three rows at a time");
        }
    }
}

#[test]
fn a_matrix_is_measured_if_there_is_room() {
    let Some(mut device) = Emulator::new() else { return };
    let mut measure = Measure::new(&mut device, 100_000, 512).unwrap();
    let m = Matrix { quant: QuantType::Q8_0, cols: 512, outs: 70 };
    assert!(measure.product(&m, 2).unwrap() > 0.0);
    let refused =
        |measure: &mut Measure<'_>, m: Matrix, rows| measure.product(&m, rows).unwrap_err().to_string();
    assert!(refused(&mut measure, Matrix { outs: 1000, ..m }, 1).contains("outs: 1000"));
    assert!(refused(&mut measure, Matrix { cols: 500, ..m }, 1).contains("500 elements"));
    assert!(refused(&mut measure, m, 9).contains("9 rows"));
}

#[test]
fn reading_reads_every_word_once() {
    let Some(mut device) = Emulator::new() else { return };
    let (blocks, rounds) = (3usize, 2usize);
    let words = blocks * 512 * rounds * 16;
    let kernel = device.load(&[Unit::new("read").int("ROUNDS", rounds)]).unwrap()[0];
    let (from, sums) = (device.alloc(words * 4).unwrap(), device.alloc(blocks * 512 * 4).unwrap());
    let all: Vec<u32> = (0..words as u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
    device.upload(from, bytemuck::cast_slice(&all)).unwrap();
    let launch =
        Launch { kernel, grid: [blocks as u32, 1, 1], block: 512, shared: 0, args: vec![from, sums] };
    device.launch(&launch).unwrap();
    let mut found = vec![0u32; blocks * 512];
    device.download(sums, bytemuck::cast_slice_mut(&mut found)).unwrap();
    let sum = |all: &[u32]| all.iter().fold(0u32, |sum, v| sum.wrapping_add(*v));
    assert_eq!(sum(&found), sum(&all));
    assert!(reading(&mut device, 2 << 20).unwrap() > 0.0);
    assert!(reading(&mut device, 1000).unwrap_err().to_string().contains("1000 bytes"));
}
