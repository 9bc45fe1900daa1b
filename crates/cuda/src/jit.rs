//! From kernels to machine code: what was compiled before is found again, the rest is compiled side by side.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use crate::Result;
use crate::nvrtc::Nvrtc;
use crate::store::{self, Key, Store};
use crate::threads;
use crate::unit::Unit;

/// Machine code of one kernel.
pub type Cubin = Arc<[u8]>;

type Progress = Box<dyn Fn(usize, usize) + Send + Sync>;

/// A compiler with a memory. All devices of a process share one.
pub struct Jit {
    compiler: Nvrtc,
    store: Store,
    known: Mutex<HashMap<Key, Cubin>>,
    progress: Progress,
}

impl Jit {
    /// Keeps machine code in `folder`, if there is one. `progress` is told how many of how many kernels are compiled, each
    /// time that one is, from any thread.
    pub fn new(
        compiler: Nvrtc,
        folder: Option<PathBuf>,
        progress: impl Fn(usize, usize) + Send + Sync + 'static,
    ) -> Jit {
        Jit { compiler, store: Store::new(folder), known: Mutex::default(), progress: Box::new(progress) }
    }

    /// The folder that the user's environment asks for: `SHARDWRIGHT_CACHE`, else `shardwright/kernels` in
    /// `XDG_CACHE_HOME` or `~/.cache`.
    pub fn folder() -> Option<PathBuf> {
        store::folder(&|name| std::env::var_os(name))
    }

    /// The compiler.
    pub fn compiler(&self) -> &Nvrtc {
        &self.compiler
    }

    /// Machine code of each kernel. Devices that ask at the same time for the same wait for the first of them.
    ///
    /// # Errors
    /// If one does not compile.
    pub fn cubins(&self, units: &[Unit], architecture: &str) -> Result<Vec<Cubin>> {
        let keys: Vec<Key> = units.iter().map(|unit| self.key(unit, architecture)).collect();
        // code enters only when it is whole
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut seen, mut missing) = (HashSet::new(), Vec::new());
        for (unit, key) in units.iter().zip(&keys) {
            if known.contains_key(key) || !seen.insert(*key) {
                continue;
            }
            match self.store.get(key) {
                Some(cubin) => drop(known.insert(*key, cubin.into())),
                None => missing.push((*key, unit)),
            }
        }
        known.extend(self.compile(&missing, architecture)?);
        Ok(keys.iter().map(|key| Arc::clone(&known[key])).collect())
    }

    fn compile(&self, missing: &[(Key, &Unit)], architecture: &str) -> Result<Vec<(Key, Cubin)>> {
        let (done, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let mut made: Vec<Option<Result<Vec<u8>>>> = missing.iter().map(|_| None).collect();
        let threads = threads::available().min(missing.len());
        threads::share(threads, missing.iter().zip(&mut made), |((key, unit), made)| {
            if failed.load(Relaxed) {
                return;
            }
            let compiled = self.compiler.compile(unit, architecture).map(|c| c.cubin);
            match &compiled {
                Ok(cubin) => {
                    self.store.put(key, cubin);
                    (self.progress)(done.fetch_add(1, Relaxed) + 1, missing.len());
                }
                Err(_) => failed.store(true, Relaxed),
            }
            *made = Some(compiled);
        });
        // without those that were not tried, as one before them failed
        let made = missing.iter().zip(made).filter_map(|((key, _), made)| Some((*key, made?)));
        made.map(|(key, cubin)| Ok((key, cubin?.into()))).collect()
    }

    fn key(&self, unit: &Unit, architecture: &str) -> Key {
        let (major, minor) = self.compiler.version();
        let options = self.compiler.options(architecture).join(" ");
        Key::of(&[&format!("{major}.{minor}"), &options, &unit.source()])
    }
}

impl fmt::Debug for Jit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jit")
            .field("compiler", &self.compiler)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}
