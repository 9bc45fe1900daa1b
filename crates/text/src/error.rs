//! What can go wrong between text and token ids, each in one line.

/// The result of everything here that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a tokenizer or a chat template cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A metadata key is missing or of the wrong kind.
    #[error(transparent)]
    Meta(#[from] shardwright_gguf::Error),
    /// The value of a metadata key cannot be used.
    #[error("`{key}`: {why}")]
    Key {
        /// The key.
        key: String,
        /// What is wrong, what was expected.
        why: String,
    },
    /// The file names a kind of tokenizer that is not built in.
    #[error("`tokenizer.ggml.model` is `{0}`, expected `gpt2` (byte-level BPE) or `llama` (SentencePiece)")]
    UnknownModel(String),
    /// The file names a pre-tokenizer that is not known; a guess would split text wrongly without a word.
    #[error(
        "`tokenizer.ggml.pre` is `{name}`, which is not known here; known are {known}; name one of them to use it instead"
    )]
    UnknownPre {
        /// The name in the file or from the user.
        name: String,
        /// All names that work.
        known: String,
    },
    /// A character cannot be spelled with this vocabulary.
    #[error("the vocabulary has no token for the byte 0x{byte:02x}, so the text cannot be encoded")]
    NoToken {
        /// The byte.
        byte: u8,
    },
    /// A text that nobody wants to tokenize.
    #[error("the text has {bytes} bytes, less than 1.4 GB can be encoded at once")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// A token id outside the vocabulary.
    #[error("token id {id} is not in the vocabulary of {len} tokens")]
    NoSuchToken {
        /// The id.
        id: u32,
        /// Size of the vocabulary.
        len: usize,
    },
    /// The chat template itself is broken or asks for too much.
    #[error("the chat template cannot be used: {0}")]
    Template(String),
    /// The chat template refuses this conversation, in its own words.
    #[error("the chat template refuses the conversation: {0}")]
    Refused(String),
    /// There is no chat template of this name.
    #[error("the file has no chat template `{name}`, only {known}")]
    NoTemplate {
        /// The name asked for.
        name: String,
        /// The names that are there.
        known: String,
    },
}

impl Error {
    /// A key whose value cannot be used.
    pub(crate) fn key(key: &str, why: impl Into<String>) -> Error {
        Error::Key { key: key.to_owned(), why: why.into() }
    }
}
