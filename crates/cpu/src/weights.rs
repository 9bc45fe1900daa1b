//! A rank's weights: rows decoded from the mapped file when they are needed, small vectors once.

use crate::{Error, Result};
use shardwright_gguf::{QuantType, Reader, TensorInfo};
use shardwright_model::plan::{LocalOp, LocalWeight};

/// A weight of a rank.
#[derive(Debug)]
pub(crate) struct Stored {
    weight: LocalWeight,
    tensor: TensorInfo,
    /// Where our first row begins in the tensor, and bytes of a row here.
    start: usize,
    row_bytes: usize,
    /// Norms, biases and divisors, decoded; empty for matrices.
    pub(crate) vector: Vec<f32>,
}

impl Stored {
    /// The weights of an op.
    pub(crate) fn of(op: &LocalOp, reader: &Reader) -> Result<Vec<Stored>> {
        op.weights.iter().enumerate().map(|(i, w)| Stored::new(w, op.is_vector(i), reader)).collect()
    }

    pub(crate) fn new(weight: &LocalWeight, is_vector: bool, reader: &Reader) -> Result<Stored> {
        let tensor = reader
            .tensor(&weight.name)
            .filter(|t| (t.file, t.offset, t.quant) == (weight.file, weight.offset, weight.quant));
        let Some(tensor) = tensor else {
            return Err(Error::Plan(format!("`{}` lies elsewhere in this file", weight.name)));
        };
        let first = match weight.copies.is_empty() || weight.rows.is_empty() {
            true => tensor.offset..tensor.offset,
            false => weight.row(0, 0),
        };
        let start = (first.start - tensor.offset) as usize;
        let row_bytes = (first.end - first.start) as usize;
        let (weight, tensor) = (weight.clone(), tensor.clone());
        let mut s = Stored { weight, tensor, start, row_bytes, vector: vec![] };
        if is_vector {
            let mut all = vec![0.0; s.rows() * s.cols()];
            all.chunks_mut(s.cols().max(1)).enumerate().for_each(|(r, row)| s.decode(reader, 0, r, row));
            s.vector = all;
        }
        Ok(s)
    }

    /// Matrices held.
    pub(crate) fn copies(&self) -> usize {
        self.weight.copies.len()
    }

    /// The first of them, counted in the whole stack.
    pub(crate) fn first_copy(&self) -> usize {
        self.weight.copies.start
    }

    /// Rows held of each matrix.
    pub(crate) fn rows(&self) -> usize {
        self.weight.rows.len()
    }

    /// The row held here as number 0, counted in the whole matrix.
    pub(crate) fn first_row(&self) -> usize {
        self.weight.rows.start
    }

    /// Columns held of each row.
    pub(crate) fn cols(&self) -> usize {
        self.weight.cols.len()
    }

    /// Is it stored in blocks of small integers?
    pub(crate) fn quantized(&self) -> bool {
        self.weight.quant.block_len() > 1
    }

    /// The type.
    pub(crate) fn quant(&self) -> QuantType {
        self.weight.quant
    }

    /// Bytes of a row here.
    pub(crate) fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// `count` rows of matrix `copy` from `row` on, and the bytes from one to the next.
    pub(crate) fn bytes<'a>(
        &self,
        reader: &'a Reader,
        copy: usize,
        row: usize,
        count: usize,
    ) -> (&'a [u8], usize) {
        let stride = self.weight.row_bytes;
        let start = self.start + (copy * self.weight.file_rows + row) * stride;
        (&reader.bytes(&self.tensor)[start..start + (count - 1) * stride + self.row_bytes], stride)
    }

    /// The bytes of the `count` rows from `row` on, as far as there are such.
    pub(crate) fn after<'a>(&self, reader: &'a Reader, copy: usize, row: usize, count: usize) -> &'a [u8] {
        match self.rows().saturating_sub(row).min(count) {
            0 => &[],
            count => self.bytes(reader, copy, row, count).0,
        }
    }

    /// Row `row` of matrix `copy`, both counted from our first.
    pub(crate) fn decode(&self, reader: &Reader, copy: usize, row: usize, out: &mut [f32]) {
        self.weight.quant.decode(self.bytes(reader, copy, row, 1).0, out);
    }
}
