//! Greedy answers of a real model, alone and in company.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use shardwright_cpu::{Activations, CpuExecutor, CpuOptions};
use shardwright_engine::generate::Generator;
use shardwright_engine::request::{Id, Part, Request};
use shardwright_gguf::Reader;
use shardwright_model::arch;
use shardwright_model::hyper::{Options, Source};
use shardwright_model::plan::plan;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

fn generator() -> Generator {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/models/glm-dsa-share-bf16.gguf");
    let reader = Arc::new(Reader::open(&path).unwrap());
    let has = |name: &str| Some(reader.tensor(name).is_some());
    let source = Source { meta: reader.meta(), has: &has, options: Options::default() };
    let trunk = arch::describe(&arch::read(&source).unwrap());
    let plans = plan(&trunk, &|n: &str| reader.tensor(n), 1).unwrap();
    let options =
        CpuOptions { threads: 2, rows: 40, blocks: 16, context: 128, activations: Activations::F32 };
    Generator::new(Box::new(CpuExecutor::new(reader, (&trunk, plans), None, options).unwrap()), [])
}

fn greedy(prompt: Vec<u32>) -> Request {
    Request { max_tokens: Some(24), ignore_eos: true, ..Request::new(prompt) }
}

/// The tokens of every request until all are done.
fn answers(generator: &mut Generator) -> BTreeMap<Id, Vec<u32>> {
    let mut all: BTreeMap<Id, Vec<u32>> = BTreeMap::new();
    while !generator.is_idle() {
        for reply in generator.step().unwrap() {
            match reply.part {
                Part::Token { choice, .. } => all.entry(reply.id).or_default().push(choice.token),
                Part::Started { .. } | Part::Done(_) => {}
                Part::Failed(e) => panic!("{e}"),
            }
        }
    }
    all
}

#[test]
fn s5_greedy_answers_are_the_same_alone_and_all_at_once() {
    // lengths around the sparse attention's 24 positions, and longer than a step
    let prompts = [3, 9, 17, 24, 25, 41, 60, 90]
        .map(|n: u32| (0..n).map(|i| (i * i + 7 * n) % 250).collect::<Vec<_>>());
    let mut together = generator();
    let ids: Vec<Id> = prompts.iter().map(|p| together.submit(greedy(p.clone())).unwrap()).collect();
    let all = answers(&mut together);
    for (prompt, id) in prompts.iter().zip(ids) {
        let mut alone = generator();
        let only = alone.submit(greedy(prompt.clone())).unwrap();
        let expected = answers(&mut alone).remove(&only).unwrap();
        assert_eq!(expected.len(), 24);
        assert_eq!(all[&id], expected, "prompt of {}", prompt.len());
    }
}
