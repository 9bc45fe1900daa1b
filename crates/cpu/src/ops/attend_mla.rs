//! Causal latent attention over the cache, absorbed: one row of `[latent ; rotated key]` a token serves all heads.

use super::softmax;
use crate::cache::{Cache, place};
use crate::dot::dot;
use crate::rank::Step;
use crate::rows::Rows;

/// Writes the step's rows, then attends to all positions up to each row's own, or to those picked. The result is in
/// latent space.
pub(crate) fn attend(
    step: &Step<'_>,
    scale: f32,
    [q, q_rope, latent, k_rope]: [Rows<'_>; 4],
    pick: Option<Rows<'_>>,
    cache: &mut Cache,
    out: &mut [f32],
) {
    cache.write(step.batch, latent, 0);
    cache.write(step.batch, k_rope, latent.width);
    let cache = &*cache;
    let heads = q.width / latent.width;
    step.team.runs(out, latent.width, |unit, out| {
        let (i, h) = (unit / heads, unit % heads);
        let (table, position) = place(step.batch, i);
        let q = &q.row(i)[h * latent.width..][..latent.width];
        let q_rope = &q_rope.row(i)[h * k_rope.width..][..k_rope.width];
        let picked = pick.map(|p| p.row(i));
        let count = picked.map_or(position + 1, |p| p.iter().take_while(|t| **t >= 0.0).count());
        let row = |t: usize| cache.row(table, picked.map_or(t, |p| p[t] as usize)).split_at(latent.width);
        let score = |t| {
            let (latent, k_rope) = row(t);
            (dot(q, latent) + dot(q_rope, k_rope)) * f64::from(scale)
        };
        softmax::attend(count, score, |t| row(t).0, out);
    });
}
