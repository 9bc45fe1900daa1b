//! The merge loop of both tokenizer families: join the best pair of neighbours until none is left.
//!
//! A heap of candidate pairs and a linked list of parts make it O(n log n) in the length of a piece, so that a
//! megabyte of one letter is no attack.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A part of the text being tokenized.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    /// Its first byte.
    pub(crate) start: usize,
    /// Its bytes; zero once it was merged into the part before it.
    pub(crate) len: usize,
    /// Its token, if it is one.
    pub(crate) id: Option<u32>,
}

/// The joint of a part with the one after it.
#[derive(Debug, Clone, Copy)]
struct Joint {
    prev: u32,
    next: u32,
    /// Rank and id of the two as one token.
    result: Option<(u32, u32)>,
}

/// Merges in place: what is left of `parts` are the tokens. `join` gives rank (lowest first) and id of a joint pair;
/// of equal ranks the leftmost is joined first. There are fewer than 2^32 parts.
pub(crate) fn merge(parts: &mut Vec<Part>, join: impl Fn(&Part, &Part) -> Option<(u32, u32)>) {
    let count = parts.len();
    let mut joints: Vec<Joint> = (0..count as u32)
        .map(|i| {
            let result = parts.get(i as usize + 1).and_then(|right| join(&parts[i as usize], right));
            Joint { prev: i.wrapping_sub(1), next: i + 1, result }
        })
        .collect();
    // Rank above, place below: one number orders the heap.
    let entry = |rank: u32, at: usize| Reverse((rank as u64) << 32 | at as u64);
    let ranked = joints.iter().enumerate().filter_map(|(at, j)| Some(entry(j.result?.0, at)));
    let mut heap: BinaryHeap<_> = ranked.collect();
    while let Some(Reverse(best)) = heap.pop() {
        let (rank, left) = ((best >> 32) as u32, (best & u64::from(u32::MAX)) as usize);
        // The pair here may be another than the one that was entered: what counts is its rank now.
        let Some((_, id)) = joints[left].result.filter(|&(now, _)| now == rank) else { continue };
        let right = joints[left].next as usize;
        parts[left].len += parts[right].len;
        parts[left].id = Some(id);
        parts[right].len = 0;
        joints[right].result = None;
        let (prev, next) = (joints[left].prev as usize, joints[right].next as usize);
        joints[left].next = next as u32;
        if next < count {
            joints[next].prev = left as u32;
        }
        for (a, b) in [(left, next), (prev, left)] {
            if a < count {
                joints[a].result = parts.get(b).and_then(|right| join(&parts[a], right));
                heap.extend(joints[a].result.map(|(rank, _)| entry(rank, a)));
            }
        }
    }
    parts.retain(|p| p.len > 0);
}
