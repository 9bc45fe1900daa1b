//! `bench ladder` and `bench --per-kernel`, with whatever GPUs there are.
#![allow(clippy::unwrap_used)]

mod util;

use serde_json::Value;
use util::{fails, run};

const SMALL: [&str; 8] = ["bench", "ladder", "--dummy", "llama-3-8b", "--layers", "1", "-r", "1"];

#[test]
fn every_rung_is_measured_or_says_why_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ladder.html");
    let page = path.to_str().unwrap();
    let all: Value = serde_json::from_str(&run(&[&SMALL[..], &["--json", "--html", page]].concat())).unwrap();
    let rungs = all["results"].as_array().unwrap();
    assert_eq!(rungs.len(), 7);
    let cards = all["doctor"]["cards"].as_array().unwrap().len();
    for rung in rungs {
        let (ms, why) = (rung["ms"].as_f64(), rung["not_measured"].as_str());
        assert!(ms.is_some_and(|ms| ms > 0.0) != why.is_some_and(|why| !why.is_empty()), "{rung}");
        assert!(ms.is_none() || cards > 0, "{rung}");
    }
    let by_nccl = rungs.iter().filter(|rung| rung["name"].as_str().unwrap().contains("NCCL"));
    // one rank adds nothing up
    assert!(
        cards != 1 || by_nccl.clone().all(|rung| rung["not_measured"].as_str().unwrap().contains("NCCL"))
    );
    assert_eq!(by_nccl.count(), 3);
    assert!(all["date"].as_str().unwrap().len() == 10 && all["commit"].is_string());
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("own sums, recorded"), "{page}");
    let text = run(&SMALL);
    assert!(text.contains("llama-3-8b, 1 layers") && text.contains("not measured: "), "{text}");
}

#[test]
fn launches_are_those_of_a_gpu() {
    let why = fails(&["bench", "--demo", "--per-kernel", "--device", "cpu"], 1);
    assert!(why.contains("`--device cpu` names no GPU"), "{why}");
    fails(&["bench", "ladder", "--demo"], 2);
    fails(&["bench", "--per-kernel", "--url", "http://localhost:1"], 2);
    fails(&["bench", "ladder", "--dummy", "no-such-model"], 1);
    // what is a GPU's or a rank's alone
    let why = fails(&["bench", "--demo", "--multiprocessors", "8", "--device", "cpu"], 1);
    assert!(why.contains("add `--device cuda`"), "{why}");
    fails(&["bench", "--read", "--demo"], 2);
    fails(&["bench", "--read", "--url", "http://localhost:1"], 2);
    fails(&["bench", "--dummy", "glm-5", "--exchange-us", "2"], 2);
    let far = ["bench", "--dummy", "glm-5", "--tp-rank", "0/8", "--exchange-us", "1e9"];
    assert!(fails(&far, 2).contains("microseconds"));
}
