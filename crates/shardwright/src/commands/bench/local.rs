//! A model in this process: random ids through the executor.

use super::How;
use super::dummy::DummyArgs;
use super::launches;
use crate::progress::Progress;
use crate::table::Table;
use crate::wire::{BackendArgs, ModelArgs, Size};
use anyhow::bail;
use shardwright_model::exec::{BLOCK, Executor, RowOutput, StepBatch, Want};
use std::io::Write;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub(super) struct LocalArgs {
    #[command(flatten)]
    backend: BackendArgs,
    #[command(flatten)]
    dummy: DummyArgs,
    /// Show what each launch of a step after the prompt takes on a GPU, and the share that it reaches of the memory's speed.
    #[arg(long, conflicts_with_all = ["url", "kernels"])]
    per_kernel: bool,
    /// Tokens of the prompt.
    #[arg(short, long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    prompt: u32,
    /// Rows of one step.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=4096))]
    chunk: u32,
}

pub(super) fn run(args: &LocalArgs, model: &ModelArgs, how: &How) -> anyhow::Result<()> {
    let opened = args.dummy.open(model)?.map_or_else(|| model.open(), Ok)?;
    let (depth, prompt, answer) = (args.dummy.depth as usize, args.prompt as usize, how.predict as usize);
    let rows = (args.chunk as usize).min(prompt);
    opened.tell_if_beyond(depth + prompt + answer);
    let (backend, size) = (args.backend.fast(), Size { context: depth + prompt + answer, rows });
    let ids: Vec<u32> = ids(opened.hyper.vocab as u32).take(prompt).collect();
    if args.per_kernel {
        let mut executor = opened.on_gpus(&backend, size, size.context)?;
        once(&mut executor, depth, &ids, 0, rows)?;
        let step = launches::measure(&mut executor, depth + prompt, how)?;
        // the card is free again for what it is judged by
        drop(executor);
        return launches::print(&step, &backend, how.json);
    }
    let mut executor = opened.executor(&backend, size)?;
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
    print(how.json, names.into_iter().zip(rates))
}

fn print(as_json: bool, results: impl Iterator<Item = (String, Vec<f64>)>) -> anyhow::Result<()> {
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
        return Ok(writeln!(out, "{}", super::report(None, json))?);
    }
    Ok(write!(out, "{table}")?)
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
