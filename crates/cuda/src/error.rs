//! What can go wrong.

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
    /// A size that must not be zero.
    #[error("at least one {0} is needed")]
    Zero(&'static str),
    /// A plan that is not of this file, or that ranks do not share.
    #[error("the plans do not fit: {0}")]
    Plan(String),
    /// Something that this backend does not do.
    #[error("the CUDA backend has no {0}")]
    Unsupported(String),
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
