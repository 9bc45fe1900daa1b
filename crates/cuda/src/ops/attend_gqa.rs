//! Causal grouped-query attention over the cache.

use super::softmax::{self, Attention};
use crate::lower::Lower;
use crate::program::Slot;

pub(crate) fn attend(
    l: &mut Lower<'_>,
    group: usize,
    [key, value]: [usize; 2],
    scale: f32,
    cache: [usize; 2],
) {
    let inputs = &l.local().inputs;
    let (heads, first) = (inputs[0].width / key, [0, 1].map(|i| inputs[i].start / key));
    if heads == 0 {
        return;
    }
    softmax::write(l, 1, cache[0], 0);
    softmax::write(l, 2, cache[1], 0);
    let query = [l.input(0), Slot::None];
    softmax::attend(
        l,
        Attention { heads, key, rope: 0, value, scale, group, first, query, cache, picked: None },
    );
}
