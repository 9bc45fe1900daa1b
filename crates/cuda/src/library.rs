//! Whether a library sums rightly over devices, tried before anything is loaded. Which order it adds up in is its own affair, so the numbers
//! are whole and small: every order has the same sum.

use half::bf16;
use shardwright_model::exec::Wire;
use shardwright_model::plan::RankPlan;

use crate::device::{Device, Launch};
use crate::exec::CudaOptions;
use crate::pairs::{Bad, together};
use crate::unit::Unit;
use crate::{Error, Result};

/// Numbers come again after so many: a prime, so that what has gone to another place is seen.
const PERIOD: usize = 251;

/// Up to this bf16 has all whole numbers.
const WHOLE: usize = 256;

/// What a rank adds: with what all others add it stays a number that bf16 has.
fn summand([rank, ranks]: [usize; 2], k: usize) -> f32 {
    let most = (WHOLE / ranks).max(1);
    ((k % PERIOD * 5 + rank * 3) % (2 * most + 1)) as f32 - most as f32
}

/// Sums rows of as many elements as these plans', as many as steps have, over the devices, which are empty afterwards. `lost` is told why
/// this does not end, if a device does not come back.
///
/// # Errors
/// If a sum is wrong, a rank does not come, or the library says so.
pub fn tried(
    devices: &mut [&mut dyn Device],
    plans: &[RankPlan],
    options: &CudaOptions,
    lost: &mut dyn FnMut(Error),
) -> Result<()> {
    let (width, wire) = (plans.get(..1).map_or(0, |first| options.summed(first)), options.ranks.wire);
    let mut sizes: Vec<usize> = options.recorded.iter().map(|rows| *rows as usize).collect();
    sizes.extend([1, options.rows]);
    sizes.retain(|rows| (1..=options.rows).contains(rows));
    sizes.sort_unstable();
    sizes.dedup();
    let ranks = devices.len();
    let all = together(devices, options.patience[0], lost, &|rank, device, went| {
        let kernel = device.load(&[Unit::all_reduce(width, wire)])?[0];
        let (most, mut bad) = (options.rows * width, vec![]);
        let [from, to] = [device.alloc(4 * most)?, device.alloc(4 * most)?];
        for (trial, rows) in sizes.iter().enumerate() {
            let own: Vec<f32> = (0..rows * width).map(|k| summand([rank, ranks], k)).collect();
            device.upload(from, &sent(&own, wire))?;
            let grid = [1, 1, *rows as u32];
            device.launch(&Launch { kernel, grid, block: 1, shared: 0, args: vec![from, to] })?;
            let mut got = sent(&own, wire);
            device.download(to, &mut got)?;
            bad.extend(different(&received(&got, wire), ranks, trial));
            went();
        }
        Ok(bad)
    })?;
    let first = all.iter().enumerate().flat_map(|(rank, bad)| bad.iter().map(move |bad| (rank, bad)));
    match first.min_by_key(|(_, bad)| bad.trial) {
        None => Ok(()),
        Some((rank, Bad { trial, element, got, want })) => Err(Error::Nccl {
            what: format!("a sum of {} numbers over {ranks} ranks", sizes[*trial] * width),
            why: format!("element {element} is {got:e} instead of {want:e} on rank {rank}"),
        }),
    }
}

/// Numbers as they travel.
fn sent(numbers: &[f32], wire: Wire) -> Vec<u8> {
    match wire {
        Wire::F32 => bytemuck::cast_slice(numbers).to_vec(),
        Wire::Bf16 => numbers.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect(),
    }
}

fn received(bytes: &[u8], wire: Wire) -> Vec<f32> {
    match wire {
        Wire::F32 => bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
        Wire::Bf16 => bytes.chunks_exact(2).map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
    }
}

/// The first sum that is not as it should be.
fn different(got: &[f32], ranks: usize, trial: usize) -> Option<Bad> {
    let want = |k: usize| (0..ranks).map(|rank| summand([rank, ranks], k)).sum::<f32>();
    let element = (0..got.len()).find(|k| got[*k] != want(*k))?;
    Some(Bad { trial, element, got: got[element], want: want(element) })
}
