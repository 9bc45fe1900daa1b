//! What a rank holds: weights, cache and values, against the memory of a card.

use crate::cost::Component;
use crate::op::{Cut, Description, Kind};
use crate::plan::{self, Cuts, Find, LocalWeight, RankPlan};
use crate::{Error, Result};
use std::collections::BTreeMap;

/// Bytes that a rank needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Weights, each file byte once, by component; those that only the next-token layer reads are `Draft`.
    pub weights: BTreeMap<Component, u64>,
    /// Cache of one token.
    pub cache_a_token: u64,
    /// Values of one row of a step.
    pub arena_a_row: u64,
}

/// What a rank must have room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Tokens in the cache.
    pub context: u64,
    /// Rows of a step.
    pub rows: u64,
    /// Bytes of a cache element.
    pub element: u64,
}

impl Held {
    /// By a rank that runs `trunk` and, in turn with it, the next-token layer.
    pub fn of(trunk: &RankPlan, draft: Option<&RankPlan>, element: u64) -> Held {
        let drafted = draft.iter().flat_map(|d| &d.ops).flat_map(parts).map(|(_, w)| (Component::Draft, w));
        let all = trunk.ops.iter().flat_map(parts).chain(drafted).collect();
        let mut weights = BTreeMap::new();
        for (component, bytes) in once(all) {
            *weights.entry(component).or_default() += bytes;
        }
        let plans = || [Some(trunk), draft].into_iter().flatten();
        let cached: usize = plans().flat_map(|p| &p.caches).map(|c| c.width).sum();
        let values = plans().map(|p| p.slots.iter().sum::<usize>()).max().unwrap_or(0);
        Held { weights, cache_a_token: cached as u64 * element, arena_a_row: 4 * values as u64 }
    }

    /// Bytes of all weights.
    pub fn weights(&self) -> u64 {
        self.weights.values().sum()
    }

    /// Bytes in all.
    pub fn total(&self, d: &Demand) -> u64 {
        let [cache, arena] = self.working(d);
        self.weights().saturating_add(cache).saturating_add(arena)
    }

    /// Bytes of cache and of values.
    pub fn working(&self, d: &Demand) -> [u64; 2] {
        [self.cache_a_token.saturating_mul(d.context), self.arena_a_row.saturating_mul(d.rows)]
    }
}

fn parts(op: &plan::LocalOp) -> impl Iterator<Item = (Component, &LocalWeight)> {
    let component = Component::of(op);
    op.weights.iter().map(move |w| (component, w))
}

/// The bytes of each part that lies in no other: a tied head's rows are in the embedding already.
fn once(mut parts: Vec<(Component, &LocalWeight)>) -> Vec<(Component, u64)> {
    parts.sort_by_key(|(c, w)| (std::cmp::Reverse(w.bytes()), *c));
    let mut seen: BTreeMap<&str, Vec<&LocalWeight>> = BTreeMap::new();
    let mut own = vec![];
    for (component, w) in parts {
        let same = seen.entry(&w.name).or_default();
        if !same.iter().any(|other| within(w, other)) {
            same.push(w);
            own.push((component, w.bytes()));
        }
    }
    own
}

fn within(a: &LocalWeight, b: &LocalWeight) -> bool {
    let inside =
        |a: &std::ops::Range<usize>, b: &std::ops::Range<usize>| b.start <= a.start && a.end <= b.end;
    inside(&a.copies, &b.copies) && inside(&a.rows, &b.rows) && inside(&a.cols, &b.cols)
}

/// How evenly the work lies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Layers whose experts are dealt whole.
    pub expert_parallel: Vec<usize>,
    /// For each component, the ranks that hold nothing of it in some layer.
    pub idle: BTreeMap<Component, Vec<usize>>,
}

/// How evenly `plans`, of all ranks, share the weights of `d`.
pub fn balance(d: &Description, plans: &[RankPlan]) -> Balance {
    let mut balance = Balance::default();
    for (i, op) in d.ops.iter().enumerate() {
        let local = |p: &RankPlan| p.ops[i].weights.iter().any(|w| w.bytes() == 0);
        let idle: Vec<usize> = plans.iter().filter(|p| local(p)).map(|p| p.rank).collect();
        if !idle.is_empty() {
            let all = balance.idle.entry(Component::of(&plans[0].ops[i])).or_default();
            all.extend(idle);
            all.sort_unstable();
            all.dedup();
        }
        if let (Kind::Experts { .. }, Some(layer)) = (&op.kind, op.layer)
            && plans.iter().any(|p| p.ops[i].weights[0].copies.len() < op.weights[0].copies)
        {
            balance.expert_parallel.push(layer);
        }
    }
    balance
}

/// The fewest ranks of `memory` bytes each that a model fits on; none if more than anybody has would not do.
///
/// With their number what each holds falls, but for what a cut adds (two ranks may hold the same KV head), so numbers are tried in
/// turn. No plan is made where weights alone take too much, and of a number none after the first rank that lacks room.
///
/// # Errors
/// If the model cannot be planned at all.
pub fn fewest_ranks(
    trunk: &Description,
    draft: Option<&Description>,
    find: Find<'_>,
    demand: &Demand,
    memory: u64,
) -> Result<Option<usize>> {
    let cuts = Cuts::new(trunk, find)?;
    let draft = draft.map(|d| Cuts::new(d, find)).transpose()?;
    let [whole, dealt] = cuts.over(1)?.next().map_or([0; 2], |one| whole_and_dealt(trunk, &one));
    let may = |n: &usize| whole.saturating_add(dealt.div_ceil(*n as u64)) <= memory;
    for ranks in cuts.legal().filter(may) {
        let mut drafts = draft.as_ref().map(|cuts| cuts.over(ranks)).transpose()?;
        let fits = cuts.over(ranks)?.all(|plan| {
            let draft = drafts.as_mut().and_then(Iterator::next);
            Held::of(&plan, draft.as_ref(), demand.element).total(demand) <= memory
        });
        if fits {
            return Ok(Some(ranks));
        }
    }
    Ok(None)
}

/// Bytes of weights that each of any number of ranks holds, and of those that they share out, by the plan of a single one.
fn whole_and_dealt(d: &Description, one: &RankPlan) -> [u64; 2] {
    let mut whole: BTreeMap<&str, u64> = BTreeMap::new();
    for (op, local) in d.ops.iter().zip(&one.ops) {
        // a summand's bias is with one rank only
        let count = if let Kind::Linear { .. } = op.kind { op.outputs.len() } else { op.weights.len() };
        for (w, local) in op.weights.iter().zip(&local.weights).take(count) {
            if w.cut == Cut::Whole {
                let bytes = whole.entry(&w.name).or_default();
                *bytes = local.bytes().max(*bytes);
            }
        }
    }
    let whole = whole.values().sum();
    let all: u64 = once(one.ops.iter().flat_map(parts).collect()).iter().map(|(_, bytes)| bytes).sum();
    [whole, all.saturating_sub(whole)]
}

/// What each of `ranks` ranks holds.
///
/// # Errors
/// If the model cannot be cut that way.
pub fn held(
    trunk: &Description,
    draft: Option<&Description>,
    find: Find<'_>,
    ranks: usize,
    element: u64,
) -> Result<Vec<Held>> {
    let trunk = plan::plan(trunk, find, ranks)?;
    let draft = draft.map(|d| plan::plan(d, find, ranks)).transpose()?;
    let of = |r: usize| Held::of(&trunk[r], draft.as_ref().map(|d| &d[r]), element);
    Ok((0..ranks).map(of).collect())
}

/// Weights of GLM-5.2 with its next-token layer and 79 indexers.
const GLM_52_PARAMS: f64 = 753_864_139_008.0;

/// Published quantizations of GLM-5.2 and their bytes; other models' files of these names have about the same number
/// of bits a weight.
const PUBLISHED: [(&str, f64); 6] = [
    ("BF16", 1_507_988_023_008.0),
    ("Q8_0", 801.4e9),
    ("UD-Q5_K_XL", 562.5e9),
    ("UD-Q4_K_XL", 467_289_111_904.0),
    ("UD-Q4_K_S", 436_431_842_432.0),
    ("UD-Q2_K_XL", 253.9e9),
];

/// The largest published quantization whose weights would take at most `room` bytes where weights of `bits` bits each
/// take `now`; with it, how much it would take.
pub fn quant_that_fits(now: u64, bits: f64, room: u64) -> Option<(&'static str, u64)> {
    PUBLISHED
        .iter()
        .map(|(name, bytes)| (*name, (now as f64 * bytes * 8.0 / GLM_52_PARAMS / bits) as u64))
        .find(|(_, size)| *size <= room)
}

/// A graphics card.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Card {
    /// As people call it.
    pub name: &'static str,
    /// Bytes that its driver reports.
    pub memory: u64,
    /// Bytes a second that its memory gives at most, as its maker says.
    pub bandwidth: f64,
    /// Multiprocessors.
    pub multiprocessors: usize,
}

const fn card(name: &'static str, mib: u64, bandwidth: f64, multiprocessors: usize) -> Card {
    Card { name, memory: mib << 20, bandwidth, multiprocessors }
}

/// Cards that people run large models on.
pub const CARDS: [Card; 10] = [
    card("RTX PRO 6000", 97_288, 1.79e12, 188),
    card("B200", 183_359, 8.0e12, 148),
    card("H200", 143_771, 4.8e12, 132),
    card("H100", 81_559, 3.35e12, 132),
    card("A100 80GB", 81_920, 2.04e12, 108),
    card("L40S", 46_068, 0.864e12, 142),
    card("RTX 6000 Ada", 49_140, 0.96e12, 142),
    card("RTX 5090", 32_607, 1.79e12, 170),
    card("RTX 4090", 24_564, 1.01e12, 128),
    card("RTX 3090", 24_576, 0.936e12, 82),
];

/// The card of a name; spaces, dashes and case do not count.
///
/// # Errors
/// If there is none; the text lists them.
pub fn find_card(name: &str) -> Result<Card> {
    let plain = |s: &str| s.to_lowercase().replace([' ', '-', '_'], "");
    CARDS.into_iter().find(|c| plain(c.name) == plain(name)).ok_or_else(|| Error::Unknown {
        what: "card",
        found: name.into(),
        known: CARDS.map(|c| c.name).join(", "),
    })
}
