//! Two executions of one prompt compared value by value, as they run.

use shardwright_model::exec::{Probe, Seen};
use std::collections::HashMap;

/// Every value of the reference execution.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    records: Vec<Record>,
    index: HashMap<String, usize>,
}

#[derive(Debug)]
struct Record {
    path: String,
    op: String,
    layer: Option<usize>,
    width: usize,
    data: Vec<f32>,
}

impl Recorder {
    /// Values seen.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }
}

impl Probe for Recorder {
    fn see(&mut self, v: &Seen<'_>) {
        let next = self.records.len();
        let at = *self.index.entry(v.path.to_owned()).or_insert(next);
        if at == next {
            let (path, op) = (v.path.to_owned(), v.op.to_owned());
            self.records.push(Record { path, op, layer: v.layer, width: v.width, data: vec![] });
        }
        self.records[at].data.extend_from_slice(v.data);
    }
}

/// One element that differs by more than it may.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Difference {
    pub(crate) path: String,
    pub(crate) op: String,
    pub(crate) layer: Option<usize>,
    pub(crate) row: usize,
    pub(crate) element: usize,
    pub(crate) reference: f32,
    pub(crate) other: f32,
    /// The difference over the root mean square of the reference's row; for choices (experts, positions) 1.
    pub(crate) relative: f64,
}

/// How far one value is from the reference.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Deviation {
    /// Elements whose bits differ.
    pub(crate) differing: usize,
    /// The largest relative difference.
    pub(crate) worst: f64,
    first: Option<Difference>,
}

/// Compares an execution with a recorded one. Its steps may be cut in any way: each names its first row.
#[derive(Debug)]
pub(crate) struct Comparer<'a> {
    reference: &'a Recorder,
    tolerance: f64,
    /// Row of the prompt that the step begins with.
    pub(crate) first_row: usize,
    /// Do other choices (experts, positions) end the comparison of a row instead of failing it?
    choices_may_differ: bool,
    /// The first row with another choice: from there on the executions compute different things.
    parted: Option<(usize, String)>,
    deviations: Vec<Deviation>,
    seen: Vec<usize>,
    unknown: Vec<String>,
}

impl<'a> Comparer<'a> {
    /// `tolerance` is relative to the root mean square of a row; 0 asks for equal bits. With `choices_may_differ`, as
    /// rounded activations make them do, a row is compared up to its first other choice, and so are all that follow.
    pub(crate) fn new(reference: &'a Recorder, tolerance: f64, choices_may_differ: bool) -> Comparer<'a> {
        let n = reference.records.len();
        Comparer {
            reference,
            tolerance,
            choices_may_differ,
            parted: None,
            first_row: 0,
            deviations: vec![Deviation::default(); n],
            seen: vec![0; n],
            unknown: vec![],
        }
    }

    /// The first value, in the order of the model's steps, that differs by more than it may.
    pub(crate) fn first(&self) -> Option<&Difference> {
        self.deviations.iter().find_map(|d| d.first.as_ref())
    }

    /// Row and value of the first choice that differs, where choices may.
    pub(crate) fn parted(&self) -> Option<&(usize, String)> {
        self.parted.as_ref()
    }

    /// Path, layer and deviation of each value, in the order of the model's steps.
    pub(crate) fn deviations(&self) -> impl Iterator<Item = (&str, Option<usize>, &Deviation)> {
        let name = |r: &'a Record| (r.path.as_str(), r.layer);
        self.reference.records.iter().zip(&self.deviations).map(move |(r, d)| (name(r).0, name(r).1, d))
    }

    /// Values that only one of the executions has, or of which it has fewer rows.
    pub(crate) fn unmatched(&self) -> Vec<String> {
        let short = |(r, n): (&Record, &usize)| (*n < r.data.len()).then(|| r.path.clone());
        let missing = self.reference.records.iter().zip(&self.seen).filter_map(short);
        missing.chain(self.unknown.iter().cloned()).collect()
    }

    /// Finds the first row with another choice, if choices may differ and this value holds some.
    fn part(&mut self, r: &Record, v: &Seen<'_>) {
        let expected = r.data[self.first_row * r.width..].chunks_exact(r.width);
        let other = |(a, b): (&[f32], &[f32])| (0..r.width).any(|i| is_choice(r, i) && a[i] != b[i]);
        let found = expected.zip(v.data.chunks_exact(v.width)).position(other).map(|i| self.first_row + i);
        if let Some(row) = found.filter(|row| self.parted.as_ref().is_none_or(|(first, _)| row < first)) {
            self.parted = Some((row, r.path.clone()));
        }
    }

    fn compare(&self, r: &Record, v: &Seen<'_>) -> Deviation {
        let mut out = Deviation::default();
        let expected = r.data[self.first_row * r.width..].chunks_exact(r.width);
        let end = self.parted.as_ref().map_or(usize::MAX, |(row, _)| row.saturating_sub(self.first_row));
        let expected = expected.take(end);
        for (i, (a, b)) in expected.zip(v.data.chunks_exact(v.width)).enumerate() {
            let scale = rms(a).max(f64::from(f32::MIN_POSITIVE));
            for (element, (x, y)) in a.iter().zip(b).enumerate() {
                if x.to_bits() == y.to_bits() {
                    continue;
                }
                out.differing += 1;
                let relative = if is_choice(r, element) { 1.0 } else { f64::from((x - y).abs()) / scale };
                // NaN compares false: it must count as the largest difference
                let relative = if relative.is_nan() { f64::INFINITY } else { relative };
                out.worst = out.worst.max(relative);
                if relative > self.tolerance && out.first.is_none() {
                    out.first = Some(Difference {
                        path: r.path.clone(),
                        op: r.op.clone(),
                        layer: r.layer,
                        row: self.first_row + i,
                        element,
                        reference: *x,
                        other: *y,
                        relative,
                    });
                }
            }
        }
        out
    }
}

impl Probe for Comparer<'_> {
    fn see(&mut self, v: &Seen<'_>) {
        let Some(&at) = self.reference.index.get(v.path) else {
            return self.unknown.push(v.path.to_owned());
        };
        let reference = self.reference;
        let r = &reference.records[at];
        if r.width != v.width || r.data.len() < self.first_row * r.width + v.data.len() {
            return self.unknown.push(v.path.to_owned());
        }
        if self.choices_may_differ {
            self.part(r, v);
        }
        let new = self.compare(r, v);
        let d = &mut self.deviations[at];
        d.differing += new.differing;
        d.worst = d.worst.max(new.worst);
        d.first = d.first.take().or(new.first);
        self.seen[at] += v.data.len();
    }
}

/// Experts and positions are numbers of things: any difference is a different choice.
fn is_choice(r: &Record, element: usize) -> bool {
    match r.op.as_str() {
        "Index" => true,
        "Route" => element < r.width / 2,
        _ => false,
    }
}

fn rms(row: &[f32]) -> f64 {
    let squares: f64 = row.iter().map(|x| f64::from(*x).powi(2)).sum();
    (squares / row.len() as f64).sqrt()
}

/// How two sets of logits agree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Agreement {
    /// The largest absolute difference.
    pub(crate) max_abs: f64,
    /// Mean Kullback-Leibler divergence from the reference, in nats.
    pub(crate) kl: f64,
    /// Share of rows with the same likeliest token.
    pub(crate) top1: f64,
}

/// Compare logits row by row.
pub(crate) fn agreement(reference: &[f32], other: &[f32], vocab: usize) -> Agreement {
    let rows = reference.chunks_exact(vocab).zip(other.chunks_exact(vocab));
    let (mut out, mut n) = (Agreement { max_abs: 0.0, kl: 0.0, top1: 0.0 }, 0.0);
    for (a, b) in rows {
        let worst = a.iter().zip(b).map(|(x, y)| f64::from((x - y).abs())).fold(0.0, f64::max);
        out.max_abs = out.max_abs.max(worst);
        let (p, q) = (log_softmax(a), log_softmax(b));
        out.kl += p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum::<f64>();
        out.top1 += f64::from(u8::from(best(a) == best(b)));
        n += 1.0;
    }
    Agreement { kl: out.kl / n, top1: out.top1 / n, ..out }
}

/// Log-probabilities of a row of logits, in nats.
pub(crate) fn log_softmax(row: &[f32]) -> Vec<f64> {
    let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|x| f64::from(x - top).exp()).sum();
    row.iter().map(|x| f64::from(x - top) - sum.ln()).collect()
}

fn best(row: &[f32]) -> Option<usize> {
    (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b]).then(b.cmp(a)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen<'a>(path: &'a str, op: &'a str, width: usize, data: &'a [f32]) -> Seen<'a> {
        Seen { path, layer: Some(0), op, width, data }
    }

    fn recorded() -> Recorder {
        let mut r = Recorder::default();
        r.see(&seen("a", "RmsNorm", 2, &[1.0, 2.0, 3.0, 4.0]));
        r.see(&seen("topk", "Route", 4, &[3.0, 7.0, 0.5, 0.5, 1.0, 2.0, 0.25, 0.75]));
        r
    }

    #[test]
    fn the_first_value_in_model_order_is_reported_whatever_came_first_in_time() {
        let r = recorded();
        let mut c = Comparer::new(&r, 1e-3, false);
        // the second half of the prompt, where only the later value differs, comes first
        c.first_row = 1;
        c.see(&seen("topk", "Route", 4, &[1.0, 3.0, 0.25, 0.75]));
        c.first_row = 0;
        c.see(&seen("a", "RmsNorm", 2, &[1.0, 2.1]));
        let d = c.first().unwrap();
        assert_eq!((d.path.as_str(), d.row, d.element, d.reference, d.other), ("a", 0, 1, 2.0, 2.1));
        assert_eq!(c.unmatched(), ["a", "topk"], "each lacks a row");
    }

    #[test]
    fn equal_bits_have_no_difference_and_choices_no_tolerance() {
        let r = recorded();
        let mut c = Comparer::new(&r, 0.5, false);
        c.see(&seen("a", "RmsNorm", 2, &[1.0, 2.0, 3.0, 4.0]));
        assert_eq!((c.first(), c.deviations().next().unwrap().2.differing), (None, 0));
        c.see(&seen("topk", "Route", 4, &[3.0, 7.0, 0.5, 0.5001, 1.0, 3.0, 0.25, 0.75]));
        assert_eq!(c.first().map(|d| (d.row, d.element)), Some((1, 1)));
        assert!(c.unmatched().is_empty());
    }

    #[test]
    fn rows_are_compared_up_to_another_choice_where_choices_may_differ() {
        let r = recorded();
        let mut c = Comparer::new(&r, 0.5, true);
        c.see(&seen("topk", "Route", 4, &[3.0, 7.0, 0.5, 0.5, 1.0, 3.0, 0.25, 0.75]));
        c.see(&seen("a", "RmsNorm", 2, &[1.0, 2.0, 30.0, 4.0]));
        assert_eq!((c.first(), c.parted()), (None, Some(&(1, "topk".to_owned()))));
        c.see(&seen("a", "RmsNorm", 2, &[1.0, 20.0, 3.0, 4.0]));
        assert_eq!(c.first().map(|d| d.row), Some(0), "rows before it are still held to the tolerance");
    }

    #[test]
    fn a_nan_is_the_largest_difference() {
        let r = recorded();
        let mut c = Comparer::new(&r, 1e9, false);
        c.see(&seen("a", "RmsNorm", 2, &[1.0, f32::NAN, 3.0, 4.0]));
        assert_eq!(c.first().map(|d| d.element), Some(1));
    }

    #[test]
    fn logits_agree_with_themselves() {
        let x = [1.0, 2.0, 0.5, 0.0, -1.0, 3.0];
        assert_eq!(agreement(&x, &x, 3), Agreement { max_abs: 0.0, kl: 0.0, top1: 1.0 });
        let y = [1.0, 0.0, 0.5, 0.0, -1.0, 3.0];
        let a = agreement(&x, &y, 3);
        assert_eq!((a.max_abs, a.top1), (2.0, 0.5));
        assert!(a.kl > 0.1);
    }
}
