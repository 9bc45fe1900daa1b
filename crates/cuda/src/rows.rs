//! A weight's rows as they come from the file: by long reads, those that are here one behind the other, some rows at a time.

use std::ops::Range;

use shardwright_gguf::Reader;
use shardwright_model::hash::Hash;
use shardwright_model::plan::LocalWeight;

use crate::planes::is_planes;
use crate::{Error, Result};

/// Bytes of rows that travel together.
const PIECE: usize = 8 << 20;

/// Bytes that are read at a time, with what lies between rows; more than that between two is passed over. What is read is hashed
/// while a core's caches have it.
const READ: u64 = 2 << 20;
const GAP: u64 = 256 << 10;

/// What a slot of a device holds of a weight: numbers are decoded, rows of matrices are not.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    pub(crate) weight: LocalWeight,
    pub(crate) decoded: bool,
}

impl Rows {
    /// Bytes of a row.
    pub(crate) fn row_bytes(&self) -> usize {
        if self.decoded { self.weight.cols.len() * 4 } else { self.weight.bytes_a_row() }
    }

    /// Bytes of all.
    pub(crate) fn bytes(&self) -> usize {
        self.count() * self.row_bytes()
    }

    fn count(&self) -> usize {
        let w = &self.weight;
        if w.cols.is_empty() { 0 } else { w.copies.len() * w.rows.len() }
    }

    /// Do they lie in planes on a device?
    pub(crate) fn is_planes(&self) -> bool {
        !self.decoded && is_planes(self.weight.quant, self.row_bytes())
    }

    /// The rows of each piece. Where others lie between them there is room to read those too.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Range<usize>> + Clone + use<> {
        let (count, bytes) = (self.count(), self.row_bytes().max(1));
        let between = !self.decoded && count > 0 && {
            let [first, last] = [0, count - 1].map(|row| self.lies(row));
            last.end - first.start > self.bytes() as u64
        };
        let some = ((if between { PIECE - READ as usize } else { PIECE }) / bytes).max(1);
        (0..count).step_by(some).map(move |row| row..(row + some).min(count))
    }

    /// Bytes of the largest piece.
    pub(crate) fn piece(&self) -> usize {
        self.pieces().next().map_or(0, |rows| rows.len() * self.row_bytes())
    }

    /// Bytes of memory in which pieces of any of these weights are made.
    pub(crate) fn room<'a>(all: impl Iterator<Item = &'a Rows>) -> usize {
        let row = |rows: &Rows| rows.row_bytes().max(rows.weight.bytes_a_row());
        all.map(row).max().unwrap_or(0).max(PIECE)
    }

    /// Where a row lies in its file.
    fn lies(&self, row: usize) -> Range<u64> {
        let rows = self.weight.rows.len();
        self.weight.row(row / rows, row % rows)
    }

    /// Brings some rows to the beginning of `to`; gives their bytes and their share of the weight's hash.
    pub(crate) fn read(&self, reader: &Reader, rows: Range<usize>, to: &mut [u8]) -> Result<(usize, u64)> {
        let behind = (rows.start * self.row_bytes()) as u64;
        let all: Vec<Range<u64>> = rows.map(|row| self.lies(row)).collect();
        let found = match self.decoded {
            true => self.numbers(reader, &all, to).map(|used| {
                let mut hash = Hash::behind(behind);
                hash.add(&to[..used]);
                (used, hash.finish())
            }),
            false => self.blocks(reader, &all, to, behind),
        };
        found.map_err(|cause| Error::Weight { tensor: self.weight.name.clone(), cause })
    }

    fn blocks(
        &self,
        reader: &Reader,
        rows: &[Range<u64>],
        to: &mut [u8],
        behind: u64,
    ) -> shardwright_gguf::Result<(usize, u64)> {
        let (bytes, mut used, mut sum) = (self.row_bytes(), 0, 0u64);
        for run in runs(rows) {
            let (start, first) = (run[0].start, used);
            let raw = &mut to[first..][..(run[run.len() - 1].end - start) as usize];
            reader.read(self.weight.file, start, raw)?;
            let mut hash = Hash::behind(behind + first as u64);
            used += run.len() * bytes;
            if raw.len() == run.len() * bytes {
                hash.add(raw);
            } else {
                // what lies between them does not travel
                for (row, at) in run.iter().zip((first..).step_by(bytes)) {
                    let from = first + (row.start - start) as usize;
                    hash.add(&to[from..][..bytes]);
                    to.copy_within(from..from + bytes, at);
                }
            }
            sum = sum.wrapping_add(hash.finish());
        }
        Ok((used, sum))
    }

    fn numbers(
        &self,
        reader: &Reader,
        rows: &[Range<u64>],
        to: &mut [u8],
    ) -> shardwright_gguf::Result<usize> {
        let w = &self.weight;
        let (mut raw, mut numbers) = (vec![0; w.bytes_a_row()], vec![0f32; w.cols.len()]);
        for (row, to) in rows.iter().zip(to.chunks_exact_mut(self.row_bytes())) {
            reader.read(w.file, row.start, &mut raw)?;
            w.quant.decode(&raw, &mut numbers);
            to.copy_from_slice(bytemuck::cast_slice(&numbers));
        }
        Ok(rows.len() * self.row_bytes())
    }
}

/// Rows in runs that are read at once.
fn runs(rows: &[Range<u64>]) -> Vec<&[Range<u64>]> {
    let (mut runs, mut first) = (vec![], 0);
    for next in 1..=rows.len() {
        let together = rows.get(next).is_some_and(|row| {
            let gap = row.start.checked_sub(rows[next - 1].end);
            gap.is_some_and(|gap| gap <= GAP) && row.end - rows[first].start <= READ
        });
        if !together {
            runs.push(&rows[first..next]);
            first = next;
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_in_long_runs() {
        let check = |rows: &[Range<u64>], expected: &[usize]| {
            let found = runs(rows);
            assert_eq!(found.concat(), rows);
            assert_eq!(found.iter().map(|run| run.len()).collect::<Vec<_>>(), expected);
        };
        check(&[], &[]);
        let row = |start, bytes| start..start + bytes;
        check(&[row(5, 10)], &[1]);
        // one behind the other, and slices of longer rows
        check(&[row(0, 10), row(10, 10), row(40, 10)], &[3]);
        // far apart, backwards, and one that is longer than a read
        check(&[row(0, 10), row(11 + GAP, 10)], &[1, 1]);
        check(&[row(100, 10), row(0, 10)], &[1, 1]);
        check(&[row(0, READ + 1), row(READ + 1, 10)], &[1, 1]);
        // as many as go into one
        let all: Vec<Range<u64>> = (0..5).map(|n| row(n << 20, 1 << 20)).collect();
        check(&all, &[2, 2, 1]);
    }
}
