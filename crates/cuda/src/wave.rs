//! How rows of weights are dealt to blocks, so that all blocks of a launch are there at once and each reads about as many bytes: a
//! last wave of few blocks would have most of the device wait.

use crate::unit::Unit;

/// Multiprocessors of the cards that most have of an architecture: A100; RTX 30; RTX 40; H100 and H200; B200; B300; RTX PRO 6000.
/// Kernels that are shipped are dealt for them, as nobody knows beforehand which card it will be.
const USUAL: [(&str, usize); 7] = [
    ("sm_80", 108),
    ("sm_86", 84),
    ("sm_89", 142),
    ("sm_90", 132),
    ("sm_100", 148),
    ("sm_103", 148),
    ("sm_120", 188),
];

/// Multiprocessors that launches are dealt for where nobody knows for which card they are.
pub const MULTIPROCESSORS: usize = 132;

/// Those that launches are dealt for where nothing is known of a card but its architecture. With others they are a little less
/// even, and right all the same.
pub fn usual(architecture: &str) -> usize {
    let plain = architecture.trim_end_matches('a');
    USUAL.iter().find(|(name, _)| *name == plain).map_or(MULTIPROCESSORS, |(_, number)| *number)
}

/// Threads that a multiprocessor holds of a launch, and registers that weights under way may fill in each: where weights are multiplied
/// with one row of activations, with two, with up to four, and with more, whose sums leave room for one piece.
const HELD: [(usize, usize); 3] = [(512, 72), (768, 32), (1024, 20)];
const HELD_BY_TWO: [(usize, usize); 1] = [(768, 32)];
const HELD_BY_FOUR: [(usize, usize); 1] = [(512, 32)];
const HELD_BY_MORE: [(usize, usize); 1] = [(512, 8)];

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
    fair.div_ceil(bytes.max(1)).min(MOST).min(rows).max(1).next_multiple_of(least.max(1))
}

/// The most even of the deals that `by` makes of `all` bytes for so many blocks of `threads` threads, on a device of so many
/// multiprocessors, where each weight is multiplied with so many rows of activations; tells its kernel.
pub(crate) fn deal<T>(
    unit: Unit,
    all: usize,
    [threads, multiprocessors, rows]: [usize; 3],
    by: impl Fn(usize) -> Deal<T>,
) -> (Unit, Deal<T>) {
    let held = match rows {
        ..=1 => &HELD[..],
        2 => &HELD_BY_TWO,
        3..=4 => &HELD_BY_FOUR,
        _ => &HELD_BY_MORE,
    };
    let one = |&(held, registers): &(usize, usize)| {
        // a block of more threads than are held has fewer registers for each
        let registers = registers * held / held.max(threads);
        let here = (held / threads).max(1);
        let deal = by(here * multiprocessors);
        let slots = deal.blocks.next_multiple_of(here * multiprocessors);
        (100 * all / (slots * deal.largest).max(1), here, registers, deal)
    };
    let (_, here, registers, deal) = held[1..]
        .iter()
        .map(one)
        .fold(one(&held[0]), |best, next| if next.0 >= best.0 + WORTH { next } else { best });
    (unit.int("BLOCKS_HELD", here).int("HELD_REGISTERS", registers), deal)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of the largest block, blocks of a multiprocessor.
    fn dealt(multiprocessors: usize, [rows, bytes, least]: [usize; 3]) -> (usize, String) {
        let all = rows * bytes;
        let (unit, deal) = deal(Unit::new(""), all, [256, multiprocessors, 1], |most| {
            let own = own(rows, bytes, all.div_ceil(most), least);
            Deal { blocks: rows.div_ceil(own), largest: own * bytes, what: own }
        });
        (deal.what, unit.defines[0].1.clone())
    }

    #[test]
    fn blocks_fill_a_wave() {
        let check = |multiprocessors: usize, matrix: [usize; 3], rows: usize, blocks: &str| {
            let found = dealt(multiprocessors, matrix);
            assert_eq!(found, (rows, blocks.into()), "{matrix:?} on {multiprocessors}");
        };
        // 6,144 rows over 264 blocks
        check(132, [6144, 17_408, 1], 24, "2");
        // whole scales of 32: 192 blocks of 64 would leave a quarter idle
        check(132, [12_288, 13_056, 32], 32, "3");
        // many waves
        check(132, [154_880, 5040, 4], 128, "2");
        check(132, [1, 100, 8], 8, "2");
        // nothing to read
        check(132, [64, 0, 1], 1, "2");
        check(132, [0, 100, 1], 1, "2");
        // the same rows over 376 blocks, and over 96
        check(188, [6144, 17_408, 1], 17, "2");
        check(48, [6144, 17_408, 1], 64, "2");
        // no block has more rows than there is room for their sums, so more blocks fill the wave
        check(16, [6144, 17_408, 1], 128, "3");
    }

    #[test]
    fn an_architecture_has_a_usual_card() {
        let check =
            |architecture: &str, number: usize| assert_eq!(usual(architecture), number, "{architecture}");
        check("sm_80", 108);
        check("sm_90a", 132);
        check("sm_90", 132);
        check("sm_100a", 148);
        check("sm_120a", 188);
        check("sm_75", MULTIPROCESSORS);
    }
}
