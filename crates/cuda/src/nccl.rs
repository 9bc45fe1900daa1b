//! NVIDIA's library of sums over GPUs. Nothing here uses it yet; where it lies says what could be compared with.

use std::path::{Path, PathBuf};

use crate::find::Wanted;

const NCCL: Wanted = Wanted {
    title: "NCCL, NVIDIA's library of sums over GPUs,",
    names: &["libnccl.so.2"],
    variable: "SHARDWRIGHT_NCCL",
    cure: "`pip install nvidia-nccl-cu12` brings it",
};

/// Where the loader looks, as far as that can be known without it.
const LOADED: [&str; 4] =
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib"];

/// Its file.
///
/// # Errors
/// If there is none, with what was searched.
pub fn find() -> Result<PathBuf, String> {
    NCCL.first(&|name| std::env::var_os(name), |file| {
        let folders = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let folders = std::env::split_paths(&folders).chain(LOADED.map(PathBuf::from));
        // an absolute path stays what it is
        let found = folders.map(|folder| folder.join(file)).find(|path| path.is_file());
        found.ok_or_else(|| not_there(file))
    })
}

fn not_there(file: &Path) -> String {
    format!("{} is no file", file.display())
}
