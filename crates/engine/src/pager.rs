//! Cache blocks: who holds which, and how they come back.

use shardwright_model::exec::BLOCK;
use std::sync::{Arc, Mutex, PoisonError};

/// Owns the numbers of all cache blocks and lends them out.
#[derive(Clone, Debug)]
pub struct Pager {
    free: Arc<Mutex<Vec<u32>>>,
    total: usize,
}

/// Cache blocks of one sequence, in the order of its positions. They go back when it is dropped.
///
/// It cannot be cloned: a block has one holder.
/// ```compile_fail
/// let lease = shardwright_engine::pager::Pager::new(4).lease(64).unwrap();
/// let twice = lease.clone();
/// ```
/// ```
/// let lease = shardwright_engine::pager::Pager::new(4).lease(64).unwrap();
/// let moved = lease;
/// ```
#[derive(Debug)]
pub struct Lease {
    blocks: Vec<u32>,
    home: Pager,
}

/// Blocks that hold so many tokens.
pub fn blocks_for(tokens: usize) -> usize {
    tokens.div_ceil(BLOCK)
}

impl Pager {
    /// All blocks free. `blocks` is the executor's `Limits::blocks`.
    pub fn new(blocks: usize) -> Pager {
        let last = u32::try_from(blocks).unwrap_or(u32::MAX);
        Pager { free: Arc::new(Mutex::new((0..last).rev().collect())), total: last as usize }
    }

    /// Blocks in all.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Blocks that nobody holds.
    pub fn free(&self) -> usize {
        self.with(|free| free.len())
    }

    /// Room for `tokens` tokens, or None if there are not enough free blocks.
    pub fn lease(&self, tokens: usize) -> Option<Lease> {
        let mut lease = Lease { blocks: Vec::new(), home: self.clone() };
        lease.grow(tokens).then_some(lease)
    }

    /// A thread that panicked with the list in its hand cannot have left it half changed.
    fn with<T>(&self, f: impl FnOnce(&mut Vec<u32>) -> T) -> T {
        f(&mut self.free.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Lease {
    /// The blocks, in the order of the sequence's positions.
    pub fn blocks(&self) -> &[u32] {
        &self.blocks
    }

    /// Tokens that fit.
    pub fn tokens(&self) -> usize {
        self.blocks.len() * BLOCK
    }

    /// Makes room for `tokens` tokens in all. False, and nothing changed, if there are not enough free blocks.
    pub fn grow(&mut self, tokens: usize) -> bool {
        let more = blocks_for(tokens).saturating_sub(self.blocks.len());
        let taken = self.home.with(|free| {
            let rest = free.len().checked_sub(more)?;
            Some(free.split_off(rest))
        });
        let enough = taken.is_some();
        self.blocks.extend(taken.into_iter().flatten().rev());
        enough
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let blocks = std::mem::take(&mut self.blocks);
        self.home.with(|free| free.extend(blocks.into_iter().rev()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[derive(Clone, Debug)]
    enum Act {
        Lease(usize),
        Grow(usize, usize),
        Drop(usize),
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let act = prop_oneof![
            (0..400usize).prop_map(Act::Lease),
            (0..8usize, 0..900usize).prop_map(|(i, n)| Act::Grow(i, n)),
            (0..8usize).prop_map(Act::Drop),
        ];
        prop::collection::vec(act, 0..60)
    }

    proptest! {
        #[test]
        fn no_block_has_two_holders_and_none_is_lost(acts in acts()) {
            let pager = Pager::new(20);
            let mut leases: Vec<Lease> = Vec::new();
            for act in acts {
                match act {
                    Act::Lease(n) => {
                        let fits = blocks_for(n) <= pager.free();
                        let lease = pager.lease(n);
                        prop_assert_eq!(lease.is_some(), fits);
                        leases.extend(lease);
                    }
                    Act::Grow(i, n) => if let Some(lease) = leases.get_mut(i) {
                        let (before, free) = (lease.blocks().to_vec(), pager.free());
                        let grown = lease.grow(n);
                        prop_assert!(lease.blocks().starts_with(&before));
                        prop_assert_eq!(grown, blocks_for(n) <= before.len() + free);
                        let right = if grown { lease.tokens() >= n } else { lease.blocks() == before };
                        prop_assert!(right);
                    }
                    Act::Drop(i) => if i < leases.len() { drop(leases.swap_remove(i)) },
                }
                let held: Vec<u32> = leases.iter().flat_map(|l| l.blocks().iter().copied()).collect();
                let distinct: BTreeSet<u32> = held.iter().copied().collect();
                prop_assert_eq!(distinct.len(), held.len());
                prop_assert!(distinct.iter().all(|b| (*b as usize) < pager.total()));
                prop_assert_eq!(held.len() + pager.free(), pager.total());
            }
            drop(leases);
            let all = pager.lease(20 * BLOCK).expect("all came back");
            prop_assert_eq!(all.blocks().iter().collect::<BTreeSet<_>>().len(), 20);
        }
    }

    #[test]
    fn fresh_blocks_come_in_order() {
        assert_eq!(Pager::new(9).lease(3 * BLOCK - 1).unwrap().blocks(), [0, 1, 2]);
    }
}
