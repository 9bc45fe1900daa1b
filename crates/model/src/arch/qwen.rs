//! `qwen2`, `qwen3`, `qwen3moe`.

use crate::Result;
use crate::build::Bias;
use crate::hyper::{Attention, Gqa, Hyper, Source};
use crate::op::{Gating, RopeStyle};

/// Biases on q, k and v.
pub(super) fn qwen2(s: &Source<'_>) -> Result<Hyper> {
    let gqa = s.gqa(RopeStyle::HalfSplit)?;
    let own = |b: Bias| if b == Bias::None { Bias::Own } else { b };
    let [q, k, v, o] = gqa.bias;
    s.hyper("qwen2", Attention::Gqa(Gqa { bias: [own(q), own(k), own(v), o], ..gqa }), None)
}

/// Query and key heads are normed before they rotate.
fn normed(s: &Source<'_>) -> Result<Attention> {
    Ok(Attention::Gqa(Gqa { head_norm: true, ..s.gqa(RopeStyle::HalfSplit)? }))
}

pub(super) fn qwen3(s: &Source<'_>) -> Result<Hyper> {
    s.hyper("qwen3", normed(s)?, None)
}

/// Softmax over all experts, top-k, renormalised unless the file says otherwise; no shared expert.
pub(super) fn qwen3moe(s: &Source<'_>) -> Result<Hyper> {
    let normalize = s.may("expert_weights_norm")?.unwrap_or(true);
    let moe = s.moe(Gating::Softmax, None)?.map(|mut m| {
        m.routing.normalize = normalize;
        m
    });
    s.hyper("qwen3moe", normed(s)?, moe)
}
