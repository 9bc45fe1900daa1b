//! What the driver gives and wants back.
#![allow(unsafe_code)]

use std::mem::{self, MaybeUninit};
use std::ptr;

use cudarc::driver::sys::{
    self, CUcontext, CUdevResource, CUdevResourceType, CUdevice, CUgreenCtx, CUgreenCtxCreate_flags, CUresult,
};

use super::check;
use crate::{Error, Result};

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

/// The primary context of a GPU, which all of a process share; or the same with only some of its multiprocessors, on which then
/// everything runs that is started in it.
pub(super) struct Context {
    device: CUdevice,
    primary: CUcontext,
    context: CUcontext,
    part: Option<Owned<CUgreenCtx>>,
}

// SAFETY: the driver's handles may be used by any thread, by several at a time, and are not changed.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    pub(super) fn of(device: CUdevice) -> Result<Context> {
        let mut primary = ptr::null_mut();
        // SAFETY: room for a handle, given back when this is dropped.
        let result = unsafe { sys::cuDevicePrimaryCtxRetain(&mut primary, device) };
        check(result, || format!("a context on GPU {device}"))?;
        Ok(Context { device, primary, context: primary, part: None })
    }

    /// The same with so many multiprocessors.
    pub(super) fn with(device: CUdevice, multiprocessors: u32) -> Result<Context> {
        let mut context = Context::of(device)?;
        let what = || format!("{multiprocessors} multiprocessors of GPU {device} by themselves");
        let mut some = part_of(device, multiprocessors)?;
        let (mut described, flags) = (ptr::null_mut(), CUgreenCtxCreate_flags::CU_GREEN_CTX_DEFAULT_STREAM);
        // SAFETY: room for a handle; what is described is alive.
        check(unsafe { sys::cuDevResourceGenerateDesc(&mut described, &mut some, 1) }, what)?;
        // SAFETY: a context is made and destroyed.
        let part = unsafe {
            let make = |part| sys::cuGreenCtxCreate(part, described, device, flags as u32);
            Owned::new(what, make, sys::cuGreenCtxDestroy)?
        };
        // SAFETY: room for a handle; the part is alive, and is as long as this is.
        check(unsafe { sys::cuCtxFromGreenCtx(&mut context.context, part.get()) }, what)?;
        context.part = Some(part);
        Ok(context)
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
        if let Some(part) = self.part.take() {
            // SAFETY: the context is alive; what is about to be destroyed must not be that of a thread.
            unsafe { sys::cuCtxSetCurrent(self.primary) };
            drop(part);
        }
        // SAFETY: retained once, released once.
        unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// So many of a GPU's multiprocessors. The driver gives them by groups, eight at a time on most cards.
fn part_of(device: CUdevice, wanted: u32) -> Result<CUdevResource> {
    let kind = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
    // SAFETY: numbers, bytes and an enumeration that begins with zero.
    let [mut all, mut some, mut rest] = unsafe { mem::zeroed::<[CUdevResource; 3]>() };
    // SAFETY: room for what there is; after it has succeeded it is one of multiprocessors, and so is what is made of it.
    let count = |resource: &CUdevResource| unsafe { resource.__bindgen_anon_1.sm.smCount };
    let what = || format!("the multiprocessors of GPU {device}");
    // SAFETY: room for what there is.
    check(unsafe { sys::cuDeviceGetDevResource(device, &mut all, kind) }, what)?;
    match count(&all) {
        there if there == wanted => return Ok(all),
        there if there < wanted => {
            return Err(Error::Driver(format!("GPU {device} has {there} multiprocessors, not {wanted}")));
        }
        _ => {}
    }
    let (mut groups, what) = (1, || format!("{wanted} of the multiprocessors of GPU {device}"));
    // SAFETY: room for one group and for what is left.
    let parted =
        unsafe { sys::cuDevSmResourceSplitByCount(&mut some, &mut groups, &all, &mut rest, 0, wanted) };
    check(parted, what)?;
    match count(&some) {
        given if given == wanted => Ok(some),
        given => Err(Error::Driver(format!(
            "GPU {device} gives its multiprocessors by groups, {given} in place of {wanted}: ask for {given}"
        ))),
    }
}
