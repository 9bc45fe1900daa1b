//! Grouped-query attention (arXiv 2305.13245).

use crate::build::{Builder, Full, Partial, Rows, Val};
use crate::hyper::Gqa;

/// `W_o attend(rope(W_q n), rope(W_k n), W_v n)`; a summand.
pub fn attention(m: &mut Builder, n: Val<Full>, g: &Gqa, layer: usize) -> Val<Partial> {
    let group = g.heads / g.kv_heads;
    let heads = m.deal_all("heads", g.heads, group);
    let [q, k, v] = m.rows_of(n, heads, projections(g, group));
    let (q, k) = match g.head_norm {
        true => (m.head_norm(q, "attn_q_norm", g.key), m.head_norm(k, "attn_k_norm", g.key)),
        false => (q, k),
    };
    let skip = g.skip_rope.is_some_and(|every| (layer + 1).is_multiple_of(every));
    let factors = g.rope_factors.then_some("rope_freqs");
    let (q, k) = match skip {
        true => (q, k),
        false => {
            (m.rotate(q, "q_rope", g.key, &g.rope, factors), m.rotate(k, "k_rope", g.key, &g.rope, factors))
        }
    };
    let o = m.attend_gqa([q, k, v], group, g.key, g.value, g.scale);
    m.cols_biased(o, "attn_output", n.width, g.bias[3])
}

fn projections(g: &Gqa, group: usize) -> [Rows<'static>; 3] {
    let (q, k, v) = (g.heads * g.key, g.kv_heads * g.key, g.kv_heads * g.value);
    let view = |skip| g.fused.then_some(("attn_qkv", q + k + v, skip));
    [
        Rows { name: "attn_q", per: g.key, group: 1, view: view(0), bias: g.bias[0] },
        Rows { name: "attn_k", per: g.key, group, view: view(q), bias: g.bias[1] },
        Rows { name: "attn_v", per: g.value, group, view: view(q + k), bias: g.bias[2] },
    ]
}
