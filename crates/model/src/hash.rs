//! A 64-bit hash that any number of threads can make in any order: every word times an odd number that tells its place,
//! added. One word that changed always changes it. It finds faults, not forgers.

/// 2^64 over the golden ratio. Both halves of its multiples, folded, look like chance: the changes of many words do not cancel
/// out, as they would if the places were evenly spaced.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Words whose places are told apart by a table; a second number tells which so many they are.
const TABLE: usize = 1024;

/// The half of a pair that comes first.
const LOW: u64 = 0xffff_ffff;

/// An odd number of 32 bits for each word of a table's length, those of even and of odd words apart: a vector instruction takes two words
/// of a pair as they lie, one after the other.
static PLACES: [[u64; TABLE / 2]; 2] = {
    let (mut places, mut i) = ([[0; TABLE / 2]; 2], 0);
    while i < TABLE {
        places[i % 2][i / 2] = spread(i as u64 + 1) & LOW | 1;
        i += 1;
    }
    places
};

/// The hash of bytes that come in pieces. Four are a word, little-endian; the last word is filled up with zeros.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hash {
    sum: u64,
    /// Bytes so far.
    bytes: u64,
}

impl Hash {
    /// Begins so many bytes behind the beginning, for somebody who has only a part. The hash of all parts is their sum.
    pub fn behind(bytes: u64) -> Hash {
        Hash { sum: 0, bytes }
    }

    /// Adds a piece.
    pub fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (word, skip) = (self.bytes / 4, (self.bytes % 4) as usize);
            let at = (word % TABLE as u64) as usize;
            let pairs = match (at % 2, skip) {
                (0, 0) => (bytes.len() / 8).min((TABLE - at) / 2),
                _ => 0,
            };
            let part = if pairs > 0 { 8 * pairs } else { bytes.len().min(4 - skip) };
            let (part, rest) = bytes.split_at(part);
            let sum =
                if pairs > 0 { summed(part, at / 2) } else { filled(part, skip) * PLACES[at % 2][at / 2] };
            self.sum = self.sum.wrapping_add(sum.wrapping_mul(group(word)));
            (self.bytes, bytes) = (self.bytes + part.len() as u64, rest);
        }
    }

    /// The hash of all pieces.
    pub fn finish(self) -> u64 {
        self.sum
    }
}

/// The hash of numbers as they lie in memory.
pub fn of(values: &[f32]) -> u64 {
    (0..).zip(values).fold(0, |sum, (i, v)| sum.wrapping_add(u64::from(v.to_bits()).wrapping_mul(place(i))))
}

/// Pairs of words times their places, from pair `first` of a table on.
fn summed(bytes: &[u8], first: usize) -> u64 {
    if let Ok(all) = bytes.try_into() {
        return vectors(all, &PLACES);
    }
    let places = PLACES[0][first..].iter().zip(&PLACES[1][first..]);
    bytes.as_chunks().0.iter().zip(places).fold(0, |sum, (pair, (even, odd))| {
        let pair = u64::from_le_bytes(*pair);
        sum.wrapping_add((pair & LOW) * even).wrapping_add((pair >> 32) * odd)
    })
}

/// The same of as many as the table has, in a loop that compilers turn into vector instructions.
fn vectors(bytes: &[u8; 4 * TABLE], [even, odd]: &[[u64; TABLE / 2]; 2]) -> u64 {
    let mut sums = [0u64; 2];
    for ((pair, even), odd) in bytes.as_chunks().0.iter().zip(even).zip(odd) {
        let pair = u64::from_le_bytes(*pair);
        // all have 32 bits: where that is said it takes one instruction to multiply them
        sums[0] = sums[0].wrapping_add((pair & LOW) * (even & LOW));
        sums[1] = sums[1].wrapping_add((pair >> 32) * (odd & LOW));
    }
    sums[0].wrapping_add(sums[1])
}

/// A part of a word that begins with so many bytes of others.
fn filled(part: &[u8], skip: usize) -> u64 {
    let mut word = [0; 4];
    word[skip..][..part.len()].copy_from_slice(part);
    u64::from(u32::from_le_bytes(word))
}

/// What a word is multiplied with. `kernels/common/hash.cuh` does the same.
fn place(word: u64) -> u64 {
    let at = (word % TABLE as u64) as usize;
    PLACES[at % 2][at / 2].wrapping_mul(group(word))
}

/// An odd number that tells which table's length a word is of: none that a place could have, or two words would have changed parts.
fn group(word: u64) -> u64 {
    spread(word / TABLE as u64 + TABLE as u64 + 1) | 1
}

/// Numbers one after the other, far apart.
const fn spread(n: u64) -> u64 {
    let step = n.wrapping_mul(GOLDEN);
    step ^ step >> 32
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
    fn long_runs_are_their_words() {
        let bytes: Vec<u8> = (0..40_003u32).map(|i| (i.wrapping_mul(i) ^ i >> 7) as u8).collect();
        let values: Vec<f32> =
            bytes.as_chunks().0.iter().map(|w| f32::from_bits(u32::from_le_bytes(*w))).collect();
        assert_eq!(whole(&bytes[..40_000]), of(&values));
        for at in [4, 9, 4096, 4099, 20_000] {
            let (front, rest) = bytes.split_at(at);
            let mut hash = Hash::behind(at as u64);
            hash.add(rest);
            assert_eq!(whole(front).wrapping_add(hash.finish()), whole(&bytes), "{at} in front");
        }
        // places behind the table's end are others, also where a word's and its group's number change parts
        for (i, j) in [(1, 1025), (1, 2049), (1026, 2049), (5000, 9096)] {
            let mut other = bytes.clone();
            (0..4).for_each(|b| other.swap(4 * i + b, 4 * j + b));
            assert_ne!(other, bytes);
            assert_ne!(whole(&other), whole(&bytes), "words {i} and {j}");
        }
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
