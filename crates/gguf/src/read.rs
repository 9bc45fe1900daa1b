//! Opening a model: one file or all parts of a split one, mapped, checked, and looked up by tensor name.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result, UnknownType};
use crate::header::{RawTensor, parse_header};
use crate::map::Map;
use crate::meta::Meta;
use crate::quant::QuantType;
use crate::split::{self, Part};

/// A tensor of the model: where it lies and how it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// 1 to 63 bytes, unique in the model.
    pub name: String,
    /// How the elements are stored.
    pub quant: QuantType,
    /// Dimensions, first one contiguous in memory (the input dimension of a matrix); missing ones are 1.
    pub ne: [u64; 4],
    /// Index into [`Reader::files`].
    pub file: usize,
    /// First byte, counted from the start of that file.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl TensorInfo {
    /// The dimensions without trailing ones, at least one.
    pub fn dims(&self) -> &[u64] {
        let n = self.ne.iter().rposition(|&n| n != 1).map_or(1, |last| last + 1);
        &self.ne[..n]
    }

    /// Number of elements; the reader has checked that it fits.
    pub fn elements(&self) -> u64 {
        self.ne.iter().product()
    }
}

/// An open model. Opening reads headers only; weights are read when their bytes are looked at.
pub struct Reader {
    meta: Meta,
    version: u32,
    tensors: Vec<TensorInfo>,
    index: HashMap<String, usize>,
    files: Vec<PathBuf>,
    maps: Vec<Map>,
    warnings: Vec<String>,
}

impl Reader {
    /// Opens a model by the name of its file, or of any part if it is split (`…-00002-of-00003.gguf`). The other parts
    /// are looked for beside the name as given (not beside the target of a link), then in the sub-folders there.
    ///
    /// # Errors
    /// No readable file, no GGUF file, a broken rule of the format, parts that are missing or do not belong together,
    /// or tensors of unknown types; the text names the file.
    pub fn open(path: &Path) -> Result<Reader> {
        let mut parts = split::collect(open_part(path)?, open_part)?;
        refuse_unknown_types(&parts)?;
        let expected = split::expected_tensors(&parts)?;
        let mut reader = Reader {
            meta: std::mem::take(&mut parts[0].header.meta),
            version: parts[0].header.version,
            tensors: Vec::new(),
            index: HashMap::new(),
            files: Vec::new(),
            maps: Vec::new(),
            warnings: Vec::new(),
        };
        parts.into_iter().try_for_each(|part| reader.add(part))?;
        match expected {
            Some(n) if n != reader.tensors.len() as u64 => {
                let why = format!("all parts together have {} tensors, expected {n}", reader.tensors.len());
                Err(Error::Split { why }.in_file(path))
            }
            _ => Ok(reader),
        }
    }

    fn add(&mut self, part: Part) -> Result<()> {
        let file = self.files.len();
        for RawTensor { name, quant, ne, offset, bytes } in part.header.tensors {
            if let Some(&other) = self.index.get(&name) {
                let first = self.files[self.tensors[other].file].display();
                let why = format!("is also in {first}; a name must be unique in all parts");
                return Err(Error::Tensor { name, why }.in_file(&part.path));
            }
            self.index.insert(name.clone(), self.tensors.len());
            self.tensors.push(TensorInfo { name, quant, ne, file, offset, bytes });
        }
        let named = |w: &String| format!("{}: {w}", part.path.display());
        self.warnings.extend(part.header.warnings.iter().map(named));
        self.files.push(part.path);
        self.maps.push(part.map);
        Ok(())
    }

    /// Adds the tensors of a companion that are not here yet: a next-token layer in a file of its own, which may repeat
    /// the embedding. The metadata stays as it is.
    ///
    /// # Errors
    /// A companion that adds nothing, or whose tensor of a known name has another shape.
    pub fn attach(&mut self, companion: Reader) -> Result<()> {
        let known = |t: &TensorInfo| self.tensor(&t.name).map(|mine| mine.ne);
        let wrong = |t: &&TensorInfo| known(t).is_some_and(|ne| ne != t.ne);
        let refuse =
            |name: &str, why| Err(Error::Tensor { name: name.into(), why }.in_file(&companion.files[0]));
        if let Some(t) = companion.tensors.iter().find(wrong) {
            return refuse(
                &t.name,
                format!("has shape {:?}, but {:?} in the model", t.ne, known(t).unwrap_or_default()),
            );
        }
        let new: Vec<TensorInfo> = companion.tensors.iter().filter(|t| known(t).is_none()).cloned().collect();
        if new.is_empty() {
            let name = companion.tensors.first().map_or("", |t| &t.name);
            return refuse(name, "is in the model already, as all others of this file".into());
        }
        let first = self.files.len();
        for t in new {
            self.index.insert(t.name.clone(), self.tensors.len());
            self.tensors.push(TensorInfo { file: first + t.file, ..t });
        }
        self.files.extend(companion.files);
        self.maps.extend(companion.maps);
        self.warnings.extend(companion.warnings);
        Ok(())
    }

    /// The metadata, of the first part if the model is split.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The metadata for changes that apply to this reader only.
    pub fn meta_mut(&mut self) -> &mut Meta {
        &mut self.meta
    }

    /// All tensors, part by part in file order. The order means nothing.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of this name, if there is one.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name).map(|&i| &self.tensors[i])
    }

    /// The stored bytes of a tensor of this reader: rows of `ne[0]` elements, one after the other.
    ///
    /// # Panics
    /// If `tensor` comes from another reader.
    pub fn bytes(&self, tensor: &TensorInfo) -> &[u8] {
        let start = tensor.offset as usize; // checked against the length of the map, a usize
        &self.maps[tensor.file][start..start + tensor.bytes as usize]
    }

    /// Copies bytes of part `file` from `offset` on. What is read once and in order comes faster so than by the pages of
    /// [`Reader::bytes`].
    ///
    /// # Errors
    /// If the system can't read them, or the file ends before.
    ///
    /// # Panics
    /// If there is no such part.
    pub fn read(&self, file: usize, offset: u64, out: &mut [u8]) -> Result<()> {
        self.maps[file].read(offset, out).map_err(|e| e.in_file(&self.files[file]))
    }

    /// The files of the model, in order of the parts.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Length of all files together.
    pub fn total_bytes(&self) -> u64 {
        self.maps.iter().map(|m| m.len() as u64).sum()
    }

    /// The version of the format, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Oddities of the files that do no harm, each naming its file.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

fn open_part(path: &Path) -> Result<Part> {
    let open = || {
        let map = Map::open(path)?;
        let header = parse_header(&map)?;
        Ok(Part { path: path.to_owned(), map, header })
    };
    open().map_err(|e: Error| e.in_file(path))
}

/// Reports the unreadable types of all parts at once.
fn refuse_unknown_types(parts: &[Part]) -> Result<()> {
    let mut all: Vec<UnknownType> = Vec::new();
    for part in parts {
        for new in &part.header.unknown {
            match all.iter_mut().find(|u| u.id == new.id) {
                Some(known) => known.count += new.count,
                None => all.push(new.clone()),
            }
        }
    }
    match all.is_empty() {
        true => Ok(()),
        false => Err(Error::TensorTypes(all).in_file(&parts[0].path)),
    }
}
