//! `shardwright inspect` on whole, split and foreign files.
#![allow(clippy::unwrap_used)]

mod util;

use util::{fails, json, run, scratch};

#[test]
fn a_file_is_summed_up() {
    let dir = scratch();
    let path = dir.path().join("m.gguf");
    let path = path.to_str().unwrap();
    run(&["synth", "tiny-glm-5.2", "--recipe", "ud-q4_k_xl", "-o", path]);
    let text = run(&["inspect", path]);
    let parts = [
        "glm-dsa",
        "7 and a next-token layer",
        "8 latent heads of 64+32, latent 256, best 32 positions",
        "8 of 256, 2 used (Sigmoid), shared 256",
        "selected in layers [0, 1, 2, 6]",
        "gpt2 (glm4), 512 tokens, 128 merges",
        "eos 494 <|endoftext|>",
        "Q5_K",
    ];
    parts.iter().for_each(|p| assert!(text.contains(p), "{p} in\n{text}"));
    assert!(!text.contains("blk.0."), "{text}");
    assert!(run(&["inspect", path, "-t"]).contains("blk.0.attn_k_b.weight"));
    assert!(run(&["inspect", path, "-k"]).contains("glm-dsa.attention.indexer.top_k"));
    let report = json(&["inspect", path, "-t", "--json"]);
    assert_eq!(
        report["tensors"].as_array().map(Vec::len),
        report["tensors_total"].as_u64().map(|n| n as usize)
    );
    assert!(report.get("metadata").is_none());
}

#[test]
fn what_cannot_be_run_is_shown_all_the_same() {
    let dir = scratch();
    let path = dir.path().join("m.gguf");
    let path = path.to_str().unwrap();
    run(&["synth", "tiny-llama", "-o", path]);
    let text = run(&["inspect", path, "--override-kv", "general.architecture=str:glm5-next"]);
    assert!(text.contains("cannot be run") && text.contains("GLM-5.3-Flash"), "{text}");
    let other = dir.path().join("page.gguf");
    std::fs::write(&other, "<!DOCTYPE html><html></html>").unwrap();
    let why = fails(&["inspect", other.to_str().unwrap()], 1);
    assert!(why.contains("page.gguf") && why.lines().count() == 1, "{why}");
}
