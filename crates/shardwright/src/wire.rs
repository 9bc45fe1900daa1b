//! Opens a file, picks a backend, makes an executor.

use crate::device::{Device, Slice, Sums};
use crate::files::{DEMO, attach, demo};
use crate::gpu::{self, Loaded, OnGpus};
use crate::hub;
use crate::memory::Needs;
use crate::overrides::Override;
use crate::stages::{self, StageArgs};
use anyhow::{Context, bail};
use shardwright_cpu::{Activations, CpuExecutor, CpuOptions};
use shardwright_cuda::CudaOptions;
use shardwright_cuda::wave::MULTIPROCESSORS;
use shardwright_gguf::Reader;
use shardwright_hub::Wanted;
use shardwright_model::arch;
use shardwright_model::budget::Demand;
use shardwright_model::exec::{BLOCK, Executor, Ranks, Wire};
use shardwright_model::hyper::{Hyper, Options, Source};
use shardwright_model::op::Description;
use shardwright_model::plan::{self, RankPlan};
use shardwright_text::tokenizer::Tokenizer;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Which model to open, and how to read its header.
#[derive(clap::Args, Debug)]
pub(crate) struct ModelArgs {
    #[command(flatten)]
    which: Which,
    /// A next-token layer in a file of its own; it is loaded, not yet used to draft.
    #[arg(long, value_name = "FILE")]
    mtp: Option<PathBuf>,
    /// Read a metadata key as this value instead; TYPE is int, float, bool or str. May be repeated.
    #[arg(long, value_name = "KEY=TYPE:VALUE")]
    override_kv: Vec<Override>,
    /// Attend to all positions, ignoring the file's sparse-attention indexer.
    #[arg(long)]
    dense_attention: bool,
    /// Deal the embedding's rows over the ranks instead of holding it whole on each.
    #[arg(long)]
    deal_embedding: bool,
}

#[derive(clap::Args, Debug)]
#[group(required = true, multiple = false)]
struct Which {
    /// A GGUF file; of a split one, any part.
    #[arg(value_name = "MODEL", id = "MODEL")]
    file: Option<PathBuf>,
    /// The same as MODEL.
    #[arg(short, long, value_name = "MODEL")]
    model: Option<PathBuf>,
    /// A model of the Hugging Face hub; what is not in the cache is fetched first, as by `shardwright pull`.
    #[arg(long, visible_alias = "hf-repo", value_name = "OWNER/REPO[:QUANT]")]
    hf: Option<Wanted>,
    /// The small demo model that comes with Shardwright.
    #[arg(long)]
    demo: bool,
}

/// Where and how to run.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct BackendArgs {
    /// Ranks to cut the model over.
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    tp: u32,
    /// auto, cpu or cuda[:i,...]. auto is a GPU, if there is one, to talk with a model, and the CPU to measure it. Ranks have a
    /// GPU each where there are as many; on one GPU they run one after the other.
    #[arg(long, default_value = "auto")]
    device: Device,
    /// How the CPU computes: f32 is exact and slow, q8 rounds activations to 8 bits in front of every matrix, auto
    /// does so in front of quantized ones only [default: auto to talk with a model, f32 to measure it].
    #[arg(long, value_name = "auto|f32|q8", hide_possible_values = true)]
    activations: Option<Rounding>,
    /// How ranks send each other what they add: f32, or bf16, which is half the bytes and rounds them; auto is bf16 where ranks have a
    /// GPU each, and f32 elsewhere.
    #[arg(long, value_name = "auto|f32|bf16", hide_possible_values = true, default_value = "auto")]
    allreduce_type: WireType,
    /// By what ranks that have a GPU each sum: push is kernels of ours that write to the others' memory, nccl NVIDIA's library, which is
    /// slower for the small sums of an answer; auto is push, and nccl where what is pushed does not arrive.
    #[arg(long, value_name = "auto|push|nccl", hide_possible_values = true, default_value = "auto")]
    allreduce: Sums,
    /// Compare what all ranks must have in common in every step, not only in the first 100, and end where they differ.
    #[arg(long)]
    check_ranks: bool,
    /// CPU threads [default: all cores].
    #[arg(short, long, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Option<u32>,
    /// On a GPU, launch kernels one by one instead of replaying recorded steps.
    #[arg(long)]
    enforce_eager: bool,
    /// Start even if the model does not seem to fit into memory.
    #[arg(long)]
    no_memory_check: bool,
    #[command(flatten)]
    pub(crate) stages: StageArgs,
    /// How many models share the host.
    #[arg(skip = 1usize)]
    replicas: usize,
    /// Which of them this is.
    #[arg(skip)]
    replica: usize,
    /// Of a GPU's multiprocessors only so many, where that is to be measured.
    #[arg(skip)]
    pub(crate) multiprocessors: Option<u32>,
}

impl BackendArgs {
    /// The same, but one rank, exact, on the CPU: what others are compared with.
    pub(crate) fn reference(&self) -> BackendArgs {
        let stages = StageArgs::default();
        BackendArgs {
            tp: 1,
            activations: None,
            device: Device::Cpu,
            allreduce: Sums::Auto,
            stages,
            ..self.clone()
        }
    }

    /// What `run` and `serve` use on so many GPUs, unless told otherwise.
    pub(crate) fn on_gpus(tp: u32, wire: WireType) -> BackendArgs {
        BackendArgs {
            tp,
            device: Device::Cuda(vec![]),
            activations: Some(Rounding::Auto),
            allreduce_type: wire,
            allreduce: Sums::Auto,
            check_ranks: false,
            threads: None,
            enforce_eager: false,
            no_memory_check: false,
            stages: StageArgs::default(),
            replicas: 1,
            replica: 0,
            multiprocessors: None,
        }
    }

    /// The same for one of `count` replicas: its share of the GPUs, or of the host's cores.
    pub(crate) fn replica(&self, at: usize, count: usize) -> anyhow::Result<BackendArgs> {
        if count == 1 {
            return Ok(self.clone());
        }
        if self.stages.place()?.is_some() {
            bail!(
                "--replicas and --pipeline-parallel-size do not go together: start a server for each replica"
            );
        }
        let device = match &self.device {
            Device::Cuda(all) if all.len() > 1 && all.len() % count > 0 => {
                bail!("{} GPUs do not go around {count} replicas", all.len())
            }
            Device::Cuda(all) if all.len() > 1 => {
                let each = all.len() / count;
                Device::Cuda(all[at * each..][..each].to_vec())
            }
            other => other.clone(),
        };
        let threads = Some((self.threads() / count).max(1) as u32);
        Ok(BackendArgs { device, threads, replicas: count, replica: at, ..self.clone() })
    }

    /// Ranks to cut the model, or a stage of it, over.
    pub(crate) fn tp(&self) -> usize {
        self.tp as usize
    }

    /// The GPUs that are named, or the first, whatever the number of ranks.
    pub(crate) fn named_gpus(&self) -> anyhow::Result<Vec<usize>> {
        match &self.device {
            Device::Cuda(named) if !named.is_empty() => Ok(named.iter().map(|n| *n as usize).collect()),
            _ => self.gpus(1),
        }
    }

    /// The GPUs for so many ranks.
    pub(crate) fn gpus(&self, ranks: usize) -> anyhow::Result<Vec<usize>> {
        let named: &[u32] = match &self.device {
            Device::Cuda(named) => named,
            Device::Auto => &[],
            Device::Cpu => bail!("`--device cpu` names no GPU, and only a GPU can do this"),
        };
        gpu::chosen(named, ranks, [self.replica, self.replicas])
    }

    /// The same on only so many of a GPU's multiprocessors, if that is asked for.
    pub(crate) fn on_part(self, multiprocessors: Option<u32>) -> anyhow::Result<BackendArgs> {
        match &self.device {
            Device::Auto | Device::Cpu if multiprocessors.is_some() => {
                bail!("`--multiprocessors` is a GPU's; add `--device cuda`")
            }
            _ => Ok(BackendArgs { multiprocessors, ..self }),
        }
    }

    /// More threads than cores would only wait for each other.
    pub(crate) fn threads(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        match self.threads.map(|n| n as usize) {
            Some(n) if n > cores => {
                log::info!("{cores} threads instead of {n}: there are no more cores");
                cores
            }
            Some(n) => n,
            None => cores,
        }
    }

    /// The same, but fast unless told otherwise.
    pub(crate) fn fast(&self) -> BackendArgs {
        BackendArgs { activations: self.activations.or(Some(Rounding::Auto)), ..self.clone() }
    }

    /// Is anything rounded on its way, activations or what goes from rank to rank?
    pub(crate) fn rounds(&self) -> bool {
        self.activations() != Activations::F32 || self.tp > 1 && self.ranks(self.apart()).wire == Wire::Bf16
    }

    /// Have ranks a GPU each?
    fn apart(&self) -> bool {
        let on_gpus = match self.device {
            Device::Cuda(_) => true,
            Device::Auto => self.activations.is_some() && gpu::found(),
            Device::Cpu => false,
        };
        on_gpus && self.gpus(self.tp()).is_ok_and(|gpus| gpus.len() > 1)
    }

    /// How ranks are summed and compared, which may have a device each.
    pub(crate) fn ranks(&self, apart: bool) -> Ranks {
        let wire = match self.allreduce_type {
            WireType::Auto if apart => Wire::Bf16,
            WireType::Auto | WireType::F32 => Wire::F32,
            WireType::Bf16 => Wire::Bf16,
        };
        Ranks { wire, check: self.check_ranks }
    }

    fn activations(&self) -> Activations {
        match self.activations {
            None | Some(Rounding::F32) => Activations::F32,
            Some(Rounding::Auto) => Activations::Q8,
            Some(Rounding::Q8) => Activations::Q8Everywhere,
        }
    }

    /// How far from the reference a row may be, over its root mean square: nothing where the same sums are made in
    /// the same order.
    pub(crate) fn tolerance(&self) -> f64 {
        match (self.rounds(), self.tp, &self.device) {
            (true, ..) => 0.5,
            (false, 1, Device::Auto | Device::Cpu) => 0.0,
            (false, ..) => 1e-4,
        }
    }
}

/// `--activations`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Rounding {
    Auto,
    F32,
    Q8,
}

/// `--allreduce-type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum WireType {
    Auto,
    F32,
    Bf16,
}

/// A model file, its header understood.
pub(crate) struct Opened {
    pub(crate) reader: Arc<Reader>,
    pub(crate) hyper: Hyper,
    /// Has the file no weights, so that some are to be made up?
    dummy: bool,
    /// The only rank of several that is run, to be measured.
    alone: Option<Slice>,
    /// What passes there in place of each sum over ranks.
    delay: Duration,
}

/// What runs a model's steps, and what was brought to GPUs for it.
pub(crate) struct Started {
    pub(crate) executor: Box<dyn Executor>,
    pub(crate) loaded: Option<Loaded>,
}

/// Rows of a step of `run` and `serve`, unless told otherwise: few enough that Ctrl-C is heard soon.
pub(crate) const ROWS: usize = 128;

/// What an executor is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Most tokens of a sequence, and of all sequences together.
    pub(crate) context: usize,
    /// Most rows of a step.
    pub(crate) rows: usize,
}

impl ModelArgs {
    /// The file alone, overrides applied, its oddities told.
    pub(crate) fn read(&self) -> anyhow::Result<Reader> {
        match (&self.which.file, &self.which.model, &self.which.hf) {
            (Some(path), ..) | (_, Some(path), _) => self.read_at(path),
            (.., Some(wanted)) => self.read_at(&hub::model(wanted)?),
            _ => self.read_at(&demo()?),
        }
    }

    /// Was a model named at all?
    pub(crate) fn is_named(&self) -> bool {
        let Which { file, model, hf, demo } = &self.which;
        *demo || hf.is_some() || file.is_some() || model.is_some()
    }

    /// What to call the model: the name of its repository, or of its file, without what tells parts apart.
    pub(crate) fn title(&self) -> String {
        if let Some(wanted) = &self.which.hf {
            return wanted.repo.clone();
        }
        let path = self.which.file.as_ref().or(self.which.model.as_ref());
        let stem = path.and_then(|p| p.file_stem()).map_or("demo".into(), |s| s.to_string_lossy());
        let part = |s: &str| s.len() == 5 && s.bytes().all(|b| b.is_ascii_digit());
        match stem.rsplit_once("-of-").and_then(|(rest, all)| Some((rest.rsplit_once('-')?, all))) {
            Some(((name, at), all)) if part(at) && part(all) => name.to_owned(),
            _ => stem.into_owned(),
        }
    }

    /// What was named as the file, if there is no such file.
    pub(crate) fn no_file_but_a_name(&self) -> Option<&str> {
        let path = self.which.file.as_ref().or(self.which.model.as_ref())?;
        path.to_str().filter(|_| !path.exists())
    }

    /// What `--model` says, where it is no file but a server's name for a model.
    pub(crate) fn served(&self) -> Option<&str> {
        self.which.model.as_ref().and_then(|name| name.to_str())
    }

    fn read_at(&self, path: &Path) -> anyhow::Result<Reader> {
        let mut reader = Reader::open(path)?;
        if let Some(mtp) = &self.mtp {
            attach(&mut reader, mtp)?;
        }
        for o in &self.override_kv {
            log::debug!("`{}` is taken to be {:?}", o.key, o.value);
            reader.meta_mut().set(&o.key, o.value.clone());
        }
        for warning in reader.warnings() {
            log::warn!("{warning}");
        }
        Ok(reader)
    }

    /// What the user chose about the description.
    pub(crate) fn options(&self) -> Options {
        Options { deal_embedding: self.deal_embedding, dense_attention: self.dense_attention }
    }

    /// The file and the numbers of its model.
    pub(crate) fn open(&self) -> anyhow::Result<Opened> {
        self.understand(self.read()?)
    }

    /// Another file, read in the same way.
    pub(crate) fn open_at(&self, path: &Path) -> anyhow::Result<Opened> {
        self.understand(self.read_at(path)?)
    }

    fn understand(&self, reader: Reader) -> anyhow::Result<Opened> {
        let has = |name: &str| Some(reader.tensor(name).is_some());
        let source = Source { meta: reader.meta(), has: &has, options: self.options() };
        let hyper = arch::read(&source).with_context(|| name(&reader))?;
        for note in &hyper.notes {
            log::info!("{note}");
        }
        tell_unused(&reader, &hyper);
        Ok(Opened { reader: Arc::new(reader), hyper, dummy: false, alone: None, delay: Duration::ZERO })
    }
}

/// The file, for the front of an error.
pub(crate) fn name(reader: &Reader) -> String {
    let path = &reader.files()[0];
    // where a build has it tells nobody anything
    if path.ends_with(DEMO) { DEMO.to_owned() } else { path.display().to_string() }
}

/// The file's tokenizer.
pub(crate) fn tokenizer(reader: &Reader) -> anyhow::Result<Tokenizer> {
    Tokenizer::from_meta(reader.meta()).with_context(|| name(reader))
}

/// A tensor that no step reads may be one that the file's model cannot do without: a bias, a norm, more layers.
fn tell_unused(reader: &Reader, hyper: &Hyper) {
    let (trunk, draft) = (arch::describe(hyper), arch::draft(hyper));
    let weights = trunk.weights().chain(draft.iter().flat_map(Description::weights));
    let used: BTreeSet<&str> = weights.map(|w| w.name.as_str()).collect();
    // Layers that share a selection carry an indexer of their own in many files.
    let unused = |name: &&str| !used.contains(name) && !name.contains(".indexer.");
    let names: Vec<&str> = reader.tensors().iter().map(|t| t.name.as_str()).filter(unused).collect();
    if let Some(first) = names.first() {
        log::warn!("{} tensors of the file are left out, as nothing here reads them: `{first}`", names.len());
    }
}

impl Opened {
    /// The same, but its file has no weights, and perhaps only one rank is run.
    pub(crate) fn dummy(self, alone: Option<Slice>, delay: Duration) -> Opened {
        Opened { dummy: true, alone, delay, ..self }
    }

    /// Says so if a sequence of so many tokens is longer than the model was made for.
    pub(crate) fn tell_if_beyond(&self, tokens: usize) {
        let made_for = self.hyper.context;
        if tokens > made_for {
            log::warn!(
                "{tokens} tokens are more than the {made_for} that the model was made for: what it computes beyond them means little"
            );
        }
    }

    /// Makes what runs the model's steps, after seeing that it fits.
    pub(crate) fn executor(&self, args: &BackendArgs, size: Size) -> anyhow::Result<Box<dyn Executor>> {
        self.executor_for_many(args, size, size.context)
    }

    /// The same, with room for `tokens` tokens of all sequences together.
    pub(crate) fn executor_for_many(
        &self,
        args: &BackendArgs,
        size: Size,
        tokens: usize,
    ) -> anyhow::Result<Box<dyn Executor>> {
        Ok(self.started(args, size, tokens)?.executor)
    }

    /// The same, with what was loaded.
    pub(crate) fn started(&self, args: &BackendArgs, size: Size, tokens: usize) -> anyhow::Result<Started> {
        let blocks = tokens.div_ceil(BLOCK);
        let options = CpuOptions {
            threads: args.threads(),
            rows: size.rows,
            blocks,
            context: size.context,
            activations: self.activations(args),
            ranks: args.ranks(false),
        };
        if let Some(place) = args.stages.place()? {
            if let Device::Cuda(_) = args.device {
                bail!(
                    "pipeline stages run on the CPU; leave out `--device`, or cut the model over ranks with `--tp`"
                );
            }
            args.allreduce.check(false)?;
            return Ok(Started { executor: stages::lead(self, args, options, &place)?, loaded: None });
        }
        let on_gpus = || -> anyhow::Result<Started> {
            let on = self.on_gpus(args, size, tokens)?;
            let loaded = Some(on.loaded);
            Ok(Started { executor: on.guarded()?, loaded })
        };
        match &args.device {
            Device::Cuda(_) => return on_gpus(),
            // what measures runs where it is exact in every bit
            Device::Auto if args.activations.is_some() && gpu::found() => match on_gpus() {
                Ok(started) => return Ok(started),
                Err(e) if args.allreduce == Sums::Nccl => return Err(e),
                Err(e) => log::warn!("the GPU is not used: {e:#}"),
            },
            Device::Auto | Device::Cpu => {}
        }
        args.allreduce.check(false)?;
        if self.dummy {
            bail!("a dummy model's weights are made up on a GPU; add `--device cuda`");
        }
        Ok(Started { executor: self.on_cpu(args, &arch::describe(&self.hyper), options)?, loaded: None })
    }

    /// The same on GPUs: those that were named, or that are there.
    pub(crate) fn on_gpus(&self, args: &BackendArgs, size: Size, tokens: usize) -> anyhow::Result<OnGpus> {
        let trunk = arch::describe(&self.hyper);
        let plans = self.plans(&trunk, args)?;
        let indices = args.gpus(plans.len())?;
        if indices.len() < plans.len() {
            log::warn!("{} ranks run on GPU {}, one after the other", plans.len(), indices[0]);
        }
        args.allreduce.check(indices.len() > 1)?;
        let options = self.cuda_options(args, size, tokens.div_ceil(BLOCK), indices.len() > 1)?;
        let gpus = (&indices[..], args.multiprocessors);
        gpu::executor(gpus, args.allreduce, &self.reader, (&trunk, plans), &options, !args.no_memory_check)
    }

    /// Runs the model, or a stage of it, on the CPU, after seeing that it fits.
    pub(crate) fn on_cpu(
        &self,
        args: &BackendArgs,
        part: &Description,
        options: CpuOptions,
    ) -> anyhow::Result<Box<dyn Executor>> {
        let plans = self.plans(part, args)?;
        let demand = Demand {
            context: (options.blocks * BLOCK) as u64,
            rows: options.rows as u64,
            element: size_of::<f32>() as u64,
        };
        let needs = Needs::of(&self.reader, part, &plans, &demand).times(args.replicas);
        log::debug!("{needs}");
        if !args.no_memory_check {
            needs.check_available()?;
        }
        Ok(Box::new(CpuExecutor::new(self.reader.clone(), (part, plans), None, options)?))
    }

    /// How its ranks share it.
    pub(crate) fn plans(&self, part: &Description, args: &BackendArgs) -> anyhow::Result<Vec<RankPlan>> {
        let find = |name: &str| self.reader.tensor(name);
        let ranks = self.alone.map_or(args.tp(), |slice| slice.ranks);
        let mut plans = plan::plan(part, &find, ranks).with_context(|| name(&self.reader))?;
        if let Some(slice) = self.alone {
            plans = vec![plans.swap_remove(slice.rank)];
        }
        Ok(plans)
    }

    /// The model cut by layer.
    pub(crate) fn stages(&self, count: usize) -> anyhow::Result<Vec<Description>> {
        let find = |name: &str| self.reader.tensor(name);
        plan::stages(&arch::describe(&self.hyper), &find, count).with_context(|| name(&self.reader))
    }

    fn activations(&self, args: &BackendArgs) -> Activations {
        match self.reader.tensors().iter().any(|t| t.quant.block_len() > 1) {
            // a file without quantized matrices is as exact as it was made
            false if args.activations == Some(Rounding::Auto) => Activations::F32,
            _ => args.activations(),
        }
    }

    pub(crate) fn cuda_options(
        &self,
        args: &BackendArgs,
        size: Size,
        blocks: usize,
        apart: bool,
    ) -> anyhow::Result<CudaOptions> {
        let activations = self.activations(args);
        if activations == Activations::Q8Everywhere {
            bail!(
                "`--activations q8` is for the CPU; a GPU rounds in front of quantized matrices only (`auto`)"
            );
        }
        let steps = |all: &[u32]| all.iter().copied().filter(|n| *n as usize <= size.rows).collect();
        Ok(CudaOptions {
            rows: size.rows,
            blocks,
            context: size.context,
            fast: activations == Activations::Q8,
            fuse: true,
            tiles: vec![1, 2, 3, 4, 8, 64],
            dummy: self.dummy,
            recorded: if args.enforce_eager {
                vec![]
            } else {
                steps(&[1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64])
            },
            ranks: args.ranks(apart),
            narrow: CudaOptions::NARROW,
            alone: self.alone.is_some(),
            patience: CudaOptions::PATIENCE,
            multiprocessors: MULTIPROCESSORS,
            delay: self.delay,
            two_legs: vec![],
            // known when GPUs have tried each other
            nccl: false,
        })
    }
}
