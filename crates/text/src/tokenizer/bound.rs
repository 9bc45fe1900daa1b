//! How many tokens a text has at least, known without tokenizing it.
//!
//! A byte belongs to one token, and that is no longer than the longest token with such a byte: so the byte stands for
//! at least that fraction of a token, and the fractions of all bytes add up to no more than there are tokens.

/// A whole token, in the units that fractions are counted in. They are rounded down.
const WHOLE: u64 = 1 << 32;

/// The fraction of a token that each byte stands for.
#[derive(Debug)]
pub(crate) struct Bound([u64; 256]);

impl Bound {
    /// Of the texts that single tokens may stand for; none is taken for shorter than `least` bytes.
    pub(crate) fn new(texts: impl Iterator<Item = impl AsRef<[u8]>>, least: usize) -> Bound {
        let mut longest = [least.max(1); 256];
        for text in texts {
            let text = text.as_ref();
            for byte in text {
                let longest = &mut longest[*byte as usize];
                *longest = text.len().max(*longest);
            }
        }
        Bound(longest.map(|bytes| WHOLE / bytes as u64))
    }

    /// A text has no fewer tokens than this.
    pub(crate) fn tokens(&self, text: &str) -> usize {
        text.bytes().map(|byte| self.0[byte as usize]).sum::<u64>().div_ceil(WHOLE) as usize
    }
}
