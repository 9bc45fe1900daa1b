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
fn a_step_is_predicted_part_by_part() {
    let rank = ["plan", "--like-preset", "glm-5:q4_k-experts", "--tp", "8", "-c", "129"];
    let of = |more: &[&str]| json(&[&rank[..], &["--json"], more].concat())["prediction"].clone();
    let number = |report: &Value, name: &str| report[name].as_f64().unwrap();
    let part = of(&["--bandwidth", "1.5T", "--multiprocessors", "48", "--exchange-us", "11"]);
    assert_eq!((&part["exchanges"], &part["launches"]), (&Value::from(156), &Value::from(860 + 156)));
    assert_eq!((number(&part, "bandwidth"), number(&part, "multiprocessors")), (1.5e12, 48.0));
    let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-9, "{a} for {b}");
    near(number(&part, "exchanges_us"), 156.0 * 11.0);
    // each launch's bytes, or its weights where those take longer
    let busy = number(&part, "reading_us") + number(&part, "computing_us");
    assert!(busy > number(&part, "bytes") / 1.5e6, "{part}");
    // nothing but bytes where arithmetic is free, at the share of the memory's speed that launches reach
    let free = of(&["--bandwidth", "1.5T", "--multiprocessors", "4096"]);
    assert_eq!(number(&free, "computing_us"), 0.0, "{free}");
    near(number(&free, "reading_us"), number(&free, "bytes") / 1.5e6 / 0.91);
    let parts = ["reading_us", "computing_us", "latency_us", "exchanges_us"].map(|name| number(&part, name));
    near(number(&part, "us"), parts.iter().sum());
    near(number(&part, "tok_s"), 1e6 / number(&part, "us"));
    // the card's own, and nothing for the sums
    let card = of(&["--card", "RTX PRO 6000"]);
    assert_eq!((number(&card, "bandwidth"), number(&card, "multiprocessors")), (1.79e12, 188.0));
    assert_eq!((&card["exchanges"], &card["launches"]), (&Value::from(0), &Value::from(860)));
    assert!(of(&[]).is_null(), "no bandwidth, no prediction");
    let text = run(&[&rank[..], &["--card", "H200", "--layers", "4", "--exchange-us", "2.5"]].concat());
    assert!(text.contains("a step is predicted to take") && text.contains("8 sums of 2.5 us"), "{text}");
    let text = run(&[&rank[..], &["--card", "H200", "--layers", "4"]].concat());
    assert!(text.contains("without its 8 sums over ranks"), "{text}");
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
    check(&["plan", "--like-preset", "glm-5", "--exchange-us", "soon"], 2, "microseconds");
    check(&["plan", "--demo", "--layers", "3"], 1, "`--like-preset` names");
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
