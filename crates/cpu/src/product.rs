//! Weights times rows: each weight row is decoded once and used for all rows of the step.

use crate::dot::{dot, dots};
use crate::rank::Step;
use crate::rows::Rows;
use crate::scratch::{decoded, floats, sized};
use crate::weights::Stored;
use std::ops::Range;

/// Memory between the steps of a product.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    rounded: Vec<f32>,
    columns: Vec<f32>,
}

/// Weight rows decoded together.
const TOGETHER: usize = 8;
/// Rows of activations that share the reading of a weight row.
const TILE: usize = 4;
/// Results held before they are put in order, at most.
const HELD: usize = 1 << 23;

/// A stack of matrices of which each takes an equal part of the input row: output `copy * rows + r` is the dot product
/// of row r of that matrix with its part.
#[derive(Clone, Debug)]
pub(crate) struct Stack<'a> {
    pub(crate) weight: &'a Stored,
    /// Which of the rank's matrices.
    pub(crate) copies: Range<usize>,
    /// Rows and columns change places.
    pub(crate) transposed: bool,
}

impl<'a> Stack<'a> {
    /// The one matrix of a plain weight.
    pub(crate) fn plain(weight: &'a Stored) -> Stack<'a> {
        Stack { weight, copies: 0..1, transposed: false }
    }

    fn shape(&self) -> (usize, usize) {
        let (rows, cols) = (self.weight.rows(), self.weight.cols());
        if self.transposed { (cols, rows) } else { (rows, cols) }
    }

    /// Decodes rows `first..` of the stack, as many as `buf` holds. With `transposed`, whole matrices.
    fn decode(&self, step: &Step<'_>, first: usize, buf: &mut [f32]) {
        let (rows, cols) = self.shape();
        let file_row = |r: usize, out: &mut [f32]| {
            let per = self.weight.rows();
            self.weight.decode(step.reader, self.copies.start + r / per, r % per, out);
        };
        if !self.transposed {
            return buf.chunks_mut(cols).enumerate().for_each(|(j, row)| file_row(first + j, row));
        }
        let copy = first / rows;
        floats(rows, |row| {
            for c in 0..cols {
                file_row(copy * cols + c, row);
                (0..rows).for_each(|r| buf[r * cols + c] = row[r]);
            }
        })
    }
}

/// `out = W x`, plus a bias if there is one. With 8-bit activations, `x` is rounded first where W is quantized.
pub(crate) fn product(
    step: &Step<'_>,
    stack: &Stack<'_>,
    x: Rows<'_>,
    bias: Option<&[f32]>,
    out: &mut [f32],
    buffers: &mut Buffers,
) {
    let (rows, cols) = stack.shape();
    let n = rows * stack.copies.len();
    debug_assert_eq!((x.width, out.len()), (cols * stack.copies.len(), n * x.count));
    if cols == 0 {
        return out.fill(0.0);
    }
    let Buffers { rounded, columns } = buffers;
    let x = match step.round_all {
        true => Rows::new(round(x, cols, rounded), x.width, x.count),
        false => x,
    };
    let tile = (HELD / n.max(1)).clamp(1, x.count.max(1));
    for first in (0..x.count).step_by(tile) {
        let x = x.part(first, tile.min(x.count - first));
        let columns = sized(columns, n * x.count);
        by_columns(step, stack, x, columns);
        in_order(step, columns, bias, n, x.count, &mut out[first * n..][..n * x.count]);
    }
}

/// `columns[r * m + i]` = row r of the stack times row i of x.
fn by_columns(step: &Step<'_>, stack: &Stack<'_>, x: Rows<'_>, columns: &mut [f32]) {
    let (rows, cols) = stack.shape();
    let together = if stack.transposed { rows } else { TOGETHER };
    let m = x.count;
    step.team.runs(columns, (together * m).max(1), |b, columns| {
        decoded(columns.len() / m * cols, |buf| {
            stack.decode(step, b * together, buf);
            for first in (0..m).step_by(TILE) {
                for (j, w) in buf.chunks(cols).enumerate() {
                    let part = (b * together + j) / rows * cols;
                    let out = &mut columns[j * m + first..(j * m + m).min(j * m + first + TILE)];
                    times_tile(w, |i| &x.row(first + i)[part..part + cols], out);
                }
            }
        });
    });
}

fn times_tile<'a>(w: &[f32], x: impl Fn(usize) -> &'a [f32], out: &mut [f32]) {
    match <&mut [f32; TILE]>::try_from(&mut *out) {
        Ok(out) => *out = dots(w, std::array::from_fn(&x)).map(|d| d as f32),
        Err(_) => out.iter_mut().enumerate().for_each(|(i, o)| *o = dot(w, x(i)) as f32),
    }
}

/// From columns to rows, a few rows at a time: what lies side by side in a column is read together.
fn in_order(step: &Step<'_>, columns: &[f32], bias: Option<&[f32]>, n: usize, m: usize, out: &mut [f32]) {
    const FEW: usize = 16;
    step.team.fill(out, FEW * n, |c, out| {
        let few = out.len() / n;
        for r in 0..n {
            let b = bias.map_or(0.0, |b| b[r]);
            for i in 0..few {
                let y = columns[r * m + c * FEW + i];
                out[i * n + r] = if bias.is_some() { y + b } else { y };
            }
        }
    });
}

/// 8-bit activations: runs of 32 (never across `unit`) as multiples of their largest magnitude / 127.
fn round<'a>(x: Rows<'_>, unit: usize, rounded: &'a mut Vec<f32>) -> &'a [f32] {
    let out = sized(rounded, x.all().len());
    out.copy_from_slice(x.all());
    for run in out.chunks_mut(unit).flat_map(|u| u.chunks_mut(32)) {
        let scale = run.iter().fold(0f32, |max, v| max.max(v.abs())) / 127.0;
        if scale > 0.0 {
            run.iter_mut().for_each(|v| *v = (*v / scale).round() * scale);
        }
    }
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::team::Team;
    use crate::testing::{Random, plain, stacks, step};
    use shardwright_gguf::QuantType;
    use shardwright_model::exec::StepBatch;

    /// Every copy, row and column of a product against decoded rows in plain f64.
    fn check(quant: QuantType, rows: usize, cols: usize, counts: &[usize]) {
        let mut random = Random(7);
        let (reader, w) = stacks(quant, &[[3, rows, cols]], &mut random);
        let (batch, team) = (StepBatch::default(), Team::new(2).unwrap());
        for &m in counts {
            let x = random.numbers(m * cols);
            let mut out = vec![0.0; m * rows];
            let stack = Stack { weight: &w[0], copies: 1..2, transposed: false };
            let x = Rows::new(&x, cols, m);
            product(&step(&reader, &batch, &team), &stack, x, None, &mut out, &mut Buffers::default());
            for i in [0, m / 2, m - 1] {
                let wide: Vec<f64> = x.row(i).iter().map(|v| f64::from(*v)).collect();
                for (r, (want, size)) in plain(&w[0], &reader, 1, &wide).into_iter().enumerate() {
                    let got = f64::from(out[i * rows + r]);
                    assert!(
                        (got - want).abs() <= 1e-7 * size,
                        "{quant} {m} rows, {i}, {r}: {got}, not {want}"
                    );
                }
            }
        }
    }

    #[test]
    fn q4_products_of_every_type_are_exact() {
        for quant in QuantType::ALL.iter().filter(|q| q.is_weight()) {
            check(*quant, 96, 512, &[1, 2, 3, 9, 64, 129]);
            check(*quant, 257, 2048, &[1, 9]);
        }
    }

    #[test]
    fn a_transposed_stack_is_the_stack_turned() {
        let mut random = Random(3);
        let (reader, w) = stacks(QuantType::Q8_0, &[[3, 16, 64]], &mut random);
        let (batch, team) = (StepBatch::default(), Team::new(2).unwrap());
        let (m, x) = (5, random.numbers(5 * 3 * 16));
        let x = Rows::new(&x, 3 * 16, m);
        let mut out = vec![0.0; m * 3 * 64];
        let stack = Stack { weight: &w[0], copies: 0..3, transposed: true };
        product(&step(&reader, &batch, &team), &stack, x, None, &mut out, &mut Buffers::default());
        let mut row = vec![0.0; 64];
        for (i, copy, c) in (0..m).flat_map(|i| (0..3).flat_map(move |h| (0..64).map(move |c| (i, h, c)))) {
            let mut want = 0.0;
            for r in 0..16 {
                w[0].decode(&reader, copy, r, &mut row);
                want += f64::from(row[c]) * f64::from(x.row(i)[copy * 16 + r]);
            }
            let got = f64::from(out[i * 192 + copy * 64 + c]);
            assert!((got - want).abs() <= 1e-5 * want.abs().max(1.0), "{i} {copy} {c}: {got}, not {want}");
        }
    }

    #[test]
    fn eight_bit_activations_are_multiples_of_a_127th() {
        let mut x = vec![0.0f32; 70];
        (x[0], x[1], x[2], x[33], x[64], x[65]) = (-127.0, 1.5, 0.49, 254.0, f32::NAN, 1.0);
        (x[34], x[35]) = (3.0, -3.0);
        let rounded = round(Rows::new(&x, 70, 1), 70, &mut Vec::new()).to_vec();
        assert_eq!(rounded[..3], [-127.0, 2.0, 0.0], "half away from zero");
        assert_eq!(rounded[33..36], [254.0, 4.0, -4.0], "a scale of its own for each 32");
        assert!(rounded[64].is_nan() && rounded[65] == 1.0);
    }
}
