//! What can be wrong with a model: its numbers, its tensors, or the number of ranks asked for.

/// A model that cannot be described, cut or run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A metadata key is missing or of a wrong type.
    #[error(transparent)]
    Meta(#[from] shardwright_gguf::Error),
    /// The architecture is not one of ours.
    #[error("architecture `{found}` is not supported; supported: {supported}{hint}")]
    Architecture {
        /// As named in the file.
        found: String,
        /// Comma-separated.
        supported: String,
        /// A closing sentence for names that look close, or nothing.
        hint: String,
    },
    /// A number of the file makes no sense.
    #[error("`{key}` is {found}, but must be {wanted}")]
    Number {
        /// Metadata key.
        key: String,
        /// What the file says.
        found: String,
        /// What would be right.
        wanted: String,
    },
    /// The file lacks a tensor.
    #[error("tensor `{name}` is missing; {why}")]
    Missing {
        /// Tensor name.
        name: String,
        /// Who needs it.
        why: String,
    },
    /// A tensor's shape disagrees with the numbers of the file.
    #[error(
        "tensor `{name}` has shape {found:?}, but the file's numbers demand {wanted:?} (row length first)"
    )]
    Shape {
        /// Tensor name.
        name: String,
        /// In the file.
        found: Vec<u64>,
        /// By the hyperparameters.
        wanted: Vec<u64>,
    },
    /// Tensors of types that have no decoder or may not hold weights.
    #[error("cannot use tensors of these types: {0}")]
    Types(String),
    /// A name that is not in one of our tables.
    #[error("there is no {what} `{found}`; there are: {known}")]
    Unknown {
        /// What was named: `preset`, `recipe`, `card`.
        what: &'static str,
        /// The name.
        found: String,
        /// Comma-separated.
        known: String,
    },
    /// A file cannot be made as wanted.
    #[error("cannot make the file: {0}")]
    Synth(String),
    /// The model cannot be cut over that many ranks.
    #[error("{ranks} ranks do not work: {why}; legal for this file: {legal}")]
    Ranks {
        /// Asked for.
        ranks: usize,
        /// The deal that fails, with tensor, row length, type and block.
        why: String,
        /// Comma-separated.
        legal: String,
    },
    /// The model cannot be cut into that many stages.
    #[error("{stages} pipeline stages do not work: {why}")]
    Stages {
        /// Asked for.
        stages: usize,
        /// What is in the way.
        why: String,
    },
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
