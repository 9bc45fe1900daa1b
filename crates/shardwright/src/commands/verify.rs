//! `shardwright verify`: two executions of one prompt, value by value, and the first that differs.

use crate::compare::{Agreement, Comparer, Difference, Recorder, agreement};
use crate::files::read_ids;
use crate::steps::steps;
use crate::wire::{BackendArgs, ModelArgs, Opened, Size, tokenizer};
use anyhow::bail;
use serde_json::json;
use shardwright_model::exec::{Executor, Probe, RowOutput};
use shardwright_text::tokenizer::Special;
use std::io::Write;
use std::path::PathBuf;

/// Compare two executions of one prompt value by value.
///
/// The reference runs the model on one rank, in f32, the prompt in one piece. The other execution is changed in
/// what the flags say. Each named value of each layer is compared; the first that differs by more than it may is
/// reported with layer, op, coordinate and both numbers, and the exit status is 1.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shardwright verify model.gguf --tp 4                       are four ranks the same as one?
  shardwright verify model.gguf --against permuted.gguf      does the order of tensors matter?
  shardwright verify model.gguf --chunk 5                    does the cut of the prompt matter?
  shardwright verify model.gguf --activations q8
  shardwright verify model.gguf --tp 4 --allreduce-type bf16

Change one thing at a time: with two, the report cannot say which one did it.")]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    backend: BackendArgs,
    /// Run the other execution on this file.
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Feed the other execution so many tokens a step [default: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    chunk: Option<u32>,
    /// The prompt.
    #[arg(short, long, value_name = "TEXT", default_value = PROMPT)]
    prompt: String,
    /// Text file of token ids to take as prompt.
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    ids: Option<PathBuf>,
    /// Allowed difference over the root mean square of a row; 0 asks for equal bits [default: 0; with more ranks
    /// 1e-4, with 8-bit activations or sums of bf16 0.5].
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = tolerance)]
    tolerance: Option<f64>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

/// NaN or infinity would find nothing, whatever there is.
fn tolerance(text: &str) -> Result<f64, &'static str> {
    let x = text.parse().ok().filter(|x: &f64| x.is_finite() && *x >= 0.0);
    x.ok_or("must be a number of at least 0")
}

const PROMPT: &str = "The quick brown fox jumps over the lazy dog. 1234567890 times two is";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let plain = args.model.open()?;
    let other = args.against.as_ref().map(|path| args.model.open_at(path)).transpose()?;
    let ids = prompt(args, &plain)?;
    plain.tell_if_beyond(ids.len());
    let tolerance = args.tolerance.unwrap_or_else(|| args.backend.tolerance());
    if plain.hyper.draft.is_some() {
        log::info!("the next-token layer is not run, so nothing is said about it");
    }
    let mut recorder = Recorder::default();
    let reference = {
        let mut executor =
            plain.executor(&args.backend.reference(), Size { context: ids.len(), rows: ids.len() })?;
        feed(executor.as_mut(), &ids, ids.len(), &mut recorder, |_, _| {})?
    };
    let chunk = args.chunk.map_or(ids.len(), |n| (n as usize).min(ids.len()));
    let mut comparer = Comparer::new(&recorder, tolerance, args.backend.rounds());
    let size = Size { context: ids.len(), rows: chunk };
    let mut executor = other.as_ref().unwrap_or(&plain).executor(&args.backend, size)?;
    let logits = feed(executor.as_mut(), &ids, chunk, &mut comparer, |c, row| c.first_row = row)?;
    let report = Report {
        rows: ids.len(),
        values: recorder.len(),
        tolerance,
        agreement: agreement(&reference, &logits, plain.hyper.vocab),
        comparer: &comparer,
    };
    let mut out = std::io::stdout();
    match args.json {
        true => writeln!(out, "{}", report.json())?,
        false => writeln!(out, "{report}")?,
    }
    report.verdict()
}

fn prompt(args: &Args, opened: &Opened) -> anyhow::Result<Vec<u32>> {
    if let Some(path) = &args.ids {
        return read_ids(path, opened.hyper.vocab);
    }
    let ids = tokenizer(&opened.reader)?.encode(&args.prompt, Special::AsText)?;
    match ids.is_empty() {
        true => bail!("the prompt is empty"),
        false => Ok(ids),
    }
}

/// Runs the prompt `chunk` rows a step; gives all logits. `starts` tells the probe where a step begins.
fn feed<P: Probe>(
    executor: &mut dyn Executor,
    ids: &[u32],
    chunk: usize,
    probe: &mut P,
    starts: impl Fn(&mut P, usize),
) -> anyhow::Result<Vec<f32>> {
    let mut all = vec![];
    for batch in steps(ids, chunk) {
        starts(probe, batch.positions[0] as usize);
        for row in executor.step_probed(&batch, Some(probe))?.rows {
            match row {
                RowOutput::Logits(logits) => all.extend(logits),
                // not an end: where it began is just what is looked for
                _ => all.resize(all.len() + executor.limits().vocab, f32::NAN),
            }
        }
    }
    Ok(all)
}

struct Report<'a> {
    rows: usize,
    values: usize,
    tolerance: f64,
    agreement: Agreement,
    comparer: &'a Comparer<'a>,
}

impl Report<'_> {
    /// For each layer, in order: its worst value, how far it is off, and how many elements differ at all.
    fn layers(&self) -> Vec<(String, (String, f64, usize))> {
        let mut out: Vec<(String, (String, f64, usize))> = vec![];
        for (path, layer, d) in self.comparer.deviations() {
            let name = layer.map_or("-".into(), |l| l.to_string());
            if out.last().is_none_or(|(last, _)| *last != name) {
                out.push((name, (path.to_owned(), 0.0, 0)));
            }
            let (_, (worst_path, worst, differing)) = out.last_mut().expect("just pushed");
            *differing += d.differing;
            if d.worst > *worst {
                (*worst_path, *worst) = (path.to_owned(), d.worst);
            }
        }
        out
    }

    fn json(&self) -> serde_json::Value {
        let first = self.comparer.first().map(|d| {
            json!({"value": d.path, "op": d.op, "layer": d.layer, "row": d.row, "element": d.element,
                   "reference": d.reference, "other": d.other, "relative": d.relative})
        });
        let layers = self.layers().into_iter().map(|(layer, (path, worst, differing))| {
            json!({"layer": layer, "worst_value": path, "relative": worst, "differing": differing})
        });
        let a = self.agreement;
        json!({"values": self.values, "rows": self.rows, "tolerance": self.tolerance, "first_difference": first,
               "other_choice": self.comparer.parted().map(|(row, path)| json!({"row": row, "value": path})),
               "layers": layers.collect::<Vec<_>>(), "unmatched": self.comparer.unmatched(),
               "logits": {"max_abs": a.max_abs, "kl": a.kl, "top1": a.top1}})
    }

    fn verdict(&self) -> anyhow::Result<()> {
        let unmatched = self.comparer.unmatched();
        if let Some(d) = self.comparer.first() {
            bail!("the executions differ: {}", describe(d));
        }
        match unmatched.first() {
            Some(path) => bail!("{} values have no counterpart, such as `{path}`", unmatched.len()),
            None => Ok(()),
        }
    }
}

impl std::fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{} values of {} rows compared, tolerance {:e}\n",
            self.values, self.rows, self.tolerance
        )?;
        writeln!(f, "{:>6}  {:<28} {:>12} {:>12}", "layer", "worst value", "relative", "differing")?;
        for (layer, (path, worst, differing)) in self.layers() {
            writeln!(f, "{layer:>6}  {path:<28} {worst:>12.3e} {differing:>12}")?;
        }
        let Agreement { max_abs, kl, top1 } = self.agreement;
        writeln!(
            f,
            "\nlogits: largest difference {max_abs:.3e}, KL {kl:.3e} nats, same likeliest token in {:.2} %",
            100.0 * top1
        )?;
        if let Some((row, path)) = self.comparer.parted() {
            writeln!(
                f,
                "row {row} chose otherwise in `{path}`: compared up to there only, as rounding may do that"
            )?;
        }
        match self.comparer.first() {
            Some(d) => write!(f, "first difference: {}", describe(d)),
            None => write!(f, "no value differs by more than it may"),
        }
    }
}

fn describe(d: &Difference) -> String {
    let Difference { path, op, row, element, reference, other, relative, .. } = d;
    format!(
        "`{path}` ({op}), row {row}, element {element}: {reference} in the reference, {other} in the other ({relative:.3e} of the row's size)"
    )
}
