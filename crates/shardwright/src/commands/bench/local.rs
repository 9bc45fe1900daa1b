//! A model in this process: random ids through the executor.

use super::How;
use super::dummy::DummyArgs;
use super::launches::{self, Card, Step};
use crate::gpu::Loaded;
use crate::progress::Progress;
use crate::table::Table;
use crate::wire::{BackendArgs, ModelArgs, Opened, Size, Started};
use anyhow::bail;
use shardwright_model::arch;
use shardwright_model::cost;
use shardwright_model::exec::{BLOCK, Executor, RowOutput, StepBatch, Want};
use shardwright_model::plan::RankPlan;
use std::io::Write;
use std::time::{Duration, Instant};

/// Bytes of a cache element of fast kernels.
const CACHED: u64 = 2;

#[derive(clap::Args)]
pub(super) struct LocalArgs {
    #[command(flatten)]
    backend: BackendArgs,
    #[command(flatten)]
    pub(super) dummy: DummyArgs,
    /// Show what each launch of a step after the prompt takes on a GPU, and the share that it reaches of the memory's speed.
    #[arg(long, conflicts_with_all = ["url", "kernels"])]
    per_kernel: bool,
    /// Rows of that step: as many tokens of one sequence, one behind the other.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "per_kernel", conflicts_with_all = ["kernels"], value_parser = clap::value_parser!(u32).range(1..=4096))]
    rows: u32,
    /// Tokens of the prompt.
    #[arg(short, long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    prompt: u32,
    /// Rows of a step of the prompt.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=4096))]
    chunk: u32,
}

impl LocalArgs {
    /// The GPUs that are named, each for itself.
    pub(super) fn cards(&self) -> anyhow::Result<Vec<usize>> {
        self.backend.named_gpus()
    }

    fn open(&self, model: &ModelArgs, answer: usize) -> anyhow::Result<(Opened, Size)> {
        let opened = self.dummy.open(model)?.map_or_else(|| model.open(), Ok)?;
        let context = self.at() + answer;
        opened.tell_if_beyond(context);
        Ok((opened, Size { context, rows: self.chunk.min(self.prompt).max(self.rows) as usize }))
    }

    /// The first position after the prompt.
    fn at(&self) -> usize {
        self.dummy.depth as usize + self.prompt as usize
    }

    fn ids(&self, opened: &Opened) -> Vec<u32> {
        ids(opened.hyper.vocab as u32).take(self.prompt as usize).collect()
    }
}

/// A step after the prompt, launch by launch.
pub(super) fn step(args: &LocalArgs, model: &ModelArgs, how: &How) -> anyhow::Result<Step> {
    // kernels are cut by the longest context, so it is that of the same measurement without this
    let (opened, size) = args.open(model, how.predict.max(args.rows) as usize)?;
    let backend = args.backend.fast().on_part(how.multiprocessors)?;
    let mut executor = opened.on_gpus(&backend, size, size.context)?.executor;
    once(&mut executor, args.dummy.depth as usize, &args.ids(&opened), 0, size.rows)?;
    let tokens = ids(opened.hyper.vocab as u32).take(args.rows as usize).collect();
    launches::measure(&mut executor, args.at(), tokens, how)
}

/// How fast the memory of the GPU is read.
pub(super) fn read(args: &LocalArgs, how: &How) -> anyhow::Result<()> {
    Card::measured(args.backend.gpus(1)?[0], how.multiprocessors)?.print(how.json)
}

/// What a plan says of the same step.
pub(super) struct Planned {
    /// Bytes that the rank reads which reads most.
    pub(super) bytes: u64,
    /// Sums over ranks.
    pub(super) sums: usize,
}

pub(super) fn planned(args: &LocalArgs, model: &ModelArgs) -> anyhow::Result<Planned> {
    let opened = args.open(model, 1)?.0;
    let trunk = arch::describe(&opened.hyper);
    let reads = |plan: &RankPlan| {
        let all = cost::total(&cost::by_component(&trunk, plan, args.at() as u64, CACHED));
        all.weights + all.cache
    };
    let bytes = opened.plans(&trunk, &args.backend)?.iter().map(reads).max().unwrap_or(0);
    Ok(Planned { bytes, sums: trunk.sums() })
}

pub(super) fn run(args: &LocalArgs, model: &ModelArgs, how: &How) -> anyhow::Result<()> {
    if args.per_kernel {
        if args.backend.stages.is_cut() {
            bail!(
                "`--per-kernel` looks at a GPU, and pipeline stages run on the CPU: leave out one of the two"
            );
        }
        // the card is free again for what it is judged by
        return launches::print(&step(args, model, how)?, &args.backend, how);
    }
    let (depth, prompt, answer) = (args.dummy.depth as usize, args.prompt as usize, how.predict as usize);
    let (opened, size) = args.open(model, answer)?;
    let (ids, rows) = (args.ids(&opened), size.rows);
    let backend = args.backend.fast().on_part(how.multiprocessors)?;
    let Started { mut executor, loaded } = opened.started(&backend, size, size.context)?;
    let mut progress = Progress::new("rounds", how.repetitions as usize + 1);
    let mut rates = [vec![], vec![]];
    for round in 0..=how.repetitions {
        let times = once(&mut *executor, depth, &ids, answer, rows)?;
        progress.at(round as usize + 1);
        // the first round brings the weights into memory
        if round > 0 {
            for ((rates, n), time) in rates.iter_mut().zip([prompt, answer]).zip(times) {
                rates.push(n as f64 / time.as_secs_f64());
            }
        }
    }
    drop(progress);
    let names = [format!("prompt of {prompt}"), format!("{answer} tokens after it")];
    print(how.json, names.into_iter().zip(rates), loaded)
}

fn print(
    as_json: bool,
    results: impl Iterator<Item = (String, Vec<f64>)>,
    loaded: Option<Loaded>,
) -> anyhow::Result<()> {
    let mut table = Table::new(1, ["", "tok/s", "least", "most"]);
    let mut json = Vec::new();
    for (name, mut rates) in results {
        rates.sort_by(f64::total_cmp);
        let [median, least, most] = [rates[rates.len() / 2], rates[0], rates[rates.len() - 1]];
        table.row([name.clone(), format!("{median:.1}"), format!("{least:.1}"), format!("{most:.1}")]);
        json.push(serde_json::json!({ "name": name, "tok_s": median, "least": least, "most": most }));
    }
    let mut out = std::io::stdout();
    if as_json {
        let mut report = super::report(None, json);
        // a CPU reads the weights where the file is mapped
        report["load"] = loaded.map_or(
            serde_json::Value::Null,
            |l| serde_json::json!({ "bytes": l.bytes, "seconds": l.seconds, "bytes_s": l.rate() }),
        );
        return Ok(writeln!(out, "{report}")?);
    }
    write!(out, "{table}")?;
    if let Some(loaded) = loaded {
        writeln!(out, "{loaded}")?;
    }
    Ok(())
}

/// Ids without a pattern.
fn ids(vocab: u32) -> impl Iterator<Item = u32> {
    let mut state = 1u32;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((u64::from(state) * u64::from(vocab)) >> 32) as u32
    })
}

/// How long the prompt took, up to its first token, and the tokens after it.
fn once(
    executor: &mut dyn Executor,
    depth: usize,
    prompt: &[u32],
    answer: usize,
    rows: usize,
) -> anyhow::Result<[Duration; 2]> {
    let blocks: Vec<u32> = (0..(depth + prompt.len() + answer).div_ceil(BLOCK) as u32).collect();
    let mut step = |tokens: &[u32], start: usize, want: Want| -> anyhow::Result<RowOutput> {
        let n = tokens.len();
        let mut wants = vec![Want::Nothing; n];
        wants[n - 1] = want;
        let out = executor.step(&StepBatch {
            tokens: tokens.to_vec(),
            positions: (depth + start..depth + start + n).map(|p| p as u32).collect(),
            sequences: vec![0; n],
            tables: vec![blocks.clone()],
            wants,
            ..StepBatch::default()
        })?;
        Ok(out.rows.into_iter().next_back().unwrap_or(RowOutput::Nothing))
    };
    let begun = Instant::now();
    let mut last = RowOutput::Nothing;
    for (c, tokens) in prompt.chunks(rows).enumerate() {
        let want = if (c + 1) * rows >= prompt.len() { Want::Candidates } else { Want::Nothing };
        last = step(tokens, c * rows, want)?;
    }
    let read = begun.elapsed();
    for i in 0..answer {
        let RowOutput::Candidates { ids, .. } = &last else {
            bail!("the model answered {last:?} instead of candidates");
        };
        last = step(&[ids[0]], prompt.len() + i, Want::Candidates)?;
    }
    Ok([read, begun.elapsed() - read])
}
