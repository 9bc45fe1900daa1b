//! A file that is not all there yet: `HASH.incomplete`, from which a later run goes on.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use ring::digest::Context;

use crate::error::{Error, Result};
use crate::hash::finish;
use crate::listing::File;

/// What is there is hashed already.
pub(crate) struct Partial<'a> {
    wanted: &'a File,
    path: PathBuf,
    file: fs::File,
    len: u64,
    hasher: Context,
}

impl<'a> Partial<'a> {
    /// Opens what an earlier run left, or begins anew; `read` hears how much of it is hashed, and may end that.
    pub(crate) fn open(
        wanted: &'a File,
        path: PathBuf,
        read: &dyn Fn(u64) -> Result<()>,
    ) -> Result<Partial<'a>> {
        // Nobody appends: even two writers that no lock keeps apart would put the same bytes in the same places.
        let open = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = open.map_err(Error::at(&path))?;
        let mut partial = Partial { wanted, path, file, len: 0, hasher: wanted.hash.hasher(wanted.size) };
        let there = partial.file.metadata().map_err(Error::at(&partial.path))?.len();
        if there > wanted.size {
            partial.restart()?;
            return Ok(partial);
        }
        let mut buffer = vec![0; 1 << 20];
        loop {
            match partial.file.read(&mut buffer).map_err(Error::at(&partial.path))? {
                0 => return Ok(partial),
                n => {
                    partial.hasher.update(&buffer[..n]);
                    partial.len += n as u64;
                    read(partial.len)?;
                }
            }
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.len == self.wanted.size
    }

    /// Adds what came.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if self.wanted.size - self.len < bytes.len() as u64 {
            let expected = format!("{} bytes", self.wanted.size);
            return Err(Error::Announced { found: "more bytes".into(), expected });
        }
        self.file.write_all(bytes).map_err(Error::at(&self.path))?;
        self.hasher.update(bytes);
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Forgets what is there.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.file.set_len(0).map_err(Error::at(&self.path))?;
        self.file.seek(SeekFrom::Start(0)).map_err(Error::at(&self.path))?;
        self.hasher = self.wanted.hash.hasher(self.wanted.size);
        self.len = 0;
        Ok(())
    }

    /// Gives a whole file its name, or removes it if its hash is wrong.
    pub(crate) fn keep(self, name: &Path) -> Result<()> {
        let found = finish(self.hasher);
        if found != self.wanted.hash.as_str() {
            fs::remove_file(&self.path).map_err(Error::at(&self.path))?;
            let kind = self.wanted.hash.kind();
            return Err(Error::Hash { kind, found, expected: self.wanted.hash.as_str().into() });
        }
        // A name must not survive a power failure that its content does not.
        self.file.sync_all().map_err(Error::at(&self.path))?;
        fs::rename(&self.path, name).map_err(Error::at(name))
    }
}
