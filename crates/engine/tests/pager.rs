//! Cache blocks under random use: none lost, none with two writers, what is found is what was asked for.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use shardwright_engine::pager::{Lease, Pager, blocks_for};
use shardwright_model::exec::BLOCK;
use std::collections::{BTreeMap, BTreeSet};

const TOTAL: usize = 20;

/// What a sequence does.
#[derive(Clone, Debug)]
enum Act {
    /// Begins: a prompt made of blocks, each of one kind of token, and some more.
    Lease(Vec<u32>, usize),
    Grow(usize, usize),
    /// Computes so many of its tokens.
    Compute(usize, usize),
    Drop(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let kinds = prop::collection::vec(0..2u32, 0..7);
    let act = prop_oneof![
        (kinds, 0..BLOCK).prop_map(|(kinds, more)| Act::Lease(kinds, more)),
        (0..8usize, 0..900usize).prop_map(|(i, n)| Act::Grow(i, n)),
        (0..8usize, 0..900usize).prop_map(|(i, n)| Act::Compute(i, n)),
        (0..8usize, 0..900usize).prop_map(|(i, n)| Act::Compute(i, n)),
        (0..8usize).prop_map(Act::Drop),
    ];
    prop::collection::vec(act, 0..80)
}

/// A sequence that keeps to the rules: it writes to its own blocks only, and publishes what it wrote.
struct Sequence {
    tokens: Vec<u32>,
    cached: usize,
    lease: Lease,
}

impl Sequence {
    fn new(kinds: &[u32], more: usize, pager: &Pager) -> Sequence {
        let mut tokens: Vec<u32> = kinds.iter().flat_map(|kind| [*kind; BLOCK]).collect();
        tokens.extend(vec![9; more]);
        let lease = pager.lease(&tokens);
        Sequence { cached: lease.pages() * BLOCK, tokens, lease }
    }

    /// Writes up to `to`; `memory` is what the blocks hold.
    fn compute(&mut self, to: usize, memory: &mut BTreeMap<u32, Vec<u32>>) {
        let to = to.min(self.tokens.len()).min(self.lease.blocks().len() * BLOCK);
        for at in self.cached..to.max(self.cached) {
            let block = memory.entry(self.lease.blocks()[at / BLOCK]).or_default();
            block.truncate(at % BLOCK);
            block.push(self.tokens[at]);
        }
        self.cached = to.max(self.cached);
        self.lease.publish(&self.tokens[..self.cached]);
    }
}

fn check(sequences: &[Sequence], pager: &Pager, memory: &BTreeMap<u32, Vec<u32>>) {
    let leases = || sequences.iter().map(|s| &s.lease);
    let written: Vec<u32> = leases().flat_map(|l| l.blocks()[l.pages()..].iter().copied()).collect();
    let shared: BTreeSet<u32> = leases().flat_map(|l| l.blocks()[..l.pages()].iter().copied()).collect();
    let own: BTreeSet<u32> = written.iter().copied().collect();
    assert_eq!(own.len(), written.len(), "a block has two writers");
    assert!(own.is_disjoint(&shared), "a page is written to");
    assert!(own.union(&shared).all(|b| (*b as usize) < TOTAL));
    assert_eq!(own.len() + shared.len() + pager.free(), TOTAL, "a block is lost");
    assert!(pager.idle() <= pager.free());
    for s in sequences {
        let held = s.lease.blocks().iter().flat_map(|b| memory.get(b).into_iter().flatten());
        let held: Vec<u32> = held.copied().take(s.cached).collect();
        assert!(held == s.tokens[..s.cached], "a sequence's past has changed");
    }
}

proptest! {
    #[test]
    fn blocks_are_never_lost_nor_written_by_two(acts in acts()) {
        let pager = Pager::new(TOTAL);
        let mut memory = BTreeMap::new();
        let mut sequences: Vec<Sequence> = Vec::new();
        for act in acts {
            match act {
                Act::Lease(kinds, more) => sequences.push(Sequence::new(&kinds, more, &pager)),
                Act::Grow(i, n) => if let Some(s) = sequences.get_mut(i) {
                    let (before, free) = (s.lease.blocks().to_vec(), pager.free());
                    let grown = s.lease.grow(n);
                    prop_assert!(s.lease.blocks().starts_with(&before));
                    prop_assert_eq!(grown, blocks_for(n) <= before.len() + free);
                    let right = blocks_for(n).max(before.len());
                    prop_assert_eq!(s.lease.blocks().len(), if grown { right } else { before.len() });
                }
                Act::Compute(i, n) => if let Some(s) = sequences.get_mut(i) {
                    s.compute(n, &mut memory);
                }
                Act::Drop(i) => if i < sequences.len() { drop(sequences.swap_remove(i)) },
            }
            check(&sequences, &pager, &memory);
        }
        sequences.clear();
        prop_assert_eq!(pager.free(), TOTAL);
        let mut all = pager.lease(&[]);
        prop_assert!(all.grow(TOTAL * BLOCK));
        prop_assert_eq!(all.blocks().iter().collect::<BTreeSet<_>>().len(), TOTAL);
        prop_assert_eq!(pager.idle(), 0);
    }
}

/// A lease on tokens that are all computed.
fn computed(pager: &Pager, tokens: &[u32]) -> Lease {
    let mut lease = pager.lease(tokens);
    assert!(lease.grow(tokens.len()));
    lease.publish(tokens);
    lease
}

fn blocks_of(kinds: &[u32]) -> Vec<u32> {
    kinds.iter().flat_map(|kind| [*kind; BLOCK]).collect()
}

#[test]
fn fresh_blocks_come_in_order() {
    let mut lease = Pager::new(9).lease(&[]);
    assert!(lease.grow(3 * BLOCK - 1));
    assert_eq!(lease.blocks(), [0, 1, 2]);
}

#[test]
fn what_begins_alike_is_found() {
    let pager = Pager::new(9);
    drop(computed(&pager, &blocks_of(&[1, 2, 3])));
    assert_eq!((pager.free(), pager.idle()), (9, 3));
    let check = |kinds: &[u32], cut: usize, pages: usize| {
        let tokens = blocks_of(kinds);
        assert_eq!(pager.lease(&tokens[..tokens.len() - cut]).pages(), pages, "{kinds:?} - {cut}");
    };
    check(&[1, 2, 3], 0, 3);
    check(&[1, 2, 3], 1, 2);
    check(&[1, 2, 3, 1], 0, 3);
    check(&[1, 2, 4], 0, 2);
    // the same tokens at another place are something else
    check(&[2, 3], 0, 0);
    check(&[3], 0, 0);
    check(&[], 0, 0);
    let other = Pager::new(9).without_pages();
    drop(computed(&other, &blocks_of(&[1, 2])));
    assert_eq!((other.lease(&blocks_of(&[1, 2])).pages(), other.idle()), (0, 0));
}

#[test]
fn two_who_computed_the_same_hold_one_block() {
    let pager = Pager::new(9);
    let tokens = blocks_of(&[1, 2]);
    let [mut a, mut b] = [pager.lease(&tokens), pager.lease(&tokens)];
    assert!(a.grow(150) && b.grow(150));
    a.publish(&tokens);
    b.publish(&tokens);
    assert_eq!(a.blocks()[..2], b.blocks()[..2]);
    assert_ne!(a.blocks()[2], b.blocks()[2]);
    assert_eq!(pager.free(), 9 - 4);
}

#[test]
fn the_longest_unused_goes_first_and_ends_before_beginnings() {
    let pager = Pager::new(4);
    drop(computed(&pager, &blocks_of(&[1, 2])));
    drop(computed(&pager, &blocks_of(&[3, 4])));
    let found = |kinds: &[u32]| pager.lease(&blocks_of(kinds)).pages();
    assert!(pager.lease(&[]).grow(1));
    assert_eq!((found(&[1, 2]), found(&[3, 4])), (1, 2));
    // [1] was asked for before [3, 4]; its block came back empty and is taken first
    assert!(pager.lease(&[]).grow(BLOCK * 2));
    assert_eq!((found(&[1, 2]), found(&[3, 4])), (0, 2));
    // a page made again is not the one that others stood on
    drop(computed(&pager, &blocks_of(&[3, 4])));
    assert!(pager.lease(&[]).grow(BLOCK * 4));
    assert_eq!(pager.idle(), 0);
    drop(computed(&pager, &blocks_of(&[3])));
    assert_eq!(found(&[3, 4]), 1);
}
