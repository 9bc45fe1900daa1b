//! Gated feed-forwards: dense, shared, and mixtures of experts.

use crate::build::{Builder, Full, Partial, Val};
use crate::hyper::Moe;

/// Tensor names of a dense layer.
pub const DENSE: [&str; 3] = ["ffn_gate", "ffn_up", "ffn_down"];
const SHARED: [&str; 3] = ["ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"];

/// `W_down(silu(W_gate n) * (W_up n))`; a summand.
pub fn dense(m: &mut Builder, n: Val<Full>, inner: usize, [gate, up, down]: [&str; 3]) -> Val<Partial> {
    let deal = m.deal("ffn", inner, 1);
    let [g, u] = m.rows(n, deal, [(gate, 1), (up, 1)]);
    let h = m.swiglu(g, u);
    m.cols(h, (down, n.width))
}

/// The chosen experts, weighed, and the shared expert with weight 1.
pub fn moe(m: &mut Builder, n: Val<Full>, e: &Moe) -> Val<Partial> {
    let bias = e.bias.then_some("exp_probs_b");
    let picked = m.route(n, "ffn_gate_inp", bias, &e.routing);
    let routed = m.experts(n, picked, &e.routing, e.inner, e.fused);
    match e.shared {
        0 => routed,
        width => {
            let shared = dense(m, n, width, SHARED);
            m.add(routed, shared)
        }
    }
}
