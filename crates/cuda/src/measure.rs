//! How fast kernels read weights: a matrix in many copies, one after the other in a recording, so that none is in a cache when
//! its turn comes.

use std::time::Instant;

use shardwright_gguf::QuantType;

use crate::device::{Device, Kernel, Launch};
use crate::unit::Unit;
use crate::{Error, Result};

/// Most rows of activations.
const ROWS: usize = 4;
/// Most copies.
const COPIES: usize = 200;
/// Times of which the median counts.
const TIMES: usize = 15;

/// The types that are measured.
pub const TYPES: [QuantType; 5] =
    [QuantType::F32, QuantType::Q8_0, QuantType::Q4_K, QuantType::Q5_K, QuantType::Q6_K];

/// A matrix of weights, by its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// Type of the weights.
    pub quant: QuantType,
    /// Elements of a row.
    pub cols: usize,
    /// Rows.
    pub outs: usize,
}

impl Matrix {
    /// Bytes of the weights.
    ///
    /// # Errors
    /// If the row does not end with a block.
    pub fn bytes(&self) -> Result<usize> {
        let wrong = || Error::Plan(format!("{} elements are no row of {}", self.cols, self.quant));
        Ok(self.outs * self.quant.row_bytes(self.cols).ok_or_else(wrong)?)
    }
}

/// Memory of a device to measure with.
pub struct Measure<'a> {
    device: &'a mut dyn Device,
    weights: u64,
    bytes: usize,
    step: u64,
    activations: [u64; 2],
    out: u64,
}

impl Measure<'_> {
    /// With room for so many bytes of weights, and for matrices of at most `side` columns or rows.
    ///
    /// # Errors
    /// If the device has too little memory.
    pub fn new(device: &mut dyn Device, bytes: usize, side: usize) -> Result<Measure<'_>> {
        let mut state = 1u32;
        let noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let noise: Vec<u8> = std::iter::repeat_with(noise).take(1 << 20).collect();
        // a slot ends with what a wide read may touch behind it
        let weights = device.alloc(bytes + 256)?;
        device.repeat(weights, &noise, bytes)?;
        let size = ROWS * side * 4;
        let activations = [device.alloc(size)?, device.alloc(size)?];
        device.repeat(activations[0], &noise, size)?;
        let (step, out) = (device.alloc(256)?, device.alloc(size)?);
        Ok(Measure { device, weights, bytes, step, activations, out })
    }

    /// Seconds that the matrix times `rows` rows takes.
    ///
    /// # Errors
    /// If the matrix is too large for the memory, or the device is broken.
    pub fn product(&mut self, m: &Matrix, rows: usize) -> Result<f64> {
        // every copy begins where memory does
        let stride = m.bytes()?.next_multiple_of(256);
        let copies = (self.bytes / stride).min(COPIES);
        if copies == 0 || rows == 0 || rows > ROWS {
            return Err(Error::Plan(format!("{rows} rows times {m:?} in {} bytes", self.bytes)));
        }
        let kernel = self.kernel(m, rows)?;
        let blocks = (2 * self.device.multiprocessors()).min(m.outs as u32);
        let launch = |n: usize| Launch {
            kernel,
            grid: [blocks, 1, 1],
            block: 256,
            shared: 0,
            args: vec![
                self.step,
                self.activations[0],
                self.activations[1],
                self.weights + (n * stride) as u64,
                self.out,
            ],
        };
        let launches: Vec<Launch> = (0..copies).map(launch).collect();
        self.device.upload(self.step, bytemuck::bytes_of(&[rows as u32, 0, 0, 0]))?;
        let recording = self.device.record(&launches)?;
        let mut times = vec![];
        // the first one is for getting warm
        for _ in 0..=TIMES {
            self.device.download(self.out, &mut [0; 4])?;
            let begun = Instant::now();
            self.device.replay(recording)?;
            self.device.download(self.out, &mut [0; 4])?;
            times.push(begun.elapsed().as_secs_f64() / copies as f64);
        }
        times.remove(0);
        times.sort_by(f64::total_cmp);
        Ok(times[TIMES / 2])
    }

    fn kernel(&mut self, m: &Matrix, rows: usize) -> Result<Kernel> {
        let unit = Unit::new("stream").quant(m.quant).int("COLS", m.cols).int("OUTS", m.outs);
        let unit = unit.int("ROW_BYTES", m.bytes()? / m.outs).int("TILE", rows);
        let unit = unit.int("FAST", u8::from(m.quant.group().is_some())).int("MAX_ROWS", ROWS);
        Ok(self.device.load(&[unit])?[0])
    }
}
