//! `glm4moe`: GLM-4.5, 4.6, 4.7 and GLM-4.5-Air.

use crate::Result;
use crate::hyper::{Attention, Hyper, Source, wrong};
use crate::op::{Gating, RopeStyle};

/// Grouped queries, of which half of each head rotates; routed experts as in GLM-5.
pub(super) fn read(s: &Source<'_>) -> Result<Hyper> {
    if let Some(sections) = s.may::<Vec<i64>>("rope.dimension_sections")?
        && sections.iter().any(|n| *n != 0)
    {
        return Err(wrong(
            s.key("rope.dimension_sections")?,
            format!("{sections:?}"),
            "absent: the vision variant is not supported",
        ));
    }
    let gqa = s.gqa(RopeStyle::HalfSplit)?;
    let used = s.size("expert_used_count")?;
    let fallback = s.may_size("feed_forward_length")?.map(|n| n / used).filter(|n| *n > 0);
    let moe = s.moe(Gating::Sigmoid, fallback)?;
    Ok(Hyper { ffn_norm: "post_attention_norm", ..s.hyper("glm4moe", Attention::Gqa(gqa), moe)? })
}
