//! The kernels of a GPU, by the share of its memory's speed that they reach.

use super::How;
use crate::progress::Progress;
use crate::table::Table;
use anyhow::Context;
use shardwright_cuda::measure::{Matrix, Measure};
use shardwright_gguf::QuantType;
use std::io::Write;

/// Matrices of GLM-5 and of one rank of eight, as files have them.
const MATRICES: [(&str, QuantType, usize, usize); 12] = [
    ("attn_q_a + attn_kv_a_mqa", QuantType::Q8_0, 6144, 2624),
    ("attn_q_b", QuantType::Q8_0, 2048, 16384),
    ("attn_q_b, 1/8", QuantType::Q8_0, 2048, 2048),
    ("attn_output", QuantType::Q8_0, 16384, 6144),
    ("attn_output, 1/8", QuantType::Q8_0, 2048, 6144),
    ("ffn_gate_inp", QuantType::F32, 6144, 256),
    ("ffn_gate_shexp", QuantType::Q8_0, 6144, 2048),
    ("ffn_gate_exps of 8, 1/8", QuantType::Q4_K, 6144, 2048),
    ("ffn_gate_exps of 8", QuantType::Q4_K, 6144, 16384),
    ("ffn_down_exps of 8, as one", QuantType::Q5_K, 2048, 49152),
    ("output, 1/8", QuantType::Q6_K, 6144, 19360),
    ("output", QuantType::Q6_K, 6144, 154_880),
];

/// Bytes of weights that go by before one comes again.
const BYTES: usize = 3 << 30;

/// Cards one after the other.
pub(super) fn run(cards: &[usize], how: &How) -> anyhow::Result<()> {
    cards.iter().try_for_each(|card| of_card(*card, how))
}

fn of_card(index: usize, how: &How) -> anyhow::Result<()> {
    let mut gpu = crate::gpu::open(&[index], how.multiprocessors)?.swap_remove(0);
    let (name, peak) = (gpu.info().name.clone(), gpu.info().bandwidth as f64);
    let free = usize::try_from(gpu.free_memory()?).context("free memory")?;
    let mut table = Table::new(2, ["matrix", "type", "rows", "us", "GB/s", "% of peak"]);
    let mut json = Vec::new();
    let mut progress = Progress::new("matrices", MATRICES.len() * 3);
    let mut measure = Measure::new(&mut gpu, BYTES.min(free / 4), 154_880)?;
    for (n, (matrix, quant, cols, outs)) in MATRICES.iter().enumerate() {
        for (k, rows) in [1, 2, 4].into_iter().enumerate() {
            let m = Matrix { quant: *quant, cols: *cols, outs: *outs };
            let (seconds, bytes) = (measure.product(&m, rows)?, m.bytes()? as f64);
            let share = bytes / seconds / peak;
            let (us, rate) = (seconds * 1e6, bytes / seconds / 1e9);
            table.row([
                (*matrix).to_owned(),
                quant.to_string(),
                rows.to_string(),
                format!("{us:.2}"),
                format!("{rate:.0}"),
                format!("{:.0}", share * 100.0),
            ]);
            json.push(serde_json::json!({ "name": matrix, "type": quant.to_string(), "rows": rows,
                                          "us": us, "bytes": bytes, "share_of_roofline": share }));
            progress.at(n * 3 + k + 1);
        }
    }
    drop(progress);
    let mut out = std::io::stdout();
    if how.json {
        let mut report = super::report(Some(&name), json);
        report["device"] = index.into();
        return Ok(writeln!(out, "{report}")?);
    }
    Ok(write!(out, "GPU {index}: {name}, {:.2} TB/s\n{table}", peak / 1e12)?)
}
