//! Weights from the file to the device: the plan's ranges, each once, rows one behind the other, each laid as kernels read it.

use std::collections::HashMap;
use std::ops::Range;

use shardwright_gguf::{QuantType, Reader, TensorInfo};
use shardwright_model::hash::Hash;
use shardwright_model::plan::{LocalOp, LocalWeight};
use shardwright_model::synth::random::{Rng, fill};

use crate::device::{Device, Launch};
use crate::made_up::MadeUp;
use crate::planes::lay;
use crate::threads::{available, share};
use crate::unit::Unit;
use crate::{Error, Result};

/// Kernels may read so many bytes past the last row.
pub(crate) const MARGIN: usize = 64;

/// Ones that go to the device together.
const ONES: usize = 4096;

/// Elements of made up cache lines that differ: a prime, so that no two lines begin alike.
const LINES_MADE_UP: usize = 1_000_003;

/// Threads that read and lay rows, and bytes that each of them makes at a time.
const THREADS: usize = 8;
const PIECE: usize = 8 << 20;

/// Bytes that are read at a time, with what lies between rows; more than that between two is passed over.
const READ: u64 = 8 << 20;
const GAP: u64 = 256 << 10;

/// Bytes for each block that hashes them, and most blocks.
const HASHED: usize = 32 << 10;
const MOST_BLOCKS: usize = 2048;

/// Puts weights on a device and remembers where.
pub(crate) struct Loader<'a> {
    reader: &'a Reader,
    dummy: bool,
    made: MadeUp,
    watch: &'a mut dyn FnMut(u64),
    /// By name, what is held of it, and whether it is decoded: the place among the slots.
    loaded: HashMap<(String, [usize; 6], bool), usize>,
    slots: Vec<Loaded>,
    /// What threads make pieces in.
    parts: Vec<Part>,
}

/// A weight on the device.
struct Loaded {
    /// Rank, op, and which of the op's weights, where it was met first.
    at: [usize; 3],
    weight: LocalWeight,
    decoded: bool,
    address: u64,
    bytes: usize,
    /// Of what it should hold; none of what was made up.
    hash: Option<u64>,
}

impl<'a> Loader<'a> {
    /// Without a file's weights, where it is a dummy, random ones are made up.
    pub(crate) fn new(reader: &'a Reader, dummy: bool, watch: &'a mut dyn FnMut(u64)) -> Loader<'a> {
        Loader {
            reader,
            dummy,
            made: MadeUp::default(),
            watch,
            loaded: HashMap::new(),
            slots: vec![],
            parts: parts(),
        }
    }

    /// The addresses of the weights of an op of a rank.
    pub(crate) fn weights(
        &mut self,
        device: &mut dyn Device,
        [rank, at]: [usize; 2],
        op: &LocalOp,
    ) -> Result<Vec<u64>> {
        let weights = op.weights.iter().enumerate();
        weights.map(|(i, w)| self.weight(device, [rank, at, i], w, op.is_vector(i))).collect()
    }

    fn weight(
        &mut self,
        device: &mut dyn Device,
        at: [usize; 3],
        w: &LocalWeight,
        decoded: bool,
    ) -> Result<u64> {
        let held = [w.copies.start, w.copies.end, w.rows.start, w.rows.end, w.cols.start, w.cols.end];
        let key = (w.name.clone(), held, decoded);
        if let Some(known) = self.loaded.get(&key) {
            return Ok(self.slots[*known].address);
        }
        self.tensor(w)?;
        let bytes = if decoded { w.params() * 4 } else { w.bytes() } as usize;
        let address = device.alloc(bytes + MARGIN)?;
        let hash = match self.dummy {
            true => self.made_up(device, w, decoded, [address, bytes as u64])?,
            false => Some(self.copied(device, w, decoded, address)?),
        };
        self.loaded.insert(key, self.slots.len());
        self.slots.push(Loaded { at, weight: w.clone(), decoded, address, bytes, hash });
        Ok(address)
    }

    /// Room for so many cache elements of `element` bytes. Where weights are made up, lines are too, as a step behind them would
    /// otherwise find all positions alike.
    pub(crate) fn cache(&self, device: &mut dyn Device, elements: usize, element: usize) -> Result<u64> {
        let address = device.alloc(elements * element)?;
        if self.dummy && elements > 0 {
            let quant = if element == 2 { QuantType::F16 } else { QuantType::F32 };
            let mut some = vec![0; element * LINES_MADE_UP];
            fill(quant, 1.0, &mut Rng::new(1, "cache"), &mut some);
            device.repeat(address, &some, elements * element)?;
        }
        Ok(address)
    }

    fn tensor(&self, w: &LocalWeight) -> Result<TensorInfo> {
        let tensor = self.reader.tensor(&w.name);
        let found = tensor.filter(|t| (t.file, t.offset, t.quant) == (w.file, w.offset, w.quant));
        found.cloned().ok_or_else(|| Error::Plan(format!("`{}` lies elsewhere in this file", w.name)))
    }

    /// Ones for numbers; for matrices random rows.
    fn made_up(
        &mut self,
        device: &mut dyn Device,
        w: &LocalWeight,
        decoded: bool,
        [address, bytes]: [u64; 2],
    ) -> Result<Option<u64>> {
        let ones = 1f32.to_le_bytes().repeat(ONES);
        let rows = if decoded { &ones } else { self.made.rows(w) };
        device.repeat(address, rows, bytes as usize)?;
        (self.watch)(bytes);
        Ok(None)
    }

    /// Brings a weight to the device, by long reads; gives the hash of what went there.
    fn copied(
        &mut self,
        device: &mut dyn Device,
        w: &LocalWeight,
        decoded: bool,
        address: u64,
    ) -> Result<u64> {
        let (mut to, mut hash) = (address, 0u64);
        pieces(w, decoded, self.reader, &mut self.parts, &mut |piece, part| {
            hash = hash.wrapping_add(part);
            device.upload(to, piece)?;
            (self.watch)(piece.len() as u64);
            to += piece.len() as u64;
            Ok(())
        })?;
        Ok(hash)
    }

    /// Net at the load: when everything has its place, does every slot still hold what its name says?
    ///
    /// # Errors
    /// The first that does not, with the bytes that differ.
    pub(crate) fn check(&self, device: &mut dyn Device) -> Result<()> {
        let slots: Vec<&Loaded> = self.slots.iter().filter(|s| s.hash.is_some() && s.bytes > 0).collect();
        let words: Vec<u32> = slots.iter().map(|s| s.bytes.div_ceil(4) as u32).collect();
        let counts = device.alloc(4 * slots.len())?;
        let found = device.alloc(8 * slots.len())?;
        device.upload(counts, bytemuck::cast_slice(&words))?;
        let kernel = device.load(&[Unit::new("hash").int("WIDTH", 1)])?[0];
        for (n, slot) in (0u64..).zip(&slots) {
            let blocks = (slot.bytes / HASHED).clamp(1, MOST_BLOCKS) as u32;
            let args = vec![counts + 4 * n, slot.address, found + 8 * n];
            device.launch(&Launch { kernel, grid: [blocks, 1, 1], block: 256, shared: 0, args })?;
        }
        let mut hashes = vec![0u64; slots.len()];
        device.download(found, bytemuck::cast_slice_mut(&mut hashes))?;
        match slots.iter().zip(&hashes).find(|(slot, hash)| slot.hash != Some(**hash)) {
            Some((slot, _)) => Err(self.differs(device, slot)?),
            None => Ok(()),
        }
    }

    /// What to say of a slot whose hash is wrong: it is read back and compared with the file.
    fn differs(&self, device: &mut dyn Device, slot: &Loaded) -> Result<Error> {
        let (mut at, mut wrong) = (0, None::<Range<usize>>);
        pieces(&slot.weight, slot.decoded, self.reader, &mut parts(), &mut |piece, _| {
            let mut held = vec![0; piece.len()];
            device.download(slot.address + at as u64, &mut held)?;
            let differ = |i: &usize| held[*i] != piece[*i];
            let ends = [(0..piece.len()).find(differ), (0..piece.len()).rev().find(differ)];
            if let [Some(first), Some(last)] = ends {
                wrong = Some(wrong.as_ref().map_or(at + first, |w| w.start)..at + last + 1);
            }
            at += piece.len();
            Ok(())
        })?;
        let what = match wrong {
            Some(r) => format!("bytes {}..{} of its {} differ", r.start, r.end, slot.bytes),
            None => format!("its {} bytes had another hash, but are right when read again", slot.bytes),
        };
        let [rank, op, index] = slot.at;
        Ok(Error::Slot { tensor: slot.weight.name.clone(), rank, op, index, what })
    }
}

/// A weight as it lies on the device, piece by piece, with the share of each in its hash: numbers are decoded, rows of matrices laid out.
/// Several threads make pieces side by side.
fn pieces(
    w: &LocalWeight,
    decoded: bool,
    reader: &Reader,
    parts: &mut [Part],
    each: &mut dyn FnMut(&[u8], u64) -> Result<()>,
) -> Result<()> {
    let rows = rows(w);
    let bytes = if decoded { w.cols.len() * 4 } else { w.bytes_a_row() };
    let some = (PIECE / bytes.max(1)).max(1);
    let most = parts.len();
    for (n, many) in rows.chunks(some * most).enumerate() {
        let behind = |k: usize| ((n * most + k) * some * bytes) as u64;
        let parts = &mut parts[..many.len().div_ceil(some)];
        // this thread makes one, so that a short weight takes no other
        let others = parts.len() - 1;
        let work = many.chunks(some).zip(&mut *parts).enumerate();
        share(others, work, |(k, (rows, part))| part.make(w, decoded, reader, rows, behind(k)));
        for part in parts {
            part.found.take().transpose()?;
            each(&part.laid, part.hash)?;
        }
    }
    Ok(())
}

/// One for each thread.
fn parts() -> Vec<Part> {
    (0..THREADS.min(available())).map(|_| Part::default()).collect()
}

/// A piece that a thread makes, in memory that it keeps.
#[derive(Default)]
struct Part {
    read: Vec<u8>,
    laid: Vec<u8>,
    hash: u64,
    found: Option<Result<()>>,
}

impl Part {
    fn make(&mut self, w: &LocalWeight, decoded: bool, reader: &Reader, rows: &[Range<u64>], behind: u64) {
        self.laid.clear();
        self.found = Some(self.lay(w, decoded, reader, rows));
        let mut hash = Hash::behind(behind);
        hash.add(&self.laid);
        self.hash = hash.finish();
    }

    fn lay(&mut self, w: &LocalWeight, decoded: bool, reader: &Reader, rows: &[Range<u64>]) -> Result<()> {
        let mut numbers = vec![0f32; if decoded { w.cols.len() } else { 0 }];
        for rows in runs(rows) {
            let start = rows[0].start;
            self.read.resize((rows[rows.len() - 1].end - start) as usize, 0);
            reader.read(w.file, start, &mut self.read)?;
            for row in rows {
                let row = &self.read[(row.start - start) as usize..(row.end - start) as usize];
                if decoded {
                    w.quant.decode(row, &mut numbers);
                    self.laid.extend_from_slice(bytemuck::cast_slice(&numbers));
                } else {
                    lay(w.quant, row, &mut self.laid);
                }
            }
        }
        Ok(())
    }
}

/// Where a weight's rows lie in its file, in order.
fn rows(w: &LocalWeight) -> Vec<Range<u64>> {
    let rows = if w.cols.is_empty() { 0 } else { w.rows.len() };
    (0..w.copies.len()).flat_map(|copy| (0..rows).map(move |row| w.row(copy, row))).collect()
}

/// The same in runs that are read at once.
fn runs(rows: &[Range<u64>]) -> Vec<&[Range<u64>]> {
    let (mut runs, mut first) = (vec![], 0);
    for next in 1..=rows.len() {
        let together = rows.get(next).is_some_and(|row| {
            let gap = row.start.checked_sub(rows[next - 1].end);
            gap.is_some_and(|gap| gap <= GAP) && row.end - rows[first].start <= READ
        });
        if !together {
            runs.push(&rows[first..next]);
            first = next;
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_in_long_runs() {
        let check = |rows: &[Range<u64>], expected: &[usize]| {
            let found = runs(rows);
            assert_eq!(found.concat(), rows);
            assert_eq!(found.iter().map(|run| run.len()).collect::<Vec<_>>(), expected);
        };
        check(&[], &[]);
        let row = |start, bytes| start..start + bytes;
        check(&[row(5, 10)], &[1]);
        // one behind the other, and slices of longer rows
        check(&[row(0, 10), row(10, 10), row(40, 10)], &[3]);
        // far apart, backwards, and one that is longer than a read
        check(&[row(0, 10), row(11 + GAP, 10)], &[1, 1]);
        check(&[row(100, 10), row(0, 10)], &[1, 1]);
        check(&[row(0, READ + 1), row(READ + 1, 10)], &[1, 1]);
        // as many as go into one
        let all: Vec<Range<u64>> = (0..20).map(|n| row(n << 20, 1 << 20)).collect();
        check(&all, &[8, 8, 4]);
    }
}
