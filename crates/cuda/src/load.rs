//! Weights on the device: the plan's ranges of the file, each once, rows one behind the other, each laid as kernels read it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

use shardwright_gguf::{QuantType, Reader, TensorInfo};
use shardwright_model::plan::{LocalOp, LocalWeight};
use shardwright_model::synth::random::{Rng, fill};

use crate::device::{Device, Kernel, Launch, Piece};
use crate::feed::{Full, feed, threads};
use crate::made_up::MadeUp;
use crate::planes::{self, lay};
use crate::rows::Rows;
use crate::unit::Unit;
use crate::{Error, Result};

/// Kernels may read so many bytes past the last row.
pub(crate) const MARGIN: usize = 64;

/// Ones that go to the device together.
const ONES: usize = 4096;

/// Elements of made up cache lines that differ: a prime, so that no two lines begin alike.
const LINES_MADE_UP: usize = 1_000_003;

/// Bytes for each block that hashes them, and most blocks.
const HASHED: usize = 32 << 10;
const MOST_BLOCKS: usize = 2048;

/// Bytes of rows that lie as they are for a few threads to hash.
const LENGTH: u64 = 4096;

/// Bytes that each block lays.
const LAID: usize = 4096;

/// The kernels that bring and check weights of these types.
pub(crate) fn units(quants: impl Iterator<Item = QuantType>) -> BTreeSet<Unit> {
    let planes = quants.filter(|quant| !planes::fields(*quant).is_empty());
    let laid = planes.flat_map(|quant| ["lay", "held"].map(|stem| planes::unit(stem, Some(quant))));
    laid.chain([planes::unit("held", None)]).collect()
}

/// Memory of the device from which rows of these weights are laid.
pub(crate) fn staging<'a>(all: impl Iterator<Item = &'a Rows>) -> usize {
    all.filter(|rows| rows.is_planes()).map(Rows::piece).max().unwrap_or(0)
}

/// Puts weights on a device and remembers where.
pub(crate) struct Loader<'a> {
    reader: &'a Reader,
    dummy: bool,
    made: MadeUp,
    /// That load at the same time.
    devices: usize,
    watch: &'a mut dyn FnMut(u64),
    /// By name, what is held of it, and whether it is decoded: the place among the slots.
    loaded: HashMap<(String, [usize; 6], bool), usize>,
    slots: Vec<Slot>,
}

/// A weight on the device.
struct Slot {
    /// Rank, op, and which of the op's weights, where it was met first.
    at: [usize; 3],
    rows: Rows,
    address: u64,
    /// Of what it should hold, as the file has it.
    hash: u64,
}

impl<'a> Loader<'a> {
    /// Without a file's weights, where it is a dummy, random ones are made up.
    pub(crate) fn new(
        reader: &'a Reader,
        dummy: bool,
        devices: usize,
        watch: &'a mut dyn FnMut(u64),
    ) -> Loader<'a> {
        let (made, loaded) = (MadeUp::default(), HashMap::new());
        Loader { reader, dummy, made, devices, watch, loaded, slots: vec![] }
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
        let rows = Rows { weight: w.clone(), decoded };
        let address = device.alloc(rows.bytes() + MARGIN)?;
        if self.dummy {
            self.make_up(device, &rows, address)?;
        }
        self.loaded.insert(key, self.slots.len());
        self.slots.push(Slot { at, rows, address, hash: 0 });
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
    fn make_up(&mut self, device: &mut dyn Device, rows: &Rows, address: u64) -> Result<()> {
        let ones = 1f32.to_le_bytes().repeat(ONES);
        let made = if rows.decoded { &ones } else { self.made.rows(&rows.weight) };
        device.repeat(address, made, rows.bytes())?;
        (self.watch)(rows.bytes() as u64);
        Ok(())
    }

    /// Brings all weights that have a place, unless they were made up, and looks whether they have arrived.
    ///
    /// # Errors
    /// If one can't be read or the device is broken; as [`Loader::check`].
    pub(crate) fn bring(mut self, device: &mut dyn Device) -> Result<()> {
        self.slots.retain(|slot| !self.dummy && slot.rows.bytes() > 0);
        if self.slots.is_empty() {
            return Ok(());
        }
        // it begins now: steps have been recorded in the meantime
        (self.watch)(0);
        let layer = Layer::new(device, &self.slots)?;
        let all: Vec<&Rows> = self.slots.iter().map(|slot| &slot.rows).collect();
        let mut hashes = vec![0u64; all.len()];
        feed(device, self.reader, &all, threads(self.devices), &mut |device, full| {
            let Full { slot: n, rows, piece, found } = full;
            let (bytes, hash) = found?;
            hashes[n] = hashes[n].wrapping_add(hash);
            let (of, to) = (&self.slots[n].rows, self.slots[n].address);
            let back = layer.place(device, of, piece, bytes, to + (rows.start * of.row_bytes()) as u64)?;
            (self.watch)(bytes as u64);
            Ok(back)
        })?;
        self.slots.iter_mut().zip(hashes).for_each(|(slot, hash)| slot.hash = hash);
        self.check(device)
    }

    /// Net at the load: when everything has its place, does every slot still hold what its name says?
    ///
    /// # Errors
    /// The first that does not, with the bytes that differ.
    fn check(&self, device: &mut dyn Device) -> Result<()> {
        let kernels = Kernels::new(device, "held", &self.slots)?;
        let found = device.alloc(8 * self.slots.len())?;
        for (n, slot) in (0u64..).zip(&self.slots) {
            let (first, bytes, out) = (slot.address, slot.rows.bytes(), found + 8 * n);
            let row = if slot.rows.is_planes() { slot.rows.row_bytes() as u64 } else { LENGTH };
            let blocks = (bytes / HASHED).clamp(1, MOST_BLOCKS) as u32;
            let args = vec![first, first + row, first + bytes as u64, out];
            let kernel = kernels.of(&slot.rows);
            device.launch(&Launch { kernel, grid: [blocks, 1, 1], block: 256, shared: 0, args })?;
        }
        let mut hashes = vec![0u64; self.slots.len()];
        device.download(found, bytemuck::cast_slice_mut(&mut hashes))?;
        match self.slots.iter().zip(&hashes).find(|(slot, hash)| slot.hash != **hash) {
            Some((slot, _)) => Err(self.differs(device, slot)?),
            None => Ok(()),
        }
    }

    /// What to say of a slot whose hash is wrong: it is read back and compared with the file.
    fn differs(&self, device: &mut dyn Device, slot: &Slot) -> Result<Error> {
        let (of, mut at, mut wrong) = (&slot.rows, 0, None::<Range<usize>>);
        let (mut read, mut laid) = (vec![0; Rows::room([of].into_iter())], vec![]);
        for rows in of.pieces() {
            let (bytes, _) = of.read(self.reader, rows, &mut read)?;
            laid.clear();
            match of.is_planes() {
                true => read[..bytes]
                    .chunks_exact(of.row_bytes())
                    .for_each(|row| lay(of.weight.quant, row, &mut laid)),
                false => laid.extend_from_slice(&read[..bytes]),
            }
            let mut held = vec![0; bytes];
            device.download(slot.address + at as u64, &mut held)?;
            let differ = |i: &usize| held[*i] != laid[*i];
            let ends = [(0..bytes).find(differ), (0..bytes).rev().find(differ)];
            if let [Some(first), Some(last)] = ends {
                wrong = Some(wrong.as_ref().map_or(at + first, |w| w.start)..at + last + 1);
            }
            at += bytes;
        }
        let what = match wrong {
            Some(r) => format!("bytes {}..{} of its {at} differ", r.start, r.end),
            None => format!("its {at} bytes had another hash, but are right when read again"),
        };
        let [rank, op, index] = slot.at;
        Ok(Error::Slot { tensor: of.weight.name.clone(), rank, op, index, what })
    }
}

/// A kernel for each way in which rows of some weights lie.
struct Kernels(HashMap<Option<QuantType>, Kernel>);

impl Kernels {
    fn new(device: &mut dyn Device, stem: &'static str, slots: &[Slot]) -> Result<Kernels> {
        let asked = slots.iter().filter(|slot| stem == "held" || slot.rows.is_planes());
        let kinds: HashSet<Option<QuantType>> = asked.map(|slot| Kernels::kind(&slot.rows)).collect();
        let units: Vec<Unit> = kinds.iter().map(|kind| planes::unit(stem, *kind)).collect();
        Ok(Kernels(kinds.into_iter().zip(device.load(&units)?).collect()))
    }

    fn kind(rows: &Rows) -> Option<QuantType> {
        rows.is_planes().then_some(rows.weight.quant)
    }

    fn of(&self, rows: &Rows) -> Kernel {
        self.0[&Kernels::kind(rows)]
    }
}

/// What lays rows on a device, from a piece of its memory to where they belong.
struct Layer {
    kernels: Kernels,
    staging: u64,
}

impl Layer {
    fn new(device: &mut dyn Device, slots: &[Slot]) -> Result<Layer> {
        let kernels = Kernels::new(device, "lay", slots)?;
        let staging = match staging(slots.iter().map(|slot| &slot.rows)) {
            0 => 0,
            bytes => device.alloc(bytes)?,
        };
        Ok(Layer { kernels, staging })
    }

    /// Rows from a piece of the host's memory to their address; a single staging will do, as what is asked for is done in order.
    fn place(
        &self,
        device: &mut dyn Device,
        rows: &Rows,
        piece: Piece,
        bytes: usize,
        to: u64,
    ) -> Result<Option<Piece>> {
        if !rows.is_planes() {
            return device.send(to, piece, bytes);
        }
        let (from, kernel) = (self.staging, self.kernels.of(rows));
        let back = device.send(from, piece, bytes)?;
        let args = vec![from, from + rows.row_bytes() as u64, from + bytes as u64, to];
        let grid = [bytes.div_ceil(LAID) as u32, 1, 1];
        device.launch(&Launch { kernel, grid, block: 256, shared: 0, args })?;
        Ok(back)
    }
}
