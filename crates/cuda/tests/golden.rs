//! The programs for GPUs, run without one, against reference values that other programs computed.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../cpu/tests/common/mod.rs"]
mod common;
mod emulator;

use std::path::Path;
use std::sync::Arc;

use common::*;
use emulator::Emulator;
use shardwright_cuda::{CudaExecutor, CudaOptions};
use shardwright_gguf::Reader;
use shardwright_model::op::Description;
use shardwright_model::plan::{RankPlan, plan};

/// An executor over some ranks, exact or with rounded activations.
fn emulated(path: &Path, ranks: usize, fast: bool) -> Option<CudaExecutor> {
    let file = Arc::new(Reader::open(path).unwrap());
    let (trunk, draft) = described(&file, PLAIN.options);
    let cut = |d: &Description| -> Vec<RankPlan> { plan(d, &|n| file.tensor(n), ranks).unwrap() };
    let (trunk_plans, draft_plans) = (cut(&trunk), draft.as_ref().map(cut));
    let options =
        CudaOptions { rows: 256, blocks: BLOCKS, context: 512, fast, tiles: vec![8], recorded: vec![1] };
    let device = Box::new(Emulator::new()?);
    Some(CudaExecutor::new(device, &file, (&trunk, trunk_plans), draft.as_ref().zip(draft_plans), &options).unwrap())
}

/// Logits within the limit of a class, and the likeliest token everywhere the same.
fn check_logits(name: &str, gold: &Gold, exec: &mut CudaExecutor, p: usize) {
    let got = forward(exec, &gold.ids(p));
    let mut worst = 0f64;
    for (n, at) in gold.ints(&format!("p{p}_logit_pos")).into_iter().enumerate() {
        let want = gold.at(&format!("p{p}_logits"), &[n]);
        worst = worst.max(apart(&got[at], want));
        let best = (0..want.len()).fold(0, |b, i| if want[i] > want[b] { i } else { b });
        assert_eq!(argmax(&got[at]), best as u32, "{name} p{p} position {at}");
    }
    println!("{name} p{p}: {worst:.2e} of {:.2e}", limit(name));
    assert!(worst <= limit(name), "{name} p{p}: {worst} > {}", limit(name));
}

#[test]
fn logits_are_those_of_the_reference() {
    for (name, gold) in goldens().into_iter().filter(|g| !g.0.ends_with("kq")) {
        let Some(mut exec) = emulated(&files(&name)[0], 1, false) else { return };
        for p in 0..gold.prompts() {
            check_logits(&name, &gold, &mut exec, p);
        }
    }
}

/// Token by token through recorded steps and the device's own candidates.
#[test]
fn greedy_tokens_are_those_of_the_reference() {
    for (name, gold) in goldens().into_iter().filter(|g| !g.0.ends_with("kq")) {
        let Some(mut exec) = emulated(&files(&name)[0], 1, false) else { return };
        let ids = gold.ids(0);
        let prompt = ids.len() - gold.all("p0_greedy_margin").len();
        let n = 8;
        assert_eq!(greedy(&mut exec, &ids[..prompt], n), ids[prompt..][..n], "{name}");
    }
}
