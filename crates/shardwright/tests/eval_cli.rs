//! `eval` measures what other engines measured, and how far one file is from another.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod util;

use npyz::npz::NpzArchive;
use util::{data, fails, json, model, scratch};

/// Token ids of the longest prompt, in a file, and the perplexity that another engine gave them.
fn golden(name: &str, ids_file: &std::path::Path) -> f64 {
    let mut all = NpzArchive::open(data(&format!("golden/{name}.npz"))).unwrap();
    let ids: Vec<i32> = all.by_name("p2_ids").unwrap().unwrap().into_vec().unwrap();
    let log_probabilities: Vec<f32> = all.by_name("p2_next_logprob").unwrap().unwrap().into_vec().unwrap();
    assert_eq!(ids.len(), log_probabilities.len() + 1);
    let text: Vec<String> = ids.iter().map(i32::to_string).collect();
    std::fs::write(ids_file, text.join(" ")).unwrap();
    let sum: f64 = log_probabilities.iter().map(|p| f64::from(*p)).sum();
    (-sum / log_probabilities.len() as f64).exp()
}

#[test]
fn perplexity_is_that_of_another_engine() {
    let folder = scratch();
    let ids = folder.path().join("ids.txt");
    for (name, flags) in [("llama-f32", &[][..]), ("glm-dsa-tp8-kq", &[]), ("glm4moe-f32", &["--tp", "2"])] {
        let expected = golden(name, &ids);
        let args = ["eval", &model(name), "--ids", ids.to_str().unwrap(), "--json"];
        let report = json(&[&args[..], flags].concat());
        let found = report["perplexity"].as_f64().unwrap();
        assert!((found / expected - 1.0).abs() < 1e-5, "{name}: {found}, elsewhere {expected}");
        assert_eq!((&report["tokens"], &report["windows"]), (&213.into(), &1.into()));
    }
}

#[test]
fn a_model_agrees_with_itself_and_less_when_rounded() {
    let folder = scratch();
    let ids = folder.path().join("ids.txt");
    golden("glm-dsa-tp8-kq", &ids);
    let file = model("glm-dsa-tp8-kq");
    let args =
        ["eval", &file, "--against", &file, "--ids", ids.to_str().unwrap(), "--window", "70", "--json"];
    let same = json(&args);
    assert_eq!(same["windows"], 4, "a last window of four tokens counts too");
    let reference = &same["reference"];
    assert_eq!((&reference["top1"], &reference["max_abs"]), (&1.0.into(), &0.0.into()));
    assert_eq!(reference["perplexity"], same["perplexity"]);
    let rounded = json(&[&args[..], &["--activations", "q8"]].concat());
    let kl = rounded["reference"]["kl"].as_f64().unwrap();
    assert!(kl > 0.0 && kl < 0.5, "{rounded}");
}

#[test]
fn what_cannot_be_scored_is_refused() {
    let folder = scratch();
    let ids = folder.path().join("ids.txt");
    let file = model("llama-f32");
    let check = |text: &str, expected: &str| {
        std::fs::write(&ids, text).unwrap();
        let why = fails(&["eval", &file, "--ids", ids.to_str().unwrap()], 1);
        assert!(why.lines().any(|l| l.starts_with("error: ") && l.contains(expected)), "{why}");
    };
    check("5", "two tokens are needed");
    check("5 512", "not in the vocabulary");
    fails(&["eval", &file], 2);
}
