//! What launches of a step take and read: a line for each, that of the plan in all, and the same answer as without stamps.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../cpu/tests/common/mod.rs"]
mod common;
mod emulator;
mod models;

use std::sync::Arc;
use std::time::Instant;

use common::*;
use emulator::Emulator;
use models::{exact, fast, on};
use shardwright_cuda::device::Device;
use shardwright_cuda::gate;
use shardwright_cuda::lower::{Choices, Tier, lower};
use shardwright_cuda::step::StepLayout;
use shardwright_cuda::{CudaExecutor, CudaOptions, Profile};
use shardwright_gguf::Reader;
use shardwright_model::cost::{Component, Cost, by_component, total};
use shardwright_model::exec::{Executor, StepBatch, Want};
use shardwright_model::op::Description;
use shardwright_model::plan::{RankPlan, plan};

/// The first position from which on sparse attention of the golden models leaves some out, and one well before it.
const FAR: usize = 60;
const NEAR: usize = 6;

/// A model on so many emulators.
struct Opened {
    exec: CudaExecutor,
    description: Description,
    plans: Vec<RankPlan>,
    options: CudaOptions,
}

fn opened(name: &str, ranks: usize, devices: usize, options: CudaOptions) -> Option<Opened> {
    let path = &files(name)[0];
    // what is not recorded at the start is not run there either, which an emulator takes long for
    let options = CudaOptions { recorded: vec![], ..options };
    let all: Option<Vec<Box<dyn Device>>> =
        (0..devices).map(|_| Emulator::new().map(|e| Box::new(e) as Box<dyn Device>)).collect();
    let exec = on(all?, path, ranks, &options).unwrap();
    let file = Arc::new(Reader::open(path).unwrap());
    let description = described(&file, PLAIN.options).0;
    let plans = plan(&description, &|n| file.tensor(n), ranks).unwrap();
    Some(Opened { exec, description, plans, options })
}

fn batch(at: usize) -> StepBatch {
    StepBatch { want_hidden: true, ..step_of(&[(&[5], at, &TABLE)], Want::Logits) }
}

impl Opened {
    fn profile(&mut self, at: usize, replays: usize) -> Profile {
        self.exec.profile(&batch(at), replays).unwrap().1
    }

    /// Launches of the program that the step is run by.
    fn calls(&self, tier: Tier) -> usize {
        let CudaOptions { rows, context, fast, fuse, ranks, narrow, multiprocessors, .. } = self.options;
        let (layout, tile) = (StepLayout::new(rows, context), self.options.tiles[0]);
        let alike = gate::choices(rows, tile, fast);
        let choices = Choices { layout, context, fuse, ranks, tier, narrow, multiprocessors, ..alike };
        lower(&self.plans, choices).unwrap().calls.len()
    }

    /// Bytes that the plans say a token reads.
    fn cost(&self, at: usize) -> (u64, u64) {
        let element = if self.options.fast { 2 } else { 4 };
        let parts = self.plans.iter().map(|p| by_component(&self.description, p, at as u64, element));
        let bytes = |cost: Cost| cost.weights + cost.cache;
        let all = parts.map(|parts| {
            let indexer = parts.get(&Component::Indexer).copied().unwrap_or_default();
            (bytes(total(&parts)), bytes(indexer))
        });
        all.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }
}

#[test]
fn a_step_with_stamps_answers_as_one_without() {
    for (name, ranks, devices) in [("glm-dsa-tp8-kq", 2, 2), ("llama-f32", 1, 1)] {
        let Some(mut model) = opened(name, ranks, devices, fast()) else { return };
        for at in [NEAR, FAR] {
            let want = model.exec.step(&batch(at)).unwrap();
            let (got, profile) = model.exec.profile(&batch(at), 2).unwrap();
            let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert!(logits(&want).concat().iter().any(|v| *v != 0.0));
            assert_eq!(bits(&logits(&got).concat()), bits(&logits(&want).concat()), "{name} at {at}");
            assert_eq!(bits(&got.hidden), bits(&want.hidden), "{name} at {at}");
            // products push what they make, and norms receive
            let exchanges = profile.launches.iter().filter(|l| l.name.starts_with("exchange")).count();
            assert_eq!(exchanges, 0, "{name} on {devices}");
        }
    }
}

#[test]
fn each_launch_has_a_line_that_lies_within_the_step() {
    let Some(mut model) = opened("glm-dsa-tp8-kq", 1, 1, fast()) else { return };
    for (at, tier) in [(NEAR, Tier::Short), (FAR, Tier::Long)] {
        let begun = Instant::now();
        let profile = model.profile(at, 1);
        let elapsed = begun.elapsed().as_secs_f64();
        assert_eq!(profile.launches.len(), model.calls(tier));
        let sum: f64 = profile.launches.iter().map(|l| l.seconds).sum();
        assert!(0.0 < sum && sum + profile.span < elapsed, "{sum} and {} of {elapsed}", profile.span);
        assert!(0.0 < profile.stamp && profile.stamp < profile.span);
        let attends = profile.launches.iter().filter(|l| l.name == "attend_tiles" && l.bytes > 0).count();
        assert!(attends > 0);
        assert!(
            profile.launches.iter().any(|l| l.name.starts_with("linear") && l.name.contains("attn_output"))
        );
    }
}

#[test]
fn launches_read_what_the_plan_says() {
    for (name, ranks, options) in [
        ("llama-f32", 2, exact()),
        ("glm4moe-f32", 1, fast()),
        ("deepseek2-v3-f32", 1, CudaOptions { fuse: false, ..exact() }),
        ("glm-dsa-tp8-kq", 1, fast()),
    ] {
        let Some(mut model) = opened(name, ranks, 1, options) else { return };
        let read = |profile: Profile| profile.launches.iter().map(|l| l.bytes).sum::<u64>();
        let (all, indexer) = model.cost(FAR);
        assert_eq!(read(model.profile(FAR, 1)), all, "{name} over {ranks}");
        // near the beginning nothing is scored; the indexer's key is made and kept
        let (all, near) = model.cost(NEAR);
        let found = read(model.profile(NEAR, 1));
        assert!(
            all - near <= found && found <= all,
            "{name} over {ranks}: {found} of {all}, {near} the indexer's"
        );
        assert_eq!(found == all, indexer == 0, "{name} over {ranks}");
    }
}
