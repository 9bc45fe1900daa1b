//! What a row answers: all logits, or its best candidates.

use crate::exec::{CANDIDATES, RowOutput};

/// Logits looked at together.
const LANES: usize = 16;

/// The best ids of a row of finite logits, by falling logit, then rising id, and the log of the sum of exp over all.
pub fn candidates(logits: &[f32]) -> RowOutput {
    let mut best: Vec<(f32, u32)> = Vec::with_capacity(CANDIDATES + 1);
    let mut floor = f32::NEG_INFINITY;
    for (c, some) in logits.chunks(LANES).enumerate() {
        // hardly any run holds one of the best; no early end: whole vectors are looked at together
        if best.len() == CANDIDATES && !some.iter().fold(false, |any, l| any | (*l > floor)) {
            continue;
        }
        for (i, logit) in some.iter().enumerate() {
            if best.len() < CANDIDATES || *logit > floor {
                let at = best.partition_point(|b| b.0 >= *logit);
                best.insert(at, (*logit, (c * LANES + i) as u32));
                best.truncate(CANDIDATES);
                floor = best[best.len() - 1].0;
            }
        }
    }
    let most = best.first().map_or(0.0, |b| f64::from(b.0));
    let sum: f64 = logits.iter().map(|l| (f64::from(*l) - most).exp()).sum();
    let (logits, ids) = best.into_iter().unzip();
    RowOutput::Candidates { ids, logits, log_sum_exp: (most + sum.ln()) as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_come_first_and_ties_by_id() {
        let mut logits = vec![-1.0; 100];
        (logits[70], logits[7], logits[99], logits[3]) = (2.0, 0.0, 2.0, -0.0);
        let RowOutput::Candidates { ids, logits: best, log_sum_exp } = candidates(&logits) else { panic!() };
        assert_eq!(ids[..6], [70, 99, 3, 7, 0, 1]);
        assert_eq!((ids.len(), best[1], best[63]), (CANDIDATES, 2.0, -1.0));
        let sum: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
        assert!((f64::from(log_sum_exp) - sum.ln()).abs() < 1e-6);
    }

    #[test]
    fn large_logits_do_not_overflow() {
        let RowOutput::Candidates { log_sum_exp, .. } = candidates(&[1e6, 1e6]) else { panic!() };
        assert_eq!(log_sum_exp, 1e6 + std::f32::consts::LN_2);
    }
}
