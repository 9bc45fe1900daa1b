//! What can go wrong.

use shardwright_model::watch::Parted;

use crate::pairs::{Absent, Wrong};

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No driver or no GPU, or one that can't be used.
    #[error("no NVIDIA GPU can be used: {0}")]
    Driver(String),
    /// The driver refused.
    #[error("CUDA: {what}: {why}")]
    Cuda {
        /// What was asked for.
        what: String,
        /// The driver's words.
        why: String,
    },
    /// No kernel compiler.
    #[error("{0}")]
    Compiler(String),
    /// No NCCL, or one that is too old.
    #[error("{0}")]
    Library(String),
    /// NCCL refused, or was given up.
    #[error("NCCL: {what}: {why}")]
    Nccl {
        /// What was asked for.
        what: String,
        /// Its words.
        why: String,
    },
    /// NCCL, which does not tell for whom a rank waits.
    #[error("NCCL was given up on rank {rank}, as not all ranks came")]
    GivenUp {
        /// Who has waited.
        rank: usize,
    },
    /// A kernel does not compile.
    #[error("kernel `{unit}` for {architecture} does not compile: {log}")]
    Kernel {
        /// The kernel.
        unit: String,
        /// The architecture.
        architecture: String,
        /// What the compiler said.
        log: String,
    },
    /// The file can't be read any more.
    #[error("`{tensor}` can't be loaded: {cause}")]
    Weight {
        /// The tensor.
        tensor: String,
        /// What is wrong with its file.
        cause: shardwright_gguf::Error,
    },
    /// A size that must not be zero.
    #[error("at least one {0} is needed")]
    Zero(&'static str),
    /// A plan that is not of this file, or that ranks do not share.
    #[error("the plans do not fit: {0}")]
    Plan(String),
    /// Memory of the device that does not hold what the file has.
    #[error(
        "`{tensor}` on rank {rank} (op {op}, weight {index}) is not what the file has: {what}; nothing was answered. Start \
         again; if it comes back, memory or link of the card are at fault"
    )]
    Slot {
        /// The tensor.
        tensor: String,
        /// Who holds it.
        rank: usize,
        /// Which op reads it.
        op: usize,
        /// Which of the op's weights it is.
        index: usize,
        /// Which bytes differ.
        what: String,
    },
    /// A recorded step that is not the step.
    #[error(
        "the recorded step of {rows} rows gives other bits than its kernels launched one by one: {what}; nothing was \
         answered. `--enforce-eager` starts without recorded steps"
    )]
    Recording {
        /// Rows of the step.
        rows: usize,
        /// What differs.
        what: String,
    },
    /// Ranks that did not bring what they add.
    #[error("rank {rank} has waited in vain at `{path}` for what {} add", ranks(missing))]
    Late {
        /// The op.
        op: usize,
        /// Who has waited.
        rank: usize,
        /// What it was about to have.
        path: String,
        /// Who has not come.
        missing: Vec<usize>,
    },
    /// Ranks that do not find each other at the start.
    #[error(transparent)]
    Absent(#[from] Absent),
    /// Devices that get wrong bytes from each other, by every way that sums could go.
    #[error(
        "{}; nothing was loaded. `shardwright doctor` tells whether an IOMMU or access control (ACS) of the bridges is in the \
         way: turn them off, run over fewer GPUs (`--tp`, `--device`), those of one socket, or with `--device cpu`",
        listed(.0)
    )]
    Wrong(Vec<Wrong>),
    /// A rank that does no more.
    #[error("rank {rank} is gone: {why}")]
    Gone {
        /// Which one.
        rank: usize,
        /// What is known of it.
        why: String,
    },
    /// Ranks that no longer agree.
    #[error(transparent)]
    Parted(#[from] Parted),
    /// Something that this backend does not do.
    #[error("the CUDA backend has no {0}")]
    Unsupported(String),
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

fn listed(all: &[Wrong]) -> String {
    all.iter().map(Wrong::to_string).collect::<Vec<_>>().join("; ")
}

/// Their names.
pub(crate) fn ranks(all: &[usize]) -> String {
    let names: Vec<String> = all.iter().map(|rank| format!("rank {rank}")).collect();
    names.join(" and ")
}
