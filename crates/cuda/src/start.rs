//! Net at the start: what was recorded must do what the same kernels do one by one, in every bit, before anybody is
//! answered. A recording that does nothing, or reads memory that is no longer its own, is found.

use shardwright_model::exec::{BLOCK, Limits, RowOutput, StepBatch, StepOutput, Want};

use crate::machine::Form;
use crate::{Error, Result};

/// Runs a step in each form for each number of rows that was recorded, from the first position on and from `far` on, where
/// steps are of the long tier. The recorded one is run first, over what another step has left, so that it can't pass by leaving
/// everything as it is.
pub(crate) fn check(
    limits: &Limits,
    recorded: &[u32],
    far: usize,
    watched: bool,
    run: &mut dyn FnMut(&StepBatch, Form) -> Result<StepOutput>,
) -> Result<()> {
    let firsts = [0, far].into_iter().filter(|first| *first < room(limits));
    for (rows, first) in firsts.flat_map(|first| recorded.iter().map(move |rows| (rows, first))) {
        let trunk = known(limits, *rows as usize, first);
        let rows = trunk.rows();
        let hidden =
            || (0..rows * limits.width).map(|i| ((i * 29 + rows) % 61) as f32 / 61.0 - 0.5).collect();
        let draft = limits.drafts.then(|| StepBatch { hidden: Some(hidden()), ..trunk.clone() });
        for batch in [Some(trunk), draft].into_iter().flatten() {
            let recorded = run(&batch, Form { recorded: true, watched })?;
            let launched = run(&batch, Form { recorded: false, watched })?;
            if let Some(what) = differs(&recorded, &launched) {
                return Err(Error::Recording { rows, what });
            }
        }
    }
    Ok(())
}

/// Positions that a sequence may have.
fn room(limits: &Limits) -> usize {
    limits.context.min(limits.blocks * BLOCK)
}

/// A step of one sequence from position `first` on, whose tokens are other ones for every number of rows.
fn known(limits: &Limits, rows: usize, first: usize) -> StepBatch {
    let n = rows.min(room(limits) - first);
    let want = |i: usize| if (i + n).is_multiple_of(2) { Want::Candidates } else { Want::Logits };
    StepBatch {
        tokens: (0..n).map(|i| ((i * 37 + n * 101 + 3) % limits.vocab) as u32).collect(),
        positions: (first..first + n).map(|p| p as u32).collect(),
        sequences: vec![0; n],
        tables: vec![(0..(first + n).div_ceil(BLOCK) as u32).collect()],
        wants: (0..n).map(want).collect(),
        want_hidden: true,
        hidden: None,
    }
}

/// The first difference.
fn differs(a: &StepOutput, b: &StepOutput) -> Option<String> {
    let row = a.rows.iter().zip(&b.rows).position(|(a, b)| bits(a) != bits(b));
    let hidden = a.hidden.iter().zip(&b.hidden).position(|(a, b)| a.to_bits() != b.to_bits());
    row.map(|i| format!("the answer of row {i}")).or(hidden.map(|i| format!("number {i} of the hidden rows")))
}

/// Everything that a row answers.
fn bits(row: &RowOutput) -> (Vec<u32>, &str) {
    let bits = |numbers: &[f32]| numbers.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    match row {
        RowOutput::Nothing => (vec![], "nothing"),
        RowOutput::NonFinite { at } => (vec![], at),
        RowOutput::Logits(logits) => (bits(logits), "logits"),
        RowOutput::Candidates { ids, logits, log_sum_exp } => {
            ([ids.clone(), bits(logits), vec![log_sum_exp.to_bits()]].concat(), "candidates")
        }
    }
}
