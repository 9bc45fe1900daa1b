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
use shardwright_cuda::{Needs, peers};
use shardwright_model::arch;
use shardwright_model::exec::BLOCK;
use shardwright_model::presets::{Preset, Recipe};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Instant;

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
    let units = units(args)?;
    writeln!(out, "{} kernels for {} architectures", units.len(), args.arch.len())?;
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
        let begun = Instant::now();
        let bar = Mutex::new(None::<Progress>);
        let progress = move |done: usize, all: usize| {
            let mut bar = bar.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            bar.get_or_insert_with(|| Progress::new("compiling kernels", all)).at(done);
        };
        let folders = Folders { own: Some(args.out.clone()), shipped: vec![] };
        let made = Jit::new(Nvrtc::find, folders, progress).cubins(&units, architecture)?;
        // as a box without a compiler will look for them
        let shipped = Folders { own: None, shipped: vec![args.out.clone()] };
        let none =
            || Err(shardwright_cuda::Error::Compiler("they were compiled but could not be kept".into()));
        Jit::new(none, shipped, |_, _| {})
            .cubins(&units, architecture)
            .with_context(|| args.out.display().to_string())?;
        let size: usize = made.iter().map(|cubin| cubin.code.len()).sum();
        let seconds = begun.elapsed().as_secs_f64();
        writeln!(out, "{architecture}: {} kernels, {}, {seconds:.0} s", made.len(), bytes(size as u64))?;
    }
    Ok(())
}

/// The kernels of all that was named, and those by which `doctor` tries the way between two cards.
fn units(args: &Args) -> anyhow::Result<Vec<Unit>> {
    let mut units: BTreeSet<Unit> = doctor::SUMMED.iter().map(|bytes| peers::unit(2, *bytes)).collect();
    if args.model.is_named() {
        of_model(&args.model.open()?, &args.tp, &mut units)?;
    }
    for preset in &args.preset {
        for recipe in &args.recipe {
            let opened = dummy::of_shape(&args.model, &Preset::find(preset)?, Recipe::find(recipe)?)?;
            of_model(&opened, &args.tp, &mut units).with_context(|| format!("{preset}, {recipe}"))?;
        }
    }
    Ok(units.into_iter().collect())
}

fn of_model(opened: &Opened, ranks: &[u32], units: &mut BTreeSet<Unit>) -> anyhow::Result<()> {
    let (trunk, mut cut) = (arch::describe(&opened.hyper), 0);
    for tp in ranks {
        let wires = if *tp > 1 { &[WireType::F32, WireType::Bf16][..] } else { &[WireType::F32] };
        for wire in wires {
            let backend = BackendArgs::on_gpus(*tp, *wire);
            let plans = match opened.plans(&trunk, &backend) {
                Ok(plans) => plans,
                Err(e) => {
                    log::warn!("no kernels for {tp} ranks: {e:#}");
                    continue;
                }
            };
            cut += 1;
            for (plan, context) in plans.chunks(1).flat_map(|plan| CONTEXTS.map(|context| (plan, context))) {
                let size = Size { context, rows: ROWS };
                let options = opened.cuda_options(&backend, size, context.div_ceil(BLOCK))?;
                units.extend(Needs::of(plan, &options)?.1);
            }
        }
    }
    if cut == 0 {
        bail!("it can be cut over none of these numbers of ranks");
    }
    Ok(())
}
