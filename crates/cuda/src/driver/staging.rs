//! The way to and from a GPU: two pieces of pinned memory, one of which is filled while the other is copied.
//!
//! The driver copies from ordinary memory at a seventh of the speed. Filling takes several threads to keep up.
#![allow(unsafe_code)]

use std::ffi::c_void;

use cudarc::driver::sys::{self, CUdeviceptr, CUevent, CUevent_flags, CUstream};

use super::check;
use super::handle::Owned;
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
