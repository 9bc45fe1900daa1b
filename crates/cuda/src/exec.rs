//! The executor: checks a step, has it run, and collects what its rows answer.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shardwright_gguf::Reader;
use shardwright_model::exec::*;
use shardwright_model::op::{Description, Kind, Lay};
use shardwright_model::plan::{RankPlan, audit};
use shardwright_model::watch::{self, Watch};

use crate::device::Device;
use crate::found::{Found, merged};
use crate::group::{Group, Whole};
use crate::lower::{Choices, FEW, Tier};
use crate::machine::Form;
use crate::ops::sum::packet;
use crate::profile::Profile;
use crate::step::StepLayout;
use crate::worker::{Answer, Part, Shown, Task, Worker};
use crate::{Error, Result, start};

/// Devices are asked no more often whether they are still there: the engine wants to know in every step.
const PULSE: Duration = Duration::from_millis(500);

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
    /// How long a device waits for another one's summands: while all start, and then.
    pub patience: [Duration; 2],
    /// Multiprocessors that launches are dealt for: those of the devices, where kernels for them can be made or are there.
    pub multiprocessors: usize,
    /// Of a rank by itself, what passes in place of each sum over ranks.
    pub delay: Duration,
    /// Of these tiles, sums over devices go in two legs ([`crate::ways`]).
    pub two_legs: Vec<u32>,
    /// Does the devices' library (NCCL) make these sums, instead of kernels of ours?
    pub nccl: bool,
}

impl CudaOptions {
    /// So narrow is a value that reading it again costs less than a launch that waits for it.
    pub const NARROW: usize = 2560;

    /// The same: a rank may still compile what another has found compiled, but steps take milliseconds.
    pub const PATIENCE: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(1)];

    /// Packets that fit into a peer's part of an inbox, if these plans are of one rank with a device of its own that sums by inboxes.
    pub(crate) fn inbox(&self, plans: &[RankPlan]) -> usize {
        let width = if self.nccl { 0 } else { self.summed(plans) };
        (self.rows * width).div_ceil(packet(self.ranks.wire))
    }

    /// The most elements of a row that is summed over devices; none if these plans are not of one rank with a device of its own.
    pub(crate) fn summed(&self, plans: &[RankPlan]) -> usize {
        let [RankPlan { ranks: 2.., ops, .. }] = plans else { return 0 };
        let sums = ops.iter().filter(|op| !self.alone && op.kind == Kind::Sum);
        sums.map(|op| op.outputs[0].width).max().unwrap_or(0)
    }

    /// Bytes of a cache element.
    pub(crate) fn element(&self) -> usize {
        if self.fast { 2 } else { 4 }
    }

    /// What each program is made for: the smallest tile first, of one tile the short tier first.
    pub(crate) fn choices(&self, plans: &[RankPlan]) -> Vec<Choices> {
        // activations that are not rounded have kernels for few rows only
        let most = if self.fast { u32::MAX } else { FEW };
        let mut tiles: Vec<u32> = self.tiles.iter().map(|tile| most.min(*tile)).collect();
        tiles.sort_unstable();
        tiles.dedup();
        let (layout, inbox) = (StepLayout::new(self.rows, self.context), self.inbox(plans));
        let CudaOptions { context, fast, fuse, narrow, ranks, multiprocessors, .. } = *self;
        let nccl = self.nccl && self.summed(plans) > 0;
        let delay = if self.alone { self.delay.as_nanos() as u64 } else { 0 };
        // what is hashed is a program of its own
        let ranks = Ranks { check: false, ..ranks };
        let choice = |tile| {
            let tiers = Tier::of(plans, context).iter();
            tiers.map(move |tier| Choices {
                layout,
                context,
                fast,
                tile,
                fuse,
                ranks,
                tier: *tier,
                narrow,
                inbox,
                nccl,
                multiprocessors,
                delay,
                legs: if self.two_legs.contains(&tile) { 2 } else { 1 },
            })
        };
        tiles.into_iter().flat_map(choice).collect()
    }
}

/// Runs rank plans on a device, N ranks one after the other, or on one device for each rank; summands are added in rank order.
pub struct CudaExecutor {
    devices: Devices,
    trunk: Model,
    draft: Option<Model>,
    limits: Limits,
    layout: StepLayout,
    last: Last,
    /// When the devices were last asked whether they are there.
    asked: Instant,
    /// Why nothing more can be run.
    broken: Option<String>,
}

/// The last step, the rows that wanted an answer, and what they got: its memory serves the next one.
#[derive(Default)]
struct Last {
    task: Arc<Task>,
    wanted: Vec<usize>,
    answers: Vec<Answer>,
}

/// Who does the work.
enum Devices {
    One(Box<Worker>),
    Many(Group),
}

/// What is known of a description.
struct Model {
    description: Arc<Description>,
    /// Full names of the values.
    paths: Vec<String>,
    watch: Watch,
}

impl Model {
    fn new(d: &Description, plans: &[RankPlan], options: &CudaOptions) -> Result<Model> {
        if !options.alone {
            audit(d, plans).map_err(Error::Plan)?;
        }
        let watched = if options.alone { &[] } else { plans };
        let watch = Watch::new(d, watched, options.ranks.check);
        let paths = d.values.iter().map(|v| v.path()).collect();
        Ok(Model { description: Arc::new(d.clone()), paths, watch })
    }

    /// The name of what op `op` reads.
    fn spoiled(&self, op: usize) -> Option<&str> {
        self.description.ops.get(op).map(|op| self.paths[op.inputs[0]].as_str())
    }

    /// The logits.
    fn last(&self) -> usize {
        self.description.ops.last().map_or(0, |op| op.outputs[0])
    }

    /// A value, joined or added from the ranks.
    fn whole(&self, value: usize, count: usize, parts: Vec<Part>) -> Vec<f32> {
        let value = &self.description.values[value];
        let width = value.width;
        let mut whole = vec![0f32; count * width];
        for (rank, (place, part)) in parts.into_iter().enumerate() {
            match value.lay {
                Lay::Full if rank > 0 => {}
                Lay::Full => whole = part,
                Lay::Partial => whole.iter_mut().zip(part).for_each(|(sum, x)| *sum += x),
                Lay::Split { .. } => {
                    let rows = whole.chunks_exact_mut(width).zip(part.chunks_exact(place.width.max(1)));
                    rows.for_each(|(whole, part)| whole[place.start..][..place.width].copy_from_slice(part));
                }
            }
        }
        whole
    }

    fn show(&self, Shown { at: [op, j], rows, parts }: Shown, probe: &mut dyn Probe) {
        let op = &self.description.ops[op];
        let (at, value) = (op.outputs[j], &self.description.values[op.outputs[j]]);
        let data = self.whole(at, rows, parts);
        let (path, layer, width) = (&self.paths[at], value.layer, value.width);
        probe.see(&Seen { path, layer, op: op.kind.name(), width, data: &data });
    }
}

impl fmt::Debug for CudaExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaExecutor").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl CudaExecutor {
    /// An executor of a description's rank plans, and of those of its next-token layer if it is to draft, on one device or on one for
    /// each rank, in their order. Weights are copied to the devices; `watch` is told of bytes as they go, of none when the
    /// first are about to.
    ///
    /// # Errors
    /// If a size is zero, a device has too little memory, a kernel does not compile, or the plans are not of this file; if there are
    /// several devices, but not one for each rank; if ranks do not find each other.
    pub fn new(
        mut devices: Vec<Box<dyn Device>>,
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
            (devices.len(), "device"),
        ];
        if let Some((_, what)) = sizes.iter().find(|(n, _)| *n == 0) {
            return Err(Error::Zero(what));
        }
        let models = [
            Some(Model::new(trunk.0, &trunk.1, options)?),
            draft.as_ref().map(|(d, plans)| Model::new(d, plans, options)).transpose()?,
        ];
        let limits = limits(trunk.0, &trunk.1, draft.is_some(), options);
        let kept = Tier::kept(&trunk.1).unwrap_or(usize::MAX);
        let watched = models.iter().flatten().any(|m| !m.watch.is_empty());
        let points = [Some(&trunk), draft.as_ref()].into_iter().flatten();
        let points = points.map(|(_, plans)| watch::points(&plans[0].ops).len()).max().unwrap_or(0);
        let devices = match (devices.pop(), devices.len()) {
            (Some(device), 0) => {
                let mut meet = |_| Err(Error::Plan("one rank of several has no peers".into()));
                let all = (trunk, draft);
                let worker = Worker::new(device, file, all, options, points, &mut meet, watch)?;
                Devices::One(Box::new(worker))
            }
            (last, _) => {
                devices.extend(last);
                if devices.len() != trunk.1.len() {
                    return Err(Error::Plan(format!("{} ranks on {} devices", trunk.1.len(), devices.len())));
                }
                let whole = |(d, plans): (&Description, Vec<RankPlan>)| Whole {
                    description: Arc::new(d.clone()),
                    plans: Arc::new(plans),
                };
                let all = (whole(trunk), draft.map(whole));
                Devices::Many(Group::new(devices, file, all, options, points, watch)?)
            }
        };
        let [Some(trunk), draft] = models else { return Err(Error::Zero("description")) };
        let layout = StepLayout::new(options.rows, options.context);
        let mut exec = CudaExecutor {
            devices,
            trunk,
            draft,
            limits,
            layout,
            last: Last::default(),
            asked: Instant::now(),
            broken: None,
        };
        for watched in [false, true].into_iter().take(1 + usize::from(watched)) {
            let mut run = |batch: &StepBatch, form| exec.run(batch, None, form, 0);
            start::check(&limits, &options.recorded, kept, watched, &mut run)?;
        }
        match &mut exec.devices {
            Devices::One(worker) => worker.started()?,
            Devices::Many(group) => group.started(options),
        }
        Ok(exec)
    }

    /// Runs a step so many times, and tells what each of its launches takes on the first device. The answer is that
    /// of the last time.
    ///
    /// # Errors
    /// As of any step; or if it was run not even once.
    pub fn profile(
        &mut self,
        batch: &StepBatch,
        replays: usize,
    ) -> std::result::Result<(StepOutput, Profile), ExecError> {
        self.ready(batch)?;
        let run = self.run(batch, None, Form { recorded: true, watched: false }, replays);
        let profiled = run.and_then(|out| {
            let profile = self.last.answers.first_mut().and_then(|answer| answer.profile.take());
            Ok((out, profile.ok_or(Error::Zero("replay"))?))
        });
        profiled.map_err(|e| self.failed(&e))
    }

    /// Can the step be run?
    fn ready(&self, batch: &StepBatch) -> std::result::Result<(), ExecError> {
        if let Some(why) = &self.broken {
            return Err(ExecError(why.clone()));
        }
        batch.check(&self.limits).map_err(ExecError)?;
        let (sequences, most) = (batch.tables.len(), self.limits.rows);
        if sequences > most {
            return Err(ExecError(format!("a step of {sequences} sequences, at most {most} can be run")));
        }
        Ok(())
    }

    /// Nothing can be run after this.
    fn failed(&mut self, e: &Error) -> ExecError {
        let why = format!("a step on the GPU failed: {e}");
        self.broken = Some(why.clone());
        ExecError(why)
    }

    /// Runs a step; `replays` times, if what its launches take is asked.
    fn run(
        &mut self,
        batch: &StepBatch,
        probe: Option<&mut dyn Probe>,
        form: Form,
        replays: usize,
    ) -> Result<StepOutput> {
        let task = self.task(batch, probe.is_some(), form, replays);
        let model = self.draft.as_ref().filter(|_| batch.hidden.is_some()).unwrap_or(&self.trunk);
        self.devices.run(&task, model, probe, &mut self.last.answers)?;
        self.last.task = task;
        answered(model, batch, &self.last.wanted, &mut self.last.answers, form.watched)
    }

    /// The step as devices take it, in the memory of the last one if nobody has that any more; `all`: every row is to be answered.
    fn task(&mut self, batch: &StepBatch, all: bool, form: Form, replays: usize) -> Arc<Task> {
        let asked = |i: &usize| all || batch.wants[*i] != Want::Nothing;
        self.last.wanted.clear();
        self.last.wanted.extend((0..batch.rows()).filter(asked));
        let mut shared = std::mem::take(&mut self.last.task);
        if Arc::get_mut(&mut shared).is_none() {
            shared = Arc::default();
        }
        if let Some(task) = Arc::get_mut(&mut shared) {
            self.layout.write(batch, &self.last.wanted, &mut task.words);
            task.hidden.clone_from(&batch.hidden);
            (task.rows, task.wanted) = (batch.rows(), self.last.wanted.len());
            task.last = batch.positions.iter().max().map_or(0, |last| *last as usize);
            task.logits = self.last.wanted.iter().any(|i| batch.wants[*i] == Want::Logits);
            (task.form, task.want_hidden, task.replays) = (form, batch.want_hidden, replays);
        }
        shared
    }
}

impl Devices {
    /// What each of them answers; `probe` sees every value of a step that is run op by op.
    fn run(
        &mut self,
        task: &Arc<Task>,
        model: &Model,
        probe: Option<&mut dyn Probe>,
        answers: &mut Vec<Answer>,
    ) -> Result<()> {
        let mut show = probe.map(|probe| {
            move |shown: Shown| {
                model.show(shown, probe);
                Ok(())
            }
        });
        let show = show.as_mut().map(|show| show as &mut dyn FnMut(Shown) -> Result<()>);
        match self {
            Devices::One(worker) => {
                answers.resize_with(1, Answer::default);
                worker.run(task, show, &mut answers[0])
            }
            Devices::Many(group) => {
                *answers = group.run(task, show)?;
                Ok(())
            }
        }
    }
}

/// What can be asked of an executor.
fn limits(d: &Description, plans: &[RankPlan], drafts: bool, options: &CudaOptions) -> Limits {
    Limits {
        vocab: d.ops.last().map_or(0, |op| d.values[op.outputs[0]].width),
        rows: options.rows,
        blocks: options.blocks,
        context: options.context,
        width: plans.first().and_then(|p| p.hidden).map_or(0, |p| p.width),
        drafts,
        takes: 0,
    }
}

/// The rows' answers, of what all devices have told.
fn answered(
    model: &Model,
    batch: &StepBatch,
    wanted: &[usize],
    answers: &mut [Answer],
    watched: bool,
) -> Result<StepOutput> {
    if watched {
        let hashes: Vec<Vec<u64>> = answers.iter().flat_map(|a| a.told.hashes()).collect();
        model.watch.compare(&hashes)?;
    }
    let mut rows = vec![RowOutput::Nothing; batch.rows()];
    for (i, row) in rows.iter_mut().enumerate() {
        // numbers of ops are positive, what is not spoiled has the largest
        let first = answers.iter().map(|a| a.told.spoiled()[i]).min();
        let op = first.and_then(|op| usize::try_from(op).ok());
        if let Some(at) = op.and_then(|op| model.spoiled(op)) {
            *row = RowOutput::NonFinite { at: at.to_owned() };
        }
    }
    let parts: Vec<Part> = answers.iter_mut().flat_map(|a| std::mem::take(&mut a.logits)).collect();
    let logits = if parts.is_empty() { vec![] } else { model.whole(model.last(), wanted.len(), parts) };
    let vocab = model.description.values[model.last()].width;
    let mut best: Vec<Found> = vec![];
    for (n, i) in wanted.iter().enumerate() {
        if rows[*i] != RowOutput::Nothing {
            continue;
        }
        best.clear();
        best.extend(answers.iter().flat_map(|a| &a.found).map(|rank| rank[n]));
        rows[*i] = match (batch.wants[*i], merged(&best)) {
            (Want::Nothing, _) => RowOutput::Nothing,
            (_, None) => RowOutput::NonFinite { at: model.paths[model.last()].clone() },
            (Want::Candidates, Some(best)) => best,
            (Want::Logits, Some(_)) => RowOutput::Logits(logits[n * vocab..][..vocab].to_vec()),
        };
    }
    let hidden = answers.first_mut().map_or(vec![], |a| std::mem::take(&mut a.hidden));
    Ok(StepOutput { rows, hidden })
}

impl Executor for CudaExecutor {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn check(&mut self) -> std::result::Result<(), ExecError> {
        if let Some(why) = &self.broken {
            return Err(ExecError(why.clone()));
        }
        if self.asked.elapsed() < PULSE {
            return Ok(());
        }
        self.asked = Instant::now();
        let there = match &mut self.devices {
            Devices::One(worker) => worker.check(),
            Devices::Many(group) => group.check(),
        };
        there.map_err(|e| {
            let why = format!("a GPU does not answer: {e}");
            self.broken = Some(why.clone());
            ExecError(why)
        })
    }

    fn step_probed(
        &mut self,
        batch: &StepBatch,
        probe: Option<&mut dyn Probe>,
    ) -> std::result::Result<StepOutput, ExecError> {
        self.ready(batch)?;
        let model = self.draft.as_mut().filter(|_| batch.hidden.is_some()).unwrap_or(&mut self.trunk);
        let form = Form { recorded: true, watched: probe.is_none() && model.watch.begin() };
        self.run(batch, probe, form, 0).map_err(|e| self.failed(&e))
    }
}
