//! Which way sums over devices go: in one leg, every rank's summand to every rank, or in two, each rank adding a share for all. It is
//! measured before anything is loaded, for the steps of each program, and decided in one place, as all ranks must go the same way.

use std::time::Duration;

use shardwright_model::exec::Wire;
use shardwright_model::op::Kind;
use shardwright_model::plan::RankPlan;

use crate::device::Device;
use crate::exec::CudaOptions;
use crate::ops::sum::packet;
use crate::pairs::{self, Wrong};
use crate::peers::{self, Sum};
use crate::{Error, Result};

/// Sums in a recording, of which one takes what it would in a step.
const SUMS: usize = 24;

/// What a launch costs. Of few rows a sum in two legs takes one more: in one leg products push, and norms receive.
const LAUNCH: Duration = Duration::from_micros(1);

/// What sums of steps of a program take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Most rows that the program's kernels take at a time.
    pub tile: u32,
    /// Rows of the steps that were measured.
    pub rows: usize,
    /// Of the slowest rank, in one leg and in two.
    pub times: [Duration; 2],
    /// In how many they go.
    pub legs: usize,
}

/// Which ways there are, and how they were found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// What sums take, where there is a choice.
    pub ways: Vec<Way>,
    /// Why there is none: the way that brings wrong bytes.
    pub wrong: Option<Wrong>,
}

/// Programs whose sums could go either way: their tile, whether that is few rows, and a sum in one leg. Two legs are for where they send
/// less.
fn open(plans: &[RankPlan], options: &CudaOptions) -> Vec<(u32, bool, Sum)> {
    let Some(first) = plans.get(..1).filter(|first| options.inbox(first) > 0) else { return vec![] };
    let sums = first[0].ops.iter().filter(|op| op.kind == Kind::Sum);
    let width = sums.map(|op| op.outputs[0].width).max().unwrap_or(0);
    let wire = options.ranks.wire;
    let mut tiles: Vec<(u32, bool)> = options.choices(first).iter().map(|c| (c.tile, !c.many())).collect();
    tiles.dedup();
    let last = tiles.last().map(|(tile, _)| *tile);
    let sums = tiles.into_iter().map(|(tile, few)| {
        let rows = if Some(tile) == last { options.rows } else { options.rows.min(tile as usize) };
        (tile, few, Sum { rows, width, wire, legs: 1 })
    });
    sums.filter(|(.., sum)| sends_less(sum, first[0].ranks)).collect()
}

/// Does a sum in two legs send less than in one? Its second leg is of f32.
fn sends_less(sum: &Sum, ranks: usize) -> bool {
    let packets = sum.rows * sum.width / packet(sum.wire);
    let back = match sum.wire {
        Wire::F32 => 1,
        Wire::Bf16 => 2,
    };
    (1 + back) * packets.div_ceil(ranks) < packets
}

/// Tiles of which sums could go either way.
pub fn tiles(plans: &[RankPlan], options: &CudaOptions) -> Vec<u32> {
    open(plans, options).into_iter().map(|(tile, ..)| tile).collect()
}

/// The kernels by which ranks find out.
pub fn units(plans: &[RankPlan], options: &CudaOptions) -> Vec<crate::unit::Unit> {
    let ranks = plans.first().map_or(0, |p| p.ranks);
    let both = |sum: Sum| [1, 2].map(|legs| Sum { legs, ..sum }.unit(ranks));
    let measured = open(plans, options).into_iter().flat_map(|(.., sum)| both(sum));
    measured.chain(tried(plans, options).iter().map(|sum| sum.unit(ranks))).collect()
}

/// The ways that sums of these plans may go, each as a sum of as many packets as an inbox has room for, a row each: one kernel is for
/// all sizes.
fn tried(plans: &[RankPlan], options: &CudaOptions) -> Vec<Sum> {
    let (wire, rows) = (options.ranks.wire, plans.get(..1).map_or(0, |first| options.inbox(first)));
    let ways = match (rows, tiles(plans, options).len()) {
        (0, _) => 0,
        (_, 0) => 1,
        _ => 2,
    };
    (1..=ways).map(|legs| Sum { rows, width: packet(wire), wire, legs }).collect()
}

/// Packets of the steps of each program and recording, and those with one more: both sides of what is decided by size.
fn sizes(plans: &[RankPlan], options: &CudaOptions) -> Vec<usize> {
    let Some(first) = plans.get(..1) else { return vec![] };
    let capacity = options.inbox(first);
    let tiles = options.choices(first).into_iter().map(|choices| choices.tile);
    let rows = tiles.chain(options.recorded.iter().copied()).map(|rows| rows as usize);
    let most = options.rows.max(1);
    rows.filter(|rows| *rows <= most)
        .flat_map(|rows| [0, 1].map(|more| capacity / most * rows + more))
        .collect()
}

/// Chooses by what `time` says that a sum takes, and tells what was measured.
///
/// # Errors
/// If it can't be measured.
pub fn choose(
    plans: &[RankPlan],
    options: &mut CudaOptions,
    time: &mut dyn FnMut(Sum) -> Result<Duration>,
) -> Result<Vec<Way>> {
    let mut ways = vec![];
    for (tile, few, sum) in open(plans, options) {
        let times = [time(sum)?, time(Sum { legs: 2, ..sum })?];
        let more = if few { LAUNCH } else { Duration::ZERO };
        let legs = if times[1] + more < times[0] { 2 } else { 1 };
        ways.push(Way { tile, rows: sum.rows, times, legs });
    }
    options.two_legs = ways.iter().filter(|way| way.legs == 2).map(|way| way.tile).collect();
    Ok(ways)
}

/// The same by measuring, on devices that hold nothing yet and hold nothing afterwards, once every way has been seen to bring every bit.
/// Where one does not, all go the other one. `lost` is told why this does not end, if a device does not come back.
///
/// # Errors
/// If ranks do not find each other, or no way brings what they send.
pub fn measured(
    devices: &mut [&mut dyn Device],
    plans: &[RankPlan],
    options: &mut CudaOptions,
    lost: &mut dyn FnMut(Error),
) -> Result<Measured> {
    let (sums, sizes) = (tried(plans, options), sizes(plans, options));
    let mut wrong = vec![];
    for sum in &sums {
        wrong.extend(pairs::tried(devices, *sum, &sizes, options.patience[0], lost)?);
    }
    if !wrong.is_empty() {
        let way = forced(&wrong, plans, options).ok_or(Error::Wrong(wrong.clone()))?;
        options.two_legs = way;
        return Ok(Measured { ways: vec![], wrong: wrong.pop() });
    }
    let ways = choose(plans, options, &mut |sum| {
        let time = peers::time(devices, sum, SUMS);
        devices.iter_mut().try_for_each(|device| device.clear())?;
        time
    })?;
    Ok(Measured { ways, wrong: None })
}

/// The tiles that go in two legs when one way is wrong: none, or all, if all can.
fn forced(wrong: &[Wrong], plans: &[RankPlan], options: &CudaOptions) -> Option<Vec<u32>> {
    let open = tiles(plans, options);
    let mut all: Vec<u32> = options.choices(plans.get(..1)?).iter().map(|choices| choices.tile).collect();
    all.dedup();
    match wrong {
        [Wrong { legs: 2, .. }] => Some(vec![]),
        [Wrong { legs: 1, .. }] if open == all => Some(open),
        _ => None,
    }
}
