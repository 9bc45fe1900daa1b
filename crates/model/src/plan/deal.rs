//! Deals shared out: which units each rank gets, at the grain that the file's block formats allow.

use super::{Cuts, Find, Found};
use crate::op::*;
use crate::{Error, Result};
use std::ops::Range;

/// How one deal is shared out.
#[derive(Clone, Debug, PartialEq)]
pub enum Share {
    /// Each rank gets a range of units.
    Units(Vec<Range<usize>>),
    /// Each rank gets whole experts.
    Experts(Vec<Range<usize>>),
}

/// All deals of a description shared out over a number of ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Shares {
    ranks: usize,
    shares: Vec<Share>,
}

/// More ranks than anybody has cards.
const MAX_RANKS: usize = 64;

/// What limits a deal: units that a block format glues together, and the weight that has it.
pub(super) struct Grain {
    units: usize,
    cause: Option<String>,
}

impl Shares {
    pub(super) fn new(d: &Description, grains: &[Grain], ranks: usize) -> Result<Shares> {
        let legal = |n: usize| goes(d, grains, n);
        if ranks == 0 || ranks > MAX_RANKS {
            return Err(refuse(ranks, "there must be 1 to 64 ranks".into(), legal));
        }
        let all = d.deals.iter().zip(grains).map(|(i, g)| {
            share(i, g.units, ranks).ok_or_else(|| {
                let layer = i.layer.map_or(String::new(), |l| format!(" of layer {l}"));
                let glue = g
                    .cause
                    .as_ref()
                    .map_or(String::new(), |c| format!(", dealt {} at a time, since {c}", g.units));
                refuse(ranks, format!("the {} {}{layer} do not go around{glue}", i.units, i.name), legal)
            })
        });
        Ok(Shares { ranks, shares: all.collect::<Result<_>>()? })
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// How a deal is shared out.
    pub fn of(&self, deal: Deal) -> &Share {
        &self.shares[deal.0]
    }

    /// The experts of a rank, where whole experts are dealt.
    pub(super) fn experts(&self, deal: Deal, rank: usize) -> Option<Range<usize>> {
        match self.of(deal) {
            Share::Experts(all) => Some(all[rank].clone()),
            Share::Units(_) => None,
        }
    }

    /// The groups that a rank's units touch: KV heads may be held by two ranks.
    pub(super) fn groups(&self, deal: Deal, rank: usize, group: usize) -> Range<usize> {
        match self.of(deal) {
            Share::Units(all) if all[rank].is_empty() => 0..0,
            Share::Units(all) => all[rank].start / group..all[rank].end.div_ceil(group),
            Share::Experts(_) => unreachable!("whole experts have no split values"),
        }
    }
}

fn refuse(ranks: usize, why: String, legal: impl Fn(usize) -> bool) -> Error {
    let legal: Vec<String> = (1..=MAX_RANKS).filter(|n| legal(*n)).map(|n| n.to_string()).collect();
    Error::Ranks { ranks, why, legal: legal.join(", ") }
}

/// The numbers of ranks over which a description can be cut.
///
/// # Errors
/// If a tensor is missing or has another shape or an unusable type.
pub fn legal_ranks(d: &Description, find: Find<'_>) -> Result<Vec<usize>> {
    Ok(Cuts::new(d, find)?.legal().collect())
}

/// Those of them that each deal's units go around.
pub(super) fn legal(d: &Description, grains: &[Grain]) -> impl Iterator<Item = usize> {
    (1..=MAX_RANKS).filter(move |n| goes(d, grains, *n))
}

fn goes(d: &Description, grains: &[Grain], ranks: usize) -> bool {
    d.deals.iter().zip(grains).all(|(info, grain)| chunks(info, grain.units, ranks).is_some())
}

/// A column cut must fall between blocks of each weight that it cuts.
pub(super) fn grains(d: &Description, found: &Found<'_>) -> Vec<Grain> {
    let mut grains: Vec<Grain> = d.deals.iter().map(|_| Grain { units: 1, cause: None }).collect();
    for w in d.weights() {
        let Cut::Cols { deal, per } = w.cut else { continue };
        let quant = found[w.name.as_str()].quant;
        let block = quant.block_len();
        let g = &mut grains[deal.0];
        let units = lcm(g.units, block / gcd(block, per));
        if units > g.units || g.cause.is_none() {
            let unit = if per == 1 { String::new() } else { format!(", {per} columns each") };
            let cause =
                format!("`{}` has rows of {} in {} blocks of {block}{unit}", w.name, w.cols, quant.name());
            *g = Grain { units, cause: Some(cause) };
        }
    }
    grains
}

/// Units that stay together and the number of such chunks; none if there are fewer units than ranks that need one. Where
/// only a block format glues too many together, a rank is left idle instead: its summand is zero.
fn chunks(info: &DealInfo, grain: usize, ranks: usize) -> Option<(usize, usize)> {
    let together = lcm(grain, info.group);
    let grain = if info.units / together >= ranks { together } else { grain };
    let chunks = info.units.div_ceil(grain);
    (info.units >= ranks || info.idle).then_some((grain, chunks))
}

/// No model uses more experts a token; the search for the busiest rank grows with its cube.
const MAX_USED: usize = 64;

fn share(info: &DealInfo, grain: usize, ranks: usize) -> Option<Share> {
    let (grain, chunks) = chunks(info, grain, ranks)?;
    let units = |r: Range<usize>| (r.start * grain).min(info.units)..(r.end * grain).min(info.units);
    let by_unit: Vec<Range<usize>> = even(chunks, ranks).map(units).collect();
    let most = by_unit.iter().map(Range::len).max().unwrap_or(0);
    let uneven = most * ranks > info.units;
    if let Some((experts, used)) = info.experts.filter(|(_, used)| uneven && *used <= MAX_USED)
        && busiest(experts, used, ranks) < used as f64 * most as f64 / info.units as f64
    {
        return Some(Share::Experts(even(experts, ranks).collect()));
    }
    Some(Share::Units(by_unit))
}

/// `n` things for `ranks` ranks, the first ones getting one more where it does not go even.
fn even(n: usize, ranks: usize) -> impl Iterator<Item = Range<usize>> {
    let (each, more) = (n / ranks, n % ranks);
    let start = move |r: usize| r * each + r.min(more);
    (0..ranks).map(move |r| start(r)..start(r + 1))
}

/// How many of a token's `used` distinct experts the busiest of `ranks` ranks has on average, if each choice is
/// equally likely: the sum over k of P(busiest > k). The choices with at most k on each rank are counted by a product
/// of polynomials whose coefficient j is the number of ways to take j of a rank's experts.
fn busiest(experts: usize, used: usize, ranks: usize) -> f64 {
    let count = |limit: usize| {
        let mut ways = vec![0.0; used + 1];
        ways[0] = 1.0;
        for held in even(experts, ranks) {
            let take = binomials(held.len(), limit.min(used));
            ways =
                (0..=used).map(|n| (0..take.len().min(n + 1)).map(|j| ways[n - j] * take[j]).sum()).collect();
        }
        ways[used]
    };
    let all = count(used);
    (0..used).map(|k| 1.0 - count(k) / all).sum()
}

/// `n` over 0, 1, ..., `most`.
fn binomials(n: usize, most: usize) -> Vec<f64> {
    let mut row = vec![1.0];
    (0..most).for_each(|j| row.push(row[j] * (n as f64 - j as f64).max(0.0) / (j + 1) as f64));
    row
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn lcm(a: usize, b: usize) -> usize {
    a / gcd(a, b) * b
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_rank_has_what_was_computed_elsewhere() {
        // the figures of GLM-5: 256 experts, 8 used
        for (ranks, want) in [(8, 2.56), (4, 3.51), (2, 5.08), (1, 8.0)] {
            let got = busiest(256, 8, ranks);
            assert!((got - want).abs() < 0.01, "{ranks}: {got}");
        }
    }

    #[test]
    fn shares_are_even_and_complete() {
        assert_eq!(even(7, 3).collect::<Vec<_>>(), [0..3, 3..5, 5..7]);
        assert_eq!(even(1, 3).collect::<Vec<_>>(), [0..1, 1..1, 1..1]);
    }
}
