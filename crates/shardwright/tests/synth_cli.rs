//! `shardwright synth` writes files that the other commands read.
#![allow(clippy::unwrap_used)]

mod util;

use std::time::Instant;
use util::{fails, json, run, scratch};

#[test]
fn a_sparse_set_of_436_gigabytes_is_inspected_and_planned_within_a_second() {
    let dir = scratch();
    let out = dir.path().join("glm.gguf");
    let args = ["synth", "glm-5.2", "--recipe", "ud-q4_k_s-like", "--sparse", "--split-bytes", "45G"];
    let files = run(&[&args[..], &["--no-tensor-first-split", "-o", out.to_str().unwrap()]].concat());
    let files: Vec<&str> = files.lines().collect();
    assert_eq!(files.len(), 11);
    assert!(files[10].ends_with("glm-00011-of-00011.gguf"));
    for command in [&["inspect"][..], &["plan", "--tp", "8"]] {
        let start = Instant::now();
        let text = run(&[command, &[files[4]]].concat());
        let took = start.elapsed();
        assert!(text.contains("436 GB"), "{text}");
        assert!(took.as_secs_f64() < 1.0, "{command:?}: {took:?}");
    }
}

#[test]
fn sizes_types_and_keys_can_be_replaced() {
    let dir = scratch();
    let path = dir.path().join("m.gguf");
    let path = path.to_str().unwrap();
    let sizes = ["--layers", "2", "--experts", "12", "--width", "512", "--vocab", "600", "--context", "8192"];
    let more =
        ["--set", "expert_used_count=3", "--tensor-type", "ffn_down_exps=Q5_K", "--seed", "5", "-o", path];
    run(&[&["synth", "tiny-qwen3moe"][..], &sizes, &more].concat());
    let report = json(&["inspect", path, "-t", "-k", "--json"]);
    assert_eq!(
        (&report["layers"], &report["width"], &report["vocabulary"]),
        (&2.into(), &512.into(), &600.into())
    );
    assert_eq!(report["metadata"]["qwen3moe.expert_used_count"], 3);
    let of = |name: &str| {
        report["tensors"].as_array().unwrap().iter().find(|t| t["name"] == name).unwrap().clone()
    };
    let down = of("blk.1.ffn_down_exps.weight");
    assert_eq!((&down["type"], &down["dimensions"]), (&"Q5_K".into(), &serde_json::json!([256, 512, 12])));
}

#[test]
fn a_file_is_rewritten_in_another_order_and_other_parts() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    run(&["synth", "tiny-glm4moe", "--recipe", "q8_0", "-o", &at("a.gguf")]);
    let order = ["--order", "shuffled:3", "--split-tensors", "7", "-o", &at("b.gguf")];
    let files = run(&[&["synth", "--like", &at("a.gguf")][..], &order].concat());
    assert!(files.lines().count() > 5);
    run(&["synth", "--like", &at("a.gguf"), "--fuse", "qkv", "--fuse", "gate-up", "-o", &at("c.gguf")]);
    let total = |f: &str| json(&["inspect", f, "--json"])["weights"].clone();
    let first = files.lines().next().unwrap();
    assert_eq!((total(first), total(&at("c.gguf"))), (total(&at("a.gguf")), total(&at("a.gguf"))));
    assert!(run(&["inspect", &at("c.gguf"), "-t"]).contains("blk.0.attn_qkv.bias"));
    let why = fails(&["synth", "--like", &at("a.gguf"), "-o", &at("a.gguf")], 1);
    assert!(why.contains("is the file to be rewritten"), "{why}");
}

#[test]
fn wrong_requests_are_told_in_a_line() {
    let check = |args: &[&str], code, want: &str| {
        let why = fails(&[&["synth"], args].concat(), code);
        assert!(why.contains(want), "{why}");
    };
    check(&[], 2, "PRESET");
    check(&["glm-6"], 1, "there is no preset `glm-6`");
    check(&["tiny-llama", "--order", "sorted"], 2, "shuffled:SEED");
    check(&["tiny-llama", "--fuse", "qkv"], 2, "cannot be used with");
    check(&["tiny-llama", "--vocab", "10", "-o", "x.gguf"], 1, "no room for a tokenizer");
    check(&["tiny-llama", "--tensor-type", "nothing=Q8_0"], 1, "no tensor has `nothing`");
    check(&["tiny-llama", "--tensor-type", "ffn_up=Q9"], 2, "Q9");
    check(&["tiny-llama", "--tensor-type", "ffn_up=Q8_1"], 2, "Q8_1 is no type of weights");
    check(&["tiny-llama", "--set", "block_count=0"], 1, "1 to 512");
    check(&["tiny-llama", "--recipe", "q4_k_m", "-o", "/no/such/folder/x.gguf"], 1, "/no/such/folder/x.gguf");
    assert!(run(&["synth", "--list"]).contains("deepseek-v3.2"));
}
