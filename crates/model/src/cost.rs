//! What an op costs for one token: bytes read and operations done, by component of the model.

use crate::op::*;
use crate::plan::{LocalOp, LocalWeight, RankPlan};
use std::collections::BTreeMap;

/// Parts of a model that people ask about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Component {
    /// Rows of token embeddings.
    Embedding,
    /// Norm weights, those of the indexer aside.
    Norms,
    /// Projections of attention, and its cache.
    Attention,
    /// The sparse-attention indexer, and its cache.
    Indexer,
    /// Router and selection bias.
    Router,
    /// Routed experts.
    Experts,
    /// Shared experts.
    Shared,
    /// Feed-forwards of layers without experts.
    Dense,
    /// Rows of the vocabulary behind the logits.
    Head,
    /// The next-token layer's own projection; where memory is counted, all that only that layer reads.
    Draft,
}

impl Component {
    /// All, in the order of tables.
    pub const ALL: [Component; 10] = [
        Component::Embedding,
        Component::Norms,
        Component::Attention,
        Component::Indexer,
        Component::Router,
        Component::Experts,
        Component::Shared,
        Component::Dense,
        Component::Head,
        Component::Draft,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Component::Embedding => "embedding",
            Component::Norms => "norms",
            Component::Attention => "attention",
            Component::Indexer => "indexer",
            Component::Router => "router",
            Component::Experts => "experts",
            Component::Shared => "shared",
            Component::Dense => "dense",
            Component::Head => "head",
            Component::Draft => "draft",
        }
    }

    /// Where an op belongs: by what it does, or by the tensors it reads.
    pub fn of(op: &LocalOp) -> Component {
        let reads = |part: &str| op.weights.iter().any(|w| w.name.contains(part));
        match op.kind {
            _ if reads(".indexer.") => Component::Indexer,
            Kind::Index { .. } => Component::Indexer,
            Kind::Embed => Component::Embedding,
            Kind::RmsNorm { .. } | Kind::LayerNorm { .. } => Component::Norms,
            Kind::Route(_) => Component::Router,
            Kind::Experts { .. } => Component::Experts,
            Kind::Logits => Component::Head,
            _ if reads("_shexp.") => Component::Shared,
            _ if reads(".ffn_") => Component::Dense,
            _ if reads(".nextn.") => Component::Draft,
            _ => Component::Attention,
        }
    }
}

/// What one token costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes of weights read.
    pub weights: u64,
    /// Weights that take part.
    pub params: u64,
    /// Bytes of cache rows read.
    pub cache: u64,
    /// Multiplications and additions with weights and cache rows.
    pub operations: u64,
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        self.weights += other.weights;
        self.params += other.params;
        self.cache += other.cache;
        self.operations += other.operations;
    }
}

impl Cost {
    /// Of one op on one rank, for a token at `position` and cache elements of `element` bytes. Of a stack of experts
    /// the share that a token uses is read; where whole experts are dealt, that is what a rank reads on average.
    pub fn of(op: &Op, local: &LocalOp, position: u64, element: u64) -> Cost {
        let sum = |f: fn(&LocalWeight) -> u64| local.weights.iter().map(|w| share(op, f(w))).sum::<u64>();
        let params = sum(LocalWeight::params);
        let (elements, work) = attended(local, position + 1);
        let products = if op.kind == Kind::Embed { 0 } else { params };
        Cost {
            weights: sum(LocalWeight::bytes),
            params,
            cache: elements * element,
            operations: 2 * (products + work),
        }
    }
}

/// Of a whole weight of an op, in whatever it is counted, what a token uses.
pub fn share(op: &Op, whole: u64) -> u64 {
    match (&op.kind, &op.weights[..]) {
        (Kind::Experts { used }, [first, ..]) => whole * *used as u64 / first.copies as u64,
        (Kind::Embed, [all, ..]) => whole / all.rows as u64,
        _ => whole,
    }
}

/// Cache elements that an attention or index op reads at `rows` cached tokens, and its multiplications with them.
fn attended(op: &LocalOp, rows: u64) -> (u64, u64) {
    let width = |i: usize| op.inputs[i].width as u64;
    match op.kind {
        Kind::AttendGqa { key, value, .. } => {
            let heads = op.inputs[0].width / key;
            (rows * (width(1) + width(2)), rows * (heads * (key + value)) as u64)
        }
        Kind::AttendMla { latent, rope, .. } => {
            let seen = op.inputs.get(4).map_or(rows, |pick| rows.min(pick.width as u64));
            let heads = op.inputs[0].width / latent;
            (seen * (latent + rope) as u64, seen * (heads * (2 * latent + rope)) as u64)
        }
        Kind::Index { width, heads, .. } => (rows * width as u64, rows * (heads * width) as u64),
        _ => (0, 0),
    }
}

/// What a token costs on one rank, by component.
pub fn by_component(d: &Description, p: &RankPlan, position: u64, element: u64) -> BTreeMap<Component, Cost> {
    let mut all: BTreeMap<Component, Cost> = BTreeMap::new();
    for (op, local) in d.ops.iter().zip(&p.ops) {
        *all.entry(Component::of(local)).or_default() += Cost::of(op, local, position, element);
    }
    all
}

/// The sum over components.
pub fn total(parts: &BTreeMap<Component, Cost>) -> Cost {
    parts.values().fold(Cost::default(), |mut all, c| {
        all += *c;
        all
    })
}
