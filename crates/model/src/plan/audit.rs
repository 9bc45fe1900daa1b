//! Do plans belong to a description? Every rank's plan is read again, against the names: the right weights in the right
//! places, over all ranks each part once, everywhere cut alike, and no value read from where another one lies. What a
//! fault put into a plan after it was made is found here, before anything is loaded.

use super::{LocalOp, LocalWeight, Place, RankPlan};
use crate::op::*;
use std::collections::HashMap;
use std::ops::Range;

/// Reads the plans of all ranks, in order.
///
/// # Errors
/// The first that is not as the description says, with rank and name.
pub fn audit(d: &Description, plans: &[RankPlan]) -> Result<(), String> {
    if plans.is_empty() {
        return Err("there is no rank".into());
    }
    if d.hidden.is_none() && d.ops.last().is_none_or(|op| op.kind != Kind::Logits) {
        return Err("there are neither logits nor a hidden state at the end".into());
    }
    let dealt = Dealt::of(d, plans);
    dealt.goes_round(d, plans.len())?;
    for (rank, plan) in plans.iter().enumerate() {
        let fault = |why: String| format!("rank {rank} of {}: {why}", plans.len());
        if (plan.rank, plan.ranks, plan.ops.len()) != (rank, plans.len(), d.ops.len()) {
            return Err(fault("its plan is another rank's, or of another model".into()));
        }
        flow(d, plan).map_err(fault)?;
        for (op, local) in d.ops.iter().zip(&plan.ops) {
            let mut places = op.inputs.iter().zip(&local.inputs).chain(op.outputs.iter().zip(&local.outputs));
            places.try_for_each(|(v, p)| dealt.place(d, rank, *v, p)).map_err(fault)?;
            dealt.weights(d, rank, op, local).map_err(fault)?;
        }
    }
    Ok(())
}

/// Runs the ops on slots that hold the name of the value last written.
fn flow(d: &Description, plan: &RankPlan) -> Result<(), String> {
    let mut held = vec![usize::MAX; plan.slots.len()];
    for (op, local) in d.ops.iter().zip(&plan.ops) {
        let values = |places: &[Place]| places.iter().map(|p| p.value).collect::<Vec<_>>();
        let what = || op.outputs.first().map_or(String::new(), |v| d.values[*v].path());
        // ranks leave out biases that others add
        let linear = |kind: &Kind| matches!(kind, Kind::Linear { .. });
        if !(op.kind == local.kind || linear(&op.kind) && linear(&local.kind))
            || [values(&local.inputs), values(&local.outputs)] != [op.inputs.clone(), op.outputs.clone()]
        {
            return Err(format!("what makes `{}` is another op than the model's", what()));
        }
        if let Some(p) = local.inputs.iter().find(|p| held.get(p.slot) != Some(&p.value)) {
            let name = d.values[p.value].path();
            return Err(format!("what makes `{}` reads `{name}` from where something else lies", what()));
        }
        for p in &local.outputs {
            match held.get_mut(p.slot) {
                Some(slot) if plan.slots[p.slot] >= p.width => *slot = p.value,
                _ => return Err(format!("`{}` has no room", what())),
            }
        }
    }
    match plan.hidden {
        Some(p) if held.get(p.slot) != Some(&p.value) => Err("the hidden state is overwritten".into()),
        _ => Ok(()),
    }
}

/// What each rank has of each deal, as the first weight says that is cut by it.
struct Dealt {
    /// By deal and rank: units, or whole experts.
    shares: HashMap<(Deal, usize), Share>,
}

#[derive(Clone, Debug, PartialEq)]
enum Share {
    Units(Range<usize>),
    Experts(Range<usize>),
}

impl Dealt {
    fn of(d: &Description, plans: &[RankPlan]) -> Dealt {
        let mut shares = HashMap::new();
        for (rank, plan) in plans.iter().enumerate() {
            let pairs =
                d.ops.iter().zip(&plan.ops).flat_map(|(op, local)| op.weights.iter().zip(&local.weights));
            for (w, local) in pairs {
                if let Some((deal, share)) = share(d, w, local) {
                    shares.entry((deal, rank)).or_insert(share);
                }
            }
        }
        Dealt { shares }
    }

    /// Every unit is somewhere, once, in the order of ranks.
    fn goes_round(&self, d: &Description, ranks: usize) -> Result<(), String> {
        for (n, info) in d.deals.iter().enumerate() {
            let shares: Vec<&Share> = (0..ranks).filter_map(|r| self.shares.get(&(Deal(n), r))).collect();
            let Some(first) = shares.first() else { continue };
            let kind = std::mem::discriminant(*first);
            let all = match first {
                Share::Units(_) => info.units,
                Share::Experts(_) => info.experts.map_or(0, |(n, _)| n),
            };
            let mut next = 0;
            for share in &shares {
                let (Share::Units(range) | Share::Experts(range)) = share;
                if range.is_empty() {
                    continue;
                }
                if std::mem::discriminant(*share) != kind || range.start != next {
                    next = usize::MAX;
                    break;
                }
                next = range.end;
            }
            if next != all || shares.len() != ranks {
                let layer = info.layer.map_or(String::new(), |l| format!(" of layer {l}"));
                return Err(format!(
                    "the {} {}{layer} are not dealt once each: {shares:?}",
                    info.units, info.name
                ));
            }
        }
        Ok(())
    }

    /// The groups of units that a rank touches, and none where it has whole experts instead.
    fn groups(&self, deal: Deal, rank: usize, group: usize) -> Option<Range<usize>> {
        match self.shares.get(&(deal, rank)) {
            Some(Share::Units(r)) if r.is_empty() => Some(0..0),
            Some(Share::Units(r)) => Some(r.start / group..r.end.div_ceil(group)),
            _ => None,
        }
    }

    fn place(&self, d: &Description, rank: usize, value: usize, p: &Place) -> Result<(), String> {
        let v = &d.values[value];
        let due = match v.lay {
            Lay::Full | Lay::Partial => Some(0..v.width),
            Lay::Split { deal, per, group } => {
                self.groups(deal, rank, group).map(|r| r.start * per..r.end * per)
            }
        };
        match due {
            Some(due) if due == (p.start..p.start + p.width) => Ok(()),
            due => Err(format!(
                "`{}` has elements {}..{}, but {due:?} are due",
                v.path(),
                p.start,
                p.start + p.width
            )),
        }
    }

    fn weights(&self, d: &Description, rank: usize, op: &Op, local: &LocalOp) -> Result<(), String> {
        let unbiased =
            rank > 0 && matches!(op.kind, Kind::Linear { .. }) && d.values[op.outputs[0]].lay == Lay::Partial;
        // the bias of a summand is added once
        let expected = if unbiased { op.outputs.len() } else { op.weights.len() };
        if local.weights.len() != expected {
            return Err(format!("{} weights instead of {expected}", local.weights.len()));
        }
        op.weights.iter().zip(&local.weights).try_for_each(|(w, l)| self.weight(rank, w, l))
    }

    fn weight(&self, rank: usize, w: &Weight, local: &LocalWeight) -> Result<(), String> {
        if local.name != w.name {
            return Err(format!("`{}` lies where `{}` is due", local.name, w.name));
        }
        let row_bytes = local.quant.row_bytes(w.cols).unwrap_or_default();
        if (local.file_rows, local.row_bytes) != (w.file_rows, row_bytes) {
            return Err(format!("`{}` has rows of {} bytes", w.name, local.row_bytes));
        }
        let due = self.due(rank, w);
        let held = [&local.copies, &local.rows, &local.cols].map(Clone::clone);
        match due {
            Some(due) if due == held => Ok(()),
            due => Err(format!("`{}` has matrices, rows and columns {held:?}, but {due:?} are due", w.name)),
        }
    }

    /// Matrices, rows and columns of a weight that are due to a rank.
    fn due(&self, rank: usize, w: &Weight) -> Option<[Range<usize>; 3]> {
        let whole = |copies| [copies, w.skip..w.skip + w.rows, 0..w.cols];
        if let Cut::Rows { deal, .. } | Cut::Cols { deal, .. } = w.cut
            && let Some(Share::Experts(copies)) = self.shares.get(&(deal, rank))
        {
            return Some(whole(copies.clone()));
        }
        let mut due = whole(0..w.copies);
        match w.cut {
            Cut::Whole => {}
            Cut::Copies(deal) => due[0] = self.groups(deal, rank, 1)?,
            Cut::Rows { deal, per, group } => {
                let r = self.groups(deal, rank, group)?;
                due[1] = w.skip + r.start * per..w.skip + r.end * per;
            }
            Cut::Cols { deal, per } => {
                let r = self.groups(deal, rank, 1)?;
                due[2] = r.start * per..r.end * per;
            }
        }
        Some(due)
    }
}

/// What a weight's part says of the deal that it is cut by; groups of several units don't say it exactly.
fn share(d: &Description, w: &Weight, local: &LocalWeight) -> Option<(Deal, Share)> {
    let by = |r: &Range<usize>, skip: usize, per: usize| {
        Share::Units((r.start.saturating_sub(skip)) / per.max(1)..(r.end.saturating_sub(skip)) / per.max(1))
    };
    Some(match w.cut {
        Cut::Whole => return None,
        Cut::Copies(deal) => (deal, Share::Units(local.copies.clone())),
        Cut::Rows { deal, .. } | Cut::Cols { deal, .. }
            if d.deals[deal.0].experts.is_some() && w.copies > 1 && local.copies != (0..w.copies) =>
        {
            (deal, Share::Experts(local.copies.clone()))
        }
        Cut::Rows { deal, per, group: 1 } => (deal, by(&local.rows, w.skip, per)),
        Cut::Rows { .. } => return None,
        Cut::Cols { deal, per } => (deal, by(&local.cols, 0, per)),
    })
}
