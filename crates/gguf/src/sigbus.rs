//! Names the file when a mapped file shrinks while it is in use, instead of dying without a word.
//!
//! A read past the new end raises SIGBUS. The handler looks the address up among the maps, says on standard error
//! which file it was, and ends the process with [`EXIT_CODE`]; other causes of SIGBUS go on to the former handler.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// What `sysexits.h` calls an input/output error.
const EXIT_CODE: c_int = 74;

/// One map in use. Entries are never freed, so that the handler can walk the list at any moment; an entry whose map
/// is gone has `end` 0 and is taken again by a later map.
struct Entry {
    taken: AtomicBool,
    start: AtomicUsize,
    end: AtomicUsize,
    text: AtomicPtr<Vec<u8>>,
    next: AtomicPtr<Entry>,
}

static FIRST: AtomicPtr<Entry> = AtomicPtr::new(ptr::null_mut());
static FORMER: OnceLock<libc::sigaction> = OnceLock::new();

/// While it lives, the map it was made for is known to the handler.
pub(crate) struct Guard(&'static Entry);

// The text of the last map stays until the entry is used again: a handler may be reading it.
impl Drop for Guard {
    fn drop(&mut self) {
        self.0.end.store(0, Ordering::Release);
        self.0.taken.store(false, Ordering::Release);
    }
}

/// Registers a map, and the handler with the first of them.
pub(crate) fn guard(map: &[u8], path: &Path) -> Guard {
    FORMER.get_or_init(install);
    let text = format!(
        "error: {}: the file became shorter while it was in use (or its disk failed); restore it and start again\n",
        path.display()
    );
    let entry = free_entry().unwrap_or_else(new_entry);
    let text = Box::into_raw(Box::new(text.into_bytes()));
    // The former text leaks on purpose: some hundred bytes each time a file is opened again.
    entry.text.store(text, Ordering::Release);
    entry.start.store(map.as_ptr() as usize, Ordering::Release);
    entry.end.store(map.as_ptr() as usize + map.len(), Ordering::Release);
    Guard(entry)
}

fn entries() -> impl Iterator<Item = &'static Entry> {
    let deref = |p: *const Entry| {
        // SAFETY: every pointer in the list comes from a leaked box and is never written after it was published.
        unsafe { p.as_ref() }
    };
    std::iter::successors(deref(FIRST.load(Ordering::Acquire)), move |e| {
        deref(e.next.load(Ordering::Acquire))
    })
}

fn free_entry() -> Option<&'static Entry> {
    let take =
        |e: &&Entry| e.taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    entries().find(take)
}

fn new_entry() -> &'static Entry {
    let entry = Box::leak(Box::new(Entry {
        taken: AtomicBool::new(true),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        text: AtomicPtr::new(ptr::null_mut()),
        next: AtomicPtr::new(ptr::null_mut()),
    }));
    let mut first = FIRST.load(Ordering::Acquire);
    loop {
        *entry.next.get_mut() = first;
        match FIRST.compare_exchange_weak(first, entry, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return entry,
            Err(now) => first = now,
        }
    }
}

fn install() -> libc::sigaction {
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_sigbus;
    let mut former = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: an all-zero sigaction is a valid value; the handler has the signature that SA_SIGINFO demands, and
    // does only what is allowed in a handler. `sigaction` can fail only for a wrong signal number.
    unsafe {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&mut action.sa_mask);
        libc::sigaction(libc::SIGBUS, &action, former.as_mut_ptr());
        former.assume_init()
    }
}

extern "C" fn on_sigbus(_signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid info, and SIGBUS sets its address.
    let address = unsafe { (*info).si_addr() } as usize;
    let hit =
        |e: &&Entry| (e.start.load(Ordering::Acquire)..e.end.load(Ordering::Acquire)).contains(&address);
    if let Some(entry) = entries().find(hit) {
        // SAFETY: the text of an entry is set before its range and never freed; write and _exit are allowed in a
        // signal handler.
        unsafe {
            let text = &*entry.text.load(Ordering::Acquire);
            libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
            libc::_exit(EXIT_CODE);
        }
    }
    // Not ours: put the former handler back and raise the signal again, to come when this handler returns.
    // SAFETY: FORMER holds what sigaction gave us, or is not set yet and the default applies; all calls are allowed in
    // a signal handler.
    unsafe {
        match FORMER.get() {
            Some(former) => libc::sigaction(libc::SIGBUS, former, ptr::null_mut()),
            None => libc::signal(libc::SIGBUS, libc::SIG_DFL) as c_int,
        };
        libc::raise(libc::SIGBUS);
    }
}
