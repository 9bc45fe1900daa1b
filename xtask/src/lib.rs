//! House rules and chores of this repository. Not shipped.
#![forbid(unsafe_code)]

pub mod licences;
pub mod tidy;

use std::path::{Path, PathBuf};

/// The repository's root folder: the parent of this crate's own.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
