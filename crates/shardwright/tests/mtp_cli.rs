//! A next-token layer may be in the file, be missing, or come in a file of its own.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod util;

use shardwright_gguf::{Reader, Writer};
use std::path::{Path, PathBuf};
use util::{fails, json, scratch};

fn whole() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/models/glm47flash-f16.gguf")
}

/// The tensors of the whole file that `keep` wants; `layers` is what the header says.
fn part(path: &Path, keep: impl Fn(&str) -> bool, layers: u32, next: u32) {
    let whole = Reader::open(&whole()).unwrap();
    let mut meta = whole.meta().clone();
    meta.set("deepseek2.block_count", layers);
    meta.set("deepseek2.nextn_predict_layers", next);
    let mut writer = Writer::new(meta).unwrap();
    for t in whole.tensors().iter().filter(|t| keep(&t.name)) {
        writer.tensor(&t.name, t.quant, t.dims()).unwrap();
    }
    let data = |name: &str| whole.bytes(whole.tensor(name).unwrap()).to_vec();
    writer.write(path, |t, out| Ok(out.write_all(&data(&t.name))?)).unwrap();
}

#[test]
fn a_next_token_layer_may_come_in_a_file_of_its_own() {
    let folder = scratch();
    let (trunk, mtp) = (folder.path().join("trunk.gguf"), folder.path().join("mtp.gguf"));
    let is_next = |name: &str| name.starts_with("blk.3.");
    part(&trunk, |n| !is_next(n), 3, 0);
    part(&mtp, |n| is_next(n) || n == "token_embd.weight" || n == "output.weight", 4, 1);
    let (whole, trunk, mtp) = (whole(), trunk.to_str().unwrap(), mtp.to_str().unwrap());

    let plan = |args: &[&str]| {
        let report = json(&[&["plan"], args, &["--json"]].concat());
        (report["weights"].clone(), report["memory"].clone())
    };
    let all = plan(&[whole.to_str().unwrap()]);
    assert_ne!(plan(&[trunk]), all, "the trunk alone holds less");
    assert_eq!(plan(&[trunk, "--mtp", mtp]), all);

    let same = json(&["verify", whole.to_str().unwrap(), "--against", trunk, "--json"]);
    assert_eq!(same["first_difference"], serde_json::Value::Null);
    let alone = fails(&["plan", mtp], 1);
    assert!(alone.contains("only the next-token layer") && alone.contains("--mtp"), "{alone}");
    let llama = util::model("llama-f32");
    let foreign = fails(&["plan", trunk, "--mtp", &llama], 1);
    assert!(foreign.contains("llama-f32.gguf: its architecture is `llama`"), "{foreign}");
    let twice = fails(&["plan", whole.to_str().unwrap(), "--mtp", mtp], 1);
    assert!(twice.contains("mtp.gguf") && twice.contains("in the model already"), "{twice}");
}
