//! Cache blocks: who holds which, which of them can be found again by their content, and how they come back.
//!
//! A full block whose tokens are known is a page. Its key is its tokens and the page before it, so a page stands for
//! all tokens up to its end, and is found by comparing them, not their hashes. Pages never change; any number of
//! sequences hold one. Pages that nobody holds stay until their block is needed, the least recently used goes first. A
//! page is let go after those behind it, so what goes first never has another behind it.

use shardwright_model::exec::BLOCK;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

/// Owns the numbers of all cache blocks and lends them out.
#[derive(Clone, Debug)]
pub struct Pager {
    pool: Arc<Mutex<Pool>>,
    total: usize,
    /// Make pages at all?
    pages: bool,
}

#[derive(Debug, Default)]
struct Pool {
    /// Blocks without content.
    free: Vec<u32>,
    /// Every page's block.
    index: HashMap<Arc<Key>, u32>,
    /// By block.
    pages: HashMap<u32, Page>,
    /// Blocks of pages that nobody holds, by when they were let go.
    idle: BTreeMap<u64, u32>,
    /// Counts pages made and let go; 0 is none of them.
    clock: u64,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    /// Name of the page before, 0 for none.
    parent: u64,
    tokens: [u32; BLOCK],
}

#[derive(Debug)]
struct Page {
    key: Arc<Key>,
    /// Given once, so that what stood on an earlier page cannot stand on a later one.
    name: u64,
    holders: usize,
    /// When it was let go, if nobody holds it.
    idle_since: u64,
}

/// Cache blocks of one sequence, in the order of its positions. They go back when it is dropped.
///
/// It cannot be cloned: a block that is written to has one holder.
/// ```compile_fail
/// let lease = shardwright_engine::pager::Pager::new(4).lease(&[]);
/// let twice = lease.clone();
/// ```
/// ```
/// let lease = shardwright_engine::pager::Pager::new(4).lease(&[]);
/// let moved = lease;
/// ```
#[derive(Debug)]
pub struct Lease {
    blocks: Vec<u32>,
    /// So many of them, the first, are pages: others may hold them too, and nobody writes.
    pages: usize,
    /// Name of the last page.
    last: u64,
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
        let pool = Pool { free: (0..last).rev().collect(), ..Pool::default() };
        Pager { pool: Arc::new(Mutex::new(pool)), total: last as usize, pages: true }
    }

    /// One that forgets what blocks held.
    #[must_use]
    pub fn without_pages(self) -> Pager {
        Pager { pages: false, ..self }
    }

    /// Can anything be found again?
    pub fn has_pages(&self) -> bool {
        self.pages
    }

    /// Blocks in all.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Blocks that nobody holds.
    pub fn free(&self) -> usize {
        self.with(|pool| pool.free.len() + pool.idle.len())
    }

    /// Those of them that can be found by their content.
    pub fn idle(&self) -> usize {
        self.with(|pool| pool.idle.len())
    }

    /// A lease on the pages that begin `tokens`, as many as are there; perhaps on none.
    pub fn lease(&self, tokens: &[u32]) -> Lease {
        let mut lease = Lease { blocks: Vec::new(), pages: 0, last: 0, home: self.clone() };
        if self.pages {
            self.with(|pool| {
                for tokens in tokens.as_chunks().0 {
                    let key = Key { parent: lease.last, tokens: *tokens };
                    let Some(&block) = pool.index.get(&key) else { break };
                    lease.last = pool.hold(block);
                    lease.blocks.push(block);
                }
            });
            lease.pages = lease.blocks.len();
        }
        lease
    }

    /// How many of `tokens`, from the first, a lease would find.
    pub fn known(&self, tokens: &[u32]) -> usize {
        self.with(|pool| {
            let mut parent = 0;
            let known = tokens.as_chunks().0.iter().take_while(|tokens| {
                let page =
                    pool.index.get(&Key { parent, tokens: **tokens }).and_then(|block| pool.pages.get(block));
                page.is_some_and(|page| {
                    parent = page.name;
                    true
                })
            });
            known.count() * BLOCK
        })
    }

    /// A thread that panicked with the pool in its hand was about to end the engine.
    fn with<T>(&self, f: impl FnOnce(&mut Pool) -> T) -> T {
        f(&mut self.pool.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Pool {
    /// One more holder of a page; its name.
    fn hold(&mut self, block: u32) -> u64 {
        let page = self.pages.get_mut(&block).expect("the index names pages only");
        if page.holders == 0 {
            self.idle.remove(&page.idle_since);
        }
        page.holders += 1;
        page.name
    }

    /// One holder less.
    fn let_go(&mut self, block: u32) {
        let page = self.pages.get_mut(&block).expect("a lease holds its pages");
        page.holders -= 1;
        if page.holders == 0 {
            self.clock += 1;
            page.idle_since = self.clock;
            self.idle.insert(self.clock, block);
        }
    }

    /// A block without content, if there is one or a page is idle.
    fn take(&mut self) -> Option<u32> {
        if let Some(block) = self.free.pop() {
            return Some(block);
        }
        let (_, block) = self.idle.pop_first()?;
        let page = self.pages.remove(&block).expect("only pages are idle");
        self.index.remove(&page.key);
        Some(block)
    }

    /// Makes a block a page, or exchanges it for the page with the same content; the block to hold, and its name.
    fn publish(&mut self, block: u32, key: Key) -> (u32, u64) {
        self.clock += 1;
        let name = self.clock;
        let key = Arc::new(key);
        match self.index.entry(key.clone()) {
            Entry::Occupied(same) => {
                let same = *same.get();
                self.free.push(block);
                (same, self.hold(same))
            }
            Entry::Vacant(new) => {
                new.insert(block);
                self.pages.insert(block, Page { key, name, holders: 1, idle_since: 0 });
                (block, name)
            }
        }
    }
}

impl Lease {
    /// The blocks, in the order of the sequence's positions.
    pub fn blocks(&self) -> &[u32] {
        &self.blocks
    }

    /// How many of them, from the first, are pages: must not be written to.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Makes room for `tokens` tokens in all. False, and nothing changed, if there are not enough free blocks.
    pub fn grow(&mut self, tokens: usize) -> bool {
        let more = blocks_for(tokens).saturating_sub(self.blocks.len());
        let Lease { blocks, home, .. } = self;
        more == 0
            || home.with(|pool| {
                let enough = more <= pool.free.len() + pool.idle.len();
                if enough {
                    blocks.extend((0..more).filter_map(|_| pool.take()));
                }
                enough
            })
    }

    /// These are the sequence's tokens that have been computed, without fault: full blocks become pages.
    pub fn publish(&mut self, tokens: &[u32]) {
        let full = (tokens.len() / BLOCK).min(self.blocks.len());
        if !self.home.pages || full <= self.pages {
            return;
        }
        let Lease { blocks, pages, last, home } = self;
        home.with(|pool| {
            let new = blocks.iter_mut().zip(tokens.as_chunks().0).take(full).skip(*pages);
            for (block, tokens) in new {
                (*block, *last) = pool.publish(*block, Key { parent: *last, tokens: *tokens });
            }
        });
        *pages = full;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Lease { blocks, pages, home, .. } = self;
        home.with(|pool| {
            pool.free.extend(blocks.drain(*pages..).rev());
            blocks.drain(..).rev().for_each(|block| pool.let_go(block));
        });
    }
}
