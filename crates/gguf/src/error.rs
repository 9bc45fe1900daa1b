//! What can be wrong with a GGUF file or with a request to this crate, each in one line.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The result of everything here that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a file cannot be used, or a value cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cause, and the file it happened in.
    #[error("{}: {cause}", path.display())]
    File {
        /// The file as the user named it.
        path: PathBuf,
        /// What is wrong in it.
        cause: Box<Error>,
    },
    /// The operating system refused.
    #[error("cannot {doing}: {cause}")]
    Io {
        /// The verb and object: "open the file".
        doing: &'static str,
        /// The system's reason.
        cause: io::Error,
    },
    /// The path is no regular file.
    #[error("is {what}, not a file; name the .gguf file itself")]
    NoFile {
        /// "a folder", "a device or pipe".
        what: &'static str,
    },
    /// The first bytes are not those of a GGUF file.
    #[error("not a GGUF file: {hint} (the first bytes are {})", show_bytes(first))]
    NotGguf {
        /// What it seems to be instead, and what to do.
        hint: &'static str,
        /// At most 16 first bytes.
        first: Vec<u8>,
    },
    /// All numbers are stored the other way round.
    #[error(
        "this GGUF file is big-endian (byte order reversed); only little-endian files can be used: convert it again"
    )]
    BigEndian,
    /// A version other than 2 and 3.
    #[error("GGUF version {0} is not supported, only 2 and 3: {advice}", advice = version_advice(*.0))]
    Version(u32),
    /// The file ends inside its header.
    #[error(
        "{place}, byte {at}: the file ends here: {need} more bytes were expected, {left} are left; is the download complete?"
    )]
    Truncated {
        /// Position of the read.
        at: u64,
        /// What was being read.
        place: Place,
        /// Bytes wanted.
        need: u64,
        /// Bytes there.
        left: u64,
    },
    /// The header breaks a rule of the format.
    #[error("{place}, byte {at}: {why}")]
    Header {
        /// Position of the offending field.
        at: u64,
        /// What was being read.
        place: Place,
        /// The rule, with the numbers.
        why: String,
    },
    /// Tensors of types that cannot be read.
    #[error("unusable tensor types: {}", list(.0))]
    TensorTypes(Vec<UnknownType>),
    /// A tensor's data does not fit the file.
    #[error("tensor `{}`: {why}", short(name))]
    Tensor {
        /// The tensor.
        name: String,
        /// What was expected.
        why: String,
    },
    /// A key that is needed is not there.
    #[error("the key `{}` is missing from the metadata", short(key))]
    MissingKey {
        /// The key.
        key: String,
    },
    /// A key holds a value of the wrong kind or range.
    #[error("the key `{}` is {found}, expected {wanted}", short(key))]
    KeyValue {
        /// The key.
        key: String,
        /// What the file has.
        found: String,
        /// What can be used.
        wanted: String,
    },
    /// The parts of a split model do not fit together.
    #[error("split model: {why}")]
    Split {
        /// What does not fit, with file names.
        why: String,
    },
    /// A type id that cannot be decoded.
    #[error("tensor type {}", .0)]
    QuantId(UnknownId),
    /// A type name that is not known.
    #[error("`{}` is no tensor type known here", short(.0))]
    QuantName(String),
    /// Values that cannot be stored as asked.
    #[error("cannot encode as {quant}: {why}")]
    Encode {
        /// The type's name.
        quant: &'static str,
        /// What stands against it.
        why: String,
    },
    /// A file that cannot be written as asked.
    #[error("cannot write the file: {why}")]
    Write {
        /// What stands against it.
        why: String,
    },
}

impl Error {
    /// Adds the file's name, unless it is there already.
    pub(crate) fn in_file(self, path: &Path) -> Error {
        match self {
            Error::File { .. } => self,
            cause => Error::File { path: path.to_owned(), cause: Box::new(cause) },
        }
    }

    /// Names the record in which a cursor failed.
    pub(crate) fn at_place(self, make: impl FnOnce() -> Place) -> Error {
        match self {
            Error::Truncated { at, need, left, .. } => Error::Truncated { at, place: make(), need, left },
            Error::Header { at, why, .. } => Error::Header { at, place: make(), why },
            other => other,
        }
    }

    /// The innermost error: what went wrong, without the file's name.
    pub fn cause(&self) -> &Error {
        match self {
            Error::File { cause, .. } => cause.cause(),
            other => other,
        }
    }
}

impl From<io::Error> for Error {
    fn from(cause: io::Error) -> Error {
        Error::Io { doing: "read or write the data", cause }
    }
}

/// Where in the header a fault lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The fixed fields at the start.
    Start,
    /// A key/value record whose key is not known yet, counted from 0.
    KeyNo(u64),
    /// The record of this key.
    Key(String),
    /// A tensor record whose name is not known yet, counted from 0.
    TensorNo(u64),
    /// The record of this tensor.
    Tensor(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Start => write!(f, "start of the header"),
            Place::KeyNo(n) => write!(f, "metadata record {n}"),
            Place::Key(k) => write!(f, "key `{}`", short(k)),
            Place::TensorNo(n) => write!(f, "tensor record {n}"),
            Place::Tensor(t) => write!(f, "tensor `{}`", short(t)),
        }
    }
}

/// A type id that is not readable, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownId {
    /// The number in the file.
    pub id: u32,
    /// Its name, if anybody uses the number.
    pub name: Option<&'static str>,
    /// Why it is refused.
    pub why: &'static str,
}

impl fmt::Display for UnknownId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name {
            Some(name) => write!(f, "{} = {name} ({})", self.id, self.why),
            None => write!(f, "{} ({})", self.id, self.why),
        }
    }
}

/// One unreadable type: how often it occurs and where first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownType {
    /// The type.
    pub id: UnknownId,
    /// How many tensors have it.
    pub count: u64,
    /// The first of them.
    pub tensor: String,
}

impl fmt::Display for UnknownType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.count == 1 { "" } else { "s" };
        write!(f, "type {} in {} tensor{s}, first `{}`", self.id, self.count, short(&self.tensor))
    }
}

/// A name from a file, fit for one line on a terminal: control characters escaped, cut after 100 characters.
pub fn short(name: &str) -> String {
    let mut text: String = name.chars().take(100).flat_map(char::escape_debug).collect();
    if name.chars().nth(100).is_some() {
        text.push('…');
    }
    text
}

/// Types that are named in one error; a hostile file has any number.
const LISTED: usize = 4;

fn list(types: &[UnknownType]) -> String {
    let mut text = types.iter().take(LISTED).map(UnknownType::to_string).collect::<Vec<_>>().join("; ");
    if types.len() > LISTED {
        text += &format!("; and {} more types", types.len() - LISTED);
    }
    text
}

fn version_advice(version: u32) -> &'static str {
    if version < 2 {
        "convert the model again with a current converter"
    } else {
        "the file is newer than this program"
    }
}

/// Printable bytes as text, the rest as hex: `ggjt` or `00 01 ff`.
fn show_bytes(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "none: the file is empty".to_owned();
    }
    let hex = bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ");
    match bytes.iter().all(|b| (0x20..0x7f).contains(b)) {
        true => format!("{hex}, as text `{}`", String::from_utf8_lossy(bytes)),
        false => hex,
    }
}
