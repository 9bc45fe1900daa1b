//! From kernels to machine code: what was compiled before is found again, the rest is compiled side by side.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

pub use crate::store::Folders;

use crate::nvrtc::{Nvrtc, OPTIONS, own_architecture};
use crate::store::{Kept, Key, Store};
use crate::threads;
use crate::unit::Unit;
use crate::{Error, Result};

/// Machine code of one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cubin {
    /// As the driver takes it.
    pub code: Arc<[u8]>,
    /// Major and minor version of the compiler that made it.
    pub maker: (i32, i32),
}

impl From<Kept> for Cubin {
    fn from(kept: Kept) -> Cubin {
        Cubin { code: kept.code.into(), maker: kept.maker }
    }
}

type Progress = Box<dyn Fn(usize, usize) + Send + Sync>;
type Find = Box<dyn Fn() -> Result<Nvrtc> + Send + Sync>;

/// A compiler with a memory. All devices of a process share one.
pub struct Jit {
    /// Looked for when something has to be compiled, as most starts find everything.
    compiler: OnceLock<Result<Nvrtc, String>>,
    find: Find,
    store: Store,
    known: Mutex<HashMap<Key, Cubin>>,
    progress: Progress,
}

impl Jit {
    /// Looks for machine code in the folders and keeps it there. Where the compiler is, `find` says. `progress` is told how
    /// many of how many kernels are compiled, each time that one is, from any thread.
    pub fn new(
        find: impl Fn() -> Result<Nvrtc> + Send + Sync + 'static,
        folders: Folders,
        progress: impl Fn(usize, usize) + Send + Sync + 'static,
    ) -> Jit {
        let (find, progress) = (Box::new(find), Box::new(progress));
        Jit { compiler: OnceLock::new(), find, store: Store::new(folders), known: Mutex::default(), progress }
    }

    /// The compiler.
    ///
    /// # Errors
    /// If there is none.
    pub fn compiler(&self) -> Result<&Nvrtc> {
        let found = self.compiler.get_or_init(|| (self.find)().map_err(|e| e.to_string()));
        found.as_ref().map_err(|why| Error::Compiler(why.clone()))
    }

    /// What kernels are compiled for, for a GPU of this compute capability: its own architecture if any were, else what the compiler says.
    ///
    /// # Errors
    /// If there is no compiler, or it has no code for such a GPU.
    pub fn architecture(&self, capability: (u32, u32)) -> Result<String> {
        let own = own_architecture(capability);
        if self.store.has(&own) {
            return Ok(own);
        }
        let none = |why| self.without(&format!("there are no kernels for {own}"), &why);
        self.compiler().map_err(none)?.architecture(capability)
    }

    /// Machine code of each kernel. Devices that ask at the same time for the same wait for the first of them.
    ///
    /// # Errors
    /// If one does not compile, or there is no compiler for those that are not there.
    pub fn cubins(&self, units: &[Unit], architecture: &str) -> Result<Vec<Cubin>> {
        let keys: Vec<Key> = units.iter().map(|unit| key(unit, architecture)).collect();
        // code enters only when it is whole
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut seen, mut missing) = (HashSet::new(), Vec::new());
        for (unit, key) in units.iter().zip(&keys) {
            if known.contains_key(key) || !seen.insert(*key) {
                continue;
            }
            match self.store.get(architecture, key) {
                Some(kept) => drop(known.insert(*key, kept.into())),
                None => missing.push((*key, unit)),
            }
        }
        if let Some((_, unit)) = missing.first() {
            let what = || {
                format!("{} of {} kernels for {architecture}, `{}`", missing.len(), units.len(), unit.stem)
            };
            let compiler = self.compiler().map_err(|why| self.without(&what(), &why))?;
            known.extend(self.compile(compiler, &missing, architecture)?);
        }
        Ok(keys.iter().map(|key| known[key].clone()).collect())
    }

    /// The same kernel by the compiler that is here, if a driver does not take what another one has made.
    pub(crate) fn again(&self, unit: &Unit, refused: &Cubin, architecture: &str) -> Option<Result<Cubin>> {
        let compiler = self.compiler().ok().filter(|compiler| compiler.version() != refused.maker)?;
        let key = key(unit, architecture);
        let made = self.compile(compiler, &[(key, unit)], architecture);
        Some(made.map(|mut made| {
            let cubin = made.swap_remove(0).1;
            self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(key, cubin.clone());
            cubin
        }))
    }

    fn compile(
        &self,
        compiler: &Nvrtc,
        missing: &[(Key, &Unit)],
        architecture: &str,
    ) -> Result<Vec<(Key, Cubin)>> {
        let (done, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let mut made: Vec<Option<Result<Kept>>> = missing.iter().map(|_| None).collect();
        let threads = threads::available().min(missing.len());
        threads::share(threads, missing.iter().zip(&mut made), |((key, unit), made)| {
            if failed.load(Relaxed) {
                return;
            }
            let compiled = compiler.compile(unit, architecture);
            let compiled = compiled.map(|c| Kept { maker: compiler.version(), code: c.cubin });
            match &compiled {
                Ok(kept) => {
                    self.store.put(architecture, key, kept);
                    (self.progress)(done.fetch_add(1, Relaxed) + 1, missing.len());
                }
                Err(_) => failed.store(true, Relaxed),
            }
            *made = Some(compiled);
        });
        // without those that were not tried, as one before them failed
        let made = missing.iter().zip(made).filter_map(|((key, _), made)| Some((*key, made?)));
        made.map(|(key, kept)| Ok((key, kept?.into()))).collect()
    }

    /// What is missing, where it was looked for, and why it can't be made.
    fn without(&self, what: &str, why: &Error) -> Error {
        let folders = self.store.folders.named();
        Error::Compiler(format!("{what}: not in {folders}, and they can't be made here: {why}"))
    }
}

/// Which compiler it is does not count: what one has made is as good as what another would, and must be found where there is none.
fn key(unit: &Unit, architecture: &str) -> Key {
    Key::of(&[&OPTIONS.join(" "), architecture, &unit.source()])
}

impl fmt::Debug for Jit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jit")
            .field("compiler", &self.compiler)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}
