//! A model written anew with other types: each tensor decoded and encoded, rows in parallel.

use crate::error::{Error, Result};
use crate::quant::QuantType;
use crate::read::{Reader, TensorInfo};
use crate::write::{Split, Writer};
use std::path::{Path, PathBuf};

/// Elements that a thread decodes at a time; bounds memory to a few megabytes a thread.
const BATCH: usize = 1 << 20;

/// How a conversion is done.
#[derive(Clone, Copy)]
pub struct Conversion<'a> {
    /// The type that each tensor gets; tensors whose type stays are copied as they are.
    pub choose: &'a dyn Fn(&TensorInfo) -> QuantType,
    /// How the result is cut into parts.
    pub split: Option<Split>,
    /// Threads that encode.
    pub threads: usize,
}

/// Writes the model of `reader` to `path`. `progress` is told of bytes as they are written.
///
/// # Errors
/// The system's; a row length that is no whole number of the new type's blocks; a type that is only read; values that
/// are not finite.
pub fn convert(
    reader: &Reader,
    path: &Path,
    conversion: &Conversion<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<PathBuf>> {
    let mut meta = crate::Meta::new();
    reader.meta().iter().filter(|(k, _)| !k.starts_with("split.")).for_each(|(k, v)| meta.set(k, v.clone()));
    meta.set("general.quantization_version", 2u32);
    let mut writer = Writer::new(meta)?;
    if let Some(split) = conversion.split {
        writer = writer.split(split);
    }
    for t in reader.tensors() {
        writer.tensor(&t.name, (conversion.choose)(t), t.dims())?;
    }
    writer.write(path, |spec, out| {
        let t = reader.tensor(&spec.name).expect("the specs were made from its tensors");
        let pieces = if spec.quant == t.quant { BATCH } else { BATCH * conversion.threads.max(1) };
        for elements in pieces_of(t, pieces) {
            let bytes = &reader.bytes(t)[elements.start / t.quant.block_len() * t.quant.block_bytes()..];
            let bytes = &bytes[..elements.len() / t.quant.block_len() * t.quant.block_bytes()];
            let encoded = match spec.quant == t.quant {
                true => vec![bytes.to_vec()],
                false => encode(t, bytes, spec.quant, conversion.threads)?,
            };
            for part in encoded {
                out.write_all(&part)?;
                progress(part.len() as u64);
            }
        }
        Ok(())
    })
}

/// Ranges of whole rows, about `size` elements each.
fn pieces_of(t: &TensorInfo, size: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let (row, all) = (t.ne[0] as usize, t.elements() as usize);
    let step = (size / row).max(1) * row;
    (0..all).step_by(step).map(move |start| start..(start + step).min(all))
}

/// Whole rows from one type to another, cut over the threads.
fn encode(t: &TensorInfo, bytes: &[u8], to: QuantType, threads: usize) -> Result<Vec<Vec<u8>>> {
    let row = t.quant.row_bytes(t.ne[0] as usize).expect("a read tensor has whole rows");
    let rows = (bytes.len() / row).div_ceil(threads.max(1));
    let one = |part: &[u8]| -> Result<Vec<u8>> {
        let mut values = vec![0.0; part.len() / t.quant.block_bytes() * t.quant.block_len()];
        t.quant.decode(part, &mut values);
        let mut out = Vec::new();
        to.encode(&values, &mut out)
            .map_err(|e| Error::Tensor { name: t.name.clone(), why: e.to_string() })?;
        Ok(out)
    };
    std::thread::scope(|s| {
        let jobs: Vec<_> = bytes.chunks(rows * row).map(|part| s.spawn(move || one(part))).collect();
        jobs.into_iter().map(|j| j.join().expect("encoding does not panic")).collect()
    })
}
