//! A device that keeps account of what it is asked for, and computes nothing.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use shardwright_cuda::Result;
use shardwright_cuda::device::{Device, Kernel, Launch, Recording};
use shardwright_cuda::unit::Unit;

/// What a device was asked for.
#[derive(Clone, Default)]
pub(crate) struct Taken {
    /// Bytes of memory, and of inboxes, piece by piece.
    pub(crate) bytes: Arc<Mutex<[Vec<u64>; 2]>>,
    pub(crate) kernels: Arc<Mutex<BTreeSet<Unit>>>,
}

/// The device.
pub(crate) struct Blank {
    taken: Taken,
    next: u64,
    recordings: usize,
}

impl Blank {
    pub(crate) fn new(taken: Taken) -> Blank {
        Blank { taken, next: 1 << 20, recordings: 0 }
    }

    fn take(&mut self, kind: usize, bytes: usize) -> Result<u64> {
        self.taken.bytes.lock().unwrap()[kind].push(bytes as u64);
        self.next += (bytes as u64).max(1).next_multiple_of(256);
        Ok(self.next)
    }
}

impl Device for Blank {
    fn multiprocessors(&self) -> u32 {
        132
    }

    fn alloc(&mut self, bytes: usize) -> Result<u64> {
        self.take(0, bytes)
    }

    fn inbox(&mut self, bytes: usize) -> Result<u64> {
        self.take(1, bytes)
    }

    fn pinned(&mut self, _: usize) -> Result<u64> {
        Ok(0)
    }

    fn glance(&self, _: u64, out: &mut [u32]) {
        out.fill(0);
    }

    fn upload(&mut self, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn repeat(&mut self, _: u64, _: &[u8], _: usize) -> Result<()> {
        Ok(())
    }

    fn download(&mut self, _: u64, _: &mut [u8]) -> Result<()> {
        Ok(())
    }

    fn load(&mut self, units: &[Unit]) -> Result<Vec<Kernel>> {
        self.taken.kernels.lock().unwrap().extend(units.iter().cloned());
        Ok((0..units.len()).map(Kernel).collect())
    }

    fn launch(&mut self, _: &Launch) -> Result<()> {
        Ok(())
    }

    fn record(&mut self, _: &[Launch]) -> Result<Recording> {
        self.recordings += 1;
        Ok(Recording(self.recordings))
    }

    fn replay(&mut self, _: Recording) -> Result<()> {
        Ok(())
    }
}
