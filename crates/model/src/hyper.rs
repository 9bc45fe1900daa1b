//! The numbers an architecture needs, all read from the file and checked.

use crate::op::{Gating, GroupScore, Rope, RopeStyle, Routing};
use crate::{Error, Result};
use shardwright_gguf::{FromValue, Meta, Value, short};
use std::sync::Arc;

/// A file's header as seen by an architecture: its keys, and whether a tensor is there.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// Metadata.
    pub meta: &'a Meta,
    /// Is the tensor in the file? None: there is no file yet, take the usual form.
    pub has: &'a dyn Fn(&str) -> Option<bool>,
    /// Choices of the user.
    pub options: Options,
}

/// What a user may choose about a description.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Deal the embedding's rows over the ranks (one more sum) instead of holding it whole on each.
    pub deal_embedding: bool,
    /// Ignore the sparse-attention indexer.
    pub dense_attention: bool,
}

/// Numbers of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Hyper {
    /// Architecture as named in the file.
    pub arch: &'static str,
    /// Layers of the trunk, without next-token layers.
    pub layers: usize,
    /// Elements of the stream.
    pub width: usize,
    /// Rows of the vocabulary.
    pub vocab: usize,
    /// Context length that the file states.
    pub context: usize,
    /// Added to the mean square in RMS norms.
    pub eps: f32,
    /// Dense feed-forward width.
    pub inner: usize,
    /// Leading layers without experts; all of them in a dense model.
    pub dense_lead: usize,
    /// Name of the norm before the feed-forward.
    pub ffn_norm: &'static str,
    /// How attention works.
    pub attention: Attention,
    /// The experts, if any.
    pub moe: Option<Moe>,
    /// Name of the tensor behind the logits; `token_embd` if tied.
    pub head: &'static str,
    /// The next-token layer, if the file holds one.
    pub draft: Option<Draft>,
    /// Choices of the user.
    pub options: Options,
    /// What was decided in the absence of a key, and why; for the log.
    pub notes: Vec<String>,
}

/// The two families of attention.
#[derive(Clone, Debug, PartialEq)]
pub enum Attention {
    /// Grouped queries.
    Gqa(Gqa),
    /// Latent.
    Mla(Mla),
}

/// Grouped-query attention.
#[derive(Clone, Debug, PartialEq)]
pub struct Gqa {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Size of a query and key head.
    pub key: usize,
    /// Size of a value head.
    pub value: usize,
    /// Factor on the scores.
    pub scale: f32,
    /// Rotation.
    pub rope: Rope,
    /// Is there a tensor `rope_freqs` of divisors?
    pub rope_factors: bool,
    /// Every so many layers one goes without rotation (SmolLM3: 4).
    pub skip_rope: Option<usize>,
    /// Are query and key heads normed?
    pub head_norm: bool,
    /// Do q, k and v lie in one tensor, in this order?
    pub fused: bool,
    /// Biases of q, k, v and the output.
    pub bias: [crate::build::Bias; 4],
}

/// Latent attention (DeepSeek-V2, arXiv 2405.04434).
#[derive(Clone, Debug, PartialEq)]
pub struct Mla {
    /// Query heads.
    pub heads: usize,
    /// Rank of the query projection; none = one direct matrix.
    pub q_rank: Option<usize>,
    /// Latent size.
    pub latent: usize,
    /// Part of a head that does not rotate.
    pub nope: usize,
    /// Part that does.
    pub rotated: usize,
    /// Size of a value head.
    pub value: usize,
    /// Factor on the scores.
    pub scale: f32,
    /// Rotation.
    pub rope: Rope,
    /// Keys and values come out of one legacy tensor `attn_kv_b`.
    pub fused_kv_b: bool,
    /// Sparse attention.
    pub indexer: Option<Indexer>,
}

/// The lightning indexer of DeepSeek sparse attention.
#[derive(Clone, Debug, PartialEq)]
pub struct Indexer {
    /// Index heads.
    pub heads: usize,
    /// Their size.
    pub width: usize,
    /// Positions kept.
    pub keep: usize,
    /// Rotation of the first elements of each index head.
    pub rope: Rope,
    /// For each layer: does it select, or reuse the selection of the last layer that did?
    pub full: Vec<bool>,
}

/// Mixture of experts.
#[derive(Clone, Debug, PartialEq)]
pub struct Moe {
    /// How experts are chosen.
    pub routing: Routing,
    /// Is there a selection bias?
    pub bias: bool,
    /// Width of one expert.
    pub inner: usize,
    /// Width of the shared experts together; 0 = none.
    pub shared: usize,
    /// Gate and up lie in one tensor.
    pub fused: bool,
}

/// The next-token layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draft {
    /// It has an embedding of its own.
    pub own_embedding: bool,
    /// It has a norm of its own before the head.
    pub own_norm: bool,
    /// It has a head of its own.
    pub own_head: bool,
}

/// An error about a number.
pub(crate) fn wrong(key: impl Into<String>, found: impl ToString, wanted: impl Into<String>) -> Error {
    Error::Number { key: key.into(), found: found.to_string(), wanted: wanted.into() }
}

impl Source<'_> {
    /// The file's architecture.
    ///
    /// # Errors
    /// If the key is missing.
    pub fn arch(&self) -> Result<String> {
        Ok(self.meta.need("general.architecture")?)
    }

    /// Full name of an architecture's key.
    ///
    /// # Errors
    /// If the architecture is missing.
    pub fn key(&self, suffix: &str) -> Result<String> {
        Ok(format!("{}.{suffix}", self.arch()?))
    }

    /// An architecture's key.
    ///
    /// # Errors
    /// If it is missing or of a wrong type.
    pub fn need<T: FromValue>(&self, suffix: &str) -> Result<T> {
        Ok(self.meta.need(&self.key(suffix)?)?)
    }

    /// An architecture's key that may be missing.
    ///
    /// # Errors
    /// If it is of a wrong type.
    pub fn may<T: FromValue>(&self, suffix: &str) -> Result<Option<T>> {
        Ok(self.meta.may(&self.key(suffix)?)?)
    }

    /// A size: at least 1.
    ///
    /// # Errors
    /// If it is missing, zero or of a wrong type.
    pub fn size(&self, suffix: &str) -> Result<usize> {
        let n: usize = self.uniform(suffix)?.ok_or_else(|| match self.need::<usize>(suffix) {
            Err(e) => e,
            Ok(n) => wrong(suffix, n, "present"),
        })?;
        self.between(suffix, n, 1, MAX_SIZE)?;
        Ok(n)
    }

    /// A size that may be missing.
    ///
    /// # Errors
    /// If it is zero or of a wrong type.
    pub fn may_size(&self, suffix: &str) -> Result<Option<usize>> {
        let n = self.uniform(suffix)?;
        if let Some(n) = n {
            self.between(suffix, n, 1, MAX_SIZE)?;
        }
        Ok(n)
    }

    /// A key that may be one number or one number a layer; the layers must agree.
    fn uniform(&self, suffix: &str) -> Result<Option<usize>> {
        let key = self.key(suffix)?;
        let blocks = self.blocks()?;
        let Some(all) = self.meta.may_per_layer::<usize>(&key, blocks)? else { return Ok(None) };
        let first = all[0];
        match all.iter().find(|n| **n != first) {
            Some(other) => Err(wrong(key, format!("{first} and {other}"), "the same in each layer")),
            None => Ok(Some(first)),
        }
    }

    pub(crate) fn between(&self, suffix: &str, n: usize, low: usize, high: usize) -> Result<()> {
        match (low..=high).contains(&n) {
            true => Ok(()),
            false if low == high => Err(wrong(self.key(suffix)?, n, low.to_string())),
            false => Err(wrong(self.key(suffix)?, n, format!("{low} to {high}"))),
        }
    }

    /// Layers in the file, next-token layers counted.
    fn blocks(&self) -> Result<usize> {
        let n = self.need("block_count")?;
        self.between("block_count", n, 1, 512)?;
        Ok(n)
    }

    /// Layers of the trunk.
    ///
    /// # Errors
    /// If the counts are missing or disagree.
    pub fn trunk(&self) -> Result<usize> {
        let blocks = self.blocks()?;
        let next = self.may("nextn_predict_layers")?.unwrap_or(0);
        self.between("nextn_predict_layers", next, 0, blocks - 1)?;
        Ok(blocks - next)
    }

    /// Is the tensor there? Without a file: `usual`.
    pub fn has(&self, name: &str, usual: bool) -> bool {
        (self.has)(name).unwrap_or(usual)
    }

    /// Is such a tensor in any layer, the next-token layer included? Layers without it are then refused by the plan.
    ///
    /// # Errors
    /// If the number of layers is missing or makes no sense.
    pub fn layer_has(&self, name: &str, usual: bool) -> Result<bool> {
        Ok((0..self.blocks()?).any(|l| self.has(&format!("blk.{l}.{name}"), usual)))
    }

    /// Rows of the vocabulary: the token list's length, else the key.
    fn vocab(&self) -> Result<usize> {
        match self.meta.get("tokenizer.ggml.tokens") {
            Some(Value::Array(a)) if !a.is_empty() => Ok(a.len()),
            _ => self.size("vocab_size"),
        }
    }

    /// What all architectures have alike; attention and experts are filled in by the caller.
    ///
    /// # Errors
    /// If a key is missing or makes no sense.
    pub fn hyper(&self, arch: &'static str, attention: Attention, moe: Option<Moe>) -> Result<Hyper> {
        let layers = self.trunk()?;
        let next = format!("blk.{layers}.nextn.eh_proj.weight");
        if !self.has("blk.0.attn_norm.weight", true) && self.has(&next, false) {
            let why =
                "this file holds only the next-token layer: open the trunk's file, and add this one with `--mtp`"
                    .into();
            return Err(Error::Missing { name: "blk.0.attn_norm.weight".into(), why });
        }
        let tied = !self.has("output.weight", true);
        let dense_lead = match &moe {
            Some(_) => self.may("leading_dense_block_count")?.unwrap_or(0),
            None => layers,
        };
        self.between("leading_dense_block_count", dense_lead, 0, layers)?;
        let inner = if dense_lead > 0 { self.size("feed_forward_length")? } else { 0 };
        Ok(Hyper {
            arch,
            layers,
            width: self.size("embedding_length")?,
            vocab: self.vocab()?,
            context: self.size("context_length")?,
            eps: self.need("attention.layer_norm_rms_epsilon")?,
            inner,
            dense_lead,
            ffn_norm: "ffn_norm",
            attention,
            moe,
            head: if tied { "token_embd" } else { "output" },
            draft: self.draft(layers)?,
            options: self.options,
            notes: vec![],
        })
    }

    fn draft(&self, layer: usize) -> Result<Option<Draft>> {
        let announced = self.may("nextn_predict_layers")?.unwrap_or(0usize) > 0;
        let has = |n: &str, usual| self.has(&format!("blk.{layer}.nextn.{n}.weight"), usual);
        let draft = Draft {
            own_embedding: has("embed_tokens", false),
            own_norm: has("shared_head_norm", true),
            own_head: has("shared_head_head", false),
        };
        Ok((announced && has("eh_proj", true)).then_some(draft))
    }

    /// Rotation of `rotated` elements with the file's base and scaling. `mla` models scale the scores instead of
    /// cosine and sine.
    ///
    /// # Errors
    /// If the scaling is unknown or its numbers make no sense.
    pub fn rope(&self, style: RopeStyle, rotated: usize, mla: bool) -> Result<Rope> {
        if rotated == 0 || rotated % 2 == 1 || rotated > MAX_ROTATED {
            let wanted = format!("even, from 2 to {MAX_ROTATED}");
            return Err(wrong(self.key("rope.dimension_count")?, rotated, wanted));
        }
        let base = self.may::<f32>("rope.freq_base")?.unwrap_or(10_000.0) as f64;
        if base <= 0.0 {
            return Err(wrong(self.key("rope.freq_base")?, base, "positive"));
        }
        let plain = |i: usize| base.powf(-2.0 * i as f64 / rotated as f64);
        let scaling = self.scaling()?;
        let freq = |i: usize| match &scaling {
            Scaling::None => plain(i),
            Scaling::Linear { factor } => plain(i) / factor,
            Scaling::Yarn(y) => {
                let keep = y.ramp(i, rotated, base);
                plain(i) / y.factor * (1.0 - keep) + plain(i) * keep
            }
        };
        let magnitude = match &scaling {
            Scaling::Yarn(y) if !mla => (1.0 + 0.1 * y.factor.ln()) as f32,
            _ => 1.0,
        };
        let freqs: Arc<[f32]> = (0..rotated / 2).map(|i| freq(i) as f32).collect();
        Ok(Rope { style, rotated, freqs, magnitude })
    }

    /// Factor on the scores of a latent-attention head of `width`: `m^2 / sqrt(width)`.
    ///
    /// # Errors
    /// If the scaling is unknown.
    pub fn mla_scale(&self, width: usize) -> Result<f32> {
        let m = match self.scaling()? {
            Scaling::Yarn(y) => 1.0 + y.log_multiplier * y.factor.ln(),
            _ => 1.0,
        };
        Ok((m * m / (width as f64).sqrt()) as f32)
    }

    fn scaling(&self) -> Result<Scaling> {
        let kind: Option<String> = self.may("rope.scaling.type")?;
        let factor = || -> Result<f64> {
            let f: f64 = self.need("rope.scaling.factor")?;
            match f >= 1.0 {
                true => Ok(f),
                false => Err(wrong(self.key("rope.scaling.factor")?, f, "at least 1")),
            }
        };
        match kind.as_deref() {
            None | Some("none") => Ok(Scaling::None),
            Some("linear") => Ok(Scaling::Linear { factor: factor()? }),
            Some("yarn") => Ok(Scaling::Yarn(Yarn {
                factor: factor()?,
                original: self.size("rope.scaling.original_context_length")? as f64,
                log_multiplier: self.may("rope.scaling.yarn_log_multiplier")?.unwrap_or(0.0),
                beta_fast: self.may("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
                beta_slow: self.may("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
            })),
            Some(other) => Err(wrong(self.key("rope.scaling.type")?, short(other), "none, linear or yarn")),
        }
    }
}

/// No size in a header may be larger; keeps every product of two far from overflow.
const MAX_SIZE: usize = 1 << 28;

/// No head rotates more elements: their frequencies are computed before any tensor is looked at.
const MAX_ROTATED: usize = 1 << 16;

enum Scaling {
    None,
    Linear { factor: f64 },
    Yarn(Yarn),
}

/// YaRN (arXiv 2309.00071), as DeepSeek's models use it.
struct Yarn {
    factor: f64,
    original: f64,
    log_multiplier: f64,
    beta_fast: f64,
    beta_slow: f64,
}

impl Yarn {
    /// 1 where the frequency is kept, 0 where it is interpolated.
    fn ramp(&self, i: usize, rotated: usize, base: f64) -> f64 {
        let n = rotated as f64;
        let corr = |b: f64| n * (self.original / (b * std::f64::consts::TAU)).ln() / (2.0 * base.ln());
        let low = corr(self.beta_fast).floor().max(0.0);
        let high = corr(self.beta_slow).ceil().min(n - 1.0);
        1.0 - ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0)
    }
}

impl Source<'_> {
    /// Grouped-query attention by the usual keys.
    ///
    /// # Errors
    /// If a key is missing or makes no sense.
    pub fn gqa(&self, style: RopeStyle) -> Result<Gqa> {
        use crate::build::Bias;
        let heads = self.size("attention.head_count")?;
        let kv_heads = self.may_size("attention.head_count_kv")?.unwrap_or(heads);
        if !heads.is_multiple_of(kv_heads) {
            return Err(wrong(
                self.key("attention.head_count_kv")?,
                kv_heads,
                format!("a divisor of {heads} heads"),
            ));
        }
        let even = self.size("embedding_length")? / heads;
        let key = self.may_size("attention.key_length")?.unwrap_or(even);
        let rotated = self.may_size("rope.dimension_count")?.unwrap_or(key);
        self.between("rope.dimension_count", rotated, 1, key)?;
        let value = self.may_size("attention.value_length")?.unwrap_or(even);
        self.between("attention.value_length", value, 1, MAX_SIZE)?;
        let scale: Option<f32> = self.may("attention.scale")?.filter(|s| *s != 0.0);
        let fused = self.layer_has("attn_qkv.weight", false)?;
        let fused_bias = fused && self.layer_has("attn_qkv.bias", false)?;
        let bias = |n: &str| -> Result<Bias> {
            Ok(match self.layer_has(&format!("{n}.bias"), false)? {
                true => Bias::Own,
                false if fused_bias && n != "attn_output" => Bias::Fused,
                false => Bias::None,
            })
        };
        Ok(Gqa {
            heads,
            kv_heads,
            key,
            value,
            scale: scale.unwrap_or((1.0 / (key as f64).sqrt()) as f32),
            rope: self.rope(style, rotated, false)?,
            rope_factors: self.has("rope_freqs.weight", false),
            skip_rope: None,
            head_norm: self.layer_has("attn_q_norm.weight", false)?,
            fused,
            bias: [bias("attn_q")?, bias("attn_k")?, bias("attn_v")?, bias("attn_output")?],
        })
    }

    /// Latent attention by the keys of `deepseek2`, in its newer (absorbed) or older form.
    ///
    /// # Errors
    /// If a key is missing or the sizes disagree.
    pub fn mla(&self) -> Result<Mla> {
        let heads = self.size("attention.head_count")?;
        let latent = self.size("attention.kv_lora_rank")?;
        let rotated = self.size("rope.dimension_count")?;
        let absorbed = self.may_size("attention.key_length_mla")?;
        let (head, value) = match absorbed {
            Some(head) => {
                let cached = self.size("attention.key_length")?;
                self.between("attention.key_length", cached, latent + rotated, latent + rotated)?;
                self.between("attention.value_length", self.size("attention.value_length")?, latent, latent)?;
                self.between("attention.head_count_kv", self.size("attention.head_count_kv")?, 1, 1)?;
                (head, self.size("attention.value_length_mla")?)
            }
            None => (self.size("attention.key_length")?, self.size("attention.value_length")?),
        };
        self.between("rope.dimension_count", rotated, 2, head - 1)?;
        let q_rank: usize = self.may("attention.q_lora_rank")?.unwrap_or(0);
        self.between("attention.q_lora_rank", q_rank, 0, MAX_SIZE)?;
        let direct = q_rank == 0 || self.layer_has("attn_q.weight", false)?;
        Ok(Mla {
            heads,
            q_rank: (!direct).then_some(q_rank),
            latent,
            nope: head - rotated,
            rotated,
            value,
            scale: self.mla_scale(head)?,
            rope: self.rope(RopeStyle::Interleaved, rotated, true)?,
            fused_kv_b: absorbed.is_none(),
            indexer: None,
        })
    }

    /// The indexer, if the file has its keys and the user wants it. `full` says which layers select.
    ///
    /// # Errors
    /// If its sizes disagree with the attention's.
    pub fn indexer(&self, mla: &Mla, style: RopeStyle, full: Vec<bool>) -> Result<Option<Indexer>> {
        let Some(heads) = self.may_size("attention.indexer.head_count")? else { return Ok(None) };
        if self.options.dense_attention {
            return Ok(None);
        }
        if !full[0] {
            return Err(wrong(
                self.key("attention.indexer.types")?,
                "shared in layer 0",
                "full in the first layer",
            ));
        }
        let width = self.size("attention.indexer.key_length")?;
        self.between("attention.indexer.key_length", width, mla.rotated, MAX_SIZE)?;
        let keep = self.size("attention.indexer.top_k")?;
        let rope = Rope { style, ..mla.rope.clone() };
        Ok(Some(Indexer { heads, width, keep, rope, full }))
    }

    /// Experts by the usual keys. `default_gating` is taken where the key is missing; `inner` where the experts'
    /// width is.
    ///
    /// # Errors
    /// If a key is missing or the counts disagree.
    pub fn moe(&self, default_gating: Gating, inner: Option<usize>) -> Result<Option<Moe>> {
        let Some(experts) = self.may::<usize>("expert_count")?.filter(|n| *n > 0) else { return Ok(None) };
        self.between("expert_count", experts, 1, 1024)?;
        let used = self.size("expert_used_count")?;
        self.between("expert_used_count", used, 1, experts)?;
        let bias = self.layer_has("exp_probs_b.bias", default_gating == Gating::Sigmoid)?;
        let gating = match self.may::<u32>("expert_gating_func")? {
            None | Some(0) => default_gating,
            Some(1) => Gating::Softmax,
            Some(2) => Gating::Sigmoid,
            Some(n) => return Err(wrong(self.key("expert_gating_func")?, n, "1 (softmax) or 2 (sigmoid)")),
        };
        let inner = match (self.may_size("expert_feed_forward_length")?, inner) {
            (Some(n), _) | (None, Some(n)) => n,
            (None, None) => self.size("expert_feed_forward_length")?,
        };
        let scale = self.may::<f32>("expert_weights_scale")?.filter(|s| *s != 0.0).unwrap_or(1.0);
        let normalize = self.may("expert_weights_norm")?.unwrap_or(false);
        let groups = self.groups(experts, gating, bias)?;
        let shared = self.may::<usize>("expert_shared_count")?.unwrap_or(0);
        self.between("expert_shared_count", shared, 0, 1024)?;
        let fused = self.layer_has("ffn_gate_up_exps.weight", false)?;
        let routing = Routing { experts, used, gating, normalize, scale, groups };
        Ok(Some(Moe { routing, bias, inner, shared: shared * inner, fused }))
    }

    /// DeepSeek-V2 scores a group by its best expert, V3 (recognised by its selection bias or sigmoid) by the best two.
    fn groups(
        &self,
        experts: usize,
        gating: Gating,
        bias: bool,
    ) -> Result<Option<(usize, usize, GroupScore)>> {
        let Some(n) = self.may::<usize>("expert_group_count")?.filter(|n| *n > 1) else { return Ok(None) };
        if !experts.is_multiple_of(n) || experts / n < 2 {
            let wanted = format!("a divisor of {experts} experts with at least two a group");
            return Err(wrong(self.key("expert_group_count")?, n, wanted));
        }
        let kept = self.size("expert_group_used_count")?;
        let used: usize = self.need("expert_used_count")?;
        self.between("expert_group_used_count", kept, used.div_ceil(experts / n), n)?;
        let score = if gating == Gating::Softmax && !bias { GroupScore::Max } else { GroupScore::BestTwo };
        Ok((kept < n).then_some((n, kept, score)))
    }
}
