//! `glm-dsa`: GLM-5, 5.1 and 5.2: latent attention behind a sparse indexer, sigmoid experts.

use crate::Result;
use crate::hyper::{Attention, Hyper, Mla, Source, wrong};
use crate::op::{Gating, RopeStyle};

pub(super) fn read(s: &Source<'_>) -> Result<Hyper> {
    let mla = s.mla()?;
    if mla.fused_kv_b {
        return Err(wrong(
            s.key("attention.key_length_mla")?,
            "missing",
            "present: this architecture has no legacy form",
        ));
    }
    let (full, why) = full_layers(s)?;
    let indexer = s.indexer(&mla, RopeStyle::Interleaved, full)?;
    let note = match &indexer {
        Some(i) => {
            let full: Vec<usize> = (0..i.full.len()).filter(|l| i.full[*l]).collect();
            let layers =
                if full.len() == i.full.len() { "all layers".into() } else { format!("layers {full:?}") };
            format!("sparse attention keeps {} positions, selected in {layers} ({why})", i.keep)
        }
        None => "attention is dense: no indexer in the file, or switched off".into(),
    };
    let moe = s.moe(Gating::Sigmoid, None)?;
    let mut h = s.hyper("glm-dsa", Attention::Mla(Mla { indexer, ..mla }), moe)?;
    h.notes.push(note);
    Ok(h)
}

/// Which layers select: the key, else the layers that have the tensors, else GLM-5.2's pattern for its context
/// length (its first files carry the tensors on all layers and no key), else all.
fn full_layers(s: &Source<'_>) -> Result<(Vec<bool>, &'static str)> {
    let layers = s.trunk()?;
    let key = s.key("attention.indexer.types")?;
    if let Some(types) = s.meta.may_per_layer::<bool>(&key, layers)? {
        return Ok((types, "attention.indexer.types"));
    }
    let has: Vec<bool> = (0..layers).map(|l| s.has(&format!("blk.{l}.indexer.proj.weight"), true)).collect();
    if has.contains(&true) && has.contains(&false) {
        return Ok((has, "the layers that have its tensors"));
    }
    if s.size("context_length")? >= 1_048_576 {
        let full = |l: usize| (l + 1).saturating_sub(3).is_multiple_of(4);
        return Ok(((0..layers).map(full).collect(), "GLM-5.2's pattern, by context length"));
    }
    Ok((vec![true; layers], "no key says otherwise"))
}
