//! How a card is that runs a model.

/// What a card tells of itself; what it does not tell is absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Card {
    /// Its number, as `--device` names it.
    pub index: usize,
    /// Watts that it takes, and that it may take.
    pub power: [Option<f64>; 2],
    /// Watts that it may take unless somebody has set another limit.
    pub power_usual: Option<f64>,
    /// Hertz of its multiprocessors: now, and at most.
    pub clock: [Option<f64>; 2],
    /// Hertz of its memory: now, and at most.
    pub memory_clock: [Option<f64>; 2],
    /// Degrees Celsius.
    pub temperature: Option<f64>,
    /// Packets that went over its link once more.
    pub replays: Option<u64>,
    /// Errors of its memory since the driver was loaded: corrected, and not.
    pub errors: [Option<u64>; 2],
    /// Is it slower than it could be, because of heat or power?
    pub slowed: Option<bool>,
    /// Has somebody set its clock lower than it could be?
    pub held: Option<bool>,
    /// Does its memory wait for a reset to put broken rows aside, or has it none left?
    pub worn: Option<bool>,
    /// Critical errors (Xid) since it is watched, and the number of the last one.
    pub xids: (u64, Option<u64>),
}
