//! Values get slots: two values share one when the first is dead before the second is born.

use crate::op::Description;

/// For each value its slot, and the width of each slot. A value lives from the op that writes it to the last that
/// reads it; an op's outputs never share a slot with its inputs. The hidden state lives to the end.
pub(super) fn assign(d: &Description, widths: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let mut last = vec![0; widths.len()];
    for (i, o) in d.ops.iter().enumerate() {
        o.inputs.iter().chain(&o.outputs).for_each(|v| last[*v] = i);
    }
    d.hidden.iter().for_each(|v| last[*v] = d.ops.len());
    let mut slot_of = vec![usize::MAX; widths.len()];
    let mut slots: Vec<usize> = vec![];
    let mut free: Vec<usize> = vec![];
    for (i, o) in d.ops.iter().enumerate() {
        for &v in &o.outputs {
            let slot = take(&mut free, &mut slots, widths[v]);
            slot_of[v] = slot;
        }
        let dead = |v: &&usize| last[**v] == i;
        let mut done: Vec<usize> =
            o.inputs.iter().chain(&o.outputs).filter(dead).map(|v| slot_of[*v]).collect();
        done.sort_unstable();
        done.dedup();
        free.extend(done);
    }
    (slot_of, slots)
}

/// The free slot that fits best: the smallest that is wide enough, else the widest, made wider.
fn take(free: &mut Vec<usize>, slots: &mut Vec<usize>, width: usize) -> usize {
    let fits = (0..free.len()).filter(|i| slots[free[*i]] >= width).min_by_key(|i| slots[free[*i]]);
    let best = fits.or_else(|| (0..free.len()).max_by_key(|i| slots[free[*i]]));
    match best {
        Some(i) => {
            let slot = free.swap_remove(i);
            slots[slot] = slots[slot].max(width);
            slot
        }
        None => {
            slots.push(width);
            slots.len() - 1
        }
    }
}
