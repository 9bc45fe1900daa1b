//! The executor: checks a step, has it run, and collects what its rows answer.

use std::fmt;
use std::sync::Arc;

use shardwright_gguf::Reader;
use shardwright_model::exec::*;
use shardwright_model::op::Description;
use shardwright_model::plan::{RankPlan, audit};
use shardwright_model::watch;

use crate::arena::Shared;
use crate::device::Device;
use crate::found::{Found, merged};
use crate::load::Loader;
use crate::lower::{Choices, Tier};
use crate::machine::{Form, Machine};
use crate::step::StepLayout;
use crate::{Error, Result, start};

/// Sizes and choices of an executor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaOptions {
    /// Most rows in a step.
    pub rows: usize,
    /// Cache blocks of [`BLOCK`] tokens.
    pub blocks: usize,
    /// Most positions of a sequence.
    pub context: usize,
    /// Are activations rounded to 8 bits in front of quantized weights, and is the cache f16?
    pub fast: bool,
    /// May neighbouring ops become one kernel?
    pub fuse: bool,
    /// Rows that matrix kernels take at a time: a step takes the smallest that holds all its rows, or the largest.
    pub tiles: Vec<u32>,
    /// Are the weights made up, because the file has none?
    pub dummy: bool,
    /// Numbers of rows for which a step is recorded; one of fewer rows replays the next.
    pub recorded: Vec<u32>,
    /// How ranks are summed and compared.
    pub ranks: Ranks,
    /// Values of no more elements are rounded by each block that reads them, wider ones by those that write them.
    pub narrow: usize,
    /// Is this one rank of several by itself, to be measured? Nobody adds to its sums, so what it answers means nothing.
    pub alone: bool,
}

impl CudaOptions {
    /// So narrow is a value that reading it again costs less than a launch that waits for it.
    pub const NARROW: usize = 2560;

    /// Bytes of a cache element.
    pub(crate) fn element(&self) -> usize {
        if self.fast { 2 } else { 4 }
    }

    /// What each program is made for: the smallest tile first, of one tile the short tier first.
    pub(crate) fn choices(&self, plans: &[RankPlan]) -> Vec<Choices> {
        let mut tiles = self.tiles.clone();
        tiles.sort_unstable();
        let layout = StepLayout::new(self.rows, self.context);
        let CudaOptions { context, fast, fuse, narrow, ranks, .. } = *self;
        // what is hashed is a program of its own
        let ranks = Ranks { check: false, ..ranks };
        let choice = |tile| {
            let tiers = Tier::of(plans, context).iter();
            tiers.map(move |tier| Choices { layout, context, fast, tile, fuse, ranks, tier: *tier, narrow })
        };
        tiles.into_iter().flat_map(choice).collect()
    }
}

/// Runs rank plans on a device: N ranks one after the other, summands added in rank order.
pub struct CudaExecutor {
    device: Box<dyn Device>,
    shared: Shared,
    trunk: Machine,
    draft: Option<Machine>,
    limits: Limits,
    words: Vec<u32>,
    /// Why nothing more can be run.
    broken: Option<String>,
}

impl fmt::Debug for CudaExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaExecutor").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl CudaExecutor {
    /// An executor of a description's rank plans, and of those of its next-token layer if it is to draft. Weights are
    /// copied to the device; `watch` is told of bytes as they go.
    ///
    /// # Errors
    /// If a size is zero, the device has too little memory, a kernel does not compile, or the plans are not of this file.
    pub fn new(
        mut device: Box<dyn Device>,
        file: &Arc<Reader>,
        trunk: (&Description, Vec<RankPlan>),
        draft: Option<(&Description, Vec<RankPlan>)>,
        options: &CudaOptions,
        watch: &mut dyn FnMut(u64),
    ) -> Result<CudaExecutor> {
        let sizes = [
            (options.rows, "row a step"),
            (options.blocks, "cache block"),
            (options.context, "position"),
            (options.tiles.len(), "tile"),
        ];
        if let Some((_, what)) = sizes.iter().find(|(n, _)| *n == 0) {
            return Err(Error::Zero(what));
        }
        let layout = StepLayout::new(options.rows, options.context);
        let width = trunk.1.first().and_then(|p| p.hidden).map_or(0, |p| p.width);
        let mut points = 0;
        for (d, plans) in [Some(&trunk), draft.as_ref()].into_iter().flatten() {
            if !options.alone {
                audit(d, plans).map_err(Error::Plan)?;
            }
            points = points.max(watch::points(&plans[0].ops).len());
        }
        let mut shared = Shared::new(&mut *device, layout, width, [trunk.1.len(), points])?;
        let mut loader = Loader::new(file, options.dummy, watch);
        let mut machine = |(d, plans): (&Description, _)| {
            Machine::new(&mut *device, &mut shared, d, plans, &mut loader, options)
        };
        let (trunk, draft) = (machine(trunk)?, draft.map(machine).transpose()?);
        loader.check(&mut *device)?;
        let limits = Limits {
            vocab: trunk.vocab(),
            rows: options.rows,
            blocks: options.blocks,
            context: options.context,
            width,
            drafts: draft.is_some(),
            takes: 0,
        };
        let mut exec = CudaExecutor { device, shared, trunk, draft, limits, words: vec![], broken: None };
        let kept = exec.trunk.kept;
        for watched in [false, true] {
            if !watched || !exec.trunk.watch.is_empty() {
                let mut run = |batch: &StepBatch, form| exec.run(batch, None, form);
                start::check(&limits, &options.recorded, kept, watched, &mut run)?;
            }
        }
        Ok(exec)
    }

    fn run(&mut self, batch: &StepBatch, probe: Option<&mut dyn Probe>, form: Form) -> Result<StepOutput> {
        let asked = |i: &usize| probe.is_some() || batch.wants[*i] != Want::Nothing;
        let wanted: Vec<usize> = (0..batch.rows()).filter(asked).collect();
        self.shared.layout.write(batch, &wanted, &mut self.words);
        let device = &mut *self.device;
        device.upload(self.shared.step, bytemuck::cast_slice(&self.words))?;
        self.shared.report.clear(device, batch.rows(), form.watched)?;
        if let Some(hidden) = &batch.hidden {
            device.upload(self.shared.hidden, bytemuck::cast_slice(hidden))?;
        }
        let machine = match batch.hidden {
            Some(_) => self.draft.as_mut().expect("the batch is checked"),
            None => &mut self.trunk,
        };
        match probe {
            None => {
                let last = batch.positions.iter().max().map_or(0, |last| *last as usize);
                machine.run(device, [batch.rows(), last], form)?;
            }
            Some(probe) => machine.show(device, &mut self.shared, [batch.rows(), wanted.len()], probe)?,
        }
        let told = self.shared.report.read(device, batch.rows(), form.watched)?;
        if form.watched {
            machine.watch.compare(&told.hashes)?;
        }
        let mut rows = vec![RowOutput::Nothing; batch.rows()];
        for (row, first) in rows.iter_mut().zip(&told.spoiled) {
            if let Some(at) = usize::try_from(*first).ok().and_then(|op| machine.spoiled(op)) {
                *row = RowOutput::NonFinite { at: at.to_owned() };
            }
        }
        let wants = |want| wanted.iter().any(|i| batch.wants[*i] == want);
        let found = machine.found(device, &self.shared, wanted.len())?;
        let logits = if wants(Want::Logits) { machine.logits(device, wanted.len())? } else { vec![] };
        for (n, i) in wanted.iter().enumerate() {
            if rows[*i] != RowOutput::Nothing {
                continue;
            }
            let best: Vec<Found> = found.iter().map(|rank| rank[n]).collect();
            let all = logits.get(n * self.limits.vocab..).map(|l| &l[..self.limits.vocab.min(l.len())]);
            rows[*i] = match (batch.wants[*i], merged(&best)) {
                (Want::Nothing, _) => RowOutput::Nothing,
                (_, None) => RowOutput::NonFinite { at: machine.last().to_owned() },
                (Want::Candidates, Some(best)) => best,
                (Want::Logits, Some(_)) => RowOutput::Logits(all.unwrap_or_default().to_vec()),
            };
        }
        let hidden = if batch.want_hidden { machine.hidden(device, batch.rows())? } else { vec![] };
        Ok(StepOutput { rows, hidden })
    }
}

impl Executor for CudaExecutor {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn step_probed(
        &mut self,
        batch: &StepBatch,
        probe: Option<&mut dyn Probe>,
    ) -> std::result::Result<StepOutput, ExecError> {
        if let Some(why) = &self.broken {
            return Err(ExecError(why.clone()));
        }
        batch.check(&self.limits).map_err(ExecError)?;
        let (sequences, most) = (batch.tables.len(), self.limits.rows);
        if sequences > most {
            return Err(ExecError(format!("a step of {sequences} sequences, at most {most} can be run")));
        }
        let machine = self.draft.as_mut().filter(|_| batch.hidden.is_some()).unwrap_or(&mut self.trunk);
        let form = Form { recorded: true, watched: probe.is_none() && machine.watch.begin() };
        self.run(batch, probe, form).map_err(|e| {
            let why = format!("a step on the GPU failed: {e}");
            self.broken = Some(why.clone());
            ExecError(why)
        })
    }
}
