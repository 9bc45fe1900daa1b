//! The demo model is a quality meter: its perplexity on held-out text was measured by another program (PyTorch, in
//! float32: `demo/README.md`) and must come out the same here.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use shardwright_cpu::{Activations, CpuExecutor, CpuOptions};
use shardwright_cuda::driver::Gpu;
use shardwright_cuda::jit::{Folders, Jit};
use shardwright_cuda::nvrtc::Nvrtc;
use shardwright_cuda::wave::MULTIPROCESSORS;
use shardwright_cuda::{CudaExecutor, CudaOptions};
use shardwright_gguf::Reader;
use shardwright_model::exec::{BLOCK, Executor, Ranks, RowOutput, StepBatch, Want, Wire};
use shardwright_model::hyper::{Options, Source};
use shardwright_model::plan::{RankPlan, plan};
use shardwright_model::{arch, op::Description};
use shardwright_text::tokenizer::{Special, Tokenizer};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Longest of the documents below, in cache blocks.
const BLOCKS: usize = 16;

/// A file of the demo's folder; where the tests are not run where they were built, that is below the working folder.
fn demo(name: &str) -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo").join(name);
    if built.exists() { built } else { Path::new("demo").join(name) }
}

fn plans(reader: &Reader, options: Options, ranks: usize) -> (Description, Vec<RankPlan>) {
    let has = |name: &str| Some(reader.tensor(name).is_some());
    let hyper = arch::read(&Source { meta: reader.meta(), has: &has, options }).unwrap();
    let trunk = arch::describe(&hyper);
    let plans = plan(&trunk, &|n: &str| reader.tensor(n), ranks).unwrap();
    (trunk, plans)
}

fn executor(reader: &Arc<Reader>, options: Options, ranks: usize, activations: Activations) -> CpuExecutor {
    wired(reader, options, ranks, activations, Wire::F32)
}

fn wired(
    reader: &Arc<Reader>,
    options: Options,
    ranks: usize,
    activations: Activations,
    wire: Wire,
) -> CpuExecutor {
    let (trunk, plans) = plans(reader, options, ranks);
    let size = CpuOptions {
        threads: 2,
        rows: 128,
        blocks: BLOCKS,
        context: BLOCKS * BLOCK,
        activations,
        ranks: Ranks { wire, check: true },
    };
    CpuExecutor::new(reader.clone(), (&trunk, plans), None, size).unwrap()
}

/// None, and a line that says so, where there is no GPU; an error if `SHARDWRIGHT_REQUIRE_GPU` is set.
fn on_gpu(
    reader: &Arc<Reader>,
    options: Options,
    ranks: usize,
    fast: bool,
    wire: Wire,
) -> Option<CudaExecutor> {
    let jit = Jit::new(Nvrtc::find, Folders::find(), |_, _| {});
    let gpu = Gpu::list().and_then(|_| Gpu::open(0, Arc::new(jit)));
    let gpu = match gpu {
        Ok(gpu) => gpu,
        Err(e) => {
            assert!(std::env::var_os("SHARDWRIGHT_REQUIRE_GPU").is_none(), "{e}");
            eprintln!("SKIPPED: no GPU was used: {e}");
            return None;
        }
    };
    let (trunk, plans) = plans(reader, options, ranks);
    let size = CudaOptions {
        rows: 128,
        blocks: BLOCKS,
        context: BLOCKS * BLOCK,
        fast,
        fuse: true,
        tiles: vec![8],
        dummy: false,
        recorded: vec![],
        ranks: Ranks { wire, check: true },
        narrow: CudaOptions::NARROW,
        alone: false,
        patience: CudaOptions::PATIENCE,
        multiprocessors: MULTIPROCESSORS,
        delay: Duration::ZERO,
        two_legs: vec![],
        nccl: false,
    };
    Some(CudaExecutor::new(vec![Box::new(gpu)], reader, (&trunk, plans), None, &size, &mut |_| {}).unwrap())
}

/// Logits of at most 128 tokens from a position on.
fn rows(exec: &mut dyn Executor, tokens: &[u32], start: u32) -> Vec<Vec<f32>> {
    let n = tokens.len();
    let batch = StepBatch {
        tokens: tokens.to_vec(),
        positions: (start..start + n as u32).collect(),
        sequences: vec![0; n],
        tables: vec![(0..BLOCKS as u32).collect()],
        wants: vec![Want::Logits; n],
        ..StepBatch::default()
    };
    let logits = |row| if let RowOutput::Logits(l) = row { l } else { panic!("{row:?} instead of logits") };
    exec.step(&batch).unwrap().rows.into_iter().map(logits).collect()
}

/// Negative log-likelihood of each token after the first, in nats.
fn losses(exec: &mut dyn Executor, ids: &[u32]) -> Vec<f64> {
    let mut out = vec![];
    for (start, tokens) in (0..).step_by(128).zip(ids.chunks(128)) {
        for (logits, at) in rows(exec, tokens, start).into_iter().zip(start as usize..) {
            if let Some(next) = ids.get(at + 1) {
                let sum: f64 = logits.iter().map(|x| f64::from(*x).exp()).sum();
                out.push(sum.ln() - f64::from(logits[*next as usize]));
            }
        }
    }
    out
}

/// The 24 documents whose figures the model card gives.
fn documents(reader: &Reader) -> Vec<Vec<u32>> {
    let tokenizer = Tokenizer::from_meta(reader.meta()).unwrap();
    let text = std::fs::read_to_string(demo("heldout.jsonl")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let ids = |i: usize| {
        let document: serde_json::Value = serde_json::from_str(lines[i]).unwrap();
        tokenizer.encode(document["text"].as_str().unwrap(), Special::Parse).unwrap()
    };
    [0..4, 200..210, 350..360].into_iter().flatten().map(ids).collect()
}

/// Perplexity over documents, each in a fresh context.
fn perplexity(exec: &mut dyn Executor, documents: &[Vec<u32>]) -> (f64, usize) {
    let all: Vec<f64> = documents.iter().flat_map(|ids| losses(exec, ids)).collect();
    ((all.iter().sum::<f64>() / all.len() as f64).exp(), all.len())
}

/// The likeliest tokens after a prompt, and how far each is ahead of the next.
fn greedy(exec: &mut dyn Executor, prompt: &[u32], count: usize) -> Vec<(u32, f32)> {
    let (mut ids, mut out) = (prompt.to_vec(), vec![]);
    for _ in 0..count {
        let first = if out.is_empty() { 0 } else { ids.len() - 1 };
        let mut wants = vec![Want::Nothing; ids.len() - first];
        *wants.last_mut().unwrap() = Want::Candidates;
        let batch = StepBatch {
            tokens: ids[first..].to_vec(),
            positions: (first as u32..ids.len() as u32).collect(),
            sequences: vec![0; ids.len() - first],
            tables: vec![(0..BLOCKS as u32).collect()],
            wants,
            ..StepBatch::default()
        };
        let answer = exec.step(&batch).unwrap().rows.pop();
        let Some(RowOutput::Candidates { ids: best, logits, .. }) = answer else { panic!("{answer:?}") };
        out.push((best[0], logits[0] - logits[1]));
        ids.push(best[0]);
    }
    out
}

/// Beginnings of documents, shorter and longer than the 64 positions that are kept.
fn prompts(reader: &Reader) -> Vec<Vec<u32>> {
    let some = documents(reader).into_iter().step_by(8).zip([40, 90, 60]);
    some.map(|(ids, count)| ids[..count.min(ids.len())].to_vec()).collect()
}

/// What one rank on the CPU says after each.
fn said_alone(reader: &Arc<Reader>) -> Vec<Vec<(u32, f32)>> {
    let mut alone = executor(reader, Options::default(), 1, Activations::F32);
    prompts(reader).iter().map(|prompt| greedy(&mut alone, prompt, 64)).collect()
}

/// Twice what a wire of bf16 moves logits by: in nine rows of ten no logit by more than 0.05. A token that is less far ahead it may
/// choose otherwise.
const LEAD: f32 = 0.1;

/// With summands of f32 the same is said. With those of bf16 each token that is far enough ahead is chosen again, after the same text.
fn check_said(exec: &mut dyn Executor, wire: Wire, reader: &Reader, alone: &[Vec<(u32, f32)>], what: &str) {
    for (prompt, said) in prompts(reader).iter().zip(alone) {
        let tokens: Vec<u32> = said.iter().map(|(id, _)| *id).collect();
        if wire == Wire::F32 {
            let found: Vec<u32> = greedy(exec, prompt, tokens.len()).into_iter().map(|(id, _)| id).collect();
            assert_eq!(found, tokens, "{what}");
            continue;
        }
        let ids = [&prompt[..], &tokens].concat();
        let pieces = (0..).step_by(128).zip(ids.chunks(128));
        let all: Vec<Vec<f32>> = pieces.flat_map(|(start, tokens)| rows(exec, tokens, start)).collect();
        let ahead: Vec<usize> = (0..said.len()).filter(|n| said[*n].1 >= LEAD).collect();
        println!("{what}: {} of {} tokens are far enough ahead", ahead.len(), said.len());
        for n in ahead {
            let row = &all[prompt.len() + n - 1];
            let best = (0..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best });
            assert_eq!(best as u32, tokens[n], "{what}, token {n}");
        }
    }
}

/// The float32 figures of the model card, which another program measured.
const SPARSE: f64 = 1.595888;
const DENSE: f64 = 1.596217;
/// The same of the fast path, sparse, measured here.
const FAST: f64 = 1.596749;
const FAST_ON_TWO: f64 = 1.596635;

fn check(options: Options, ranks: usize, activations: Activations, expected: f64, tolerance: f64) {
    let reader = Arc::new(Reader::open(&demo("glm-dsa-demo-UD-Q4_K_XL.gguf")).unwrap());
    let mut exec = executor(&reader, options, ranks, activations);
    let (found, tokens) = perplexity(&mut exec, &documents(&reader));
    println!(
        "{options:?} on {ranks} ranks, {activations:?}: {found:.6} over {tokens} tokens, elsewhere {expected}"
    );
    assert_eq!(tokens, 2357);
    assert!((found / expected - 1.0).abs() < tolerance, "{found} is not {expected}");
}

/// Both are float32 sums in other orders; the card gives six digits.
fn check_exact(options: Options, ranks: usize, expected: f64) {
    check(options, ranks, Activations::F32, expected, 1e-5);
}

#[test]
fn sparse_perplexity_is_that_of_another_program() {
    check_exact(Options::default(), 1, SPARSE);
}

#[test]
fn dense_perplexity_is_that_of_another_program() {
    check_exact(Options { dense_attention: true, ..Options::default() }, 1, DENSE);
}

#[test]
fn ranks_do_not_change_the_perplexity() {
    check_exact(Options::default(), 8, SPARSE);
}

/// Numbers of ranks, all of which the demo model can be cut over.
const RANKS: [usize; 5] = [2, 3, 4, 6, 8];

/// What some documents have on one rank, and on more.
fn on_ranks(wire: Wire) -> (f64, Vec<(usize, f64)>) {
    let reader = Arc::new(Reader::open(&demo("glm-dsa-demo-UD-Q4_K_XL.gguf")).unwrap());
    let some: Vec<Vec<u32>> = documents(&reader).into_iter().step_by(6).collect();
    let on =
        |ranks| perplexity(&mut wired(&reader, Options::default(), ranks, Activations::F32, wire), &some).0;
    (on(1), RANKS.map(|ranks| (ranks, on(ranks))).to_vec())
}

/// Summands of f32 are added in another order, and that is all: four digits are the same, here five.
#[test]
fn any_number_of_ranks_has_the_same_perplexity() {
    let (alone, all) = on_ranks(Wire::F32);
    for (ranks, found) in all {
        println!("{ranks} ranks: {found:.6}, {alone:.6} on one");
        assert!((found / alone - 1.0).abs() < 1e-5, "{ranks} ranks: {found} is not {alone}");
    }
}

#[test]
fn ranks_do_not_change_what_is_said() {
    let reader = Arc::new(Reader::open(&demo("glm-dsa-demo-UD-Q4_K_XL.gguf")).unwrap());
    let alone = said_alone(&reader);
    for ranks in RANKS {
        for wire in [Wire::F32, Wire::Bf16] {
            let mut exec = wired(&reader, Options::default(), ranks, Activations::F32, wire);
            check_said(&mut exec, wire, &reader, &alone, &format!("{ranks} ranks, {wire:?}"));
        }
    }
}

/// Summands of bf16 cost no more than rounding to eight bits does. Row by row they are judged in the CPU backend's tests.
#[test]
fn a_wire_of_bf16_hardly_changes_the_perplexity() {
    let (alone, all) = on_ranks(Wire::Bf16);
    for (ranks, found) in all {
        println!("{ranks} ranks, summands of bf16: {found:.6}, {alone:.6} on one");
        let off = (found / alone - 1.0).abs();
        assert!(off < 2e-3, "{ranks} ranks: {found} is not {alone}");
        assert!(off > 1e-7, "{ranks} ranks: nothing was rounded");
    }
}

/// The fast path has one answer on every machine; rounding costs it little of the quality.
#[test]
fn eight_bit_activations_hardly_change_the_perplexity() {
    for (ranks, sparse) in [(1, FAST), (2, FAST_ON_TWO)] {
        check(Options::default(), ranks, Activations::Q8, sparse, 1e-5);
        assert!((sparse / SPARSE - 1.0).abs() < 2e-3);
    }
}

#[test]
fn gpu_perplexity_is_that_of_another_program() {
    let reader = Arc::new(Reader::open(&demo("glm-dsa-demo-UD-Q4_K_XL.gguf")).unwrap());
    let dense = Options { dense_attention: true, ..Options::default() };
    let exact = [(Options::default(), 1, SPARSE), (dense, 1, DENSE), (Options::default(), 8, SPARSE)];
    let fast = [(Options::default(), 1, FAST), (Options::default(), 2, FAST_ON_TWO)];
    for ((options, ranks, expected), fast) in
        exact.map(|e| (e, false)).into_iter().chain(fast.map(|f| (f, true)))
    {
        let Some(mut exec) = on_gpu(&reader, options, ranks, fast, Wire::F32) else { return };
        let (found, tokens) = perplexity(&mut exec, &documents(&reader));
        println!(
            "{options:?} on {ranks} ranks, fast {fast}: {found:.6} over {tokens} tokens, elsewhere {expected}"
        );
        // rounding is the CPU's, sums are made in another order: single codes fall on the other side
        let tolerance = if fast { 5e-4 } else { 1e-5 };
        assert!((found / expected - 1.0).abs() < tolerance, "{found} is not {expected}");
    }
}

/// Virtual ranks on the card: with summands of f32 the figure itself, with those of bf16 hardly another one.
#[test]
fn gpu_any_number_of_ranks_has_the_same_perplexity() {
    let reader = Arc::new(Reader::open(&demo("glm-dsa-demo-UD-Q4_K_XL.gguf")).unwrap());
    let documents = documents(&reader);
    for ranks in RANKS {
        for (wire, least, most) in [(Wire::F32, 0.0, 1e-5), (Wire::Bf16, 1e-7, 2e-3)] {
            let Some(mut exec) = on_gpu(&reader, Options::default(), ranks, false, wire) else { return };
            let found = perplexity(&mut exec, &documents).0;
            println!("{ranks} ranks, {wire:?}: {found:.6}, elsewhere {SPARSE}");
            let off = (found / SPARSE - 1.0).abs();
            assert!(off >= least && off < most, "{ranks} ranks, {wire:?}: {found} is not {SPARSE}");
        }
    }
}

#[test]
fn gpu_ranks_say_what_the_cpu_says() {
    let reader = Arc::new(Reader::open(&demo("glm-dsa-demo-UD-Q4_K_XL.gguf")).unwrap());
    let alone = said_alone(&reader);
    for ranks in [1].into_iter().chain(RANKS) {
        for wire in [Wire::F32, Wire::Bf16] {
            let Some(mut exec) = on_gpu(&reader, Options::default(), ranks, false, wire) else { return };
            check_said(&mut exec, wire, &reader, &alone, &format!("{ranks} ranks, {wire:?}"));
        }
    }
}

/// Rows whose positions are all kept and whose sums are made in another order: no value is further from the CPU's than `verify` allows.
#[test]
fn gpu_ranks_are_those_of_the_cpu() {
    let reader = Arc::new(Reader::open(&demo("glm-dsa-demo-UD-Q4_K_XL.gguf")).unwrap());
    for ranks in [1].into_iter().chain(RANKS) {
        let Some(mut card) = on_gpu(&reader, Options::default(), ranks, false, Wire::F32) else { return };
        let mut cpu = executor(&reader, Options::default(), ranks, Activations::F32);
        let mut worst = 0f32;
        for ids in documents(&reader).iter().step_by(6) {
            let ids = &ids[..ids.len().min(60)];
            for (ours, theirs) in rows(&mut card, ids, 0).iter().zip(rows(&mut cpu, ids, 0)) {
                let size = (theirs.iter().map(|v| v * v).sum::<f32>() / theirs.len() as f32).sqrt();
                let off = ours.iter().zip(&theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                worst = worst.max(off / size);
            }
        }
        println!("{ranks} ranks: {worst:.2e} of a row's root mean square");
        assert!(worst < 1e-4, "{ranks} ranks: {worst}");
    }
}

/// Eighty near-duplicate records, then a question about each of some of them, answered.
fn look_ups(asked: &[usize]) -> Vec<(String, &'static str)> {
    const HOW: [&str; 10] = ["red", "blue", "green", "old", "young", "big", "small", "kind", "brave", "shy"];
    const WHO: [&str; 8] = ["fox", "cat", "dog", "owl", "bear", "wolf", "goat", "king"];
    const WORDS: [&str; 9] =
        [":apple", ":bread", ":river", ":clock", ":lamp", ":kite", ":bus", ":rain", ":map"];
    let key = |i: usize| format!("{} {}", HOW[i % 10], WHO[i / 10]);
    let word = |i: usize| WORDS[i * 7 % 9];
    let list: String = (0..80).map(|i| format!("- {}{}\n", key(i), word(i))).collect();
    let mut text = format!("[gMASK]<sop><|user|>Remember these words.\n{list}");
    let mut out = vec![];
    for &i in asked {
        text += &format!("What is the word for the {}?<|assistant|></think>- {}", key(i), key(i));
        out.push((text.clone(), word(i)));
        text += &format!("{}<|user|>", word(i));
    }
    out
}

/// The indexer's purpose: with 64 of 400 positions kept, the one that matters is among them.
#[test]
fn a_record_among_many_is_found() {
    let reader = Arc::new(Reader::open(&demo("glm-dsa-demo-UD-Q4_K_XL.gguf")).unwrap());
    let tokenizer = Tokenizer::from_meta(reader.meta()).unwrap();
    let encode = |text: &str| tokenizer.encode(text, Special::Parse).unwrap();
    for activations in [Activations::F32, Activations::Q8] {
        let mut exec = executor(&reader, Options::default(), 1, activations);
        for (question, word) in look_ups(&[0, 37, 79, 12]) {
            let (asked, answered) = (encode(&question), encode(&format!("{question}{word}")));
            assert_eq!(answered.len(), asked.len() + 1, "{word} is one token");
            let loss = *losses(&mut exec, &answered).last().unwrap();
            assert!(loss < 0.1, "{word} has probability {} after {} tokens", (-loss).exp(), asked.len());
        }
    }
}
