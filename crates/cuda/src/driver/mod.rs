//! NVIDIA's driver: whether it is there, which GPUs it shows, and what its errors mean.
#![allow(unsafe_code)]

mod gpu;
mod handle;
mod inbox;
mod nccl;
mod staging;

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use cudarc::driver::sys::{self, CUdevice, CUdevice_attribute as Attribute, CUresult};

pub use gpu::{Gpu, Way};
pub use nccl::Nccl;

use crate::{Error, Result};

/// The oldest driver that has all the functions we use. The binding panics where one is missing.
const OLDEST: i32 = 12040;

/// What a GPU is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuInfo {
    /// Its number among those that the driver shows, which `CUDA_VISIBLE_DEVICES` may change.
    pub index: usize,
    /// What its maker calls it.
    pub name: String,
    /// Compute capability.
    pub capability: (u32, u32),
    /// All its memory, in bytes.
    pub memory: u64,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Level-2 cache, in bytes.
    pub l2: u64,
    /// Bytes a second that its memory could give.
    pub bandwidth: u64,
    /// Shared memory that a block may have, in bytes.
    pub shared: u32,
    /// The driver's version of CUDA, major and minor.
    pub driver: (i32, i32),
    /// Where it is plugged in, such as `0000:17:00.0`.
    pub place: String,
}

/// An error unless the driver has done what was asked.
fn check(result: CUresult, what: impl FnOnce() -> String) -> Result<()> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        _ => Err(Error::Cuda { what: what(), why: words(result) }),
    }
}

/// The driver's own: `out of memory (CUDA_ERROR_OUT_OF_MEMORY)`.
fn words(result: CUresult) -> String {
    let mut text: *const c_char = ptr::null();
    // SAFETY: leaves null or a constant text.
    let text = unsafe {
        sys::cuGetErrorString(result, &mut text);
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy())
    };
    format!("{} ({result:?})", text.as_deref().unwrap_or("an error that the driver has no words for"))
}

/// Makes the driver ready, once or again. Gives its version.
fn start() -> Result<i32> {
    // SAFETY: loads the driver's library, whose initialisers are made to run in any process.
    if !unsafe { sys::is_culib_present() } {
        return Err(Error::Driver("libcuda.so.1 is not there; install NVIDIA's driver".into()));
    }
    let mut version = 0;
    // SAFETY: no arguments; room for a number. Both exist in every driver.
    let (ready, known) = unsafe { (sys::cuInit(0), sys::cuDriverGetVersion(&mut version)) };
    if ready != CUresult::CUDA_SUCCESS {
        let hint = match ready {
            CUresult::CUDA_ERROR_NO_DEVICE => format!("; CUDA_VISIBLE_DEVICES {}", visible()),
            _ => String::new(),
        };
        return Err(Error::Driver(format!("the driver does not start: {}{hint}", words(ready))));
    }
    check(known, || "the driver's version".into())?;
    if version < OLDEST {
        let ((major, minor), (old, older)) = (split(OLDEST), split(version));
        let why = format!("the driver is of CUDA {old}.{older}; {major}.{minor} is the least, so update it");
        return Err(Error::Driver(why));
    }
    Ok(version)
}

/// What the user's choice of GPUs is, for errors.
fn visible() -> String {
    match std::env::var("CUDA_VISIBLE_DEVICES") {
        Ok(list) => format!("is `{list}`"),
        Err(_) => "is not set".into(),
    }
}

/// Major and minor of a version as the driver gives it.
fn split(version: i32) -> (i32, i32) {
    (version / 1000, version % 1000 / 10)
}

/// All GPUs that the driver shows.
fn list() -> Result<Vec<GpuInfo>> {
    let driver = split(start()?);
    let mut count = 0;
    // SAFETY: room for a number.
    check(unsafe { sys::cuDeviceGetCount(&mut count) }, || "the number of GPUs".into())?;
    if count == 0 {
        let why = format!("the driver shows none; CUDA_VISIBLE_DEVICES {}", visible());
        return Err(Error::Driver(why));
    }
    (0..count).map(|index| describe(index, driver)).collect()
}

fn describe(index: c_int, driver: (i32, i32)) -> Result<GpuInfo> {
    let device = device(index)?;
    let (mut name, mut place): ([c_char; 256], [c_char; 32]) = ([0; 256], [0; 32]);
    let mut memory = 0;
    // SAFETY: room for a name and a place, which end with NUL, and for a number.
    let [name, place] = unsafe {
        let asked = || format!("the name of GPU {index}");
        check(sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int - 1, device), asked)?;
        let asked = || format!("the memory of GPU {index}");
        check(sys::cuDeviceTotalMem_v2(&mut memory, device), asked)?;
        let asked = || format!("the PCI bus of GPU {index}");
        check(sys::cuDeviceGetPCIBusId(place.as_mut_ptr(), place.len() as c_int - 1, device), asked)?;
        [name.as_ptr(), place.as_ptr()].map(|text| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    let number = |attribute| -> Result<u32> {
        let mut value = 0;
        // SAFETY: room for a number.
        let result = unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device) };
        check(result, || format!("{attribute:?} of GPU {index}"))?;
        Ok(u32::try_from(value).unwrap_or(0))
    };
    let clock = u64::from(number(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?) * 1000;
    let bus = u64::from(number(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?) / 8;
    Ok(GpuInfo {
        index: index as usize,
        name,
        capability: (
            number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        memory: memory as u64,
        multiprocessors: number(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        l2: number(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into(),
        // two transfers a clock
        bandwidth: 2 * clock * bus,
        shared: number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        driver,
        place,
    })
}

fn device(index: c_int) -> Result<CUdevice> {
    let mut device = 0;
    // SAFETY: room for a number.
    check(unsafe { sys::cuDeviceGet(&mut device, index) }, || format!("GPU {index}"))?;
    Ok(device)
}
