//! How headers become numbers and descriptions: the rules for missing keys, and the printed descriptions of one tiny
//! model of each architecture.
#![allow(clippy::unwrap_used)]

mod util;

use shardwright_gguf::Value;
use shardwright_model::hyper::{Attention, Draft, Hyper, Indexer, Mla, Options, Source};
use shardwright_model::op::{Gating, GroupScore, Kind, RopeStyle};
use shardwright_model::{arch, dump, presets};
use util::{golden, header, meta, planned, preset, read};

fn mla(h: &Hyper) -> &Mla {
    match &h.attention {
        Attention::Mla(m) => m,
        Attention::Gqa(_) => panic!("latent attention expected"),
    }
}

fn numbers(name: &str, keys: &[(&str, &str)]) -> Hyper {
    preset(name, keys).hyper(Options::default()).unwrap()
}

#[test]
fn tiny_models_are_described_as_before() {
    for (name, _) in presets::all().filter(|p| p.0.starts_with("tiny")) {
        let h = header(name, &[], "q4_k_m");
        let d = arch::describe(&h.hyper);
        let mut text = dump::description(&d);
        if let Some(draft) = arch::draft(&h.hyper) {
            text += &format!("\nnext-token layer\n{}", dump::description(&draft));
        }
        text += &format!("\n{}", dump::rank_plan(&d, &planned(&h, &d, 2).unwrap()[1]));
        golden(&format!("{name}.txt"), &text);
    }
}

#[test]
fn numbers_are_printed_as_before() {
    golden("hyper.txt", &dump::hyper(&numbers("glm-5.2", &[])));
}

#[test]
fn m1_a_missing_gating_function_is_decided_by_the_selection_bias_and_said() {
    let unsaid = meta("tiny-deepseek2", &["expert_gating_func"], &[]);
    let cases = [
        (&["exp_probs_b.bias"][..], Gating::Sigmoid, "have a selection bias"),
        // one layer that has it is enough, the first may lack it
        (&["blk.2.exp_probs_b.bias"][..], Gating::Sigmoid, "have a selection bias"),
        (&[][..], Gating::Softmax, "no layer has a selection bias"),
    ];
    for (tensors, want, why) in cases {
        let h = read(&unsaid, tensors).unwrap();
        assert_eq!(h.moe.as_ref().unwrap().routing.gating, want);
        assert_eq!(h.moe.as_ref().unwrap().bias, want == Gating::Sigmoid);
        assert!(h.notes.iter().any(|n| n.contains(why)), "{:?}", h.notes);
    }
    let said = |n| read(&meta("tiny-deepseek2", &[], &[("expert_gating_func", n)]), &["exp_probs_b.bias"]);
    assert_eq!(said("1").unwrap().moe.unwrap().routing.gating, Gating::Softmax);
    assert_eq!(said("2").unwrap().moe.unwrap().routing.gating, Gating::Sigmoid);
    assert!(said("2").unwrap().notes.is_empty());
    let text = said("9").unwrap_err().to_string();
    assert_eq!(text, "`deepseek2.expert_gating_func` is 9, but must be 1 (softmax) or 2 (sigmoid)");
}

#[test]
fn m2_groups_are_scored_by_their_best_two_or_in_v2_by_their_best() {
    let groups = |h: Hyper| h.moe.unwrap().routing.groups;
    assert_eq!(groups(numbers("deepseek-v3", &[])), Some((8, 4, GroupScore::BestTwo)));
    let v2 = numbers("deepseek-v2", &[("expert_group_count", "8"), ("expert_group_used_count", "3")]);
    assert_eq!(groups(v2), Some((8, 3, GroupScore::Max)));
    assert_eq!(groups(numbers("deepseek-v2", &[])), None);
    assert_eq!(groups(numbers("kimi-k2", &[])), None);
}

#[test]
fn m3_yarn_scales_the_scores_of_latent_attention() {
    let check = |name: &str, keys: &[(&str, &str)], want: f32| {
        let scale = mla(&numbers(name, keys)).scale;
        assert!((scale - want).abs() < 2e-7, "{name}: {scale} {want}");
    };
    check("deepseek-v3", &[], 0.135_233_8);
    check("deepseek-v2", &[], 0.114_721_4);
    check("kimi-k2", &[], 0.130_860_8);
    check("kimi-k2", &[("rope.scaling.factor", "64")], 0.144_679_6);
    check("glm-5", &[], 0.0625);
}

#[test]
fn m3_yarn_frequencies_are_those_of_the_table() {
    let h = numbers("deepseek-v3", &[]);
    let rope = &mla(&h).rope;
    assert_eq!((rope.magnitude, rope.freqs.len()), (1.0, 32));
    let check = |pair: usize, want: f64| {
        let got = f64::from(rope.freqs[pair]);
        assert!((got / want - 1.0).abs() < 1e-6, "pair {pair}: {got} {want}");
    };
    check(0, 1.0);
    check(10, 0.056_234_133);
    check(15, 0.008_334_509);
    check(22, 1.778_279_4e-4);
    check(31, 3.333_803_6e-6);
    let plain = |i: i32| 10_000f64.powf(-2.0 * f64::from(i) / 64.0);
    check(9, plain(9));
    check(24, plain(24) / 40.0);
    // beta_fast and beta_slow count where the file has them: Kimi-K2's are both 1, its ramp is one pair wide
    let kimi = [("rope.scaling.yarn_beta_fast", "1.0"), ("rope.scaling.yarn_beta_slow", "1.0")];
    let h = numbers("kimi-k2", &kimi);
    let base = |i: i32| 50_000f64.powf(-2.0 * f64::from(i) / 64.0);
    let got = |i: usize| f64::from(mla(&h).rope.freqs[i]);
    assert!((got(19) / base(19) - 1.0).abs() < 1e-6);
    assert!((got(20) / (base(20) / 32.0) - 1.0).abs() < 1e-6);
}

fn indexer(h: &Hyper) -> &Indexer {
    mla(h).indexer.as_ref().expect("an indexer")
}

/// The layers that select.
fn selecting(h: &Hyper) -> Vec<usize> {
    let full = &indexer(h).full;
    (0..full.len()).filter(|l| full[*l]).collect()
}

#[test]
fn m4_the_selecting_layers_are_those_of_the_file() {
    let of_52: Vec<usize> = [0, 1].into_iter().chain((2..=74).step_by(4)).collect();
    assert_eq!(of_52.len(), 21);
    assert_eq!(selecting(&numbers("glm-5.2", &[])), of_52);
    assert_eq!(selecting(&numbers("glm-5", &[])).len(), 78);
    // files in circulation carry the tensors on all layers and lack the key
    let keyless = meta("glm-5.2", &["indexer.types"], &[]);
    let everywhere = read(&keyless, &["indexer.proj.weight", "output.weight"]).unwrap();
    assert_eq!(selecting(&everywhere), of_52);
    assert!(everywhere.notes[0].contains("by context length"), "{:?}", everywhere.notes);
    // the official checkpoint carries them on the selecting layers only
    let some = ["blk.0.indexer.proj.weight", "blk.7.indexer.proj.weight"];
    assert_eq!(selecting(&read(&keyless, &some).unwrap()), [0, 7]);
    // the key wins
    let mut keyed = meta("tiny-glm-5.2", &[], &[]);
    keyed.set("glm-dsa.attention.indexer.types", vec![1u32, 0, 1, 0, 0, 0, 1]);
    assert_eq!(selecting(&read(&keyed, &["indexer.proj.weight"]).unwrap()), [0, 2, 6]);
    keyed.set("glm-dsa.attention.indexer.types", vec![0u32, 0, 1, 0, 0, 0, 1]);
    assert!(read(&keyed, &[]).unwrap_err().to_string().contains("full in the first layer"));
}

#[test]
fn m4_layers_that_share_a_selection_read_the_last_one_made() {
    let h = numbers("tiny-glm-5.2", &[]);
    let d = arch::describe(&h);
    let mut last = None;
    let mut read_from = vec![];
    for op in &d.ops {
        match op.kind {
            Kind::Index { .. } => last = op.outputs.first().copied(),
            Kind::AttendMla { .. } => {
                assert_eq!(op.inputs.get(4).copied(), last);
                read_from.push(d.values[last.unwrap()].layer.unwrap());
            }
            _ => {}
        }
    }
    assert_eq!(read_from, [0, 1, 2, 2, 2, 2, 6]);
    let keys: Vec<usize> = d.caches.iter().filter(|c| c.name == "index_key").map(|c| c.layer).collect();
    assert_eq!(keys, [0, 1, 2, 6]);
}

#[test]
fn m4_the_indexer_rotates_pairs_in_glm_and_halves_in_deepseek() {
    assert_eq!(indexer(&numbers("glm-5", &[])).rope.style, RopeStyle::Interleaved);
    assert_eq!(indexer(&numbers("deepseek-v3.2", &[])).rope.style, RopeStyle::HalfSplit);
    let d = arch::describe(&numbers("tiny-glm-dsa", &[]));
    let eps = d.ops.iter().find_map(|o| if let Kind::LayerNorm { eps } = o.kind { Some(eps) } else { None });
    assert_eq!(eps, Some(1e-6));
    let dense = Options { dense_attention: true, ..Options::default() };
    let h = preset("tiny-glm-dsa", &[]).hyper(dense).unwrap();
    assert!(mla(&h).indexer.is_none() && h.notes[0].contains("dense"));
    // a file without an indexer
    let without = meta("tiny-glm-dsa", &["head_count", "key_length", "top_k"], &[]);
    let mut m = without.clone();
    m.set("glm-dsa.attention.head_count", 8u32);
    m.set("glm-dsa.attention.key_length", 288u32);
    assert!(mla(&read(&m, &["exp_probs_b.bias"]).unwrap()).indexer.is_none());
}

#[test]
fn m5_old_and_new_latent_layouts_cache_the_same_and_cut_the_same_heads() {
    let new = numbers("tiny-deepseek2", &[]);
    let mut old_meta = meta("tiny-deepseek2", &["key_length_mla", "value_length_mla"], &[]);
    for (key, n) in [("head_count_kv", 8u32), ("key_length", 96), ("value_length", 64)] {
        old_meta.set(&format!("deepseek2.attention.{key}"), n);
    }
    let old = read(&old_meta, &["exp_probs_b.bias", "output.weight"]).unwrap();
    assert_eq!((mla(&new).nope, mla(&new).value, mla(&new).latent), (64, 64, 256));
    assert_eq!(Mla { fused_kv_b: false, ..mla(&old).clone() }, *mla(&new));
    let (d_old, d_new) = (arch::describe(&old), arch::describe(&new));
    assert_eq!(d_old.caches, d_new.caches);
    let params = |d: &shardwright_model::op::Description| d.weights().map(|w| w.params()).sum::<u64>();
    assert_eq!(params(&d_old), params(&d_new));
    let parts: Vec<_> = d_old.weights().filter(|w| w.name == "blk.0.attn_kv_b.weight").collect();
    assert_eq!(
        parts.iter().map(|w| (w.skip, w.rows, w.file_rows)).collect::<Vec<_>>(),
        [(0, 64, 128), (64, 64, 128)]
    );
    assert_eq!(parts[0].ne, [256, 128 * 8]);
    // half of the latent form is no form
    let half = meta("tiny-deepseek2", &["value_length_mla"], &[]);
    assert!(read(&half, &[]).unwrap_err().to_string().contains("value_length_mla"));
}

#[test]
fn a_next_token_layer_is_taken_as_the_file_has_it() {
    let m = meta("tiny-glm4moe", &[], &[]);
    let own = ["nextn.eh_proj.weight", "nextn.shared_head_norm.weight", "output.weight"];
    let names = |tensors: &[&str]| {
        let h = read(&m, tensors).unwrap();
        let d = arch::draft(&h).map(|d| d.weights().map(|w| w.name.clone()).collect::<Vec<_>>());
        (h.draft, d.unwrap_or_default())
    };
    // announced, but not in the file: the trunk alone
    assert_eq!(names(&["output.weight"]), (None, vec![]));
    let draft = Draft { own_embedding: false, own_norm: true, own_head: false };
    let check = |extra: &[&str], draft: Draft, there: &[&str]| {
        let all: Vec<&str> = own.iter().copied().chain(extra.iter().copied()).collect();
        let (found, weights) = names(&all);
        assert_eq!(found, Some(draft), "{extra:?}");
        there.iter().for_each(|n| assert!(weights.iter().any(|w| w == n), "{n} in {weights:?}"));
    };
    check(&[], draft, &["token_embd.weight", "blk.3.nextn.shared_head_norm.weight", "output.weight"]);
    check(
        &["nextn.embed_tokens.weight", "nextn.shared_head_head.weight"],
        Draft { own_embedding: true, own_head: true, ..draft },
        &[
            "blk.3.nextn.embed_tokens.weight",
            "blk.3.nextn.shared_head_head.weight",
            "blk.3.nextn.eh_proj.weight",
        ],
    );
    let without_norm = ["nextn.eh_proj.weight", "nextn.shared_head_head.weight", "output.weight"];
    let (found, weights) = names(&without_norm);
    assert_eq!(found, Some(Draft { own_norm: false, own_head: true, ..draft }));
    let tail: Vec<&str> = weights.iter().rev().take(2).map(String::as_str).collect();
    assert_eq!(tail, ["blk.3.nextn.shared_head_head.weight", "output_norm.weight"]);
}

#[test]
fn a_file_of_the_next_token_layer_alone_is_named_as_such() {
    let m = meta("tiny-glm4moe", &[], &[]);
    let has = |name: &str| Some(name.starts_with("blk.3."));
    let source = Source { meta: &m, has: &has, options: Options::default() };
    let text = arch::read(&source).unwrap_err().to_string();
    assert!(text.contains("holds only the next-token layer"), "{text}");
    // beside its trunk it is as good as in one file
    let both = ["nextn.eh_proj.weight", "attn_q.bias", "exp_probs_b.bias"];
    let h = read(&m, &both).unwrap();
    let weights: Vec<String> = arch::draft(&h).unwrap().weights().map(|w| w.name.clone()).collect();
    for name in ["blk.3.attn_q.bias", "blk.3.exp_probs_b.bias", "blk.3.ffn_down_exps.weight"] {
        assert!(weights.iter().any(|w| w == name), "{name} in {weights:?}");
    }
}

#[test]
fn close_names_and_impossible_numbers_are_refused() {
    let check = |name: &str, key: &str, value: Value, want: &str| {
        let mut m = meta(name, &[], &[]);
        m.set(key, value);
        let text = read(&m, &[]).unwrap_err().to_string();
        assert!(text.contains(want) && !text.contains('\n'), "{text}");
    };
    let deepseek = |key: &str| format!("deepseek2.{key}");
    check("tiny-glm-dsa", "general.architecture", "glm5-next".into(), "GLM-5.3-Flash has linear attention");
    check(
        "tiny-llama",
        "general.architecture",
        "gpt-oss".into(),
        "supported: deepseek2, deepseek32, glm-dsa",
    );
    check("tiny-llama", "llama.block_count", 0u32.into(), "1 to 512");
    check("tiny-llama", "llama.attention.head_count_kv", 3u32.into(), "a divisor of 8 heads");
    check("tiny-llama", "llama.rope.dimension_count", 16u32.into(), "the head size 64");
    check("tiny-llama", "llama.rope.freq_base", 0f32.into(), "positive");
    check("tiny-llama", "llama.rope.scaling.type", "longrope".into(), "none, linear or yarn");
    check("tiny-deepseek2", &deepseek("attention.key_length"), 300u32.into(), "is 300, but must be 288");
    check("tiny-deepseek2", &deepseek("expert_used_count"), 17u32.into(), "1 to 16");
    check("tiny-deepseek2", &deepseek("expert_group_count"), 3u32.into(), "a divisor of 16 experts");
    check("tiny-deepseek2", &deepseek("rope.dimension_count"), 33u32.into(), "");
    check("tiny-glm-dsa", "glm-dsa.nextn_predict_layers", 4u32.into(), "0 to 3");
}

/// Found by fuzzing, or on the way to it.
#[test]
fn hostile_numbers_and_names_are_refused_in_one_short_line() {
    let check = |name: &str, keys: &[(&str, Value)], want: &str| {
        let mut m = meta(name, &["value_length", "expert_feed_forward_length"], &[]);
        keys.iter().for_each(|(k, v)| m.set(k, v.clone()));
        let start = std::time::Instant::now();
        let text = read(&m, &[]).unwrap_err().to_string();
        assert!(text.contains(want) && text.len() < 400 && !text.contains(char::is_control), "{text:?}");
        assert!(start.elapsed().as_secs() < 1, "{want} took {:?}", start.elapsed());
    };
    let hostile = || Value::from("\u{1b}[2J\n".repeat(999).as_str());
    check("tiny-llama", &[("general.architecture", hostile())], "\\u{1b}[2J\\n");
    check("tiny-llama", &[("llama.rope.scaling.type", hostile())], "none, linear or yarn");
    // frequencies of half a gigabyte, before any tensor was looked at
    let wide = Value::from(1u32 << 28);
    let keys = [("llama.attention.key_length", wide.clone()), ("llama.rope.dimension_count", wide)];
    check("tiny-llama", &keys, "even, from 2 to 65536");
    check("tiny-llama", &[("llama.embedding_length", 7u32.into())], "llama.attention.value_length");
    let rank = ("deepseek2.attention.q_lora_rank", Value::from(u64::MAX));
    check("tiny-deepseek2", &[("deepseek2.attention.value_length", 256u32.into()), rank], "0 to 268435456");
    check("tiny-glm4moe", &[("glm4moe.feed_forward_length", 1u32.into())], "expert_feed_forward_length");
}
