//! One file: from where an earlier attempt stopped to its place among the blobs.

use std::io::Read;
use std::time::Duration;

use crate::cache::Repo;
use crate::client::{Client, Reply};
use crate::error::{Error, Result};
use crate::listing::File;
use crate::partial::Partial;
use crate::patience::Patience;

/// An attempt that brings so much was no failure, however it ended.
const WORTH: u64 = 16 << 20;
const BUFFER: usize = 256 << 10;

/// A file that is to be fetched.
pub(crate) struct Download<'a> {
    pub(crate) client: &'a Client,
    pub(crate) repo: &'a Repo,
    pub(crate) patience: &'a Patience<'a>,
    pub(crate) url: String,
    pub(crate) file: &'a File,
    /// Bytes of one request at most.
    pub(crate) piece: u64,
    /// Its number, for whoever watches.
    pub(crate) number: usize,
}

impl Download<'_> {
    /// Fetches it, unless somebody else does so meanwhile.
    pub(crate) fn run(&self) -> Result<()> {
        let _held = self.lock()?;
        if !self.repo.has(self.file) {
            let told = |len| {
                self.tell(len);
                self.patience.go_on()
            };
            let partial = Partial::open(self.file, self.repo.partial(self.file), &told)?;
            let resumed = partial.len() > 0;
            match self.complete(partial) {
                // The old part may have been what is wrong.
                Err(Error::Hash { .. }) if resumed => {
                    let name = &self.file.path;
                    self.patience
                        .watch
                        .note(&format!("{name}: what an earlier run left is damaged; fetching it anew"));
                    self.complete(Partial::open(self.file, self.repo.partial(self.file), &told)?)?;
                }
                outcome => outcome?,
            }
        }
        self.tell(self.file.size);
        Ok(())
    }

    fn tell(&self, len: u64) {
        self.patience.watch.at(self.number, len);
    }

    /// Keeps other processes, of other programs too, from fetching the same.
    fn lock(&self) -> Result<std::fs::File> {
        let lock = self.repo.lock_file(self.file)?;
        let mut told = false;
        while let Err(std::fs::TryLockError::WouldBlock) = lock.try_lock() {
            if !told {
                self.patience
                    .watch
                    .note(&format!("{}: another program is fetching it; waiting", self.file.path));
                told = true;
            }
            self.patience.sleep(Duration::from_millis(500))?;
        }
        Ok(lock)
    }

    fn complete(&self, mut partial: Partial<'_>) -> Result<()> {
        let (mut failures, mut tag) = (0, None);
        while !partial.is_whole() {
            let before = partial.len();
            if let Err(e) = self.attempt(&mut partial, &mut tag) {
                let worth = partial.len().saturating_sub(before) >= WORTH;
                failures = if worth { 1 } else { failures + 1 };
                self.patience.bear(e, failures)?;
            }
        }
        partial.keep(&self.repo.blob(self.file))
    }

    /// One request for what is missing. `tag` is the version that the server says it sends; it must stay the same.
    fn attempt(&self, partial: &mut Partial<'_>, tag: &mut Option<String>) -> Result<()> {
        let (from, size) = (partial.len(), self.file.size);
        let to = size.min(from.saturating_add(self.piece));
        let mut headers = vec![];
        if (from, to) != (0, size) {
            headers.push(("range", format!("bytes={from}-{}", to - 1)));
            // Weak tags promise too little for this.
            headers.extend(tag.iter().filter(|t| t.starts_with('"')).map(|t| ("if-range", t.clone())));
        }
        let mut reply = self.client.get(&self.url, &headers)?;
        self.check_announced(&reply)?;
        let new = reply.header("etag");
        let changed = tag.is_some() && new != *tag;
        *tag = new;
        match reply.status {
            206 if !changed && self.is_range(&reply, from, to) => self.copy(&mut reply, partial, to),
            206 => {
                partial.restart()?;
                Err(Error::Changed)
            }
            // From the start, because it changed or because the server knows no ranges.
            _ => {
                partial.restart()?;
                self.copy(&mut reply, partial, size)
            }
        }
    }

    fn copy(&self, reply: &mut Reply, partial: &mut Partial<'_>, to: u64) -> Result<()> {
        let mut buffer = vec![0; BUFFER];
        loop {
            self.patience.go_on()?;
            match reply.body.read(&mut buffer) {
                Ok(0) if partial.len() == to => return Ok(()),
                Ok(0) => {
                    let len = partial.len();
                    return Err(Error::Broken(format!("the answer ended after {len} of {to} bytes")));
                }
                Ok(n) => partial.write(&buffer[..n])?,
                Err(e) => return Err(reply.broken(e)),
            }
            self.tell(partial.len());
        }
    }

    /// The hub says in the headers of its redirect what it leads to.
    fn check_announced(&self, reply: &Reply) -> Result<()> {
        let (hash, size) = &reply.linked;
        let listed = [(hash, self.file.hash.as_str().to_owned()), (size, self.file.size.to_string())];
        for (found, expected) in listed {
            if let Some(found) = found.clone().filter(|f| *f != expected) {
                return Err(Error::Announced { found, expected });
            }
        }
        Ok(())
    }

    /// Does it say `bytes 100-199/200`, as it should?
    fn is_range(&self, reply: &Reply, from: u64, to: u64) -> bool {
        let said = reply.header("content-range").unwrap_or_default();
        let total = said.strip_prefix(&format!("bytes {from}-{}/", to - 1));
        total.is_some_and(|total| total == "*" || total == self.file.size.to_string())
    }
}
