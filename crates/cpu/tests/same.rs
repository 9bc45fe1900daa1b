//! A row's result depends on its own sequence only: bit for bit the same in any company, chunking, order of cache
//! blocks, number of threads, and order of tensors in the file.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use shardwright_cpu::{Activations, CpuExecutor};
use shardwright_model::exec::{BLOCK, Executor, StepBatch, Want};

fn bits(rows: &[Vec<f32>]) -> Vec<Vec<u32>> {
    rows.iter().map(|r| r.iter().map(|x| x.to_bits()).collect()).collect()
}

/// Small random numbers, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// Runs several sequences in steps that take a random number of tokens of some of them, through scattered blocks.
fn together(
    exec: &mut CpuExecutor,
    prompts: &[Vec<u32>],
    random: &mut Random,
    most: usize,
) -> Vec<Vec<Vec<f32>>> {
    let mut blocks: Vec<u32> = (0..BLOCKS as u32).collect();
    let tables: Vec<Vec<u32>> = prompts
        .iter()
        .map(|p| {
            (0..p.len().div_ceil(BLOCK)).map(|_| blocks.swap_remove(random.below(blocks.len()))).collect()
        })
        .collect();
    let mut all: Vec<Vec<Vec<f32>>> = prompts.iter().map(|_| vec![]).collect();
    while all.iter().zip(prompts).any(|(got, p)| got.len() < p.len()) {
        let mut step = StepBatch { tables: tables.clone(), ..StepBatch::default() };
        for (s, p) in prompts.iter().enumerate() {
            let first = all[s].len();
            let n = random.below(most + 1).min(p.len() - first);
            step.tokens.extend(&p[first..first + n]);
            step.positions.extend((first..first + n).map(|i| i as u32));
            step.sequences.extend(std::iter::repeat_n(s as u32, n));
        }
        step.wants = vec![Want::Logits; step.rows()];
        let out = logits(&exec.step(&step).unwrap());
        step.sequences.iter().zip(out).for_each(|(s, row)| all[*s as usize].push(row));
    }
    all
}

fn check_company(name: &str, setup: Setup) {
    let gold = Gold::open(&format!("golden/{name}.npz")).unwrap();
    let prompts: Vec<Vec<u32>> = (0..gold.prompts()).map(|p| gold.ids(p)).collect();
    let mut exec = open(&files(name)[0], setup);
    let alone: Vec<_> = prompts.iter().map(|p| bits(&forward(&mut exec, p))).collect();
    for (seed, most) in [(1, 5), (2, 40), (3, 80)] {
        let got = together(&mut exec, &prompts, &mut Random(seed), most);
        for (p, (got, alone)) in got.iter().zip(&alone).enumerate() {
            assert!(bits(got) == *alone, "{name} p{p}: steps of up to {most} tokens each");
        }
    }
}

#[test]
fn company_and_chunking_change_no_bit() {
    for (name, _) in goldens() {
        check_company(&name, PLAIN);
        check_company(&name, Setup { activations: Activations::Q8Everywhere, ..PLAIN });
    }
    let fast = Setup { activations: Activations::Q8, ..PLAIN };
    check_company("glm-dsa-tp8-kq", Setup { threads: 3, ..fast });
    check_company("glm-dsa-tp8-kq", Setup { activations: Activations::Q8, ..over(4) });
    check_company("glm-dsa-tp8-kq", over(4));
}

#[test]
fn m4_sparse_is_dense_up_to_top_k_and_not_beyond() {
    let dense = Setup {
        options: shardwright_model::hyper::Options { dense_attention: true, ..Default::default() },
        ..PLAIN
    };
    let gold = Gold::open("golden/glm-dsa-share-bf16.npz").unwrap();
    let file = &files("glm-dsa-share-bf16")[0];
    let ids = gold.ids(2);
    let [sparse, dense] = [PLAIN, dense].map(|s| bits(&forward(&mut open(file, s), &ids)));
    let first = (0..ids.len()).find(|t| sparse[*t] != dense[*t]);
    let keep = gold.shape("p2_index_sel")[2];
    assert_eq!(first, Some(keep), "the first position that leaves a key out");
}

#[test]
fn q1_file_order_changes_no_bit() {
    let Some(shuffled) = find("models/glm-dsa-f32-shuffled.gguf") else { return };
    let gold = Gold::open("golden/glm-dsa-f32.npz").unwrap();
    let plain = data().join("models/glm-dsa-f32.gguf");
    for ranks in [1, 2] {
        let [a, b] = [&plain, &shuffled].map(|f| bits(&forward(&mut open(f, over(ranks)), &gold.ids(2))));
        assert!(a == b, "{ranks} ranks");
    }
}

#[test]
fn m5_old_and_new_layout_of_latent_attention_agree() {
    let Some(old) = find("models/deepseek2-lite-f32-legacykvb.gguf") else { return };
    let gold = Gold::open("golden/deepseek2-lite-f32.npz").unwrap();
    let new = data().join("models/deepseek2-lite-f32.gguf");
    for ranks in [1, 2] {
        let [a, b] = [&old, &new].map(|f| bits(&forward(&mut open(f, over(ranks)), &gold.ids(2))));
        assert!(a == b, "{ranks} ranks: the same numbers in the same order give the same bits");
    }
}

#[test]
fn threads_change_no_bit() {
    for name in ["llama-f32", "glm-dsa-tp8-kq"] {
        let gold = Gold::open(&format!("golden/{name}.npz")).unwrap();
        for ranks in [1, 2] {
            let run = |threads| {
                bits(&forward(&mut open(&files(name)[0], Setup { threads, ..over(ranks) }), &gold.ids(1)))
            };
            let alone = run(1);
            assert!([2, 5].iter().all(|n| run(*n) == alone), "{name} over {ranks}");
        }
    }
}
