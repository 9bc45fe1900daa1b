//! What runs kernels.

use std::ops::DerefMut;

use crate::Result;
use crate::unit::Unit;

/// A kernel that a device has made ready. Index in the order of [`Device::load`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel(pub usize);

/// One launch, every number of it known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// What.
    pub kernel: Kernel,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared: u32,
    /// Addresses, one a parameter.
    pub args: Vec<u64>,
}

/// Launches that a device has recorded. Index in the order of [`Device::record`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recording(pub usize);

/// Memory of the host that a device copies from best. Any thread may fill it; the one that speaks to the device drops it.
pub type Piece = Box<dyn DerefMut<Target = [u8]> + Send>;

/// Gives up, from any thread, what a device waits for that comes from others.
pub type Abort = Box<dyn Fn() + Send>;

/// Memory and one queue: what is asked for is done in the order in which it was asked for.
pub trait Device: Send {
    /// Multiprocessors: a kernel's blocks are best a few for each.
    fn multiprocessors(&self) -> u32;

    /// Comes to the thread that alone speaks to it from now on: the one of a rank among others.
    ///
    /// # Errors
    /// If there is too little memory of the host for what lies near that thread.
    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    /// Memory of `bytes` bytes, all zero, at a multiple of 256; given back with the device.
    ///
    /// # Errors
    /// If there is not enough.
    fn alloc(&mut self, bytes: usize) -> Result<u64>;

    /// Memory that all devices of its group write, every bit of it set, at an address that all of them know; given back with
    /// the device.
    ///
    /// # Errors
    /// If there is not enough, or they can't.
    fn inbox(&mut self, bytes: usize) -> Result<u64>;

    /// Memory of the host that kernels write, all zero; given back with the device.
    ///
    /// # Errors
    /// If there is not enough.
    fn pinned(&mut self, bytes: usize) -> Result<u64>;

    /// The first words of pinned memory as they are now, whatever else is being done.
    fn glance(&self, from: u64, out: &mut [u32]);

    /// Copies to the device. May return before it is done, but `data` is free again.
    ///
    /// # Errors
    /// If the device is broken.
    fn upload(&mut self, to: u64, data: &[u8]) -> Result<()>;

    /// A piece of so many bytes, to be sent.
    ///
    /// # Errors
    /// If the host has too little memory for it.
    fn lend(&mut self, bytes: usize) -> Result<Piece> {
        Ok(Box::new(vec![0; bytes]))
    }

    /// Copies the first `bytes` bytes of a piece to the device. If that takes longer than this, the piece comes back by [`Device::sent`].
    ///
    /// # Errors
    /// If the device is broken.
    fn send(&mut self, to: u64, piece: Piece, bytes: usize) -> Result<Option<Piece>> {
        self.upload(to, &piece[..bytes])?;
        Ok(Some(piece))
    }

    /// The piece that is under way for the longest time, once it has arrived. None if there is none.
    ///
    /// # Errors
    /// If the device is broken.
    fn sent(&mut self) -> Result<Option<Piece>> {
        Ok(None)
    }

    /// Fills `bytes` bytes with a pattern, again and again from its beginning.
    ///
    /// # Errors
    /// If the device is broken.
    fn repeat(&mut self, to: u64, pattern: &[u8], bytes: usize) -> Result<()>;

    /// Copies from the device, when all before it is done.
    ///
    /// # Errors
    /// If the device is broken, which may be the first sign of a launch that went wrong.
    fn download(&mut self, from: u64, out: &mut [u8]) -> Result<()>;

    /// Is it still there? Asked while there are no steps.
    ///
    /// # Errors
    /// If it is broken.
    fn check(&mut self) -> Result<()> {
        Ok(())
    }

    /// What ends a sum of the group's library whose other ranks do not come, if there is that library. Kernels that wait for peers give up
    /// by themselves.
    fn abort(&self) -> Option<Abort> {
        None
    }

    /// Makes kernels ready. A sum of the group's library ([`Unit::all_reduce`]) is one of them: of a grid's third axis so many rows, from
    /// its first argument to its second.
    ///
    /// # Errors
    /// If one can't be compiled or loaded; if the device is in no group that has such a library.
    fn load(&mut self, units: &[Unit]) -> Result<Vec<Kernel>>;

    /// Gives back all memory and recordings, which nobody may use any more, on no device of its group; kernels stay.
    ///
    /// # Errors
    /// If the device is broken.
    fn clear(&mut self) -> Result<()> {
        Ok(())
    }

    /// Starts a kernel.
    ///
    /// # Errors
    /// If the device refuses it or is broken.
    fn launch(&mut self, launch: &Launch) -> Result<()>;

    /// Records launches, to be replayed as one.
    ///
    /// # Errors
    /// If the device refuses.
    fn record(&mut self, launches: &[Launch]) -> Result<Recording>;

    /// Starts what was recorded.
    ///
    /// # Errors
    /// If the device is broken.
    fn replay(&mut self, recording: Recording) -> Result<()>;
}
