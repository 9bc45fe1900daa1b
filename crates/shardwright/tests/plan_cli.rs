//! `shardwright plan` on well-known models and on files.
#![allow(clippy::unwrap_used)]

mod util;

use serde_json::Value;
use util::{fails, json, run, scratch};

#[test]
fn glm_5_is_planned_from_its_name_alone() {
    let report = json(&["plan", "--like-preset", "glm-5", "--tp", "8", "--json"]);
    assert_eq!(report["sums_a_token"], 156);
    assert_eq!(report["weights"], 753_864_139_008u64);
    assert_eq!(report["token"]["whole"]["weights"], 40_833_146_112u64 + 6144);
    assert_eq!(report["memory"].as_array().map(Vec::len), Some(8));
    let dealt = json(&["plan", "--like-preset", "glm-5", "--tp", "8", "--deal-embedding", "--json"]);
    assert_eq!(dealt["sums_a_token"], 157);
    let first = |r: &Value| r["memory"][0]["by_component"]["embedding"].as_u64().unwrap();
    assert_eq!(first(&report), 8 * first(&dealt));
}

#[test]
fn a_plan_for_people_has_tables_and_a_verdict() {
    let text = run(&["plan", "--like-preset", "glm-5.2", "--tp", "4", "--card", "RTX PRO 6000"]);
    let parts = [
        "753.9 B, 467 GB (4.96 bits each)",
        "40.3 B weights",
        "156 a token",
        "does not fit",
        "8 such ranks",
        "UD-Q2_K_XL",
    ];
    parts.iter().for_each(|p| assert!(text.contains(p), "{p} in\n{text}"));
    let text = run(&["plan", "--like-preset", "glm-5.2", "--tp", "8", "--card", "rtx-pro-6000"]);
    assert!(text.contains("fits: ") && text.contains("tokens/s at most"), "{text}");
    assert!(text.contains("unused") && text.contains("selected in layers [0, 1, 2, 6"), "{text}");
    let text = run(&["plan", "--like-preset", "glm-4.5", "--tp", "4"]);
    assert!(text.contains("lopsided: ranks hold from"), "{text}");
    let text = run(&["plan", "--like-preset", "glm-4.5", "--tp", "8"]);
    assert!(text.contains("hold nothing of: experts"), "{text}");
}

#[test]
fn stages_are_printed() {
    let stage =
        |s: &str| run(&["plan", "--like-preset", "tiny-llama", "--tp", "2", "--rank", "1", "--stage", s]);
    assert!(stage("hyper").contains("layers: 3"));
    assert!(stage("description").contains("blk.0.attn_q.weight [256, 512] rows by heads/64"));
    assert!(stage("rank-plan").contains("rank 1 of 2"));
    let draft = run(&["plan", "--like-preset", "tiny-glm-dsa", "--stage", "description", "--draft"]);
    assert!(draft.contains("nextn.eh_proj"));
}

#[test]
fn q3_a_refused_number_of_ranks_names_what_works() {
    let why = fails(&["plan", "--like-preset", "tiny-deepseek2:q4_k_m", "--tp", "9"], 1);
    assert!(why.contains("blk.0.attn_output.weight") && why.contains("legal for this file: 1, 2"), "{why}");
    assert_eq!(why.lines().count(), 1);
}

#[test]
fn wrong_requests_are_told_in_a_line() {
    let check = |args: &[&str], code, want: &str| {
        let why = fails(args, code);
        assert!(why.contains(want), "{why}");
    };
    check(&["plan"], 2, "MODEL|--model <MODEL>|--hf <OWNER/REPO[:QUANT]>|--demo|--like-preset");
    check(&["plan", "--demo", "--like-preset", "glm-5"], 2, "cannot be used with");
    check(&["plan", "glm-5"], 1, "glm-5: cannot open the file");
    check(&["plan", "glm-5"], 1, "say `--like-preset glm-5`");
    check(&["plan", "--like-preset", "glm-5", "--cache-bytes", "3"], 2, "must be 2 or 4");
    check(&["plan", "--like-preset", "glm-6"], 1, "there is no preset `glm-6`; there are: glm-5,");
    check(&["plan", "--like-preset", "glm-5:q9"], 1, "there is no recipe `q9`");
    check(&["plan", "--like-preset", "glm-5", "--card", "H9"], 2, "there is no card `H9`");
    check(&["plan", "--like-preset", "glm-5", "--memory", "much"], 2, "50GiB");
    check(
        &["plan", "--like-preset", "tiny-llama", "--stage", "rank-plan", "--rank", "1"],
        1,
        "no rank 1 of 1",
    );
    check(&["plan", "--like-preset", "tiny-llama", "--stage", "hyper", "--draft"], 1, "no next-token layer");
    check(&["plan", "no-such-file.gguf"], 1, "no-such-file.gguf");
}

#[test]
fn a_file_is_planned_as_its_preset() {
    let dir = scratch();
    let path = dir.path().join("m.gguf");
    let path = path.to_str().unwrap();
    run(&["synth", "tiny-glm-5.2", "--recipe", "q8_0", "-o", path]);
    let mut file = json(&["plan", path, "--tp", "2", "--json"]);
    let preset = json(&["plan", "--like-preset", "tiny-glm-5.2:q8_0", "--tp", "2", "--json"]);
    assert!(file["unused"]["tensors"].as_u64() > Some(0));
    file["notes"] = preset["notes"].clone();
    assert_eq!(file, preset);
}
