//! What can be wrong with a request for an executor.

/// An executor that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A number of the options is zero.
    #[error("the CPU backend needs at least 1 {0}")]
    Zero(&'static str),
    /// Plans that do not belong together.
    #[error("these rank plans make no model: {0}")]
    Plan(String),
    /// The cache does not fit.
    #[error(
        "a cache of {tokens} tokens ({bytes} bytes) cannot be had for `{name}` of layer {layer}; ask for a shorter context"
    )]
    Memory {
        /// Cache slot.
        name: &'static str,
        /// Its layer.
        layer: usize,
        /// Tokens asked for.
        tokens: usize,
        /// Bytes that takes.
        bytes: u128,
    },
    /// The operating system gives no threads.
    #[error("cannot start {threads} threads: {cause}; ask for fewer with `-t`")]
    Threads {
        /// Asked for.
        threads: usize,
        /// The system's reason.
        cause: std::io::Error,
    },
}

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
