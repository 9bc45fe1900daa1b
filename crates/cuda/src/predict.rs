//! What a step will take before it is run: of each launch a latency that does not depend on the card's size, and then its bytes at the
//! speed of the memory or its weights at that of the multiprocessors, whichever takes longer; and the sums over ranks, each as long as it
//! is said to be.
//!
//! The numbers are those of an NVIDIA H200, of launches one by one and of steps on all of its multiprocessors and on eight of them
//! (docs/performance.md). No other card, and no step far into a context, had a part in them.

use std::time::Duration;

use shardwright_model::exec::Ranks;
use shardwright_model::op::Description;
use shardwright_model::plan::RankPlan;

use crate::lower::{Choices, Tier, lower};
use crate::profile::Reads;
use crate::step::StepLayout;
use crate::unit::Unit;
use crate::{CudaOptions, Result};

/// Seconds of a launch of a kind that reads nothing, the way from the one before it included.
const LATENCIES: [(Kernel, f64); 7] = [
    (Kernel::Product, 1.95e-6),
    (Kernel::Made, 2.35e-6),
    (Kernel::Joined, 4.3e-6),
    (Kernel::Norm, 3.0e-6),
    (Kernel::Attention, 3.3e-6),
    (Kernel::Answer, 6.4e-6),
    (Kernel::Other, 1.4e-6),
];

/// The same of what stands in the place of a sum over ranks: a block of one thread behind a launch that it overlaps with.
const STAND_IN: f64 = 0.2e-6;

/// The share of a plain read's speed that launches reach which memory bounds.
const SHARE: f64 = 0.91;

/// Weights a second that a multiprocessor multiplies with: those that are of bytes or more, and those of super-blocks, which are taken
/// apart first.
const WEIGHTS: [f64; 2] = [72e9, 50e9];

/// Kinds of launches that take as long as each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernel {
    /// Matrices with rows as they lie.
    Product,
    /// Matrices whose blocks first make their rows: a norm, the parts of an attention.
    Made,
    /// Experts that are chosen in front, or added up behind.
    Joined,
    Norm,
    Attention,
    /// The best of the logits.
    Answer,
    Other,
}

impl Kernel {
    fn of(unit: &Unit) -> Kernel {
        let is = |name: &str, value: &str| unit.defines.iter().any(|(n, v)| *n == name && v == value);
        match unit.stem {
            "experts" if is("CHOOSE", "1") => Kernel::Joined,
            "linear" if is("PREPARE", "NORMED") || is("PREPARE", "MERGED") => Kernel::Made,
            "linear" | "experts" => Kernel::Product,
            "down" => Kernel::Joined,
            "norm" => Kernel::Norm,
            "attend" | "attend_tiles" => Kernel::Attention,
            "answer" => Kernel::Answer,
            _ => Kernel::Other,
        }
    }

    fn latency(self) -> f64 {
        LATENCIES.iter().find(|(kind, _)| *kind == self).map_or(0.0, |(_, seconds)| *seconds)
    }
}

/// Which step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Most positions of a sequence.
    pub context: usize,
    /// The position of its row.
    pub last: usize,
    /// Are activations rounded to 8 bits in front of quantized weights, and is the cache f16?
    pub fast: bool,
    /// What each sum over ranks takes; none if sums are left out.
    pub exchange: Duration,
}

/// What a card can do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Card {
    /// Bytes a second that a kernel reads which does nothing else.
    pub bandwidth: f64,
    /// Multiprocessors that it has, or that are used of it.
    pub multiprocessors: usize,
}

/// What a step of one row takes, part by part, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Its launches.
    pub launches: usize,
    /// Bytes that they read, and weights that they multiply with.
    pub read: [u64; 2],
    /// Sums over ranks that have a time.
    pub sums: usize,
    /// For launches that memory bounds.
    pub reading: f64,
    /// For those that multiprocessors bound.
    pub computing: f64,
    /// From launch to launch.
    pub latency: f64,
    /// For the sums over ranks.
    pub exchanges: f64,
}

impl Prediction {
    /// All of it.
    pub fn seconds(&self) -> f64 {
        self.reading + self.computing + self.latency + self.exchanges
    }
}

/// The step of a rank that has a card for itself.
///
/// # Errors
/// If the plan can't be lowered.
pub fn step(d: &Description, plan: &RankPlan, asked: &Asked, card: &Card) -> Result<Prediction> {
    let Asked { context, last, fast, exchange } = *asked;
    let plans = std::slice::from_ref(plan);
    let tier = if Tier::kept(plans).is_some_and(|kept| last >= kept) { Tier::Long } else { Tier::Short };
    let choices = Choices {
        layout: StepLayout::new(1, context),
        context,
        fast,
        tile: 1,
        fuse: true,
        ranks: Ranks::default(),
        tier,
        narrow: CudaOptions::NARROW,
        inbox: 0,
        nccl: false,
        multiprocessors: card.multiprocessors,
        delay: exchange.as_nanos() as u64,
        legs: 1,
    };
    let program = lower(plans, choices)?;
    let reads =
        Reads { description: d, plans, rows: 1, last: last as u64, element: if fast { 2 } else { 4 } };
    let (mut read, mut bound, mut sums, mut latency) = ([0; 2], [0.0; 2], 0, 0.0);
    for call in &program.calls {
        let unit = &program.units[call.unit];
        if unit.stem == "delay" {
            (sums, latency) = (sums + 1, latency + STAND_IN);
            continue;
        }
        latency += Kernel::of(unit).latency();
        let (bytes, weights) = (reads.of(unit.stem, call).1, reads.elements(call));
        let of_kind = |kind: usize| weights[kind] as f64 / (WEIGHTS[kind] * card.multiprocessors as f64);
        let times = [bytes as f64 / (SHARE * card.bandwidth), of_kind(0) + of_kind(1)];
        let longer = usize::from(times[1] > times[0]);
        bound[longer] += times[longer];
        read[0] += bytes;
        read[1] += weights.iter().sum::<u64>();
    }
    Ok(Prediction {
        launches: program.calls.len(),
        read,
        sums,
        reading: bound[0],
        computing: bound[1],
        latency,
        exchanges: sums as f64 * exchange.as_secs_f64(),
    })
}
