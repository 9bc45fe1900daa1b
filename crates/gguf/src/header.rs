//! The header of one GGUF file, parsed and checked: a pure function of the file's bytes.

use std::collections::{BTreeMap, HashSet};

use crate::cursor::Cursor;
use crate::error::{Error, Place, Result, UnknownType, short};
use crate::meta::Meta;
use crate::quant::QuantType;
use crate::values::{Array, Strings, Value};

/// Where the data starts unless the file says otherwise.
pub(crate) const DEFAULT_ALIGNMENT: u32 = 32;
/// The greatest alignment believed.
pub(crate) const MAX_ALIGNMENT: u32 = 1 << 20;
/// ggml keeps names in 64 bytes with a terminator.
pub(crate) const MAX_NAME: u64 = 63;
/// The longest key believed.
pub(crate) const MAX_KEY: u64 = 65_535;
const MAX_STRING: u64 = 1 << 30;
const MAX_ARRAY: u64 = 1 << 30;
const MAX_RECORDS: u64 = 65_536;
const MAX_TENSORS: u64 = 1_000_000;
/// The smallest record: length, one byte of key, type, one byte of value.
const MIN_RECORD: u64 = 8 + 1 + 4 + 1;
/// The smallest tensor record: length, one byte of name, count, one dimension, type, offset.
const MIN_TENSOR: u64 = 8 + 1 + 4 + 8 + 4 + 8;

/// All that a file says about itself before its data.
#[derive(Debug)]
pub struct Header {
    /// 2 or 3.
    pub version: u32,
    /// The metadata in file order.
    pub meta: Meta,
    /// The tensors in file order; those of an unreadable type are missing here and counted in `unknown`.
    pub tensors: Vec<RawTensor>,
    /// Types that cannot be read. If there are any, no data offset was checked: the file must not be used.
    pub unknown: Vec<UnknownType>,
    /// First byte of the data section; past the end of the file if there is no tensor.
    pub data_start: u64,
    /// First byte after the data of the last tensor, without its padding.
    pub data_end: u64,
    /// The file's alignment in bytes, a power of two.
    pub alignment: u32,
    /// Oddities that do no harm.
    pub warnings: Vec<String>,
}

/// One tensor record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawTensor {
    /// 1 to 63 bytes.
    pub name: String,
    /// How the elements are stored.
    pub quant: QuantType,
    /// Dimensions, first one contiguous in memory; missing ones are 1.
    pub ne: [u64; 4],
    /// First byte, counted from the start of the file.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// Parses the header of a file of which `bytes` is the whole (a map: only the header's pages are touched).
///
/// # Errors
/// Any rule of the format that is broken, with position and key or tensor. Arbitrary input never panics, and never
/// allocates more than a small multiple of the header's length.
pub fn parse_header(bytes: &[u8]) -> Result<Header> {
    let mut c = Cursor::new(bytes);
    let version = start(&mut c, bytes)?;
    let (n_tensors, n_records) = counts(&mut c).map_err(|e| e.at_place(|| Place::Start))?;
    let mut warnings = Vec::new();
    let meta = metadata(&mut c, n_records, &mut warnings)?;
    let alignment = alignment(&meta)?;
    let records = tensor_records(&mut c, n_tensors)?;
    let data_start = align_up(c.at(), alignment).expect("a position within a file plus 2^20 fits u64");
    let mut header = Header {
        version,
        meta,
        tensors: records.known,
        unknown: records.unknown,
        data_start,
        data_end: data_start,
        alignment,
        warnings,
    };
    if header.unknown.is_empty() {
        place_tensors(&mut header, bytes.len() as u64)?;
    }
    Ok(header)
}

/// The next multiple of `alignment`, if it fits.
pub(crate) fn align_up(at: u64, alignment: u32) -> Option<u64> {
    at.checked_next_multiple_of(alignment.into())
}

/// Magic and version; says as well as it can what a foreign file is.
fn start(c: &mut Cursor<'_>, bytes: &[u8]) -> Result<u32> {
    if !bytes.starts_with(b"GGUF") {
        return Err(Error::NotGguf { hint: guess(bytes), first: bytes[..bytes.len().min(16)].to_vec() });
    }
    c.take(4)?;
    match c.u32()? {
        version @ (2 | 3) => Ok(version),
        swapped if swapped & 0xFFFF == 0 && swapped != 0 => Err(Error::BigEndian),
        version => Err(Error::Version(version)),
    }
}

fn guess(bytes: &[u8]) -> &'static str {
    let text = bytes[..bytes.len().min(64)].trim_ascii_start().to_ascii_lowercase();
    let starts = |s: &str| text.starts_with(s.as_bytes());
    if bytes.is_empty() {
        "the file is empty; is the download complete?"
    } else if starts("version https://git-lfs") || starts("version http") {
        "it is only a pointer to a file that was not downloaded; fetch the content, e.g. with `git lfs pull`"
    } else if starts("<!doctype html") || starts("<html") {
        "it is a web page, perhaps an error page saved in place of the model; download the file again"
    } else if starts("ggjt") || starts("tjgg") || starts("ggmf") || starts("lmgg") || starts("fugg") {
        "it is in a format older than GGUF; convert the model again with a current converter"
    } else if starts("fugu") {
        "its byte order is reversed; convert the model again for little-endian machines"
    } else if bytes.starts_with(b"PK\x03\x04") {
        "it is a zip archive or a PyTorch checkpoint; unpack it or convert it to GGUF"
    } else if bytes.starts_with(&[0x1f, 0x8b]) || bytes.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        "it is compressed; unpack it first"
    } else if bytes.get(8) == Some(&b'{') {
        "it looks like safetensors; convert it to GGUF"
    } else if b"GGUF".starts_with(bytes) {
        "it ends within the first four bytes; is the download complete?"
    } else {
        "a GGUF file starts with the four letters GGUF"
    }
}

fn counts(c: &mut Cursor<'_>) -> Result<(u64, u64)> {
    let mut count = |what: &str, smallest: u64, cap: u64, after: u64| {
        let at = c.at();
        let n = c.u64()?;
        let room = c.left().saturating_sub(after) / smallest;
        if n > cap {
            return Err(Cursor::fault(at, format!("{n} {what} are claimed, at most {cap} are allowed")));
        }
        match n > room {
            true => {
                Err(Cursor::fault(at, format!("{n} {what} are claimed, but the file has room for {room}")))
            }
            false => Ok(n),
        }
    };
    Ok((
        count("tensors", MIN_TENSOR, MAX_TENSORS, 8)?,
        count("metadata records", MIN_RECORD, MAX_RECORDS, 0)?,
    ))
}

fn metadata(c: &mut Cursor<'_>, n: u64, warnings: &mut Vec<String>) -> Result<Meta> {
    let mut meta = Meta::new();
    for i in 0..n {
        let at = c.at();
        let key = c.text("key", MAX_KEY).map_err(|e| e.at_place(|| Place::KeyNo(i)))?;
        let place = || Place::Key(key.to_owned());
        if meta.get(key).is_some() {
            return Err(Cursor::fault(at, "the key occurs twice").at_place(place));
        }
        let mut odd_bool = false;
        let value = value(c, &mut odd_bool).map_err(|e| e.at_place(place))?;
        if odd_bool {
            let key = short(key);
            let what = "stores a bool as a byte other than 0 and 1; it is taken as true";
            warnings.push(format!("the key `{key}` {what}"));
        }
        meta.set(key, value);
    }
    Ok(meta)
}

fn value(c: &mut Cursor<'_>, odd_bool: &mut bool) -> Result<Value> {
    let at = c.at();
    Ok(match c.u32()? {
        0 => Value::U8(c.array().map(u8::from_le_bytes)?),
        1 => Value::I8(c.array().map(i8::from_le_bytes)?),
        2 => Value::U16(c.array().map(u16::from_le_bytes)?),
        3 => Value::I16(c.array().map(i16::from_le_bytes)?),
        4 => Value::U32(c.u32()?),
        5 => Value::I32(c.array().map(i32::from_le_bytes)?),
        6 => Value::F32(c.array().map(f32::from_le_bytes)?),
        7 => Value::Bool(truth(c.array()?, odd_bool)),
        8 => Value::String(c.string(MAX_STRING)?.to_vec()),
        9 => Value::Array(array(c, odd_bool)?),
        10 => Value::U64(c.u64()?),
        11 => Value::I64(c.array().map(i64::from_le_bytes)?),
        12 => Value::F64(c.array().map(f64::from_le_bytes)?),
        id => return Err(Cursor::fault(at, format!("unknown value type {id}, known are 0 to 12"))),
    })
}

fn truth([byte]: [u8; 1], odd: &mut bool) -> bool {
    *odd |= byte > 1;
    byte != 0
}

fn array(c: &mut Cursor<'_>, odd_bool: &mut bool) -> Result<Array> {
    let at = c.at();
    let id = c.u32()?;
    let n = c.u64()?;
    if n > MAX_ARRAY {
        return Err(Cursor::fault(at, format!("an array of {n} elements, at most {MAX_ARRAY} are allowed")));
    }
    Ok(match id {
        0 => Array::U8(numbers(c, n, u8::from_le_bytes)?),
        1 => Array::I8(numbers(c, n, i8::from_le_bytes)?),
        2 => Array::U16(numbers(c, n, u16::from_le_bytes)?),
        3 => Array::I16(numbers(c, n, i16::from_le_bytes)?),
        4 => Array::U32(numbers(c, n, u32::from_le_bytes)?),
        5 => Array::I32(numbers(c, n, i32::from_le_bytes)?),
        6 => Array::F32(numbers(c, n, f32::from_le_bytes)?),
        7 => Array::Bool(numbers(c, n, |b| truth(b, odd_bool))?),
        8 => Array::Strings(strings(c, n)?),
        9 => return Err(Cursor::fault(at, "an array of arrays, which no model file uses")),
        10 => Array::U64(numbers(c, n, u64::from_le_bytes)?),
        11 => Array::I64(numbers(c, n, i64::from_le_bytes)?),
        12 => Array::F64(numbers(c, n, f64::from_le_bytes)?),
        _ => {
            return Err(Cursor::fault(at, format!("unknown element type {id}, known are 0 to 12 without 9")));
        }
    })
}

fn numbers<const N: usize, T>(c: &mut Cursor<'_>, n: u64, make: impl FnMut([u8; N]) -> T) -> Result<Vec<T>> {
    let bytes = c.take(n * N as u64)?; // n <= 2^30
    let (elements, _) = bytes.as_chunks::<N>();
    Ok(elements.iter().copied().map(make).collect())
}

fn strings(c: &mut Cursor<'_>, n: u64) -> Result<Strings> {
    let at = c.at();
    if n * 8 > c.left() {
        return Err(Error::Truncated { at, place: Place::Start, need: n * 8, left: c.left() });
    }
    // Room is taken as the strings come: a claim alone never allocates.
    let mut list = Strings::default();
    for _ in 0..n {
        list.push(c.string(MAX_STRING)?);
    }
    Ok(list)
}

fn alignment(meta: &Meta) -> Result<u32> {
    let key = "general.alignment";
    match meta.get(key) {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(Value::U32(a)) if a.is_power_of_two() && *a <= MAX_ALIGNMENT => Ok(*a),
        Some(other) => Err(Error::KeyValue {
            key: key.to_owned(),
            found: format!("the {} {other}", other.type_name()),
            wanted: format!("a u32 power of two from 1 to {MAX_ALIGNMENT}"),
        }),
    }
}

struct Records {
    known: Vec<RawTensor>,
    unknown: Vec<UnknownType>,
}

/// All tensor records; offsets are still relative to the data section.
fn tensor_records(c: &mut Cursor<'_>, n: u64) -> Result<Records> {
    let mut known = Vec::with_capacity(n as usize); // n <= file length / 33
    let mut unknown: BTreeMap<u32, UnknownType> = BTreeMap::new();
    let mut names = HashSet::with_capacity(n as usize);
    for i in 0..n {
        let at = c.at();
        let name = c.text("name", MAX_NAME).map_err(|e| e.at_place(|| Place::TensorNo(i)))?;
        let place = || Place::Tensor(name.to_owned());
        if !names.insert(name) {
            return Err(Cursor::fault(at, "the name occurs twice").at_place(place));
        }
        let ne = dimensions(c).map_err(|e| e.at_place(place))?;
        let type_at = c.at();
        let id = c.u32().map_err(|e| e.at_place(place))?;
        let offset = c.u64().map_err(|e| e.at_place(place))?;
        match QuantType::known(id) {
            Ok(quant) => {
                let bytes = size(quant, &ne).map_err(|why| Cursor::fault(type_at, why).at_place(place))?;
                known.push(RawTensor { name: name.to_owned(), quant, ne, offset, bytes });
            }
            Err(id) => {
                let first = || UnknownType { id, count: 0, tensor: name.to_owned() };
                unknown.entry(id.id).or_insert_with(first).count += 1;
            }
        }
    }
    Ok(Records { known, unknown: unknown.into_values().collect() })
}

fn dimensions(c: &mut Cursor<'_>) -> Result<[u64; 4]> {
    let at = c.at();
    let n = c.u32()?;
    if !(1..=4).contains(&n) {
        return Err(Cursor::fault(at, format!("{n} dimensions, expected 1 to 4")));
    }
    let mut ne = [1; 4];
    let mut product: u64 = 1;
    for i in 0..n as usize {
        let at = c.at();
        ne[i] = c.u64()?;
        if ne[i] == 0 || ne[i] > i64::MAX as u64 {
            return Err(Cursor::fault(
                at,
                format!("dimension {i} is {}, expected 1 to 2^63 - 1", ne[i] as i64),
            ));
        }
        product = product.checked_mul(ne[i]).filter(|&p| p <= i64::MAX as u64).ok_or_else(|| {
            Cursor::fault(at, format!("the dimensions {:?} multiply to more than 2^63 - 1", &ne[..=i]))
        })?;
    }
    Ok(ne)
}

/// Bytes of a whole tensor, or why its rows do not work out.
pub(crate) fn size(quant: QuantType, ne: &[u64; 4]) -> std::result::Result<u64, String> {
    let block = quant.block_len() as u64;
    if !ne[0].is_multiple_of(block) {
        return Err(format!(
            "a row of {} elements is not a multiple of the {block} of a {} block",
            ne[0],
            quant.name()
        ));
    }
    let rows = ne[1].checked_mul(ne[2]).and_then(|n| n.checked_mul(ne[3]));
    let row = (ne[0] / block).checked_mul(quant.block_bytes() as u64);
    let all = rows.zip(row).and_then(|(rows, row)| rows.checked_mul(row));
    all.ok_or_else(|| {
        format!("the size of {} elements as {} is more than 2^64 bytes", show(ne), quant.name())
    })
}

fn show(ne: &[u64; 4]) -> String {
    ne.map(|n| n.to_string()).join(" x ")
}

/// Checks that the tensors lie one after the other within the file, and makes their offsets absolute.
fn place_tensors(header: &mut Header, file_len: u64) -> Result<()> {
    let align = header.alignment;
    let mut next: u64 = 0;
    for t in &mut header.tensors {
        let fail = |why: String| Err(Error::Tensor { name: t.name.clone(), why });
        if t.offset % u64::from(align) != 0 {
            return fail(format!("its offset {} is not a multiple of the alignment {align}", t.offset));
        }
        if t.offset != next {
            let how =
                if t.offset < next { "it overlaps the tensor before it" } else { "there is a gap before it" };
            return fail(format!("its offset is {}, expected {next}: {how}", t.offset));
        }
        let start = header.data_start.checked_add(t.offset);
        let Some(end) = start.and_then(|s| s.checked_add(t.bytes)).filter(|&end| end <= file_len) else {
            let start = start.map_or("2^64".to_owned(), |s| s.to_string());
            return fail(format!(
                "its {} bytes from byte {start} on go past the end of the file ({file_len} bytes); is the download complete?",
                t.bytes
            ));
        };
        next = align_up(t.offset + t.bytes, align).expect("an offset within a file plus 2^20 fits u64");
        t.offset += header.data_start;
        header.data_end = end;
    }
    after_data(header, file_len)
}

fn after_data(header: &mut Header, file_len: u64) -> Result<()> {
    let padded =
        align_up(header.data_end, header.alignment).expect("an end within a file plus 2^20 fits u64");
    if file_len > padded {
        header.warnings.push(format!("{} bytes follow the last tensor and are not used", file_len - padded));
    }
    Ok(())
}
