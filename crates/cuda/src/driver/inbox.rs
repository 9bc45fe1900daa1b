//! Memory that several GPUs, or the host and GPUs, share: mapped for the peers that write to it and for nobody else.
#![allow(unsafe_code)]

use std::ffi::c_void;

use cudarc::driver::sys::{
    self, CUdevice, CUdevice_attribute, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc,
    CUmemAllocationGranularity_flags, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemAllocationProp_st__bindgen_ty_1, CUmemAllocationType, CUmemGenericAllocationHandle, CUmemLocation,
    CUmemLocationType,
};

use super::check;
use super::handle::Owned;
use crate::Result;

/// Memory of one GPU that others may write.
pub(super) struct Mapped {
    // in the order in which they are given back
    _mapping: Mapping,
    _memory: Owned<CUmemGenericAllocationHandle>,
    range: Range,
}

/// Addresses that nobody else uses.
struct Range {
    start: CUdeviceptr,
    bytes: usize,
}

/// That memory is found there.
struct Mapping {
    start: CUdeviceptr,
    bytes: usize,
}

impl Mapped {
    /// At least `bytes` bytes on `device`, whatever is in them, also for `peers`.
    pub(super) fn new(device: CUdevice, peers: &[CUdevice], bytes: usize) -> Result<Mapped> {
        let kind = CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: location(device),
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
                compressionType: 0,
                gpuDirectRDMACapable: 0,
                usage: 0,
                reserved: [0; 4],
            },
        };
        let what = || format!("{bytes} bytes on GPU {device} for {} peers", peers.len());
        let least = CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        let mut grain = 0;
        // SAFETY: room for a number; the description lives.
        check(unsafe { sys::cuMemGetAllocationGranularity(&mut grain, &kind, least) }, what)?;
        let bytes = bytes.next_multiple_of(grain.max(1));
        let range = Range::new(bytes)?;
        // SAFETY: memory is made and given back; the description lives.
        let memory =
            unsafe { Owned::new(what, |m| sys::cuMemCreate(m, bytes, &kind, 0), sys::cuMemRelease)? };
        // SAFETY: range and memory are ours, of this size, and unmapped before either is given back.
        check(unsafe { sys::cuMemMap(range.start, bytes, 0, memory.get(), 0) }, what)?;
        let mapping = Mapping { start: range.start, bytes };
        let access = |device: &CUdevice| CUmemAccessDesc {
            location: location(*device),
            flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        let access: Vec<CUmemAccessDesc> = [device].iter().chain(peers).map(access).collect();
        // SAFETY: the range is mapped; there are as many descriptions as is said.
        let result = unsafe { sys::cuMemSetAccess(range.start, bytes, access.as_ptr(), access.len()) };
        check(result, || format!("letting {} GPUs write to memory of GPU {device}", peers.len()))?;
        Ok(Mapped { _mapping: mapping, _memory: memory, range })
    }

    /// Valid on all of these GPUs, as long as `self`.
    pub(super) fn address(&self) -> u64 {
        self.range.start
    }
}

fn location(device: CUdevice) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device }
}

impl Range {
    fn new(bytes: usize) -> Result<Range> {
        let mut start = 0;
        // SAFETY: room for an address.
        let result = unsafe { sys::cuMemAddressReserve(&mut start, bytes, 0, 0, 0) };
        check(result, || format!("{bytes} bytes of addresses"))?;
        Ok(Range { start, bytes })
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        // SAFETY: reserved once, and no longer mapped. Nobody is there to hear of an error.
        unsafe { sys::cuMemAddressFree(self.start, self.bytes) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped once; whoever drops it sees to it that no GPU uses it any more.
        unsafe { sys::cuMemUnmap(self.start, self.bytes) };
    }
}

/// Memory of the host that every GPU reaches at the same address.
pub(super) struct Pinned {
    memory: Owned<*mut c_void>,
    address: CUdeviceptr,
    words: usize,
}

impl Pinned {
    /// At least `bytes` bytes, each of them `byte`, for a context that is current.
    pub(super) fn new(bytes: usize, byte: u8) -> Result<Pinned> {
        let words = bytes.div_ceil(4).max(1);
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        let what = || format!("{bytes} bytes of pinned memory");
        // SAFETY: memory is made and given back.
        let memory =
            unsafe { Owned::new(what, |m| sys::cuMemHostAlloc(m, words * 4, flags), sys::cuMemFreeHost)? };
        let mut address = 0;
        // SAFETY: room for an address; the memory lives and is mapped for GPUs.
        check(unsafe { sys::cuMemHostGetDevicePointer_v2(&mut address, memory.get(), 0) }, what)?;
        // SAFETY: there are so many bytes, and nobody else knows of them yet.
        unsafe { std::ptr::write_bytes(memory.get().cast::<u8>(), byte, words * 4) };
        Ok(Pinned { memory, address, words })
    }

    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// The first words as they are now.
    pub(super) fn glance(&self, out: &mut [u32]) {
        assert!(out.len() <= self.words, "within the memory");
        for (i, word) in out.iter_mut().enumerate() {
            // SAFETY: there are so many words; a GPU may be writing one, which is then old or new.
            *word = unsafe { self.memory.get().cast::<u32>().add(i).read_volatile() };
        }
    }
}

/// Why these GPUs can't write to each other's memory; none if they can.
pub(super) fn apart(devices: &[CUdevice]) -> Result<Option<String>> {
    for device in devices {
        let maps = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
        let mut can = 0;
        // SAFETY: room for a number.
        check(unsafe { sys::cuDeviceGetAttribute(&mut can, maps, *device) }, || {
            format!("{maps:?} of GPU {device}")
        })?;
        if can == 0 {
            return Ok(Some(format!("GPU {device} can't map memory for others")));
        }
        for peer in devices.iter().filter(|peer| *peer != device) {
            // SAFETY: room for a number.
            let result = unsafe { sys::cuDeviceCanAccessPeer(&mut can, *device, *peer) };
            check(result, || format!("whether GPU {device} reaches GPU {peer}"))?;
            if can == 0 {
                return Ok(Some(format!("GPU {device} does not reach the memory of GPU {peer}")));
            }
        }
    }
    Ok(None)
}
