//! Pieces of weights from the file to a device: threads read and hash some while those before them travel. Memory for them is lent by the
//! device and goes round, so that none of them waits for more than a free piece, however many weights there are.

use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Mutex, PoisonError};

use shardwright_gguf::Reader;

use crate::device::{Device, Piece};
use crate::rows::Rows;
use crate::threads::{available, crew};
use crate::{Error, Result};

/// Threads that read for a device: more than these bring nothing where a card's link or a disk is the limit. And those of all devices
/// that load at the same time, as their pieces are memory that can't be swapped.
const THREADS: usize = 12;
const ALL_THREADS: usize = 32;

/// Rows that have come from the file.
pub(crate) struct Full {
    /// Whose they are.
    pub(crate) slot: usize,
    pub(crate) rows: Range<usize>,
    pub(crate) piece: Piece,
    /// Their bytes, and their share of the hash.
    pub(crate) found: Result<(usize, u64)>,
}

/// What takes a piece to its place. Comes back with it if that is done already.
pub(crate) type Place<'a> = &'a mut dyn FnMut(&mut dyn Device, Full) -> Result<Option<Piece>>;

/// Threads that read for one of so many devices.
pub(crate) fn threads(devices: usize) -> usize {
    (available().min(ALL_THREADS) / devices.max(1)).clamp(1, THREADS)
}

/// Pieces that so many threads fill: some more, to be under way meanwhile.
fn round(threads: usize) -> usize {
    threads + threads.div_ceil(2) + 2
}

/// Brings all rows, by so many threads; `place` is called by this one, in no order. What it has asked the device for may not be done yet
/// when this returns, but no piece is under way any more.
///
/// # Errors
/// The first of any of them.
pub(crate) fn feed(
    device: &mut dyn Device,
    reader: &Reader,
    all: &[&Rows],
    threads: usize,
    place: Place<'_>,
) -> Result<()> {
    let room = Rows::room(all.iter().copied());
    let pieces = all.iter().enumerate().flat_map(|(slot, of)| of.pieces().map(move |rows| (slot, rows)));
    let most = pieces.clone().take(round(threads)).count();
    let pieces = Mutex::new(pieces);
    let (give, free) = channel::<Piece>();
    // outside of what threads have: memory is given back by this one
    let free = Mutex::new(free);
    let next = || {
        let (slot, rows) = locked(&pieces, |pieces| pieces.next())?;
        Some((slot, rows, locked(&free, |free| free.recv()).ok()?))
    };
    let read = |full: Sender<Full>| {
        while let Some((slot, rows, mut piece)) = next() {
            let found = all[slot].read(reader, rows.clone(), &mut piece);
            // nobody listens any more after an error
            if full.send(Full { slot, rows, piece, found }).is_err() {
                break;
            }
        }
    };
    let belt = Belt { device, give, made: 0, most, room };
    crew(threads.min(most), read, |filled| belt.run(filled, place))
        .map_err(|e| Error::Unsupported(format!("thread that reads weights: {e}")))?
}

/// Pieces that go round, as the thread sees them that speaks to the device.
struct Belt<'a> {
    device: &'a mut dyn Device,
    /// To those who fill them; they end when this is gone.
    give: Sender<Piece>,
    made: usize,
    most: usize,
    room: usize,
}

impl Belt<'_> {
    /// Until all threads have ended and all that they have filled has arrived.
    fn run(mut self, filled: Receiver<Full>, place: Place<'_>) -> Result<()> {
        self.make()?;
        loop {
            let full = match filled.try_recv() {
                Ok(full) => full,
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) if self.made < self.most => {
                    self.make()?;
                    continue;
                }
                Err(TryRecvError::Empty) => match self.device.sent()? {
                    Some(piece) => {
                        self.free(piece);
                        continue;
                    }
                    // all are with the others, or wait for them
                    None => match filled.recv() {
                        Ok(full) => full,
                        Err(_) => break,
                    },
                },
            };
            if let Some(piece) = place(self.device, full)? {
                self.free(piece);
            }
        }
        while self.device.sent()?.is_some() {}
        Ok(())
    }

    /// One piece more, if there is memory for it; without any there is no way.
    fn make(&mut self) -> Result<()> {
        match self.device.lend(self.room) {
            Ok(piece) => {
                self.made += 1;
                self.free(piece);
            }
            Err(why) if self.made == 0 => return Err(why),
            Err(_) => self.most = self.made,
        }
        Ok(())
    }

    fn free(&self, piece: Piece) {
        // who reads has ended if this fails
        let _ = self.give.send(piece);
    }
}

fn locked<T, R>(what: &Mutex<T>, f: impl FnOnce(&mut T) -> R) -> R {
    f(&mut what.lock().unwrap_or_else(PoisonError::into_inner))
}
