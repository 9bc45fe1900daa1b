//! An executor without a model: canned tokens, so that schedulers, servers and their failures can be tested fast.

use crate::exec::*;

/// Answers each row with the token that a function of (token, position) names.
pub struct Null {
    limits: Limits,
    next: Box<dyn Fn(u32, u32) -> u32 + Send>,
}

impl std::fmt::Debug for Null {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Null").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Null {
    /// `next(token, position)` is the likeliest successor of every row; all other tokens are 20 nats behind.
    pub fn new(limits: Limits, next: impl Fn(u32, u32) -> u32 + Send + 'static) -> Null {
        Null { limits, next: Box::new(next) }
    }
}

/// How far all other tokens are behind the canned one.
const BEHIND: f32 = 20.0;

impl Executor for Null {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn step_probed(
        &mut self,
        batch: &StepBatch,
        _probe: Option<&mut dyn Probe>,
    ) -> Result<StepOutput, ExecError> {
        let others = (self.limits.vocab - 1) as f32 * (-BEHIND).exp();
        let answer = |i: usize| {
            let id = (self.next)(batch.tokens[i], batch.positions[i]);
            match batch.wants[i] {
                Want::Nothing => RowOutput::Nothing,
                Want::Candidates => RowOutput::Candidates {
                    ids: vec![id],
                    logits: vec![0.0],
                    log_sum_exp: (1.0 + others).ln(),
                },
                Want::Logits => {
                    let mut row = vec![-BEHIND; self.limits.vocab];
                    row[id as usize] = 0.0;
                    RowOutput::Logits(row)
                }
            }
        };
        let rows = (0..batch.rows()).map(answer).collect();
        let hidden = if batch.want_hidden { vec![0.0; batch.rows() * self.limits.width] } else { vec![] };
        Ok(StepOutput { rows, hidden })
    }
}
