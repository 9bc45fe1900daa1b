//! `logits`, `generate`, `tokenize`: what other programs rely on, against independent references.
#![allow(clippy::unwrap_used)]

mod util;

use npyz::npz::NpzArchive;
use serde_json::Value;
use std::path::Path;
use util::{data, model, run, scratch, told};

fn read(path: impl AsRef<Path>) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn ids(line: &str) -> Vec<u32> {
    line.split_whitespace().map(|id| id.parse().unwrap()).collect()
}

fn last_ids(output: &str) -> Vec<u32> {
    ids(output.lines().last().unwrap_or(""))
}

fn spaced(ids: &[u32]) -> String {
    ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}

fn numbers(list: &Value) -> Vec<u32> {
    list.as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as u32).collect()
}

/// The tokens of the first reference prompt of a model, and its greedy continuation.
fn reference(name: &str) -> (Vec<u32>, Vec<u32>) {
    let mut golden = NpzArchive::open(data(&format!("golden/{name}.npz"))).unwrap();
    let ids: Vec<i32> = golden.by_name("p0_ids").unwrap().unwrap().into_vec().unwrap();
    let margins: Vec<f32> = golden.by_name("p0_greedy_margin").unwrap().unwrap().into_vec().unwrap();
    let mut prompt: Vec<u32> = ids.into_iter().map(|id| id as u32).collect();
    let greedy = prompt.split_off(prompt.len() - margins.len());
    (prompt, greedy)
}

/// All 64 greedy tokens, however the model is cut and its prompt fed.
#[test]
fn generate_prints_the_reference_tokens() {
    let dir = scratch();
    let file = dir.path().join("ids.txt");
    let check = |name: &str, more: &[&str]| {
        let (prompt, expected) = reference(name);
        std::fs::write(&file, spaced(&prompt)).unwrap();
        let n = expected.len().to_string();
        let args = ["generate", "--model", &model(name), "--ids", file.to_str().unwrap(), "--n", &n];
        assert_eq!(last_ids(&run(&[&args, more].concat())), expected, "{name} {more:?}");
    };
    check("llama-f32", &[]);
    check("llama-f32", &["--tp", "2", "--chunk", "3", "-t", "1"]);
    check("glm-dsa-share-bf16", &[]);
    check("glm-dsa-share-bf16", &["--tp", "2", "--deal-embedding"]);
    check("glm-dsa-tp8-kq", &["--tp", "8"]);
}

/// Raw little-endian rows; the same bits however the prompt is cut.
#[test]
fn logits_are_rows_of_the_vocabulary() {
    let dir = scratch();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (prompt, greedy) = reference("llama-f32");
    let fed = [prompt.as_slice(), &greedy].concat();
    std::fs::write(path("ids.txt"), spaced(&fed)).unwrap();
    let logits = |more: &[&str]| {
        let args = ["logits", &model("llama-f32"), "--ids", &path("ids.txt"), "--out", &path("out.f32")];
        let report = run(&[&args, more].concat());
        (std::fs::read(path("out.f32")).unwrap(), report)
    };
    let (whole, silent) = logits(&[]);
    assert_eq!(silent, "");
    assert_eq!(whole.len(), fed.len() * 512 * 4);
    assert_eq!(logits(&["--chunk", "7"]).0, whole);
    assert_eq!(logits(&["--chunk", "1", "-t", "1"]).0, whole);
    let report: Value = serde_json::from_str(&logits(&["--json"]).1).unwrap();
    assert_eq!((&report["rows"], &report["vocab"]), (&fed.len().into(), &512.into()));
    // each greedy token is the largest logit of the row before it
    let rows: Vec<f32> = whole.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    for (row, next) in rows.chunks_exact(512).skip(prompt.len() - 1).zip(&greedy) {
        let best = (0..512).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
        assert_eq!(best as u32, *next);
    }
}

#[test]
fn tokenize_prints_the_reference_ids() {
    let dir = scratch();
    let file = dir.path().join("text");
    let vectors = read(data("tokenizer/tiny-glm.json"));
    let interesting = |v: &&Value| v["ids_parse_special"] != Value::Null;
    let all = vectors["vectors"].as_array().unwrap();
    for v in all.iter().step_by(40).chain(all.iter().filter(interesting).take(3)) {
        std::fs::write(&file, v["text"].as_str().unwrap()).unwrap();
        let args = ["tokenize", "--model", &model("glm-dsa-share-bf16"), "--text", file.to_str().unwrap()];
        assert_eq!(last_ids(&run(&args)), numbers(&v["ids"]), "{v}");
        if interesting(&v) {
            let args = [&args[..], &["--parse-special"]].concat();
            assert_eq!(last_ids(&run(&args)), numbers(&v["ids_parse_special"]), "{v}");
        }
    }
}

#[test]
fn generate_and_tokenize_speak_json() {
    let dir = scratch();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("ids"), "1 2 3").unwrap();
    std::fs::write(path("text"), "and").unwrap();
    let llama = model("llama-f32");
    let plain = last_ids(&run(&["generate", &llama, "--ids", &path("ids"), "-n", "3"]));
    let json: Value =
        serde_json::from_str(&run(&["generate", &llama, "--ids", &path("ids"), "-n", "3", "--json"]))
            .unwrap();
    assert_eq!((plain.len(), numbers(&json["ids"])), (3, plain.clone()));
    let json: Value =
        serde_json::from_str(&run(&["tokenize", &llama, "--text", &path("text"), "--json"])).unwrap();
    let texts: String = json["texts"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
    assert_eq!(texts, "and");
}

/// More tokens than the model was made for: computed all the same, with one line.
#[test]
fn lengths_beyond_the_models_own_are_told() {
    let dir = scratch();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (ids, out, llama) = (path("ids.txt"), path("out"), model("llama-f32"));
    std::fs::write(&ids, "1 2 3 4 5 6").unwrap();
    for command in [
        &["logits", "--ids", &ids, "--out", &out][..],
        &["generate", "--ids", &ids, "-n", "2"],
        &["eval", "--ids", &ids],
        &["verify", "--ids", &ids],
        &["bench", "-p", "4", "-n", "2", "-r", "1"],
    ] {
        let warnings = |context: usize| {
            let key = format!("llama.context_length=int:{context}");
            let log = told(&[command, &["-m", &llama, "--override-kv", &key]].concat());
            log.lines()
                .filter(|l| l.starts_with("warning: ") && l.contains("tokens are more than the"))
                .count()
        };
        assert_eq!((warnings(4), warnings(16)), (1, 0), "{command:?}");
    }
}
