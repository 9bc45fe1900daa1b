//! Which way sums over devices go: in one leg, every rank's summand to every rank, or in two, each rank adding a share for all. It is
//! measured before anything is loaded, for the steps of each program, and decided in one place, as all ranks must go the same way.

use std::time::Duration;

use shardwright_model::exec::Wire;
use shardwright_model::op::Kind;
use shardwright_model::plan::RankPlan;

use crate::Result;
use crate::device::Device;
use crate::exec::CudaOptions;
use crate::ops::sum::packet;
use crate::peers::{self, Sum};

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
    open(plans, options).into_iter().flat_map(|(.., sum)| both(sum)).collect()
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

/// The same by measuring, on devices that hold nothing yet.
///
/// # Errors
/// If a device does not get what another one sends, or gets it wrong.
pub fn measured(
    devices: &mut [&mut dyn Device],
    plans: &[RankPlan],
    options: &mut CudaOptions,
) -> Result<Vec<Way>> {
    choose(plans, options, &mut |sum| {
        let time = peers::time(devices, sum, SUMS);
        devices.iter_mut().try_for_each(|device| device.clear())?;
        time
    })
}
