//! The executor: checks a step, has it run, and collects what its rows answer.

use crate::machine::Machine;
use crate::rank::Step;
use crate::simd::Isa;
use crate::team::Team;
use crate::{Error, Result, scratch};
use shardwright_gguf::Reader;
use shardwright_model::answer;
use shardwright_model::exec::*;
use shardwright_model::op::Description;
use shardwright_model::plan::RankPlan;
use shardwright_model::watch::Parted;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// How activations enter a product with a quantized weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activations {
    /// As they are, and sums in f64: exact.
    #[default]
    F32,
    /// Rounded to 8 bits in front of quantized weights, 32 elements sharing a scale of their largest magnitude / 127;
    /// sums in f32: fast.
    Q8,
    /// The same, and rounded in front of all other matrices but the routers' too, to see what rounding does.
    Q8Everywhere,
}

/// Sizes and choices of an executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuOptions {
    /// Threads that share the work.
    pub threads: usize,
    /// Most rows in a step.
    pub rows: usize,
    /// Cache blocks of [`BLOCK`] tokens.
    pub blocks: usize,
    /// Most positions of a sequence.
    pub context: usize,
    /// Precision of activations.
    pub activations: Activations,
    /// How ranks are summed and compared.
    pub ranks: Ranks,
}

/// Runs rank plans on the CPU: N ranks as threads, summands added in rank order.
#[derive(Debug)]
pub struct CpuExecutor {
    core: Core,
    team: Team,
    /// Why nothing more can be run.
    broken: Option<String>,
}

#[derive(Debug)]
struct Core {
    reader: OpenFile,
    trunk: Machine,
    draft: Option<Machine>,
    limits: Limits,
    activations: Activations,
    isa: Isa,
}

struct OpenFile(Arc<Reader>);

impl std::fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.files()).finish()
    }
}

impl CpuExecutor {
    /// An executor of a description's rank plans, and of those of its next-token layer if it is to draft. Weights stay
    /// in the mapped file.
    ///
    /// # Errors
    /// If a size is zero, the cache does not fit, threads cannot be had, or the plans are not of this file.
    pub fn new(
        file: Arc<Reader>,
        trunk: (&Description, Vec<RankPlan>),
        draft: Option<(&Description, Vec<RankPlan>)>,
        options: CpuOptions,
    ) -> Result<CpuExecutor> {
        let CpuOptions { threads, rows, blocks, context, activations, ranks } = options;
        let sizes =
            [(threads, "thread"), (rows, "row a step"), (blocks, "cache block"), (context, "position")];
        if let Some((_, what)) = sizes.iter().find(|(n, _)| *n == 0) {
            return Err(Error::Zero(what));
        }
        let half = activations != Activations::F32;
        let machine = |(d, plans): (&Description, _)| Machine::new(d, plans, &file, blocks, half, ranks);
        let (trunk, draft) = (machine(trunk)?, draft.map(machine).transpose()?);
        let team = Team::new(threads).map_err(|cause| Error::Threads { threads, cause })?;
        let (vocab, width, drafts, takes) = (trunk.vocab(), trunk.width(), draft.is_some(), trunk.takes());
        let limits = Limits { vocab, rows, blocks, context, width, drafts, takes };
        let isa = Isa::found()[0];
        Ok(CpuExecutor {
            core: Core { reader: OpenFile(file), trunk, draft, limits, activations, isa },
            team,
            broken: None,
        })
    }
}

impl Executor for CpuExecutor {
    fn limits(&self) -> Limits {
        self.core.limits
    }

    fn step_probed(
        &mut self,
        batch: &StepBatch,
        probe: Option<&mut dyn Probe>,
    ) -> std::result::Result<StepOutput, ExecError> {
        if let Some(why) = &self.broken {
            return Err(ExecError(why.clone()));
        }
        batch.check(&self.core.limits).map_err(ExecError)?;
        if !self.core.trunk.answers() && batch.wants.iter().any(|w| *w != Want::Nothing) {
            return Err(ExecError("a stage without logits is asked for some".into()));
        }
        let (core, team) = (&mut self.core, &self.team);
        // values may be torn after a panic, so nothing is run again
        let ended = catch_unwind(AssertUnwindSafe(|| core.step(team, batch, probe))).map_err(|panic| {
            let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
            text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".into())
        });
        ended.and_then(|step| step.map_err(|parted| parted.to_string())).map_err(|why| {
            let why = format!("a step on the CPU failed: {why}");
            self.broken = Some(why.clone());
            ExecError(why)
        })
    }
}

impl Core {
    fn step(
        &mut self,
        team: &Team,
        batch: &StepBatch,
        probe: Option<&mut dyn Probe>,
    ) -> std::result::Result<StepOutput, Parted> {
        let machine = match batch.hidden {
            Some(_) if self.limits.takes == 0 => self.draft.as_mut().expect("the batch is checked"),
            _ => &mut self.trunk,
        };
        let asked = |i: &usize| probe.is_some() || batch.wants[*i] != Want::Nothing;
        let wanted: Vec<usize> = (0..batch.rows()).filter(asked).collect();
        let step = Step {
            batch,
            reader: &self.reader.0,
            fast: self.activations != Activations::F32,
            round_all: self.activations == Activations::Q8Everywhere,
            isa: self.isa,
            team,
            wanted: &wanted,
        };
        machine.begin(batch.rows());
        match probe {
            None => machine.run(&step, 0..machine.ops()),
            Some(probe) => {
                for at in 0..machine.ops() {
                    machine.run(&step, at..at + 1);
                    machine.show(at, probe);
                }
            }
        }
        machine.end()?;
        let machine = &*machine;
        let mut rows = vec![RowOutput::Nothing; batch.rows()];
        team.runs(&mut rows, 1, |i, row| row[0] = answer(machine, &step, i));
        let hidden = machine.hidden().filter(|_| batch.want_hidden).map_or(vec![], |h| h.all().to_vec());
        Ok(StepOutput { rows, hidden })
    }
}

fn answer(machine: &Machine, step: &Step<'_>, row: usize) -> RowOutput {
    if let Some(at) = machine.spoiled(row) {
        return RowOutput::NonFinite { at: at.to_owned() };
    }
    let logits = |out: &mut [f32]| {
        machine.logits(step.wanted.binary_search(&row).expect("rows with a wish are computed"), out);
    };
    match step.batch.wants[row] {
        Want::Nothing => RowOutput::Nothing,
        Want::Candidates => scratch::floats(machine.vocab(), |row| {
            logits(row);
            answer::candidates(row)
        }),
        Want::Logits => {
            let mut all = vec![0.0; machine.vocab()];
            logits(&mut all);
            RowOutput::Logits(all)
        }
    }
}
