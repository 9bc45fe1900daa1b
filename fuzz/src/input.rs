//! Hostile bytes as a list of numbers and texts, and the same backwards for seeds.

use std::borrow::Cow;

/// Takes values off the front of any bytes; at their end everything is zero and empty.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// All of `data`.
    pub fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// At most `n` bytes.
    pub fn take(&mut self, n: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// One byte.
    pub fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    /// Four bytes.
    pub fn word(&mut self) -> u32 {
        u32::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// One of a list.
    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.byte() as usize % list.len()]
    }

    /// Bytes behind their number, a u16.
    pub fn bytes(&mut self) -> &'a [u8] {
        let n = u16::from_le_bytes([self.byte(), self.byte()]);
        self.take(n.into())
    }

    /// The same as text.
    pub fn text(&mut self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.bytes())
    }

    /// All that is left.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// Bytes that an [`Input`] takes apart again.
#[derive(Clone, Debug, Default)]
pub struct Seed(Vec<u8>);

impl Seed {
    /// Adds one byte.
    pub fn byte(mut self, byte: u8) -> Self {
        self.0.push(byte);
        self
    }

    /// Adds bytes behind their number; what does not fit a u16 is left out.
    pub fn bytes(mut self, bytes: impl AsRef<[u8]>) -> Self {
        let bytes = &bytes.as_ref()[..bytes.as_ref().len().min(u16::MAX.into())];
        self.0.extend((bytes.len() as u16).to_le_bytes());
        self.0.extend(bytes);
        self
    }

    /// Adds bytes as they are.
    pub fn raw(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.0.extend(bytes.as_ref());
        self
    }
}

impl AsRef<[u8]> for Seed {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
