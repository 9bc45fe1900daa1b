//! The description cut for one rank: local shapes, weight byte ranges, value slots, cache widths.
//!
//! Pure functions of the description and the file's tensor list. Nothing is read but names, shapes and types.

mod audit;
mod deal;
mod slots;
mod stages;

use crate::op::*;
use crate::{Error, Result};
use shardwright_gguf::QuantType;
use shardwright_gguf::TensorInfo;
use std::collections::BTreeMap;
use std::ops::Range;

use deal::Grain;

pub use audit::audit;
pub use deal::{Share, Shares, legal_ranks};
pub use stages::stages;

/// Finds a tensor by name.
pub type Find<'a> = &'a dyn Fn(&str) -> Option<&'a TensorInfo>;

/// What one rank holds and does. The list of ops is the same on each rank.
#[derive(Clone, Debug, PartialEq)]
pub struct RankPlan {
    /// This rank.
    pub rank: usize,
    /// Ranks in all.
    pub ranks: usize,
    /// The steps, in order.
    pub ops: Vec<LocalOp>,
    /// Width of each value slot, in elements a row. Values share slots when their lives do not overlap.
    pub slots: Vec<usize>,
    /// Cache rows, one slot for each of the description's.
    pub caches: Vec<LocalCache>,
    /// Where the hidden state lies after the last op.
    pub hidden: Option<Place>,
}

/// A cache slot on a rank.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalCache {
    /// `k`, `v`, `latent`, `index_key`.
    pub name: &'static str,
    /// The layer.
    pub layer: usize,
    /// Elements a token on this rank.
    pub width: usize,
}

/// Where a value lies on a rank, and which part of the whole value it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index into the description's values.
    pub value: usize,
    /// Index into [`RankPlan::slots`].
    pub slot: usize,
    /// The first element of the whole row that this rank holds.
    pub start: usize,
    /// Elements of a row here.
    pub width: usize,
}

/// An op with the sizes and weights of one rank.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalOp {
    /// What is computed; its numbers are the same on each rank.
    pub kind: Kind,
    /// Values read.
    pub inputs: Vec<Place>,
    /// Weights read.
    pub weights: Vec<LocalWeight>,
    /// Values written.
    pub outputs: Vec<Place>,
    /// The layer, for reports.
    pub layer: Option<usize>,
}

impl LocalOp {
    /// Is weight `i` one number an element, and no matrix?
    pub fn is_vector(&self, i: usize) -> bool {
        match self.kind {
            Kind::RmsNorm { .. } | Kind::LayerNorm { .. } | Kind::Rotate { .. } => true,
            Kind::Linear { .. } => i >= self.outputs.len(),
            Kind::Route(_) => i == 1,
            _ => false,
        }
    }
}

/// A rank's part of a weight, as ranges of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalWeight {
    /// Tensor name.
    pub name: String,
    /// Block format.
    pub quant: QuantType,
    /// Which file of the set.
    pub file: usize,
    /// Where the tensor starts in it.
    pub offset: u64,
    /// Matrices of the stack that are here.
    pub copies: Range<usize>,
    /// Rows of one matrix in the file.
    pub file_rows: usize,
    /// Bytes of a whole row in the file.
    pub row_bytes: usize,
    /// Rows (of those `file_rows`) that are here.
    pub rows: Range<usize>,
    /// Columns that are here; whole blocks.
    pub cols: Range<usize>,
}

impl LocalWeight {
    /// Bytes of our columns of a row.
    pub fn bytes_a_row(&self) -> usize {
        self.quant.row_bytes(self.cols.len()).expect("cuts are made at whole blocks")
    }

    /// Where row `row` (counted from our first) of matrix `copy` (counted from our first) lies in its file.
    pub fn row(&self, copy: usize, row: usize) -> Range<u64> {
        debug_assert!(copy < self.copies.len() && row < self.rows.len());
        let row = (self.copies.start + copy) * self.file_rows + self.rows.start + row;
        let skip = self.quant.row_bytes(self.cols.start).expect("cuts are made at whole blocks");
        let start = self.offset + row as u64 * self.row_bytes as u64 + skip as u64;
        start..start + self.bytes_a_row() as u64
    }

    /// Bytes held by the rank.
    pub fn bytes(&self) -> u64 {
        (self.copies.len() * self.rows.len()) as u64 * self.bytes_a_row() as u64
    }

    /// Weights held by the rank.
    pub fn params(&self) -> u64 {
        (self.copies.len() * self.rows.len()) as u64 * self.cols.len() as u64
    }
}

/// Cut a description for `ranks` ranks.
///
/// # Errors
/// If a tensor is missing, has another shape or an unusable type, or the model cannot be cut that way: the error
/// then lists the numbers of ranks that work.
pub fn plan(d: &Description, find: Find<'_>, ranks: usize) -> Result<Vec<RankPlan>> {
    Ok(Cuts::new(d, find)?.over(ranks)?.collect())
}

/// A description and its tensors, looked at once and cut for any number of ranks.
pub(crate) struct Cuts<'a> {
    d: &'a Description,
    found: Found<'a>,
    grains: Vec<Grain>,
}

impl<'a> Cuts<'a> {
    pub(crate) fn new<'t: 'a>(d: &'a Description, find: Find<'t>) -> Result<Cuts<'a>> {
        let found = check(d, find)?;
        let grains = deal::grains(d, &found);
        Ok(Cuts { d, found, grains })
    }

    /// The numbers of ranks that work.
    pub(crate) fn legal(&self) -> impl Iterator<Item = usize> {
        deal::legal(self.d, &self.grains)
    }

    /// The plans of so many ranks, each made when its turn comes.
    pub(crate) fn over(&self, ranks: usize) -> Result<impl Iterator<Item = RankPlan>> {
        let shares = Shares::new(self.d, &self.grains, ranks)?;
        let of = move |rank| Cutter { d: self.d, found: &self.found, shares: &shares, rank }.plan();
        Ok((0..ranks).map(of))
    }
}

/// Every weight's tensor, with its shape and type proven right.
type Found<'a> = BTreeMap<&'a str, &'a TensorInfo>;

fn check<'a, 't: 'a>(d: &'a Description, find: Find<'t>) -> Result<Found<'a>> {
    let mut found = Found::new();
    let mut unusable: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    for w in d.weights() {
        let Some(t) = find(&w.name) else {
            let why = match w.name.split_once(".nextn.") {
                None => format!("the file's numbers demand it with shape {:?}", w.ne),
                Some(_) => "the next-token layer needs it".into(),
            };
            return Err(Error::Missing { name: w.name.clone(), why });
        };
        check_shape(w, t)?;
        // a bias dealt with its rows is cut between any two elements: it cannot be stored in blocks
        if !t.quant.is_weight() || t.quant.row_bytes(w.cols).is_none() {
            unusable.entry(t.quant.name()).or_insert((0, &w.name)).0 += 1;
        }
        found.insert(&w.name, t);
    }
    if unusable.is_empty() {
        return Ok(found);
    }
    let list = unusable.iter().map(|(t, (n, name))| format!("{t} ({n} tensors, such as `{name}`)"));
    Err(Error::Types(list.collect::<Vec<_>>().join(", ")))
}

/// The one check that lets kernels trust the numbers: shapes as the hyperparameters demand.
fn check_shape(w: &Weight, t: &TensorInfo) -> Result<()> {
    let trim = |ne: &[u64]| {
        let used = ne.iter().rposition(|n| *n != 1).map_or(1, |i| i + 1);
        ne[..used].to_vec()
    };
    let (found, wanted) = (trim(&t.ne), trim(&w.ne));
    match found == wanted {
        true => Ok(()),
        false => Err(Error::Shape { name: w.name.clone(), found, wanted }),
    }
}

struct Cutter<'a> {
    d: &'a Description,
    found: &'a Found<'a>,
    shares: &'a Shares,
    rank: usize,
}

impl Cutter<'_> {
    fn plan(&self) -> RankPlan {
        let places: Vec<(usize, usize)> = self.d.values.iter().map(|v| self.part(v.lay, v.width)).collect();
        let (slot_of, slots) = slots::assign(self.d, &places.iter().map(|p| p.1).collect::<Vec<_>>());
        let place =
            |v: &usize| Place { value: *v, slot: slot_of[*v], start: places[*v].0, width: places[*v].1 };
        let ops = self.d.ops.iter().map(|o| LocalOp {
            kind: self.kind(o),
            inputs: o.inputs.iter().map(place).collect(),
            weights: self.own(o).map(|w| self.weight(w)).collect(),
            outputs: o.outputs.iter().map(place).collect(),
            layer: o.layer,
        });
        let caches = self.d.caches.iter().map(|c| LocalCache {
            name: c.name,
            layer: c.layer,
            width: self.part(c.lay, c.width).1,
        });
        RankPlan {
            rank: self.rank,
            ranks: self.shares.ranks(),
            ops: ops.collect(),
            caches: caches.collect(),
            hidden: self.d.hidden.as_ref().map(place),
            slots,
        }
    }

    /// The bias of a summand is added once: by rank 0.
    fn unbiased(&self, o: &Op) -> bool {
        self.rank > 0
            && matches!(o.kind, Kind::Linear { .. })
            && self.d.values[o.outputs[0]].lay == Lay::Partial
    }

    fn kind(&self, o: &Op) -> Kind {
        match &o.kind {
            Kind::Linear { biased } if self.unbiased(o) => Kind::Linear { biased: vec![false; biased.len()] },
            other => other.clone(),
        }
    }

    fn own<'o>(&self, o: &'o Op) -> impl Iterator<Item = &'o Weight> + use<'o> {
        let n = if self.unbiased(o) { o.outputs.len() } else { o.weights.len() };
        o.weights[..n].iter()
    }

    /// First element and number of elements of a value here.
    fn part(&self, lay: Lay, width: usize) -> (usize, usize) {
        match lay {
            Lay::Full | Lay::Partial => (0, width),
            Lay::Split { deal, per, group } => {
                let r = self.shares.groups(deal, self.rank, group);
                (r.start * per, r.len() * per)
            }
        }
    }

    fn weight(&self, w: &Weight) -> LocalWeight {
        let t = self.found[w.name.as_str()];
        let experts = |deal| self.shares.experts(deal, self.rank);
        let (mut copies, mut rows, mut cols) = (0..w.copies, 0..w.rows, 0..w.cols);
        match w.cut {
            Cut::Whole => {}
            Cut::Rows { deal, .. } | Cut::Cols { deal, .. } if experts(deal).is_some() => {
                copies = experts(deal).expect("just seen");
            }
            Cut::Rows { deal, per, group } => {
                let r = self.shares.groups(deal, self.rank, group);
                rows = r.start * per..r.end * per;
            }
            Cut::Cols { deal, per } => {
                let r = self.shares.groups(deal, self.rank, 1);
                cols = r.start * per..r.end * per;
            }
            Cut::Copies(deal) => copies = self.shares.groups(deal, self.rank, 1),
        }
        LocalWeight {
            name: w.name.clone(),
            quant: t.quant,
            file: t.file,
            offset: t.offset,
            copies,
            file_rows: w.file_rows,
            row_bytes: t.quant.row_bytes(w.cols).expect("a checked shape has whole blocks"),
            rows: w.skip + rows.start..w.skip + rows.end,
            cols,
        }
    }
}
