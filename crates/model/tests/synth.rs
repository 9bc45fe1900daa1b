//! Written models: readable, the same in any order and any parts, fused bit by bit, sparse in no time.
#![allow(clippy::unwrap_used)]

mod util;

use shardwright_gguf::{QuantType, Reader, Split};
use shardwright_model::hyper::{Options, Source};
use shardwright_model::op::Description;
use shardwright_model::plan::plan;
use shardwright_model::synth::{self, Fuse, Layout, Order};
use shardwright_model::{arch, presets};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;
use util::header;

fn no_progress(_: u64) {}

fn write(dir: &Path, name: &str, h: &presets::Header, layout: &Layout) -> PathBuf {
    let files = synth::random(h, &dir.join(name), 1, layout, &mut no_progress).unwrap();
    files[0].clone()
}

/// Each tensor's type, shape and bytes by name.
fn contents(r: &Reader) -> BTreeMap<String, (QuantType, [u64; 4], Vec<u8>)> {
    r.tensors().iter().map(|t| (t.name.clone(), (t.quant, t.ne, r.bytes(t).to_vec()))).collect()
}

fn described(r: &Reader) -> Description {
    let has = |name: &str| Some(r.tensor(name).is_some());
    let h = arch::read(&Source { meta: r.meta(), has: &has, options: Options::default() }).unwrap();
    arch::describe(&h)
}

#[test]
fn a_written_model_reads_back_as_it_was_described() {
    let dir = tempfile::tempdir().unwrap();
    for (name, _) in presets::all().filter(|p| p.0.starts_with("tiny")) {
        let h = header(name, &[], "q4_k_m");
        let r = Reader::open(&write(dir.path(), "m.gguf", &h, &Layout::default())).unwrap();
        assert_eq!(r.warnings(), [""; 0], "{name}");
        let d = described(&r);
        assert_eq!(d, arch::describe(&h.hyper), "{name}");
        assert!(plan(&d, &|n| r.tensor(n), 2).is_ok(), "{name}");
        assert_eq!(r.tensors().len(), h.tensors().len());
        for t in r.tensors() {
            let mut values = vec![0.0; t.elements() as usize];
            t.quant.decode(r.bytes(t), &mut values);
            let rms =
                (values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / values.len() as f64).sqrt();
            assert!(rms.is_finite() && rms > 0.0 && rms < 1.5, "{name} {}: {rms}", t.name);
        }
    }
}

#[test]
fn a_matrix_takes_unit_variance_to_unit_variance() {
    let dir = tempfile::tempdir().unwrap();
    let h = header("tiny-qwen3", &[], "q4_k_m");
    let r = Reader::open(&write(dir.path(), "m.gguf", &h, &Layout::default())).unwrap();
    for (name, want) in [("blk.0.attn_q.weight", 1.0), ("blk.1.ffn_down.weight", 1.0), ("output.weight", 9.0)]
    {
        let t = r.tensor(name).unwrap();
        let mut w = vec![0.0; t.elements() as usize];
        t.quant.decode(r.bytes(t), &mut w);
        let mut rng = synth::random::Rng::new(3, "x");
        let x: Vec<f32> = (0..t.ne[0]).map(|_| rng.normal()).collect();
        let y = w.chunks_exact(x.len()).map(|row| row.iter().zip(&x).map(|(a, b)| a * b).sum::<f32>());
        let variance = y.map(|v| v * v).sum::<f32>() / t.ne[1] as f32;
        assert!((variance / want - 1.0).abs() < 0.35, "{name}: {variance}");
    }
}

#[test]
fn the_tokenizer_has_every_byte_and_one_entry_for_each_row() {
    let dir = tempfile::tempdir().unwrap();
    let h = header("tiny-llama", &[], "f32");
    let r = Reader::open(&write(dir.path(), "m.gguf", &h, &Layout::default())).unwrap();
    let tokens = r.meta().need_strings("tokenizer.ggml.tokens").unwrap();
    assert_eq!(tokens.len(), 512);
    let mut distinct: Vec<&[u8]> = tokens.iter().collect();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 512);
    assert_eq!(r.meta().need::<Vec<i32>>("tokenizer.ggml.token_type").unwrap().len(), 512);
    for merge in r.meta().need_strings("tokenizer.ggml.merges").unwrap().iter() {
        let text = std::str::from_utf8(merge).unwrap();
        let (a, b) = text.split_once(' ').unwrap();
        for piece in [a, b, &format!("{a}{b}")] {
            assert!(distinct.binary_search(&piece.as_bytes()).is_ok(), "{piece}");
        }
    }
    let eos: u32 = r.meta().need("tokenizer.ggml.eos_token_id").unwrap();
    assert_eq!(tokens.get(eos as usize), Some(&b"<|endoftext|>"[..]));
    let small = header("tiny-llama", &[("vocab_size", "100")], "f32");
    let text = synth::random(&small, &dir.path().join("s.gguf"), 1, &Layout::default(), &mut no_progress);
    assert!(text.unwrap_err().to_string().contains("at least 274 entries"));
}

#[test]
fn q1_order_and_parts_change_no_tensor() {
    let dir = tempfile::tempdir().unwrap();
    let h = header("tiny-glm-dsa", &[], "q4_k_m");
    let plain_path = write(dir.path(), "plain.gguf", &h, &Layout::default());
    let plain = Reader::open(&plain_path).unwrap();
    let want = contents(&plain);
    let names = |r: &Reader| r.tensors().iter().map(|t| t.name.clone()).collect::<Vec<_>>();
    let by_tensors = Split { max_tensors: Some(5), ..Split::default() };
    let by_bytes = Split { max_bytes: Some(300_000), metadata_first: true, ..Split::default() };
    let orders = [Order::Reversed, Order::KvFirst, Order::Shuffled(7), Order::Shuffled(8)];
    for (i, order) in orders.into_iter().enumerate() {
        for split in [None, Some(by_tensors), Some(by_bytes)] {
            let layout = Layout { order, split, sparse: false };
            let name = format!("{i}-{}.gguf", split.is_some());
            let random = Reader::open(&write(dir.path(), &name, &h, &layout)).unwrap();
            let like = dir.path().join(format!("like-{name}"));
            let like = synth::rewrite(&plain, &like, &[], &layout, &mut no_progress).unwrap();
            let like = Reader::open(&like[0]).unwrap();
            for r in [&random, &like] {
                assert!(contents(r) == want, "{order:?} {split:?}");
                assert_ne!(names(r), names(&plain));
                assert_eq!(r.files().len() > 1, split.is_some());
                let rows = plan(&described(r), &|n| r.tensor(n), 2).unwrap();
                assert_eq!(
                    rows[1].ops.len(),
                    plan(&described(&plain), &|n| plain.tensor(n), 2).unwrap()[1].ops.len()
                );
            }
            assert_eq!(like.meta().get("tokenizer.ggml.tokens"), plain.meta().get("tokenizer.ggml.tokens"));
        }
    }
    let first = Reader::open(&dir.path().join("0-true-00001-of-00006.gguf"));
    assert!(first.is_err() || first.unwrap().files().len() == 6);
}

#[test]
fn fused_rows_are_the_rows_of_their_parts() {
    let dir = tempfile::tempdir().unwrap();
    let h = header("tiny-glm4moe", &[], "q8_0");
    let plain = Reader::open(&write(dir.path(), "plain.gguf", &h, &Layout::default())).unwrap();
    let fuse = [Fuse::Qkv, Fuse::GateUp];
    let path = dir.path().join("fused.gguf");
    synth::rewrite(&plain, &path, &fuse, &Layout::default(), &mut no_progress).unwrap();
    let fused = Reader::open(&path).unwrap();
    assert!(fused.tensor("blk.1.attn_q.weight").is_none() && fused.tensor("blk.1.attn_k.bias").is_none());
    let (a, b) = (described(&plain), described(&fused));
    // the same ops read the same bits, whichever tensor holds them
    let (pa, pb) = (plan(&a, &|n| plain.tensor(n), 2).unwrap(), plan(&b, &|n| fused.tensor(n), 2).unwrap());
    let mut moved = 0;
    for (x, y) in pa.iter().zip(&pb).flat_map(|(a, b)| a.ops.iter().zip(&b.ops)) {
        for (v, w) in x.weights.iter().zip(&y.weights) {
            moved += usize::from(v.name != w.name);
            let file = |r: &Reader, w: &shardwright_model::plan::LocalWeight| {
                let t = r.tensor(&w.name).unwrap();
                let rows = (0..w.copies.len()).flat_map(|c| (0..w.rows.len()).map(move |r| (c, r)));
                rows.flat_map(|(c, row)| {
                    let at = w.row(c, row);
                    r.bytes(t)[(at.start - t.offset) as usize..(at.end - t.offset) as usize].to_vec()
                })
                .collect::<Vec<u8>>()
            };
            assert!(file(&plain, v) == file(&fused, w), "{} {}", v.name, w.name);
        }
    }
    assert!(moved > 20, "{moved}");
    let mixed = header("tiny-qwen3", &[], "q4_k_m");
    let mixed = Reader::open(&write(dir.path(), "mixed.gguf", &mixed, &Layout::default())).unwrap();
    let text = synth::rewrite(&mixed, &path, &[Fuse::Qkv], &Layout::default(), &mut no_progress).unwrap_err();
    assert!(text.to_string().contains("needs parts of one type"), "{text}");
}

#[test]
fn a_sparse_set_of_436_gigabytes_is_laid_out_and_planned_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let h = header("glm-5.2", &[], "ud-q4_k_s-like");
    assert!((h.bytes() as f64 / 436.4e9 - 1.0).abs() < 0.001, "{}", h.bytes());
    let split = Split { max_bytes: Some(45_000_000_000), metadata_first: true, ..Split::default() };
    let layout = Layout { split: Some(split), sparse: true, ..Layout::default() };
    let first = write(dir.path(), "glm.gguf", &h, &layout);
    let start = Instant::now();
    let r = Reader::open(&first).unwrap();
    let d = described(&r);
    let plans = plan(&d, &|n| r.tensor(n), 8).unwrap();
    let took = start.elapsed();
    assert_eq!((r.files().len(), r.tensors().len(), plans.len()), (11, 1809, 8));
    assert!(r.total_bytes() > h.bytes());
    assert!(took.as_secs_f64() < 1.0, "{took:?}");
}

#[test]
fn large_tensors_are_cut_from_tiles_fast() {
    let keys = [("block_count", "1"), ("feed_forward_length", "65536"), ("vocab_size", "4096")];
    let h = header("llama-3-8b", &keys, "q4_k_m");
    let mut n = 0;
    let dir = tempfile::tempdir().unwrap();
    let start = Instant::now();
    let path = dir.path().join("big.gguf");
    synth::random(&h, &path, 1, &Layout::default(), &mut |bytes| n += bytes).unwrap();
    assert_eq!(n, h.bytes());
    let rate = n as f64 / start.elapsed().as_secs_f64() / 1e6;
    println!("{:.0} MB at {rate:.0} MB/s", n as f64 / 1e6);
    let r = Reader::open(&path).unwrap();
    let [gate, up] = ["blk.0.ffn_gate.weight", "blk.0.ffn_up.weight"].map(|n| r.bytes(r.tensor(n).unwrap()));
    assert!(gate != up);
}
