//! Work shared out over threads that live as long as it does.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread::{self, Builder};

/// What C libraries expect of a thread, which is more than Rust gives one.
const STACK: usize = 16 << 20;

/// How many threads this process may run at once, as it was asked first: asking reads files.
pub(crate) fn available() -> usize {
    static COUNT: LazyLock<usize> = LazyLock::new(|| thread::available_parallelism().map_or(1, usize::from));
    *COUNT
}

/// Runs `f` on every item; each of at most `threads` threads takes the next one when it is done with its last.
pub(crate) fn share<T: Send>(threads: usize, items: impl Iterator<Item = T> + Send, f: impl Fn(T) + Sync) {
    let items = Mutex::new(items);
    let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some(item) = next() {
            f(item);
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            if Builder::new().stack_size(STACK).spawn_scoped(scope, work).is_err() {
                break;
            }
        }
    });
    // nothing is left, unless the system has given us no thread
    work();
}

/// Runs `work` on so many threads, or as many as the system gives, while this one does `lead` with what they send. All have ended when
/// this returns.
///
/// # Errors
/// If there is not even one.
pub(crate) fn crew<T: Send, R>(
    threads: usize,
    work: impl Fn(Sender<T>) + Sync,
    lead: impl FnOnce(Receiver<T>) -> R,
) -> io::Result<R> {
    let (send, received) = channel();
    thread::scope(|scope| {
        let work = &work;
        for n in 0..threads {
            let send = send.clone();
            match Builder::new().stack_size(STACK).spawn_scoped(scope, move || work(send)) {
                Err(e) if n == 0 => return Err(e),
                Err(_) => break,
                Ok(_) => {}
            }
        }
        drop(send);
        Ok(lead(received))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_done_once() {
        for threads in [0, 1, 3] {
            let mut seen = [0u8; 100];
            share(threads, seen.iter_mut(), |s| *s += 1);
            assert_eq!(seen, [1; 100], "{threads}");
        }
    }
}
