//! What one device does of a step: all ranks of a model, or the one that has it for itself.

use std::sync::Arc;
use std::time::Duration;

use shardwright_gguf::Reader;
use shardwright_model::op::Description;
use shardwright_model::plan::{Place, RankPlan};

use crate::arena::Shared;
use crate::device::Device;
use crate::exchange::Exchange;
use crate::exec::CudaOptions;
use crate::found::Found;
use crate::load::Loader;
use crate::machine::{Form, Machine};
use crate::profile::Profile;
use crate::report::Told;
use crate::step::StepLayout;
use crate::{Error, Result};

/// A description and some of its rank plans.
pub(crate) type Cut<'a> = (&'a Description, Vec<RankPlan>);

/// Tells everybody where this rank's inbox lies, and where theirs lie.
pub(crate) type Meet<'a> = &'a mut dyn FnMut(u64) -> Result<Vec<u64>>;

/// A device with what it holds.
pub(crate) struct Worker {
    device: Box<dyn Device>,
    shared: Shared,
    /// How long peers have: at the start and when kernels may have to be compiled, and in a step.
    patience: [Duration; 2],
    trunk: Machine,
    draft: Option<Machine>,
}

/// A step, as every device is given it. Its memory serves the next one.
#[derive(Default)]
pub(crate) struct Task {
    /// Its numbers as kernels see them.
    pub(crate) words: Vec<u32>,
    pub(crate) hidden: Option<Vec<f32>>,
    pub(crate) rows: usize,
    /// Rows that want an answer.
    pub(crate) wanted: usize,
    /// The largest position.
    pub(crate) last: usize,
    pub(crate) form: Form,
    pub(crate) logits: bool,
    pub(crate) want_hidden: bool,
    /// How often it is run to see what its launches take; 0 if that is not asked.
    pub(crate) replays: usize,
}

/// A rank's part of a value.
pub(crate) type Part = (Place, Vec<f32>);

/// What came of a step here. Its memory serves the next one.
#[derive(Default)]
pub(crate) struct Answer {
    pub(crate) told: Told,
    /// The best logits of the wanted rows, by rank.
    pub(crate) found: Vec<Vec<Found>>,
    pub(crate) logits: Vec<Part>,
    pub(crate) hidden: Vec<f32>,
    pub(crate) profile: Option<Profile>,
}

/// What an op has made: the op, which of its outputs, its rows, and the ranks' parts.
pub(crate) struct Shown {
    pub(crate) at: [usize; 2],
    pub(crate) rows: usize,
    pub(crate) parts: Vec<Part>,
}

impl Worker {
    /// Loads the plans and records steps. `points`: most values that are watched in a step.
    pub(crate) fn new(
        mut device: Box<dyn Device>,
        file: &Arc<Reader>,
        (trunk, draft): (Cut<'_>, Option<Cut<'_>>),
        options: &CudaOptions,
        points: usize,
        meet: Meet<'_>,
        watch: &mut dyn FnMut(u64),
    ) -> Result<Worker> {
        let device_ref = &mut *device;
        let layout = StepLayout::new(options.rows, options.context);
        let first = trunk.1.first().ok_or(Error::Zero("rank"))?;
        let width = first.hidden.map_or(0, |p| p.width);
        let mut shared = Shared::new(device_ref, layout, width, [trunk.1.len(), points])?;
        let inbox = options.inbox(&trunk.1);
        if draft.as_ref().is_some_and(|d| options.inbox(&d.1) != inbox) {
            return Err(Error::Plan("the next-token layer adds up other widths than the trunk".into()));
        }
        if inbox > 0 {
            let exchange = Exchange::new(device_ref, [first.rank, first.ranks], inbox)?;
            let inboxes = meet(exchange.inbox(0))?;
            exchange.meet(device_ref, &inboxes)?;
            exchange.patience(device_ref, options.patience[0])?;
            shared.exchange = Some(exchange);
        }
        // devices that load at the same time share the host's cores, whatever makes their sums
        let devices = if options.summed(&trunk.1) > 0 { first.ranks } else { 1 };
        let mut loader = Loader::new(file, options.dummy, devices, watch);
        let mut machine =
            |(d, plans): Cut<'_>| Machine::new(device_ref, &mut shared, d, plans, &mut loader, options);
        let (trunk, draft) = (machine(trunk)?, draft.map(machine).transpose()?);
        loader.bring(&mut *device)?;
        Ok(Worker { device, shared, patience: options.patience, trunk, draft })
    }

    /// Is the device still there?
    pub(crate) fn check(&mut self) -> Result<()> {
        self.device.check()
    }

    /// Gives peers less time than at the start.
    pub(crate) fn started(&mut self) -> Result<()> {
        self.wait(self.patience[1])
    }

    fn wait(&mut self, patience: Duration) -> Result<()> {
        match &self.shared.exchange {
            Some(exchange) => exchange.patience(&mut *self.device, patience),
            None => Ok(()),
        }
    }

    /// Runs a step; `show` gets every value of one that is run op by op.
    pub(crate) fn run(
        &mut self,
        task: &Task,
        show: Option<&mut dyn FnMut(Shown) -> Result<()>>,
        answer: &mut Answer,
    ) -> Result<()> {
        if show.is_none() && task.replays == 0 {
            return self.step(task, None, answer);
        }
        self.wait(self.patience[0])?;
        self.step(task, show, answer)?;
        self.wait(self.patience[1])
    }

    fn step(
        &mut self,
        task: &Task,
        show: Option<&mut dyn FnMut(Shown) -> Result<()>>,
        answer: &mut Answer,
    ) -> Result<()> {
        let Task { rows, wanted, last, form, .. } = *task;
        let device = &mut *self.device;
        device.upload(self.shared.step, bytemuck::cast_slice(&task.words))?;
        self.shared.report.clear(device, rows, form.watched, &mut answer.told)?;
        if let Some(hidden) = &task.hidden {
            device.upload(self.shared.hidden, bytemuck::cast_slice(hidden))?;
        }
        let machine = match (&task.hidden, &mut self.draft) {
            (Some(_), Some(draft)) => draft,
            _ => &mut self.trunk,
        };
        let mut profile = None;
        match show {
            None if task.replays > 0 => {
                profile = Some(machine.profile(device, [rows, last], task.replays)?)
            }
            None => machine.run(device, [rows, last], form)?,
            Some(show) => machine.show(device, &mut self.shared, [rows, wanted], show)?,
        }
        self.shared.report.read(device, form.watched, &mut answer.told)?;
        if let Some(late) = self.shared.exchange.and_then(|exchange| exchange.late(device)) {
            return Err(machine.missed(&late));
        }
        machine.found(device, &self.shared, wanted, &mut answer.found)?;
        answer.logits = if task.logits { machine.logits(device, wanted)? } else { vec![] };
        answer.hidden = if task.want_hidden { machine.hidden(device, rows)? } else { vec![] };
        answer.profile = profile;
        Ok(())
    }
}
