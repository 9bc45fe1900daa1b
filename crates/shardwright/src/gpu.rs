//! A model on a GPU.

use crate::commands::doctor;
use crate::device::Sums;
use crate::links::Seats;
use crate::progress::Progress;
use crate::table::bytes;
use anyhow::{anyhow, bail};
use shardwright_cuda::device::Device;
use shardwright_cuda::driver::{Gpu, Nccl, Way};
use shardwright_cuda::health::Guarded;
use shardwright_cuda::jit::{Folders, Jit};
use shardwright_cuda::nvml::Nvml;
use shardwright_cuda::nvrtc::Nvrtc;
use shardwright_cuda::{CudaExecutor, CudaOptions, Error, Needs};
use shardwright_cuda::{library, wave, ways};
use shardwright_gguf::Reader;
use shardwright_model::exec::Executor;
use shardwright_model::op::Description;
use shardwright_model::plan::RankPlan;
use std::fmt::{self, Display, Formatter};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Is there a GPU? Whether it has kernels is known when it is asked to run a model.
pub(crate) fn found() -> bool {
    Gpu::list().inspect_err(|e| log::debug!("{e}")).is_ok()
}

/// The GPUs on which so many ranks of one of some replicas run: those that were named, or the next ones, one for each rank, or if there
/// are not as many, the first one for all ranks.
pub(crate) fn chosen(named: &[u32], ranks: usize, replica: [usize; 2]) -> anyhow::Result<Vec<usize>> {
    let there = if named.is_empty() { Gpu::list()?.len() } else { 0 };
    choose(named, ranks, replica, there)
}

fn choose(
    named: &[u32],
    ranks: usize,
    [replica, replicas]: [usize; 2],
    there: usize,
) -> anyhow::Result<Vec<usize>> {
    match named {
        [] if there >= ranks * replicas => Ok((replica * ranks..(replica + 1) * ranks).collect()),
        [] if there > 1 && replicas > 1 => {
            bail!(
                "{replicas} replicas of {ranks} ranks take {} GPUs, and there are {there}",
                ranks * replicas
            )
        }
        [] => Ok(vec![0]),
        [one] => Ok(vec![*one as usize]),
        all if all.len() == ranks => Ok(all.iter().map(|n| *n as usize).collect()),
        all => bail!("`--device` names {} GPUs for {ranks} ranks; `--tp {0}` has one for each", all.len()),
    }
}

/// What runs the plans' steps on these GPUs, a rank on each or all on one, after seeing that they fit.
pub(crate) fn executor(
    (indices, part): (&[usize], Option<u32>),
    sums: Sums,
    file: &Arc<Reader>,
    trunk: (&Description, Vec<RankPlan>),
    options: &CudaOptions,
    check_memory: bool,
) -> anyhow::Result<OnGpus> {
    let mut gpus = open(indices, part)?;
    let (options, weights) = match ready(&mut gpus, sums, &trunk.1, options, check_memory) {
        Ok(ready) => ready,
        Err(why) => {
            shardwright_cuda::give_back(gpus);
            return Err(why);
        }
    };
    let mut loading = Loading::new(weights);
    let mut watch = |bytes: u64| {
        if let Some(line) = loading.add(bytes, Instant::now()) {
            log::info!("{line}");
        }
    };
    let places: Vec<(String, usize)> =
        gpus.iter().map(|g| (g.info().place.clone(), g.info().index)).collect();
    let gpus = gpus.into_iter().map(|gpu| Box::new(gpu) as Box<dyn Device>).collect();
    let executor = CudaExecutor::new(gpus, file, trunk, None, &options, &mut watch)?;
    let loaded = loading.finish();
    log::info!("{loaded}");
    Ok(OnGpus { executor, places, loaded })
}

/// Has GPUs find out by what they sum, compile their kernels and reserve their memory; with the bytes of all weights.
fn ready(
    gpus: &mut [Gpu],
    sums: Sums,
    plans: &[RankPlan],
    options: &CudaOptions,
    check_memory: bool,
) -> anyhow::Result<(CudaOptions, u64)> {
    let (mut weights, several) = (0, gpus.len() > 1);
    let mut options = options.clone();
    if several {
        choose_sums(gpus, sums, plans, &mut options)?;
    }
    let plans = |n: usize| if several { &plans[n..=n] } else { plans };
    // before any weight: what does not compile is known at once, and what code takes is no longer free
    let (multiprocessors, needs) = dealt(&own_and_usual(gpus)?, |multiprocessors| {
        let options = CudaOptions { multiprocessors, ..options.clone() };
        let ready = |(n, gpu): (usize, &mut Gpu)| -> shardwright_cuda::Result<Needs> {
            let (needs, kernels) = Needs::of(plans(n), &options)?;
            gpu.load(&kernels.into_iter().collect::<Vec<_>>())?;
            Ok(needs)
        };
        gpus.iter_mut().enumerate().map(ready).collect::<shardwright_cuda::Result<Vec<_>>>()
    })?;
    for (gpu, needs) in gpus.iter_mut().zip(needs) {
        let name = format!("GPU {} ({})", gpu.info().index, gpu.info().name);
        log::info!("{name}: {}", told(&needs));
        if check_memory {
            fits(&name, &needs, gpu.free_memory()?)?;
            gpu.reserve(needs.held())?;
        }
        weights += needs.weights;
    }
    Ok((CudaOptions { multiprocessors, ..options }, weights))
}

/// By what GPUs sum: as was asked, or where what they push does not arrive, by NCCL, if that is there.
fn choose_sums(
    gpus: &mut [Gpu],
    sums: Sums,
    plans: &[RankPlan],
    options: &mut CudaOptions,
) -> anyhow::Result<()> {
    if sums == Sums::Nccl {
        return by_nccl(gpus, &Nccl::find()?, plans, options);
    }
    let apart = gpus.first().and_then(Gpu::apart).map(str::to_owned);
    if let Some(why) = &apart {
        log::warn!("sums over GPUs go through the host's memory: {why}; `shardwright doctor` tells more");
    }
    let seats = Seats::of(gpus);
    let told = |e: &Error| match e {
        Error::Absent(_) => advised(e, &seats.told(e), apart.as_deref(), doctor::iommu()),
        e => joined(e.to_string(), &seats.told(e)),
    };
    let nothing_arrives = match choose_way(gpus, plans, options, (&told, &seats)) {
        Err(e @ (Error::Absent(_) | Error::Wrong(_))) if sums == Sums::Auto => e,
        other => return other.map_err(|e| anyhow!("{}", told(&e))),
    };
    match Nccl::find() {
        Ok(nccl) => {
            let what = match &nothing_arrives {
                Error::Wrong(all) => all.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
                e => e.to_string(),
            };
            let what = joined(what, &seats.told(&nothing_arrives));
            log::warn!("sums over GPUs are NCCL's, as nothing else arrives: {what}");
            by_nccl(gpus, &nccl, plans, options)
        }
        Err(e) => {
            log::info!("{e}");
            bail!("{}", told(&nothing_arrives))
        }
    }
}

/// Lets NCCL sum, once its sums are seen to be right.
fn by_nccl(
    gpus: &mut [Gpu],
    nccl: &Nccl,
    plans: &[RankPlan],
    options: &mut CudaOptions,
) -> anyhow::Result<()> {
    log::info!("sums over GPUs: by {nccl}");
    Gpu::join(gpus, nccl)?;
    options.nccl = true;
    let seats = Seats::of(gpus);
    let told = |e: &Error| joined(e.to_string(), &seats.told(e));
    let mut devices: Vec<&mut dyn Device> = gpus.iter_mut().map(|gpu| gpu as _).collect();
    let tried = library::tried(&mut devices, plans, options, &mut |e| lost(&told(&e)));
    tried.map_err(|e| anyhow!("{}", told(&e)))
}

/// A driver that does not come back can't be called off.
fn lost(why: &str) {
    log::error!("{why}, and a GPU does not come back");
    std::process::exit(1)
}

/// Which way sums go that we make ourselves, once it is known that what GPUs send each other arrives.
fn choose_way(
    gpus: &mut [Gpu],
    plans: &[RankPlan],
    options: &mut CudaOptions,
    (told, seats): (&dyn Fn(&Error) -> String, &Seats),
) -> shardwright_cuda::Result<()> {
    let mut devices: Vec<&mut dyn Device> = gpus.iter_mut().map(|gpu| gpu as _).collect();
    let measured = ways::measured(&mut devices, plans, options, &mut |e| lost(&told(&e)))?;
    if let Some(wrong) = &measured.wrong {
        let way = if wrong.legs == 1 { "two legs" } else { "one leg" };
        let wrong = joined(wrong.to_string(), &seats.told_of(wrong));
        log::warn!("sums over GPUs go in {way} only: {wrong}; `shardwright doctor` tells more");
    }
    measured.ways.iter().for_each(|way| log::info!("{}", went(way)));
    Ok(())
}

/// What is wrong, and how the ranks are joined that it is about.
fn joined(what: String, links: &str) -> String {
    if links.is_empty() { what } else { format!("{what}; {links}") }
}

/// Why ranks do not find each other, with what is known of the way between them, and what to do.
fn advised(e: &Error, links: &str, apart: Option<&str>, iommu: bool) -> String {
    let way = match apart {
        None => "GPUs write to each other's memory".to_owned(),
        Some(why) => format!("GPUs write to the host's memory, as {why}"),
    };
    let iommu = match iommu {
        true => "an IOMMU is active: add iommu=pt to the kernel's command line, or turn it off in the BIOS",
        false => "no IOMMU translates; access control (ACS) of bridges may be in the way",
    };
    let what = joined(e.to_string(), links);
    format!(
        "{what} ({way}; {iommu}). `shardwright doctor` tries each pair; one GPU (`--tp 1`) or `--device cpu` needs no way between GPUs"
    )
}

/// Multiprocessors that launches may be dealt for on these GPUs: those of the smallest, and those for which kernels are shipped.
fn own_and_usual(gpus: &[Gpu]) -> shardwright_cuda::Result<Vec<usize>> {
    let own = gpus.iter().map(|gpu| gpu.info().multiprocessors as usize).min();
    let architecture = gpus.first().map(Gpu::architecture).transpose()?;
    let usual = architecture.map(|architecture| wave::usual(&architecture));
    let mut all: Vec<usize> = own.into_iter().chain(usual).collect();
    all.dedup();
    Ok(all)
}

/// For which of these numbers of multiprocessors everything is ready, and what is: the next one is for where there is no compiler,
/// and nobody has shipped kernels for this one.
fn dealt<T>(
    all: &[usize],
    mut ready: impl FnMut(usize) -> shardwright_cuda::Result<T>,
) -> shardwright_cuda::Result<(usize, T)> {
    let mut last = Err(shardwright_cuda::Error::Zero("multiprocessor"));
    for number in all {
        last = ready(*number).map(|made| (*number, made));
        match &last {
            Err(shardwright_cuda::Error::Compiler(why)) => {
                log::info!("no kernels for {number} multiprocessors: {why}");
            }
            _ => return last,
        }
    }
    last
}

/// A model on GPUs, and where these sit.
pub(crate) struct OnGpus {
    pub(crate) executor: CudaExecutor,
    places: Vec<(String, usize)>,
    pub(crate) loaded: Loaded,
}

/// Weights that were brought to GPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Loaded {
    pub(crate) bytes: u64,
    /// From the first to the last of them; kernels are there before, and steps are recorded.
    pub(crate) seconds: f64,
}

impl Loaded {
    /// Bytes a second.
    pub(crate) fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-9)
    }
}

impl Display for Loaded {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let [all, rate] = [self.bytes, self.rate() as u64].map(bytes);
        write!(f, "loaded: {all} in {:.1} s, {rate} a second", self.seconds)
    }
}

impl OnGpus {
    /// What serves: it ends when a card is lost, where cards can be watched.
    pub(crate) fn guarded(self) -> anyhow::Result<Box<dyn Executor>> {
        let executor = Box::new(self.executor);
        let card = |nvml: &Nvml, (place, index): &(String, usize)| nvml.card(place, *index);
        let all = |nvml: Nvml| self.places.iter().map(|at| card(&nvml, at)).collect::<Result<Vec<_>, _>>();
        match Nvml::find().and_then(all) {
            Ok(cards) => Ok(Box::new(Guarded::new(executor, cards, |why| {
                log::error!("{why}, and a step on it does not end");
                std::process::exit(1);
            })?)),
            Err(e) => {
                log::info!("the GPUs are not watched: {e}");
                Ok(executor)
            }
        }
    }
}

/// How far loading is: on a bar, and for those who read a log, a line every few seconds.
struct Loading {
    bar: Progress,
    all: u64,
    done: u64,
    begun: Instant,
    /// When bytes came last.
    last: Instant,
    /// When a line was told last.
    told: Instant,
}

/// Between two lines.
const LINE: Duration = Duration::from_secs(4);

impl Loading {
    fn new(all: u64) -> Loading {
        let now = Instant::now();
        Loading {
            bar: Progress::new("loading (MB)", megabytes(all)),
            all,
            done: 0,
            begun: now,
            last: now,
            told: now,
        }
    }

    /// So many bytes have come; a line, if it is time for one.
    fn add(&mut self, come: u64, now: Instant) -> Option<String> {
        if self.done + come == 0 {
            (self.begun, self.told) = (now, now);
        }
        self.done += come;
        self.last = now;
        self.bar.at(megabytes(self.done));
        if now.duration_since(self.told) < LINE {
            return None;
        }
        self.told = now;
        let rate = self.done as f64 / now.duration_since(self.begun).as_secs_f64();
        Some(format!("loading: {} of {}, {} a second", bytes(self.done), bytes(self.all), bytes(rate as u64)))
    }

    /// The bar goes.
    fn finish(self) -> Loaded {
        Loaded { bytes: self.done, seconds: self.last.duration_since(self.begun).as_secs_f64() }
    }
}

fn megabytes(bytes: u64) -> usize {
    (bytes / 1_000_000) as usize
}

/// Refuses what does not fit, with all parts of the sum.
fn fits(name: &str, needs: &Needs, free: u64) -> anyhow::Result<()> {
    if needs.total() > free {
        bail!(
            "not enough memory on {name}: {} needed ({}), {} free; ask for a shorter context with `-c`, cut the model over more \
             GPUs with `--tp`, or go on anyway with `--no-memory-check`",
            bytes(needs.total()),
            told(needs),
            bytes(free)
        );
    }
    Ok(())
}

/// The GPUs as one group, with a compiler that tells how far it is; of a single one perhaps only so many multiprocessors.
pub(crate) fn open(indices: &[usize], part: Option<u32>) -> anyhow::Result<Vec<Gpu>> {
    let bar = Mutex::new(None::<Progress>);
    let progress = move |done: usize, all: usize| {
        let mut bar = bar.lock().unwrap_or_else(PoisonError::into_inner);
        bar.get_or_insert_with(|| Progress::new("compiling kernels", all)).at(done);
        if done == all {
            *bar = None;
        }
    };
    let jit = Arc::new(Jit::new(Nvrtc::find, Folders::find(), progress));
    if let (Some(_), [index]) = (part, indices) {
        return Ok(vec![Gpu::open_part(*index, jit, part)?]);
    }
    if part.is_some() {
        bail!("`--multiprocessors` is for one GPU, and there are {} to run on", indices.len());
    }
    Ok(Gpu::group(indices, &jit, Way::Best)?)
}

/// Which way sums go, and what was measured.
fn went(way: &ways::Way) -> String {
    let [one, two] = way.times.map(|time| time.as_secs_f64() * 1e6);
    let legs = if way.legs == 1 { "one leg" } else { "two legs" };
    format!(
        "sums over GPUs, kernels for {} rows: in {legs}; {} rows take {one:.1} us in one, {two:.1} us in two",
        way.tile, way.rows
    )
}

/// All parts of the sum.
fn told(needs: &Needs) -> String {
    let Needs { weights, cache, working, inbox, driver } = *needs;
    let [weights, cache, working, inbox, driver] = [weights, cache, working, inbox, driver].map(bytes);
    format!(
        "{weights} of weights, {cache} of cache, {working} of working memory, {inbox} of inboxes and, at most, {driver} of \
         recorded steps and the driver's own"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c4_what_does_not_fit_is_refused_with_numbers_that_add_up() {
        let g = 1_000_000_000;
        let needs = Needs { weights: 50 * g, cache: 20 * g, working: 5 * g, inbox: 2 * g, driver: g };
        assert!(fits("GPU 0", &needs, 78 * g).is_ok());
        let why = fits("GPU 0 (NVIDIA H200)", &needs, 78 * g - 1).unwrap_err().to_string();
        for part in [
            "GPU 0 (NVIDIA H200)",
            "78.0 GB needed (50.0 GB of weights, 20.0 GB of cache, 5.00 GB of working memory",
        ] {
            assert!(why.contains(part), "{part}: {why}");
        }
        assert!(why.contains("2.00 GB of inboxes and, at most, 1.00 GB of recorded steps"), "{why}");
    }

    #[test]
    fn launches_are_dealt_for_the_usual_card_where_there_is_no_compiler() {
        use shardwright_cuda::Error;
        let check = |all: &[usize], shipped: &[usize], expected: Option<usize>| {
            let ready = |number: usize| match shipped.contains(&number) {
                true => Ok(number * 10),
                false => Err(Error::Compiler("there is none".into())),
            };
            let found = dealt(all, ready).ok();
            assert_eq!(found, expected.map(|n| (n, n * 10)), "{all:?}, {shipped:?} shipped");
        };
        check(&[170, 188], &[170, 188], Some(170));
        check(&[170, 188], &[188], Some(188));
        check(&[188], &[188], Some(188));
        check(&[170, 188], &[132], None);
        // whatever else is wrong is wrong with the other number too
        let mut tried = vec![];
        let broken = dealt(&[170, 188], |number| {
            tried.push(number);
            Err::<(), _>(Error::Zero("tile"))
        });
        assert!(matches!(broken, Err(Error::Zero("tile"))) && tried == [170]);
    }

    #[test]
    fn c2_who_did_not_come_is_told_with_what_is_known_of_the_way() {
        let patience = Duration::from_secs(30);
        let absent =
            shardwright_cuda::pairs::Absent { arrived: vec![0, 2], absent: vec![1], pairs: vec![], patience };
        let link = "rank 0 and rank 1 (GPU 0, GPU 1) are joined by NVLink";
        let all = advised(&absent.clone().into(), link, None, true);
        for part in [
            "within 30 s: rank 0 and rank 2 arrived, rank 1 did not; rank 0 and rank 1 (GPU 0, GPU 1) are joined by NVLink (",
            "each other's memory",
            "iommu=pt",
        ] {
            assert!(all.contains(part), "{part}: {all}");
        }
        let all =
            advised(&absent.clone().into(), "", Some("GPU 0 does not reach the memory of GPU 1"), false);
        for part in [
            "rank 1 did not (GPUs write to the host's memory, as GPU 0 does not reach",
            "no IOMMU",
            "`--device cpu`",
        ] {
            assert!(all.contains(part), "{part}: {all}");
        }
        let both = shardwright_cuda::pairs::Absent { absent: vec![], pairs: vec![[2, 0]], ..absent };
        let all = advised(&both.into(), "", None, false);
        assert!(all.contains("rank 2 arrived, but what rank 2 sends does not reach rank 0"), "{all}");
    }

    #[test]
    fn which_way_sums_go_is_told_with_the_figures() {
        let times = [Duration::from_nanos(19_240), Duration::from_nanos(12_500)];
        let way = ways::Way { tile: 64, rows: 128, times, legs: 2 };
        let line =
            "sums over GPUs, kernels for 64 rows: in two legs; 128 rows take 19.2 us in one, 12.5 us in two";
        assert_eq!(went(&way), line);
    }

    #[test]
    fn l1_a_log_is_told_how_far_loading_is() {
        let mut loading = Loading::new(10_000_000_000);
        assert!(
            loading.add(0, loading.begun + Duration::from_secs(3)).is_none(),
            "what is in front does not count"
        );
        let at = |seconds| loading.begun + Duration::from_secs(seconds);
        let times = [1, 4, 6, 8].map(at);
        let lines = times.map(|time| loading.add(2_000_000_000, time));
        assert!(lines[0].is_none() && lines[2].is_none(), "{lines:?}");
        assert_eq!(lines[1].as_deref(), Some("loading: 4.00 GB of 10.0 GB, 1.00 GB a second"));
        assert_eq!(lines[3].as_deref(), Some("loading: 8.00 GB of 10.0 GB, 1.00 GB a second"));
        let loaded = loading.finish();
        assert_eq!(loaded, Loaded { bytes: 8_000_000_000, seconds: 8.0 });
        assert_eq!(loaded.to_string(), "loaded: 8.00 GB in 8.0 s, 1.00 GB a second");
    }

    #[test]
    fn ranks_have_gpus_of_their_own_where_there_are_enough() {
        let one =
            |named: &[u32], ranks: usize, replica: [usize; 2], there: usize, expected: Option<&[usize]>| {
                let chosen = choose(named, ranks, replica, there).ok();
                assert_eq!(
                    chosen.as_deref(),
                    expected,
                    "{named:?} for {ranks} ranks, {replica:?}, {there} there"
                );
            };
        let check = |named: &[u32], ranks, there, expected| one(named, ranks, [0, 1], there, expected);
        check(&[], 1, 8, Some(&[0]));
        check(&[], 4, 8, Some(&[0, 1, 2, 3]));
        check(&[], 4, 4, Some(&[0, 1, 2, 3]));
        check(&[], 4, 3, Some(&[0]));
        check(&[5], 1, 8, Some(&[5]));
        check(&[5], 4, 8, Some(&[5]));
        check(&[3, 1], 2, 8, Some(&[3, 1]));
        check(&[3, 1], 1, 8, None);
        check(&[3, 1], 4, 8, None);
        one(&[], 4, [0, 2], 8, Some(&[0, 1, 2, 3]));
        one(&[], 4, [1, 2], 8, Some(&[4, 5, 6, 7]));
        one(&[], 1, [1, 2], 2, Some(&[1]));
        one(&[], 2, [1, 2], 3, None);
        one(&[], 2, [1, 2], 1, Some(&[0]));
        one(&[6], 1, [1, 2], 8, Some(&[6]));
    }
}
