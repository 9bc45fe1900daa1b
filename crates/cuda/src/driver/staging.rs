//! The way to and from a GPU: two pieces of pinned memory, one of which is filled while the other is copied; and pieces that others fill.
//!
//! The driver copies from ordinary memory at a seventh of the speed. Filling takes several threads to keep up.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use cudarc::driver::sys::{self, CUdeviceptr, CUevent, CUevent_flags, CUstream};

use super::check;
use super::handle::{Context, Owned};
use crate::device::Piece;
use crate::{Result, threads};

/// Bytes of a half.
const HALF: usize = 32 << 20;
/// What a thread copies at once.
const PART: usize = 2 << 20;
/// Threads that fill a half: more bring nothing once memory is the limit.
const THREADS: usize = 8;
/// Pieces begin at multiples of it.
const ALIGNMENT: usize = 256;

pub(super) struct Staging {
    halves: [Half; 2],
    /// The half that is being filled, and up to where it is.
    now: usize,
    used: usize,
}

struct Half {
    memory: Owned<*mut c_void>,
    /// Happens when everything that was in it is copied.
    copied: Owned<CUevent>,
}

impl Half {
    fn new() -> Result<Half> {
        // SAFETY: memory and event are made by one function and given back by its twin.
        unsafe {
            let what = || format!("{HALF} bytes of pinned memory");
            let memory = Owned::new(what, |m| sys::cuMemHostAlloc(m, HALF, 0), sys::cuMemFreeHost)?;
            let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
            let copied =
                Owned::new(|| "an event".into(), |e| sys::cuEventCreate(e, flags), sys::cuEventDestroy_v2)?;
            Ok(Half { memory, copied })
        }
    }

    /// # Safety
    /// No copy to or from these bytes is under way.
    unsafe fn bytes(&mut self, from: usize, count: usize) -> &mut [u8] {
        assert!(from + count <= HALF, "within the half");
        // SAFETY: the memory has `HALF` bytes and lives as long as `self`.
        unsafe { std::slice::from_raw_parts_mut(self.memory.get().cast::<u8>().add(from), count) }
    }
}

impl Staging {
    /// For a context that is current.
    pub(super) fn new() -> Result<Staging> {
        Ok(Staging { halves: [Half::new()?, Half::new()?], now: 0, used: 0 })
    }

    /// Returns when `data` is in pinned memory; the rest the stream does.
    pub(super) fn upload(&mut self, stream: CUstream, to: CUdeviceptr, data: &[u8]) -> Result<()> {
        let (mut to, mut rest) = (to, data);
        while !rest.is_empty() {
            if self.used == HALF {
                self.turn(stream)?;
            }
            let (piece, after) = rest.split_at(rest.len().min(HALF - self.used));
            // SAFETY: nothing beyond `used` is being copied since `turn` waited.
            let room = unsafe { self.halves[self.now].bytes(self.used, piece.len()) };
            fill(room, piece);
            // SAFETY: both sides have so many bytes, the caller says so of `to`; the room is not written before `turn` has waited.
            let result = unsafe { sys::cuMemcpyHtoDAsync_v2(to, room.as_ptr().cast(), piece.len(), stream) };
            check(result, || format!("copying {} bytes to {to:#x} on the GPU", piece.len()))?;
            self.used = (self.used + piece.len()).next_multiple_of(ALIGNMENT);
            (to, rest) = (to + piece.len() as u64, after);
        }
        Ok(())
    }

    /// Goes on with the other half, when what was in it is copied.
    fn turn(&mut self, stream: CUstream) -> Result<()> {
        let full = self.halves[self.now].copied.get();
        // SAFETY: event and stream are alive.
        check(unsafe { sys::cuEventRecord(full, stream) }, || "marking a copy to the GPU".into())?;
        (self.now, self.used) = (1 - self.now, 0);
        let copied = self.halves[self.now].copied.get();
        // SAFETY: the event is alive; one that was never recorded has happened.
        check(unsafe { sys::cuEventSynchronize(copied) }, || "waiting for a copy to the GPU".into())
    }

    /// Returns when `out` is there, and with it everything that was asked for before.
    pub(super) fn download(&mut self, stream: CUstream, from: CUdeviceptr, out: &mut [u8]) -> Result<()> {
        for (i, piece) in out.chunks_mut(HALF).enumerate() {
            let from = from + (i * HALF) as u64;
            let half = &mut self.halves[self.now];
            // SAFETY: the half has the room, the caller says that `from` has the bytes. Uploads from the half come before this in
            // the stream.
            let result = unsafe { sys::cuMemcpyDtoHAsync_v2(half.memory.get(), from, piece.len(), stream) };
            check(result, || format!("copying {} bytes from {from:#x} on the GPU", piece.len()))?;
            wait(stream)?;
            // SAFETY: the stream has done all it was asked for.
            fill(piece, unsafe { half.bytes(0, piece.len()) });
        }
        if !out.is_empty() {
            self.used = 0;
        }
        Ok(())
    }
}

/// Pinned memory in the hands of somebody.
struct Lent {
    // in the order in which they are given back
    memory: Owned<*mut c_void>,
    context: Arc<Context>,
    bytes: usize,
}

// SAFETY: memory is memory.
unsafe impl Send for Lent {}

impl Deref for Lent {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: there are so many bytes, which the system has written with zeros, and they live as long as `self`.
        unsafe { std::slice::from_raw_parts(self.memory.get().cast(), self.bytes) }
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; a piece that is being copied belongs to `Sending`, which gives it to nobody.
        unsafe { std::slice::from_raw_parts_mut(self.memory.get().cast(), self.bytes) }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // whichever thread it is; the memory goes after this
        self.context.enter().ok();
    }
}

/// At least so many bytes of pinned memory, for a context that is current.
pub(super) fn lend(context: &Arc<Context>, bytes: usize) -> Result<Piece> {
    let (bytes, what) = (bytes.max(1), || format!("{bytes} bytes of pinned memory"));
    // SAFETY: memory is made and given back.
    let memory = unsafe { Owned::new(what, |m| sys::cuMemHostAlloc(m, bytes, 0), sys::cuMemFreeHost)? };
    Ok(Box::new(Lent { memory, context: Arc::clone(context), bytes }))
}

/// Pieces that are being copied to a GPU, in order, each with what happens when it is. They may only go once the stream has been waited for.
#[derive(Default)]
pub(super) struct Sending {
    under_way: VecDeque<(Piece, Owned<CUevent>)>,
    idle: Vec<Owned<CUevent>>,
}

impl Sending {
    /// Begins to copy the first bytes of a piece.
    pub(super) fn send(
        &mut self,
        stream: CUstream,
        to: CUdeviceptr,
        piece: Piece,
        bytes: usize,
    ) -> Result<()> {
        let arrived = self.idle.pop().map_or_else(arrival, Ok)?;
        let from = piece[..bytes].as_ptr().cast();
        // before anything is begun: whatever becomes of it, the piece is kept until the stream has been waited for
        self.under_way.push_back((piece, arrived));
        let arrived = self.under_way[self.under_way.len() - 1].1.get();
        // SAFETY: both sides have so many bytes, the caller says so of `to`; nobody has the piece until the copy is waited for.
        let result = unsafe { sys::cuMemcpyHtoDAsync_v2(to, from, bytes, stream) };
        check(result, || format!("copying {bytes} bytes to {to:#x} on the GPU"))?;
        // SAFETY: event and stream are alive.
        check(unsafe { sys::cuEventRecord(arrived, stream) }, || "marking a copy to the GPU".into())
    }

    /// The first piece of those under way, when it has arrived.
    pub(super) fn sent(&mut self) -> Result<Option<Piece>> {
        let Some((_, arrived)) = self.under_way.front() else { return Ok(None) };
        // SAFETY: the event is alive.
        let result = unsafe { sys::cuEventSynchronize(arrived.get()) };
        check(result, || "waiting for a copy to the GPU".into())?;
        Ok(self.under_way.pop_front().map(|(piece, arrived)| {
            self.idle.push(arrived);
            piece
        }))
    }
}

/// An event for which a thread waits asleep: others need its core.
fn arrival() -> Result<Owned<CUevent>> {
    let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32 | CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32;
    // SAFETY: an event is made and destroyed.
    unsafe { Owned::new(|| "an event".into(), |e| sys::cuEventCreate(e, flags), sys::cuEventDestroy_v2) }
}

/// Until the stream has done everything.
pub(super) fn wait(stream: CUstream) -> Result<()> {
    // SAFETY: the stream is alive.
    let result = unsafe { sys::cuStreamSynchronize(stream) };
    check(result, || {
        "waiting for the GPU (a kernel before this went wrong; CUDA_LAUNCH_BLOCKING=1 tells which)".into()
    })
}

fn fill(to: &mut [u8], from: &[u8]) {
    if from.len() <= PART {
        return to.copy_from_slice(from);
    }
    let parts = to.chunks_mut(PART).zip(from.chunks(PART));
    threads::share(threads::available().min(THREADS), parts, |(to, from)| to.copy_from_slice(from));
}
