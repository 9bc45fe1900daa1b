//! Case G1 and all that can be wrong with a split model.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use shardwright_gguf::{Error, Meta, QuantType, Reader, Split, TensorSpec, Value, Writer};
use tempfile::TempDir;

const BY_FOUR: Split = Split { max_tensors: Some(4), max_bytes: None, metadata_first: false };

fn meta() -> Meta {
    let mut meta = Meta::new();
    meta.set("general.architecture", "llama");
    meta.set("llama.block_count", 1u32);
    meta
}

/// Tensor `t7` holds 32 times 7.
fn fill(tensor: &TensorSpec, out: &mut dyn Write) -> shardwright_gguf::Result<()> {
    let value: f32 = tensor.name[1..].parse().unwrap();
    Ok(out.write_all(&[value; 32].map(f32::to_le_bytes).concat())?)
}

fn write_with(meta: Meta, path: &Path, tensors: &[&str], split: Option<Split>) -> Vec<PathBuf> {
    let mut writer = Writer::new(meta).unwrap();
    tensors.iter().for_each(|name| writer.tensor(name, QuantType::F32, &[32]).unwrap());
    let writer = split.map_or(writer.clone(), |split| writer.split(split));
    writer.write(path, fill).unwrap()
}

fn names(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("t{i}")).collect()
}

/// A model of twelve tensors in parts: `sp-00001-of-00003.gguf` and so on.
fn model(split: Split) -> (TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let names = names(12);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let paths = write_with(meta(), &folder.path().join("sp.gguf"), &names, Some(split));
    (folder, paths)
}

fn check_whole(path: &Path) {
    let reader = Reader::open(path).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(reader.tensors().len(), 12, "{}", path.display());
    assert_eq!(reader.meta().need::<u32>("llama.block_count").unwrap(), 1);
    assert!(reader.warnings().is_empty(), "{:?}", reader.warnings());
    for tensor in reader.tensors() {
        let mut values = [f32::NAN; 32];
        tensor.quant.decode(reader.bytes(tensor), &mut values);
        assert_eq!(values, [tensor.name[1..].parse::<f32>().unwrap(); 32], "{}", tensor.name);
    }
}

fn check_refused(path: &Path, parts: &[&str]) {
    let error =
        Reader::open(path).err().unwrap_or_else(|| panic!("{} was accepted", path.display())).to_string();
    assert!(parts.iter().all(|p| error.contains(p)), "{error}\nshould contain {parts:?}");
    assert!(!error.contains('\n'), "{error}");
}

#[test]
fn g1_any_part_loads() {
    let first_without_tensors = Split { max_tensors: Some(5), max_bytes: None, metadata_first: true };
    let by_bytes = Split { max_tensors: None, max_bytes: Some(500), metadata_first: false };
    for (split, count) in [(BY_FOUR, 3), (first_without_tensors, 4), (by_bytes, 4)] {
        let (_folder, paths) = model(split);
        assert_eq!(paths.len(), count);
        paths.iter().for_each(|path| check_whole(path));
    }
}

#[test]
fn g1_parts_behind_links_are_found_beside_the_link() {
    let (folder, paths) = model(BY_FOUR);
    let (blobs, snap) = (folder.path().join("blobs"), folder.path().join("snap"));
    fs::create_dir(&blobs).unwrap();
    fs::create_dir(&snap).unwrap();
    for (i, path) in paths.iter().enumerate() {
        let blob = format!("{i}f3a9c");
        fs::rename(path, blobs.join(&blob)).unwrap();
        symlink(format!("../blobs/{blob}"), snap.join(path.file_name().unwrap())).unwrap();
    }
    paths.iter().for_each(|path| check_whole(&snap.join(path.file_name().unwrap())));
}

#[test]
fn g1_parts_in_sub_folders_are_found() {
    let (folder, paths) = model(BY_FOUR);
    for (i, path) in paths.iter().enumerate().skip(1) {
        let below = folder.path().join(format!("part{i}"));
        fs::create_dir(&below).unwrap();
        fs::rename(path, below.join(path.file_name().unwrap())).unwrap();
    }
    check_whole(&paths[0]);
    let twice = folder.path().join("z");
    fs::create_dir(&twice).unwrap();
    let name = paths[1].file_name().unwrap();
    fs::copy(folder.path().join("part1").join(name), twice.join(name)).unwrap();
    check_refused(&paths[0], &["sp-00002-of-00003.gguf is there twice", "part1", "keep one"]);
}

#[test]
fn g1_a_relative_name_works() {
    let (_folder, paths) = model(BY_FOUR);
    let up = "../".repeat(std::env::current_dir().unwrap().components().count());
    check_whole(&Path::new(&up).join(paths[1].strip_prefix("/").unwrap()));
}

#[test]
fn missing_parts_are_listed() {
    let (_folder, paths) = model(BY_FOUR);
    fs::remove_file(&paths[0]).unwrap();
    fs::remove_file(&paths[2]).unwrap();
    check_refused(&paths[1], &["2 of 3 parts are missing", "sp-00001-of-00003.gguf, sp-00003-of-00003.gguf"]);
}

#[test]
fn swapped_and_renamed_parts_are_refused() {
    let (folder, paths) = model(BY_FOUR);
    let aside = folder.path().join("aside");
    fs::rename(&paths[1], &aside).unwrap();
    fs::rename(&paths[2], &paths[1]).unwrap();
    fs::rename(&aside, &paths[2]).unwrap();
    check_refused(
        &paths[0],
        &["sp-00002-of-00003.gguf", "by its metadata it is part 3 of 3, by its name 2 of 3"],
    );
    check_refused(&paths[1], &["part 3 of 3", "its name does not end in -00003-of-00003.gguf"]);
    let renamed = folder.path().join("model.gguf");
    fs::rename(&paths[0], &renamed).unwrap();
    check_refused(&renamed, &["model.gguf", "part 1 of 3", "does not end in -00001-of-00003.gguf"]);
}

#[test]
fn a_part_of_another_model_is_refused() {
    let (_folder, paths) = model(BY_FOUR);
    let rows: [(Meta, &[&str], &[&str]); 4] = [
        (meta(), &["u1"], &["sp-00002-of-00003.gguf", "by its metadata it is part 1 of 1"]),
        (
            part(1, 3, 13),
            &["u1"],
            &["sp-00002-of-00003.gguf", "`split.tensors.count` is 13, that of the first part 12"],
        ),
        (
            part(1, 3, 12),
            &["t0", "t1"],
            &["sp-00002-of-00003.gguf", "tensor `t0`", "is also in", "sp-00001-of-00003.gguf"],
        ),
        (part(1, 3, 12), &["u4", "u5"], &["all parts together have 10 tensors, expected 12"]),
    ];
    for (meta, tensors, expected) in rows {
        write_with(meta, &paths[1], tensors, None);
        check_refused(&paths[0], expected);
    }
    let mut other = part(1, 3, 12);
    other.set("general.architecture", "qwen3");
    write_with(other, &paths[1], &["u4", "u5", "u6", "u7"], None);
    check_refused(&paths[0], &["sp-00002-of-00003.gguf", "`general.architecture` differs"]);
}

fn part(no: u16, count: u16, tensors: i32) -> Meta {
    let mut meta = Meta::new();
    meta.set("split.no", no);
    meta.set("split.count", count);
    meta.set("split.tensors.count", tensors);
    meta
}

#[test]
fn one_file_under_two_names_is_refused() {
    let (_folder, paths) = model(BY_FOUR);
    fs::remove_file(&paths[2]).unwrap();
    symlink(&paths[1], &paths[2]).unwrap();
    check_refused(
        &paths[0],
        &["sp-00003-of-00003.gguf: ", "is the same file as", "sp-00002-of-00003.gguf under another name"],
    );
}

#[test]
fn glued_parts_are_recognised() {
    let (folder, paths) = model(BY_FOUR);
    let all: Vec<u8> = paths.iter().flat_map(|p| fs::read(p).unwrap()).collect();
    for name in ["glued.gguf", "sp-00001-of-00003.gguf"] {
        let path = folder.path().join(name);
        fs::write(&path, &all).unwrap();
        check_refused(&path, &[name, "another GGUF file follows at byte", "glued together"]);
    }
}

#[test]
fn senseless_split_keys_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x-00001-of-00002.gguf");
    for (no, count, expected) in [(2, 2, "`split.no` 2 of `split.count` 2"), (0, 2000, "<= 1024")] {
        write_with(part(no, count, 1), &path, &["t0"], None);
        check_refused(&path, &[expected]);
    }
    write_with(meta(), &path, &["t0"], None);
    check_refused(&path, &["named as part 1 of 2, but its metadata has no `split.count`"]);
    let mut no_number = Meta::new();
    no_number.set("split.count", 2u16);
    write_with(no_number, &path, &["t0"], None);
    let error = Reader::open(&path).err().unwrap();
    assert!(matches!(error.cause(), Error::MissingKey { key } if key == "split.no"), "{error}");
    // One part of one is a model of its own, whatever it is called.
    let mut single = part(0, 1, 1);
    single.set("general.architecture", Value::from("llama"));
    write_with(single, &folder.path().join("y.gguf"), &["t0"], None);
    assert!(Reader::open(&folder.path().join("y.gguf")).is_ok());
}
