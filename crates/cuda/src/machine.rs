//! A description on a device: its ranks' memory, and its programs, one for each tile.

use bytemuck::Zeroable;
use shardwright_model::exec::{Probe, Ranks, Seen};
use shardwright_model::op::{Description, Lay};
use shardwright_model::plan::{Place, RankPlan};
use shardwright_model::watch::Watch;

use crate::arena::{Arena, Bound, Shared};
use crate::device::Device;
use crate::exec::CudaOptions;
use crate::found::Found;
use crate::load::Loader;
use crate::lower::{Choices, Tier, lower};
use crate::program::{Program, Scratch};
use crate::{Error, Result};

/// How a step is run.
#[derive(Clone, Copy, Debug)]
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
    /// Full names of the values.
    paths: Vec<String>,
    plans: Vec<RankPlan>,
    arena: Arena,
    /// By the rows that a matrix kernel takes at a time, ascending, and how far steps look back.
    plain: Vec<(usize, Tier, Bound)>,
    /// The same, with hashes of what the ranks must have in common.
    watched: Vec<(usize, Tier, Bound)>,
    pub(crate) watch: Watch,
    /// Positions up to which a step is of the short tier.
    pub(crate) kept: usize,
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
        let watch = Watch::new(d, &plans, options.ranks.check);
        let choices = options.choices(&plans);
        let single = Choices { fuse: false, ..choices[choices.len() - 1] };
        let sizes = [options.rows, options.blocks, options.element()];
        let arena = Arena::new(device, &plans, loader, sizes)?;
        let mut made = |check: bool| {
            let choices = choices.iter().map(|c| Choices { ranks: Ranks { check, ..c.ranks }, ..*c });
            programs(device, shared, &plans, &arena, &choices.collect::<Vec<_>>(), &options.recorded)
        };
        let plain = made(false)?;
        let watched = if watch.is_empty() { vec![] } else { made(true)? };
        let paths = d.values.iter().map(|v| v.path()).collect();
        let description = d.clone();
        let kept = Tier::kept(&plans).unwrap_or(usize::MAX);
        Ok(Machine { description, paths, plans, arena, plain, watched, watch, kept, single, unfused: None })
    }

    /// Runs a step of so many rows, whose largest position is `last`.
    pub(crate) fn run(&self, device: &mut dyn Device, [rows, last]: [usize; 2], form: Form) -> Result<()> {
        let programs = if form.watched { &self.watched } else { &self.plain };
        let tier = if last < self.kept { Tier::Short } else { Tier::Long };
        let at = fitting(programs, rows, tier).ok_or(Error::Zero("tile"))?;
        programs[at].2.run(device, rows as u32, form.recorded)
    }

    /// Runs a step op by op and shows what each makes; logits have rows only for those wanted.
    pub(crate) fn show(
        &mut self,
        device: &mut dyn Device,
        shared: &mut Shared,
        [rows, wanted]: [usize; 2],
        probe: &mut dyn Probe,
    ) -> Result<()> {
        if self.unfused.is_none() {
            let program = lower(&self.plans, self.single)?;
            shared.make_room(device, &[&program])?;
            self.unfused = Some(Bound::new(device, program, shared, &self.arena)?);
        }
        let Some(program) = &self.unfused else { return Ok(()) };
        for (at, op) in self.description.ops.iter().enumerate() {
            program.run_op(device, at, rows as u32)?;
            let count = if at + 1 == self.description.ops.len() { wanted } else { rows };
            for (j, v) in op.outputs.iter().enumerate() {
                let value = &self.description.values[*v];
                let data = self.whole(device, count, [value.width, at, j], value.lay)?;
                probe.see(&Seen {
                    path: &self.paths[*v],
                    layer: value.layer,
                    op: op.kind.name(),
                    width: value.width,
                    data: &data,
                });
            }
        }
        Ok(())
    }

    /// Output `j` of op `at`, of `width` elements a row, joined or added from the ranks.
    fn whole(
        &self,
        device: &mut dyn Device,
        count: usize,
        [width, at, j]: [usize; 3],
        lay: Lay,
    ) -> Result<Vec<f32>> {
        let mut whole = vec![0f32; count * width];
        for (rank, plan) in self.plans.iter().enumerate() {
            let place = &plan.ops[at].outputs[j];
            let part = self.part(device, rank, place, count)?;
            match lay {
                Lay::Full if rank > 0 => {}
                Lay::Full => whole = part,
                Lay::Partial => whole.iter_mut().zip(part).for_each(|(sum, x)| *sum += x),
                Lay::Split { .. } => {
                    let rows = whole.chunks_exact_mut(width).zip(part.chunks_exact(place.width.max(1)));
                    rows.for_each(|(whole, part)| whole[place.start..][..place.width].copy_from_slice(part));
                }
            }
        }
        Ok(whole)
    }

    fn part(&self, device: &mut dyn Device, rank: usize, place: &Place, count: usize) -> Result<Vec<f32>> {
        let mut part = vec![0f32; count * place.width];
        device.download(self.arena.value(rank, place), bytemuck::cast_slice_mut(&mut part))?;
        Ok(part)
    }

    /// The logits of the rows that were wanted, row by row.
    pub(crate) fn logits(&self, device: &mut dyn Device, wanted: usize) -> Result<Vec<f32>> {
        let at = self.description.ops.len() - 1;
        let value = &self.description.values[self.description.ops[at].outputs[0]];
        self.whole(device, wanted, [value.width, at, 0], value.lay)
    }

    /// The best logits of the rows that were wanted, by rank.
    pub(crate) fn found(
        &self,
        device: &mut dyn Device,
        shared: &Shared,
        wanted: usize,
    ) -> Result<Vec<Vec<Found>>> {
        let ranks = 0..self.plans.len();
        let found = ranks.map(|rank| {
            let mut found = vec![Found::zeroed(); wanted];
            device.download(shared.scratch(Scratch::Found(rank)), bytemuck::cast_slice_mut(&mut found))?;
            Ok(found)
        });
        found.collect()
    }

    /// Vocabulary rows.
    pub(crate) fn vocab(&self) -> usize {
        self.description.ops.last().map_or(0, |op| self.description.values[op.outputs[0]].width)
    }

    /// The stream after the final norm.
    pub(crate) fn hidden(&self, device: &mut dyn Device, rows: usize) -> Result<Vec<f32>> {
        self.plans[0].hidden.as_ref().map_or(Ok(vec![]), |place| self.part(device, 0, place, rows))
    }

    /// The name of what op `op` reads.
    pub(crate) fn spoiled(&self, op: usize) -> Option<&str> {
        self.description.ops.get(op).map(|op| self.paths[op.inputs[0]].as_str())
    }

    /// The name of the logits.
    pub(crate) fn last(&self) -> &str {
        self.description.ops.last().map_or("", |op| self.paths[op.outputs[0]].as_str())
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

/// Which program runs a step of so many rows.
fn fitting(programs: &[(usize, Tier, Bound)], rows: usize, tier: Tier) -> Option<usize> {
    let of_tier = || programs.iter().enumerate().filter(|(_, (_, of, _))| *of == tier);
    let found = of_tier().find(|(_, (tile, ..))| rows <= *tile).or(of_tier().next_back());
    found.map(|(at, _)| at)
}
