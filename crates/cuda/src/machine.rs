//! A description on a device: its ranks' memory, and its programs, one for each tile.

use bytemuck::Zeroable;
use shardwright_model::exec::Ranks;
use shardwright_model::op::Description;
use shardwright_model::plan::{Place, RankPlan};

use crate::arena::{Arena, Bound, Shared};
use crate::device::Device;
use crate::exchange::Late;
use crate::exec::CudaOptions;
use crate::found::Found;
use crate::load::Loader;
use crate::lower::{Choices, Tier, lower};
use crate::profile::{Profile, Reads};
use crate::program::{Program, Scratch};
use crate::worker::{Part, Shown};
use crate::{Error, Result};

/// How a step is run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Form {
    /// From a recording, where there is one?
    pub(crate) recorded: bool,
    /// With hashes of what the ranks must have in common?
    pub(crate) watched: bool,
}

/// All ranks of one description.
#[derive(Debug)]
pub(crate) struct Machine {
    description: Description,
    plans: Vec<RankPlan>,
    arena: Arena,
    /// By the rows that a matrix kernel takes at a time, ascending, and how far steps look back.
    plain: Vec<(usize, Tier, Bound)>,
    /// The same, with hashes of what the ranks must have in common.
    watched: Vec<(usize, Tier, Bound)>,
    /// Positions up to which a step is of the short tier.
    kept: usize,
    /// How each op is run by itself, and the program for that once it is wanted.
    single: Choices,
    unfused: Option<Bound>,
}

impl Machine {
    pub(crate) fn new(
        device: &mut dyn Device,
        shared: &mut Shared,
        d: &Description,
        plans: Vec<RankPlan>,
        loader: &mut Loader<'_>,
        options: &CudaOptions,
    ) -> Result<Machine> {
        let choices = options.choices(&plans);
        let single = Choices { fuse: false, ..choices[choices.len() - 1] };
        let sizes = [options.rows, options.blocks, options.element()];
        let arena = Arena::new(device, &plans, loader, sizes)?;
        let mut made = |check: bool| {
            let choices = choices.iter().map(|c| Choices { ranks: Ranks { check, ..c.ranks }, ..*c });
            programs(device, shared, &plans, &arena, &choices.collect::<Vec<_>>(), &options.recorded)
        };
        let plain = made(false)?;
        let alone = options.alone || plans.iter().all(|p| p.ranks < 2);
        let watched = if alone { vec![] } else { made(true)? };
        let (description, kept) = (d.clone(), Tier::kept(&plans).unwrap_or(usize::MAX));
        Ok(Machine { description, plans, arena, plain, watched, kept, single, unfused: None })
    }

    /// Runs a step of so many rows, whose largest position is `last`.
    pub(crate) fn run(&mut self, device: &mut dyn Device, step: [usize; 2], form: Form) -> Result<()> {
        let programs = if form.watched { &mut self.watched } else { &mut self.plain };
        program(programs, self.kept, step)?.run(device, step[0] as u32, form.recorded)
    }

    /// Runs the same step so many times, and tells what each of its launches takes and reads.
    pub(crate) fn profile(
        &mut self,
        device: &mut dyn Device,
        [rows, last]: [usize; 2],
        replays: usize,
    ) -> Result<Profile> {
        let element = if self.single.fast { 2 } else { 4 };
        let (description, plans) = (&self.description, &self.plans);
        let reads = Reads { description, plans, rows: rows as u64, last: last as u64, element };
        program(&mut self.plain, self.kept, [rows, last])?.profile(device, rows as u32, replays, &reads)
    }

    /// Runs a step op by op and shows what each makes; logits have rows only for those wanted.
    pub(crate) fn show(
        &mut self,
        device: &mut dyn Device,
        shared: &mut Shared,
        [rows, wanted]: [usize; 2],
        show: &mut dyn FnMut(Shown) -> Result<()>,
    ) -> Result<()> {
        if self.unfused.is_none() {
            let program = lower(&self.plans, self.single)?;
            shared.make_room(device, &[&program])?;
            self.unfused = Some(Bound::new(device, program, shared, &self.arena)?);
        }
        for (at, op) in self.description.ops.iter().enumerate() {
            self.unfused.as_mut().map_or(Ok(()), |program| program.run_op(device, at, rows as u32))?;
            let rows = if at + 1 == self.description.ops.len() { wanted } else { rows };
            for j in 0..op.outputs.len() {
                show(Shown { at: [at, j], rows, parts: self.parts(device, rows, [at, j])? })?;
            }
        }
        Ok(())
    }

    /// What each rank has of output `j` of op `at`.
    fn parts(&self, device: &mut dyn Device, rows: usize, [at, j]: [usize; 2]) -> Result<Vec<Part>> {
        let mut part = |(rank, plan): (usize, &RankPlan)| {
            let place = plan.ops[at].outputs[j];
            Ok((place, self.part(device, rank, &place, rows)?))
        };
        self.plans.iter().enumerate().map(&mut part).collect()
    }

    fn part(&self, device: &mut dyn Device, rank: usize, place: &Place, count: usize) -> Result<Vec<f32>> {
        let mut part = vec![0f32; count * place.width];
        device.download(self.arena.value(rank, place), bytemuck::cast_slice_mut(&mut part))?;
        Ok(part)
    }

    /// The logits of the rows that were wanted.
    pub(crate) fn logits(&self, device: &mut dyn Device, wanted: usize) -> Result<Vec<Part>> {
        self.parts(device, wanted, [self.description.ops.len() - 1, 0])
    }

    /// The best logits of the rows that were wanted, by rank.
    pub(crate) fn found(
        &self,
        device: &mut dyn Device,
        shared: &Shared,
        wanted: usize,
        out: &mut Vec<Vec<Found>>,
    ) -> Result<()> {
        out.resize_with(self.plans.len(), Vec::new);
        out.iter_mut().enumerate().try_for_each(|(rank, found)| {
            found.resize(wanted, Found::zeroed());
            device.download(shared.scratch(Scratch::Found(rank)), bytemuck::cast_slice_mut(found))
        })
    }

    /// The stream after the final norm.
    pub(crate) fn hidden(&self, device: &mut dyn Device, rows: usize) -> Result<Vec<f32>> {
        self.plans[0].hidden.as_ref().map_or(Ok(vec![]), |place| self.part(device, 0, place, rows))
    }

    /// What to say of peers that have not come.
    pub(crate) fn missed(&self, late: &Late) -> Error {
        let op = self.description.ops.get(late.op);
        let path = op.map_or(String::new(), |op| self.description.values[op.outputs[0]].path());
        Error::Late { op: late.op, rank: self.plans[0].rank, path, missing: late.ranks.clone() }
    }
}

/// A program for each of the choices, ready to run; steps of `recorded` rows are recorded.
fn programs(
    device: &mut dyn Device,
    shared: &mut Shared,
    plans: &[RankPlan],
    arena: &Arena,
    choices: &[Choices],
    recorded: &[u32],
) -> Result<Vec<(usize, Tier, Bound)>> {
    let made = choices.iter().map(|c| lower(plans, *c)).collect::<Result<Vec<Program>>>()?;
    shared.make_room(device, &made.iter().collect::<Vec<_>>())?;
    let mut programs = vec![];
    for (c, program) in choices.iter().zip(made) {
        programs.push((c.tile as usize, c.tier, Bound::new(device, program, shared, arena)?));
    }
    for rows in recorded {
        for tier in [Tier::Short, Tier::Long] {
            if let Some(at) = fitting(&programs, *rows as usize, tier) {
                programs[at].2.record(device, *rows)?;
            }
        }
    }
    Ok(programs)
}

/// The program that runs a step of so many rows, whose largest position is `last`; up to `kept` it is of the short tier.
fn program(
    programs: &mut [(usize, Tier, Bound)],
    kept: usize,
    [rows, last]: [usize; 2],
) -> Result<&mut Bound> {
    let tier = if last < kept { Tier::Short } else { Tier::Long };
    let at = fitting(programs, rows, tier).ok_or(Error::Zero("tile"))?;
    Ok(&mut programs[at].2)
}

/// Which program runs a step of so many rows.
pub(crate) fn fitting<P>(programs: &[(usize, Tier, P)], rows: usize, tier: Tier) -> Option<usize> {
    let of_tier = || programs.iter().enumerate().filter(|(_, (_, of, _))| *of == tier);
    let found = of_tier().find(|(_, (tile, ..))| rows <= *tile).or(of_tier().next_back());
    found.map(|(at, _)| at)
}
