//! NCCL, NVIDIA's library of sums over GPUs: looked for at run time, and needed only where sums are to be its own.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use cudarc::driver::sys::CUstream;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use shardwright_model::exec::Wire;

use crate::device::Abort;
use crate::find::{Environment, Wanted};
use crate::{Error, Result, nvrtc};

const NCCL: Wanted = Wanted {
    title: "NCCL, NVIDIA's library of sums over GPUs,",
    names: &["libnccl.so.2"],
    variable: "SHARDWRIGHT_NCCL",
    cure: "`pip install nvidia-nccl-cu12` brings it",
};

/// The first version that adds up bf16.
const OLDEST: [c_int; 3] = [2, 10, 0];

/// How long a communicator may take to come up.
const START: Duration = Duration::from_secs(60);

/// Whoever gives a communicator back waits no longer for it than that.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often that is looked after.
const GLANCE: Duration = Duration::from_millis(5);

type Handle = *mut c_void;
type Status = c_int;

const SUCCESS: Status = 0;
/// What it was asked for goes on in the background.
const IN_PROGRESS: Status = 7;
const FLOAT32: c_int = 7;
const BFLOAT16: c_int = 9;
const SUM: c_int = 0;

/// The functions that are used, as `nccl.h` declares them. The last error in words came with version 2.13.
#[derive(Debug)]
struct Api {
    version: unsafe extern "C" fn(*mut c_int) -> Status,
    error_string: unsafe extern "C" fn(Status) -> *const c_char,
    last_error: Option<unsafe extern "C" fn(Handle) -> *const c_char>,
    init_all: unsafe extern "C" fn(*mut Handle, c_int, *const c_int) -> Status,
    all_reduce:
        unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Handle, CUstream) -> Status,
    async_error: unsafe extern "C" fn(Handle, *mut Status) -> Status,
    destroy: unsafe extern "C" fn(Handle) -> Status,
    abort: unsafe extern "C" fn(Handle) -> Status,
}

impl Api {
    fn open(file: &Path) -> Result<Api, String> {
        // SAFETY: the library is made to be loaded by any process. The functions' types are the header's.
        unsafe {
            let library = Library::open(Some(file), RTLD_NOW | RTLD_LOCAL).map_err(|e| e.to_string())?;
            let need = |e: libloading::Error| e.to_string();
            let api = Api {
                version: *library.get(b"ncclGetVersion\0").map_err(need)?,
                error_string: *library.get(b"ncclGetErrorString\0").map_err(need)?,
                last_error: library.get(b"ncclGetLastError\0").ok().map(|f| *f),
                init_all: *library.get(b"ncclCommInitAll\0").map_err(need)?,
                all_reduce: *library.get(b"ncclAllReduce\0").map_err(need)?,
                async_error: *library.get(b"ncclCommGetAsyncError\0").map_err(need)?,
                destroy: *library.get(b"ncclCommDestroy\0").map_err(need)?,
                abort: *library.get(b"ncclCommAbort\0").map_err(need)?,
            };
            // never closed: the functions stay valid, and threads of its own may still run
            library.into_raw();
            Ok(api)
        }
    }

    /// An error unless it has done what was asked; `of` is the communicator, if there is one already.
    fn check(&self, status: Status, of: Handle) -> Result<(), String> {
        if status == SUCCESS || status == IN_PROGRESS {
            return Ok(());
        }
        // SAFETY: both give a text that ends with NUL, the second perhaps none; it is copied before anything else is asked for.
        unsafe {
            let words = CStr::from_ptr((self.error_string)(status)).to_string_lossy().into_owned();
            let last = self.last_error.map_or(ptr::null(), |last| last(of));
            let more = (!last.is_null()).then(|| CStr::from_ptr(last).to_string_lossy().trim().to_owned());
            Err(match more.filter(|more| !more.is_empty()) {
                Some(more) => format!("{words} ({more})"),
                None => words,
            })
        }
    }
}

/// The library.
#[derive(Clone, Debug)]
pub struct Nccl {
    api: Arc<Api>,
    path: PathBuf,
    version: [c_int; 3],
}

impl Nccl {
    /// Looks for it as for the kernel compiler: where `SHARDWRIGHT_NCCL` says, and then nowhere else; toolkits, Python environments,
    /// wherever the loader looks, the packages of `python3`.
    ///
    /// # Errors
    /// If there is none, with what was searched; if it is too old.
    pub fn find() -> Result<Nccl> {
        Nccl::find_in(&|name| std::env::var_os(name))
    }

    fn find_in(env: Environment<'_>) -> Result<Nccl> {
        let open = |file: &Path| {
            let api = Api::open(file)?;
            let mut code = 0;
            // SAFETY: room for a number.
            api.check(unsafe { (api.version)(&mut code) }, ptr::null_mut())?;
            let version = version(code);
            if version < OLDEST {
                return Err(format!("NCCL {} is older than {}", dotted(version), dotted(OLDEST)));
            }
            let path = nvrtc::file_of(api.version as *const c_void, file);
            Ok(Nccl { api: Arc::new(api), path, version })
        };
        NCCL.first(env, open).map_err(Error::Library)
    }

    /// A communicator's ends, one for each of these GPUs as the driver counts them. The library may wait for ever where GPUs do not
    /// reach each other.
    pub(super) fn communicator(&self, devices: &[c_int]) -> Result<Vec<Comm>> {
        let (tell, told) = channel();
        let (api, all) = (self.api.clone(), devices.to_vec());
        let make = move || {
            let mut handles = vec![ptr::null_mut(); all.len()];
            // SAFETY: room for a handle for each of as many devices as is said.
            let status = unsafe { (api.init_all)(handles.as_mut_ptr(), all.len() as c_int, all.as_ptr()) };
            let made = api.check(status, ptr::null_mut());
            let ends = |(rank, handle)| Comm::new(api.clone(), rank, handle);
            // nobody may be waiting any more
            let _ = tell.send(made.map(|()| handles.into_iter().enumerate().map(ends).collect()));
        };
        let failed =
            |why: String| Error::Nccl { what: format!("a communicator of {} GPUs", devices.len()), why };
        let thread = Builder::new().name("nccl".into()).spawn(make);
        thread.map_err(|e| failed(e.to_string()))?;
        match told.recv_timeout(START) {
            Ok(made) => made.map_err(failed),
            Err(_) => Err(failed(format!("it has not come up within {} s", START.as_secs()))),
        }
    }
}

impl fmt::Display for Nccl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NCCL {} ({})", dotted(self.version), self.path.display())
    }
}

/// Of the number that the library gives: since 2.9 there is more room for the minor version.
fn version(code: c_int) -> [c_int; 3] {
    match code {
        ..10_000 => [code / 1000, code / 100 % 10, code % 100],
        _ => [code / 10_000, code / 100 % 100, code % 100],
    }
}

fn dotted([major, minor, patch]: [c_int; 3]) -> String {
    format!("{major}.{minor}.{patch}")
}

/// A rank's end of a communicator.
pub(super) struct Comm(Arc<End>);

struct End {
    api: Arc<Api>,
    rank: usize,
    handle: Handle,
    /// Held while something is asked for, so that nobody uses what is being given back.
    state: Mutex<State>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Alive,
    /// Being given up, which takes until nothing uses it any more.
    Aborting,
    Gone,
}

// SAFETY: a communicator may be used from any thread, by one at a time, which `state` sees to.
unsafe impl Send for End {}
// SAFETY: as above.
unsafe impl Sync for End {}

impl Comm {
    fn new(api: Arc<Api>, rank: usize, handle: Handle) -> Comm {
        Comm(Arc::new(End { api, rank, handle, state: Mutex::new(State::Alive) }))
    }

    /// Adds `count` numbers at `from` up over all ranks, to `to`, which may be the same place.
    ///
    /// # Safety
    /// There are so many numbers at both, and the stream is alive and of this rank's device.
    pub(super) unsafe fn all_reduce(
        &self,
        [from, to]: [u64; 2],
        count: usize,
        wire: Wire,
        stream: CUstream,
    ) -> Result<()> {
        let kind = match wire {
            Wire::F32 => FLOAT32,
            Wire::Bf16 => BFLOAT16,
        };
        self.asked(
            || format!("adding up {count} numbers"),
            |end| {
                // SAFETY: the communicator is alive, and the rest is as the caller says.
                unsafe {
                    (end.api.all_reduce)(
                        from as *const c_void,
                        to as *mut c_void,
                        count,
                        kind,
                        SUM,
                        end.handle,
                        stream,
                    )
                }
            },
        )
    }

    /// Whether all that was asked for went well so far.
    pub(super) fn check(&self) -> Result<()> {
        self.asked(
            || "what it was asked for before".into(),
            |end| {
                let mut found = SUCCESS;
                // SAFETY: the communicator is alive; room for a number.
                let status = unsafe { (end.api.async_error)(end.handle, &mut found) };
                if status == SUCCESS { found } else { status }
            },
        )
    }

    /// Asks for something, if it has not been given up.
    fn asked(&self, what: impl Fn() -> String, ask: impl FnOnce(&End) -> Status) -> Result<()> {
        let end = &*self.0;
        let failed = |why| Error::Nccl { what: format!("{} on rank {}", what(), end.rank), why };
        let state = end.state();
        if *state != State::Alive {
            return Err(Error::GivenUp { rank: end.rank });
        }
        end.api.check(ask(end), end.handle).map_err(failed)
    }

    /// What gives it up, from whatever thread, so that kernels that wait for other ranks end. Does not wait for that.
    pub(super) fn abort(&self) -> Abort {
        let end = self.0.clone();
        Box::new(move || {
            let end = end.clone();
            let thread = Builder::new().name("nccl".into()).spawn(move || end.abort());
            // without a thread all stays as it is
            drop(thread);
        })
    }
}

impl End {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who asks for something right now can't be disturbed: the library may use what would be given up.
    fn abort(&self) {
        let until = Instant::now() + PATIENCE;
        let mut state = loop {
            match self.state.try_lock() {
                Ok(state) => break state,
                Err(TryLockError::Poisoned(e)) => break e.into_inner(),
                Err(TryLockError::WouldBlock) if Instant::now() > until => return,
                Err(TryLockError::WouldBlock) => thread::sleep(GLANCE),
            }
        };
        if *state != State::Alive {
            return;
        }
        *state = State::Aborting;
        drop(state);
        // SAFETY: alive until now, and nobody else uses it from now on. This comes back when recordings that use it are gone.
        unsafe { (self.api.abort)(self.handle) };
        *self.state() = State::Gone;
    }
}

impl Drop for Comm {
    /// Recordings that use it must be gone: the library waits for them.
    fn drop(&mut self) {
        let mut state = self.0.state();
        if *state == State::Alive {
            *state = State::Gone;
            // SAFETY: alive until now, and nobody uses it any more. An error has been one before, and there is nobody to tell.
            unsafe { (self.0.api.destroy)(self.0.handle) };
        }
        drop(state);
        let until = Instant::now() + PATIENCE;
        while *self.0.state() == State::Aborting && Instant::now() < until {
            thread::sleep(GLANCE);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_told_with_places_and_cure() {
        let why = Nccl::find_in(&|_| Some("/nowhere/libnccl.so.2".into())).unwrap_err().to_string();
        let parts =
            ["no NCCL", "SHARDWRIGHT_NCCL=/nowhere/libnccl.so.2", "does not open", "pip install nvidia-nccl"];
        for part in parts {
            assert!(why.contains(part), "{part}: {why}");
        }
        assert!(!why.contains('\n'), "{why}");
        // what is there and something else
        let file = tempfile::NamedTempFile::new().unwrap();
        let named = |_: &str| Some(file.path().as_os_str().to_owned());
        let why = Nccl::find_in(&named).unwrap_err().to_string();
        assert!(why.contains("does not open"), "{why}");
    }

    #[test]
    fn versions_are_read_from_old_and_new_numbers() {
        let check = |code, expected: &str| assert_eq!(dotted(version(code)), expected, "{code}");
        check(2708, "2.7.8");
        check(21_003, "2.10.3");
        check(22_803, "2.28.3");
        assert!(version(2808) < OLDEST && version(21_003) > OLDEST);
    }

    /// A library in its place, compiled by the host's C compiler.
    fn fake(folder: &Path) -> Option<Nccl> {
        let (file, source) =
            (folder.join("libnccl.so.2"), concat!(env!("CARGO_MANIFEST_DIR"), "/tests/nccl/fake.c"));
        let mut cc = std::process::Command::new("cc");
        match cc.args(["-shared", "-fPIC", "-w", source, "-o"]).arg(&file).status() {
            Ok(status) => assert!(status.success()),
            Err(e) => {
                eprintln!("SKIPPED: no C compiler named cc: {e}");
                return None;
            }
        }
        Some(Nccl::find_in(&|_| Some(file.clone().into())).unwrap())
    }

    fn sum(end: &Comm, count: usize) -> Result<()> {
        // SAFETY: the library in NCCL's place looks at no memory.
        unsafe { end.all_reduce([0; 2], count, Wire::F32, ptr::null_mut()) }
    }

    #[test]
    fn what_a_library_refuses_names_rank_and_reason_and_ends_are_given_back_once() {
        let folder = tempfile::tempdir().unwrap();
        let Some(nccl) = fake(folder.path()) else { return };
        assert_eq!(
            nccl.to_string(),
            format!("NCCL 2.28.3 ({})", folder.path().join("libnccl.so.2").display())
        );
        let twice = nccl.communicator(&[1, 1]).err().unwrap().to_string();
        assert_eq!(twice, "NCCL: a communicator of 2 GPUs: invalid usage (0 given up, 0 destroyed)");
        let mut ends = nccl.communicator(&[0, 1, 2]).unwrap();
        ends.iter().for_each(|end| sum(end, 8).and_then(|()| end.check()).unwrap());
        let why = sum(&ends[1], 13).unwrap_err().to_string();
        assert_eq!(why, "NCCL: adding up 13 numbers on rank 1: invalid usage (0 given up, 0 destroyed)");
        sum(&ends[2], 99).unwrap();
        let why = ends[2].check().unwrap_err().to_string();
        assert!(why.contains("on rank 2: remote process exited"), "{why}");
        // who is being asked goes on undisturbed; then it is given up, and who waits for that is not held up
        let (abort, begun) = (ends[0].abort(), Instant::now());
        thread::scope(|scope| {
            let busy = scope.spawn(|| sum(&ends[0], 7));
            thread::sleep(Duration::from_millis(50));
            abort();
            assert!(begun.elapsed() < Duration::from_millis(250));
            busy.join().unwrap().unwrap();
        });
        abort();
        thread::sleep(Duration::from_millis(100));
        assert_eq!(sum(&ends[0], 8).unwrap_err().to_string(), Error::GivenUp { rank: 0 }.to_string());
        drop(ends.remove(0));
        // nobody gives back what is gone
        abort();
        drop(ends.remove(0));
        assert!(sum(&ends[0], 13).unwrap_err().to_string().contains("1 given up, 1 destroyed"));
    }
}
