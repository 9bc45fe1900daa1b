//! Protocol P, by which ranks exchange their summands (`src/comm`), as a state machine of which every schedule is tried: stores
//! arrive late and in any order, ranks stand still at any point. The kernels themselves run in `exchange.rs`.
//!
//! A rank's stream is a push and a receive for each exchange. A push stores words into the inbox that each peer keeps for this
//! rank; a receive takes words as they come, and empties ("re-arms") what it took. A product that pushes what it makes does so block
//! by block, some before others have begun. With programmatic launches a kernel may begin while the one before still runs, and then
//! each of its blocks waits for its end, unless it forgets to.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

const RANKS: usize = 3;
const SLOTS: usize = 3;
const WORDS: usize = 2;
const CELLS: usize = RANKS * RANKS * SLOTS * WORDS;
const STREAMS: usize = RANKS * RANKS * WORDS;

/// Which slot a receive makes empty.
#[derive(Clone, Copy, PartialEq)]
enum Rearm {
    /// The one that it has read.
    Own,
    /// The one of the exchange before, as far as this one's message is long.
    Previous,
}

/// The protocol, or one like it that may be wrong.
#[derive(Clone, Copy)]
struct Protocol {
    ranks: usize,
    slots: usize,
    /// Exchanges in a graph; each graph begins with the first slot.
    graph: usize,
    rearm: Rearm,
    /// Does a receive wait for the kernel before it?
    waits: bool,
    /// Does a push let the next kernel begin only after its own wait?
    late: bool,
    /// Is each word pushed by a block of its own, at a time of its own?
    blocks: bool,
    /// Do blocks wait for the kernel before theirs ere they push?
    awaits: bool,
    /// Words of each exchange's message.
    sizes: [usize; 5],
}

const RIGHT: Protocol = Protocol {
    ranks: 2,
    slots: 2,
    graph: 2,
    rearm: Rearm::Own,
    waits: true,
    late: false,
    blocks: false,
    awaits: true,
    sizes: [WORDS; 5],
};

/// What must not happen.
#[derive(Debug, PartialEq)]
enum Fault {
    /// A word came where one lay that had not been taken.
    Overwritten,
    /// A receive took a word of another exchange.
    Stale,
    /// A word of another exchange was emptied.
    Erased,
    /// A rank was more than one exchange ahead of another.
    Lead,
    /// Nobody can go on.
    Deadlock,
    /// Words were left when all were done.
    Leftover,
}

/// Words in inboxes are 0 where empty, else the number of their exchange + 1. Sets of exchanges are bits.
#[derive(Clone, Copy, Hash)]
struct State {
    inbox: [u8; CELLS],
    /// On their way, by where they go; one place gets them in the order in which they were sent.
    flying: [u8; CELLS],
    /// Exchanges of which a word was pushed, by rank and word.
    pushed: [[u8; WORDS]; RANKS],
    /// Words taken and emptied, by receiver, sender and place in the message.
    taken: [u8; STREAMS],
    rearmed: [u8; STREAMS],
}

impl Protocol {
    fn exchanges(&self) -> usize {
        self.sizes.len()
    }

    fn slot(&self, exchange: usize) -> usize {
        exchange % self.graph % self.slots
    }

    fn cell(&self, [to, from, word]: [usize; 3], exchange: usize) -> usize {
        (stream([to, from, word])) * SLOTS + self.slot(exchange)
    }

    /// All receivers, senders and words of an exchange.
    fn messages(&self, exchange: usize) -> impl Iterator<Item = [usize; 3]> + '_ {
        let pairs = (0..self.ranks).flat_map(|to| (0..self.ranks).map(move |from| (to, from)));
        pairs
            .filter(|(to, from)| to != from)
            .flat_map(move |(to, from)| (0..self.sizes[exchange]).map(move |word| [to, from, word]))
    }

    fn received(&self, s: &State, rank: usize, exchange: usize) -> bool {
        let mut all = self.messages(exchange).filter(|m| m[0] == rank);
        all.all(|m| has(s.rearmed[stream(m)], exchange))
    }

    /// Has the kernel before the push ended, or is that all the same to it?
    fn may_push(&self, s: &State, rank: usize, exchange: usize) -> bool {
        // kernels begin in order: that before the last one has ended when the last one has begun
        let before = if self.awaits { exchange.checked_sub(1) } else { exchange.checked_sub(2) };
        before.is_none_or(|before| self.received(s, rank, before))
    }

    /// Has the push ended?
    fn has_pushed(&self, s: &State, rank: usize, exchange: usize) -> bool {
        s.pushed[rank][..self.sizes[exchange]].iter().all(|word| has(*word, exchange))
    }

    /// A push of an exchange's words from `word` on that are of one block.
    fn push(&self, s: &State, [rank, word]: [usize; 2], exchange: usize) -> State {
        let mut next = *s;
        let words = if self.blocks { word..word + 1 } else { 0..self.sizes[exchange] };
        words.clone().for_each(|word| next.pushed[rank][word] |= 1 << exchange);
        for m in self.messages(exchange).filter(|m| m[1] == rank && words.contains(&m[2])) {
            next.flying[self.cell(m, exchange)] |= 1 << exchange;
        }
        next
    }

    /// Has the receive begun, and waited if it does?
    fn receives(&self, s: &State, rank: usize, exchange: usize) -> bool {
        match (self.waits, self.late) {
            (true, _) => self.has_pushed(s, rank, exchange),
            // the push was let begin, and lets begin, after the receive before it
            (false, true) => self.may_push(s, rank, exchange),
            // each kernel lets the next begin as soon as it has begun itself
            (false, false) => true,
        }
    }

    /// Takes all that lies there for whoever looks. Later looks see the same: a word changes only by what is a fault, or by
    /// the emptying that follows.
    fn take(&self, s: &mut State) -> Result<(), Fault> {
        for e in 0..self.exchanges() {
            for m in self.messages(e) {
                let word = s.inbox[self.cell(m, e)];
                if word != 0 && !has(s.taken[stream(m)], e) && self.receives(s, m[0], e) {
                    if usize::from(word) != e + 1 {
                        return Err(Fault::Stale);
                    }
                    s.taken[stream(m)] |= 1 << e;
                }
            }
        }
        Ok(())
    }

    fn rearm(&self, s: &State, m: [usize; 3], e: usize) -> Result<State, Fault> {
        let mut next = *s;
        next.rearmed[stream(m)] |= 1 << e;
        let of = match self.rearm {
            Rearm::Own => Some(e),
            Rearm::Previous => e.checked_sub(1),
        };
        if let Some(of) = of {
            let word = &mut next.inbox[self.cell(m, of)];
            if ![0, of + 1].contains(&usize::from(*word)) {
                return Err(Fault::Erased);
            }
            *word = 0;
        }
        Ok(next)
    }

    fn land(&self, s: &State, cell: usize) -> Result<State, Fault> {
        let mut next = *s;
        let e = s.flying[cell].trailing_zeros() as u8;
        next.flying[cell] &= !(1 << e);
        match std::mem::replace(&mut next.inbox[cell], e + 1) {
            0 => Ok(next),
            _ => Err(Fault::Overwritten),
        }
    }

    /// Whatever can happen next.
    fn steps(&self, s: &State) -> Result<Vec<State>, Fault> {
        let mut all = vec![];
        for cell in (0..CELLS).filter(|cell| s.flying[*cell] != 0) {
            all.push(self.land(s, cell)?);
        }
        for e in 0..self.exchanges() {
            for rank in 0..self.ranks {
                let words = 0..if self.blocks { self.sizes[e] } else { 1 };
                let left = words.filter(|word| !has(s.pushed[rank][*word], e) && self.may_push(s, rank, e));
                all.extend(left.map(|word| self.push(s, [rank, word], e)));
            }
            for m in self.messages(e).filter(|m| !has(s.rearmed[stream(*m)], e)) {
                // a thread has the words of all senders before it empties any
                let mut senders = (0..self.ranks).filter(|from| *from != m[0]);
                if senders.all(|from| has(s.taken[stream([m[0], from, m[2]])], e)) {
                    all.push(self.rearm(s, m, e)?);
                }
            }
        }
        all.iter_mut().try_for_each(|next| self.take(next))?;
        Ok(all)
    }

    fn judge(&self, s: &State, stuck: bool) -> Result<(), Fault> {
        let done = |rank| (0..self.exchanges()).take_while(|e| self.received(s, rank, *e)).count();
        let done: Vec<usize> = (0..self.ranks).map(done).collect();
        let (least, most) = (done.iter().min(), done.iter().max());
        match (least, most) {
            (Some(least), Some(most)) if most - least > 1 => Err(Fault::Lead),
            (Some(least), _) if stuck && *least < self.exchanges() => Err(Fault::Deadlock),
            _ if stuck && self.rearm == Rearm::Own && s.inbox != [0; CELLS] => Err(Fault::Leftover),
            _ => Ok(()),
        }
    }

    /// Tries every schedule. Gives the number of states, or the first fault.
    fn explore(&self) -> Result<usize, Fault> {
        let start = State {
            inbox: [0; CELLS],
            flying: [0; CELLS],
            pushed: [[0; WORDS]; RANKS],
            taken: [0; STREAMS],
            rearmed: [0; STREAMS],
        };
        let (mut seen, mut left) = (HashSet::new(), vec![start]);
        while let Some(s) = left.pop() {
            let next = self.steps(&s)?;
            self.judge(&s, next.is_empty())?;
            left.extend(next.into_iter().filter(|s| seen.insert(hash(s))));
        }
        Ok(seen.len())
    }
}

fn stream([to, from, word]: [usize; 3]) -> usize {
    (to * RANKS + from) * WORDS + word
}

fn has(set: u8, exchange: usize) -> bool {
    set >> exchange & 1 == 1
}

/// Of millions of states two share one of these with a probability below 1e-5.
fn hash(s: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    s.hash(&mut hasher);
    hasher.finish()
}

#[test]
fn every_schedule_of_two_ranks_ends_right() {
    for sizes in [[2; 5], [2, 1, 2, 1, 2], [1, 2, 1, 2, 2]] {
        let states = Protocol { sizes, ..RIGHT }.explore();
        println!("messages of {sizes:?} words: {states:?} states");
        assert!(states.is_ok_and(|n| n > 100));
    }
}

#[test]
fn every_schedule_of_three_ranks_ends_right() {
    let states = Protocol { ranks: 3, ..RIGHT }.explore();
    println!("{states:?} states");
    assert!(states.is_ok_and(|n| n > 100_000));
}

/// As products do: what a rank sends comes while other blocks of the same kernel have not begun.
#[test]
fn every_schedule_of_blocks_that_push_by_themselves_ends_right() {
    let blocks = Protocol { blocks: true, ..RIGHT };
    let three = Protocol { ranks: 3, sizes: [2, 1, 2, 1, 2], ..blocks };
    for protocol in [blocks, Protocol { sizes: [2, 1, 2, 1, 2], ..blocks }, three] {
        let states = protocol.explore();
        println!("{} ranks, messages of {:?} words: {states:?} states", protocol.ranks, protocol.sizes);
        assert!(states.is_ok_and(|n| n > 100));
    }
}

/// As the two do that begin before the kernel in front of them has ended.
#[test]
fn a_receive_need_not_wait_behind_a_push_that_lets_it_begin_late() {
    assert!(Protocol { waits: false, late: true, ..RIGHT }.explore().is_ok());
}

#[test]
fn what_is_wrong_is_found() {
    let check = |what: &str, wrong: Protocol| {
        for ranks in [2, 3] {
            let found = Protocol { ranks, ..wrong }.explore();
            println!("{what}, {ranks} ranks: {found:?}");
            assert!(found.is_err(), "{what}, {ranks} ranks");
        }
    };
    check("one slot", Protocol { slots: 1, ..RIGHT });
    check("graphs of an odd number of exchanges", Protocol { graph: 3, ..RIGHT });
    check("a receive that does not wait", Protocol { waits: false, ..RIGHT });
    check("the slot before is emptied", Protocol { rearm: Rearm::Previous, ..RIGHT });
    let blocks = Protocol { blocks: true, ..RIGHT };
    check("one slot, by blocks", Protocol { slots: 1, ..blocks });
    check("blocks that push before they have waited", Protocol { awaits: false, ..blocks });
    check("a receive that does not wait for all blocks", Protocol { waits: false, ..blocks });
}

/// Three slots, the one before emptied, goes well until a message is shorter than the one before it.
#[test]
fn emptying_the_slot_before_breaks_when_sizes_change() {
    let three = Protocol { slots: 3, graph: 6, rearm: Rearm::Previous, ..RIGHT };
    assert!(three.explore().is_ok());
    let changing = Protocol { sizes: [2, 1, 2, 2, 2], ..three };
    assert!(changing.explore().is_err());
    assert!(Protocol { rearm: Rearm::Own, ..changing }.explore().is_ok());
}
