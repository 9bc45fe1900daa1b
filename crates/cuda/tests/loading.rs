//! Case L1: loading is a sequential read, by few and long calls, of what is needed and not more.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod blank;
#[path = "../../cpu/tests/common/mod.rs"]
mod common;
mod models;

use std::sync::Arc;

use blank::{Blank, Taken};
use common::{PLAIN, described};
use models::fast;
use shardwright_cuda::{CudaExecutor, Error};
use shardwright_gguf::Reader;
use shardwright_model::hyper::Options;
use shardwright_model::plan::plan;
use shardwright_model::presets::{Preset, Recipe};
use shardwright_model::synth::{self, Layout};

/// What this process has read so far: bytes, and calls.
fn read() -> [u64; 2] {
    let text = std::fs::read_to_string("/proc/self/io").unwrap();
    ["rchar: ", "syscr: "].map(|name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().parse().unwrap()
    })
}

#[test]
fn l1_weights_are_read_once_by_long_calls() {
    let mut preset = Preset::find("llama-3-8b").unwrap();
    preset.set_layers(2).unwrap();
    let sizes = ["embedding_length", "vocab_size", "attention.head_count", "attention.head_count_kv"];
    for (key, value) in sizes.into_iter().zip(["1024", "4096", "8", "2"]) {
        preset.set(key, value).unwrap();
    }
    let header = preset.header(Recipe::find("q8_0").unwrap(), Options::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("l1.gguf");
    synth::random(&header, &path, 1, &Layout::default(), &mut |_| {}).unwrap();
    let file = Arc::new(Reader::open(&path).unwrap());
    let trunk = described(&file, PLAIN.options).0;
    let plans = plan(&trunk, &|n| file.tensor(n), 1).unwrap();
    let weights: u64 = trunk.weights().map(|w| file.tensor(&w.name).unwrap().bytes).sum();
    // asking is reading too
    let asking = (0..2).map(|_| read()).reduce(|a, b| [b[0] - a[0], b[1] - a[1]]).unwrap();
    let (before, mut after, mut loaded, mut asked) = (read(), [0; 2], 0, 0);
    let mut watch = |bytes: u64| {
        loaded += bytes;
        asked += 1;
        after = read();
    };
    let devices: Vec<Box<dyn shardwright_cuda::device::Device>> =
        vec![Box::new(Blank::new(Taken::default()))];
    let made = CudaExecutor::new(devices, &file, (&trunk, plans), None, &fast(), &mut watch);
    // a blank has no hashes to show
    assert!(matches!(made, Err(Error::Slot { .. })), "{made:?}");
    let [bytes, calls] = [0, 1].map(|n| after[n] - before[n] - asked * asking[n]);
    let mean = bytes / calls;
    println!("{loaded} bytes loaded of {weights}, {bytes} read by {calls} calls, {mean} each");
    assert!(weights > 64 << 20, "too small a file: {weights}");
    assert!(loaded >= weights && bytes < weights + (weights >> 4), "{bytes} read of {weights}");
    assert!(mean >= 1 << 20, "{mean} bytes a call");
}
