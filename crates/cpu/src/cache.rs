//! What tokens leave behind: one line a token, in blocks that belong to sequences.

use crate::fast::lines::Lines;
use crate::rows::Rows;
use crate::{Error, Result};
use half::f16;
use half::slice::HalfFloatSliceExt;
use shardwright_model::exec::{BLOCK, StepBatch};
use shardwright_model::plan::LocalCache;

/// One cache slot of one rank.
#[derive(Debug)]
pub(crate) struct Cache {
    data: Elements,
    width: usize,
}

#[derive(Debug)]
enum Elements {
    /// For the exact path.
    Whole(Vec<f32>),
    /// For the fast path.
    Half(Vec<u16>),
}

impl Cache {
    /// Room for `blocks` blocks of lines, of half precision or not.
    pub(crate) fn new(slot: &LocalCache, blocks: usize, half: bool) -> Result<Cache> {
        let tokens = blocks.saturating_mul(BLOCK);
        let size = if half { size_of::<f16>() } else { size_of::<f32>() };
        let len = tokens.checked_mul(slot.width);
        let bytes = len.and_then(|len| len.checked_mul(size));
        let room = |bytes: &usize| Vec::<u8>::new().try_reserve_exact(*bytes).is_ok();
        let Some((len, _)) = len.zip(bytes.filter(room)) else {
            let bytes = tokens as u128 * slot.width as u128 * size as u128;
            return Err(Error::Memory { name: slot.name, layer: slot.layer, tokens, bytes });
        };
        // zeroed pages come from the system when they are first written
        let data = match half {
            true => Elements::Half(vec![0; len]),
            false => Elements::Whole(vec![0.0; len]),
        };
        Ok(Cache { data, width: slot.width })
    }

    /// The line of position `p` of the sequence with these blocks.
    pub(crate) fn row(&self, table: &[u32], p: usize) -> &[f32] {
        let Elements::Whole(data) = &self.data else { unreachable!("the exact path has whole elements") };
        &data[line(table, p) * self.width..][..self.width]
    }

    /// `width` elements of every line, from element `start` on.
    pub(crate) fn lines(&self, start: usize, width: usize) -> Lines<'_> {
        let Elements::Half(cache) = &self.data else { unreachable!("the fast path has half elements") };
        Lines { cache: bytemuck::cast_slice(cache), stride: self.width, start, width }
    }

    /// Writes a value's rows, from element `start` of each line on.
    pub(crate) fn write(&mut self, batch: &StepBatch, value: Rows<'_>, start: usize) {
        for i in 0..value.count {
            let (table, p) = place(batch, i);
            let at = line(table, p) * self.width + start;
            let to = at..at + value.width;
            match &mut self.data {
                Elements::Whole(data) => data[to].copy_from_slice(value.row(i)),
                Elements::Half(data) => {
                    bytemuck::cast_slice_mut::<u16, f16>(&mut data[to]).convert_from_f32_slice(value.row(i));
                }
            }
        }
    }
}

fn line(table: &[u32], p: usize) -> usize {
    table[p / BLOCK] as usize * BLOCK + p % BLOCK
}

/// The blocks of a row's sequence, and its position.
pub(crate) fn place(batch: &StepBatch, row: usize) -> (&[u32], usize) {
    (&batch.tables[batch.sequences[row] as usize], batch.positions[row] as usize)
}
