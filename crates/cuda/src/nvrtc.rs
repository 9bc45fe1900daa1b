//! NVRTC, NVIDIA's compiler of kernels as a library: found on this machine at run time, needed nowhere else.
//!
//! Kernels become machine code of one architecture (a cubin), never PTX: a driver refuses PTX of a compiler newer than
//! itself, and takes a second for what it accepts.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::find::{Environment, Wanted};
use crate::unit::Unit;
use crate::{Error, Result};

const NVRTC: Wanted = Wanted {
    title: "NVRTC, the compiler of CUDA kernels,",
    names: &["libnvrtc.so.13", "libnvrtc.so.12"],
    variable: "SHARDWRIGHT_NVRTC",
    cure: "`pip install nvidia-cuda-nvrtc` brings it",
};

/// What the compiler is told, besides the architecture: all of it that the code depends on.
pub(crate) const OPTIONS: &[&str] = &[
    "--std=c++17",
    // into the log; the code stays the same
    "--ptxas-options=-v",
];

/// Architectures for which there is code that runs on just them, with all they can do.
const SPECIFIC: &[u32] = &[90, 100, 103, 120, 121];

/// From this version on it keeps its work in the driver's cache. Ours is a hundred times faster, and code from there comes
/// without its report.
const FIRST_WITH_CACHE: (i32, i32) = (12, 9);

/// The compiler.
#[derive(Debug)]
pub struct Nvrtc {
    path: PathBuf,
    version: (i32, i32),
    architectures: Vec<u32>,
    api: Api,
}

/// What the compiler has made.
#[derive(Debug)]
pub struct Compiled {
    /// Machine code, as the driver takes it.
    pub cubin: Vec<u8>,
    /// Warnings, and what the kernel needs: registers, memory.
    pub log: String,
}

impl Nvrtc {
    /// Looks for it in this order: `SHARDWRIGHT_NVRTC` (a file or folder, and then nothing else); toolkits that
    /// `CUDA_HOME` or `CUDA_PATH` name; the environments of `VIRTUAL_ENV` and `CONDA_PREFIX`; wherever the loader looks;
    /// the packages of `python3`; toolkits at their usual places.
    ///
    /// # Errors
    /// If there is none, with what was searched and how to get one.
    pub fn find() -> Result<Nvrtc> {
        Nvrtc::find_in(&|name| std::env::var_os(name))
    }

    fn find_in(env: Environment<'_>) -> Result<Nvrtc> {
        NVRTC.first(env, Nvrtc::open).map_err(Error::Compiler)
    }

    fn open(file: &Path) -> Result<Nvrtc, String> {
        preload_builtins(file);
        let api = Api::open(file).map_err(|e| e.to_string())?;
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: each writes the numbers it is given room for.
        let architectures = unsafe {
            api.check((api.version)(&mut major, &mut minor))?;
            api.check((api.architecture_count)(&mut count))?;
            let mut list = vec![0; usize::try_from(count).unwrap_or(0)];
            api.check((api.architectures)(list.as_mut_ptr()))?;
            list.into_iter().filter_map(|a| u32::try_from(a).ok()).collect()
        };
        Ok(Nvrtc { path: api.path(file), version: (major, minor), architectures, api })
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Major and minor version.
    pub fn version(&self) -> (i32, i32) {
        self.version
    }

    /// What it compiles for: 90 is compute capability 9.0.
    pub fn architectures(&self) -> &[u32] {
        &self.architectures
    }

    /// What to compile for, for a GPU of this compute capability: its own architecture, else the nearest older one whose
    /// code it runs.
    ///
    /// # Errors
    /// If there is none.
    pub fn architecture(&self, (major, minor): (u32, u32)) -> Result<String> {
        let own = major * 10 + minor;
        let runs = |a: &&u32| **a / 10 == major && **a <= own;
        match self.architectures.iter().filter(runs).max() {
            Some(a) if *a == own => Ok(own_architecture((major, minor))),
            Some(a) => Ok(format!("sm_{a}")),
            None => Err(Error::Compiler(format!(
                "{self} has no code for compute capability {major}.{minor}; for a new GPU a newer one may, for an old one an older"
            ))),
        }
    }

    /// Is this the name of machine code that it makes?
    ///
    /// # Errors
    /// If it is not, with all that are.
    pub fn knows(&self, architecture: &str) -> Result<()> {
        let names = self.architectures.iter().map(|a| own_architecture((a / 10, a % 10)));
        let names: Vec<String> = names.collect();
        // code for one GPU alone (`a`) can be had as code for all that follow, or for a family (`f`)
        let other = |name: &String| {
            name.strip_suffix('a')
                .is_some_and(|n| architecture.strip_suffix('f').unwrap_or(architecture) == n)
        };
        match names.iter().any(|name| name == architecture || other(name)) {
            true => Ok(()),
            false => Err(Error::Compiler(format!(
                "`{architecture}` is no architecture that {self} compiles for: it knows {}",
                names.join(", ")
            ))),
        }
    }

    /// Compiles a kernel, to be entered at `run`. `architecture` is one that [`Nvrtc::architecture`] gives, or another that
    /// the compiler knows.
    ///
    /// # Errors
    /// If it does not compile.
    pub fn compile(&self, unit: &Unit, architecture: &str) -> Result<Compiled> {
        self.compile_text(&unit.source(), unit.stem, architecture).map_err(|log| Error::Kernel {
            unit: unit.label(),
            architecture: architecture.into(),
            log,
        })
    }

    fn options(&self, architecture: &str) -> Vec<CString> {
        let mut options = vec![c_string(&format!("--gpu-architecture={architecture}"))];
        options.extend(OPTIONS.iter().map(|o| c_string(o)));
        if self.version >= FIRST_WITH_CACHE {
            options.push(c_string("--no-cache"));
        }
        options
    }

    /// An error is the compiler's words.
    fn compile_text(&self, text: &str, name: &str, architecture: &str) -> Result<Compiled, String> {
        let api = &self.api;
        let program = Program::new(api, text, &format!("{name}.cu"))?;
        let options = self.options(architecture);
        let options: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
        // SAFETY: the program is alive; there are as many options as is said, and they outlive the call.
        let result = unsafe { (api.compile)(program.handle, options.len() as c_int, options.as_ptr()) };
        let log = program.read(api.log_size, api.log)?;
        let log = String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned();
        api.check(result).map_err(|why| format!("{why}\n{log}"))?;
        let cubin = program.read(api.cubin_size, api.cubin)?;
        if cubin.is_empty() {
            return Err(format!("{architecture} is no name of machine code"));
        }
        Ok(Compiled { cubin, log })
    }
}

impl fmt::Display for Nvrtc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NVRTC {}.{} ({})", self.version.0, self.version.1, self.path.display())
    }
}

/// The file that a library's function lies in, which was asked for by this name.
pub(crate) fn file_of(function: *const c_void, asked: &Path) -> PathBuf {
    // SAFETY: a struct of pointers, all of which may be null.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked about; the name it gives is the loader's own, as long as the library is loaded.
    let name = unsafe {
        let known = libc::dladdr(function, &mut found) != 0;
        (known && !found.dli_fname.is_null()).then(|| CStr::from_ptr(found.dli_fname))
    };
    name.map_or_else(|| asked.to_owned(), |name| PathBuf::from(name.to_string_lossy().into_owned()))
}

/// The architecture of a GPU of this compute capability.
pub(crate) fn own_architecture((major, minor): (u32, u32)) -> String {
    let own = major * 10 + minor;
    format!("sm_{own}{}", if SPECIFIC.contains(&own) { "a" } else { "" })
}

/// The compiler opens a second library by its bare name, which is on no path where it came in a wheel; but a name that is
/// loaded already is not looked for.
fn preload_builtins(file: &Path) {
    let folders = [file.to_owned(), file.canonicalize().unwrap_or_default()];
    for folder in folders.iter().filter_map(|f| f.parent()).filter(|f| f.is_absolute()) {
        let listed = std::fs::read_dir(folder).into_iter().flatten().flatten();
        for builtins in
            listed.filter(|e| e.file_name().to_string_lossy().starts_with("libnvrtc-builtins.so."))
        {
            // SAFETY: a library of tables, without initialisers that do anything.
            let opened = unsafe { Library::open(Some(builtins.path()), RTLD_NOW | RTLD_LOCAL) };
            // Never closed. One that does not open is missed later, by a compiler that says so.
            opened.map(Library::into_raw).ok();
        }
    }
}

fn c_string(text: &str) -> CString {
    CString::new(text).expect("kernels and options hold no NUL")
}

type Handle = *mut c_void;
type Status = c_int;

/// The functions that are used, as `nvrtc.h` declares them in all versions since 11.2.
#[derive(Debug)]
struct Api {
    error_string: unsafe extern "C" fn(Status) -> *const c_char,
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status,
    architecture_count: unsafe extern "C" fn(*mut c_int) -> Status,
    architectures: unsafe extern "C" fn(*mut c_int) -> Status,
    create: unsafe extern "C" fn(
        *mut Handle,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Status,
    destroy: unsafe extern "C" fn(*mut Handle) -> Status,
    compile: unsafe extern "C" fn(Handle, c_int, *const *const c_char) -> Status,
    log_size: SizeOf,
    log: Read,
    cubin_size: SizeOf,
    cubin: Read,
}

type SizeOf = unsafe extern "C" fn(Handle, *mut usize) -> Status;
type Read = unsafe extern "C" fn(Handle, *mut c_char) -> Status;

impl Api {
    fn open(file: &Path) -> Result<Api, libloading::Error> {
        // SAFETY: NVRTC's initialisers are those of a C++ library. The functions' types are the header's.
        unsafe {
            let library = Library::open(Some(file), RTLD_NOW | RTLD_LOCAL)?;
            let api = Api {
                error_string: *library.get(b"nvrtcGetErrorString\0")?,
                version: *library.get(b"nvrtcVersion\0")?,
                architecture_count: *library.get(b"nvrtcGetNumSupportedArchs\0")?,
                architectures: *library.get(b"nvrtcGetSupportedArchs\0")?,
                create: *library.get(b"nvrtcCreateProgram\0")?,
                destroy: *library.get(b"nvrtcDestroyProgram\0")?,
                compile: *library.get(b"nvrtcCompileProgram\0")?,
                log_size: *library.get(b"nvrtcGetProgramLogSize\0")?,
                log: *library.get(b"nvrtcGetProgramLog\0")?,
                cubin_size: *library.get(b"nvrtcGetCUBINSize\0")?,
                cubin: *library.get(b"nvrtcGetCUBIN\0")?,
            };
            // never closed: the functions stay valid
            library.into_raw();
            Ok(api)
        }
    }

    /// Where the library was loaded from, if the loader was only given its name.
    fn path(&self, asked: &Path) -> PathBuf {
        file_of(self.version as *const c_void, asked)
    }

    fn check(&self, status: Status) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: gives a constant text for every number.
        let words = unsafe { CStr::from_ptr((self.error_string)(status)) };
        Err(words.to_string_lossy().into_owned())
    }
}

/// A source in the compiler's hands.
struct Program<'a> {
    api: &'a Api,
    handle: Handle,
}

impl<'a> Program<'a> {
    fn new(api: &'a Api, text: &str, name: &str) -> Result<Program<'a>, String> {
        let (text, name) = (c_string(text), c_string(name));
        let mut handle = ptr::null_mut();
        // SAFETY: both texts end with NUL and are copied; there are no headers.
        let status =
            unsafe { (api.create)(&mut handle, text.as_ptr(), name.as_ptr(), 0, ptr::null(), ptr::null()) };
        api.check(status)?;
        Ok(Program { api, handle })
    }

    fn read(&self, size: SizeOf, read: Read) -> Result<Vec<u8>, String> {
        let mut bytes = 0;
        // SAFETY: the program is alive, and there is room for a number.
        self.api.check(unsafe { size(self.handle, &mut bytes) })?;
        let mut content = vec![0u8; bytes];
        // SAFETY: as above; the room is as large as the compiler has said.
        self.api.check(unsafe { read(self.handle, content.as_mut_ptr().cast()) })?;
        Ok(content)
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: the program is alive, and not used after this.
        unsafe { (self.api.destroy)(&mut self.handle) };
    }
}
