//! Matrices times rows, against sums of decoded weights; and the same bits whatever runs beside a row
//! and however many blocks share the matrix.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod emulator;

use emulator::{Emulator, Random};
use shardwright_cuda::device::{Device, Launch};
use shardwright_cuda::measure::{Matrix, Measure, TYPES};
use shardwright_cuda::unit::Unit;
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
        scales.push([scale, half(0), half(1), 0.0]);
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

    /// Are its activations rounded?
    fn fast(&self) -> bool {
        self.quant.group().is_some()
    }

    /// What the kernel makes of it, for `tile` rows at a time and so many blocks.
    fn on(&self, device: &mut Emulator, tile: usize, blocks: u32) -> Vec<f32> {
        let fast = self.fast();
        let unit = Unit::new("stream").quant(self.quant).int("COLS", self.cols).int("FAST", u8::from(fast));
        let unit = unit.int("ROW_BYTES", self.quant.row_bytes(self.cols).unwrap()).int("TILE", tile);
        let unit = unit.int("MAX_ROWS", ROWS).int("OUTS", OUTS);
        let kernel = device.load(&[unit]).unwrap()[0];
        let mut put = |bytes: &[u8]| {
            let at = device.alloc(bytes.len()).unwrap();
            device.upload(at, bytes).unwrap();
            at
        };
        let mut out = vec![f32::NAN; ROWS * OUTS];
        let (codes, scales, _) = rounded(&self.x);
        let step = put(bytemuck::bytes_of(&[ROWS as u32; 1]));
        let x = put(if fast { bytemuck::cast_slice(&codes) } else { bytemuck::cast_slice(&self.x) });
        let (s, w, to) =
            (put(bytemuck::cast_slice(&scales)), put(&self.weights), put(bytemuck::cast_slice(&out)));
        let args = vec![step, x, s, w, to];
        let grid = [blocks, ROWS.div_ceil(tile) as u32, 1];
        device.launch(&Launch { kernel, grid, block: 256, shared: 0, args }).unwrap();
        device.download(to, bytemuck::cast_slice_mut(&mut out)).unwrap();
        out
    }

    fn check(&self, got: &[f32]) {
        let x = if self.fast() { rounded(&self.x).2 } else { self.x.clone() };
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
    for quant in TYPES {
        // one block, an odd number of steps, many warps a row
        let block = quant.block_len().max(32);
        for cols in [block, 9 * 256 + block % 256, 16384] {
            let product = Product::random(&mut random, quant, cols);
            let first = product.on(&mut device, 1, 5);
            product.check(&first);
            for (tile, blocks) in [(4, 5), (1, 37)] {
                let other = product.on(&mut device, tile, blocks);
                let same = first.iter().zip(&other).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same, "{quant} x {cols}: {tile} rows at a time over {blocks} blocks");
            }
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
