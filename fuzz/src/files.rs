//! Files on disk: sets of parts, companions, and models written anew.

use std::fs;
use std::path::{Path, PathBuf};

use shardwright_gguf::{Conversion, QuantType, Reader, Split, TensorInfo, convert as write_anew};
use shardwright_model::synth::{Fuse, Layout, Order, rewrite};

use crate::gguf::look_up;
use crate::{Input, one_line};

/// A folder of its own for each call; `TMPDIR` had better be in memory.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("there is a folder for temporary files")
}

fn open(path: &Path) -> Option<Reader> {
    Reader::open(path).inspect_err(one_line).ok()
}

/// Every tensor has all of its bytes.
fn check(reader: &Reader) {
    look_up(reader.meta());
    for t in reader.tensors() {
        assert_eq!(reader.bytes(t).len() as u64, t.bytes);
        assert_eq!(reader.tensor(&t.name), Some(t));
    }
}

/// A set of files named as parts, opened by one of them, and another attached to it.
pub fn split(data: &[u8]) {
    let mut input = Input::new(data);
    let count = 1 + input.byte() % 4;
    let named = input.byte() % count;
    let claimed = if input.byte() == 0 { count } else { input.byte() };
    let folder = folder();
    let mut paths = Vec::new();
    for no in 1..=count {
        let below = folder.path().join("below");
        let place = if input.byte() == 1 { &below } else { folder.path() };
        let path = place.join(format!("m-{no:05}-of-{claimed:05}.gguf"));
        fs::create_dir_all(place).and_then(|()| fs::write(&path, input.bytes())).expect("a file is written");
        paths.push(path);
    }
    let Some(mut reader) = open(&paths[named as usize]) else { return };
    check(&reader);
    let alone = folder.path().join("companion.gguf");
    fs::write(&alone, input.rest()).expect("a file is written");
    if let Some(companion) = open(&alone) {
        match reader.attach(companion) {
            Ok(()) => check(&reader),
            Err(e) => one_line(&e),
        }
    }
}

/// A file that opens is written anew: with other types, split, fused. The result opens, too, and has the same tensors.
pub fn convert(data: &[u8]) {
    let mut input = Input::new(data);
    let to = input.pick(QuantType::ALL);
    let every = input.byte();
    let split = (every & 1 == 1).then_some(Split {
        max_tensors: Some(1 + (every >> 4) as usize),
        metadata_first: every & 2 == 2,
        ..Split::default()
    });
    let folder = folder();
    let source = folder.path().join("in.gguf");
    fs::write(&source, input.rest()).expect("a file is written");
    let Some(reader) = open(&source) else { return };
    check(&reader);
    let choose = |t: &TensorInfo| if every & 4 == 4 && t.ne[1] == 1 { t.quant } else { to };
    let conversion = Conversion { choose: &choose, split, threads: 1 };
    let anew = write_anew(&reader, &folder.path().join("out.gguf"), &conversion, &mut |_| {});
    if let Some(written) = opened(anew) {
        same_tensors(&reader, &written);
    }
    let layout = Layout { order: Order::Shuffled(every.into()), split, sparse: every & 8 == 8 };
    let fused =
        rewrite(&reader, &folder.path().join("fused.gguf"), &[Fuse::Qkv, Fuse::GateUp], &layout, &mut |_| {});
    opened(fused);
}

fn same_tensors(a: &Reader, b: &Reader) {
    let shapes = |r: &Reader| -> Vec<_> { r.tensors().iter().map(|t| (t.name.clone(), t.ne)).collect() };
    assert_eq!(shapes(a), shapes(b));
}

/// What was written can be read.
fn opened<E: std::fmt::Display>(paths: Result<Vec<PathBuf>, E>) -> Option<Reader> {
    let paths = paths.inspect_err(one_line).ok()?;
    let reader = Reader::open(&paths[0]).unwrap_or_else(|e| panic!("written, but not readable: {e}"));
    check(&reader);
    Some(reader)
}
