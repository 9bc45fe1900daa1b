//! What a step does on a device, without the device: kernels in order, their arguments places yet without addresses.

use std::collections::BTreeMap;

use crate::unit::Unit;

/// Memory that lives within a step, shared by all ranks of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scratch {
    /// Rounded activations.
    Codes(usize),
    /// Their scales.
    Scales(usize),
    /// Parts of an attention.
    Parts,
    /// Scores of the indexer.
    Scores,
    /// What positions are chosen by: bins of their scores, marks, and how many blocks are done.
    Chosen(usize),
    /// Of the indexer at this op, about where the scores lie that are just chosen; from one step to the next.
    Around(usize),
    /// Logits of the router.
    Routes,
    /// What goes into the experts' second half, or comes out of it.
    Experts,
    /// What rows ask of experts, by expert.
    Asks,
    /// Runs of that.
    Tiles,
    /// What ops of a rank that are made as one leave each other.
    Between(&'static str, usize),
    /// What is exchanged so that a step has an even number of exchanges: zeros.
    Nothing,
    /// The best logits of parts of the vocabulary.
    Candidates,
    /// The best logits of a rank's whole part.
    Found(usize),
}

/// Where an argument lies. There is no argument that is a number of the step: those lie in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Nothing; the kernel does not look.
    None,
    /// The step's numbers.
    Step,
    /// For each row, the first op whose input was not finite.
    Spoiled,
    /// The hidden rows that came with the step.
    Hidden,
    /// A value slot of a rank.
    Value {
        /// The rank.
        rank: usize,
        /// The plan's slot.
        slot: usize,
    },
    /// Weight `index` of op `op` of a rank.
    Weight {
        /// The rank.
        rank: usize,
        /// The op.
        op: usize,
        /// Which of its weights.
        index: usize,
    },
    /// A cache slot of a rank.
    Cache {
        /// The rank.
        rank: usize,
        /// The plan's slot.
        slot: usize,
    },
    /// Where the hash of a rank's value at a point of [`shardwright_model::watch::points`] goes.
    Hash {
        /// The rank.
        rank: usize,
        /// The point's place among them.
        point: usize,
    },
    /// Of the two slots of this rank's inbox, one.
    Inbox(usize),
    /// This rank's part of that slot of each peer's inbox, a list of addresses that begins with the peer after it.
    Peers(usize),
    /// How long is waited for peers, and where it is told that one has not come.
    Wait,
    /// Memory within the step.
    Scratch(Scratch),
    /// Numbers known when the program was made.
    Constant(usize),
    /// A list of addresses.
    List(Vec<Slot>),
}

/// How many blocks lie along an axis of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// So many.
    Blocks(u32),
    /// One for so many rows of the step.
    Rows(u32),
}

/// A kernel with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Index into [`Program::units`].
    pub unit: usize,
    /// Blocks.
    pub grid: [Axis; 3],
    /// Threads of a block.
    pub block: u32,
    /// Bytes of shared memory that the launch gives a block.
    pub shared: u32,
    /// What its parameters point to.
    pub args: Vec<Slot>,
}

impl Call {
    /// Blocks of a step of `rows` rows.
    pub fn blocks(&self, rows: u32) -> [u32; 3] {
        self.grid.map(|axis| match axis {
            Axis::Blocks(n) => n,
            Axis::Rows(per) => rows.div_ceil(per),
        })
    }
}

/// A description's step on one device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// Kernels, each once.
    pub units: Vec<Unit>,
    /// What is run, in order.
    pub calls: Vec<Call>,
    /// For each op of the plans, how many calls are done when it is.
    pub ends: Vec<usize>,
    /// Bytes of the memory within a step.
    pub scratch: BTreeMap<Scratch, usize>,
    /// Numbers known beforehand.
    pub constants: Vec<Vec<u8>>,
    /// Sums over devices: an even number.
    pub exchanges: usize,
}

impl Program {
    /// The kernel's place among the units.
    pub(crate) fn unit(&mut self, unit: Unit) -> usize {
        self.units.iter().position(|u| *u == unit).unwrap_or_else(|| {
            self.units.push(unit);
            self.units.len() - 1
        })
    }

    /// Memory within the step, of at least `bytes` bytes.
    pub(crate) fn scratch(&mut self, what: Scratch, bytes: usize) -> Slot {
        let size = self.scratch.entry(what).or_default();
        *size = bytes.max(*size);
        Slot::Scratch(what)
    }

    /// Numbers known beforehand; equal ones lie in one place.
    pub(crate) fn constant(&mut self, numbers: &[f32]) -> Slot {
        let bytes = bytemuck::cast_slice(numbers).to_vec();
        let known = self.constants.iter().position(|c| *c == bytes);
        Slot::Constant(known.unwrap_or_else(|| {
            self.constants.push(bytes);
            self.constants.len() - 1
        }))
    }
}
