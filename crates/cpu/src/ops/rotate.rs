//! Rotary position embedding.

use crate::rank::Step;
use crate::rows::Rows;
use crate::weights::Stored;
use shardwright_model::op::{Rope, RopeStyle};

/// Rotates the first elements of each head of `width`. The angle is a product of two f32, as everywhere in the field.
pub(crate) fn rotate(
    step: &Step<'_>,
    width: usize,
    rope: &Rope,
    divisors: Option<&Stored>,
    x: Rows<'_>,
    out: &mut [f32],
) {
    step.team.fill(out, x.width, |i, out| {
        out.copy_from_slice(x.row(i));
        let position = step.batch.positions[i] as f32;
        for (pair, freq) in rope.freqs.iter().enumerate() {
            let freq = divisors.map_or(*freq, |d| freq / d.vector[pair]);
            let (sin, cos) = f64::from(position * freq).sin_cos();
            let turn = [sin, cos].map(|v| f64::from(v as f32 * rope.magnitude));
            let (a, b) = match rope.style {
                RopeStyle::Interleaved => (2 * pair, 2 * pair + 1),
                RopeStyle::HalfSplit => (pair, pair + rope.rotated / 2),
            };
            out.chunks_exact_mut(width).for_each(|head| turn_pair(head, a, b, turn));
        }
    });
}

fn turn_pair(head: &mut [f32], a: usize, b: usize, [sin, cos]: [f64; 2]) {
    let [x, y] = [head[a], head[b]].map(f64::from);
    head[a] = (x * cos - y * sin) as f32;
    head[b] = (x * sin + y * cos) as f32;
}
