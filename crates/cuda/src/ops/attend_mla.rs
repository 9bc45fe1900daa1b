//! Causal latent attention over the cache, absorbed: one row of `[latent ; rotated key]` a token serves all heads.

use super::softmax::{self, Attention};
use crate::lower::Lower;

pub(crate) fn attend(l: &mut Lower<'_>, [latent, rope]: [usize; 2], scale: f32, cache: usize) {
    let inputs = &l.local().inputs;
    let heads = inputs[0].width / latent;
    softmax::write(l, 2, cache, 0);
    softmax::write(l, 3, cache, latent);
    if heads == 0 {
        return;
    }
    let picked = inputs.get(4).map(|p| (l.value(p), p.width));
    let query = [l.input(0), l.input(1)];
    let (key, first) = (latent + rope, [0, 0]);
    // one KV head for all query heads
    let (group, cache) = (heads, [cache, cache]);
    softmax::attend(
        l,
        Attention { heads, key, rope, value: latent, scale, group, first, query, cache, picked },
    );
}
