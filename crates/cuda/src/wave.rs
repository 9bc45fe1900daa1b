//! How rows of weights are dealt to blocks, so that all blocks of a launch are there at once and each reads about as many bytes: a
//! last wave of few blocks would have most of the device wait.

use crate::unit::Unit;

/// Multiprocessors that launches are dealt for. With others they are a little less even.
const MULTIPROCESSORS: usize = 132;

/// Threads that a multiprocessor holds of a launch, and registers that weights under way may fill in each.
const HELD: [(usize, usize); 3] = [(512, 72), (768, 32), (1024, 20)];

/// Per cent that a deal with fewer registers must be more even.
const WORTH: usize = 10;

/// Most rows of a block: sums wait in shared memory.
const MOST: usize = 128;

/// What a launch deals to its blocks.
pub(crate) struct Deal<T> {
    /// All blocks.
    pub(crate) blocks: usize,
    /// Bytes that the largest of them reads.
    pub(crate) largest: usize,
    /// What else there is to know of it.
    pub(crate) what: T,
}

/// Rows for a block, of which each has `bytes`, where `fair` is its share of all bytes: whole sets of `least`.
pub(crate) fn own(rows: usize, bytes: usize, fair: usize, least: usize) -> usize {
    fair.div_ceil(bytes.max(1)).min(MOST).min(rows).next_multiple_of(least.max(1))
}

/// The most even of the deals that `by` makes of `all` bytes for so many blocks of `threads` threads; tells its kernel.
pub(crate) fn deal<T>(
    unit: Unit,
    all: usize,
    threads: usize,
    by: impl Fn(usize) -> Deal<T>,
) -> (Unit, Deal<T>) {
    let tried = HELD.map(|(held, registers)| {
        let here = (held / threads).max(1);
        let deal = by(here * MULTIPROCESSORS);
        let slots = deal.blocks.next_multiple_of(here * MULTIPROCESSORS);
        (100 * all / (slots * deal.largest).max(1), here, registers, deal)
    });
    let [first, rest @ ..] = tried;
    let (_, here, registers, deal) =
        rest.into_iter().fold(first, |best, next| if next.0 >= best.0 + WORTH { next } else { best });
    (unit.int("BLOCKS_HELD", here).int("HELD_REGISTERS", registers), deal)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of the largest block, blocks of a multiprocessor.
    fn dealt(rows: usize, bytes: usize, least: usize) -> (usize, String) {
        let all = rows * bytes;
        let (unit, deal) = deal(Unit::new(""), all, 256, |most| {
            let own = own(rows, bytes, all.div_ceil(most), least);
            Deal { blocks: rows.div_ceil(own), largest: own * bytes, what: own }
        });
        (deal.what, unit.defines[0].1.clone())
    }

    #[test]
    fn blocks_fill_a_wave() {
        // 6,144 rows over 264 blocks
        assert_eq!(dealt(6144, 17_408, 1), (24, "2".into()));
        // whole scales of 32: 192 blocks of 64 would leave a quarter idle
        assert_eq!(dealt(12_288, 13_056, 32), (32, "3".into()));
        // many waves
        assert_eq!(dealt(154_880, 5040, 4), (128, "2".into()));
        assert_eq!(dealt(1, 100, 8), (8, "2".into()));
    }
}
