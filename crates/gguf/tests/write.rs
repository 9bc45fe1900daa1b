//! What is written is read again, bit for bit, and what cannot be written is refused.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::fs;
use std::path::Path;

use shardwright_gguf::{Array, Error, Meta, QuantType, Reader, Split, Strings, Value, Writer};

fn every_value() -> Meta {
    let mut meta = Meta::new();
    meta.set("u8", 200u8);
    meta.set("i8", -5i8);
    meta.set("u16", 60_000u16);
    meta.set("i16", -300i16);
    meta.set("u32", u32::MAX);
    meta.set("i32", i32::MIN);
    meta.set("u64", u64::MAX);
    meta.set("i64", i64::MIN);
    meta.set("f32", 0.1f32);
    meta.set("f64", 0.1f64);
    meta.set("bool", true);
    meta.set("string", "ü");
    meta.set("bytes", Value::String(vec![0xFF, 0]));
    meta.set("a.u8", Value::Array(Array::U8(vec![1, 2])));
    meta.set("a.i8", vec![-1i8]);
    meta.set("a.u16", vec![1u16]);
    meta.set("a.i16", vec![-1i16]);
    meta.set("a.u32", vec![1u32, 2, 3]);
    meta.set("a.i32", vec![-1i32]);
    meta.set("a.u64", vec![1u64]);
    meta.set("a.i64", vec![-1i64]);
    meta.set("a.f32", vec![0.5f32]);
    meta.set("a.f64", Vec::<f64>::new());
    meta.set("a.bool", vec![true, false]);
    meta.set("a.string", ["a", "", "ü"].into_iter().collect::<Strings>());
    meta
}

#[test]
fn all_values_and_types_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.gguf");
    let mut writer = Writer::new(every_value()).unwrap();
    for &quant in QuantType::ALL.iter().rev() {
        writer.tensor(quant.name(), quant, &[2 * quant.block_len() as u64, 3]).unwrap();
    }
    let data = |name: &str, n: u64| vec![name.len() as u8; n as usize];
    let paths = writer.write(&path, |t, out| Ok(out.write_all(&data(&t.name, t.bytes))?)).unwrap();
    assert_eq!(paths, std::slice::from_ref(&path));
    let reader = Reader::open(&path).unwrap();
    assert_eq!(reader.meta(), &every_value());
    assert_eq!(reader.tensors().len(), QuantType::ALL.len());
    for (tensor, &quant) in reader.tensors().iter().zip(QuantType::ALL.iter().rev()) {
        assert_eq!((tensor.quant, tensor.dims()), (quant, &[2 * quant.block_len() as u64, 3][..]));
        assert_eq!(reader.bytes(tensor), data(quant.name(), tensor.bytes));
    }
    assert_eq!(reader.total_bytes(), fs::metadata(&path).unwrap().len());
    assert!(fs::read_dir(folder.path()).unwrap().count() == 1, "no partial file is left");
}

#[test]
fn alignment_is_kept_in_every_part() {
    let folder = tempfile::tempdir().unwrap();
    let mut meta = Meta::new();
    meta.set("general.alignment", 4096u32);
    let mut writer = Writer::new(meta).unwrap().split(Split { max_tensors: Some(2), ..Split::default() });
    ["a", "b", "c"].iter().for_each(|n| writer.tensor(n, QuantType::F16, &[5]).unwrap());
    let paths = writer.write(&folder.path().join("m.gguf"), |_, out| Ok(out.write_all(&[7; 10])?)).unwrap();
    let reader = Reader::open(&paths[1]).unwrap();
    assert_eq!(reader.files(), paths);
    assert!(reader.tensors().iter().all(|t| t.offset % 4096 == 0 && reader.bytes(t) == [7; 10]));
}

#[test]
fn what_cannot_be_written_is_refused() {
    let check = |result: shardwright_gguf::Result<()>, expected: &str| {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    let mut writer = Writer::new(Meta::new()).unwrap();
    check(writer.tensor("", QuantType::F32, &[1]), "the name has 0 bytes");
    check(writer.tensor(&"n".repeat(64), QuantType::F32, &[1]), "the name has 64 bytes");
    check(writer.tensor("a", QuantType::F32, &[]), "expected 1 to 4");
    check(writer.tensor("a", QuantType::F32, &[3, 0]), "none of them 0");
    check(writer.tensor("a", QuantType::Q4_K, &[255]), "255 elements is not a multiple of the 256");
    check(writer.tensor("a", QuantType::F32, &[u64::MAX]), "more than 2^64 bytes");
    let mut meta = Meta::new();
    meta.set("general.alignment", 24u32);
    check(Writer::new(meta).map(|_| ()), "general.alignment is 24");
    writer.tensor("a", QuantType::F32, &[1]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.gguf");
    check(
        writer.write(&path, |_, out| Ok(out.write_all(&[0; 3])?)).map(|_| ()),
        "3 bytes were given, expected 4",
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left of a failed attempt");
    writer.tensor("a", QuantType::F32, &[1]).unwrap();
    check(writer.write(&path, |_, _| Ok(())).map(|_| ()), "tensor `a` is there twice");
    let mut hostile = Writer::new(Meta::new()).unwrap();
    (0..2).for_each(|_| hostile.tensor("\u{1b}[2J\n", QuantType::F32, &[1]).unwrap());
    check(hostile.write_sparse(&path).map(|_| ()), "tensor `\\u{1b}[2J\\n` is there twice");
    let nowhere = writer.write_sparse(Path::new("/nonexistent/x.gguf")).unwrap_err();
    assert!(matches!(nowhere, Error::Write { .. } | Error::File { .. }), "{nowhere}");
}

#[test]
fn only_files_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(Meta::new()).unwrap();
    writer.tensor("a", QuantType::F32, &[1]).unwrap();
    let taken = folder.path().join("taken.gguf");
    let check = |expected: &str| {
        let error = writer.write_sparse(&taken).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("taken.gguf"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left of a refused attempt");
    };
    fs::create_dir(&taken).unwrap();
    check("is a folder");
    fs::remove_dir(&taken).unwrap();
    std::os::unix::fs::symlink("/dev/null", &taken).unwrap();
    check("is a device");
    fs::remove_file(&taken).unwrap();
    fs::write(&taken, "old").unwrap();
    writer.write_sparse(&taken).unwrap();
    assert!(Reader::open(&taken).is_ok());
}
