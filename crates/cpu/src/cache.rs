//! What tokens leave behind: one row a token, in blocks that belong to sequences.

use crate::rows::Rows;
use crate::{Error, Result};
use shardwright_model::exec::{BLOCK, StepBatch};
use shardwright_model::plan::LocalCache;

/// One cache slot of one rank.
#[derive(Debug)]
pub(crate) struct Cache {
    data: Vec<f32>,
    width: usize,
}

impl Cache {
    pub(crate) fn new(slot: &LocalCache, blocks: usize) -> Result<Cache> {
        let tokens = blocks.saturating_mul(BLOCK);
        let len = tokens.checked_mul(slot.width);
        let room = |len: &usize| Vec::<f32>::new().try_reserve_exact(*len).is_ok();
        match len.filter(room) {
            // zeroed pages come from the system when they are first written
            Some(len) => Ok(Cache { data: vec![0.0; len], width: slot.width }),
            None => Err(Error::Memory {
                name: slot.name,
                layer: slot.layer,
                tokens,
                bytes: tokens as u128 * slot.width as u128 * 4,
            }),
        }
    }

    /// The row of position `p` of the sequence with these blocks.
    pub(crate) fn row(&self, table: &[u32], p: usize) -> &[f32] {
        &self.data[self.start(table, p)..][..self.width]
    }

    /// Writes a value's rows, from element `start` of each cache row on.
    pub(crate) fn write(&mut self, batch: &StepBatch, value: Rows<'_>, start: usize) {
        for i in 0..value.count {
            let (table, p) = place(batch, i);
            let at = self.start(table, p) + start;
            self.data[at..at + value.width].copy_from_slice(value.row(i));
        }
    }

    fn start(&self, table: &[u32], p: usize) -> usize {
        (table[p / BLOCK] as usize * BLOCK + p % BLOCK) * self.width
    }
}

/// The blocks of a row's sequence, and its position.
pub(crate) fn place(batch: &StepBatch, row: usize) -> (&[u32], usize) {
    (&batch.tables[batch.sequences[row] as usize], batch.positions[row] as usize)
}
