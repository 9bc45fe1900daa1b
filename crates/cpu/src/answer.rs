//! What a row answers: all logits, or its best candidates.

use shardwright_model::exec::{CANDIDATES, RowOutput};

/// The best ids of a row of finite logits, by falling logit, then rising id, and the log of the sum of exp over all.
pub(crate) fn candidates(logits: &[f32]) -> RowOutput {
    let order = |a: &u32, b: &u32| {
        let [x, y] = [a, b].map(|i| logits[*i as usize]);
        y.partial_cmp(&x).expect("logits are finite").then(a.cmp(b))
    };
    let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
    if ids.len() > CANDIDATES {
        ids.select_nth_unstable_by(CANDIDATES, order);
        ids.truncate(CANDIDATES);
    }
    ids.sort_unstable_by(order);
    let best: Vec<f32> = ids.iter().map(|i| logits[*i as usize]).collect();
    let most = best.first().copied().map_or(0.0, f64::from);
    let sum: f64 = logits.iter().map(|l| (f64::from(*l) - most).exp()).sum();
    RowOutput::Candidates { ids, logits: best, log_sum_exp: (most + sum.ln()) as f32 }
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
