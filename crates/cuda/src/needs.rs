//! What an executor will take of a device's memory, before anything is loaded.

use std::collections::{BTreeMap, HashSet};

use shardwright_model::exec::BLOCK;
use shardwright_model::plan::RankPlan;

use crate::Result;
use crate::exec::CudaOptions;
use crate::lower::lower;

/// Bytes of a device's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Weights, each once.
    pub weights: u64,
    /// The cache.
    pub cache: u64,
    /// Values between ops, and what kernels leave for each other.
    pub working: u64,
}

impl Needs {
    /// Of all ranks on one device.
    ///
    /// # Errors
    /// If the plans can't be lowered.
    pub fn of(plans: &[RankPlan], options: &CudaOptions) -> Result<Needs> {
        let mut seen = HashSet::new();
        let mut needs = Needs::default();
        for plan in plans {
            for w in plan.ops.iter().flat_map(|op| &op.weights) {
                let held = [&w.copies, &w.rows, &w.cols].map(|range| (range.start, range.end));
                if seen.insert((&w.name, held)) {
                    needs.weights += w.bytes();
                }
            }
            let line: usize = plan.caches.iter().map(|c| c.width).sum();
            needs.cache += (line * options.blocks * BLOCK * options.element()) as u64;
            needs.working += (plan.slots.iter().sum::<usize>() * options.rows * 4) as u64;
            needs.working += (2 * plan.ranks * options.inbox(plans) * 16) as u64;
        }
        let mut scratch = BTreeMap::new();
        for choices in options.choices(plans) {
            for (what, bytes) in lower(plans, choices)?.scratch {
                let size: &mut usize = scratch.entry(what).or_default();
                *size = bytes.max(*size);
            }
        }
        needs.working += scratch.values().sum::<usize>() as u64;
        Ok(needs)
    }

    /// All of it.
    pub fn total(&self) -> u64 {
        self.weights + self.cache + self.working
    }
}
