//! The vocabulary: every step a model may take, the weights it reads, and how these are cut over ranks.
//!
//! Sizes here are those of the whole model; [`crate::plan`] alone turns them into sizes of a rank.

use std::sync::Arc;

/// What is dealt out over the ranks: heads, features, experts, vocabulary rows. Two things cut by one deal are
/// cut alike, because they hold the same deal. Index into [`Description::deals`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Deal(pub(crate) usize);

/// The units of a deal and how they may be shared out.
#[derive(Clone, Debug, PartialEq)]
pub struct DealInfo {
    /// What the units are, in plural: `heads`, `ffn`, `experts`, `vocab`.
    pub name: &'static str,
    /// The layer, or none for the whole model.
    pub layer: Option<usize>,
    /// How many there are.
    pub units: usize,
    /// Units that are better kept together where there are enough (query heads of one KV head).
    pub group: usize,
    /// May there be fewer units than ranks? Heads: no. Features: yes; a rank without any adds a zero.
    pub idle: bool,
    /// For features of experts: how many experts could be dealt instead (whole experts on ranks), and how many
    /// of them a token uses.
    pub experts: Option<(usize, usize)>,
}

/// How a weight is cut over the ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cut {
    /// Every rank holds it.
    Whole,
    /// Rows (outputs) are dealt: `per` rows for each `group` units.
    Rows {
        /// What is dealt.
        deal: Deal,
        /// Rows for each group of units.
        per: usize,
        /// Units that share these rows (query heads of one KV head); 1 otherwise.
        group: usize,
    },
    /// Columns (inputs) are dealt: `per` columns a unit. The product is a summand.
    Cols {
        /// What is dealt.
        deal: Deal,
        /// Columns a unit.
        per: usize,
    },
    /// The small matrices of a stack are dealt, one a unit.
    Copies(Deal),
}

/// A weight of the whole model: `copies` matrices of `rows` x `cols`, which may be a part of a larger file tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Weight {
    /// GGUF tensor name.
    pub name: String,
    /// The dimensions the file's tensor must have, in ggml order (row length first).
    pub ne: Vec<u64>,
    /// How many matrices (experts, heads); 1 for a plain matrix or vector.
    pub copies: usize,
    /// Outputs of one matrix.
    pub rows: usize,
    /// Inputs; the row length in the file.
    pub cols: usize,
    /// Rows that one copy has in the file; more than `rows` where the file fuses several weights.
    pub file_rows: usize,
    /// The first of these rows that is ours.
    pub skip: usize,
    /// How it is cut.
    pub cut: Cut,
}

impl Weight {
    /// Number of weights.
    pub fn params(&self) -> u64 {
        self.copies as u64 * self.rows as u64 * self.cols as u64
    }
}

/// Which elements of a head rotate together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeStyle {
    /// Neighbours (2i, 2i+1); ggml's NORM.
    Interleaved,
    /// Element i with i + half of the rotated width; ggml's NEOX.
    HalfSplit,
}

/// Rotary position embedding of a head's first `rotated` elements. The angle of pair i at position p is
/// `p as f32 * freqs[i]` (divided by the factor tensor's element i, where the op has that weight).
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Which elements are pairs.
    pub style: RopeStyle,
    /// How many elements of a head rotate (even); the rest pass.
    pub rotated: usize,
    /// One frequency a pair, from f64, rounded once.
    pub freqs: Arc<[f32]>,
    /// Factor on cosine and sine (YaRN's attention factor; 1 for MLA models).
    pub magnitude: f32,
}

/// How router logits become probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gating {
    /// Over all experts.
    Softmax,
    /// Each for itself.
    Sigmoid,
}

/// How a group of experts is scored when routing is limited to groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupScore {
    /// Its best expert (DeepSeek-V2).
    Max,
    /// The sum of its best two (DeepSeek-V3).
    BestTwo,
}

/// How experts are chosen and weighed.
#[derive(Clone, Debug, PartialEq)]
pub struct Routing {
    /// How many there are.
    pub experts: usize,
    /// How many a token uses.
    pub used: usize,
    /// Logits to probabilities.
    pub gating: Gating,
    /// Divide the chosen weights by their sum (at least 2^-14)?
    pub normalize: bool,
    /// Factor on the weights.
    pub scale: f32,
    /// Groups, groups kept, and how a group is scored; none = no limit.
    pub groups: Option<(usize, usize, GroupScore)>,
}

/// What an op computes. Widths are a head's or a row's, never a rank's share of the model: those are in the places
/// of a [`crate::plan::LocalOp`]. All values are rows of f32, one row a token of the step.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Token id to its row of weight 0 (`[vocab, width]`).
    Embed,
    /// The hidden rows that came with the step: drafts and later stages begin with them.
    Hidden,
    /// Input rows one behind the other: `[a ; b]`.
    Concat,
    /// Of each run of `width`: `x / sqrt(mean(x^2) + eps) * w`.
    RmsNorm {
        /// Elements normed together: the row, or one head.
        width: usize,
        /// Added to the mean square.
        eps: f32,
    },
    /// `(x - mean) / sqrt(var + eps) * w + b`, over the row; weights are w and b.
    LayerNorm {
        /// Added to the variance.
        eps: f32,
    },
    /// N weights over one value give N values: output i is `W_i x (+ b_i)`. Biases follow the N matrices in the
    /// weight list, in output order; `biased` says which outputs have one.
    Linear {
        /// For each output: has it a bias?
        biased: Vec<bool>,
    },
    /// One small matrix a head: head h of the output is `W_h x_h`, or `W_h^T x_h` when transposed.
    PerHead {
        /// The file holds the matrix the other way round (legacy `attn_kv_b`).
        transposed: bool,
    },
    /// Elements `start..start+len` of each run of `unit`.
    Part {
        /// Length of a run in the input.
        unit: usize,
        /// First element taken.
        start: usize,
        /// How many are taken.
        len: usize,
    },
    /// Rotate each head of `width`. Weight 0, if any, holds one divisor a pair.
    Rotate {
        /// Head size.
        width: usize,
        /// How.
        rope: Rope,
    },
    /// Write K and V of each row to the cache, then causal grouped-query attention: inputs q, k, v.
    AttendGqa {
        /// Query heads of one KV head.
        group: usize,
        /// Size of a query and key head.
        key: usize,
        /// Size of a value head.
        value: usize,
        /// Factor on the scores.
        scale: f32,
        /// Cache slots of K and V.
        cache: [usize; 2],
    },
    /// Write `[latent ; rope key]` of each row to the cache, then absorbed latent attention: inputs q in latent
    /// space, rotated q, latent, rotated key and, if there is a fifth, the positions to attend to
    /// ([`Kind::Index`]'s output). The result is in latent space.
    AttendMla {
        /// Latent size.
        latent: usize,
        /// Size of the rotated part.
        rope: usize,
        /// Factor on the scores.
        scale: f32,
        /// Cache slot.
        cache: usize,
    },
    /// Write each row's index key to the cache, then choose the `keep` best positions (DSA lightning indexer):
    /// inputs are queries (`heads` x `width`), key, head weights. Score of position t: sum over heads of
    /// `g_h / sqrt(heads * width) * relu(q_h . k_t)`; larger first, then lower position. Output: chosen positions,
    /// ascending, as numbers, padded with -1. Up to `keep` cached positions all are chosen.
    Index {
        /// Index heads.
        heads: usize,
        /// Their size.
        width: usize,
        /// How many positions are kept.
        keep: usize,
        /// Cache slot of the index keys.
        cache: usize,
    },
    /// `silu(a) * b`.
    SwiGlu,
    /// Weight 0 is the router; weight 1, if any, the selection bias. Output: the `used` expert ids, ascending,
    /// then their weights in the same order.
    Route(Routing),
    /// Inputs x and the routing; weights gate, up, down (stacks). `sum_e w_e * down_e(silu(gate_e x) * (up_e x))`
    /// over the chosen experts, in the order given. A rank without a chosen expert adds zero.
    Experts {
        /// Experts a token uses.
        used: usize,
    },
    /// Sum of two values.
    Add,
    /// Add the ranks' summands, in rank order: the only collective of a layer.
    Sum,
    /// Rows of the vocabulary times x; the rank's slice of the logits.
    Logits,
}

impl Kind {
    /// The cache slots that are written and read.
    pub(crate) fn caches_mut(&mut self) -> &mut [usize] {
        match self {
            Kind::AttendGqa { cache, .. } => cache,
            Kind::AttendMla { cache, .. } | Kind::Index { cache, .. } => std::slice::from_mut(cache),
            _ => &mut [],
        }
    }

    /// The variant's name, for reports and probes.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Embed => "Embed",
            Kind::Hidden => "Hidden",
            Kind::Concat => "Concat",
            Kind::RmsNorm { .. } => "RmsNorm",
            Kind::LayerNorm { .. } => "LayerNorm",
            Kind::Linear { .. } => "Linear",
            Kind::PerHead { .. } => "PerHead",
            Kind::Part { .. } => "Part",
            Kind::Rotate { .. } => "Rotate",
            Kind::AttendGqa { .. } => "AttendGqa",
            Kind::AttendMla { .. } => "AttendMla",
            Kind::Index { .. } => "Index",
            Kind::SwiGlu => "SwiGlu",
            Kind::Route(_) => "Route",
            Kind::Experts { .. } => "Experts",
            Kind::Add => "Add",
            Kind::Sum => "Sum",
            Kind::Logits => "Logits",
        }
    }
}

/// Where a value lives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lay {
    /// Every rank holds it whole.
    Full,
    /// Each rank holds its units: `per` elements for each `group` units of `deal`.
    Split {
        /// What is dealt.
        deal: Deal,
        /// Elements for each group of units.
        per: usize,
        /// Units that share these elements.
        group: usize,
    },
    /// Each rank holds a summand.
    Partial,
}

/// A named value of the whole model.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueInfo {
    /// Its name in the field's vocabulary (`attn_norm`, `ffn_inp`, `l_out`).
    pub name: String,
    /// The layer it belongs to.
    pub layer: Option<usize>,
    /// Elements of a row, over all ranks.
    pub width: usize,
    /// Where it lives.
    pub lay: Lay,
}

impl ValueInfo {
    /// `blk.N.name`, or the bare name.
    pub fn path(&self) -> String {
        match self.layer {
            Some(l) => format!("blk.{l}.{}", self.name),
            None => self.name.clone(),
        }
    }
}

/// What each token leaves behind in a layer: one row of `width` elements.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheSlot {
    /// `k`, `v`, `latent`, `index_key`.
    pub name: &'static str,
    /// The layer.
    pub layer: usize,
    /// Elements a token, over all ranks (a replicated slot counts once).
    pub width: usize,
    /// How it is dealt: Full (replicated) or Split.
    pub lay: Lay,
}

/// One step of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Op {
    /// What is computed.
    pub kind: Kind,
    /// Values read, as indices into [`Description::values`].
    pub inputs: Vec<usize>,
    /// Weights read.
    pub weights: Vec<Weight>,
    /// Values written.
    pub outputs: Vec<usize>,
    /// The layer, for reports.
    pub layer: Option<usize>,
}

/// A model, whole: the straight list of its steps. No position, length, batch size, rank or device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Description {
    /// The steps, in order.
    pub ops: Vec<Op>,
    /// Every value.
    pub values: Vec<ValueInfo>,
    /// Every deal.
    pub deals: Vec<DealInfo>,
    /// What a token leaves behind.
    pub caches: Vec<CacheSlot>,
    /// The value that is the hidden state: the stream after the final norm, which a draft description takes; of a stage
    /// that is not the last, what the next one takes.
    pub hidden: Option<usize>,
}

impl Description {
    /// Weights that every op reads, with repeats where two ops share one (tied embeddings).
    pub fn weights(&self) -> impl Iterator<Item = &Weight> {
        self.ops.iter().flat_map(|o| &o.weights)
    }

    /// Sums over ranks in one step.
    pub fn sums(&self) -> usize {
        self.ops.iter().filter(|o| o.kind == Kind::Sum).count()
    }
}
