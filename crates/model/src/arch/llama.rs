//! `llama` (Llama 2 and 3, SmolLM2, Mixtral) and `smollm3`.

use crate::Result;
use crate::hyper::{Attention, Gqa, Hyper, Source, wrong};
use crate::op::{Gating, RopeStyle};

/// Files hold q and k rows permuted, so that neighbours rotate together.
pub(super) fn llama(s: &Source<'_>) -> Result<Hyper> {
    let gqa = s.gqa(RopeStyle::Interleaved)?;
    if gqa.rope.rotated != gqa.key {
        return Err(wrong(
            s.key("rope.dimension_count")?,
            gqa.rope.rotated,
            format!("the head size {}", gqa.key),
        ));
    }
    // Mixtral: softmax over all experts, top-k, renormalised; no key says so
    let moe = s.moe(Gating::Softmax, s.may_size("feed_forward_length")?)?.map(|mut m| {
        m.routing.normalize = true;
        m
    });
    s.hyper("llama", Attention::Gqa(gqa), moe)
}

/// Every fourth layer goes without rotation.
pub(super) fn smollm3(s: &Source<'_>) -> Result<Hyper> {
    let gqa = Gqa { skip_rope: Some(4), ..s.gqa(RopeStyle::Interleaved)? };
    s.hyper("smollm3", Attention::Gqa(gqa), None)
}
