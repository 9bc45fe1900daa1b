//! A generator over a small random model of GLM-5's architecture.
#![allow(clippy::unwrap_used)]

use shardwright_cpu::{Activations, CpuExecutor, CpuOptions};
use shardwright_engine::generate::Generator;
use shardwright_engine::options::Options;
use shardwright_engine::request::{Ending, Id, Part, Request};
use shardwright_gguf::Reader;
use shardwright_model::exec::Ranks;
use shardwright_model::hyper::Source;
use shardwright_model::plan::plan;
use shardwright_model::{arch, hyper};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

pub(crate) fn generator(blocks: usize, options: &Options) -> Generator {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/models/glm-dsa-share-bf16.gguf");
    let reader = Arc::new(Reader::open(&path).unwrap());
    let has = |name: &str| Some(reader.tensor(name).is_some());
    let source = Source { meta: reader.meta(), has: &has, options: hyper::Options::default() };
    let trunk = arch::describe(&arch::read(&source).unwrap());
    let plans = plan(&trunk, &|n: &str| reader.tensor(n), 1).unwrap();
    let (activations, ranks) = (Activations::F32, Ranks::default());
    let sizes = CpuOptions { threads: 2, rows: 40, blocks, context: 200, activations, ranks };
    Generator::with(Box::new(CpuExecutor::new(reader, (&trunk, plans), None, sizes).unwrap()), [], options)
}

pub(crate) fn greedy(prompt: Vec<u32>) -> Request {
    let ending = Ending { ignore_eos: true, ..Ending::default() };
    Request { max_tokens: Some(24), ending, ..Request::new(prompt) }
}

/// The tokens of every request until all are done.
pub(crate) fn answers(generator: &mut Generator) -> BTreeMap<Id, Vec<u32>> {
    let mut all: BTreeMap<Id, Vec<u32>> = BTreeMap::new();
    while !generator.is_idle() {
        for reply in generator.step().unwrap() {
            match reply.part {
                Part::Token { choice, .. } => all.entry(reply.id).or_default().push(choice.token),
                Part::Started { .. } | Part::Prompt(_) | Part::Done(_) => {}
                Part::Failed(e) => panic!("{e}"),
            }
        }
    }
    all
}
