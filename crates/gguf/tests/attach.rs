//! A next-token layer in a file of its own joins the trunk's file.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use shardwright_gguf::{Meta, QuantType, Reader, Writer};
use std::path::Path;

fn file(path: &Path, tensors: &[(&str, u64, u8)]) -> Reader {
    let mut meta = Meta::new();
    meta.set("general.architecture", "llama");
    let mut writer = Writer::new(meta).unwrap();
    for (name, len, _) in tensors {
        writer.tensor(name, QuantType::I8, &[*len]).unwrap();
    }
    let fill = |name: &str| tensors.iter().find(|t| t.0 == name).unwrap().2;
    writer.write(path, |t, out| Ok(out.write_all(&vec![fill(&t.name); t.bytes as usize])?)).unwrap();
    Reader::open(path).unwrap()
}

#[test]
fn a_companion_adds_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut trunk = file(&at("trunk.gguf"), &[("token_embd", 64, 1), ("output", 32, 2)]);
    trunk.attach(file(&at("mtp.gguf"), &[("token_embd", 64, 3), ("eh_proj", 16, 4)])).unwrap();
    let byte = |name: &str| trunk.bytes(trunk.tensor(name).unwrap())[0];
    assert_eq!(["token_embd", "output", "eh_proj"].map(byte), [1, 2, 4], "what is there stays");
    assert_eq!((trunk.tensors().len(), trunk.files().len()), (3, 2));

    let other_shape = trunk.attach(file(&at("bad.gguf"), &[("output", 64, 1), ("x", 16, 1)])).unwrap_err();
    assert!(
        other_shape.to_string().contains("bad.gguf") && other_shape.to_string().contains("output"),
        "{other_shape}"
    );
    let nothing_new = trunk.attach(file(&at("same.gguf"), &[("output", 32, 1)])).unwrap_err();
    assert!(nothing_new.to_string().contains("same.gguf"), "{nothing_new}");
}
