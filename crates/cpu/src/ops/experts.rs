//! The chosen experts' gated feed-forwards, weighed and added.

use super::pointwise::swiglu;
use crate::product::{self, Stack, product};
use crate::rank::Step;
use crate::rows::Rows;
use crate::scratch::sized;
use crate::weights::Stored;

/// Memory for the rows of one expert.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// Rows that use the expert, and with what weight.
    users: Vec<(usize, f32)>,
    x: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
    act: Vec<f32>,
    down: Vec<f32>,
}

/// Expert by expert, all its rows at once; a row adds its experts in ascending order. Zero where a rank holds none.
pub(crate) fn experts(
    step: &Step<'_>,
    used: usize,
    w: &[Stored],
    [x, picked]: [Rows<'_>; 2],
    out: &mut [f32],
    buffers: &mut Buffers,
    products: &mut product::Buffers,
) {
    let [gate, up, down] = w else { unreachable!("experts have three weights") };
    out.fill(0.0);
    for e in 0..if gate.rows() > 0 { gate.copies() } else { 0 } {
        let Buffers { users, .. } = buffers;
        let id = (gate.first_copy() + e) as f32;
        users.clear();
        users.extend((0..x.count).filter_map(|i| {
            let (ids, weights) = picked.row(i).split_at(used);
            ids.iter().position(|n| *n == id).map(|j| (i, weights[j]))
        }));
        if !users.is_empty() {
            feed_forward(step, e, [gate, up, down], x, buffers, products);
            for ((i, weight), y) in buffers.users.iter().zip(buffers.down.chunks_exact(x.width)) {
                let out = &mut out[i * x.width..][..x.width];
                out.iter_mut().zip(y).for_each(|(o, y)| *o += weight * y);
            }
        }
    }
}

/// `down(silu(gate x) * (up x))` of expert `e` here, for its users.
fn feed_forward(
    step: &Step<'_>,
    e: usize,
    [gate, up, down]: [&Stored; 3],
    x: Rows<'_>,
    b: &mut Buffers,
    products: &mut product::Buffers,
) {
    let (m, inner) = (b.users.len(), gate.rows());
    let gathered = sized(&mut b.x, m * x.width);
    for (row, (i, _)) in gathered.chunks_exact_mut(x.width).zip(&b.users) {
        row.copy_from_slice(x.row(*i));
    }
    let x = Rows::new(gathered, x.width, m);
    let of = |weight| Stack { weight, copies: e..e + 1, transposed: false };
    let [g, u, a] = [&mut b.gate, &mut b.up, &mut b.act].map(|v| sized(v, m * inner));
    product(step, &of(gate), x, None, g, products);
    product(step, &of(up), x, None, u, products);
    swiglu(Rows::new(g, inner, m), Rows::new(u, inner, m), a);
    let out = sized(&mut b.down, m * x.width);
    product(step, &of(down), Rows::new(a, inner, m), None, out, products);
}
