//! Pipeline stages: a model cut by layer gives the same bits as in one piece.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use shardwright_cpu::{CpuExecutor, CpuOptions};
use shardwright_gguf::Reader;
use shardwright_model::exec::{Executor, Ranks, RowOutput, StepBatch, Want};
use shardwright_model::hyper::Options;
use shardwright_model::op::{Description, Kind};
use shardwright_model::pipeline::Pipeline;
use shardwright_model::plan::{plan, stages};
use std::collections::BTreeSet;
use std::sync::Arc;

fn layers(d: &Description) -> usize {
    d.ops.iter().filter_map(|o| o.layer).collect::<BTreeSet<_>>().len()
}

fn trunk(name: &str) -> (Arc<Reader>, Description) {
    let file = Arc::new(Reader::open(&files(name)[0]).unwrap());
    let trunk = described(&file, Options::default()).0;
    (file, trunk)
}

fn executor(file: &Arc<Reader>, d: &Description, ranks: usize) -> CpuExecutor {
    let plans = plan(d, &|n| file.tensor(n), ranks).unwrap();
    let options = CpuOptions {
        threads: 2,
        rows: 256,
        blocks: BLOCKS,
        context: 512,
        activations: PLAIN.activations,
        ranks: Ranks::default(),
    };
    CpuExecutor::new(file.clone(), (d, plans), None, options).unwrap()
}

fn pipeline(file: &Arc<Reader>, d: &Description, count: usize, ranks: usize) -> Pipeline {
    let cut = stages(d, &|n| file.tensor(n), count).unwrap();
    let stage = |d: &Description| Box::new(executor(file, d, ranks)) as Box<dyn Executor>;
    Pipeline::new(cut.iter().map(stage).collect()).unwrap()
}

/// A prompt in two pieces beside another sequence, then one token more.
fn run(exec: &mut dyn Executor, ids: &[u32]) -> Vec<(Vec<RowOutput>, Vec<f32>)> {
    let half = ids.len() / 2;
    let other = [5, 6, 7, 8];
    let first = step_of(&[(&ids[..half], 0, &[3]), (&ids[..3], 0, &other)], Want::Logits);
    let second = step_of(&[(&ids[half..], half, &[3]), (&ids[..1], 3, &other)], Want::Candidates);
    let third = StepBatch { want_hidden: true, ..step_of(&[(&ids[..1], 4, &other)], Want::Nothing) };
    [first, second, third].iter().map(|step| exec.step(step).unwrap()).map(|o| (o.rows, o.hidden)).collect()
}

#[test]
fn stages_give_the_bits_of_the_whole() {
    for (name, gold) in goldens() {
        let (file, d) = trunk(&name);
        let ids = gold.ids(0);
        let ids = &ids[..ids.len().min(40)];
        for ranks in [1, 2] {
            let whole = run(&mut executor(&file, &d, ranks), ids);
            for count in 2..=layers(&d).min(3) {
                let parts = run(&mut pipeline(&file, &d, count, ranks), ids);
                assert_eq!(parts, whole, "{name}: {count} stages of {ranks} ranks");
            }
        }
    }
}

#[test]
fn a_selection_that_later_layers_use_goes_over_with_the_stream() {
    let (file, d) = trunk("glm-dsa-share-bf16");
    let cut = stages(&d, &|n| file.tensor(n), layers(&d)).unwrap();
    let parcels = |kind: fn(&Kind) -> bool| cut.iter().flat_map(|d| &d.ops).filter(|o| kind(&o.kind)).count();
    assert!(parcels(|k| *k == Kind::Concat) > 0 && parcels(|k| *k == Kind::Hidden) == cut.len() - 1);
    let caches: usize = cut.iter().map(|d| d.caches.len()).sum();
    assert_eq!(caches, d.caches.len());
    assert!(cut.iter().all(|stage| layers(stage) == 1));
}

#[test]
fn a_probe_sees_all_stages() {
    let (file, d) = trunk("llama-f32");
    let mut parts = pipeline(&file, &d, 2, 1);
    let mut taps = Taps::default();
    let step = step_of(&[(&[1, 2, 3], 0, &TABLE)], Want::Logits);
    let out = parts.step_probed(&step, Some(&mut taps)).unwrap();
    assert_eq!(taps.row("logits", 2), logits(&out)[2]);
    assert_eq!(taps.row("embd", 2).len(), parts.limits().width);
    let mut refused = |step: StepBatch, want: &str| {
        let why = parts.step(&step).unwrap_err().to_string();
        assert!(why.contains(want), "{why}");
    };
    refused(StepBatch { hidden: Some(vec![]), ..step.clone() }, "without a next-token layer");
    refused(StepBatch { tokens: vec![1, 2, 1 << 20], ..step.clone() }, "beyond the vocabulary");
}

#[test]
fn a_stage_takes_what_the_one_before_hands_on_and_nothing_else() {
    let (file, d) = trunk("llama-f32");
    let cut = stages(&d, &|n| file.tensor(n), 2).unwrap();
    let stage = |k: usize| executor(&file, &cut[k], 1);
    let boxed = |k: usize| Box::new(stage(k)) as Box<dyn Executor>;
    let why = |all| Pipeline::new(all).unwrap_err().to_string();
    assert!(why(vec![]).contains("no stage"));
    assert!(why(vec![boxed(1), boxed(0)]).contains("start from tokens"));
    assert!(why(vec![boxed(0), boxed(0)]).contains("takes rows of 0"));
    let step = step_of(&[(&[1, 2, 3], 0, &TABLE)], Want::Logits);
    let check = |k: usize, step: StepBatch, want: &str| {
        let why = stage(k).step(&step).unwrap_err().to_string();
        assert!(why.contains(want), "{why}");
    };
    check(0, step.clone(), "without logits");
    check(1, step.clone(), "the rows of the stage before");
    check(1, StepBatch { hidden: Some(vec![0.0; 5]), ..step }, "5 numbers of hidden state for 3 rows");
    let count = layers(&d) + 1;
    let why = stages(&d, &|n| file.tensor(n), count).unwrap_err().to_string();
    assert!(why.contains(&format!("{count} pipeline stages")) && why.contains("at least one"), "{why}");
}
