//! A replica of GLM-5.2 in its true size, without its data, opens in a moment: headers only are read.
//!
//! One test only in this binary, so that its peak memory is that of the reader.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;

use std::time::{Duration, Instant};

use common::peak_memory;
use shardwright_gguf::{Meta, QuantType, Reader, Split, Strings, Writer};

const VOCAB: u64 = 154_880;

fn meta() -> Meta {
    let mut meta = Meta::new();
    meta.set("general.architecture", "glm-dsa");
    meta.set("tokenizer.ggml.tokens", (0..VOCAB).map(|i| format!("token{i}")).collect::<Strings>());
    meta.set("tokenizer.ggml.token_type", vec![1i32; VOCAB as usize]);
    meta.set("tokenizer.ggml.merges", (0..321_000).map(|i| format!("le{i} ft{i}")).collect::<Strings>());
    meta
}

/// Name, type and dimensions of the tensors of one layer.
fn layer(l: u64) -> Vec<(&'static str, QuantType, Vec<u64>)> {
    use QuantType::{F32, Q4_K, Q5_K, Q8_0};
    let mut list = vec![
        ("attn_norm.weight", F32, vec![6144]),
        ("attn_q_a.weight", Q8_0, vec![6144, 2048]),
        ("attn_q_a_norm.weight", F32, vec![2048]),
        ("attn_q_b.weight", Q8_0, vec![2048, 16_384]),
        ("attn_kv_a_mqa.weight", Q8_0, vec![6144, 576]),
        ("attn_kv_a_norm.weight", F32, vec![512]),
        ("attn_k_b.weight", Q8_0, vec![192, 512, 64]),
        ("attn_v_b.weight", Q8_0, vec![512, 256, 64]),
        ("attn_output.weight", Q8_0, vec![16_384, 6144]),
        ("indexer.k_norm.weight", F32, vec![128]),
        ("indexer.k_norm.bias", F32, vec![128]),
        ("indexer.proj.weight", F32, vec![6144, 32]),
        ("indexer.attn_k.weight", Q8_0, vec![6144, 128]),
        ("indexer.attn_q_b.weight", Q8_0, vec![2048, 4096]),
        ("ffn_norm.weight", F32, vec![6144]),
    ];
    list.extend(match l {
        0..3 => vec![
            ("ffn_gate.weight", Q8_0, vec![6144, 12_288]),
            ("ffn_up.weight", Q8_0, vec![6144, 12_288]),
            ("ffn_down.weight", Q8_0, vec![12_288, 6144]),
        ],
        _ => vec![
            ("ffn_gate_inp.weight", F32, vec![6144, 256]),
            ("exp_probs_b.bias", F32, vec![256]),
            ("ffn_gate_exps.weight", Q4_K, vec![6144, 2048, 256]),
            ("ffn_up_exps.weight", Q4_K, vec![6144, 2048, 256]),
            ("ffn_down_exps.weight", if l < 10 { Q5_K } else { Q4_K }, vec![2048, 6144, 256]),
            ("ffn_gate_shexp.weight", Q8_0, vec![6144, 2048]),
            ("ffn_up_shexp.weight", Q8_0, vec![6144, 2048]),
            ("ffn_down_shexp.weight", Q8_0, vec![2048, 6144]),
        ],
    });
    if l == 78 {
        list.extend([
            ("nextn.eh_proj.weight", Q8_0, vec![12_288, 6144]),
            ("nextn.enorm.weight", F32, vec![6144]),
            ("nextn.hnorm.weight", F32, vec![6144]),
            ("nextn.shared_head_norm.weight", F32, vec![6144]),
        ]);
    }
    list
}

fn replica() -> Writer {
    let split = Split { max_bytes: Some(48_000_000_000), metadata_first: true, ..Split::default() };
    let mut writer = Writer::new(meta()).unwrap().split(split);
    writer.tensor("token_embd.weight", QuantType::Q4_K, &[6144, VOCAB]).unwrap();
    writer.tensor("output.weight", QuantType::Q6_K, &[6144, VOCAB]).unwrap();
    writer.tensor("output_norm.weight", QuantType::F32, &[6144]).unwrap();
    for l in 0..79 {
        for (name, quant, ne) in layer(l) {
            writer.tensor(&format!("blk.{l}.{name}"), quant, &ne).unwrap();
        }
    }
    writer
}

#[test]
fn a_model_of_436_gb_opens_in_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let paths = replica().write_sparse(&folder.path().join("GLM-5.2-UD-Q4_K_XL.gguf")).unwrap();
    let start = Instant::now();
    let reader = Reader::open(&paths[4]).unwrap();
    let took = start.elapsed();
    assert_eq!(paths.len(), 11, "{} bytes", reader.total_bytes());
    assert_eq!(reader.tensors().len(), 1809);
    assert_eq!(reader.total_bytes() / 1_000_000_000, 436, "{} bytes", reader.total_bytes());
    assert_eq!(reader.meta().need_strings("tokenizer.ggml.tokens").unwrap().len() as u64, VOCAB);
    assert!(took < Duration::from_secs(1), "opening took {took:?}");
    let last = reader.tensor("blk.78.nextn.shared_head_norm.weight").unwrap();
    assert!(reader.bytes(last).iter().all(|&b| b == 0));
    assert!(peak_memory() < 200 << 20, "peak memory {} MiB", peak_memory() >> 20);
}
