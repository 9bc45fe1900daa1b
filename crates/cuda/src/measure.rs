//! How fast kernels read weights: a matrix in many copies, one after the other in a recording, so that none is in a cache when
//! its turn comes; and how fast memory is read when nothing else is done.

use std::time::Instant;

use shardwright_gguf::QuantType;

use crate::device::{Device, Launch};
use crate::stamp::Stamped;
use crate::unit::Unit;
use crate::wave::{self, Deal};
use crate::{Error, Result, planes};

/// Most rows of activations.
const ROWS: usize = 4;
/// Most copies.
const COPIES: usize = 200;
/// Threads of a block.
const BLOCK: usize = 256;
/// Times of which the median counts.
const TIMES: usize = 15;

/// Blocks a multiprocessor that read memory, their threads, and bytes that each thread reads in a round.
const READERS: u32 = 4;
const READING: u32 = 512;
const ROUND: usize = 64;

/// Most rounds, a power of two as all of them are, so that a release can ship these kernels for any card and size.
const MOST_ROUNDS: usize = 512;

/// The kernels of [`reading`], and of all that stamps the time between launches.
pub fn units() -> impl Iterator<Item = Unit> {
    let rounds = (0..=MOST_ROUNDS.ilog2()).map(|n| reader(1 << n));
    rounds.chain([Stamped::unit()])
}

fn reader(rounds: usize) -> Unit {
    Unit::new("read").int("ROUNDS", rounds)
}

/// Bytes a second that a kernel reads which does nothing else, of so many bytes or up to half as many.
///
/// # Errors
/// If the device has too little memory or is broken, or if that is too little to be read by all its multiprocessors.
pub fn reading(device: &mut dyn Device, bytes: usize) -> Result<f64> {
    let blocks = READERS * device.multiprocessors();
    let threads = (blocks * READING) as usize;
    let most = (bytes / (threads * ROUND)).min(MOST_ROUNDS);
    let Some(rounds) = most.checked_ilog2().map(|n| 1 << n) else {
        return Err(Error::Plan(format!("{bytes} bytes to be read by {threads} threads")));
    };
    let kernel = device.load(&[reader(rounds)])?[0];
    let args = vec![device.alloc(rounds * threads * ROUND)?, device.alloc(threads * 4)?];
    // zeros would cost less power, and with it the clock could be higher
    device.repeat(args[0], &noise(), rounds * threads * ROUND)?;
    let launch = Launch { kernel, grid: [blocks, 1, 1], block: READING, shared: 0, args };
    let mut stamped = Stamped::new(device, &[&[launch]])?;
    (0..TIMES).try_for_each(|_| stamped.replay(device))?;
    let seconds: f64 = stamped.times().groups.iter().sum();
    Ok((rounds * threads * ROUND) as f64 / seconds.max(1e-9))
}

/// A mebibyte without a pattern.
fn noise() -> Vec<u8> {
    let mut state = 1u32;
    let byte = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(byte).take(1 << 20).collect()
}

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

impl Matrix {
    /// The kernel that multiplies it with a tile of rows as they lie, dealt for so many multiprocessors, and its blocks; `fast`:
    /// rounded where the type wants that.
    ///
    /// # Errors
    /// If the row does not end with a block.
    pub fn unit(&self, tile: usize, fast: bool, multiprocessors: usize) -> Result<(Unit, usize)> {
        let (outs, all) = (self.outs, self.bytes()?);
        let bytes = all / outs;
        let mut unit = Unit::new("linear").int("BLOCK", BLOCK).int("TILE", tile).int("HEADS", 1);
        let kind = unit.matrix(self.quant, bytes, self.cols, fast);
        let (lanes, slices) = planes::lanes_and_slices(self.quant, bytes, self.cols, fast);
        let (unit, deal) = wave::deal(unit, all, [BLOCK, multiprocessors, tile], |most| {
            let own = wave::own(outs, bytes, all.div_ceil(most), BLOCK / lanes / slices);
            Deal { blocks: outs.div_ceil(own), largest: own * bytes, what: own }
        });
        let (own, blocks) = (deal.what, deal.blocks);
        let unit = unit.int("PART0", format!("{kind}, {kind}, {outs}, {own}, PLAIN, 0")).int("END0", blocks);
        let unit = unit.int("PARTS", 1).int("MATRICES", blocks).int("HAS_LINES", 0).int("PUSH", 0);
        let unit = unit.int("PREPARE", "AS_IT_LIES").int("PREPARED", 0);
        Ok((unit.int("ANSWER", 0).int("ADDED", 0).int("STREAM", 0).int("NORM_ROUND", 0), blocks))
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
        let noise = noise();
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
        let (unit, blocks) = m.unit(rows, true, self.device.multiprocessors() as usize)?;
        let kernel = self.device.load(&[unit.int("MAX_ROWS", ROWS)])?[0];
        let [x, s] = self.activations;
        let launch = |n: usize| {
            // where `linear.cu` has them: the step, rows plain and rounded, weights, and the first output
            let mut args = vec![0; 26];
            args[..5].copy_from_slice(&[self.step, x, x, s, self.weights + (n * stride) as u64]);
            args[12] = self.out;
            Launch { kernel, grid: [blocks as u32, 1, 1], block: BLOCK as u32, shared: 0, args }
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
}
