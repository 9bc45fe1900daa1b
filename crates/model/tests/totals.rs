//! What descriptions and recipes add up to, against published numbers and the specified sizes of GLM-5.2's file.
#![allow(clippy::unwrap_used)]

mod util;

use shardwright_gguf::QuantType;
use shardwright_model::arch;
use shardwright_model::budget::Held;
use shardwright_model::cost::{self, Component};
use shardwright_model::hyper::Options;
use shardwright_model::op::{Cut, Kind, Weight};
use shardwright_model::presets;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use util::{golden, header, planned, preset};

/// All weights once, those that a token reads, sums over ranks with the embedding whole and dealt.
fn totals(name: &str) -> [u64; 4] {
    let p = preset(name, &[]);
    let h = p.hyper(Options::default()).unwrap();
    let d = arch::describe(&h);
    let mut seen = HashSet::new();
    let all: u64 = d.weights().filter(|w| seen.insert((&w.name, w.skip))).map(Weight::params).sum();
    let read = d.ops.iter().map(|op| {
        let sum: u64 = op.weights.iter().map(Weight::params).sum();
        match op.kind {
            Kind::Embed => 0,
            Kind::Experts { used } => sum * used as u64 / op.weights[0].copies as u64,
            _ => sum,
        }
    });
    let dealt = p.hyper(Options { deal_embedding: true, ..Options::default() }).unwrap();
    [all, read.sum(), d.sums() as u64, arch::describe(&dealt).sums() as u64]
}

#[test]
fn descriptions_alone_yield_the_published_sizes() {
    let mut text = String::from("model                 weights          read a token     sums  dealt\n");
    for (name, _) in presets::all().filter(|p| !p.0.starts_with("tiny")) {
        let [all, read, sums, dealt] = totals(name);
        let _ = writeln!(text, "{name:18}{all:>17}{read:>17}{sums:>8}{dealt:>7}");
    }
    golden("totals.txt", &text);
    // published: 744B-A40B, 671B, 8B; the spec gives GLM-5's trunk to the weight
    let billions = |n: u64, digits: i32| (n as f64 / 10f64.powi(9 - digits)).round() / 10f64.powi(digits);
    let check = |name, all, read, sums| {
        let [a, r, s, d] = totals(name);
        assert_eq!((billions(a, 2), billions(r, 2), s, d), (all, read, sums, sums + 1), "{name}");
    };
    assert_eq!(totals("glm-5")[0], 743_911_218_432);
    check("glm-5", 743.91, 40.83, 156);
    check("glm-5.2", 743.38, 40.30, 156);
    check("deepseek-v3", 671.03, 36.63, 122);
    check("llama-3-8b", 8.03, 7.50, 64);
    check("glm-4.7-flash", 29.94, 3.58, 94);
}

#[test]
fn the_recipe_of_glm_52_has_the_published_size_to_the_byte() {
    let h = header("glm-5.2", &[], "ud-q4_k_xl");
    assert_eq!(h.tensors().len(), 1809);
    assert_eq!(h.bytes(), 467_279_569_920);
    assert_eq!(h.params(), 753_864_139_008);
    let mut types: BTreeMap<&str, usize> = BTreeMap::new();
    h.tensors().iter().for_each(|t| *types.entry(t.quant.name()).or_default() += 1);
    assert_eq!(types, [("F32", 709), ("Q4_K", 150), ("Q5_K", 74), ("Q6_K", 4), ("Q8_0", 872)].into());
    let size = |name: &str| h.tensor(name).unwrap().bytes;
    let check = |name: &str, bytes| assert_eq!(size(name), bytes, "{name}");
    check("token_embd.weight", 1_011_056_640);
    check("blk.5.attn_q_b.weight", 35_651_584);
    check("blk.78.attn_k_b.weight", 6_684_672);
    check("blk.78.indexer.proj.weight", 786_432);
    check("blk.3.ffn_gate_inp.weight", 6_291_456);
    check("blk.3.ffn_gate_exps.weight", 1_811_939_328);
    check("blk.3.ffn_down_exps.weight", 2_214_592_512);
    check("blk.78.nextn.eh_proj.weight", 80_216_064);
    // "all experts Q4_K and the rest as above gives 434.2e9 bytes"
    let mut even = h.clone();
    assert_eq!(even.retype("_exps.", QuantType::Q4_K).unwrap(), 228);
    assert_eq!(even.bytes(), 434_161_345_536);
}

/// Bytes that each component reads for a token on rank 0 of `ranks`.
fn reads(name: &str, recipe: &str, ranks: usize) -> BTreeMap<Component, u64> {
    let h = header(name, &[], recipe);
    let d = arch::describe(&h.hyper);
    let plans = planned(&h, &d, ranks).unwrap();
    cost::by_component(&d, &plans[0], 0, 2).into_iter().map(|(c, cost)| (c, cost.weights)).collect()
}

fn sum_without_embedding(parts: &BTreeMap<Component, u64>) -> u64 {
    parts.iter().filter(|(c, _)| **c != Component::Embedding).map(|(_, n)| n).sum()
}

#[test]
fn decode_reads_what_the_table_of_sizes_says() {
    let five = reads("glm-5", "ud-q4_k_xl-regular", 1);
    let five_two = reads("glm-5.2", "ud-q4_k_xl-regular", 1);
    let attention = |r: &BTreeMap<Component, u64>| r[&Component::Attention] + r[&Component::Norms];
    let final_norm = 24_576;
    assert_eq!(attention(&five), 13_680_635_904 + final_norm);
    assert_eq!(five[&Component::Indexer], 821_803_008);
    assert_eq!(five_two[&Component::Indexer], 221_254_656);
    assert_eq!(five[&Component::Dense], 721_944_576);
    let moe = [Component::Router, Component::Experts, Component::Shared];
    assert_eq!(moe.map(|c| five[&c] / 75), [6_292_480, 182_452_224, 40_108_032]);
    assert_eq!(five[&Component::Head] + final_norm, 1_011_081_216);
    assert_eq!(five[&Component::Embedding], 6528); // one row of Q8_0
    assert_eq!(sum_without_embedding(&five), 33_399_419_904);
    assert_eq!(sum_without_embedding(&five_two), 32_798_871_552);
    let all_q4 = {
        let mut h = header("glm-5", &[], "ud-q4_k_xl");
        h.retype("_exps.", QuantType::Q4_K).unwrap();
        let d = arch::describe(&h.hyper);
        let plans = planned(&h, &d, 1).unwrap();
        let parts = cost::by_component(&d, &plans[0], 0, 2);
        sum_without_embedding(&parts.into_iter().map(|(c, cost)| (c, cost.weights)).collect())
    };
    assert_eq!(all_q4, 32_455_701_504);
}

#[test]
fn ranks_read_and_hold_what_the_tables_of_tensor_parallelism_say() {
    let giga = |n: u64| (n as f64 / 1e7).round() / 100.0;
    for (ranks, want) in [(1, 33.40), (2, 18.02), (4, 10.33), (8, 6.48)] {
        assert_eq!(giga(sum_without_embedding(&reads("glm-5", "ud-q4_k_xl-regular", ranks))), want);
    }
    assert_eq!(giga(sum_without_embedding(&reads("glm-5.2", "ud-q4_k_xl-regular", 8))), 5.88);

    // the tables are of the regular recipe
    let h = header("glm-5", &[], "ud-q4_k_xl-regular");
    let d = arch::describe(&h.hyper);
    let draft = arch::draft(&h.hyper).unwrap();
    // GiB of the next-token layer as the table rounds them
    for (ranks, trunk, mtp) in [(8, 59.51, 0.81), (4, 116.4, 1.5), (2, 230.1, 2.9)] {
        let (t, m) = (planned(&h, &d, ranks).unwrap(), planned(&h, &draft, ranks).unwrap());
        let held = Held::of(&t[0], Some(&m[0]), 2);
        let own = held.weights() - held.weights[&Component::Draft] - held.weights[&Component::Embedding];
        assert!((own as f64 / 1e9 - trunk).abs() < 0.06, "{ranks}: {own}");
        let gib = held.weights[&Component::Draft] as f64 / f64::from(1 << 30);
        assert!((gib - mtp).abs() < 0.06, "{ranks}: {gib}");
        assert_eq!(held.weights[&Component::Embedding], 1_011_056_640);
        // 576 elements of latent and 128 of index keys a layer, the same on each rank; the next-token layer's latent
        assert_eq!(held.cache_a_token, 89_856 + 19_968 + 1_152);
    }
    let whole: u64 = replicated(&h, &d);
    assert_eq!(giga(whole), 2.63);
}

/// Bytes of the weights that every rank holds whole, the embedding aside.
fn replicated(h: &presets::Header, d: &shardwright_model::op::Description) -> u64 {
    let ops = d.ops.iter().filter(|o| o.kind != Kind::Embed);
    let whole = ops.flat_map(|o| &o.weights).filter(|w| w.cut == Cut::Whole);
    whole.map(|w| h.tensor(&w.name).unwrap().bytes).sum()
}

#[test]
fn cache_reads_grow_with_the_position_until_sparse_attention_caps_them() {
    let h = header("glm-5", &[], "ud-q4_k_xl");
    let d = arch::describe(&h.hyper);
    let plans = planned(&h, &d, 8).unwrap();
    let cache = |position: u64, c| cost::by_component(&d, &plans[3], position, 2)[&c].cache;
    assert_eq!(cache(0, Component::Attention), 78 * 576 * 2);
    assert_eq!(cache(2047, Component::Attention), 2048 * 89_856); // 184 MB a token
    assert_eq!(cache(99_999, Component::Attention), 2048 * 89_856);
    assert_eq!(cache(99_999, Component::Indexer), 100_000 * 19_968); // 2.0e9 at 100k
}

#[test]
fn a_dealt_embedding_is_counted_by_its_share_and_a_tied_head_once() {
    let p = preset("smollm2-135m", &[]);
    let recipe = presets::Recipe::find("bf16").unwrap();
    let h = p.header(recipe, Options::default()).unwrap();
    let d = arch::describe(&h.hyper);
    let one = Held::of(&planned(&h, &d, 1).unwrap()[0], None, 2);
    assert_eq!(one.weights(), h.bytes());
    assert_eq!(h.params(), 134_515_008);
    let three = planned(&h, &d, 3).unwrap();
    let held: Vec<u64> = three.iter().map(|p| Held::of(p, None, 2).weights[&Component::Embedding]).collect();
    assert_eq!(held, [2 * 49_152 * 576; 3]);
    assert!(three.iter().all(|p| !Held::of(p, None, 2).weights.contains_key(&Component::Head)));
}
