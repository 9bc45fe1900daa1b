//! `shardwright kernels`: machine code beforehand, for boxes that have a driver and no compiler.

use crate::commands::bench::dummy;
use crate::commands::doctor;
use crate::progress::Progress;
use crate::table::bytes;
use crate::wire::{BackendArgs, ModelArgs, Opened, ROWS, Size, WireType};
use anyhow::{Context, anyhow, bail};
use clap::ArgGroup;
use shardwright_cuda::jit::{Folders, Jit};
use shardwright_cuda::nvrtc::Nvrtc;
use shardwright_cuda::unit::Unit;
use shardwright_cuda::{CudaOptions, Needs, measure, peers, wave, ways};
use shardwright_model::arch;
use shardwright_model::exec::BLOCK;
use shardwright_model::presets::{Preset, Recipe};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Compile the kernels of models into a folder, so that `run`, `serve` and `doctor` need no compiler where it is shipped.
///
/// They are looked for in `kernels` beside the program, in `share/shardwright/kernels` beside its folder, or where SHARDWRIGHT_KERNELS says.
/// A model's kernels depend on its sizes, on the types of its weights and on the number of ranks, and on the length of the context below 8,192,
/// where those of 1,024, 2,048 and 4,096 are made; a file given here is read as far as its header. What is in the folder already is not compiled again. No GPU is needed.
#[derive(clap::Args)]
#[command(
    mut_group("Which", |which| which.required(false)),
    group(ArgGroup::new("compiled").args(["MODEL", "model", "hf", "demo", "preset"]).required(true).multiple(true)),
    after_help = "\
Examples:
  shardwright kernels --out kernels --demo
  shardwright kernels --out kernels model.gguf --tp 8 --arch sm_120a
  shardwright kernels --out kernels --preset glm-5,glm-5.2 --recipe ud-q4_k_xl --tp 1,2,4,6,8"
)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// The folder.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Compile for models of these shapes; `shardwright synth --list` has the names.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    preset: Vec<String>,
    /// Types of the presets' weights.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "ud-q4_k_xl")]
    recipe: Vec<String>,
    /// Numbers of ranks, each on a GPU of its own; those that a model can't be cut over are left out.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    tp: Vec<u32>,
    /// Architectures.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_values = ARCHITECTURES)]
    arch: Vec<String>,
    /// Multiprocessors of the cards that they are for [default: those of the card that most have of an architecture: 132 of sm_90a,
    /// 188 of sm_120a].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    multiprocessors: Option<u32>,
    /// Only count them.
    #[arg(long)]
    dry_run: bool,
}

/// Cards from 2020 on: A100; RTX 30; RTX 40; H100 and H200; B200; B300; RTX 50 and RTX PRO.
const ARCHITECTURES: [&str; 7] = ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a"];

/// Contexts whose kernels are made: attention over few positions is cut into fewer parts, and has no indexer.
const CONTEXTS: [usize; 4] = [1024, 2048, 4096, 8192];

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    let dealt = |architecture: &str| args.multiprocessors.map_or(wave::usual(architecture), |n| n as usize);
    let numbers: BTreeSet<usize> = args.arch.iter().map(|architecture| dealt(architecture)).collect();
    let made = numbers.into_iter().enumerate().map(|(n, number)| Ok((number, units(args, number, n == 0)?)));
    let sets: BTreeMap<usize, Vec<Unit>> = made.collect::<anyhow::Result<_>>()?;
    let most = sets.values().map(Vec::len).max().unwrap_or(0);
    writeln!(out, "{most} kernels for {} architectures", args.arch.len())?;
    if args.dry_run {
        return Ok(());
    }
    let compiler = Nvrtc::find()?;
    writeln!(out, "{compiler}")?;
    for name in &args.arch {
        compiler.knows(name).map_err(|e| anyhow!("{e}; a release ships {}", ARCHITECTURES.join(", ")))?;
    }
    std::fs::create_dir_all(&args.out).with_context(|| format!("{}", args.out.display()))?;
    for architecture in &args.arch {
        let (begun, units) = (Instant::now(), &sets[&dealt(architecture)]);
        let compiling = Mutex::new(Compiling { bar: None, told: begun });
        let name = architecture.clone();
        let progress = move |done: usize, all: usize| {
            let mut compiling = compiling.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(line) = compiling.at([done, all], Instant::now()) {
                log::info!("{name}: {line}");
            }
        };
        let folders = Folders { own: Some(args.out.clone()), shipped: vec![] };
        let made = Jit::new(Nvrtc::find, folders, progress).cubins(units, architecture)?;
        // as a box without a compiler will look for them
        let shipped = Folders { own: None, shipped: vec![args.out.clone()] };
        let none =
            || Err(shardwright_cuda::Error::Compiler("they were compiled but could not be kept".into()));
        Jit::new(none, shipped, |_, _| {})
            .cubins(units, architecture)
            .with_context(|| args.out.display().to_string())?;
        let size: usize = made.iter().map(|cubin| cubin.code.len()).sum();
        let seconds = begun.elapsed().as_secs_f64();
        writeln!(out, "{architecture}: {} kernels, {}, {seconds:.0} s", made.len(), bytes(size as u64))?;
    }
    Ok(())
}

/// How far an architecture is: on a bar, and for those who read a log, a line now and then.
struct Compiling {
    bar: Option<Progress>,
    /// When a line was told last.
    told: Instant,
}

/// Between two lines.
const LINE: Duration = Duration::from_secs(20);

impl Compiling {
    /// So many of so many are compiled; a line, if it is time for one.
    fn at(&mut self, [done, all]: [usize; 2], now: Instant) -> Option<String> {
        self.bar.get_or_insert_with(|| Progress::new("compiling kernels", all)).at(done);
        if now.duration_since(self.told) < LINE {
            return None;
        }
        self.told = now;
        Some(format!("{done} of {all} kernels are compiled"))
    }
}

/// The kernels of all that was named, dealt for so many multiprocessors, those by which `doctor` tries the way between two cards, and
/// those by which `bench --per-kernel` tells the time and how fast memory is.
fn units(args: &Args, multiprocessors: usize, tell: bool) -> anyhow::Result<Vec<Unit>> {
    let mut models = vec![];
    if args.model.is_named() {
        models.push(args.model.open()?);
    }
    for preset in &args.preset {
        for recipe in &args.recipe {
            models.push(dummy::of_shape(&args.model, &Preset::find(preset)?, Recipe::find(recipe)?)?);
        }
    }
    let mut cuts = vec![];
    for model in &models {
        cuts.extend(Cut::all(model, &args.tp, multiprocessors, tell)?);
    }
    let mut units = of_cuts(cuts)?;
    units.extend(doctor::SUMMED.iter().map(|bytes| peers::unit(2, *bytes)));
    units.extend(measure::units());
    Ok(units.into_iter().collect())
}

/// A model over so many ranks, which send each other what they add in this way, on cards of so many multiprocessors.
struct Cut<'a> {
    model: &'a Opened,
    ranks: u32,
    wire: WireType,
    multiprocessors: usize,
}

impl Cut<'_> {
    /// Those that go; what does not is told of once.
    fn all<'a>(
        model: &'a Opened,
        ranks: &[u32],
        multiprocessors: usize,
        tell: bool,
    ) -> anyhow::Result<Vec<Cut<'a>>> {
        let (trunk, mut cuts) = (arch::describe(&model.hyper), vec![]);
        for ranks in ranks.iter().copied() {
            let wires = if ranks > 1 { &[WireType::F32, WireType::Bf16][..] } else { &[WireType::F32] };
            match model.plans(&trunk, &BackendArgs::on_gpus(ranks, WireType::F32)) {
                Ok(_) => {
                    cuts.extend(wires.iter().map(|wire| Cut { model, ranks, wire: *wire, multiprocessors }))
                }
                Err(e) if tell => log::warn!("no kernels for {ranks} ranks: {e:#}"),
                Err(_) => {}
            }
        }
        if cuts.is_empty() {
            bail!("it can be cut over none of these numbers of ranks");
        }
        Ok(cuts)
    }

    /// Kernels of all ranks, each on a GPU of its own.
    fn units(&self) -> anyhow::Result<BTreeSet<Unit>> {
        let backend = BackendArgs::on_gpus(self.ranks, self.wire);
        let plans = self.model.plans(&arch::describe(&self.model.hyper), &backend)?;
        let mut units = BTreeSet::new();
        for (plan, context) in plans.chunks(1).flat_map(|plan| CONTEXTS.map(|context| (plan, context))) {
            let (size, blocks) = (Size { context, rows: ROWS }, context.div_ceil(BLOCK));
            let options = self.model.cuda_options(&backend, size, blocks, false)?;
            let options = CudaOptions { multiprocessors: self.multiprocessors, ..options };
            units.extend(Needs::of(plan, &options)?.1);
            units.extend(ways::units(plan, &options));
            // which of both it will be is measured where they run
            let two_legs = ways::tiles(plan, &options);
            if !two_legs.is_empty() {
                units.extend(Needs::of(plan, &CudaOptions { two_legs, ..options })?.1);
            }
        }
        Ok(units)
    }
}

/// The kernels of all cuts, which take seconds each and are made side by side.
fn of_cuts(mut cuts: Vec<Cut<'_>>) -> anyhow::Result<BTreeSet<Unit>> {
    // those last that are done soon
    cuts.sort_by_key(|cut| cut.ranks);
    let mut progress = Progress::new("planning kernels", cuts.len());
    let (all, waiting) = (cuts.len(), Mutex::new(cuts));
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let (tell, told) = mpsc::channel();
    let work = |tell: mpsc::Sender<_>| {
        // nobody listens any more when one has failed
        while let Some(cut) = next()
            && tell.send(cut.units()).is_ok()
        {}
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from).min(all) {
            let tell = tell.clone();
            scope.spawn(|| work(tell));
        }
        drop(tell);
        let mut units = BTreeSet::new();
        for (done, found) in told.into_iter().enumerate() {
            units.extend(found?);
            progress.at(done + 1);
        }
        Ok(units)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_told_how_many_are_compiled() {
        let begun = Instant::now();
        let mut compiling = Compiling { bar: None, told: begun };
        let mut at = |seconds, done| compiling.at([done, 900], begun + Duration::from_secs(seconds));
        assert_eq!(
            [at(1, 1), at(21, 150), at(40, 300)],
            [None, Some("150 of 900 kernels are compiled".into()), None]
        );
        assert!(at(41, 301).is_some());
    }
}
