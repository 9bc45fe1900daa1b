//! Writing GGUF files, whole or split, without holding the data in memory.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result, short};
use crate::header::{DEFAULT_ALIGNMENT, MAX_ALIGNMENT, MAX_KEY, MAX_NAME, align_up, size};
use crate::meta::Meta;
use crate::quant::QuantType;
use crate::split::{KEY_COUNT, KEY_NO, KEY_TENSORS, MAX_PARTS, part_name};
use crate::values::{Array, Value};

/// A tensor to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSpec {
    /// 1 to 63 bytes, unique.
    pub name: String,
    /// How the elements are stored.
    pub quant: QuantType,
    /// 1 to 4 dimensions, first one contiguous in memory.
    pub ne: Vec<u64>,
    /// Length of the data.
    pub bytes: u64,
}

/// How a model is cut into files. A limit that is None never cuts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Split {
    /// The most tensors a part has.
    pub max_tensors: Option<usize>,
    /// The most bytes of tensor data a part has; a single greater tensor has a part of its own.
    pub max_bytes: Option<u64>,
    /// The first part has metadata only.
    pub metadata_first: bool,
}

/// Collects metadata and tensor records, then writes them with the data that a callback supplies.
#[derive(Debug, Clone)]
pub struct Writer {
    meta: Meta,
    tensors: Vec<TensorSpec>,
    split: Option<Split>,
    alignment: u32,
}

impl Writer {
    /// A file with this metadata. Its `general.alignment` is used if it is there, else 32.
    ///
    /// # Errors
    /// `general.alignment` is no u32 power of two up to 2^20, or a key has no length from 1 to 65,535.
    pub fn new(meta: Meta) -> Result<Writer> {
        let alignment = meta.may::<u32>("general.alignment")?.unwrap_or(DEFAULT_ALIGNMENT);
        if !alignment.is_power_of_two() || alignment > MAX_ALIGNMENT {
            return fail(format!(
                "general.alignment is {alignment}, expected a power of two up to {MAX_ALIGNMENT}"
            ));
        }
        if let Some((key, _)) = meta.iter().find(|(k, _)| k.is_empty() || k.len() as u64 > MAX_KEY) {
            return fail(format!("a key has {} bytes, expected 1 to {MAX_KEY}", key.len()));
        }
        Ok(Writer { meta, tensors: Vec::new(), split: None, alignment })
    }

    /// Cuts the model into several files.
    pub fn split(mut self, split: Split) -> Writer {
        self.split = Some(split);
        self
    }

    /// Adds a tensor; data is written in the order of these calls.
    ///
    /// # Errors
    /// A name that is too long or there already, more than 4 dimensions, a row that is no whole number of blocks.
    pub fn tensor(&mut self, name: &str, quant: QuantType, ne: &[u64]) -> Result<()> {
        if name.is_empty() || name.len() as u64 > MAX_NAME {
            return fail(format!(
                "tensor `{}`: the name has {} bytes, expected 1 to {MAX_NAME}",
                short(name),
                name.len()
            ));
        }
        if !(1..=4).contains(&ne.len()) || ne.contains(&0) {
            let name = short(name);
            return fail(format!("tensor `{name}`: dimensions {ne:?}, expected 1 to 4 and none of them 0"));
        }
        let mut four = [1; 4];
        four[..ne.len()].copy_from_slice(ne);
        let bytes = size(quant, &four)
            .map_err(|why| Error::Write { why: format!("tensor `{}`: {why}", short(name)) })?;
        self.tensors.push(TensorSpec { name: name.to_owned(), quant, ne: ne.to_vec(), bytes });
        Ok(())
    }

    /// The tensors added so far.
    pub fn tensors(&self) -> &[TensorSpec] {
        &self.tensors
    }

    /// Writes the file or files and gives their names: `path` itself, or `stem-00001-of-0000N.gguf` beside it.
    /// `data` writes the bytes of each tensor, in order. Files get their names only when all are complete.
    ///
    /// # Errors
    /// The system's, those of `data`, or data of another length than announced.
    pub fn write(
        &self,
        path: &Path,
        mut data: impl FnMut(&TensorSpec, &mut dyn Write) -> Result<()>,
    ) -> Result<Vec<PathBuf>> {
        self.files(path, |file, tensors, start| {
            let mut out = Counted { to: BufWriter::with_capacity(1 << 20, file), n: start };
            for tensor in tensors {
                out.pad(self.alignment)?;
                let before = out.n;
                data(tensor, &mut out)?;
                let written = out.n - before;
                if written != tensor.bytes {
                    return fail(format!(
                        "tensor `{}`: {written} bytes were given, expected {}",
                        short(&tensor.name),
                        tensor.bytes
                    ));
                }
            }
            out.pad(self.alignment)?;
            Ok(out.flush()?)
        })
    }

    /// Writes headers only and gives the files their full length: the data are holes that take no space and read as
    /// zeros.
    ///
    /// # Errors
    /// The system's.
    pub fn write_sparse(&self, path: &Path) -> Result<Vec<PathBuf>> {
        self.files(path, |file, tensors, start| {
            let step = |at: Option<u64>, t: &TensorSpec| align_up(at?, self.alignment)?.checked_add(t.bytes);
            let end = tensors.iter().fold(Some(start), step).and_then(|end| align_up(end, self.alignment));
            let Some(end) = end else { return fail("the file is longer than 2^64 bytes".to_owned()) };
            Ok(file.set_len(end)?)
        })
    }

    /// Writes every header, has `body` add the rest from the given position on, and renames the files at the end.
    fn files(
        &self,
        path: &Path,
        mut body: impl FnMut(&File, &[TensorSpec], u64) -> Result<()>,
    ) -> Result<Vec<PathBuf>> {
        self.refuse_doubles()?;
        let parts = self.parts();
        let paths = self.paths(path, parts.len())?;
        paths.iter().try_for_each(|path| refuse_others(path))?;
        let partial = |p: &Path| {
            let mut name = OsString::from(p);
            name.push(".partial");
            PathBuf::from(name)
        };
        for (no, (tensors, path)) in parts.iter().zip(&paths).enumerate() {
            let mut one = || {
                let header = self.header(no, parts.len(), tensors)?;
                let mut file = File::create(partial(path))?;
                file.write_all(&header)?;
                body(&file, tensors, header.len() as u64)
            };
            if let Err(error) = one() {
                // What is left of a failed attempt is of no use; that it may be left anyway changes nothing.
                paths.iter().for_each(|path| drop(fs::remove_file(partial(path))));
                return Err(error.in_file(path));
            }
        }
        for path in &paths {
            fs::rename(partial(path), path).map_err(|e| Error::from(e).in_file(path))?;
        }
        Ok(paths)
    }

    fn refuse_doubles(&self) -> Result<()> {
        let mut names: Vec<&str> = self.tensors.iter().map(|t| t.name.as_str()).collect();
        names.sort_unstable();
        match names.windows(2).find(|w| w[0] == w[1]) {
            Some(w) => fail(format!("tensor `{}` is there twice", short(w[0]))),
            None => Ok(()),
        }
    }

    /// The tensors of each file.
    fn parts(&self) -> Vec<&[TensorSpec]> {
        let Some(split) = self.split else { return vec![&self.tensors] };
        let mut parts: Vec<&[TensorSpec]> = if split.metadata_first { vec![&[]] } else { vec![] };
        let (mut first, mut bytes) = (0, 0u64);
        for (i, tensor) in self.tensors.iter().enumerate() {
            let full = split.max_tensors.is_some_and(|max| i - first >= max)
                || split.max_bytes.is_some_and(|max| bytes.saturating_add(tensor.bytes) > max);
            if full && i > first {
                parts.push(&self.tensors[first..i]);
                (first, bytes) = (i, 0);
            }
            bytes = bytes.saturating_add(tensor.bytes);
        }
        if first < self.tensors.len() || parts.is_empty() {
            parts.push(&self.tensors[first..]);
        }
        parts
    }

    fn paths(&self, path: &Path, count: usize) -> Result<Vec<PathBuf>> {
        if self.split.is_none() {
            return Ok(vec![path.to_owned()]);
        }
        let n = u32::try_from(count).unwrap_or(u32::MAX);
        if n > MAX_PARTS {
            return fail(format!("it would be cut into {count} parts, at most {MAX_PARTS} are allowed"));
        }
        let Some(stem) = path.file_stem().and_then(|s| s.to_str()) else {
            return fail(format!("{}: a split model needs a UTF-8 file name", path.display()));
        };
        Ok((0..n).map(|no| path.with_file_name(part_name(stem, no, n))).collect())
    }

    /// The bytes of one file before its data, without the padding.
    fn header(&self, no: usize, count: usize, tensors: &[TensorSpec]) -> Result<Vec<u8>> {
        let meta = self.part_meta(no, count);
        let mut out = b"GGUF".to_vec();
        out.extend(3u32.to_le_bytes());
        out.extend((tensors.len() as u64).to_le_bytes());
        out.extend((meta.len() as u64).to_le_bytes());
        for (key, value) in meta.iter() {
            put_string(&mut out, key.as_bytes());
            put_value(&mut out, value);
        }
        let mut offset = 0u64;
        for tensor in tensors {
            put_string(&mut out, tensor.name.as_bytes());
            out.extend((tensor.ne.len() as u32).to_le_bytes());
            tensor.ne.iter().for_each(|n| out.extend(n.to_le_bytes()));
            out.extend(tensor.quant.id().to_le_bytes());
            out.extend(offset.to_le_bytes());
            let Some(next) = offset.checked_add(tensor.bytes).and_then(|end| align_up(end, self.alignment))
            else {
                return fail("the data of a file is longer than 2^64 bytes".to_owned());
            };
            offset = next;
        }
        if !tensors.is_empty() {
            out.resize(out.len().next_multiple_of(self.alignment as usize), 0);
        }
        Ok(out)
    }

    /// All metadata for the first file, of a split model's others only what belongs to the part itself.
    fn part_meta(&self, no: usize, count: usize) -> Meta {
        let mut meta = if no == 0 { self.meta.clone() } else { Meta::new() };
        if self.split.is_some() {
            meta.set(KEY_NO, no as u16); // count <= 1024
            meta.set(KEY_COUNT, count as u16);
            meta.set(KEY_TENSORS, self.tensors.len() as i32);
            if self.alignment != DEFAULT_ALIGNMENT {
                meta.set("general.alignment", self.alignment);
            }
        }
        meta
    }
}

/// A file may be replaced, a folder or a device (renaming would put a file in its place) may not.
fn refuse_others(path: &Path) -> Result<()> {
    match fs::metadata(path) {
        Ok(stat) if !stat.is_file() => {
            let what = if stat.is_dir() { "a folder" } else { "a device or a pipe" };
            Err(Error::NoFile { what }.in_file(path))
        }
        _ => Ok(()), // what cannot be looked at cannot be created either: that error says more
    }
}

fn fail<T>(why: String) -> Result<T> {
    Err(Error::Write { why })
}

/// A stream that knows its position in the file.
struct Counted<W> {
    to: W,
    n: u64,
}

impl<W: Write> Counted<W> {
    fn pad(&mut self, alignment: u32) -> io::Result<()> {
        let missing = self.n.next_multiple_of(alignment.into()) - self.n;
        self.write_all(&vec![0; missing as usize])
    }
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.to.write(bytes)?;
        self.n += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn put_string(out: &mut Vec<u8>, text: &[u8]) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text);
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    macro_rules! number {
        ($id:literal, $v:expr) => {{
            out.extend(u32::to_le_bytes($id));
            out.extend($v.to_le_bytes());
        }};
    }
    match value {
        Value::U8(v) => number!(0, v),
        Value::I8(v) => number!(1, v),
        Value::U16(v) => number!(2, v),
        Value::I16(v) => number!(3, v),
        Value::U32(v) => number!(4, v),
        Value::I32(v) => number!(5, v),
        Value::F32(v) => number!(6, v),
        Value::Bool(v) => number!(7, u8::from(*v)),
        Value::U64(v) => number!(10, v),
        Value::I64(v) => number!(11, v),
        Value::F64(v) => number!(12, v),
        Value::String(v) => {
            out.extend(8u32.to_le_bytes());
            put_string(out, v);
        }
        Value::Array(v) => {
            out.extend(9u32.to_le_bytes());
            put_array(out, v);
        }
    }
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    macro_rules! numbers {
        ($id:literal, $v:expr) => {{
            out.extend(u32::to_le_bytes($id));
            out.extend((array.len() as u64).to_le_bytes());
            $v.for_each(|x| out.extend(x.to_le_bytes()));
        }};
    }
    match array {
        Array::U8(v) => numbers!(0, v.iter()),
        Array::I8(v) => numbers!(1, v.iter()),
        Array::U16(v) => numbers!(2, v.iter()),
        Array::I16(v) => numbers!(3, v.iter()),
        Array::U32(v) => numbers!(4, v.iter()),
        Array::I32(v) => numbers!(5, v.iter()),
        Array::F32(v) => numbers!(6, v.iter()),
        Array::Bool(v) => numbers!(7, v.iter().map(|&b| u8::from(b))),
        Array::U64(v) => numbers!(10, v.iter()),
        Array::I64(v) => numbers!(11, v.iter()),
        Array::F64(v) => numbers!(12, v.iter()),
        Array::Strings(v) => {
            out.extend(8u32.to_le_bytes());
            out.extend((v.len() as u64).to_le_bytes());
            v.iter().for_each(|s| put_string(out, s));
        }
    }
}
