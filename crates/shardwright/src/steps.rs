//! Token ids fed to an executor: one sequence, so many rows a step, all logits.

use anyhow::bail;
use shardwright_model::exec::{BLOCK, RowOutput, StepBatch, Want};

/// The steps of one sequence that has the whole cache, `rows` rows each.
pub(crate) fn steps(ids: &[u32], rows: usize) -> impl Iterator<Item = StepBatch> + '_ {
    let starts = (0..ids.len()).step_by(rows);
    starts.zip(ids.chunks(rows)).map(|(start, tokens)| StepBatch {
        tokens: tokens.to_vec(),
        positions: (start..start + tokens.len()).map(|p| p as u32).collect(),
        sequences: vec![0; tokens.len()],
        tables: vec![(0..ids.len().div_ceil(BLOCK) as u32).collect()],
        wants: vec![Want::Logits; tokens.len()],
        ..StepBatch::default()
    })
}

/// The logits that a row answers with; `at` is its place among the tokens, for the error.
pub(crate) fn logits(row: RowOutput, at: usize) -> anyhow::Result<Vec<f32>> {
    match row {
        RowOutput::Logits(logits) => Ok(logits),
        RowOutput::NonFinite { at: value } => {
            bail!("token {at}: the model computed non-finite values (NaN or infinity), first in `{value}`")
        }
        other => bail!("token {at}: the backend answered {other:?} instead of logits"),
    }
}
