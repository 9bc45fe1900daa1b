//! Files that other programs wrote: every model of the oracle opens, and every tensor decodes to finite values.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::path::PathBuf;
use std::{env, fs};

use shardwright_gguf::Reader;

#[test]
fn the_oracle_s_models_open_and_decode() {
    let Some(oracle) = env::var_os("SHARDWRIGHT_ORACLE") else {
        println!("skipped: SHARDWRIGHT_ORACLE is not set");
        return;
    };
    let files = fs::read_dir(PathBuf::from(oracle).join("models")).unwrap().map(|e| e.unwrap().path());
    let models: Vec<_> = files.filter(|p| p.extension().is_some_and(|e| e == "gguf")).collect();
    assert!(models.len() >= 18, "{} models", models.len());
    for path in models {
        let reader = Reader::open(&path).unwrap_or_else(|e| panic!("{e}"));
        assert!(reader.warnings().is_empty() && !reader.tensors().is_empty(), "{:?}", reader.warnings());
        assert!(reader.meta().need::<String>("general.architecture").is_ok());
        for tensor in reader.tensors() {
            let mut values = vec![f32::NAN; tensor.elements() as usize];
            tensor.quant.decode(reader.bytes(tensor), &mut values);
            assert!(values.iter().all(|y| y.is_finite()), "{}: {}", path.display(), tensor.name);
        }
    }
}
