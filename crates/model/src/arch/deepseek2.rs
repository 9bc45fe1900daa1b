//! `deepseek2` (DeepSeek-V2, V3, R1, Kimi-K2, GLM-4.7-Flash) and `deepseek32` (DeepSeek-V3.2).

use crate::Result;
use crate::hyper::{Attention, Hyper, Mla, Source};
use crate::op::{Gating, RopeStyle};

/// Latent attention; softmax experts (V2) or sigmoid ones with a selection bias.
pub(super) fn v3(s: &Source<'_>) -> Result<Hyper> {
    let mla = s.mla()?;
    with_experts(s, "deepseek2", mla)
}

/// The same with an indexer on every layer, whose heads rotate by halves.
pub(super) fn v32(s: &Source<'_>) -> Result<Hyper> {
    let mla = s.mla()?;
    let indexer = s.indexer(&mla, RopeStyle::HalfSplit, vec![true; s.trunk()?])?;
    with_experts(s, "deepseek32", Mla { indexer, ..mla })
}

fn with_experts(s: &Source<'_>, arch: &'static str, mla: Mla) -> Result<Hyper> {
    let biased = s.layer_has("exp_probs_b.bias", true)?;
    let gating = if biased { Gating::Sigmoid } else { Gating::Softmax };
    let moe = s.moe(gating, None)?;
    let unsaid = s.may::<u32>("expert_gating_func")?.is_none() && moe.is_some();
    let mut h = s.hyper(arch, Attention::Mla(mla), moe)?;
    if unsaid {
        let why = if biased { "layers have a selection bias" } else { "no layer has a selection bias" };
        h.notes.push(format!("{arch}.expert_gating_func is missing: {gating:?} gating, since {why}"));
    }
    Ok(h)
}
