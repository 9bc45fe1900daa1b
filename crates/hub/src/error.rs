//! What can go wrong, each in one line that says what to do.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The outcome of what may fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there is no model.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the texts say it
pub enum Error {
    #[error("`{0}` is not of the form OWNER/REPO[:QUANT], such as unsloth/GLM-5-GGUF:UD-Q4_K_XL")]
    Wanted(String),
    #[error("{0}")]
    Setting(String),
    #[error("{repo} is gated: accept its licence at {page}, then set HF_TOKEN to a token of that account")]
    Gated { repo: String, page: String },
    #[error("the hub gives no access to {repo} (status {status}): {advice}")]
    Denied { repo: String, status: u16, advice: &'static str },
    #[error("{url} is not there (404{said}); check the name of the repository")]
    Missing { url: String, said: String },
    #[error("{host} answers with status {status}{}", waits(*.wait))]
    Busy { host: String, status: u16, wait: Option<Duration> },
    #[error("{host} answers with status {status}, which makes no sense here{said}")]
    Status { host: String, status: u16, said: String },
    #[error(
        "cannot reach {host}: {why}; is there a network, does HTTPS_PROXY fit? HF_HUB_OFFLINE=1 uses only what is cached"
    )]
    Unreachable { host: String, why: String },
    #[error(
        "no secure connection to {host}: {why}; certificates are the system's, or those that SSL_CERT_FILE names"
    )]
    Tls { host: String, why: String },
    #[error("{host} leads to {to}, which is {why}; refused")]
    Redirect { host: String, to: String, why: &'static str },
    #[error("{0}")]
    Broken(String),
    #[error("{url} does not answer as a hub does: {why}; does HF_ENDPOINT name one?")]
    Answer { url: String, why: String },
    #[error("{repo} lists a file named {name:?}: {why}; nothing was fetched")]
    Name { repo: String, name: String, why: &'static str },
    #[error("{0}")]
    Choice(String),
    #[error("not enough space in {}: {} needed, {} free; HF_HUB_CACHE names another folder", folder.display(), gb(*.needed), gb(*.free))]
    Space { folder: PathBuf, needed: u64, free: u64 },
    #[error("no space left for {}; make room and run again: it goes on where it stopped", path.display())]
    Full { path: PathBuf },
    #[error("what came has {kind} {found}, but {expected} was listed; it was removed, run again")]
    Hash { kind: &'static str, found: String, expected: String },
    #[error("the hub announces {found} for it, but listed {expected}")]
    Announced { found: String, expected: String },
    #[error("it changed on the server while it was fetched")]
    Changed,
    #[error("stopped, because another part failed")]
    Stopped,
    #[error("{repo} is not in the cache {}{}", folder.display(), if *.offline { ", and HF_HUB_OFFLINE forbids to fetch it" } else { "" })]
    NotCached { repo: String, folder: PathBuf, offline: bool },
    #[error("{}: {why}", path.display())]
    Io { path: PathBuf, why: io::Error },
    // Not a `source`: the text has it already, and whoever prints the chain would say it twice.
    #[error("{name}: {why}")]
    File { name: String, why: Box<Error> },
}

impl Error {
    /// May it be otherwise a little later?
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Error::Busy { .. } | Error::Unreachable { .. } | Error::Broken(_) | Error::Changed)
    }

    /// How long the server asks to wait.
    pub(crate) fn wait(&self) -> Option<Duration> {
        match self {
            Error::Busy { wait, .. } => *wait,
            _ => None,
        }
    }

    /// Says which file it was.
    pub(crate) fn in_file(self, name: &str) -> Error {
        Error::File { name: name.to_owned(), why: Box::new(self) }
    }

    /// For `map_err` of whatever was done with `path`.
    pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> Error + '_ {
        |why| match why.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::Full { path: path.into() },
            _ => Error::Io { path: path.into(), why },
        }
    }
}

/// Sizes of models, for people.
pub(crate) fn gb(bytes: u64) -> String {
    format!("{:.2} GB", bytes as f64 / 1e9)
}

fn waits(wait: Option<Duration>) -> String {
    match wait {
        Some(wait) => format!(" and asks to wait {} s; try again then", wait.as_secs()),
        None => "; try again later".into(),
    }
}
