//! Latent attention (DeepSeek-V2, arXiv 2405.04434) in its absorbed form, with or without a sparse indexer
//! (DeepSeek-V3.2, arXiv 2512.02556).

use crate::build::{Builder, Full, Partial, Split, Val};
use crate::hyper::{Indexer, Mla};

/// One row of `latent + rope` numbers is cached a token; queries are taken into latent space, the result out of it.
pub fn attention(
    m: &mut Builder,
    n: Val<Full>,
    a: &Mla,
    layer: usize,
    pick: &mut Option<Val<Full>>,
) -> Val<Partial> {
    let heads = m.deal_all("heads", a.heads, 1);
    let kv_a = ("attn_kv_a_mqa", a.latent + a.rotated);
    let head = a.nope + a.rotated;
    let (q, q_a, kv_a) = match a.q_rank {
        Some(rank) => {
            let [q_a, kv_a] = m.whole(n, [("attn_q_a", rank), kv_a]);
            let q_a = m.rms_norm(q_a, "attn_q_a_norm");
            let [q] = m.rows(q_a, heads, [("attn_q_b", head)]);
            (q, Some(q_a), kv_a)
        }
        None => {
            let [q] = m.rows(n, heads, [("attn_q", head)]);
            let [kv_a] = m.whole(n, [kv_a]);
            (q, None, kv_a)
        }
    };
    let [q_nope, q_pe] = m.parts(q, [("q_nope", a.nope), ("q_pe", a.rotated)]);
    let [c, k_pe] = m.parts(kv_a, [("kv_latent", a.latent), ("k_pe", a.rotated)]);
    let c = m.rms_norm(c, "attn_kv_a_norm");
    let q_pe = m.rotate(q_pe, "q_rope", a.rotated, &a.rope, None);
    let k_pe = m.rotate(k_pe, "k_rope", a.rotated, &a.rope, None);
    if let (Some(i), Some(q_a)) = (&a.indexer, q_a)
        && i.full.get(layer) == Some(&true)
    {
        *pick = Some(index(m, n, q_a, i));
    }
    let q_c = into_latent(m, q_nope, a);
    let o = m.attend_mla([q_c, q_pe], [c, k_pe], *pick, a.scale);
    let o = out_of_latent(m, o, a);
    m.cols(o, ("attn_output", n.width))
}

/// The legacy tensor holds, a head, first the rows that make its keys, then those that make its values.
fn into_latent(m: &mut Builder, q_nope: Val<Split>, a: &Mla) -> Val<Split> {
    match a.fused_kv_b {
        false => m.per_head(q_nope, "attn_k_b", a.latent),
        true => m.per_head_fused(q_nope, ("attn_kv_b", a.nope + a.value, 0), a.latent, a.nope, true),
    }
}

fn out_of_latent(m: &mut Builder, o: Val<Split>, a: &Mla) -> Val<Split> {
    match a.fused_kv_b {
        false => m.per_head(o, "attn_v_b", a.value),
        true => m.per_head_fused(o, ("attn_kv_b", a.nope + a.value, a.nope), a.latent, a.value, false),
    }
}

/// DeepSeek's reference code gives the index key's layer norm this epsilon; no file carries it.
const INDEX_EPS: f32 = 1e-6;

fn index(m: &mut Builder, n: Val<Full>, q_a: Val<Full>, i: &Indexer) -> Val<Full> {
    let [q] = m.whole(q_a, [("indexer.attn_q_b", i.heads * i.width)]);
    let [k, gate] = m.whole(n, [("indexer.attn_k", i.width), ("indexer.proj", i.heads)]);
    let k = m.layer_norm(k, "indexer.k_norm", INDEX_EPS);
    let q = m.rotate(q, "index_q_rope", i.width, &i.rope, None);
    let k = m.rotate(k, "index_k_rope", i.width, &i.rope, None);
    m.index(q, k, gate, i.heads, i.keep)
}
