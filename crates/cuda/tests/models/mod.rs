//! Model files on any device.
#![allow(clippy::unwrap_used, dead_code, reason = "a test may panic; not every test uses all")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use shardwright_cuda::device::Device;
use shardwright_cuda::wave::MULTIPROCESSORS;
use shardwright_cuda::{CudaExecutor, CudaOptions, Result};
use shardwright_gguf::Reader;
use shardwright_model::exec::{Executor, Ranks, Want};
use shardwright_model::op::Description;
use shardwright_model::plan::{RankPlan, plan};

use crate::common::{BLOCKS, PLAIN, TABLE, described, logits, step_of};

/// Exact, fused, a step of two rows recorded, which one row replays too.
pub(crate) fn exact() -> CudaOptions {
    CudaOptions {
        rows: 256,
        blocks: BLOCKS,
        context: 512,
        fast: false,
        fuse: true,
        tiles: vec![8],
        dummy: false,
        recorded: vec![2],
        ranks: Ranks::default(),
        narrow: CudaOptions::NARROW,
        alone: false,
        // emulators are slow, and two cores may have to run many
        patience: [Duration::from_secs(60); 2],
        multiprocessors: MULTIPROCESSORS,
        delay: Duration::ZERO,
        two_legs: vec![],
        nccl: false,
    }
}

/// With rounded activations.
pub(crate) fn fast() -> CudaOptions {
    CudaOptions { fast: true, ..exact() }
}

/// A model over some ranks.
pub(crate) fn open(
    device: Box<dyn Device>,
    path: &Path,
    ranks: usize,
    options: &CudaOptions,
) -> CudaExecutor {
    tried(device, path, ranks, options).unwrap()
}

/// The same where it may be refused.
pub(crate) fn tried(
    device: Box<dyn Device>,
    path: &Path,
    ranks: usize,
    options: &CudaOptions,
) -> Result<CudaExecutor> {
    on(vec![device], path, ranks, options)
}

/// The same over several devices, one for each rank.
pub(crate) fn on(
    devices: Vec<Box<dyn Device>>,
    path: &Path,
    ranks: usize,
    options: &CudaOptions,
) -> Result<CudaExecutor> {
    let file = Arc::new(Reader::open(path).unwrap());
    let (trunk, draft) = described(&file, PLAIN.options);
    let cut = |d: &Description| -> Vec<RankPlan> { plan(d, &|n| file.tensor(n), ranks).unwrap() };
    let (trunk_plans, draft_plans) = (cut(&trunk), draft.as_ref().map(cut));
    let draft = draft.as_ref().zip(draft_plans);
    CudaExecutor::new(devices, &file, (&trunk, trunk_plans), draft, options, &mut |_| {})
}

/// Logits and hidden rows of steps of several rows, of one, and of one that a recording runs.
pub(crate) fn steps(exec: &mut CudaExecutor, ids: &[u32]) -> Vec<u32> {
    let mut all = vec![];
    for (from, to, at) in [(0, 5, 0), (5, 6, 5), (6, 8, 60), (8, 9, 62)] {
        let mut batch = step_of(&[(&ids[from..to], at, &TABLE)], Want::Logits);
        batch.want_hidden = true;
        let out = exec.step(&batch).unwrap();
        all.extend(logits(&out).concat());
        all.extend(&out.hidden);
    }
    all.iter().map(|v| v.to_bits()).collect()
}
