//! Where the stream comes from: rows of the vocabulary, or hidden rows that came with the step.

use crate::rank::Step;
use crate::weights::Stored;

/// Rows of the vocabulary; zeros for tokens that another rank holds.
pub(crate) fn embed(step: &Step<'_>, w: &Stored, out: &mut [f32]) {
    step.team.fill(out, w.cols(), |i, out| {
        let token = step.batch.tokens[i] as usize;
        match token.checked_sub(w.first_row()).filter(|r| *r < w.rows()) {
            Some(row) => w.decode(step.reader, 0, row, out),
            None => out.fill(0.0),
        }
    });
}

/// What came with the step: the trunk's hidden state, or that of the stage before.
pub(crate) fn hidden(step: &Step<'_>, out: &mut [f32]) {
    let rows = step.batch.hidden.as_ref().expect("the batch is checked");
    out.copy_from_slice(rows);
}
