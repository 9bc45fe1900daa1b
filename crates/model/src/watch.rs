//! What running ranks are compared by: hashes of values that each of them holds whole. Ranks that go apart anywhere
//! have other hashes from there on, so the first that differs says where it began.

use crate::op::{Description, Kind};
use crate::plan::{LocalOp, RankPlan};
use std::fmt;

/// So many steps, from the first on, are always watched.
pub const STEPS: u64 = 100;

/// The ops after which all ranks must hold the same, ascending: a branch has been added to the stream, experts or
/// positions have been chosen. Each has one output.
pub fn points(ops: &[LocalOp]) -> Vec<usize> {
    let summed = |value| ops.iter().any(|op| op.kind == Kind::Sum && op.outputs[0].value == value);
    let watched = |op: &LocalOp| match op.kind {
        Kind::Route(_) | Kind::Index { .. } => true,
        Kind::Add => op.inputs.iter().any(|p| summed(p.value)),
        _ => false,
    };
    (0..ops.len()).filter(|at| watched(&ops[*at])).collect()
}

/// Which steps of a description are watched, and what is looked at in them.
#[derive(Clone, Debug)]
pub struct Watch {
    points: Vec<Point>,
    always: bool,
    /// Steps so far.
    steps: u64,
}

#[derive(Clone, Debug)]
struct Point {
    op: usize,
    path: String,
    layer: Option<usize>,
}

impl Watch {
    /// Of one rank nothing is watched; of several, `always` says whether that goes on after the first [`STEPS`].
    pub fn new(d: &Description, plans: &[RankPlan], always: bool) -> Watch {
        let point = |op: usize| {
            let value = &d.values[d.ops[op].outputs[0]];
            Point { op, path: value.path(), layer: value.layer }
        };
        let of = plans.first().filter(|p| p.ranks > 1);
        Watch {
            points: of.map_or(vec![], |p| points(&p.ops).into_iter().map(point).collect()),
            always,
            steps: 0,
        }
    }

    /// How many values are watched in a step.
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// Is nothing ever watched?
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Is the output of an op one of them?
    pub fn has(&self, op: usize) -> bool {
        self.points.binary_search_by_key(&op, |p| p.op).is_ok()
    }

    /// Is the step that begins now to be watched?
    pub fn begin(&mut self) -> bool {
        self.steps += 1;
        !self.is_empty() && (self.always || self.steps <= STEPS)
    }

    /// Compares what the ranks hold: a hash for each point, by rank.
    ///
    /// # Errors
    /// The first value that is not the same everywhere.
    pub fn compare(&self, hashes: &[Vec<u64>]) -> Result<(), Parted> {
        for (n, point) in self.points.iter().enumerate() {
            let held: Vec<Option<u64>> = hashes.iter().map(|h| h.get(n).copied()).collect();
            let count = |hash: &Option<u64>| held.iter().filter(|h| *h == hash).count();
            // of equally many the lowest rank's
            let common = held.iter().rev().max_by_key(|h| count(h));
            let ranks: Vec<usize> = (0..held.len()).filter(|r| Some(&held[*r]) != common).collect();
            if !ranks.is_empty() || held.contains(&None) {
                return Err(Parted { path: point.path.clone(), layer: point.layer, ranks });
            }
        }
        Ok(())
    }
}

/// Ranks that do not hold what the others hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parted {
    /// The first value in which they differ.
    pub path: String,
    /// Its layer.
    pub layer: Option<usize>,
    /// The ranks that are in the minority.
    pub ranks: Vec<usize>,
}

impl std::error::Error for Parted {}

impl fmt::Display for Parted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layer = self.layer.map_or(String::new(), |l| format!("in layer {l} "));
        let ranks: Vec<String> = self.ranks.iter().map(usize::to_string).collect();
        let who = if ranks.len() == 1 { "rank" } else { "ranks" };
        write!(
            f,
            "the ranks have gone apart: {layer}`{}` of {who} {} is not what the others have; a card, a link or a \
             sum is at fault, and nothing that follows can be trusted",
            self.path,
            ranks.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(always: bool) -> Watch {
        let point = |op, path: &str, layer| Point { op, path: path.into(), layer };
        let points = vec![point(3, "blk.0.ffn_inp", Some(0)), point(9, "blk.0.l_out", Some(0))];
        Watch { points, always, steps: 0 }
    }

    #[test]
    fn the_first_value_and_the_rank_that_differs_are_named() {
        let check = |hashes: &[&[u64]], expected: Option<(&str, &[usize])>| {
            let hashes: Vec<Vec<u64>> = hashes.iter().map(|h| h.to_vec()).collect();
            let found = watch(true).compare(&hashes).err().map(|p| (p.path, p.ranks));
            assert_eq!(found, expected.map(|(path, ranks)| (path.to_owned(), ranks.to_vec())), "{hashes:?}");
        };
        check(&[&[1, 2], &[1, 2]], None);
        check(&[&[1, 2], &[1, 3]], Some(("blk.0.l_out", &[1])));
        check(&[&[1, 2], &[4, 3]], Some(("blk.0.ffn_inp", &[1])));
        check(&[&[7, 2], &[1, 2], &[1, 2]], Some(("blk.0.ffn_inp", &[0])));
        check(&[&[1, 2], &[1]], Some(("blk.0.l_out", &[1])));
        let parted = watch(true).compare(&[vec![1, 2], vec![1, 3]]).err().map(|p| p.to_string());
        let text = "in layer 0 `blk.0.l_out` of rank 1 is not what the others have";
        assert!(parted.is_some_and(|p| p.contains(text)));
    }

    #[test]
    fn the_first_steps_are_always_watched() {
        let watched = |always| {
            (0..=STEPS).filter({
                let mut watch = watch(always);
                move |_| watch.begin()
            })
        };
        assert_eq!(watched(false).count() as u64, STEPS);
        assert_eq!(watched(true).count() as u64, STEPS + 1);
    }
}
