//! Parts that several architectures share.

pub mod ffn;
pub mod gqa;
pub mod mla;

use crate::build::{Builder, Full, Val};
use crate::hyper::{Attention, Hyper};
use crate::op::Description;

/// The decoder that all our architectures are: an embedding, layers of attention and feed-forward that each add to
/// one stream, a norm and the logits.
pub fn decoder(h: &Hyper) -> Description {
    let mut m = Builder::new(h.width, h.eps);
    let mut x = m.embed("token_embd", h.vocab, h.options.deal_embedding);
    let mut pick = None;
    for l in 0..h.layers {
        m.layer(l);
        x = layer(&mut m, h, x, l, &mut pick);
    }
    m.tail();
    let n = m.final_norm(x, "output_norm");
    m.logits(n, h.head, h.vocab);
    m.finish()
}

/// One layer. `pick` is the last selection of a sparse-attention indexer, reused by the layers that make none.
fn layer(m: &mut Builder, h: &Hyper, x: Val<Full>, l: usize, pick: &mut Option<Val<Full>>) -> Val<Full> {
    let n = m.rms_norm(x, "attn_norm");
    let a = match &h.attention {
        Attention::Gqa(g) => gqa::attention(m, n, g, l),
        Attention::Mla(a) => mla::attention(m, n, a, l, pick),
    };
    let x = m.residual(x, a, ["attn_out", "ffn_inp"]);
    let n = m.rms_norm(x, h.ffn_norm);
    let f = match &h.moe {
        Some(e) if l >= h.dense_lead => ffn::moe(m, n, e),
        _ => ffn::dense(m, n, h.inner, ffn::DENSE),
    };
    m.residual(x, f, ["ffn_out", "l_out"])
}

/// The next-token layer of DeepSeek-V3 (arXiv 2412.19437, section 2.2): from the hidden state of token t and token
/// t + 1 it guesses token t + 2. Attention is dense. None if the file has none.
pub fn draft(h: &Hyper) -> Option<Description> {
    let d = h.draft?;
    let mut m = Builder::new(h.width, h.eps);
    let hidden = m.hidden();
    let shared =
        if d.own_embedding { None } else { Some(m.embed("token_embd", h.vocab, h.options.deal_embedding)) };
    m.layer(h.layers);
    let e = shared.unwrap_or_else(|| m.embed("nextn.embed_tokens", h.vocab, h.options.deal_embedding));
    let e = m.rms_norm(e, "nextn.enorm");
    let g = m.rms_norm(hidden, "nextn.hnorm");
    let both = m.concat(e, g);
    let [z] = m.whole(both, [("nextn.eh_proj", h.width)]);
    let z = layer(&mut m, h, z, h.layers, &mut None);
    if !d.own_norm {
        m.tail();
    }
    let n = m.final_norm(z, if d.own_norm { "nextn.shared_head_norm" } else { "output_norm" });
    match d.own_head {
        true => m.layer(h.layers),
        false => m.tail(),
    }
    m.logits(n, if d.own_head { "nextn.shared_head_head" } else { h.head }, h.vocab);
    Some(m.finish())
}
