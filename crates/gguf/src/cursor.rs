//! Reading numbers and texts from a byte slice, never past its end.

use crate::error::{Error, Place, Result, short};

/// A position in the bytes of a file. Faults carry the position; the caller adds the record's name.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, at: 0 }
    }

    pub(crate) fn at(&self) -> u64 {
        self.at as u64
    }

    pub(crate) fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    /// A fault at `at` that only the caller can name the place of.
    pub(crate) fn fault(at: u64, why: impl Into<String>) -> Error {
        Error::Header { at, place: Place::Start, why: why.into() }
    }

    pub(crate) fn take(&mut self, n: u64) -> Result<&'a [u8]> {
        let left = self.left();
        if n > left {
            return Err(Error::Truncated { at: self.at(), place: Place::Start, need: n, left });
        }
        let start = self.at;
        self.at += n as usize; // n <= left, which came from a usize
        Ok(&self.bytes[start..self.at])
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N as u64)?.try_into().expect("take gives N bytes"))
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A string of at most `cap` bytes: length as u64, then the bytes.
    pub(crate) fn string(&mut self, cap: u64) -> Result<&'a [u8]> {
        let at = self.at();
        let len = self.u64()?;
        if len > cap {
            return Err(Self::fault(at, format!("a string of {len} bytes, at most {cap} are allowed")));
        }
        self.take(len)
    }

    /// A string of 1..=`cap` bytes of UTF-8, `what` it is for the error text.
    pub(crate) fn text(&mut self, what: &str, cap: u64) -> Result<&'a str> {
        let at = self.at();
        let bytes = self.string(cap)?;
        if bytes.is_empty() {
            return Err(Self::fault(at, format!("the {what} is empty")));
        }
        std::str::from_utf8(bytes).map_err(|_| {
            Self::fault(
                at,
                format!("the {what} is no valid UTF-8: `{}`", short(&String::from_utf8_lossy(bytes))),
            )
        })
    }
}
