//! Writes a description down, op by op. A value's type says where it lives, so a sum over ranks can be neither
//! forgotten nor doubled, and the parts of a fused projection cannot come in another order than they are named.
//!
//! A norm over a summand: the sum over ranks was forgotten.
//! ```compile_fail
//! # use shardwright_model::{build::Builder, op::*};
//! # let mut m = Builder::new(64, 1e-5); let ffn = m.deal("ffn", 256, 1);
//! # let x = m.hidden();
//! let [g] = m.rows(x, ffn, [("ffn_gate", 1)]);
//! let y = m.cols(g, ("ffn_down", 64));
//! m.rms_norm(y, "ffn_norm");
//! ```
//! A sum of what is whole already: it would count every rank's copy.
//! ```compile_fail
//! # use shardwright_model::{build::Builder, op::*};
//! # let mut m = Builder::new(64, 1e-5);
//! let x = m.hidden();
//! m.sum(x, "x");
//! ```
//! A column-cut weight over a whole value.
//! ```compile_fail
//! # use shardwright_model::{build::Builder, op::*};
//! # let mut m = Builder::new(64, 1e-5);
//! let x = m.hidden();
//! m.cols(x, ("ffn_down", 64));
//! ```
//! Three weights, two names: a fused projection's outputs cannot be miscounted.
//! ```compile_fail
//! # use shardwright_model::{build::Builder, op::*};
//! # let mut m = Builder::new(64, 1e-5);
//! let x = m.hidden();
//! let [a, b] = m.whole(x, [("a", 1), ("b", 1), ("c", 1)]);
//! ```
//! Their right twin:
//! ```
//! # use shardwright_model::{build::Builder, op::*};
//! # let mut m = Builder::new(64, 1e-5); let ffn = m.deal("ffn", 256, 1);
//! let x = m.hidden();
//! let [a, _b] = m.whole(x, [("a", 64), ("b", 1)]);
//! m.rms_norm(a, "n");
//! let [g] = m.rows(x, ffn, [("ffn_gate", 1)]);
//! let y = m.cols(g, ("ffn_down", 64));
//! let y = m.sum(y, "ffn_out");
//! m.rms_norm(y, "ffn_norm");
//! ```

use crate::op::*;
use std::marker::PhantomData;

/// Every rank holds the whole value.
#[derive(Debug)]
pub enum Full {}
/// Each rank holds its units.
#[derive(Debug)]
pub enum Split {}
/// Each rank holds a summand.
#[derive(Debug)]
pub enum Partial {}

/// A value under construction; `L` says where it lives.
#[derive(Debug)]
pub struct Val<L> {
    id: usize,
    /// Elements of a row over all ranks.
    pub width: usize,
    lay: Lay,
    place: PhantomData<L>,
}

impl<L> Clone for Val<L> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<L> Copy for Val<L> {}

impl<L> Val<L> {
    fn deal(&self) -> (Deal, usize, usize) {
        match self.lay {
            Lay::Split { deal, per, group } => (deal, per, group),
            _ => unreachable!("only split values carry a deal"),
        }
    }
}

/// Rows that a weight takes out of a larger file tensor: `(tensor, rows of one copy in it, first row)`.
pub type View<'a> = (&'a str, usize, usize);

/// Writes one description.
#[derive(Debug)]
pub struct Builder {
    out: Description,
    layer: Option<usize>,
    width: usize,
    eps: f32,
}

impl Builder {
    /// A description of a model whose stream has `width` elements and whose RMS norms add `eps`.
    pub fn new(width: usize, eps: f32) -> Builder {
        Builder { out: Description::default(), layer: None, width, eps }
    }

    /// The ops that follow belong to layer `l`.
    pub fn layer(&mut self, l: usize) {
        self.layer = Some(l);
    }

    /// The ops that follow belong to no layer.
    pub fn tail(&mut self) {
        self.layer = None;
    }

    /// The description.
    pub fn finish(self) -> Description {
        self.out
    }

    /// A deal of `units`, better kept together in runs of `group`, of which every rank needs some.
    pub fn deal_all(&mut self, name: &'static str, units: usize, group: usize) -> Deal {
        self.push_deal(DealInfo { name, layer: self.layer, units, group, idle: false, experts: None })
    }

    /// A deal of `units` of which a rank may get none.
    pub fn deal(&mut self, name: &'static str, units: usize, group: usize) -> Deal {
        self.push_deal(DealInfo { name, layer: self.layer, units, group, idle: true, experts: None })
    }

    fn push_deal(&mut self, d: DealInfo) -> Deal {
        self.out.deals.push(d);
        Deal(self.out.deals.len() - 1)
    }

    fn val<L>(&mut self, name: &str, width: usize, lay: Lay) -> Val<L> {
        let id = self.out.values.len();
        self.out.values.push(ValueInfo { name: name.into(), layer: self.layer, width, lay });
        Val { id, width, lay, place: PhantomData }
    }

    fn push(&mut self, kind: Kind, inputs: Vec<usize>, weights: Vec<Weight>, outputs: Vec<usize>) {
        self.out.ops.push(Op { kind, inputs, weights, outputs, layer: self.layer });
    }

    fn path(&self, name: &str, suffix: &str) -> String {
        match self.layer {
            Some(l) => format!("blk.{l}.{name}.{suffix}"),
            None => format!("{name}.{suffix}"),
        }
    }

    fn matrix(&self, name: &str, rows: usize, cols: usize, cut: Cut) -> Weight {
        let ne = vec![cols as u64, rows as u64];
        Weight { name: self.path(name, "weight"), ne, copies: 1, rows, cols, file_rows: rows, skip: 0, cut }
    }

    fn stack(&self, name: &str, copies: usize, rows: usize, cols: usize, cut: Cut) -> Weight {
        let mut w = self.matrix(name, rows, cols, cut);
        w.ne.push(copies as u64);
        Weight { copies, ..w }
    }

    fn vector(&self, name: &str, suffix: &str, len: usize) -> Weight {
        let w = self.matrix(name, 1, len, Cut::Whole);
        Weight { name: self.path(name, suffix), ne: vec![len as u64], ..w }
    }

    /// One entry a row of a projection: a vector cut like its rows, fused where they are.
    fn bias(&self, name: &str, rows: usize, cut: Cut, kind: Bias, view: Option<View<'_>>) -> Option<Weight> {
        let view = match kind {
            Bias::None => return None,
            Bias::Own => None,
            Bias::Fused => view,
        };
        let (tensor, file_rows, skip) = view.unwrap_or((name, rows, 0));
        let name = self.path(tensor, "bias");
        Some(Weight { name, ne: vec![file_rows as u64], copies: 1, rows, cols: 1, file_rows, skip, cut })
    }

    /// A value made from others without weights.
    fn map<A, B>(&mut self, kind: Kind, name: &str, inputs: &[usize], like: Val<A>, width: usize) -> Val<B> {
        let lay = match like.lay {
            Lay::Split { deal, per, group } => Lay::Split { deal, per: per * width / like.width, group },
            other => other,
        };
        let v = self.val(name, width, lay);
        self.push(kind, inputs.into(), vec![], vec![v.id]);
        v
    }

    /// The hidden state that came with the step; draft descriptions start from it.
    pub fn hidden(&mut self) -> Val<Full> {
        let v = self.val("hidden", self.width, Lay::Full);
        self.push(Kind::Hidden, vec![], vec![], vec![v.id]);
        v
    }

    /// Rows of the vocabulary: whole on each rank, or dealt and then summed.
    pub fn embed(&mut self, name: &str, vocab: usize, dealt: bool) -> Val<Full> {
        let deal = dealt.then(|| self.deal("vocab", vocab, 1));
        let cut = deal.map_or(Cut::Whole, |deal| Cut::Rows { deal, per: 1, group: 1 });
        let w = self.matrix(name, vocab, self.width, cut);
        let lay = if dealt { Lay::Partial } else { Lay::Full };
        let v: Val<Full> = self.val("embd", self.width, lay);
        self.push(Kind::Embed, vec![], vec![w], vec![v.id]);
        if !dealt {
            return v;
        }
        let v: Val<Full> = self.val("embd_sum", self.width, Lay::Full);
        self.push(Kind::Sum, vec![v.id - 1], vec![], vec![v.id]);
        v
    }

    /// `[a ; b]`.
    pub fn concat(&mut self, a: Val<Full>, b: Val<Full>) -> Val<Full> {
        self.map(Kind::Concat, "concat", &[a.id, b.id], a, a.width + b.width)
    }

    /// Weights that every rank holds, in the order named.
    pub fn whole<const N: usize>(&mut self, x: Val<Full>, ws: [(&str, usize); N]) -> [Val<Full>; N] {
        let vals = ws.map(|(n, rows)| self.val(n, rows, Lay::Full));
        let weights = ws.map(|(n, rows)| self.matrix(n, rows, x.width, Cut::Whole));
        self.linear(x.id, weights.into(), vec![], vals.map(|v: Val<Full>| v.id).into());
        vals
    }

    /// Weights whose rows are dealt alike, `per` rows a unit, in the order named.
    pub fn rows<const N: usize>(
        &mut self,
        x: Val<Full>,
        deal: Deal,
        ws: [(&str, usize); N],
    ) -> [Val<Split>; N] {
        self.rows_of(
            x,
            deal,
            ws.map(|(name, per)| Rows { name, per, group: 1, view: None, bias: Bias::None }),
        )
    }

    /// As [`Builder::rows`], with all that a projection's row may have.
    pub fn rows_of<const N: usize>(
        &mut self,
        x: Val<Full>,
        deal: Deal,
        ws: [Rows<'_>; N],
    ) -> [Val<Split>; N] {
        let units = self.out.deals[deal.0].units;
        let all = |r: &Rows<'_>| r.per * units / r.group;
        let vals = ws.map(|r| {
            let lay = Lay::Split { deal, per: r.per, group: r.group };
            self.val(r.name, all(&r), lay)
        });
        let cut = |r: &Rows<'_>| Cut::Rows { deal, per: r.per, group: r.group };
        let weights = ws.iter().map(|r| {
            let w = self.matrix(r.name, all(r), x.width, cut(r));
            self.viewed(w, r.view)
        });
        let weights = weights.collect();
        let biases = ws.iter().map(|r| self.bias(r.name, all(r), cut(r), r.bias, r.view)).collect();
        self.linear(x.id, weights, biases, vals.map(|v| v.id).into());
        vals
    }

    fn viewed(&self, w: Weight, view: Option<View<'_>>) -> Weight {
        let Some((tensor, file_rows, skip)) = view else { return w };
        let mut ne = w.ne;
        ne[1] = file_rows as u64;
        Weight { name: self.path(tensor, "weight"), ne, file_rows, skip, ..w }
    }

    fn linear(
        &mut self,
        x: usize,
        mut weights: Vec<Weight>,
        biases: Vec<Option<Weight>>,
        outputs: Vec<usize>,
    ) {
        let biased = (0..weights.len()).map(|i| biases.get(i).is_some_and(Option::is_some)).collect();
        weights.extend(biases.into_iter().flatten());
        self.push(Kind::Linear { biased }, vec![x], weights, outputs);
    }

    /// A weight whose columns are dealt as its input is.
    pub fn cols(&mut self, x: Val<Split>, (name, rows): (&str, usize)) -> Val<Partial> {
        self.cols_biased(x, name, rows, Bias::None)
    }

    /// The same with a bias, which the plan leaves to rank 0 alone.
    pub fn cols_biased(&mut self, x: Val<Split>, name: &str, rows: usize, bias: Bias) -> Val<Partial> {
        let (deal, per, _) = x.deal();
        let w = self.matrix(name, rows, x.width, Cut::Cols { deal, per });
        let b = self.bias(name, rows, Cut::Whole, bias, None);
        let v = self.val(&format!("{name}_part"), rows, Lay::Partial);
        self.linear(x.id, vec![w], vec![b], vec![v.id]);
        v
    }

    /// A stack of one matrix a head, rows `to`: `[heads][to][from]`.
    pub fn per_head(&mut self, x: Val<Split>, name: &str, to: usize) -> Val<Split> {
        let (deal, per, _) = x.deal();
        let w = self.stack(name, x.width / per, to, per, Cut::Copies(deal));
        self.head_op(x, w, false, name, to)
    }

    /// The same from `len` rows, from `skip` on, of each head's `file_rows` rows of `cols` in one fused matrix; with
    /// `transposed` these rows are the inputs.
    pub fn per_head_fused(
        &mut self,
        x: Val<Split>,
        fused: View<'_>,
        cols: usize,
        len: usize,
        transposed: bool,
    ) -> Val<Split> {
        let (deal, per, _) = x.deal();
        let (name, file_rows, skip) = fused;
        let copies = x.width / per;
        let w = self.stack(name, copies, len, cols, Cut::Copies(deal));
        let w = Weight { ne: vec![cols as u64, (file_rows * copies) as u64], file_rows, skip, ..w };
        let (to, part) = if transposed { (cols, "k") } else { (len, "v") };
        self.head_op(x, w, transposed, &format!("{name}_{part}"), to)
    }

    fn head_op(&mut self, x: Val<Split>, w: Weight, transposed: bool, name: &str, to: usize) -> Val<Split> {
        let (deal, per, group) = x.deal();
        let v = self.val(name, x.width / per * to, Lay::Split { deal, per: to, group });
        self.push(Kind::PerHead { transposed }, vec![x.id], vec![w], vec![v.id]);
        v
    }

    /// RMS norm over the row.
    pub fn rms_norm(&mut self, x: Val<Full>, name: &str) -> Val<Full> {
        self.rms(x, name, name, x.width)
    }

    /// RMS norm of each head, the same weight for all.
    pub fn head_norm(&mut self, x: Val<Split>, name: &str, width: usize) -> Val<Split> {
        self.rms(x, name, name, width)
    }

    fn rms<L>(&mut self, x: Val<L>, weight: &str, name: &str, width: usize) -> Val<L> {
        let w = self.vector(weight, "weight", width);
        let v = self.val(name, x.width, x.lay);
        self.push(Kind::RmsNorm { width, eps: self.eps }, vec![x.id], vec![w], vec![v.id]);
        v
    }

    /// Layer norm over the row, with bias.
    pub fn layer_norm(&mut self, x: Val<Full>, name: &str, eps: f32) -> Val<Full> {
        let ws = vec![self.vector(name, "weight", x.width), self.vector(name, "bias", x.width)];
        let v = self.val(name, x.width, Lay::Full);
        self.push(Kind::LayerNorm { eps }, vec![x.id], ws, vec![v.id]);
        v
    }

    /// Runs of features, in order; of each unit where the value is dealt.
    pub fn parts<L, const N: usize>(&mut self, x: Val<L>, parts: [(&str, usize); N]) -> [Val<L>; N] {
        let unit: usize = parts.iter().map(|p| p.1).sum();
        assert_eq!(x.width % unit, 0, "the parts make up the value");
        let mut start = 0;
        parts.map(|(name, len)| {
            let kind = Kind::Part { unit, start, len };
            start += len;
            self.map(kind, name, &[x.id], x, x.width / unit * len)
        })
    }

    /// Rotate each head of `width`; `factors` names a tensor of divisors of the whole model.
    pub fn rotate<L>(
        &mut self,
        x: Val<L>,
        name: &str,
        width: usize,
        rope: &Rope,
        factors: Option<&str>,
    ) -> Val<L> {
        let divisors = factors
            .map(|n| Weight { name: format!("{n}.weight"), ..self.vector(n, "weight", rope.freqs.len()) });
        let v = self.val(name, x.width, x.lay);
        self.push(
            Kind::Rotate { width, rope: rope.clone() },
            vec![x.id],
            divisors.into_iter().collect(),
            vec![v.id],
        );
        v
    }

    /// `silu(gate) * up`.
    pub fn swiglu(&mut self, gate: Val<Split>, up: Val<Split>) -> Val<Split> {
        self.map(Kind::SwiGlu, "ffn_act", &[gate.id, up.id], gate, gate.width)
    }

    fn cache<L>(&mut self, name: &'static str, v: Val<L>, width: usize) -> usize {
        let layer = self.layer.expect("caches belong to layers");
        self.out.caches.push(CacheSlot { name, layer, width, lay: v.lay });
        self.out.caches.len() - 1
    }

    /// Grouped-query attention over everything cached: q heads of `key`, v heads of `value`.
    pub fn attend_gqa(
        &mut self,
        [q, k, v]: [Val<Split>; 3],
        group: usize,
        key: usize,
        value: usize,
        scale: f32,
    ) -> Val<Split> {
        let cache = [self.cache("k", k, k.width), self.cache("v", v, v.width)];
        let kind = Kind::AttendGqa { group, key, value, scale, cache };
        self.map(kind, "kqv_out", &[q.id, k.id, v.id], q, q.width / key * value)
    }

    /// Latent attention over everything cached, or over the positions of `pick`.
    pub fn attend_mla(
        &mut self,
        q: [Val<Split>; 2],
        kv: [Val<Full>; 2],
        pick: Option<Val<Full>>,
        scale: f32,
    ) -> Val<Split> {
        let [latent, rope] = kv.map(|v| v.width);
        let cache = self.cache("latent", kv[0], latent + rope);
        let mut inputs = vec![q[0].id, q[1].id, kv[0].id, kv[1].id];
        inputs.extend(pick.map(|p| p.id));
        self.map(Kind::AttendMla { latent, rope, scale, cache }, "kqv_latent", &inputs, q[0], q[0].width)
    }

    /// The positions that attention may see.
    pub fn index(
        &mut self,
        q: Val<Full>,
        k: Val<Full>,
        gate: Val<Full>,
        heads: usize,
        keep: usize,
    ) -> Val<Full> {
        let cache = self.cache("index_key", k, k.width);
        let kind = Kind::Index { heads, width: k.width, keep, cache };
        self.map(kind, "index_sel", &[q.id, k.id, gate.id], q, keep)
    }

    /// Chosen experts and their weights.
    pub fn route(&mut self, x: Val<Full>, router: &str, bias: Option<&str>, routing: &Routing) -> Val<Full> {
        let mut ws = vec![self.matrix(router, routing.experts, x.width, Cut::Whole)];
        ws.extend(bias.map(|b| self.vector(b, "bias", routing.experts)));
        let v = self.val("ffn_moe_topk", 2 * routing.used, Lay::Full);
        self.push(Kind::Route(routing.clone()), vec![x.id], ws, vec![v.id]);
        v
    }

    /// The chosen experts' gated feed-forwards, weighed and added. Dealt by features or by whole experts, as the
    /// plan finds cheaper. `fused` says that gate and up lie in one tensor, gate first.
    pub fn experts(
        &mut self,
        x: Val<Full>,
        picked: Val<Full>,
        r: &Routing,
        inner: usize,
        fused: bool,
    ) -> Val<Partial> {
        let experts = Some((r.experts, r.used));
        let info =
            DealInfo { name: "experts", layer: self.layer, units: inner, group: 1, idle: true, experts };
        let deal = self.push_deal(info);
        let rows = Cut::Rows { deal, per: 1, group: 1 };
        let up_view = |skip| fused.then_some(("ffn_gate_up_exps", 2 * inner, skip));
        let gate = self.viewed(self.stack("ffn_gate_exps", r.experts, inner, x.width, rows), up_view(0));
        let up = self.viewed(self.stack("ffn_up_exps", r.experts, inner, x.width, rows), up_view(inner));
        let down = self.stack("ffn_down_exps", r.experts, x.width, inner, Cut::Cols { deal, per: 1 });
        let v = self.val("ffn_moe_part", x.width, Lay::Partial);
        self.push(Kind::Experts { used: r.used }, vec![x.id, picked.id], vec![gate, up, down], vec![v.id]);
        v
    }

    /// Two summands are one.
    pub fn add(&mut self, a: Val<Partial>, b: Val<Partial>) -> Val<Partial> {
        self.map(Kind::Add, "ffn_part", &[a.id, b.id], a, a.width)
    }

    /// Add the summands of all ranks.
    pub fn sum(&mut self, a: Val<Partial>, name: &str) -> Val<Full> {
        let v = self.val(name, a.width, Lay::Full);
        self.push(Kind::Sum, vec![a.id], vec![], vec![v.id]);
        v
    }

    /// Sum the branch over the ranks and add it to the stream; `names` are those of the sum and of the new stream.
    pub fn residual(&mut self, x: Val<Full>, branch: Val<Partial>, names: [&str; 2]) -> Val<Full> {
        let b = self.sum(branch, names[0]);
        self.map(Kind::Add, names[1], &[x.id, b.id], x, x.width)
    }

    /// The final norm: what a draft takes as hidden state.
    pub fn final_norm(&mut self, x: Val<Full>, name: &str) -> Val<Full> {
        let v = self.rms(x, name, "result_norm", x.width);
        self.out.hidden = Some(v.id);
        v
    }

    /// Each rank's slice of the logits.
    pub fn logits(&mut self, x: Val<Full>, name: &str, vocab: usize) {
        let deal = self.deal("vocab", vocab, 1);
        let w = self.matrix(name, vocab, x.width, Cut::Rows { deal, per: 1, group: 1 });
        let v: Val<Split> = self.val("logits", vocab, Lay::Split { deal, per: 1, group: 1 });
        self.push(Kind::Logits, vec![x.id], vec![w], vec![v.id]);
    }
}

/// A projection whose rows are dealt.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// Name of value and weight.
    pub name: &'a str,
    /// Rows for each group of units.
    pub per: usize,
    /// Units that share these rows.
    pub group: usize,
    /// Where the rows lie, if in a larger tensor.
    pub view: Option<View<'a>>,
    /// Has it a bias?
    pub bias: Bias,
}

/// Where a projection's bias lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bias {
    /// There is none.
    #[default]
    None,
    /// In a tensor of its own.
    Own,
    /// In the fused tensor's bias, at the same rows.
    Fused,
}
