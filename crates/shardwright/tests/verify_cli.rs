//! `verify` finds no difference where there is none, and names the first where there is one.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod util;

use serde_json::Value;
use std::process::Command;

fn model(name: &str) -> String {
    format!("{}/../../tests/data/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"))
}

/// Runs `verify --json` with the arguments; gives the exit code and the report.
fn verify(args: &[&str]) -> (i32, Value, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shardwright"));
    let out = command.arg("verify").args(args).arg("--json").output().unwrap();
    let stderr = String::from_utf8(out.stderr).unwrap();
    let report = serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {stderr}"));
    (out.status.code().unwrap(), report, stderr)
}

fn equal(args: &[&str]) {
    let (code, report, stderr) = verify(args);
    assert_eq!((code, &report["first_difference"]), (0, &Value::Null), "{args:?}: {stderr}");
    assert!(report["values"].as_u64().unwrap() > 30 && report["rows"].as_u64().unwrap() > 10, "{report}");
    assert_eq!(report["unmatched"], Value::Array(vec![]), "{args:?}");
}

#[test]
fn ranks_and_chunks_change_nothing() {
    equal(&[&model("glm-dsa-tp8-kq"), "--chunk", "5"]);
    equal(&[&model("glm-dsa-tp8-kq"), "--tp", "8"]);
    equal(&[&model("glm4moe-f32"), "--tp", "2"]);
    equal(&[&model("llama-f32"), "--against", &model("llama-f32")]);
}

#[test]
fn q1_order_parts_and_fusion_of_tensors_change_no_bit() {
    let folder = util::scratch();
    let rewritten = |name: &str, flags: &[&str]| {
        let path = folder.path().join(format!("{name}-{}.gguf", flags.join("")));
        let like = ["synth", "--like", &model(name), "-o", path.to_str().unwrap()];
        let files = util::run(&[&like[..], flags].concat());
        equal(&[&model(name), "--against", files.lines().last().unwrap()]);
    };
    rewritten("glm-dsa-tp8-kq", &["--order", "kv-first"]);
    rewritten("glm-dsa-tp8-kq", &["--order", "shuffled:5", "--split-tensors", "9"]);
    rewritten("llama-f32", &["--order", "reversed", "--split-tensors", "1"]);
    rewritten("deepseek2-v3-f32", &["--fuse", "gate-up"]);
    rewritten("glm4moe-f32", &["--fuse", "qkv", "--fuse", "gate-up", "--order", "shuffled:6"]);
}

#[test]
fn another_file_is_found_out_at_its_first_other_weight() {
    // one weight of the second layer's value norm is another: everything before must be found equal
    let bytes = std::fs::read(model("glm-dsa-tp8-kq")).unwrap();
    let reader = shardwright_gguf::Reader::open(model("glm-dsa-tp8-kq").as_ref()).unwrap();
    let norm = reader.tensor("blk.1.attn_kv_a_norm.weight").unwrap();
    let mut changed = bytes;
    changed[norm.offset as usize..][..4].copy_from_slice(&3.5f32.to_le_bytes());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("changed.gguf");
    std::fs::write(&path, changed).unwrap();

    let (code, report, stderr) = verify(&[&model("glm-dsa-tp8-kq"), "--against", path.to_str().unwrap()]);
    let first = &report["first_difference"];
    assert_eq!(code, 1);
    assert_eq!((&first["value"], &first["element"]), (&"blk.1.attn_kv_a_norm".into(), &0.into()), "{first}");
    assert!(
        stderr.lines().any(|l| l.starts_with("error: ") && l.contains("blk.1.attn_kv_a_norm")),
        "{stderr}"
    );
}

#[test]
fn rounded_activations_differ_within_their_tolerance_only() {
    let q8 = [&model("glm-dsa-tp8-kq"), "--activations", "q8"];
    let (_, report, _) = verify(&q8);
    assert!(report["logits"]["top1"].as_f64().unwrap() > 0.8, "{report}");
    let (code, report, _) = verify(&[q8[0], q8[1], q8[2], "--tolerance", "0"]);
    assert_eq!(code, 1, "8 bits cannot be exact: {report}");
}

/// With NaN no difference is larger than allowed: what finds nothing must not be offered.
#[test]
fn a_tolerance_is_a_number() {
    let check = |tolerance: &str| {
        let why = util::fails(&["verify", &model("llama-f32"), "--tolerance", tolerance], 2);
        assert!(why.contains("must be a number of at least 0"), "{why}");
    };
    ["nan", "inf", "-1", "x"].into_iter().for_each(check);
}

/// A draft layer may be damaged and `verify` finds nothing: it has to say so.
#[test]
fn a_next_token_layer_is_said_to_be_left_out() {
    let said = |model: &str| verify(&[model]).2;
    assert!(said(&model("glm4moe-f32")).contains("the next-token layer is not run"));
    assert!(!said(&model("llama-f32")).contains("next-token"));
}
