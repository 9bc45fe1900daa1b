//! Quantized weights times rounded activations, shared out over the threads.

use super::rounded::{RUN, Rounded};
use super::tile::{COLS, Multiply, Picked, Tile};
use super::unpack::{Blocks, Meet, Unpack};
use crate::rank::Step;
use crate::simd::{LANES, Rows16, Sixteen, prefetch};
use crate::weights::Stored;

/// One matrix times some rows.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) factors: Factors<'a>,
    /// For each tile of sixteen outputs, one vector a row.
    pub(crate) out: &'a mut [Sixteen],
}

/// What is multiplied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Factors<'a> {
    pub(crate) weight: &'a Stored,
    /// Which of the rank's matrices.
    pub(crate) copy: usize,
    pub(crate) x: &'a Rounded,
    /// The first run of a row that meets the matrix.
    pub(crate) first: usize,
    /// Rows of activations, and how many.
    pub(crate) picked: Picked<'a>,
    pub(crate) count: usize,
}

/// Tiles that the outputs of a matrix with `rows` rows make.
pub(crate) fn tiles(rows: usize) -> usize {
    rows.div_ceil(LANES)
}

/// Pieces of work that a thread gets, about: the last ones even out what the threads were behind.
const PIECES: usize = 4;

/// Does all jobs at once.
pub(crate) fn products(step: &Step<'_>, jobs: &mut [Job<'_>]) {
    let all: usize = jobs.iter().map(|job| tiles(job.factors.weight.rows())).sum();
    let together = (all / (PIECES * step.team.size())).max(1);
    let pieces = jobs.iter_mut().filter(|job| !job.out.is_empty()).flat_map(|job| {
        let factors = job.factors;
        let some = job.out.chunks_mut(together * factors.count).enumerate();
        some.map(move |(i, out)| (factors, i * together, out))
    });
    step.team.share(pieces, |(factors, tile, out)| {
        let mut memory = Tile::new();
        for (i, out) in out.chunks_mut(factors.count).enumerate() {
            factors.tile(step, tile + i, &mut memory, out);
        }
    });
}

impl Factors<'_> {
    /// The outputs of tile `at`.
    fn tile(&self, step: &Step<'_>, at: usize, tile: &mut Tile, out: &mut [Sixteen]) {
        let w = self.weight;
        let (row, count) = (at * LANES, (w.rows() - at * LANES).min(LANES));
        let (bytes, stride) = w.bytes(step.reader, self.copy, row, count);
        let (len, mut padded) = (w.row_bytes(), Vec::new());
        let rows = match count {
            LANES => Rows16::new(bytes, stride, len),
            _ => {
                (0..LANES).for_each(|r| padded.extend(&bytes[r.min(count - 1) * stride..][..len]));
                Rows16::new(&padded, len, len)
            }
        };
        let soon = w.after(step.reader, self.copy, row + count, count);
        out.fill([0.0; LANES]);
        for col in (0..w.cols()).step_by(COLS) {
            let cols = (w.cols() - col).min(COLS);
            prefetch(&soon[soon.len() * col / w.cols()..soon.len() * (col + cols) / w.cols()]);
            let len = w.quant().block_len();
            let blocks = Blocks { quant: w.quant(), rows, first: col / len, count: cols / len };
            let Factors { x, picked, .. } = *self;
            let (first, runs) = (self.first + col / RUN, cols / RUN);
            match out {
                [out] if blocks.form().is_some() => {
                    let x = &x.row(picked.at(0))[first..first + runs];
                    step.isa.run(Meet { blocks, x, out });
                }
                _ => {
                    step.isa.run(Unpack { blocks, tile });
                    step.isa.run(Multiply { tile, x, picked, first, runs, out });
                }
            }
        }
    }
}

/// Every `stride`-th vector, one behind the other.
pub(crate) fn line_up(tiles: &[Sixteen], stride: usize, out: &mut [f32]) {
    let (whole, rest) = out.as_chunks_mut::<LANES>();
    let mut tiles = tiles.iter().step_by(stride);
    for (out, tile) in whole.iter_mut().zip(&mut tiles) {
        *out = *tile;
    }
    if let Some(tile) = tiles.next() {
        rest.copy_from_slice(&tile[..rest.len()]);
    }
}

/// From tiles to `m` rows of `n` outputs, plus a bias if there is one.
pub(crate) fn in_order(step: &Step<'_>, tiles: &[Sixteen], bias: Option<&[f32]>, m: usize, out: &mut [f32]) {
    let n = out.len() / m.max(1);
    step.team.fill(out, n, |i, out| {
        line_up(&tiles[i..], m, out);
        if let Some(bias) = bias {
            out.iter_mut().zip(bias).for_each(|(o, b)| *o += b);
        }
    });
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::rows::Rows;
    use crate::simd::Isa;
    use crate::team::Team;
    use crate::testing::{Random, stacks, step};
    use shardwright_gguf::quant::Codes;
    use shardwright_gguf::{QuantType, Reader};
    use shardwright_model::exec::StepBatch;

    /// The definition: one element after the other, straight from the integer form.
    fn defined(
        w: &Stored,
        reader: &Reader,
        copy: usize,
        row: usize,
        x: &[super::super::rounded::Run],
    ) -> f32 {
        let (quant, bytes) = (w.quant(), w.bytes(reader, copy, row, 1).0);
        let (len, group) = (quant.block_len(), quant.group().unwrap());
        let (mut codes, mut sum) = (Codes::default(), 0f32);
        for (b, block) in bytes.chunks_exact(quant.block_bytes()).enumerate() {
            quant.codes(block, &mut codes);
            for g in 0..len / group {
                let (mut dot, mut total) = (0i32, 0i32);
                let at = |j: usize| b * len + g * group + j;
                for j in 0..group {
                    let x = x[at(j) / RUN].codes[at(j) % RUN / 4].to_le_bytes()[at(j) % 4].cast_signed();
                    dot += i32::from(x) * i32::from(codes.codes[g * group + j]);
                    total += i32::from(x);
                }
                let scale = x[at(0) / RUN].scale;
                sum = (dot as f32).mul_add(codes.scale[g] * scale, sum);
                if quant.has_min() {
                    sum = codes.min[g].mul_add(scale * total as f32, sum);
                }
            }
        }
        sum
    }

    fn check(quant: QuantType, isa: Isa, rows: usize, cols: usize) {
        let mut random = Random(7);
        let (reader, w) = stacks(quant, &[[3, rows, cols]], &mut random);
        let (batch, team) = (StepBatch::default(), Team::new(2).unwrap());
        let step = Step { isa, ..step(&reader, &batch, &team) };
        for count in [1, 2, 11] {
            // twice as many columns: the matrix meets the second half
            let x = random.numbers(2 * cols * (count + 1));
            let mut rounded = Rounded::default();
            rounded.set(&team, isa, Rows::new(&x, 2 * cols, count + 1));
            let ids: Vec<u32> = (1..=count as u32).rev().collect();
            let mut out = vec![[f32::NAN; LANES]; tiles(rows) * count];
            let (x, first, picked) = (&rounded, cols / RUN, Picked::These(&ids));
            let factors = Factors { weight: &w[0], copy: 1, x, first, picked, count };
            products(&step, &mut [Job { factors, out: &mut out }]);
            let mut ordered = vec![0.0; rows * count];
            in_order(&step, &out, None, count, &mut ordered);
            for (i, r) in (0..count).flat_map(|i| [0, rows / 2, rows - 1].map(|r| (i, r))) {
                let want = defined(&w[0], &reader, 1, r, &x.row(count - i)[first..]);
                let got = ordered[i * rows + r];
                assert_eq!(
                    got.to_bits(),
                    want.to_bits(),
                    "{quant} {isa:?} {count} rows, {i} {r}: {got}, not {want}"
                );
            }
        }
    }

    #[test]
    fn q4_every_type_on_every_instruction_set_has_the_defined_bits() {
        let types = QuantType::ALL.iter().filter(|q| q.is_weight() && q.block_len() > 1);
        for (quant, isa) in types.flat_map(|q| Isa::found().into_iter().map(move |isa| (*q, isa))) {
            check(quant, isa, 35, 512);
            check(quant, isa, 16, 256);
            if quant.block_len() == 32 {
                check(quant, isa, 32, 576);
            }
        }
    }
}
