//! A description cut by layer into stages, each a description of its own. What lives across a cut goes over it: the
//! stream, and with it a selection of positions that later layers use again.

use super::{Find, Found, check};
use crate::op::*;
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::ops::Range;

/// Cut a description into `count` runs of layers, so that the largest holds as few bytes of weights as can be. The first
/// begins with the embedding, the last ends with the logits. A later stage begins with [`Kind::Hidden`]: the rows that
/// the stage before has as its hidden state.
///
/// # Errors
/// If a tensor is missing, has another shape or an unusable type, or there are fewer layers than stages.
pub fn stages(d: &Description, find: Find<'_>, count: usize) -> Result<Vec<Description>> {
    let found = check(d, find)?;
    let starts: Vec<usize> = (1..d.ops.len()).filter(|at| begins_layer(d, *at)).collect();
    if count == 0 || count > starts.len() {
        let why = format!("a stage has at least one of the {} layers", starts.len());
        return Err(Error::Stages { stages: count, why });
    }
    // what comes before the first layer goes with it, and what comes after the last with that
    let mut bounds = starts.clone();
    bounds[0] = 0;
    bounds.push(d.ops.len());
    let sizes: Vec<u64> =
        bounds.windows(2).map(|b| d.ops[b[0]..b[1]].iter().map(|o| bytes(o, &found)).sum()).collect();
    let cuts = cuts(&sizes, count);
    Ok(cuts.windows(2).map(|c| stage(d, bounds[c[0]]..bounds[c[1]])).collect())
}

fn begins_layer(d: &Description, at: usize) -> bool {
    d.ops[at].layer.is_some() && d.ops[at].layer != d.ops[at - 1].layer
}

/// Of the weights of an op.
fn bytes(op: &Op, found: &Found<'_>) -> u64 {
    let of = |w: &Weight| {
        let row = found[w.name.as_str()].quant.row_bytes(w.cols).expect("a checked shape has whole blocks");
        (w.copies * w.rows) as u64 * row as u64
    };
    op.weights.iter().map(of).sum()
}

/// Where `count` runs of `sizes` begin, and the end: the largest run is as small as can be.
fn cuts(sizes: &[u64], count: usize) -> Vec<usize> {
    let mut before = vec![0];
    sizes.iter().for_each(|size| before.push(before[before.len() - 1] + size));
    let all = sizes.len();
    // for each number of runs and each end: the largest run, and where the last one begins
    let mut best: Vec<Vec<(u64, usize)>> = vec![before.iter().map(|b| (*b, 0)).collect()];
    for runs in 1..count {
        let fewer = &best[runs - 1];
        let largest = |start: usize, end: usize| fewer[start].0.max(before[end] - before[start]);
        let choose =
            |end| (runs..end).map(|start| (largest(start, end), start)).min().unwrap_or((u64::MAX, 0));
        let row = (0..=all).map(choose).collect();
        best.push(row);
    }
    let mut cuts = vec![all];
    (0..count).rev().for_each(|runs| cuts.push(best[runs][cuts[cuts.len() - 1]].1));
    cuts.reverse();
    cuts
}

/// The values written before op `at` and read from there on: between layers all of them are whole.
fn alive(d: &Description, at: usize) -> Vec<usize> {
    let made: Vec<usize> = d.ops[..at].iter().flat_map(|o| o.outputs.iter().copied()).collect();
    let read = |v: &usize| d.ops[at..].iter().any(|o| o.inputs.contains(v));
    let alive: Vec<usize> = made.into_iter().filter(read).collect();
    assert!(alive.iter().all(|v| d.values[*v].lay == Lay::Full), "layers hand on what every rank holds");
    alive
}

fn stage(d: &Description, ops: Range<usize>) -> Description {
    let mut stage =
        Stage { whole: d, out: Description::default(), values: BTreeMap::new(), caches: BTreeMap::new() };
    stage.out.deals.clone_from(&d.deals);
    if ops.start > 0 {
        stage.receive(&alive(d, ops.start));
    }
    d.ops[ops.clone()].iter().for_each(|op| stage.op(op));
    if ops.end < d.ops.len() {
        stage.send(&alive(d, ops.end));
    } else {
        stage.out.hidden = d.hidden.map(|v| stage.value(v));
    }
    stage.out
}

/// A stage under construction.
struct Stage<'a> {
    whole: &'a Description,
    out: Description,
    /// Our numbers of the values of the whole.
    values: BTreeMap<usize, usize>,
    /// The same of its caches.
    caches: BTreeMap<usize, usize>,
}

impl Stage<'_> {
    fn value(&mut self, v: usize) -> usize {
        let Stage { whole, out, values, .. } = self;
        *values.entry(v).or_insert_with(|| {
            out.values.push(whole.values[v].clone());
            out.values.len() - 1
        })
    }

    fn cache(&mut self, slot: usize) -> usize {
        let Stage { whole, out, caches, .. } = self;
        *caches.entry(slot).or_insert_with(|| {
            out.caches.push(whole.caches[slot].clone());
            out.caches.len() - 1
        })
    }

    /// An op as it is, with our numbers.
    fn op(&mut self, op: &Op) {
        let mut op = op.clone();
        op.inputs.iter_mut().chain(&mut op.outputs).for_each(|v| *v = self.value(*v));
        op.kind.caches_mut().iter_mut().for_each(|slot| *slot = self.cache(*slot));
        self.out.ops.push(op);
    }

    /// A value that goes over a cut.
    fn parcel(&mut self, name: &str, width: usize) -> usize {
        let info = ValueInfo { name: name.into(), layer: None, width, lay: Lay::Full };
        self.out.values.push(info);
        self.out.values.len() - 1
    }

    fn push(&mut self, kind: Kind, inputs: Vec<usize>, output: usize) {
        self.out.ops.push(Op { kind, inputs, weights: vec![], outputs: vec![output], layer: None });
    }

    fn receive(&mut self, alive: &[usize]) {
        let widths: Vec<usize> = alive.iter().map(|v| self.whole.values[*v].width).collect();
        if let [only] = alive {
            let only = self.value(*only);
            return self.push(Kind::Hidden, vec![], only);
        }
        let unit = widths.iter().sum();
        let all = self.parcel("stage_in", unit);
        self.push(Kind::Hidden, vec![], all);
        let mut start = 0;
        for (v, len) in alive.iter().zip(widths) {
            let v = self.value(*v);
            self.push(Kind::Part { unit, start, len }, vec![all], v);
            start += len;
        }
    }

    fn send(&mut self, alive: &[usize]) {
        let mut all = self.value(alive[0]);
        for v in &alive[1..] {
            let v = self.value(*v);
            let width = self.out.values[all].width + self.out.values[v].width;
            let both = self.parcel("stage_out", width);
            self.push(Kind::Concat, vec![all, v], both);
            all = both;
        }
        self.out.hidden = Some(all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_run_is_as_small_as_can_be() {
        let check = |sizes: &[u64], count, want: &[usize]| assert_eq!(cuts(sizes, count), want, "{sizes:?}");
        check(&[1, 1, 1, 1], 2, &[0, 2, 4]);
        check(&[9, 1, 1, 1], 2, &[0, 1, 4]);
        check(&[1, 1, 1, 9], 3, &[0, 1, 3, 4]);
        check(&[5, 0, 0], 3, &[0, 1, 2, 3]);
        check(&[7], 1, &[0, 1]);
    }
}
