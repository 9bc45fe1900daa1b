//! What an executor will take of a device, before anything is loaded: memory and kernels.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use shardwright_model::exec::{BLOCK, Ranks};
use shardwright_model::plan::RankPlan;
use shardwright_model::watch;

use crate::Result;
use crate::exec::CudaOptions;
use crate::load::{self, MARGIN};
use crate::lower::{Choices, Tier, lower};
use crate::machine::fitting;
use crate::program::{Program, Slot};
use crate::rows::Rows;
use crate::step::StepLayout;
use crate::unit::Unit;

/// Each piece of memory begins at a multiple of it.
const ALIGNMENT: usize = 256;

/// What the driver keeps of a launch that is recorded, in bytes: an allowance, as it does not say.
const LAUNCH: usize = 4 << 10;

/// What a library that sums over devices may still take when it first does, in bytes: an allowance for buffers on the way to each peer.
const LIBRARY: u64 = 512 << 20;

/// What the driver may still take once kernels are loaded, in bytes: an allowance for stacks and copies of its own.
const DRIVER: u64 = 64 << 20;

/// Bytes of a device's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Weights, each once.
    pub weights: u64,
    /// The cache.
    pub cache: u64,
    /// Values between ops, and what kernels leave for each other.
    pub working: u64,
    /// What other devices write to.
    pub inbox: u64,
    /// Recorded steps, and whatever else the driver and a library that sums may take: allowances.
    pub driver: u64,
}

impl Needs {
    /// Of all ranks on one device, and every kernel that it has to have, also those of steps that are shown op by op.
    ///
    /// # Errors
    /// If the plans can't be lowered.
    pub fn of(plans: &[RankPlan], options: &CudaOptions) -> Result<(Needs, BTreeSet<Unit>)> {
        let programs = programs(plans, options)?;
        let mut needs = Needs::of_plans(plans, options);
        needs.add(&programs, options);
        let weights = plans.iter().flat_map(|plan| &plan.ops).flat_map(|op| &op.weights);
        let mut kernels = load::units(weights.map(|w| w.quant));
        kernels.extend(programs.into_iter().flatten().flat_map(|(.., program)| program.units));
        if let Some(last) = options.choices(plans).last() {
            kernels.extend(lower(plans, Choices { fuse: false, ..*last })?.units);
        }
        Ok((needs, kernels))
    }

    /// Without what programs take.
    fn of_plans(plans: &[RankPlan], options: &CudaOptions) -> Needs {
        let mut needs = Needs { driver: DRIVER, ..Needs::default() };
        let Some(first) = plans.first() else { return needs };
        let (mut seen, mut weights) = (HashSet::new(), vec![]);
        for plan in plans {
            for (op, i) in plan.ops.iter().flat_map(|op| (0..op.weights.len()).map(move |i| (op, i))) {
                let (w, decoded) = (&op.weights[i], op.is_vector(i));
                let held = [&w.copies, &w.rows, &w.cols].map(|range| (range.start, range.end));
                if seen.insert((&w.name, held, decoded)) {
                    weights.push(Rows { weight: w.clone(), decoded });
                }
            }
            let line = |c: usize| piece(options.blocks * BLOCK * c * options.element());
            needs.cache += plan.caches.iter().map(|c| line(c.width)).sum::<u64>();
            needs.working += plan.slots.iter().map(|width| piece(options.rows * width * 4)).sum::<u64>();
        }
        needs.weights = weights.iter().map(|rows| piece(rows.bytes() + MARGIN)).sum();
        if !options.dummy {
            // where they are laid, and the table by which they are checked
            let staging = load::staging(weights.iter());
            needs.working += if staging > 0 { piece(staging) } else { 0 } + piece(8 * weights.len());
        }
        let layout = StepLayout::new(options.rows, options.context);
        let width = first.hidden.map_or(0, |p| p.width);
        let told = 8 * plans.len() * watch::points(&first.ops).len() + 4 * options.rows;
        needs.working += piece(layout.words() * 4) + piece(told) + piece(options.rows * width * 4);
        if options.nccl && options.summed(plans) > 0 {
            needs.driver += LIBRARY;
        }
        let inbox = options.inbox(plans);
        if inbox > 0 {
            needs.inbox = (2 * first.ranks * inbox * 16) as u64;
            needs.working += 2 * piece(8 * first.ranks) + piece(24);
        }
        needs
    }

    /// What programs take besides what they work on.
    fn add(&mut self, sets: &[Vec<(usize, Tier, Program)>], options: &CudaOptions) {
        let all = || sets.iter().flatten().map(|(.., program)| program);
        let mut scratch = BTreeMap::new();
        for (what, bytes) in all().flat_map(|program| &program.scratch) {
            let size: &mut usize = scratch.entry(*what).or_default();
            *size = *bytes.max(size);
        }
        self.working += scratch.values().map(|bytes| piece(*bytes)).sum::<u64>();
        self.working += all().flat_map(|p| &p.constants).map(|bytes| piece(bytes.len())).sum::<u64>();
        self.working += all().flat_map(|p| &p.calls).flat_map(|call| &call.args).map(lists).sum::<u64>();
        for (set, rows) in sets.iter().flat_map(|set| options.recorded.iter().map(move |rows| (set, rows))) {
            let fit =
                [Tier::Short, Tier::Long].into_iter().filter_map(|tier| fitting(set, *rows as usize, tier));
            self.driver += fit.map(|at| (set[at].2.calls.len() * LAUNCH) as u64).sum::<u64>();
        }
    }

    /// What the executor asks the device for, each piece rounded up.
    pub fn held(&self) -> u64 {
        self.weights + self.cache + self.working
    }

    /// All of it.
    pub fn total(&self) -> u64 {
        self.held() + self.inbox + self.driver
    }
}

/// The programs of steps: plain ones, and if ranks are compared, those with hashes.
fn programs(plans: &[RankPlan], options: &CudaOptions) -> Result<Vec<Vec<(usize, Tier, Program)>>> {
    let alone = options.alone || plans.iter().all(|p| p.ranks < 2);
    let set = |check: bool| {
        let choices = options.choices(plans).into_iter();
        let choices = choices.map(|c| Choices { ranks: Ranks { check, ..c.ranks }, ..c });
        choices.map(|c| Ok((c.tile as usize, c.tier, lower(plans, c)?))).collect::<Result<Vec<_>>>()
    };
    [false, true][..if alone { 1 } else { 2 }].iter().map(|check| set(*check)).collect()
}

/// Bytes that a piece of memory takes.
fn piece(bytes: usize) -> u64 {
    bytes.max(1).next_multiple_of(ALIGNMENT) as u64
}

/// Bytes of the lists of addresses that an argument is made of.
fn lists(slot: &Slot) -> u64 {
    match slot {
        Slot::List(slots) => piece(8 * slots.len()) + slots.iter().map(lists).sum::<u64>(),
        _ => 0,
    }
}
