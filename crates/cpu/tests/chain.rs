//! Models that say exactly what a test wants: large values, and values that are no numbers.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use shardwright_cpu::CpuExecutor;
use shardwright_gguf::{Meta, QuantType, Value, Writer};
use shardwright_model::exec::*;

const WIDTH: usize = 64;
/// Says `HI`, then `YOU`, then `END`.
const A: u32 = 1;
const HI: u32 = 2;
const YOU: u32 = 3;
const END: u32 = 4;
/// Followed by `END`.
const B: u32 = 5;
/// Its embedding may be NaN.
const N: u32 = 6;

/// A `llama` whose next token depends on the current one only. `boom`: what the feed-forward adds to the stream.
fn chain(boom: f32, nan: bool, setup: Setup) -> CpuExecutor {
    let mut meta = Meta::new();
    meta.set("general.architecture", Value::String(b"llama".to_vec()));
    for (key, n) in [
        ("context_length", 512),
        ("embedding_length", WIDTH),
        ("block_count", 1),
        ("feed_forward_length", WIDTH),
        ("attention.head_count", 8),
        ("attention.head_count_kv", 8),
        ("rope.dimension_count", 8),
        ("vocab_size", WIDTH),
    ] {
        meta.set(&format!("llama.{key}"), Value::U32(n as u32));
    }
    meta.set("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-12));
    let eye = |v: f32| (0..WIDTH * WIDTH).map(|i| if i / WIDTH == i % WIDTH { v } else { 0.0 }).collect();
    let root = (WIDTH as f32).sqrt();
    let mut embedding: Vec<f32> = eye(1.0);
    if nan {
        embedding[N as usize * WIDTH..][..WIDTH].fill(f32::NAN);
    }
    let mut output = vec![-30.0 / root; WIDTH * WIDTH];
    for t in 0..WIDTH {
        let next = [(A, HI), (HI, YOU)].iter().find(|s| s.0 == t as u32).map_or(END, |s| s.1);
        output[next as usize * WIDTH + t] = 0.0;
    }
    let gate = if boom > 0.0 { 1.0 } else { 0.0 };
    let block = |n: &str| format!("blk.0.{n}.weight");
    let tensors: Vec<(String, Vec<f32>)> = vec![
        ("token_embd.weight".into(), embedding),
        ("output.weight".into(), output),
        ("output_norm.weight".into(), vec![1.0; WIDTH]),
        (block("attn_norm"), vec![1.0; WIDTH]),
        (block("ffn_norm"), vec![1.0; WIDTH]),
        (block("attn_q"), eye(0.0)),
        (block("attn_k"), eye(0.0)),
        (block("attn_v"), eye(0.1)),
        (block("attn_output"), eye(1e-4)),
        (block("ffn_gate"), eye(gate)),
        (block("ffn_up"), eye(gate)),
        (block("ffn_down"), eye(boom / WIDTH as f32)),
    ];
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chain.gguf");
    let mut w = Writer::new(meta).unwrap();
    for (name, data) in &tensors {
        let matrix = [WIDTH as u64, WIDTH as u64];
        w.tensor(name, QuantType::F32, &matrix[..data.len().div_ceil(WIDTH * WIDTH - 1).min(2)]).unwrap();
    }
    w.write(&path, |t, out| {
        let data = &tensors.iter().find(|(n, _)| *n == t.name).unwrap().1;
        data.iter().try_for_each(|v| out.write_all(&v.to_le_bytes()))?;
        Ok(())
    })
    .unwrap();
    open(&path, setup)
}

fn says_hi(exec: &mut CpuExecutor, prompt: &[u32]) {
    assert_eq!(greedy(exec, prompt, 3), [HI, YOU, END]);
}

#[test]
fn n1_a_sum_above_65504_stays_finite() {
    for ranks in [1, 2, 4, 8] {
        let mut exec = chain(1e5, false, over(ranks));
        for n in [0, 31, 63, 64, 65, 200] {
            let prompt: Vec<u32> = std::iter::repeat_n(B, n).chain([A]).collect();
            says_hi(&mut exec, &prompt);
        }
        let mut taps = Taps::default();
        exec.step_probed(&step_of(&[(&[A], 0, &TABLE)], Want::Nothing), Some(&mut taps)).unwrap();
        let most = taps.row("blk.0.l_out", 0).iter().fold(0f32, |m, v| m.max(v.abs()));
        assert!(most > 99_000.0, "the layer really adds a large value: {most}");
    }
}

fn spoiled(out: &StepOutput, row: usize) -> &str {
    match &out.rows[row] {
        RowOutput::NonFinite { at } => at,
        other => panic!("row {row}: {other:?}"),
    }
}

#[test]
fn n2_a_nan_ends_its_own_sequence_only() {
    for setup in [PLAIN, over(2)] {
        let mut exec = chain(1.0, true, setup);
        let alone = logits(&exec.step(&step_of(&[(&[B, A], 0, &[9])], Want::Logits)).unwrap());
        let step = step_of(&[(&[B, A], 0, &[5]), (&[B, N, A], 0, &[7]), (&[B, A], 0, &[6])], Want::Logits);
        let out = exec.step(&step).unwrap();
        for (row, want) in [(0, 0), (1, 1), (2, 0), (5, 0), (6, 1)] {
            assert_eq!(out.rows[row], RowOutput::Logits(alone[want].clone()), "row {row}");
        }
        assert_eq!(spoiled(&out, 3), "embd");
        assert_eq!(
            spoiled(&out, 4),
            "blk.0.kqv_out",
            "a later row of the same sequence sees the NaN in the cache"
        );
        let nothing = exec.step(&step_of(&[(&[N], 0, &[7])], Want::Nothing)).unwrap();
        assert_eq!(spoiled(&nothing, 0), "embd", "said even where nothing is asked for");
        for _ in 0..200 {
            let out = exec.step(&step_of(&[(&[B, A], 0, &[7])], Want::Logits)).unwrap();
            assert_eq!(logits(&out), alone, "a block that held NaN is used again");
        }
    }
}

#[test]
fn an_infinity_is_an_error_too() {
    let mut exec = chain(f32::INFINITY, false, PLAIN);
    let out = exec.step(&step_of(&[(&[A], 0, &TABLE)], Want::Candidates)).unwrap();
    assert_eq!(spoiled(&out, 0), "blk.0.ffn_down_part");
}

#[test]
fn candidates_are_the_best_of_all_logits() {
    let mut exec = chain(0.0, false, over(2));
    let step = |want| step_of(&[(&[A], 0, &TABLE)], want);
    let all = logits(&exec.step(&step(Want::Logits)).unwrap()).remove(0);
    let out = exec.step(&step(Want::Candidates)).unwrap();
    let RowOutput::Candidates { ids, logits, log_sum_exp } = &out.rows[0] else { panic!("{out:?}") };
    assert_eq!((ids[0], ids.len()), (HI, CANDIDATES));
    assert!(ids.iter().zip(logits).all(|(i, l)| all[*i as usize] == *l));
    assert!(logits.windows(2).all(|w| w[0] >= w[1]));
    assert!(log_sum_exp.abs() < 1e-6, "{log_sum_exp}");
}

#[test]
fn wrong_steps_are_refused_and_harm_nothing() {
    let mut exec = chain(0.0, false, PLAIN);
    let good = step_of(&[(&[A], 0, &TABLE)], Want::Candidates);
    let bad: Vec<(&str, StepBatch)> = vec![
        ("vocabulary", StepBatch { tokens: vec![WIDTH as u32], ..good.clone() }),
        ("no place in the cache", StepBatch { positions: vec![256], ..good.clone() }),
        ("no place in the cache", StepBatch { sequences: vec![1], ..good.clone() }),
        ("cache block", StepBatch { tables: vec![vec![BLOCKS as u32]], ..good.clone() }),
        ("for each token", StepBatch { wants: vec![], ..good.clone() }),
        ("next-token layer", StepBatch { hidden: Some(vec![]), ..good.clone() }),
        ("at most 256", step_of(&[(&[B; 200], 0, &TABLE), (&[B; 57], 0, &[4])], Want::Nothing)),
    ];
    for (why, step) in bad {
        let error = exec.step(&step).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    assert_eq!(exec.step(&StepBatch::default()).unwrap(), StepOutput::default());
    says_hi(&mut exec, &[A]);
}

struct Falls;

impl Probe for Falls {
    fn see(&mut self, v: &Seen<'_>) {
        assert_ne!(v.path, "blk.0.ffn_inp", "as planned");
    }
}

#[test]
fn a_panic_is_an_error_that_stays() {
    let mut exec = chain(0.0, false, over(2));
    let step = step_of(&[(&[A], 0, &TABLE)], Want::Candidates);
    let first = exec.step_probed(&step, Some(&mut Falls)).unwrap_err();
    assert!(first.0.contains("as planned"), "{first}");
    assert_eq!(exec.step(&step).unwrap_err(), first);
}
