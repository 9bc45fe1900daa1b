//! For unit tests: weights in a real file, made of random blocks.
#![allow(clippy::unwrap_used)]

use crate::rank::Step;
use crate::simd::Isa;
use crate::team::Team;
use crate::weights::Stored;
use shardwright_gguf::{Meta, QuantType, Reader, Writer};
use shardwright_model::exec::StepBatch;
use shardwright_model::plan::LocalWeight;

/// A small generator of random bits.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn bits(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    /// Between -1 and 1.
    pub(crate) fn number(&mut self) -> f32 {
        self.bits() as i32 as f32 / 2f32.powi(31)
    }

    pub(crate) fn numbers(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.number()).collect()
    }
}

/// Random blocks of a type, `n` elements, none of them huge, tiny or not finite.
pub(crate) fn blocks(quant: QuantType, n: usize, random: &mut Random) -> Vec<u8> {
    let mut values = vec![0.0; quant.block_len()];
    let mut all = Vec::new();
    while all.len() < n / quant.block_len() * quant.block_bytes() {
        let block: Vec<u8> = (0..quant.block_bytes()).map(|_| random.bits() as u8).collect();
        quant.decode(&block, &mut values);
        let most = values.iter().fold(0f32, |most, v| most.max(v.abs()));
        if values.iter().all(|v| v.is_finite()) && most < 64.0 && most > 2f32.powi(-10) {
            all.extend(block);
        }
    }
    all
}

/// A file with one stack of matrices for each shape (copies, rows, cols).
pub(crate) fn stacks(quant: QuantType, shapes: &[[usize; 3]], random: &mut Random) -> (Reader, Vec<Stored>) {
    let dir = tempfile::tempdir().unwrap();
    let mut w = Writer::new(Meta::new()).unwrap();
    for (i, [copies, rows, cols]) in shapes.iter().enumerate() {
        w.tensor(&format!("t{i}"), quant, &[*cols as u64, *rows as u64, *copies as u64]).unwrap();
    }
    let path = dir.path().join("stacks.gguf");
    w.write(&path, |t, out| {
        let n = t.ne.iter().product::<u64>() as usize;
        Ok(out.write_all(&blocks(quant, n, random))?)
    })
    .unwrap();
    let reader = Reader::open(&path).unwrap();
    let stored = shapes.iter().enumerate().map(|(i, s)| stored(&reader, &format!("t{i}"), *s)).collect();
    (reader, stored)
}

fn stored(reader: &Reader, name: &str, [copies, rows, cols]: [usize; 3]) -> Stored {
    let t = reader.tensor(name).unwrap();
    let weight = LocalWeight {
        name: name.into(),
        quant: t.quant,
        file: t.file,
        offset: t.offset,
        copies: 0..copies,
        file_rows: rows,
        row_bytes: t.quant.row_bytes(cols).unwrap(),
        rows: 0..rows,
        cols: 0..cols,
    };
    Stored::new(&weight, false, reader).unwrap()
}

/// A step that only ops without positions and tokens may look at.
pub(crate) fn step<'a>(reader: &'a Reader, batch: &'a StepBatch, team: &'a Team) -> Step<'a> {
    Step { batch, reader, fast: false, round_all: false, isa: Isa::found()[0], team, wanted: &[] }
}

/// `W x` in plain f64, and the size of its summands.
pub(crate) fn plain(w: &Stored, reader: &Reader, copy: usize, x: &[f64]) -> Vec<(f64, f64)> {
    let mut row = vec![0.0; w.cols()];
    let mut one = |r| {
        w.decode(reader, copy, r, &mut row);
        let terms = || row.iter().zip(x).map(|(w, x)| f64::from(*w) * x);
        (terms().sum(), terms().map(f64::abs).sum())
    };
    (0..w.rows()).map(&mut one).collect()
}
