//! A device without a GPU: kernels compiled by the host's C++ compiler, memory that of the process. What kernels compute
//! can be tested with it; their speed and order of memory can't.
#![allow(unsafe_code, dead_code, clippy::unwrap_used, reason = "a test's device: any failure is the test's")]

mod sums;
#[allow(dead_code, reason = "one test needs it")]
pub(crate) mod world;

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use libloading::Library;
use shardwright_cuda::device::{Abort, Device, Kernel, Launch, Recording};
use shardwright_cuda::unit::Unit;
use shardwright_cuda::{Error, Result};
use shardwright_gguf::QuantType;
use shardwright_model::exec::Wire;
use sums::Sums;

/// What a device that stands in front of an emulator, its `inner`, has of that.
#[allow(unused_macros, reason = "not every test has such a device")]
macro_rules! as_inner {
    () => {
        fn multiprocessors(&self) -> u32 {
            self.inner.multiprocessors()
        }

        fn inbox(&mut self, bytes: usize) -> Result<u64> {
            self.inner.inbox(bytes)
        }

        fn pinned(&mut self, bytes: usize) -> Result<u64> {
            self.inner.pinned(bytes)
        }

        fn glance(&self, from: u64, out: &mut [u32]) {
            self.inner.glance(from, out);
        }
    };
}
#[allow(unused_imports, reason = "as above")]
pub(crate) use as_inner;

const SHIM: &str = include_str!("shim.h");

/// How a library is entered: all blocks of a launch, or one whose threads are then resumed one by one.
const ENTRIES: &str = r#"
static void shim_run() { shim_call(run); }
extern "C" int entry(const unsigned* grid, unsigned threads, unsigned shared, const uint64_t* args, char* stacks) {
    return shim_launch(shim_run, grid, threads, shared, args, stacks);
}
extern "C" int begin(const unsigned* grid, const unsigned* block, unsigned threads, const uint64_t* args, char* stacks, const Outside* outside) {
    return shim_single(shim_run, grid, block, threads, args, stacks, outside);
}
"#;

/// Wide loads from odd addresses stop the process, as they stop a GPU. Static memory is a library's own, also that of templates.
const FLAGS: &[&str] = &[
    "-std=c++17",
    "-O2",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-fno-gnu-unique",
    "-Wl,-Bsymbolic",
    "-fsanitize=alignment",
    "-fsanitize-undefined-trap-on-error",
    "-shared",
    "-fPIC",
    "-w",
];

type Entry = unsafe extern "C" fn(*const u32, u32, u32, *const u64, *mut u128) -> i32;

/// What can be launched: a kernel, or the library's sum of rows of so many numbers.
#[derive(Clone, Copy)]
enum Ready {
    Kernel(Entry),
    Reduced(usize, Wire),
}

/// Bytes of the stacks of a block's threads, as the shim divides them.
const STACKS: usize = 1024 * (64 << 10);

/// What becomes of a kernel's source before it is compiled.
pub(crate) type Edit = Box<dyn Fn(&Unit, String) -> String + Send>;

/// The device.
#[derive(Default)]
pub(crate) struct Emulator {
    /// A fault in the kernels themselves.
    pub(crate) edit: Option<Edit>,
    memory: Vec<Vec<u128>>,
    stacks: Vec<u128>,
    libraries: Vec<Library>,
    entries: Vec<Ready>,
    known: HashMap<Unit, Kernel>,
    /// Its rank in a group with a library, and that.
    group: Option<(usize, Arc<Sums>)>,
    recordings: Vec<Vec<Launch>>,
}

impl Emulator {
    /// None where there is no C++ compiler, which is said.
    pub(crate) fn new() -> Option<Emulator> {
        let works = Command::new("c++").arg("--version").output().is_ok_and(|o| o.status.success());
        if !works || !cfg!(target_arch = "x86_64") {
            eprintln!("SKIPPED: kernels are emulated on x86-64 with a C++ compiler named c++ only");
            return None;
        }
        Some(Emulator { stacks: vec![0; STACKS / 16], ..Emulator::default() })
    }

    fn compile(&mut self, unit: &Unit) -> Kernel {
        let source = unit.source();
        let source = match &self.edit {
            Some(edit) => edit(unit, source),
            None => source,
        };
        let library = made(unit, &source);
        // SAFETY: the library was just made by us; `entry` has this signature.
        let entry = unsafe {
            let entry = *library.get::<Entry>(b"entry").unwrap();
            self.libraries.push(library);
            entry
        };
        self.entries.push(Ready::Kernel(entry));
        Kernel(self.entries.len() - 1)
    }

    /// As many as there are ranks, with a library that sums over them.
    pub(crate) fn group(ranks: usize) -> Option<Vec<Emulator>> {
        let sums = Sums::new(ranks);
        let one = |rank| Some(Emulator { group: Some((rank, sums.clone())), ..Emulator::new()? });
        (0..ranks).map(one).collect()
    }

    fn reduce(&mut self, launch: &Launch, width: usize, wire: Wire) -> Result<()> {
        let (rank, sums) = self.group.clone().unwrap();
        let each = if wire == Wire::F32 { 4 } else { 2 };
        let mut part = vec![0; launch.grid[2] as usize * width * each];
        self.download(launch.args[0], &mut part)?;
        let sum = sums.of(rank, part, wire)?;
        self.upload(launch.args[1], &sum)
    }
}

/// A kernel's code, with static memory that nobody else has: a block's shared memory is there.
pub(crate) fn library(unit: &Unit) -> Library {
    made(unit, &unit.source())
}

fn made(unit: &Unit, source: &str) -> Library {
    let source = format!("{SHIM}\n{}\n{ENTRIES}", source.replace("extern \"C\" __global__", "__global__"));
    let file = built(&source, &unit.label());
    // the loader knows a file again, so each gets one of its own
    let copy = tempfile::NamedTempFile::new_in(file.parent().unwrap()).unwrap().into_temp_path();
    std::fs::copy(&file, &copy).unwrap();
    // SAFETY: the library was just made by us, and has no initialisers.
    unsafe { Library::new(copy.as_os_str()).unwrap() }
}

/// The library of a source, made once and kept beside the build's other outputs.
fn built(source: &str, label: &str) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    (source, FLAGS).hash(&mut hasher);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulated");
    std::fs::create_dir_all(&folder).unwrap();
    let library = folder.join(format!("{:016x}.so", hasher.finish()));
    if !library.exists() {
        let text = tempfile::Builder::new().suffix(".cpp").tempfile_in(&folder).unwrap();
        std::fs::write(&text, source).unwrap();
        let made = tempfile::NamedTempFile::new_in(&folder).unwrap().into_temp_path();
        let out = Command::new("c++").args(FLAGS).arg(text.path()).arg("-o").arg(&made).output().unwrap();
        assert!(out.status.success(), "{label}:\n{}", String::from_utf8_lossy(&out.stderr));
        made.persist(&library).unwrap();
    }
    library
}

impl Device for Emulator {
    fn multiprocessors(&self) -> u32 {
        3
    }

    fn alloc(&mut self, bytes: usize) -> Result<u64> {
        let mut memory = vec![0u128; bytes.div_ceil(16) + 16];
        let address = memory.as_mut_ptr() as u64;
        self.memory.push(memory);
        Ok(address.next_multiple_of(256))
    }

    fn inbox(&mut self, bytes: usize) -> Result<u64> {
        let address = self.alloc(bytes)?;
        self.repeat(address, &[0xff], bytes)?;
        Ok(address)
    }

    fn pinned(&mut self, bytes: usize) -> Result<u64> {
        self.alloc(bytes)
    }

    fn glance(&self, from: u64, out: &mut [u32]) {
        for (i, word) in out.iter_mut().enumerate() {
            // SAFETY: as below.
            *word = unsafe { (from as *const u32).add(i).read_volatile() };
        }
    }

    fn upload(&mut self, to: u64, data: &[u8]) -> Result<()> {
        // SAFETY: the address lies in memory that `alloc` gave.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to as *mut u8, data.len()) };
        Ok(())
    }

    fn repeat(&mut self, to: u64, pattern: &[u8], bytes: usize) -> Result<()> {
        (0..bytes)
            .step_by(pattern.len())
            .try_for_each(|at| self.upload(to + at as u64, &pattern[..pattern.len().min(bytes - at)]))
    }

    fn download(&mut self, from: u64, out: &mut [u8]) -> Result<()> {
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    fn abort(&self) -> Option<Abort> {
        let sums = self.group.clone()?.1;
        Some(Box::new(move || sums.give_up()))
    }

    fn load(&mut self, units: &[Unit]) -> Result<Vec<Kernel>> {
        let kernel = |unit: &Unit| {
            if let Some(known) = self.known.get(unit) {
                return *known;
            }
            let kernel = match unit.reduced() {
                None => self.compile(unit),
                Some((width, wire)) => {
                    assert!(self.group.is_some(), "there is no library");
                    self.entries.push(Ready::Reduced(width, wire));
                    Kernel(self.entries.len() - 1)
                }
            };
            self.known.insert(unit.clone(), kernel);
            kernel
        };
        Ok(units.iter().map(kernel).collect())
    }

    fn launch(&mut self, launch: &Launch) -> Result<()> {
        let entry = match self.entries[launch.kernel.0] {
            Ready::Kernel(entry) => entry,
            Ready::Reduced(width, wire) => return self.reduce(launch, width, wire),
        };
        // SAFETY: a kernel gets as many addresses as it has parameters, all of them in our memory.
        let status = unsafe {
            let stacks = self.stacks.as_mut_ptr();
            entry(launch.grid.as_ptr(), launch.block, launch.shared, launch.args.as_ptr(), stacks)
        };
        match status {
            0 => Ok(()),
            _ => Err(Error::Plan(format!("a block of {} threads", launch.block))),
        }
    }

    fn record(&mut self, launches: &[Launch]) -> Result<Recording> {
        self.recordings.push(launches.to_vec());
        Ok(Recording(self.recordings.len() - 1))
    }

    fn replay(&mut self, recording: Recording) -> Result<()> {
        let launches = self.recordings[recording.0].clone();
        launches.iter().try_for_each(|launch| self.launch(launch))
    }
}

/// A small generator of random bytes.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn byte(&mut self) -> u8 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 56) as u8
    }

    /// Rows of random blocks of elements that are at most so large.
    pub(crate) fn rows(&mut self, quant: QuantType, rows: usize, width: usize, most: f32) -> Vec<u8> {
        let bytes = rows * quant.row_bytes(width).unwrap();
        let (mut all, mut values) = (Vec::new(), vec![0.0; quant.block_len()]);
        while all.len() < bytes {
            let block: Vec<u8> = (0..quant.block_bytes()).map(|_| self.byte()).collect();
            quant.decode(&block, &mut values);
            if values.iter().all(|v| v.abs() <= most) {
                all.extend(block);
            }
        }
        all
    }
}
