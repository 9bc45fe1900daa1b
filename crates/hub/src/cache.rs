//! The cache that tools of the hub share: `models--OWNER--REPO/{blobs,refs,snapshots}`.
//!
//! Content lies in `blobs` under its hash; `snapshots/COMMIT` has the repository's names as relative links to it;
//! `refs/main` holds the commit.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::hash::is_hex;
use crate::listing::{File, stray};

/// Folders in folders that are looked into.
const DEPTH: usize = 8;

/// One repository's part of the cache.
pub(crate) struct Repo {
    cache: PathBuf,
    name: String,
}

impl Repo {
    /// `repo` is `OWNER/REPO`, checked.
    pub(crate) fn new(cache: &Path, repo: &str) -> Repo {
        Repo { cache: cache.to_owned(), name: format!("models--{}", repo.replace('/', "--")) }
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.cache.join(&self.name)
    }

    /// Where the content of a file lies, once it is whole.
    pub(crate) fn blob(&self, file: &File) -> PathBuf {
        self.folder().join("blobs").join(file.hash.as_str())
    }

    /// Where it lies until then.
    pub(crate) fn partial(&self, file: &File) -> PathBuf {
        self.folder().join("blobs").join(format!("{}.incomplete", file.hash.as_str()))
    }

    /// Is the whole file there, whoever fetched it?
    pub(crate) fn has(&self, file: &File) -> bool {
        fs::metadata(self.blob(file)).is_ok_and(|m| m.is_file() && m.len() == file.size)
    }

    /// Bytes of a file that are still to come.
    pub(crate) fn missing(&self, file: &File) -> u64 {
        if self.has(file) {
            return 0;
        }
        let there = fs::metadata(self.partial(file)).map_or(0, |m| m.len());
        if there > file.size { file.size } else { file.size - there }
    }

    /// Makes the folders, and finds out whether `needed` bytes fit.
    pub(crate) fn prepare(&self, needed: u64) -> Result<()> {
        let folder = self.folder().join("blobs");
        fs::create_dir_all(&folder).map_err(Error::at(&folder))?;
        let stat = rustix::fs::statvfs(&folder).map_err(|e| Error::at(&folder)(e.into()))?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        match free >= needed {
            true => Ok(()),
            false => Err(Error::Space { folder, needed, free }),
        }
    }

    /// The file that all tools lock while they fetch this one.
    pub(crate) fn lock_file(&self, file: &File) -> Result<fs::File> {
        let folder = self.cache.join(".locks").join(&self.name);
        fs::create_dir_all(&folder).map_err(Error::at(&folder))?;
        let path = folder.join(format!("{}.lock", file.hash.as_str()));
        let open = fs::OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        open.map_err(Error::at(&path))
    }

    /// Gives blobs their names at this commit, then makes that commit `main`. The first file's path.
    pub(crate) fn publish(&self, commit: &str, files: &[&File]) -> Result<PathBuf> {
        let paths = files.iter().map(|f| self.link(commit, f)).collect::<Result<Vec<_>>>()?;
        let main = self.folder().join("refs/main");
        if fs::read_to_string(&main).ok().as_deref() != Some(commit) {
            replace(&main, |new| fs::write(new, commit))?;
        }
        Ok(paths.into_iter().next().unwrap_or_default())
    }

    fn link(&self, commit: &str, file: &File) -> Result<PathBuf> {
        let path = self.folder().join("snapshots").join(commit).join(&file.path);
        let up = "../".repeat(2 + file.path.split('/').count() - 1);
        let target = format!("{up}blobs/{}", file.hash.as_str());
        // What leads to the right content may stay, whatever it is: the cache may be read-only.
        let same =
            |a: &Path, b: &Path| a.canonicalize().is_ok_and(|a| b.canonicalize().is_ok_and(|b| a == b));
        if !same(&path, &self.blob(file)) {
            replace(&path, |new| std::os::unix::fs::symlink(&target, new))?;
        }
        Ok(path)
    }

    /// The commit that is `main` here, and the GGUF files that are there: names, paths and sizes.
    pub(crate) fn snapshot(&self) -> Option<(PathBuf, Vec<(String, u64)>)> {
        let commit = fs::read_to_string(self.folder().join("refs/main")).ok()?;
        let commit = commit.trim();
        let folder = self.folder().join("snapshots").join(Some(commit).filter(|c| is_hex(c))?);
        let mut files = vec![];
        collect(&folder, "", DEPTH, &mut files);
        files.sort();
        Some((folder, files))
    }
}

fn collect(folder: &Path, prefix: &str, depth: usize, files: &mut Vec<(String, u64)>) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let name = format!("{prefix}{name}");
        // A link whose blob is gone is no file.
        let Ok(meta) = fs::metadata(entry.path()) else { continue };
        if meta.is_dir() && depth > 0 {
            collect(&entry.path(), &format!("{name}/"), depth - 1, files);
        } else if meta.is_file() && name.ends_with(".gguf") && stray(&name).is_none() {
            files.push((name, meta.len()));
        }
    }
}

/// Makes `path` by `make`, at once and whole: whoever looks sees the old or the new.
fn replace(path: &Path, make: impl Fn(&Path) -> std::io::Result<()>) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(Error::at(folder))?;
    let new = folder.join(format!(".{}.tmp", std::process::id()));
    let _ = fs::remove_file(&new); // of a process of this number that ended in between
    let made = make(&new).and_then(|()| fs::rename(&new, path));
    made.map_err(|e| {
        let _ = fs::remove_file(&new); // what is reported is why there is no other
        Error::at(path)(e)
    })
}
