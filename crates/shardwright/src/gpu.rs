//! A model on a GPU.

use crate::progress::Progress;
use crate::table::bytes;
use anyhow::{Context, bail};
use shardwright_cuda::driver::Gpu;
use shardwright_cuda::jit::Jit;
use shardwright_cuda::nvrtc::Nvrtc;
use shardwright_cuda::{CudaExecutor, CudaOptions, Needs};
use shardwright_gguf::Reader;
use shardwright_model::exec::Executor;
use shardwright_model::op::Description;
use shardwright_model::plan::RankPlan;
use std::sync::{Arc, Mutex, PoisonError};

/// Is there a GPU that can be used? A driver without a compiler is worth a word.
pub(crate) fn found() -> bool {
    match Gpu::list().map(|_| Nvrtc::find()) {
        Ok(Ok(_)) => true,
        Ok(Err(e)) => {
            log::warn!("the GPU is not used: {e}");
            false
        }
        Err(e) => {
            log::debug!("{e}");
            false
        }
    }
}

/// What runs the plans' steps on GPU `index`, after seeing that they fit.
pub(crate) fn executor(
    index: usize,
    file: &Arc<Reader>,
    trunk: (&Description, Vec<RankPlan>),
    options: &CudaOptions,
    check_memory: bool,
) -> anyhow::Result<Box<dyn Executor>> {
    let gpu = open(index)?;
    let needs = Needs::of(&trunk.1, options)?;
    let free = gpu.free_memory()?;
    log::info!("{}: {}", gpu.info().name, told(&needs));
    if check_memory && needs.total() > free {
        bail!(
            "not enough memory on GPU {index} ({}): {} needed ({}), {} free; ask for a shorter context with `-c`, or go \
             on anyway with `--no-memory-check`",
            gpu.info().name,
            bytes(needs.total()),
            told(&needs),
            bytes(free)
        );
    }
    let megabytes = |bytes: u64| (bytes / 1_000_000) as usize;
    let mut progress = Progress::new("loading (MB)", megabytes(needs.weights));
    let mut done = 0;
    let mut watch = |bytes: u64| {
        done += bytes;
        progress.at(megabytes(done));
    };
    Ok(Box::new(CudaExecutor::new(Box::new(gpu), file, trunk, None, options, &mut watch)?))
}

/// The GPU, with a compiler that tells how far it is.
pub(crate) fn open(index: usize) -> anyhow::Result<Gpu> {
    let bar = Mutex::new(None::<Progress>);
    let progress = move |done: usize, all: usize| {
        let mut bar = bar.lock().unwrap_or_else(PoisonError::into_inner);
        bar.get_or_insert_with(|| Progress::new("compiling kernels", all)).at(done);
        if done == all {
            *bar = None;
        }
    };
    // without a driver there is no use in a compiler
    Gpu::list()?;
    let jit = Arc::new(Jit::new(Nvrtc::find()?, Jit::folder(), progress));
    Gpu::open(index, jit).with_context(|| format!("GPU {index}"))
}

fn told(needs: &Needs) -> String {
    let [weights, cache, working] = [needs.weights, needs.cache, needs.working].map(bytes);
    format!("{weights} of weights, {cache} of cache and {working} of working memory")
}
