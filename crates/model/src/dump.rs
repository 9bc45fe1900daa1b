//! The printed forms of each stage: numbers, description, rank plan. They are also the golden tests.

use crate::hyper::Hyper;
use crate::op::*;
use crate::plan::{LocalOp, LocalWeight, Place, RankPlan};
use std::fmt::Write;

/// One line a number; long lists are cut short.
pub fn hyper(h: &Hyper) -> String {
    let debug = format!("{h:#?}");
    let mut out = String::new();
    let mut lines = debug.lines().peekable();
    while let Some(line) = lines.next() {
        out.push_str(line);
        if line.ends_with("[") || line.ends_with("Some(") {
            let simple =
                |l: &&str| !l.ends_with(['(', '[', '{']) && !l.trim_start().starts_with([')', ']', '}']);
            let mut items = vec![];
            while let Some(item) = lines.next_if(simple) {
                items.push(item.trim().trim_end_matches(','));
            }
            if !items.is_empty() {
                out.push_str(&short(&items));
                out.push_str(lines.next().unwrap_or_default().trim());
            }
        }
        out.push('\n');
    }
    out
}

/// Truth values as digits; of many numbers the first two and the last.
fn short(items: &[&str]) -> String {
    if items.iter().all(|i| matches!(*i, "true" | "false")) {
        return items.iter().map(|i| if *i == "true" { '1' } else { '0' }).collect();
    }
    match items {
        [a, b, _, _, .., z] => format!("{a}, {b}, … {z}; {} in all", items.len()),
        few => few.join(", "),
    }
}

/// One line an op: inputs, what is computed, weights with their cuts, outputs with where they live.
pub fn description(d: &Description) -> String {
    let mut out = String::new();
    for op in &d.ops {
        let ins: Vec<&str> = op.inputs.iter().map(|v| d.values[*v].name.as_str()).collect();
        let weights: Vec<String> = op.weights.iter().map(|w| weight(d, w)).collect();
        let outs: Vec<String> = op.outputs.iter().map(|v| value(d, &d.values[*v])).collect();
        line(&mut out, op.layer, &outs, &kind(&op.kind), &ins.join(", "), &weights);
    }
    for c in &d.caches {
        let _ = writeln!(out, "cache blk.{} {}: {} {}", c.layer, c.name, c.width, lay(d, c.lay));
    }
    let _ = writeln!(out, "{} ops, {} values, {} sums over ranks", d.ops.len(), d.values.len(), d.sums());
    out
}

/// The same for one rank: slots in place of names' lives, byte ranges in place of cuts.
pub fn rank_plan(d: &Description, p: &RankPlan) -> String {
    let mut out = format!("rank {} of {}\n", p.rank, p.ranks);
    for op in &p.ops {
        let ins: Vec<String> = op.inputs.iter().map(|v| place(d, v)).collect();
        let outs: Vec<String> = op.outputs.iter().map(|v| place(d, v)).collect();
        let weights: Vec<String> = op.weights.iter().map(local_weight).collect();
        line(&mut out, op.layer, &outs, &kind(&op.kind), &ins.join(", "), &weights);
    }
    for c in &p.caches {
        let _ = writeln!(out, "cache blk.{} {}: {}", c.layer, c.name, c.width);
    }
    let bytes: u64 = p.ops.iter().flat_map(|o: &LocalOp| &o.weights).map(LocalWeight::bytes).sum();
    let _ = writeln!(out, "slots {:?}, {bytes} bytes of weights", p.slots);
    out
}

fn line(out: &mut String, layer: Option<usize>, outs: &[String], kind: &str, ins: &str, weights: &[String]) {
    let layer = layer.map_or(String::new(), |l| format!("blk.{l} "));
    let _ = writeln!(out, "{layer}{} = {kind}({ins})", outs.join(", "));
    weights.iter().for_each(|w| {
        let _ = writeln!(out, "    {w}");
    });
}

fn value(d: &Description, v: &ValueInfo) -> String {
    format!("{} {}{}", v.name, v.width, lay(d, v.lay))
}

fn lay(d: &Description, lay: Lay) -> String {
    match lay {
        Lay::Full => String::new(),
        Lay::Split { deal, per, group: 1 } => format!(" by {}/{per}", d.deals[deal.0].name),
        Lay::Split { deal, per, group } => format!(" by {}/{per} a {group}", d.deals[deal.0].name),
        Lay::Partial => " summand".into(),
    }
}

fn weight(d: &Description, w: &Weight) -> String {
    let deal = |deal: Deal| d.deals[deal.0].name;
    let cut = match w.cut {
        Cut::Whole => "whole".into(),
        Cut::Rows { deal: by, per, group: 1 } => format!("rows by {}/{per}", deal(by)),
        Cut::Rows { deal: by, per, group } => format!("rows by {}/{per} a {group}", deal(by)),
        Cut::Cols { deal: by, per } => format!("columns by {}/{per}", deal(by)),
        Cut::Copies(by) => format!("one for each of {}", deal(by)),
    };
    let part = match w.file_rows == w.rows {
        true => String::new(),
        false => format!(" rows {}..{} of {}", w.skip, w.skip + w.rows, w.file_rows),
    };
    format!("{} {:?}{part} {cut}", w.name, w.ne)
}

fn place(d: &Description, p: &Place) -> String {
    let name = &d.values[p.value].name;
    match p.start {
        0 => format!("{name} {} @{}", p.width, p.slot),
        start => format!("{name} {start}+{} @{}", p.width, p.slot),
    }
}

fn local_weight(w: &LocalWeight) -> String {
    let copies = if w.copies == (0..1) { String::new() } else { format!(" copies {:?}", w.copies) };
    format!("{} {}{copies} rows {:?} cols {:?}", w.name, w.quant, w.rows, w.cols)
}

/// An op's kind with its numbers.
pub fn kind(k: &Kind) -> String {
    match k {
        Kind::Rotate { width, rope } => {
            format!("Rotate {{ width: {width}, {:?} first {} }}", rope.style, rope.rotated)
        }
        Kind::Linear { biased } if !biased.contains(&true) => "Linear".into(),
        other => format!("{other:?}"),
    }
}
