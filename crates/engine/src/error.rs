//! What can go wrong with a request or with a step.

use shardwright_model::exec::ExecError;

/// A request that cannot be taken or not be finished, or an executor that failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// A sampling parameter makes no sense.
    #[error("`{name}` is {found}, but must be {wanted}")]
    Parameter {
        /// The parameter.
        name: &'static str,
        /// Its value.
        found: String,
        /// What would be right.
        wanted: &'static str,
    },
    /// There is nothing to continue.
    #[error("the prompt is empty: a model needs at least one token to continue")]
    EmptyPrompt,
    /// A token id outside the vocabulary.
    #[error("token id {id} is not in the model's vocabulary of {vocab}")]
    UnknownToken {
        /// The id.
        id: u32,
        /// Ids of the model: 0 to this, exclusive.
        vocab: usize,
    },
    /// The prompt leaves no room for an answer.
    #[error(
        "the prompt has {prompt} tokens, but the context holds {context} and an answer needs at least one"
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Most tokens of a sequence.
        context: usize,
    },
    /// The sequence would never fit the cache.
    #[error(
        "prompt and answer need {needed} cache blocks, but there are only {blocks}: ask for fewer tokens or a larger cache"
    )]
    CacheTooSmall {
        /// Blocks that the sequence may need.
        needed: usize,
        /// Blocks that can be had.
        blocks: usize,
    },
    /// NaN or infinity: the sequence is lost, others are not.
    #[error("the model computed non-finite values (NaN or infinity), first in {at}")]
    NonFinite {
        /// The layer, and the name of the value.
        at: String,
    },
    /// Biases, bans and the grammar left no token to choose from.
    #[error("no token is left to choose from: logit biases, banned tokens and the grammar exclude them all")]
    NothingLeft,
    /// A grammar that cannot be used.
    #[error("the {kind} cannot be used: {why}")]
    Grammar {
        /// What it is: a JSON schema, a regular expression, a grammar.
        kind: &'static str,
        /// What is wrong, and where.
        why: String,
    },
    /// The answer cannot go on by its grammar.
    #[error("the answer cannot go on by its grammar: {0}")]
    Guide(String),
    /// Too many requests wait already.
    #[error("{queued} requests are waiting, as many as may: try again later")]
    Busy {
        /// How many.
        queued: usize,
    },
    /// No more requests are taken, and this one was not finished.
    #[error("the engine is shutting down")]
    Stopped,
    /// The engine ended because something is broken; all sequences are lost.
    #[error("the engine has failed: {0}")]
    Broken(String),
    /// The executor cannot be trusted any more; all sequences are lost.
    #[error("the backend failed: {0}")]
    Executor(#[from] ExecError),
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// From the path of the first value that was not finite, such as `blk.3.attn_out`.
    pub(crate) fn non_finite(path: &str) -> Error {
        let layer = path.strip_prefix("blk.").and_then(|rest| rest.split('.').next());
        let at = match layer {
            Some(layer) => format!("layer {layer} (`{path}`)"),
            None if path.starts_with("embd") => format!("the embedding, before layer 0 (`{path}`)"),
            None => format!("`{path}`"),
        };
        Error::NonFinite { at }
    }
}
