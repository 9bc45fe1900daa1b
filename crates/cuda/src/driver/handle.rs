//! What the driver gives and wants back.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ptr;

use cudarc::driver::sys::{self, CUcontext, CUdevice, CUresult};

use super::check;
use crate::Result;

/// A handle of the driver's, given back when dropped. Its context has to be current then.
pub(super) struct Owned<T: Copy> {
    handle: T,
    release: unsafe fn(T) -> CUresult,
}

impl<T: Copy> Owned<T> {
    /// # Safety
    /// Where `make` succeeds it has left a handle that `release` takes, and that nothing else gives back.
    pub(super) unsafe fn new(
        what: impl FnOnce() -> String,
        make: impl FnOnce(*mut T) -> CUresult,
        release: unsafe fn(T) -> CUresult,
    ) -> Result<Owned<T>> {
        let mut handle = MaybeUninit::uninit();
        check(make(handle.as_mut_ptr()), what)?;
        // SAFETY: it has succeeded.
        Ok(Owned { handle: unsafe { handle.assume_init() }, release })
    }

    /// Valid as long as `self`.
    pub(super) fn get(&self) -> T {
        self.handle
    }
}

impl<T: Copy> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: as `new` demands. An error here has been one before, and there is nobody to tell.
        unsafe { (self.release)(self.handle) };
    }
}

/// The primary context of a GPU, which all of a process share.
pub(super) struct Context {
    device: CUdevice,
    context: CUcontext,
}

impl Context {
    pub(super) fn of(device: CUdevice) -> Result<Context> {
        let mut context = ptr::null_mut();
        // SAFETY: room for a handle, given back when this is dropped.
        let result = unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, device) };
        check(result, || format!("a context on GPU {device}"))?;
        Ok(Context { device, context })
    }

    /// Makes it that of the calling thread, whichever that is by now.
    pub(super) fn enter(&self) -> Result<()> {
        // SAFETY: the context is alive.
        let result = unsafe { sys::cuCtxSetCurrent(self.context) };
        check(result, || format!("the context of GPU {}", self.device))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once, released once.
        unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}
