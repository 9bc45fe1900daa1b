//! Where everything of a description lies on a device, and a program with its places filled in.

use std::collections::BTreeMap;

use shardwright_model::exec::BLOCK;
use shardwright_model::plan::{Place, RankPlan};

use crate::device::{Device, Launch, Recording};
use crate::exchange::Exchange;
use crate::load::Loader;
use crate::profile::{self, Profile, Reads, Timed};
use crate::program::{Call, Program, Scratch, Slot};
use crate::report::Report;
use crate::step::StepLayout;
use crate::{Error, Result};

/// What all descriptions of an executor share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) step: u64,
    pub(crate) report: Report,
    pub(crate) hidden: u64,
    /// Where sums over devices are made, if they are.
    pub(crate) exchange: Option<Exchange>,
    scratch: BTreeMap<Scratch, (usize, u64)>,
}

impl Shared {
    /// `width`: elements of a hidden row; `points`: most values that are watched in a step of `ranks` ranks.
    pub(crate) fn new(
        device: &mut dyn Device,
        layout: StepLayout,
        width: usize,
        [ranks, points]: [usize; 2],
    ) -> Result<Shared> {
        Ok(Shared {
            step: device.alloc(layout.words() * 4)?,
            report: Report::new(device, [ranks, points, layout.rows])?,
            hidden: device.alloc(layout.rows * width * 4)?,
            exchange: None,
            scratch: BTreeMap::new(),
        })
    }

    /// Room for the scratch memory of some programs.
    pub(crate) fn make_room(&mut self, device: &mut dyn Device, programs: &[&Program]) -> Result<()> {
        let mut most = BTreeMap::new();
        for (what, bytes) in programs.iter().flat_map(|p| &p.scratch) {
            let size: &mut usize = most.entry(*what).or_default();
            *size = *bytes.max(size);
        }
        for (what, bytes) in most {
            let (size, address) = self.scratch.entry(what).or_default();
            if *size < bytes {
                (*size, *address) = (bytes, device.alloc(bytes)?);
            }
        }
        Ok(())
    }

    /// Where scratch memory lies.
    pub(crate) fn scratch(&self, what: Scratch) -> u64 {
        self.scratch[&what].1
    }
}

/// The memory of a description's ranks.
#[derive(Debug)]
pub(crate) struct Arena {
    values: Vec<Vec<u64>>,
    weights: Vec<Vec<Vec<u64>>>,
    caches: Vec<Vec<u64>>,
}

impl Arena {
    /// For steps of at most `rows` rows and `blocks` cache blocks of elements of `element` bytes; weights are loaded.
    pub(crate) fn new(
        device: &mut dyn Device,
        plans: &[RankPlan],
        loader: &mut Loader<'_>,
        [rows, blocks, element]: [usize; 3],
    ) -> Result<Arena> {
        let mut arena = Arena { values: vec![], weights: vec![], caches: vec![] };
        for plan in plans {
            let values =
                plan.slots.iter().map(|width| device.alloc(rows * width * 4)).collect::<Result<_>>()?;
            let lines = blocks * BLOCK;
            let caches = plan
                .caches
                .iter()
                .map(|c| loader.cache(device, lines * c.width, element))
                .collect::<Result<_>>()?;
            let ops = plan.ops.iter().enumerate();
            let weights =
                ops.map(|(at, op)| loader.weights(device, [plan.rank, at], op)).collect::<Result<_>>()?;
            arena.values.push(values);
            arena.caches.push(caches);
            arena.weights.push(weights);
        }
        Ok(arena)
    }

    /// Where a rank's value lies.
    pub(crate) fn value(&self, rank: usize, place: &Place) -> u64 {
        self.values[rank][place.slot]
    }
}

/// A program whose arguments have addresses.
#[derive(Debug)]
pub(crate) struct Bound {
    /// In order, each with the stem of its source and the axes of its grid, of which a step's rows decide.
    calls: Vec<(&'static str, Call, Launch)>,
    pub(crate) ends: Vec<usize>,
    /// By the rows of the step that was recorded.
    recordings: BTreeMap<u32, Recording>,
}

impl Bound {
    pub(crate) fn new(
        device: &mut dyn Device,
        program: Program,
        shared: &Shared,
        arena: &Arena,
    ) -> Result<Bound> {
        let kernels = device.load(&program.units)?;
        let mut binder = Binder { device, shared, arena, constants: vec![] };
        for bytes in &program.constants {
            let address = binder.device.alloc(bytes.len())?;
            binder.device.upload(address, bytes)?;
            binder.constants.push(address);
        }
        let calls = program.calls.into_iter().map(|call| {
            let args = call.args.iter().map(|slot| binder.address(slot)).collect::<Result<_>>()?;
            let (stem, kernel) = (program.units[call.unit].stem, kernels[call.unit]);
            let (block, shared) = (call.block, call.shared);
            Ok((stem, call, Launch { kernel, grid: [0; 3], block, shared, args }))
        });
        Ok(Bound { calls: calls.collect::<Result<_>>()?, ends: program.ends, recordings: BTreeMap::new() })
    }

    fn launch(&mut self, at: usize, rows: u32) -> &Launch {
        let (_, call, launch) = &mut self.calls[at];
        launch.grid = call.blocks(rows);
        launch
    }

    /// Records the whole step of `rows` rows.
    pub(crate) fn record(&mut self, device: &mut dyn Device, rows: u32) -> Result<()> {
        let recording = device.record(&self.launches(rows))?;
        self.recordings.insert(rows, recording);
        Ok(())
    }

    /// The whole step of `rows` rows.
    fn launches(&mut self, rows: u32) -> Vec<Launch> {
        (0..self.calls.len()).map(|at| self.launch(at, rows).clone()).collect()
    }

    /// Replays the whole step so many times, and tells what each launch takes and reads.
    pub(crate) fn profile(
        &mut self,
        device: &mut dyn Device,
        rows: u32,
        replays: usize,
        reads: &Reads<'_>,
    ) -> Result<Profile> {
        let (times, span) = profile::timed(device, &self.launches(rows), replays)?;
        let timed = self.calls.iter().zip(times.groups).map(|((stem, call, ..), seconds)| {
            let (name, bytes) = reads.of(stem, call);
            Timed { name, bytes, seconds }
        });
        Ok(Profile { launches: timed.collect(), span, stamp: times.stamp })
    }

    /// Runs the whole step. A recording of more rows does too: a kernel's blocks look how many rows there are.
    pub(crate) fn run(&mut self, device: &mut dyn Device, rows: u32, recorded: bool) -> Result<()> {
        match self.recordings.range(rows..).next().filter(|_| recorded) {
            Some((_, recording)) => device.replay(*recording),
            None => (0..self.calls.len()).try_for_each(|at| device.launch(self.launch(at, rows))),
        }
    }

    /// Runs one op.
    pub(crate) fn run_op(&mut self, device: &mut dyn Device, op: usize, rows: u32) -> Result<()> {
        let first = op.checked_sub(1).map_or(0, |before| self.ends[before]);
        (first..self.ends[op]).try_for_each(|at| device.launch(self.launch(at, rows)))
    }
}

struct Binder<'a> {
    device: &'a mut dyn Device,
    shared: &'a Shared,
    arena: &'a Arena,
    constants: Vec<u64>,
}

impl Binder<'_> {
    fn address(&mut self, slot: &Slot) -> Result<u64> {
        let exchanged = |of: fn(&Exchange, usize) -> u64, slot: usize| {
            let exchange = self.shared.exchange.as_ref();
            exchange.map(|e| of(e, slot)).ok_or_else(|| Error::Plan("no peers were met".into()))
        };
        Ok(match slot {
            Slot::None => 0,
            Slot::Step => self.shared.step,
            Slot::Spoiled => self.shared.report.spoiled(),
            Slot::Hidden => self.shared.hidden,
            Slot::Value { rank, slot } => self.arena.values[*rank][*slot],
            Slot::Weight { rank, op, index } => self.arena.weights[*rank][*op][*index],
            Slot::Cache { rank, slot } => self.arena.caches[*rank][*slot],
            Slot::Hash { rank, point } => self.shared.report.hash(*rank, *point),
            Slot::Inbox(slot) => exchanged(Exchange::inbox, *slot)?,
            Slot::Peers(slot) => exchanged(Exchange::peers, *slot)?,
            Slot::Wait => exchanged(|e, _| e.wait(), 0)?,
            Slot::Scratch(what) => self.shared.scratch(*what),
            Slot::Constant(n) => self.constants[*n],
            Slot::List(slots) => {
                let list = slots.iter().map(|s| self.address(s)).collect::<Result<Vec<u64>>>()?;
                let address = self.device.alloc(list.len() * 8)?;
                self.device.upload(address, bytemuck::cast_slice(&list))?;
                address
            }
        })
    }
}
