//! What the launches of a step take, and what they must read: the share that each reaches of what the memory can give.

use std::collections::BTreeSet;

use shardwright_model::cost::{self, Cost};
use shardwright_model::op::{Description, Kind, Op};
use shardwright_model::plan::{LocalOp, RankPlan};

use crate::Result;
use crate::device::{Device, Launch};
use crate::program::{Call, Slot};
use crate::stamp::{Stamped, Times};

/// A step on one device.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Its launches, in order.
    pub launches: Vec<Timed>,
    /// Seconds from the first kernel to the last when nothing stands between them.
    pub span: f64,
    /// Seconds that a stamp takes. They are in no other figure.
    pub stamp: f64,
}

/// A launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed {
    /// The kernel, and the weights that it reads with their types: `linear attn_output Q8_0`.
    pub name: String,
    /// Bytes of weights and cache that it can't do without.
    pub bytes: u64,
    /// Seconds, the way from the launch before it included.
    pub seconds: f64,
}

/// Seconds of each launch of a step, and of all when nothing stands between them; the two recordings take turns, so that both see
/// the same clock rates.
pub(crate) fn timed(device: &mut dyn Device, step: &[Launch], replays: usize) -> Result<(Times, f64)> {
    let each: Vec<&[Launch]> = step.chunks(1).collect();
    let [mut apart, mut whole] = [Stamped::new(device, &each)?, Stamped::new(device, &[step])?];
    for _ in 0..replays {
        apart.replay(device)?;
        whole.replay(device)?;
    }
    Ok((apart.times(), whole.times().groups.iter().sum()))
}

/// What launches of a description read.
pub(crate) struct Reads<'a> {
    pub(crate) description: &'a Description,
    pub(crate) plans: &'a [RankPlan],
    /// Rows, the last one's position, and bytes of a cache element.
    pub(crate) rows: u64,
    pub(crate) last: u64,
    pub(crate) element: u64,
}

impl Reads<'_> {
    /// A call's name and bytes.
    pub(crate) fn of(&self, stem: &str, call: &Call) -> (String, u64) {
        let (mut weights, mut names, mut types, mut bytes) = (vec![], vec![], BTreeSet::new(), 0);
        call.args.iter().for_each(|slot| weights_of(slot, &mut weights));
        for [rank, op, index] in weights {
            let local = &self.plans[rank].ops[op];
            let weight = &local.weights[index];
            bytes += self.used(&self.description.ops[op], weight.bytes());
            names.push(short(&weight.name));
            if !local.is_vector(index) {
                types.insert(weight.quant.to_string());
            }
        }
        let types = types.into_iter().collect::<Vec<_>>().join("+");
        let parts = [stem.to_owned(), names.join("+"), types];
        let name = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
        (name, bytes + self.cache(stem, call))
    }

    /// Elements of the matrices that a call multiplies with: those of super-blocks apart, behind the others.
    pub(crate) fn elements(&self, call: &Call) -> [u64; 2] {
        let mut weights = vec![];
        call.args.iter().for_each(|slot| weights_of(slot, &mut weights));
        let of = |[rank, op, index]: [usize; 3]| {
            let (op, local) = (&self.description.ops[op], &self.plans[rank].ops[op]);
            let multiplied = op.kind != Kind::Embed && !local.is_vector(index);
            let weight = &local.weights[index];
            let elements = if multiplied { cost::share(op, weight.params()) } else { 0 };
            (usize::from(weight.quant.block_len() > 32), elements)
        };
        weights.into_iter().map(of).fold([0; 2], |mut all, (kind, elements)| {
            all[kind] += elements;
            all
        })
    }

    /// Bytes of the cache that a kernel reads. The first cache slot that it is given tells the op.
    fn cache(&self, stem: &str, call: &Call) -> u64 {
        let cache =
            |slot: &Slot| if let Slot::Cache { rank, slot } = slot { Some((*rank, *slot)) } else { None };
        let Some((rank, slot)) = call.args.iter().find_map(cache) else { return 0 };
        let reads = |op: &LocalOp| match (&op.kind, stem) {
            (Kind::AttendGqa { cache, .. }, "attend" | "attend_tiles") => cache[0] == slot,
            (Kind::AttendMla { cache, .. }, "attend" | "attend_tiles")
            | (Kind::Index { cache, .. }, "index" | "index_tiles") => *cache == slot,
            _ => false,
        };
        let ops = self.description.ops.iter().zip(&self.plans[rank].ops);
        let found = ops.filter(|(_, local)| reads(local));
        self.rows * found.map(|(op, local)| Cost::of(op, local, self.last, self.element).cache).sum::<u64>()
    }

    /// Of a whole weight, what all rows use together if each uses a part that has nothing to do with the others'.
    fn used(&self, op: &Op, whole: u64) -> u64 {
        let unused = 1.0 - cost::share(op, whole) as f64 / whole.max(1) as f64;
        (whole as f64 * (1.0 - unused.powf(self.rows as f64))) as u64
    }
}

/// The weights among a call's arguments, each once: rank, op, and which of the op's.
fn weights_of(slot: &Slot, found: &mut Vec<[usize; 3]>) {
    match slot {
        Slot::Weight { rank, op, index } if !found.contains(&[*rank, *op, *index]) => {
            found.push([*rank, *op, *index]);
        }
        Slot::List(slots) => slots.iter().for_each(|slot| weights_of(slot, found)),
        _ => {}
    }
}

/// A tensor's name without its layer: `attn_output` of `blk.3.attn_output.weight`.
fn short(name: &str) -> &str {
    let inner = name.strip_prefix("blk.").and_then(|rest| Some(rest.split_once('.')?.1)).unwrap_or(name);
    inner.strip_suffix(".weight").unwrap_or(inner)
}
