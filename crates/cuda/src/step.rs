//! The numbers of a step as kernels see them; `kernels/common/step.cuh` reads what is written here.

use shardwright_model::exec::{BLOCK, StepBatch};

/// Rows, wanted rows, blocks of a table, and a word of nothing.
const HEADER: usize = 4;

/// Room for the numbers of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepLayout {
    /// Most rows.
    pub rows: usize,
    /// Most cache blocks of a sequence.
    pub table: usize,
}

impl StepLayout {
    /// For steps of at most `rows` rows of sequences of at most `context` positions.
    pub fn new(rows: usize, context: usize) -> StepLayout {
        StepLayout { rows, table: context.div_ceil(BLOCK) }
    }

    /// Words in all.
    pub fn words(self) -> usize {
        HEADER + 4 * self.rows + self.rows * self.table
    }

    /// The words of a step, up to the last one it uses.
    pub fn write(self, batch: &StepBatch, wanted: &[usize], out: &mut Vec<u32>) {
        out.clear();
        out.extend([batch.rows() as u32, wanted.len() as u32, self.table as u32, 0]);
        for (n, numbers) in [&batch.tokens, &batch.positions, &batch.sequences].into_iter().enumerate() {
            out.extend(numbers);
            out.resize(HEADER + (n + 1) * self.rows, 0);
        }
        out.extend(wanted.iter().map(|row| *row as u32));
        out.resize(HEADER + 4 * self.rows, 0);
        for table in &batch.tables {
            out.extend(table.iter().take(self.table));
            out.resize(out.len() + self.table.saturating_sub(table.len()), 0);
        }
    }
}
