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
    swiglu(step, Rows::new(g, inner, m), Rows::new(u, inner, m), a);
    let out = sized(&mut b.down, m * x.width);
    product(step, &of(down), Rows::new(a, inner, m), None, out, products);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::team::Team;
    use crate::testing::{Random, plain, stacks, step};
    use shardwright_gguf::QuantType;
    use shardwright_model::exec::StepBatch;

    const EXPERTS: usize = 8;
    const WIDTH: usize = 256;
    const INNER: usize = 512;

    /// `used` experts a row: expert 7 gets all rows, expert 6 none.
    fn picks(used: usize, m: usize, random: &mut Random) -> Vec<f32> {
        let one = |_| {
            let mut ids: Vec<usize> = if used == EXPERTS { (0..EXPERTS).collect() } else { vec![7] };
            while ids.len() < used {
                let e = random.bits() as usize % 6;
                if !ids.contains(&e) {
                    ids.push(e);
                }
            }
            ids.sort_unstable();
            let weights: Vec<f32> = ids.iter().map(|_| random.number()).collect();
            ids.into_iter().map(|e| e as f32).chain(weights).collect::<Vec<f32>>()
        };
        (0..m).flat_map(one).collect()
    }

    fn check(quant: QuantType) {
        let mut random = Random(11);
        let shapes = [[EXPERTS, INNER, WIDTH], [EXPERTS, INNER, WIDTH], [EXPERTS, WIDTH, INNER]];
        let (reader, w) = stacks(quant, &shapes, &mut random);
        let (batch, team) = (StepBatch::default(), Team::new(2).unwrap());
        for (used, m) in [(1, 1), (2, 3), (2, 64), (8, 9), (8, 129)] {
            let (x, picked) = (random.numbers(m * WIDTH), picks(used, m, &mut random));
            let mut out = vec![f32::NAN; m * WIDTH];
            let inputs = [Rows::new(&x, WIDTH, m), Rows::new(&picked, 2 * used, m)];
            let (mut b, mut p) = (Buffers::default(), product::Buffers::default());
            experts(&step(&reader, &batch, &team), used, &w, inputs, &mut out, &mut b, &mut p);
            for i in [0, m - 1] {
                let x: Vec<f64> = inputs[0].row(i).iter().map(|v| f64::from(*v)).collect();
                let mut want = vec![(0.0, 0.0); WIDTH];
                for j in 0..used {
                    let (e, weight) = (picked[i * 2 * used + j] as usize, picked[i * 2 * used + used + j]);
                    let [gate, up] = [0, 1].map(|s| plain(&w[s], &reader, e, &x));
                    let act = gate.iter().zip(up).map(|(g, u)| g.0 / (1.0 + (-g.0).exp()) * u.0);
                    let down = plain(&w[2], &reader, e, &act.collect::<Vec<f64>>());
                    for (want, (y, size)) in want.iter_mut().zip(down) {
                        want.0 += f64::from(weight) * y;
                        want.1 += f64::from(weight).abs() * size;
                    }
                }
                for (got, (want, size)) in out[i * WIDTH..].iter().zip(want) {
                    let off = (f64::from(*got) - want).abs();
                    assert!(off <= 1e-5 * size, "{quant}, {used} of {m}: {got}, not {want}");
                }
            }
        }
    }

    #[test]
    fn q4_experts_of_every_type_are_as_exact_as_dense_products() {
        QuantType::ALL.iter().filter(|q| q.is_weight()).for_each(|q| check(*q));
    }
}
