//! A GPU as a device: one context, one stream, kernels that the compiler made for it.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{
    self, CUdevice, CUdeviceptr, CUfunction, CUfunction_attribute as Attribute, CUgraph, CUgraphExec,
    CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchConfig, CUmodule, CUresult,
    CUstream, CUstream_flags, CUstreamCaptureMode,
};
use shardwright_model::exec::Wire;

use super::handle::{Context, Owned};
use super::inbox::{Mapped, Pinned, apart};
use super::nccl::{Comm, Nccl};
use super::staging::{Sending, Staging, lend, wait};
use super::{GpuInfo, check};
use crate::device::{Abort, Device, Kernel, Launch, Piece, Recording};
use crate::jit::{Cubin, Jit};
use crate::near;
use crate::unit::Unit;
use crate::{Error, Result};

/// A GPU. What it holds is given back in the order of the fields, the context last.
pub struct Gpu {
    recordings: Vec<Owned<CUgraphExec>>,
    /// By what it sums with the others of its group, if that is a library; recordings that sum by it go first.
    comm: Option<Comm>,
    kernels: Vec<Ready>,
    known: HashMap<Unit, Kernel>,
    memory: Vec<Owned<CUdeviceptr>>,
    /// What is left of memory that was reserved: where it begins, and how much it is.
    reserved: (u64, u64),
    mapped: Vec<Mapped>,
    pinned: Vec<Pinned>,
    staging: Staging,
    sending: Sending,
    stream: Owned<CUstream>,
    context: Arc<Context>,
    info: GpuInfo,
    jit: Arc<Jit>,
    device: CUdevice,
    /// Others of its group that may write into its inboxes; none if those are the host's memory.
    peers: Option<Vec<CUdevice>>,
    /// Why they can't.
    apart: Option<String>,
}

/// By which way the GPUs of a group write into each other's inboxes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// To each other's memory where all can, else through the host's.
    #[default]
    Best,
    /// Through the host's memory.
    Host,
}

// SAFETY: the driver's handles may be used by any thread that has entered their context, which every method does first; pinned
// memory is memory.
unsafe impl Send for Gpu {}

/// More than any kernel has.
const PARAMETERS: usize = 64;

/// Memory begins at multiples of it.
const ALIGNMENT: usize = 256;

/// What can be launched.
enum Ready {
    Function(Function),
    /// The library's sum of rows of so many numbers.
    Reduced(usize, Wire),
}

/// A kernel that is loaded.
struct Function {
    label: String,
    function: CUfunction,
    /// May it begin before the one in front of it has ended? It then waits for that by itself.
    overlaps: bool,
    parameters: usize,
    _module: Owned<CUmodule>,
}

impl Gpu {
    /// All that the driver shows.
    ///
    /// # Errors
    /// If there is no driver, or none that can be used, or no GPU.
    pub fn list() -> Result<Vec<GpuInfo>> {
        super::list()
    }

    /// The GPU with this number in the list.
    ///
    /// # Errors
    /// As [`Gpu::list`]; if it is not in the list, or it is broken.
    pub fn open(index: usize, jit: Arc<Jit>) -> Result<Gpu> {
        Gpu::open_part(index, jit, None)
    }

    /// The same, but if a number is named with only so many of its multiprocessors, as if it had no others.
    ///
    /// # Errors
    /// As [`Gpu::open`]; if it does not have so many, or the driver does not part them so.
    pub fn open_part(index: usize, jit: Arc<Jit>, multiprocessors: Option<u32>) -> Result<Gpu> {
        let mut all = super::list()?;
        if index >= all.len() {
            let (count, visible) = (all.len(), super::visible());
            let why = format!("GPU {index} of {count}, counted from 0; CUDA_VISIBLE_DEVICES {visible}");
            return Err(Error::Driver(why));
        }
        let mut info = all.swap_remove(index);
        let device = super::device(index as i32)?;
        let context = match multiprocessors {
            None => Context::of(device)?,
            Some(some) => Context::with(device, some)?,
        };
        info.multiprocessors = multiprocessors.unwrap_or(info.multiprocessors);
        context.enter()?;
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: a stream is made and destroyed.
        let stream = unsafe {
            Owned::new(|| "a stream".into(), |s| sys::cuStreamCreate(s, flags), sys::cuStreamDestroy_v2)?
        };
        Ok(Gpu {
            recordings: vec![],
            comm: None,
            kernels: vec![],
            known: HashMap::new(),
            memory: vec![],
            reserved: (0, 0),
            mapped: vec![],
            pinned: vec![],
            staging: Staging::new()?,
            sending: Sending::default(),
            stream,
            context: Arc::new(context),
            info,
            jit,
            device,
            peers: None,
            apart: None,
        })
    }

    /// The GPUs with these numbers, to work as one group.
    ///
    /// # Errors
    /// As [`Gpu::open`]; if one is named twice.
    pub fn group(indices: &[usize], jit: &Arc<Jit>, way: Way) -> Result<Vec<Gpu>> {
        if let Some(twice) =
            indices.iter().enumerate().find_map(|(i, n)| indices[..i].contains(n).then_some(n))
        {
            return Err(Error::Driver(format!("GPU {twice} is named twice; a rank needs one of its own")));
        }
        let open = |index: &usize| Gpu::open(*index, Arc::clone(jit));
        let mut gpus = indices.iter().map(open).collect::<Result<Vec<Gpu>>>()?;
        let devices: Vec<CUdevice> = gpus.iter().map(|gpu| gpu.device).collect();
        if gpus.len() < 2 {
            return Ok(gpus);
        }
        let why = match way {
            Way::Host => Some("asked for".to_owned()),
            Way::Best => apart(&devices)?,
        };
        for gpu in &mut gpus {
            gpu.apart.clone_from(&why);
            if why.is_none() {
                gpu.peers = Some(devices.iter().copied().filter(|d| *d != gpu.device).collect());
            }
        }
        Ok(gpus)
    }

    /// Lets GPUs, all of a group in their order, sum by a library.
    ///
    /// # Errors
    /// If it refuses, or does not come up in time.
    pub fn join(gpus: &mut [Gpu], nccl: &Nccl) -> Result<()> {
        let devices: Vec<c_int> = gpus.iter().map(|gpu| gpu.info.index as c_int).collect();
        for (gpu, comm) in gpus.iter_mut().zip(nccl.communicator(&devices)?) {
            gpu.comm = Some(comm);
        }
        Ok(())
    }

    /// Why the GPUs of its group write to the host's memory and not to each other's, if so.
    pub fn apart(&self) -> Option<&str> {
        self.apart.as_deref()
    }

    /// What it is.
    pub fn info(&self) -> &GpuInfo {
        &self.info
    }

    /// What its kernels are compiled for.
    ///
    /// # Errors
    /// If nobody has compiled any, and there is no compiler that could.
    pub fn architecture(&self) -> Result<String> {
        self.jit.architecture(self.info.capability)
    }

    /// Memory that nobody uses at the moment, in bytes.
    ///
    /// # Errors
    /// If the GPU is broken.
    pub fn free_memory(&self) -> Result<u64> {
        self.context.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: room for two numbers.
        let result = unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) };
        check(result, || format!("the free memory of GPU {}", self.info.index))?;
        Ok(free as u64)
    }

    /// A kernel, made anew if another compiler's code is refused.
    fn ready(&self, unit: &Unit, cubin: &Cubin, architecture: &str) -> Result<Function> {
        self.load_code(unit, cubin).or_else(|refused| match self.jit.again(unit, cubin, architecture) {
            Some(made) => self.load_code(unit, &made?),
            None => Err(refused),
        })
    }

    fn know(&mut self, unit: Unit, ready: Ready) {
        self.known.insert(unit, Kernel(self.kernels.len()));
        self.kernels.push(ready);
    }

    /// Takes so much memory at once, for what is asked for from now on: it is there before anything is loaded, in one piece, as the
    /// driver rounds each piece up to 2 MiB.
    ///
    /// # Errors
    /// If there is not so much.
    pub fn reserve(&mut self, bytes: u64) -> Result<()> {
        self.context.enter()?;
        self.reserved = (self.take(bytes.max(1) as usize)?, bytes);
        Ok(())
    }

    /// Memory from the driver.
    fn take(&mut self, bytes: usize) -> Result<u64> {
        let what = || {
            let free = self.free_memory().unwrap_or(0);
            format!("{bytes} bytes of memory on GPU {}, which has {free} free", self.info.index)
        };
        // SAFETY: memory is allocated and freed; the driver gives multiples of 256.
        let memory = unsafe { Owned::new(what, |m| sys::cuMemAlloc_v2(m, bytes), sys::cuMemFree_v2)? };
        let address = memory.get();
        self.memory.push(memory);
        Ok(address)
    }

    /// The driver's refusal of machine code does not say why; versions that do not go together are the usual reason.
    fn load_code(&self, unit: &Unit, cubin: &Cubin) -> Result<Function> {
        let label = unit.label();
        let what = || format!("loading kernel `{label}`, {}", versions(self.info.driver, cubin.maker));
        // SAFETY: the code is an ELF file that says itself how long it is.
        let module = unsafe {
            let load = |module| sys::cuModuleLoadData(module, cubin.code.as_ptr().cast());
            Owned::new(what, load, sys::cuModuleUnload)?
        };
        let mut function = ptr::null_mut();
        // SAFETY: the module is alive, the name ends with NUL.
        let found = unsafe { sys::cuModuleGetFunction(&mut function, module.get(), c"run".as_ptr()) };
        check(found, || format!("the entry `run` of kernel `{label}`"))?;
        // now, and not at its first launch, which may be while a peer waits for this one
        // SAFETY: the function is alive.
        check(unsafe { sys::cuFuncLoad(function) }, || format!("loading kernel `{label}`"))?;
        // before sm_90 kernels do not wait for each other
        let overlaps = unit.overlaps() && self.info.capability.0 >= 9;
        let function =
            Function { label, function, overlaps, parameters: parameters(function), _module: module };
        function.allow_shared(self.info.shared)?;
        Ok(function)
    }

    /// Starts a kernel, or a sum of the library, in the context that is current.
    fn start(&self, launch: &Launch) -> Result<()> {
        let kernel = match &self.kernels[launch.kernel.0] {
            Ready::Function(kernel) => kernel,
            Ready::Reduced(width, wire) => return self.reduce(launch, *width, *wire),
        };
        let ([x, y, z], label) = (launch.grid, &kernel.label);
        assert_eq!(launch.args.len(), kernel.parameters, "parameters of kernel `{label}`");
        assert!(kernel.parameters <= PARAMETERS, "kernel `{label}` has {} parameters", kernel.parameters);
        let mut args = [ptr::null_mut::<c_void>(); PARAMETERS];
        for (to, arg) in args.iter_mut().zip(&launch.args) {
            *to = ptr::from_ref(arg).cast_mut().cast();
        }
        let mut overlap = CUlaunchAttribute {
            id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: launch.block,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: launch.shared,
            hStream: self.stream.get(),
            attrs: &mut overlap,
            numAttrs: u32::from(kernel.overlaps),
        };
        // SAFETY: function and stream are alive; there is an address for each parameter, which is copied before this returns.
        // What the kernel does with them is its own affair, and found out by tests.
        let result =
            unsafe { sys::cuLaunchKernelEx(&config, kernel.function, args.as_mut_ptr(), ptr::null_mut()) };
        check(result, || {
            let (threads, shared) = (launch.block, launch.shared);
            let size =
                format!("{x} x {y} x {z} blocks of {threads} threads, {shared} bytes of shared memory");
            format!("starting kernel `{label}`, {size}")
        })
    }

    fn reduce(&self, launch: &Launch, width: usize, wire: Wire) -> Result<()> {
        let (comm, [_, _, rows]) = (self.comm()?, launch.grid);
        let places = [launch.args[0], launch.args[1]];
        // SAFETY: the stream is alive and of this device. That there is so much memory is what tests find out, as of kernels.
        unsafe { comm.all_reduce(places, rows as usize * width, wire, self.stream.get()) }
    }

    fn comm(&self) -> Result<&Comm> {
        let none = || Error::Plan("no library was told to sum over GPUs".into());
        self.comm.as_ref().ok_or_else(none)
    }

    /// What the launches do as a graph.
    fn capture(&self, launches: &[Launch]) -> Result<Owned<CUgraph>> {
        let stream = self.stream.get();
        // Other threads may go on with what would disturb a capture of all.
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is alive and belongs to this thread until the capture has ended, below.
        check(unsafe { sys::cuStreamBeginCapture_v2(stream, mode) }, || "beginning to record".into())?;
        let started = launches.iter().try_for_each(|launch| self.start(launch));
        let what = || format!("recording {} launches", launches.len());
        // SAFETY: the stream is capturing; a graph is made, also of what has gone wrong, and destroyed.
        let graph =
            unsafe { Owned::new(what, |graph| sys::cuStreamEndCapture(stream, graph), sys::cuGraphDestroy) };
        // the first error is the reason of the second
        started.and(graph)
    }
}

impl Function {
    /// Lets launches have all the dynamic shared memory that is left of a block's. More than 48 KiB has to be asked for.
    fn allow_shared(&self, most: u32) -> Result<()> {
        let mut fixed = 0;
        let what = || format!("shared memory of kernel `{}`", self.label);
        let ask = Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
        let set = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function is alive; room for a number.
        check(unsafe { sys::cuFuncGetAttribute(&mut fixed, ask, self.function) }, what)?;
        // SAFETY: the function is alive.
        check(unsafe { sys::cuFuncSetAttribute(self.function, set, most as i32 - fixed) }, what)
    }
}

/// Which compiler's code goes to which driver, and what helps if that is too old for it: no driver takes code of a later major version.
fn versions((major, minor): (i32, i32), (newer, newest): (i32, i32)) -> String {
    let cure = match newer > major {
        true => format!(
            ": update the driver, or `pip install nvidia-cuda-nvrtc-cu{major}` and name its library by SHARDWRIGHT_NVRTC"
        ),
        false => String::new(),
    };
    format!("made by NVRTC {newer}.{newest}, into a driver of CUDA {major}.{minor}{cure}")
}

/// How many parameters a function has: the driver knows each of them by its number.
fn parameters(function: CUfunction) -> usize {
    let (mut offset, mut size) = (0, 0);
    // SAFETY: the function is alive; room for two numbers.
    let mut has = |n| unsafe { sys::cuFuncGetParamInfo(function, n, &mut offset, &mut size) };
    (0..).take_while(|n| has(*n) == CUresult::CUDA_SUCCESS).count()
}

impl Device for Gpu {
    fn multiprocessors(&self) -> u32 {
        self.info.multiprocessors
    }

    fn settle(&mut self) -> Result<()> {
        near::stay(&self.info.place);
        self.context.enter()?;
        wait(self.stream.get())?;
        // the host's memory is where the thread runs that asks for it
        self.staging = Staging::new()?;
        Ok(())
    }

    fn alloc(&mut self, bytes: usize) -> Result<u64> {
        self.context.enter()?;
        // the driver does not give nothing
        let bytes = bytes.max(1);
        let (address, left) = self.reserved;
        let piece = bytes.next_multiple_of(ALIGNMENT) as u64;
        let address = match left.checked_sub(piece) {
            Some(left) => {
                self.reserved = (address + piece, left);
                address
            }
            None => self.take(bytes)?,
        };
        // SAFETY: the memory has so many bytes.
        let result = unsafe { sys::cuMemsetD8Async(address, 0, bytes, self.stream.get()) };
        check(result, || format!("zeroing {bytes} bytes on GPU {}", self.info.index))?;
        Ok(address)
    }

    fn inbox(&mut self, bytes: usize) -> Result<u64> {
        self.context.enter()?;
        let Some(peers) = &self.peers else {
            self.pinned.push(Pinned::new(bytes, 0xff)?);
            return Ok(self.pinned[self.pinned.len() - 1].address());
        };
        let mapped = Mapped::new(self.device, peers, bytes.max(1))?;
        let address = mapped.address();
        self.mapped.push(mapped);
        // SAFETY: the memory has so many bytes.
        let result = unsafe { sys::cuMemsetD8Async(address, 0xff, bytes, self.stream.get()) };
        check(result, || format!("emptying an inbox of {bytes} bytes on GPU {}", self.info.index))?;
        wait(self.stream.get())?;
        Ok(address)
    }

    fn pinned(&mut self, bytes: usize) -> Result<u64> {
        self.context.enter()?;
        self.pinned.push(Pinned::new(bytes, 0)?);
        Ok(self.pinned[self.pinned.len() - 1].address())
    }

    fn glance(&self, from: u64, out: &mut [u32]) {
        let memory = self.pinned.iter().find(|p| p.address() == from);
        memory.expect("the address of pinned memory").glance(out);
    }

    fn upload(&mut self, to: u64, data: &[u8]) -> Result<()> {
        self.context.enter()?;
        self.staging.upload(self.stream.get(), to, data)
    }

    fn lend(&mut self, bytes: usize) -> Result<Piece> {
        self.context.enter()?;
        lend(&self.context, bytes)
    }

    fn send(&mut self, to: u64, piece: Piece, bytes: usize) -> Result<Option<Piece>> {
        self.context.enter()?;
        self.sending.send(self.stream.get(), to, piece, bytes)?;
        Ok(None)
    }

    fn sent(&mut self) -> Result<Option<Piece>> {
        self.context.enter()?;
        self.sending.sent()
    }

    fn repeat(&mut self, to: u64, pattern: &[u8], bytes: usize) -> Result<()> {
        assert!(!pattern.is_empty(), "a pattern has bytes");
        self.upload(to, &pattern[..pattern.len().min(bytes)])?;
        let mut done = pattern.len();
        while done < bytes {
            // what is there is a whole number of patterns
            let more = done.min(bytes - done);
            // SAFETY: the caller says that there are `bytes` bytes; the two parts do not overlap.
            let result = unsafe { sys::cuMemcpyDtoDAsync_v2(to + done as u64, to, more, self.stream.get()) };
            check(result, || format!("copying {more} bytes on GPU {}", self.info.index))?;
            done += more;
        }
        Ok(())
    }

    fn download(&mut self, from: u64, out: &mut [u8]) -> Result<()> {
        self.context.enter()?;
        self.staging.download(self.stream.get(), from, out)?;
        // what a library was asked for before may have failed where no kernel knows of it
        self.comm.as_ref().map_or(Ok(()), Comm::check)
    }

    fn check(&mut self) -> Result<()> {
        self.context.enter()?;
        // SAFETY: the stream is alive.
        match unsafe { sys::cuStreamQuery(self.stream.get()) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(()),
            result => check(result, || format!("asking GPU {} whether it is there", self.info.index)),
        }
    }

    fn abort(&self) -> Option<Abort> {
        self.comm.as_ref().map(Comm::abort)
    }

    fn load(&mut self, units: &[Unit]) -> Result<Vec<Kernel>> {
        self.context.enter()?;
        let architecture = self.architecture()?;
        let mut compiled = vec![];
        for unit in units {
            match unit.reduced() {
                None => compiled.push(unit.clone()),
                Some(_) if self.known.contains_key(unit) => {}
                Some((width, wire)) => {
                    self.comm()?;
                    self.know(unit.clone(), Ready::Reduced(width, wire));
                }
            }
        }
        let cubins = self.jit.cubins(&compiled, &architecture)?;
        for (unit, cubin) in compiled.iter().zip(&cubins) {
            if !self.known.contains_key(unit) {
                let function = self.ready(unit, cubin, &architecture)?;
                self.know(unit.clone(), Ready::Function(function));
            }
        }
        Ok(units.iter().map(|unit| self.known[unit]).collect())
    }

    fn clear(&mut self) -> Result<()> {
        self.context.enter()?;
        // nothing may be freed under a kernel that runs
        wait(self.stream.get())?;
        self.recordings.clear();
        self.memory.clear();
        self.mapped.clear();
        self.pinned.clear();
        self.sending = Sending::default();
        self.reserved = (0, 0);
        Ok(())
    }

    fn launch(&mut self, launch: &Launch) -> Result<()> {
        self.context.enter()?;
        self.start(launch)
    }

    fn record(&mut self, launches: &[Launch]) -> Result<Recording> {
        self.context.enter()?;
        let graph = self.capture(launches)?;
        let what = || format!("making {} launches ready to be replayed", launches.len());
        // SAFETY: the graph is alive until it is copied; what is made is destroyed.
        let recording = unsafe {
            let make = |exec| sys::cuGraphInstantiateWithFlags(exec, graph.get(), 0);
            Owned::new(what, make, sys::cuGraphExecDestroy)?
        };
        // SAFETY: recording and stream are alive.
        check(unsafe { sys::cuGraphUpload(recording.get(), self.stream.get()) }, what)?;
        self.recordings.push(recording);
        Ok(Recording(self.recordings.len() - 1))
    }

    fn replay(&mut self, recording: Recording) -> Result<()> {
        self.context.enter()?;
        let exec = self.recordings[recording.0].get();
        // SAFETY: recording and stream are alive, and so is all memory that it uses.
        let result = unsafe { sys::cuGraphLaunch(exec, self.stream.get()) };
        check(result, || format!("replaying recording {}", recording.0))
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // Nothing may be freed under a kernel that runs. Errors have been told, or there is nobody left to tell.
        if self.context.enter().is_ok() {
            wait(self.stream.get()).ok();
        }
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gpu").field("info", &self.info).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::versions;

    #[test]
    fn c6_a_compiler_newer_than_the_driver_is_named_with_the_cure() {
        assert_eq!(versions((13, 0), (13, 5)), "made by NVRTC 13.5, into a driver of CUDA 13.0");
        let why = versions((12, 4), (13, 5));
        for part in
            ["NVRTC 13.5", "CUDA 12.4", "update the driver", "nvidia-cuda-nvrtc-cu12", "SHARDWRIGHT_NVRTC"]
        {
            assert!(why.contains(part), "{part}: {why}");
        }
    }
}
