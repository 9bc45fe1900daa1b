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
    let options = CudaOptions {
        rows: 256,
        blocks: BLOCKS,
        context: 512,
        fast,
        fuse: true,
        tiles: vec![8],
        recorded: vec![1],
    };
    let device = Box::new(Emulator::new()?);
    Some(
        CudaExecutor::new(device, &file, (&trunk, trunk_plans), draft.as_ref().zip(draft_plans), &options)
            .unwrap(),
    )
}

#[test]
fn logits_are_those_of_the_reference() {
    for (name, gold) in goldens() {
        let Some(mut exec) = emulated(&files(&name)[0], 1, false) else { return };
        check_logits(&name, &gold, "logits", &mut exec, &name);
    }
}

/// The summands of ranks are added as on the CPU; heads, features, experts and vocabulary are dealt.
#[test]
fn ranks_give_the_same_logits() {
    let ranked = [("glm-dsa-tp8-kq", 8), ("llama-f32", 2), ("glm4moe-f32", 2)];
    for (name, gold) in goldens() {
        let Some((_, ranks)) = ranked.iter().find(|(n, _)| *n == name) else { continue };
        let Some(mut exec) = emulated(&files(&name)[0], *ranks, false) else { return };
        let what = format!("{name} over {ranks} ranks");
        check_logits(&name, &gold, "logits", &mut exec, &what);
    }
}

#[test]
fn activations_of_8_bits_are_as_good_as_the_class_allows() {
    for (name, gold) in goldens().into_iter().filter(|g| g.0.ends_with("-kq")) {
        let Some(mut exec) = emulated(&files(&name)[0], 1, true) else { return };
        check_a8(&name, &gold, &mut exec, true);
    }
}

#[test]
fn drafts_are_those_of_the_reference() {
    for (name, _) in goldens().into_iter().filter(|g| data().join(format!("golden/{}-mtp.npz", g.0)).exists())
    {
        let Some(mut exec) = emulated(&files(&name)[0], 1, false) else { return };
        check_draft(&name, &mut exec);
    }
}

/// Token by token through recorded steps and the device's own candidates.
#[test]
fn greedy_tokens_are_those_of_the_reference() {
    for (name, gold) in goldens() {
        let Some(mut exec) = emulated(&files(&name)[0], 1, false) else { return };
        let ids = gold.ids(0);
        let prompt = ids.len() - gold.all("p0_greedy_margin").len();
        let n = 8;
        assert_eq!(greedy(&mut exec, &ids[..prompt], n), ids[prompt..][..n], "{name}");
    }
}
