//! Weights from the file to the device: the plan's ranges, each once, rows one behind the other as the file has them.

use std::collections::HashMap;

use shardwright_gguf::{Reader, TensorInfo};
use shardwright_model::plan::{LocalOp, LocalWeight};
use shardwright_model::synth::random::{Rng, fill};

use crate::device::Device;
use crate::{Error, Result};

/// Kernels may read so many bytes past the last row.
const MARGIN: usize = 64;

/// Blocks of a dummy weight that differ.
const TILE_BLOCKS: usize = 4096;

/// Bytes that are gathered before they are sent.
const PIECE: usize = 16 << 20;

/// Puts weights on a device and remembers where.
pub(crate) struct Loader<'a> {
    reader: &'a Reader,
    dummy: bool,
    watch: &'a mut dyn FnMut(u64),
    /// By name, what is held of it, and whether it is decoded.
    loaded: HashMap<(String, [usize; 6], bool), u64>,
}

impl<'a> Loader<'a> {
    /// Without a file's weights, where it is a dummy, random ones are made up.
    pub(crate) fn new(reader: &'a Reader, dummy: bool, watch: &'a mut dyn FnMut(u64)) -> Loader<'a> {
        Loader { reader, dummy, watch, loaded: HashMap::new() }
    }

    /// The addresses of an op's weights.
    pub(crate) fn weights(&mut self, device: &mut dyn Device, op: &LocalOp) -> Result<Vec<u64>> {
        op.weights.iter().enumerate().map(|(i, w)| self.weight(device, w, op.is_vector(i))).collect()
    }

    fn weight(&mut self, device: &mut dyn Device, w: &LocalWeight, decoded: bool) -> Result<u64> {
        let held = [w.copies.start, w.copies.end, w.rows.start, w.rows.end, w.cols.start, w.cols.end];
        let key = (w.name.clone(), held, decoded);
        if let Some(address) = self.loaded.get(&key) {
            return Ok(*address);
        }
        let tensor = self.tensor(w)?;
        let address = match (self.dummy, decoded) {
            (true, _) => self.made_up(device, w, decoded)?,
            (false, true) => self.vector(device, w, &tensor)?,
            (false, false) => self.matrix(device, w, &tensor)?,
        };
        self.loaded.insert(key, address);
        Ok(address)
    }

    fn tensor(&self, w: &LocalWeight) -> Result<TensorInfo> {
        let tensor = self.reader.tensor(&w.name);
        let found = tensor.filter(|t| (t.file, t.offset, t.quant) == (w.file, w.offset, w.quant));
        found.cloned().ok_or_else(|| Error::Plan(format!("`{}` lies elsewhere in this file", w.name)))
    }

    /// Ones for numbers; for matrices a tile of random blocks, again and again.
    fn made_up(&mut self, device: &mut dyn Device, w: &LocalWeight, decoded: bool) -> Result<u64> {
        let bytes = if decoded { w.params() * 4 } else { w.bytes() } as usize;
        let address = device.alloc(bytes + MARGIN)?;
        let mut tile = vec![0; w.quant.block_bytes() * TILE_BLOCKS];
        if decoded {
            tile = 1f32.to_le_bytes().repeat(TILE_BLOCKS);
        } else {
            let std = 1.0 / (w.cols.len().max(1) as f32).sqrt();
            fill(w.quant, std, &mut Rng::new(1, &w.name), &mut tile);
        }
        device.repeat(address, &tile, bytes)?;
        (self.watch)(bytes as u64);
        Ok(address)
    }

    /// Numbers, each decoded.
    fn vector(&self, device: &mut dyn Device, w: &LocalWeight, tensor: &TensorInfo) -> Result<u64> {
        let mut all = Vec::with_capacity(w.params() as usize);
        for row in rows(w, self.reader.bytes(tensor)) {
            let at = all.len();
            all.resize(at + w.cols.len(), 0f32);
            w.quant.decode(row, &mut all[at..]);
        }
        let address = device.alloc(all.len() * 4 + MARGIN)?;
        device.upload(address, bytemuck::cast_slice(&all))?;
        Ok(address)
    }

    /// Rows as they are.
    fn matrix(&mut self, device: &mut dyn Device, w: &LocalWeight, tensor: &TensorInfo) -> Result<u64> {
        let address = device.alloc(w.bytes() as usize + MARGIN)?;
        let (mut to, mut piece) = (address, Vec::new());
        for row in rows(w, self.reader.bytes(tensor)) {
            piece.extend_from_slice(row);
            if piece.len() >= PIECE {
                device.upload(to, &piece)?;
                (self.watch)(piece.len() as u64);
                to += piece.len() as u64;
                piece.clear();
            }
        }
        device.upload(to, &piece)?;
        (self.watch)(piece.len() as u64);
        Ok(address)
    }
}

/// A weight's rows here, in order.
fn rows<'b>(w: &'b LocalWeight, tensor: &'b [u8]) -> impl Iterator<Item = &'b [u8]> {
    let rows = if w.cols.is_empty() { 0 } else { w.rows.len() };
    let all = (0..w.copies.len()).flat_map(move |copy| (0..rows).map(move |row| (copy, row)));
    all.map(|(copy, row)| {
        let range = w.row(copy, row);
        &tensor[(range.start - w.offset) as usize..(range.end - w.offset) as usize]
    })
}
