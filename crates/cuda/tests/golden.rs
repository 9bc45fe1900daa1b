//! The programs for GPUs, run without one, against reference values that other programs computed.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../cpu/tests/common/mod.rs"]
mod common;
mod emulator;
mod models;

use std::path::Path;

use common::*;
use emulator::Emulator;
use models::{exact, fast, open};
use shardwright_cuda::{CudaExecutor, CudaOptions};
use shardwright_gguf::{Conversion, QuantType, Reader, TensorInfo, convert};
use shardwright_model::exec::{Executor, Ranks, Want, Wire};

/// One of each architecture: an emulator is slow, and a GPU runs them all (gpu.rs).
fn few() -> impl Iterator<Item = (String, Gold)> {
    const NAMES: [&str; 7] = [
        "deepseek2-v3-f32",
        "glm-dsa-share-bf16",
        "glm-dsa-tp8-kq",
        "glm47flash-f16",
        "glm4moe-f32",
        "llama-f32",
        "qwen3-bf16",
    ];
    NAMES.into_iter().map(|name| (name.to_owned(), Gold::open(&format!("golden/{name}.npz")).unwrap()))
}

/// The third takes minutes; the second is longer than what sparse attention keeps.
const PROMPTS: usize = 2;

fn emulated(name: &str, ranks: usize, options: &CudaOptions) -> Option<CudaExecutor> {
    Some(open(Box::new(Emulator::new()?), &files(name)[0], ranks, options))
}

#[test]
fn logits_are_those_of_the_reference() {
    for (name, gold) in few() {
        let Some(mut exec) = emulated(&name, 1, &exact()) else { return };
        check_prompts(&name, &gold, "logits", &mut exec, &name, PROMPTS);
    }
}

/// The summands of ranks are added as on the CPU; heads, features, experts and vocabulary are dealt, also unevenly.
#[test]
fn ranks_give_the_same_logits() {
    for (name, ranks) in [("glm-dsa-tp8-kq", 8), ("llama-f32", 2), ("deepseek2-v3-f32", 3)] {
        let gold = Gold::open(&format!("golden/{name}.npz")).unwrap();
        let Some(mut exec) = emulated(name, ranks, &exact()) else { return };
        check_prompts(name, &gold, "logits", &mut exec, &format!("{name} over {ranks} ranks"), PROMPTS);
    }
}

/// Summands of bf16 are rounded as on the CPU. Where a summand lies between two of them, the last bit of another order of
/// sums decides: what comes of it is of class bf16, as the CPU's is.
#[test]
fn a_wire_of_bf16_gives_answers_of_its_class() {
    for (name, ranks) in [("glm-dsa-tp8-kq", 4), ("llama-f32", 2)] {
        let gold = Gold::open(&format!("golden/{name}.npz")).unwrap();
        let wired = Ranks { wire: Wire::Bf16, check: true };
        let Some(mut exec) = emulated(name, ranks, &CudaOptions { ranks: wired, ..exact() }) else { return };
        let median = check_class(name, &gold, &mut exec, PROMPTS, "bf16");
        assert!(median > limit(name), "{name}: nothing was rounded");
    }
}

#[test]
fn activations_of_8_bits_are_as_good_as_the_class_allows() {
    for (name, gold) in few().filter(|g| g.0.ends_with("-kq")) {
        for tile in [8, 64] {
            let Some(mut exec) = emulated(&name, 1, &tiled(tile, fast())) else { return };
            check_a8(&name, &gold, &mut exec, PROMPTS, true);
        }
    }
}

/// Where weights are plain, only the cache is rounded, and with it what tensor cores make of it: keys, values, queries and
/// weights by one part in 2048 each, in every layer.
#[test]
fn a_cache_of_f16_changes_little() {
    for name in ["llama-f32", "glm47flash-f16", "glm4moe-f32"] {
        let ids = Gold::open(&format!("golden/{name}.npz")).unwrap().ids(1);
        let [exact, fast] = [exact(), fast()].map(|options| {
            emulated(name, 1, &options).map(|mut exec| forward(&mut exec, &ids[..70]).concat())
        });
        let (Some(exact), Some(fast)) = (exact, fast) else { return };
        let size = exact.iter().map(|v| v * v).sum::<f32>() / exact.len() as f32;
        let off = exact.iter().zip(&fast).map(|(e, f)| (e - f).powi(2)).sum::<f32>() / exact.len() as f32;
        let share = (off / size).sqrt();
        println!("{name}: {share:.2e}");
        assert!(share > 0.0 && share <= 8.0 / 2048.0, "{name}: {share} of the logits");
    }
}

/// Matrix kernels that take so many rows at a time, whatever the step.
fn tiled(tile: u32, options: CudaOptions) -> CudaOptions {
    CudaOptions { tiles: vec![tile], ..options }
}

fn bits(rows: &[Vec<f32>]) -> Vec<u32> {
    rows.iter().flatten().map(|v| v.to_bits()).collect()
}

/// Logits of a few rows from the first position on, and of a few on both sides of what sparse attention keeps.
fn some(exec: &mut CudaExecutor, ids: &[u32]) -> Vec<u32> {
    let mut step =
        |ids: &[u32], at| logits(&exec.step(&step_of(&[(ids, at, &TABLE)], Want::Logits)).unwrap());
    let (first, later) = (step(&ids[..6], 0), step(&ids[6..12], KEPT - 3));
    bits(&[first, later].concat())
}

/// Positions that the sparse attention of the golden models keeps.
const KEPT: usize = 48;

/// What ops leave to each other on the way from one to the next changes no bit, whoever rounds it.
#[test]
fn fused_and_unfused_programs_give_the_same_bits() {
    let wide = CudaOptions { narrow: 0, ..fast() };
    let files = [
        (
            "glm-dsa-tp8-kq",
            1,
            vec![fast(), tiled(2, fast()), tiled(3, fast()), tiled(4, fast()), tiled(4, wide.clone())],
        ),
        ("glm-dsa-tp8-kq", 2, vec![fast(), wide]),
        ("glm-dsa-share-bf16", 1, vec![tiled(1, exact())]),
        ("deepseek2-v3-f32", 3, vec![exact()]),
        ("glm4moe-f32", 1, vec![exact()]),
        ("qwen3-bf16", 1, vec![exact(), tiled(4, exact())]),
    ];
    for (name, ranks, all) in files {
        same_fused(name, ranks, &all);
    }
}

/// The same of kernels for many rows.
#[test]
fn fused_and_unfused_programs_for_many_rows_give_the_same_bits() {
    for ranks in [1, 2] {
        same_fused("glm-dsa-tp8-kq", ranks, &[tiled(64, fast())]);
    }
}

fn same_fused(name: &str, ranks: usize, all: &[CudaOptions]) {
    let ids = Gold::open(&format!("golden/{name}.npz")).unwrap().ids(0);
    let unfused = CudaOptions { fuse: false, ..all[0].clone() };
    let Some(mut unfused) = emulated(name, ranks, &unfused) else { return };
    let want = some(&mut unfused, &ids);
    for options in all {
        let Some(mut fused) = emulated(name, ranks, options) else { return };
        assert!(some(&mut fused, &ids) == want, "{name} over {ranks}: {options:?}");
        println!("{name} over {ranks}: {options:?}");
    }
}

/// A model with its matrices, but routers, in other types: in each row with room for it.
fn quantized(name: &str, to: &Path) {
    let file = Reader::open(&files(name)[0]).unwrap();
    let choose = |t: &TensorInfo| {
        let [wanted, other] = match t.name.contains("down") || t.name.contains("_b.") {
            true => [QuantType::Q5_1, QuantType::Q5_1],
            false => [QuantType::Q4_K, QuantType::Q8_0],
        };
        let fits = |q: &QuantType| t.ne[0].is_multiple_of(q.block_len() as u64);
        let kept = t.ne[1] == 1 || !t.name.ends_with("weight") || t.name.contains("_inp.");
        let new = [wanted, other].into_iter().find(fits).filter(|_| !kept);
        new.unwrap_or(t.quant)
    };
    let conversion = Conversion { choose: &choose, split: None, threads: 1 };
    convert(&file, to, &conversion, &mut |_| {}).unwrap();
}

/// Sums in another order differ in the last bit. Where that bit decides how an activation is rounded, it is one part in 254 of that,
/// and of what other rows see of it.
#[test]
fn many_rows_are_those_of_few() {
    for name in ["glm4moe-f32", "deepseek2-v3-f32"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("quantized.gguf");
        quantized(name, &path);
        let ids = Gold::open(&format!("golden/{name}.npz")).unwrap().ids(1);
        let run = |tile| {
            let mut exec = open(Box::new(Emulator::new()?), &path, 1, &tiled(tile, fast()));
            Some(forward(&mut exec, &ids[..70]))
        };
        let (Some(few), Some(many)) = (run(8), run(64)) else { return };
        let share = |(few, many): (&Vec<f32>, &Vec<f32>)| {
            let off = few.iter().zip(many).map(|(a, b)| (a - b).powi(2)).sum::<f32>();
            (off / few.iter().map(|v| v * v).sum::<f32>()).sqrt()
        };
        let mut shares: Vec<f32> = few.iter().zip(&many).map(share).collect();
        shares.sort_by(f32::total_cmp);
        println!("{name}: {shares:?}");
        assert!(shares[shares.len() / 8] < 1e-6, "{name}: no row of many is that of few");
        assert!(shares[shares.len() - 1] < 0.05, "{name}: a row of many is none of few");
    }
}

/// A row that looks back no further than sparse attention keeps has the same bits beside one that does, when positions are
/// scored and picked for all, as in a step where nobody's are.
#[test]
fn tiers_give_the_same_bits() {
    let ids = Gold::open("golden/glm-dsa-tp8-kq.npz").unwrap().ids(0);
    let Some(mut exec) = emulated("glm-dsa-tp8-kq", 1, &fast()) else { return };
    let mut step =
        |ids: &[u32]| logits(&exec.step(&step_of(&[(ids, KEPT - 3, &TABLE)], Want::Logits)).unwrap());
    let (long, short) = (step(&ids[..4]), step(&ids[..3]));
    assert_eq!(bits(&long[..3]), bits(&short));
}

#[test]
fn drafts_are_those_of_the_reference() {
    for (name, _) in few().filter(|g| data().join(format!("golden/{}-mtp.npz", g.0)).exists()) {
        let Some(mut exec) = emulated(&name, 1, &exact()) else { return };
        check_draft(&name, &mut exec);
    }
}

/// Token by token through recorded steps and the device's own candidates.
#[test]
fn greedy_tokens_are_those_of_the_reference() {
    for (name, gold) in few() {
        let Some(mut exec) = emulated(&name, 1, &exact()) else { return };
        let ids = gold.ids(0);
        let prompt = ids.len() - gold.all("p0_greedy_margin").len();
        let n = 8;
        assert_eq!(greedy(&mut exec, &ids[..prompt], n), ids[prompt..][..n], "{name}");
    }
}

/// Values shown one by one are those that the CPU makes of the same file.
#[test]
fn every_value_is_that_of_the_cpu() {
    for name in ["glm-dsa-tp8-kq", "deepseek2-v3-f32"] {
        let ids = Gold::open(&format!("golden/{name}.npz")).unwrap().ids(0);
        let Some(mut exec) = emulated(name, 2, &exact()) else { return };
        let batch = step_of(&[(&ids[..5], 0, &TABLE)], Want::Logits);
        let (mut ours, mut theirs) = (Taps::default(), Taps::default());
        exec.step_probed(&batch, Some(&mut ours)).unwrap();
        common::open(&files(name)[0], over(2)).step_probed(&batch, Some(&mut theirs)).unwrap();
        assert_eq!(ours.0.keys().collect::<Vec<_>>(), theirs.0.keys().collect::<Vec<_>>(), "{name}");
        for (path, (width, want)) in &theirs.0 {
            let got = &ours.0[path].1;
            let size =
                (want.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / want.len().max(1) as f64).sqrt();
            let off = got.iter().zip(want).map(|(g, w)| f64::from((g - w).abs())).fold(0.0, f64::max);
            assert!(
                got.len() == want.len() && off <= 1e-4 * size.max(1e-6),
                "{name} {path} ({width}): {off} of {size}"
            );
        }
    }
}
