//! Weights times rows: each weight row is decoded once and used for all rows of the step.

use crate::dot::{dot, dots};
use crate::rank::Step;
use crate::rows::{Rows, fill};
use crate::scratch::{decoded, floats, sized};
use crate::weights::Stored;
use rayon::prelude::*;
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
    let x = match step.q8 && stack.weight.quantized() {
        true => Rows::new(round(x, cols, rounded), x.width, x.count),
        false => x,
    };
    let tile = (HELD / n.max(1)).clamp(1, x.count.max(1));
    for first in (0..x.count).step_by(tile) {
        let x = x.part(first, tile.min(x.count - first));
        let columns = sized(columns, n * x.count);
        by_columns(step, stack, x, columns);
        in_order(columns, bias, n, x.count, &mut out[first * n..][..n * x.count]);
    }
}

/// `columns[r * m + i]` = row r of the stack times row i of x.
fn by_columns(step: &Step<'_>, stack: &Stack<'_>, x: Rows<'_>, columns: &mut [f32]) {
    let (rows, cols) = stack.shape();
    let together = if stack.transposed { rows } else { TOGETHER };
    let m = x.count;
    columns.par_chunks_mut((together * m).max(1)).enumerate().for_each(|(b, columns)| {
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
fn in_order(columns: &[f32], bias: Option<&[f32]>, n: usize, m: usize, out: &mut [f32]) {
    const FEW: usize = 16;
    fill(out, FEW * n, |c, out| {
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
