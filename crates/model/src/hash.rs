//! A 64-bit hash that any number of threads can make in any order: every word times an odd number that tells its place,
//! added. One word that changed always changes it. It finds faults, not forgers.

use std::array::from_fn;

/// 2^64 over the golden ratio. Both halves of its multiples, folded, look like chance: the changes of many words do not cancel
/// out, as they would if the places were evenly spaced.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Words that are taken side by side.
const LANES: usize = 8;

/// The hash of bytes that come in pieces. Four are a word, little-endian; the last word is filled up with zeros.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hash {
    sum: u64,
    /// Words so far.
    words: u64,
    /// The beginning of the next.
    rest: [u8; 4],
    held: usize,
}

impl Hash {
    /// Begins so many bytes behind the beginning, for somebody who has only a part. The hash of all parts is their sum.
    pub fn behind(bytes: u64) -> Hash {
        Hash { words: bytes / 4, held: (bytes % 4) as usize, ..Hash::default() }
    }

    /// Adds a piece.
    pub fn add(&mut self, mut bytes: &[u8]) {
        if self.held > 0 {
            let (more, others) = bytes.split_at(bytes.len().min(4 - self.held));
            self.rest[self.held..][..more.len()].copy_from_slice(more);
            (self.held, bytes) = (self.held + more.len(), others);
            if self.held < 4 {
                return;
            }
            self.word(self.rest);
        }
        let (blocks, others) = bytes.as_chunks();
        self.blocks(blocks);
        let (words, rest) = others.as_chunks();
        self.sum = mixed(self.sum, self.words, words.iter().map(|w| u32::from_le_bytes(*w)));
        self.words += words.len() as u64;
        (self.rest, self.held) = ([0; 4], rest.len());
        self.rest[..rest.len()].copy_from_slice(rest);
    }

    /// Words side by side, as vector instructions take them.
    fn blocks(&mut self, blocks: &[[u8; 4 * LANES]]) {
        let mut sums = [0u64; LANES];
        let mut steps: [u64; LANES] = from_fn(|l| (self.words + 1 + l as u64).wrapping_mul(GOLDEN));
        for block in blocks {
            let words = block.as_chunks().0.iter().map(|w| u32::from_le_bytes(*w));
            for ((sum, step), word) in sums.iter_mut().zip(&mut steps).zip(words) {
                *sum = sum.wrapping_add(u64::from(word) * folded(*step));
                *step = step.wrapping_add(GOLDEN.wrapping_mul(LANES as u64));
            }
        }
        self.sum = sums.into_iter().fold(self.sum, u64::wrapping_add);
        self.words += (LANES * blocks.len()) as u64;
    }

    fn word(&mut self, word: [u8; 4]) {
        self.sum = mixed(self.sum, self.words, std::iter::once(u32::from_le_bytes(word)));
        self.words += 1;
    }

    /// The hash of all pieces.
    pub fn finish(mut self) -> u64 {
        if self.held > 0 {
            self.word(self.rest);
        }
        self.sum
    }
}

/// The hash of numbers as they lie in memory.
pub fn of(values: &[f32]) -> u64 {
    mixed(0, 0, values.iter().map(|v| v.to_bits()))
}

/// `kernels/hash.cu` does the same.
fn mixed(sum: u64, first: u64, words: impl Iterator<Item = u32>) -> u64 {
    words
        .zip((first + 1..).map(|i| folded(i.wrapping_mul(GOLDEN))))
        .fold(sum, |sum, (w, place)| sum.wrapping_add(u64::from(w) * place))
}

/// An odd number of 32 bits that tells a place.
fn folded(step: u64) -> u64 {
    (step ^ step >> 32) & 0xffff_ffff | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: &[u8]) -> u64 {
        let mut hash = Hash::default();
        hash.add(bytes);
        hash.finish()
    }

    #[test]
    fn pieces_do_not_matter() {
        let bytes: Vec<u8> = (0..103u32).map(|i| (i * i + 7) as u8).collect();
        for piece in [1, 2, 3, 5, 16, 102, 200] {
            let mut hash = Hash::default();
            bytes.chunks(piece).for_each(|p| hash.add(p));
            assert_eq!(hash.finish(), whole(&bytes), "{piece}");
        }
        for at in [0, 1, 6, 40, 103] {
            let (front, rest) = bytes.split_at(at);
            let mut hash = Hash::behind(at as u64);
            hash.add(rest);
            assert_eq!(whole(front).wrapping_add(hash.finish()), whole(&bytes), "{at} in front");
        }
        let mut filled = bytes.clone();
        filled.push(0);
        assert_eq!(whole(&filled), whole(&bytes), "the last word is filled up with zeros");
    }

    #[test]
    fn numbers_are_their_bytes() {
        let values = [1.0f32, -0.0, f32::NAN, 3e-40];
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(of(&values), whole(&bytes));
    }

    #[test]
    fn every_flipped_bit_and_every_swap_is_seen() {
        let bytes: Vec<u8> = (0..64u32).map(|i| (i * 37 + 11) as u8).collect();
        for bit in 0..8 * bytes.len() {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(whole(&other), whole(&bytes), "bit {bit}");
        }
        for (i, j) in (0..16).flat_map(|i| (0..i).map(move |j| (i, j))) {
            let mut other = bytes.clone();
            (0..4).for_each(|b| other.swap(4 * i + b, 4 * j + b));
            assert_ne!(whole(&other), whole(&bytes), "words {i} and {j}");
        }
        // a line of a memory that is stuck flips the same bit again and again
        for bit in 0..32 {
            let mut other = bytes.clone();
            (0..16).step_by(2).for_each(|w| other[4 * w + bit / 8] ^= 1 << (bit % 8));
            assert_ne!(whole(&other), whole(&bytes), "bit {bit} of every second word");
        }
    }
}
