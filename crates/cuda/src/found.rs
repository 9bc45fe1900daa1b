//! The best logits of a row, as the device leaves them.

use bytemuck::{Pod, Zeroable};
use shardwright_model::exec::{CANDIDATES, RowOutput};

/// What a rank found in its part of the vocabulary; `kernels/answer.cu` writes it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct Found {
    ids: [u32; CANDIDATES],
    logits: [f32; CANDIDATES],
    /// The largest logit.
    most: f32,
    /// Sum of exp(logit - most).
    sum: f32,
    count: u32,
    /// Were all logits finite?
    finite: u32,
}

/// The answer of a row; none if a logit was not finite.
pub(crate) fn merged(ranks: &[Found]) -> Option<RowOutput> {
    let mut best: Vec<(f32, u32)> = vec![];
    let most = ranks.iter().filter(|f| f.count > 0).fold(f32::NEG_INFINITY, |most, f| most.max(f.most));
    let mut sum = 0f64;
    for found in ranks.iter().filter(|f| f.count > 0) {
        if found.finite == 0 {
            return None;
        }
        let count = found.count as usize;
        best.extend(found.logits.iter().copied().zip(found.ids).take(count));
        sum += f64::from(found.sum) * f64::from(found.most - most).exp();
    }
    // -0 and 0 are equal here as on the CPU
    best.sort_by(|a, b| b.0.partial_cmp(&a.0).unwrap_or(std::cmp::Ordering::Equal).then(a.1.cmp(&b.1)));
    best.truncate(CANDIDATES);
    let (logits, ids) = best.into_iter().unzip();
    Some(RowOutput::Candidates { ids, logits, log_sum_exp: (f64::from(most) + sum.ln()) as f32 })
}
