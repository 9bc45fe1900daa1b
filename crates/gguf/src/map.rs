//! A file mapped into memory, and known to the guard against files that shrink.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::ops::Deref;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use crate::error::{Error, Result};
use crate::sigbus;

/// The bytes of one file as they were at opening.
pub(crate) struct Map {
    _guard: sigbus::Guard, // dropped before the map it speaks of
    map: memmap2::Mmap,
    file: File,
    identity: (u64, u64),
}

impl Map {
    /// Maps the whole of a regular file, read-only. No page is read yet.
    pub(crate) fn open(path: &Path) -> Result<Map> {
        let io = |doing| move |cause| Error::Io { doing, cause };
        // Asked before opening: opening a pipe would wait for a writer.
        let kind = fs::metadata(path).map_err(io("open the file"))?.file_type();
        if !kind.is_file() {
            let what = if kind.is_dir() { "a folder" } else { "a device or a pipe" };
            return Err(Error::NoFile { what });
        }
        let file = File::open(path).map_err(io("open the file"))?;
        let stat = file.metadata().map_err(io("look at the file"))?;
        // SAFETY: the map is private to this struct and only read. Another process may change the file under it: its
        // bytes are plain data for us, checked wherever they decide anything, and a read past the end of a file that
        // shrank is caught by the guard.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(io("map the file into memory"))?;
        let guard = sigbus::guard(&map, path);
        Ok(Map { _guard: guard, map, file, identity: (stat.dev(), stat.ino()) })
    }

    /// Copies bytes of the file from `offset` on, past the map: in as few and long reads as the system makes of it.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(out, offset).map_err(|cause| Error::Io { doing: "read the file", cause })
    }

    /// Device and inode: the same for two names of one file.
    pub(crate) fn identity(&self) -> (u64, u64) {
        self.identity
    }
}

impl Deref for Map {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}
