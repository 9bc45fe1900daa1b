//! Weights that are made up: where a shape is measured, its numbers only have to be as varied as those of a model.

use std::collections::HashMap;

use shardwright_gguf::QuantType;
use shardwright_model::plan::LocalWeight;
use shardwright_model::synth::random::{Rng, fill};

use crate::planes::lay;

/// Bytes after which a weight's rows may begin again. A router and all heads of an indexer are shorter: with rows that are alike, all
/// tokens would go to the same experts, and positions would have the same score.
const PERIOD: usize = 9 << 20;

/// Random rows by their type and length, so many of them.
#[derive(Default)]
pub(crate) struct MadeUp(HashMap<(QuantType, usize), (usize, Vec<u8>)>);

impl MadeUp {
    /// Rows as they lie on the device, of which a weight takes the first, again and again.
    pub(crate) fn rows(&mut self, w: &LocalWeight) -> &[u8] {
        let bytes = row_bytes(w);
        let all = w.copies.len() * w.rows.len();
        // an odd number, so that neither heads nor experts begin at the same one
        let wanted = (PERIOD / bytes).min(all) | 1;
        let (_, rows) = self
            .0
            .entry((w.quant, w.cols.len()))
            .and_modify(|(count, rows)| {
                if *count < wanted {
                    (*count, *rows) = (wanted, random(w, wanted));
                }
            })
            .or_insert_with(|| (wanted, random(w, wanted)));
        rows
    }
}

/// A rank may hold no columns: then a block.
fn row_bytes(w: &LocalWeight) -> usize {
    if w.cols.is_empty() { w.quant.block_bytes() } else { w.bytes_a_row() }
}

fn random(w: &LocalWeight, count: usize) -> Vec<u8> {
    let bytes = row_bytes(w);
    let mut rows = vec![0; bytes * count];
    let std = 1.0 / (w.cols.len().max(1) as f32).sqrt();
    fill(w.quant, std, &mut Rng::new(1, w.quant.name()), &mut rows);
    let mut laid = Vec::with_capacity(rows.len());
    rows.chunks_exact(bytes).for_each(|row| lay(w.quant, row, &mut laid));
    laid
}
