//! The stages of a model as one executor: each runs its layers, and what it hands on goes to the next.

use crate::exec::*;

/// Stages in order, wherever each of them is.
pub struct Pipeline {
    stages: Vec<Box<dyn Executor>>,
    limits: Limits,
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipeline").field("stages", &self.stages.len()).finish_non_exhaustive()
    }
}

impl Pipeline {
    /// The first stage starts from tokens, the last one answers.
    ///
    /// # Errors
    /// If one stage does not hand on what the next one takes.
    pub fn new(stages: Vec<Box<dyn Executor>>) -> Result<Pipeline, ExecError> {
        let all: Vec<Limits> = stages.iter().map(|s| s.limits()).collect();
        let (Some(first), Some(last)) = (all.first(), all.last()) else {
            return Err(ExecError("there is no stage".into()));
        };
        if first.takes != 0 {
            return Err(ExecError("the first stage does not start from tokens".into()));
        }
        if let Some(k) = (1..all.len()).find(|k| all[*k].takes != all[*k - 1].width) {
            let [gives, takes] = [all[k - 1].width, all[k].takes];
            let why = format!("stage {} hands on rows of {gives}, stage {k} takes rows of {takes}", k - 1);
            return Err(ExecError(why));
        }
        let least = |of: fn(&Limits) -> usize| all.iter().map(of).min().unwrap_or(0);
        let limits = Limits {
            rows: least(|l| l.rows),
            blocks: least(|l| l.blocks),
            context: least(|l| l.context),
            drafts: false,
            takes: 0,
            ..*last
        };
        Ok(Pipeline { stages, limits })
    }
}

impl Executor for Pipeline {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn check(&mut self) -> Result<(), ExecError> {
        self.stages.iter_mut().try_for_each(|stage| stage.check())
    }

    fn step_probed(
        &mut self,
        batch: &StepBatch,
        mut probe: Option<&mut dyn Probe>,
    ) -> Result<StepOutput, ExecError> {
        batch.check(&self.limits).map_err(ExecError)?;
        let count = batch.rows();
        let last = self.stages.len() - 1;
        let mut spoiled = vec![RowOutput::Nothing; count];
        let mut part = StepBatch { wants: vec![Want::Nothing; count], want_hidden: true, ..batch.clone() };
        for stage in &mut self.stages[..last] {
            let out = stage.step_probed(&part, probe.as_mut().map(|p| &mut **p as &mut dyn Probe))?;
            // where a row's first NaN arose
            let firsts = spoiled.iter_mut().zip(out.rows).filter(|(first, _)| **first == RowOutput::Nothing);
            firsts.for_each(|(first, row)| *first = row);
            part.hidden = Some(out.hidden);
        }
        part.wants.clone_from(&batch.wants);
        part.want_hidden = batch.want_hidden;
        let mut out = self.stages[last].step_probed(&part, probe)?;
        let earlier = out.rows.iter_mut().zip(spoiled).filter(|(_, first)| *first != RowOutput::Nothing);
        earlier.for_each(|(row, first)| *row = first);
        Ok(out)
    }
}
