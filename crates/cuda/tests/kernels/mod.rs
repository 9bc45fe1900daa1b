//! Kernels of whole models, run by themselves on numbers that a test makes up.
#![allow(clippy::unwrap_used, dead_code, reason = "a test may panic; not every test uses all")]

use half::f16;
use shardwright_cuda::device::{Device, Launch};
use shardwright_cuda::program::{Call, Program};
use shardwright_cuda::unit::Unit;

use crate::emulator::Emulator;

/// Positions of a cache block.
const BLOCK: usize = 64;

/// A small generator of numbers.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }

    /// Between -1 and 1.
    pub(crate) fn float(&mut self) -> f32 {
        self.next() as f32 / (1u64 << 30) as f32 - 1.0
    }
}

/// A number that a kernel is compiled for.
pub(crate) fn number(unit: &Unit, name: &str) -> usize {
    let value = &unit.defines.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("{name}")).1;
    value.parse().unwrap()
}

/// One that is a float.
pub(crate) fn float(unit: &Unit, name: &str) -> f32 {
    let value = &unit.defines.iter().find(|(n, _)| *n == name).unwrap().1;
    let bits = value.strip_prefix("__int_as_float(0x").unwrap().strip_suffix(')').unwrap();
    f32::from_bits(u32::from_str_radix(bits, 16).unwrap())
}

/// The first call of a kernel, and its place.
pub(crate) fn call<'a>(program: &'a Program, stem: &str) -> (usize, &'a Call, &'a Unit) {
    let at = program.calls.iter().position(|c| program.units[c.unit].stem == stem);
    let at = at.unwrap_or_else(|| panic!("no {stem}"));
    (at, &program.calls[at], &program.units[program.calls[at].unit])
}

/// Rows of a step by sequence and position; each sequence has blocks of its own, in no order.
#[derive(Clone)]
pub(crate) struct Rows {
    pub(crate) rows: Vec<(usize, usize)>,
    tables: Vec<Vec<usize>>,
    pub(crate) lines: usize,
}

impl Rows {
    pub(crate) fn new(rows: &[(usize, usize)], random: &mut Random) -> Rows {
        let sequences = rows.iter().map(|r| r.0).max().unwrap() + 1;
        let longest = |s| rows.iter().filter(|r| r.0 == s).map(|r| r.1 / BLOCK + 1).max().unwrap();
        let needs: Vec<usize> = (0..sequences).map(longest).collect();
        let mut blocks: Vec<usize> = (0..needs.iter().sum()).collect();
        for i in (1..blocks.len()).rev() {
            blocks.swap(i, random.below(i + 1));
        }
        let lines = blocks.len() * BLOCK;
        let tables = needs.iter().map(|n| blocks.split_off(blocks.len() - n)).collect();
        Rows { rows: rows.to_vec(), tables, lines }
    }

    /// One of them by itself.
    pub(crate) fn only(&self, i: usize) -> Rows {
        Rows { rows: vec![self.rows[i]], ..self.clone() }
    }

    /// The cache line of a position of row i's sequence.
    pub(crate) fn line(&self, i: usize, position: usize) -> usize {
        self.tables[self.rows[i].0][position / BLOCK] * BLOCK + position % BLOCK
    }

    /// Positions for which kernels have room in a row.
    pub(crate) fn context(&self) -> usize {
        BLOCK * self.tables.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// The step's numbers, for a kernel's sizes.
    fn words(&self, unit: &Unit) -> Vec<u32> {
        let (most, table) = (number(unit, "MAX_ROWS"), self.context() / BLOCK);
        let mut words = vec![self.rows.len() as u32, 0, table as u32, 0];
        words.resize(4 + most, 0);
        for numbers in [0, 1] {
            words.extend(self.rows.iter().map(|(s, p)| [*p, *s][numbers] as u32));
            words.resize(4 + (2 + numbers) * most, 0);
        }
        words.resize(4 + 4 * most, 0);
        for own in &self.tables {
            words.extend(own.iter().map(|b| *b as u32));
            words.resize(words.len() + table - own.len(), u32::MAX);
        }
        words
    }
}

/// A device with kernels on it.
pub(crate) struct Bench(pub(crate) Emulator);

impl Bench {
    pub(crate) fn put<T: bytemuck::NoUninit>(&mut self, data: &[T]) -> u64 {
        let bytes = bytemuck::cast_slice(data);
        let address = self.0.alloc(bytes.len()).unwrap();
        self.0.upload(address, bytes).unwrap();
        address
    }

    /// Memory of floats that are none.
    pub(crate) fn poisoned(&mut self, floats: usize) -> u64 {
        self.put(&vec![f32::NAN; floats])
    }

    pub(crate) fn get(&mut self, address: u64, floats: usize) -> Vec<f32> {
        let mut data = vec![0f32; floats];
        self.0.download(address, bytemuck::cast_slice_mut(&mut data)).unwrap();
        data
    }

    /// Runs a call; its arguments come behind the step.
    pub(crate) fn run(&mut self, program: &Program, call: &Call, rows: &Rows, args: &[u64]) {
        let unit = &program.units[call.unit];
        let step = self.put(&rows.words(unit));
        let kernel = self.0.load(std::slice::from_ref(unit)).unwrap()[0];
        let args = [&[step], args].concat();
        let (grid, block, shared) = (call.blocks(rows.rows.len() as u32), call.block, call.shared);
        self.0.launch(&Launch { kernel, grid, block, shared, args }).unwrap();
    }
}

/// Lines of f16 of which only some are written; the others are not numbers.
pub(crate) fn cache(lines: usize, width: usize, written: &[usize], random: &mut Random) -> Vec<f16> {
    let mut cache = vec![f16::NAN; lines * width];
    for line in written {
        cache[line * width..][..width].fill_with(|| f16::from_f32(random.float() * 2.0));
    }
    cache
}
