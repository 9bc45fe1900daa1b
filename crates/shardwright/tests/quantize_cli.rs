//! `quantize` writes files that run and are as near to the original as their types allow.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod util;

use shardwright_gguf::{QuantType, Reader};
use util::{fails, json, model, run, scratch};

#[test]
fn smaller_types_are_a_little_further_from_the_original() {
    let folder = scratch();
    let ids = folder.path().join("ids.txt");
    std::fs::write(&ids, (0..60).map(|i| format!("{} ", i * 7 % 490)).collect::<String>()).unwrap();
    let original = model("llama-f32");
    let mut last = 0.0;
    for to in ["Q8_0", "Q5_0", "Q4_0"] {
        let path = folder.path().join(to);
        run(&["quantize", &original, path.to_str().unwrap(), to]);
        let args = [
            "eval",
            path.to_str().unwrap(),
            "--against",
            &original,
            "--ids",
            ids.to_str().unwrap(),
            "--json",
        ];
        let kl = json(&args)["reference"]["kl"].as_f64().unwrap();
        // a random model amplifies rounding: only the order, and the best type's size, can be demanded
        assert!(kl > last && (to != "Q8_0" || kl < 0.02), "{to}: {kl} after {last}");
        last = kl;
    }
}

#[test]
fn each_tensor_gets_the_type_that_fits() {
    let folder = scratch();
    let path = folder.path().join("mixed.gguf");
    let args = [
        "quantize",
        &model("glm4moe-f32"),
        path.to_str().unwrap(),
        "Q4_K",
        "--tensor-type",
        "attn_q=BF16",
        "-t",
        "3",
    ];
    run(&args);
    let (before, after) =
        (Reader::open(model("glm4moe-f32").as_ref()).unwrap(), Reader::open(&path).unwrap());
    for t in before.tensors() {
        let q = after.tensor(&t.name).unwrap();
        let row = t.ne[0];
        let expected = match () {
            () if t.dims().len() < 2 || t.name.contains("ffn_gate_inp") => QuantType::F32,
            () if t.name.contains("attn_q.") => QuantType::BF16,
            () if row.is_multiple_of(256) => QuantType::Q4_K,
            () if row.is_multiple_of(32) => QuantType::Q8_0,
            () => QuantType::F16,
        };
        assert_eq!((q.quant, q.ne), (expected, t.ne), "{}", t.name);
    }
    assert_eq!(after.tensors().len(), before.tensors().len());
}

#[test]
fn what_would_lose_is_asked_for() {
    let folder = scratch();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let kq = model("glm-dsa-tp8-kq");
    let why = fails(&["quantize", &kq, &at("a"), "Q8_0"], 1);
    assert!(why.contains("--allow-requantize"), "{why}");
    run(&["quantize", &kq, &at("a"), "Q8_0", "--allow-requantize"]);
    let why = fails(&["quantize", &at("a"), &at("a"), "Q8_0"], 1);
    assert!(why.contains("is the file to be read"), "{why}");
    let why = fails(&["quantize", &kq, &at("b"), "IQ2_XS"], 2);
    assert!(why.contains("there are F32, F16") && why.contains("Q4_K"), "{why}");
    let why = fails(&["quantize", &model("llama-f32"), &at("b"), "Q8_0", "--tensor-type", "nosuch=Q4_0"], 1);
    assert!(why.contains("no tensor's name contains `nosuch`"), "{why}");
}
