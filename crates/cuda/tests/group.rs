//! Ranks that have a device each, here an emulator: the same bits as ranks that share one, and an end for all when one ends.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../cpu/tests/common/mod.rs"]
mod common;
mod emulator;
mod models;

use std::time::{Duration, Instant};

use common::*;
use emulator::{Emulator, as_inner};
use models::{exact, fast, on, steps};
use shardwright_cuda::device::{Abort, Device, Kernel, Launch, Recording};
use shardwright_cuda::peers::{Sum, measure};
use shardwright_cuda::unit::Unit;
use shardwright_cuda::{CudaExecutor, CudaOptions, Error, Result, library, ways};
use shardwright_gguf::Reader;
use shardwright_model::exec::{ExecError, Executor, Ranks, StepOutput, Want, Wire};
use shardwright_model::plan::{RankPlan, plan};

/// An emulator for each rank.
fn devices(count: usize) -> Option<Vec<Box<dyn Device>>> {
    (0..count).map(|_| Emulator::new().map(|e| Box::new(e) as Box<dyn Device>)).collect()
}

/// The same, with a library that sums over them.
fn joined(count: usize) -> Option<Vec<Box<dyn Device>>> {
    Some(Emulator::group(count)?.into_iter().map(|e| Box::new(e) as Box<dyn Device>).collect())
}

fn opened(name: &str, ranks: usize, count: usize, options: &CudaOptions) -> Option<CudaExecutor> {
    Some(on(devices(count)?, &files(name)[0], ranks, options).unwrap())
}

#[test]
fn devices_give_the_bits_of_virtual_ranks() {
    for (name, ranks, wire, options) in [
        ("glm-dsa-tp8-kq", 2, Wire::F32, fast()),
        ("glm-dsa-tp8-kq", 4, Wire::Bf16, exact()),
        ("glm-dsa-tp8-kq", 8, Wire::Bf16, fast()),
        ("deepseek2-v3-f32", 3, Wire::F32, exact()),
    ] {
        let ids = Gold::open(&format!("golden/{name}.npz")).unwrap().ids(0);
        let options = CudaOptions { ranks: Ranks { wire, check: true }, ..options };
        let Some(mut shared) = opened(name, ranks, 1, &options) else { return };
        let Some(mut own) = opened(name, ranks, ranks, &options) else { return };
        assert!(steps(&mut own, &ids) == steps(&mut shared, &ids), "{name} over {ranks}, {wire:?}");
    }
}

#[test]
fn every_value_is_that_of_virtual_ranks() {
    let name = "glm-dsa-tp8-kq";
    let ids = Gold::open(&format!("golden/{name}.npz")).unwrap().ids(0);
    let seen = |count| {
        let mut taps = Taps::default();
        let mut exec = opened(name, 2, count, &exact())?;
        let batch = step_of(&[(&ids[..3], 0, &TABLE)], Want::Logits);
        exec.step_probed(&batch, Some(&mut taps)).unwrap();
        // and a step of the other kind still finds its slots
        exec.step(&batch).unwrap();
        Some(taps.0)
    };
    let (Some(shared), Some(own)) = (seen(1), seen(2)) else { return };
    assert!(!own.is_empty());
    assert_eq!(shared.keys().collect::<Vec<_>>(), own.keys().collect::<Vec<_>>());
    for (path, (_, want)) in &shared {
        let same = want.iter().zip(&own[path].1).all(|(w, o)| w.to_bits() == o.to_bits());
        assert!(same && want.len() == own[path].1.len(), "{path}");
    }
}

/// Sums of a library, recorded and not, in the order of ranks: with summands of f32 the same bits; of bf16 each sum of two is rounded.
#[test]
fn a_library_sums_as_virtual_ranks_do() {
    for (name, ranks, options) in [
        ("glm-dsa-tp8-kq", 2, fast()),
        ("deepseek2-v3-f32", 3, exact()),
        ("glm-dsa-tp8-kq", 4, CudaOptions { recorded: vec![], ..exact() }),
        ("llama-f32", 2, CudaOptions { fuse: false, ..exact() }),
    ] {
        let gold = Gold::open(&format!("golden/{name}.npz")).unwrap();
        let wired = |wire| CudaOptions { ranks: Ranks { wire, check: true }, nccl: true, ..options.clone() };
        let own = |wire| Some(on(joined(ranks)?, &files(name)[0], ranks, &wired(wire)).unwrap());
        let Some(mut sums) = own(Wire::F32) else { return };
        let mut shared = opened(name, ranks, 1, &CudaOptions { nccl: false, ..wired(Wire::F32) }).unwrap();
        let ids = gold.ids(0);
        assert!(steps(&mut sums, &ids) == steps(&mut shared, &ids), "{name} over {ranks}");
        if !options.fast {
            check_class(name, &gold, &mut own(Wire::Bf16).unwrap(), 1, "bf16");
        }
    }
}

#[test]
fn a_library_is_tried_before_anything_is_loaded() {
    for wire in [Wire::F32, Wire::Bf16] {
        let Some(mut all) = joined(4) else { return };
        let (plans, options) = planned(wire, CudaOptions { nccl: true, rows: 16, ..fast() });
        tried(&mut all, &plans, &options).unwrap();
    }
    // a rank that fails, that says what it does not have, and that does not come: nobody waits for ever
    for (end, says) in [
        (End::Refuse, "the card takes no launch"),
        (End::Lie, "NCCL: a sum of "),
        (End::Never, "NCCL was given up on rank 0, as not all ranks came"),
    ] {
        let Some(mut group) = Emulator::group(3) else { return };
        let last = Ending { inner: group.pop().unwrap(), left: 1, end };
        let mut all: Vec<Box<dyn Device>> = group.into_iter().map(|e| Box::new(e) as _).collect();
        all.push(Box::new(last));
        let (plans, options) = planned(Wire::F32, CudaOptions { nccl: true, rows: 4, ..fast() });
        let plans: Vec<RankPlan> = plans[..3].iter().map(|p| RankPlan { ranks: 3, ..p.clone() }).collect();
        let options = CudaOptions { patience: [PATIENCE; 2], ..options };
        let why = tried(&mut all, &plans, &options).unwrap_err().to_string();
        println!("{end:?}: {why}");
        assert!(why.contains(says), "{end:?}: {why}");
    }
}

fn tried(all: &mut [Box<dyn Device>], plans: &[RankPlan], options: &CudaOptions) -> Result<()> {
    let mut devices: Vec<&mut dyn Device> = all.iter_mut().map(|device| &mut **device as _).collect();
    library::tried(&mut devices, plans, options, &mut |e| panic!("{e}"))
}

/// How a device ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Error,
    Panic,
    /// It does nothing any more, and says that all is well.
    Silence,
    /// So long.
    Sleep(Duration),
    /// What it says is not what it has.
    Lie,
    /// Launches do nothing.
    Never,
    /// Launches are refused.
    Refuse,
    /// A launch does not come back for so long.
    Stuck(Duration),
}

/// An emulator that ends when so many steps have been given to it.
struct Ending {
    inner: Emulator,
    left: usize,
    end: End,
}

impl Ending {
    fn is_over(&mut self) -> Result<bool> {
        self.left = self.left.saturating_sub(1);
        match self.end {
            _ if self.left > 0 => Ok(false),
            End::Error => Err(Error::Driver("the card has fallen off the bus".into())),
            End::Panic => panic!("a fault of the program"),
            End::Silence => Ok(true),
            End::Lie | End::Never | End::Refuse | End::Stuck(_) => Ok(false),
            End::Sleep(time) => {
                std::thread::sleep(time);
                Ok(false)
            }
        }
    }
}

impl Device for Ending {
    as_inner!();

    fn alloc(&mut self, bytes: usize) -> Result<u64> {
        self.inner.alloc(bytes)
    }

    fn upload(&mut self, to: u64, data: &[u8]) -> Result<()> {
        self.inner.upload(to, data)
    }

    fn repeat(&mut self, to: u64, pattern: &[u8], bytes: usize) -> Result<()> {
        self.inner.repeat(to, pattern, bytes)
    }

    fn download(&mut self, from: u64, out: &mut [u8]) -> Result<()> {
        self.inner.download(from, out)?;
        if matches!(self.end, End::Lie) {
            out[out.len() / 2] ^= 1;
        }
        Ok(())
    }

    fn abort(&self) -> Option<Abort> {
        self.inner.abort()
    }

    fn load(&mut self, units: &[Unit]) -> Result<Vec<Kernel>> {
        self.inner.load(units)
    }

    fn launch(&mut self, launch: &Launch) -> Result<()> {
        match self.end {
            End::Never => return Ok(()),
            End::Stuck(time) => std::thread::sleep(time),
            End::Refuse => return Err(Error::Driver("the card takes no launch".into())),
            _ => {}
        }
        self.inner.launch(launch)
    }

    fn record(&mut self, launches: &[Launch]) -> Result<Recording> {
        self.inner.record(launches)
    }

    fn replay(&mut self, recording: Recording) -> Result<()> {
        if self.is_over()? { Ok(()) } else { self.inner.replay(recording) }
    }
}

/// As the product has it, twice: an emulator is slow.
const PATIENCE: Duration = Duration::from_secs(2);

/// Recordings that are replayed at the start: one of two rows, looking back nowhere and far, of trunk and next-token layer.
const AT_START: usize = 3;

/// One row more.
fn step(exec: &mut CudaExecutor, at: usize) -> std::result::Result<StepOutput, ExecError> {
    exec.step(&step_of(&[(&[5], at, &TABLE)], Want::Candidates))
}

/// Steps until one fails: why, and how long that took.
fn ended(exec: &mut CudaExecutor) -> (String, Duration) {
    let timed = |at| {
        let begun = Instant::now();
        step(exec, at).err().map(|e| (e.0, begun.elapsed()))
    };
    (0..6).find_map(timed).unwrap()
}

#[test]
fn a_rank_that_ends_is_named_when_patience_ends() {
    let cases = [
        (End::Error, "the card has fallen off the bus"),
        (End::Panic, "rank 1 is gone: its thread has panicked: a fault of the program"),
        (End::Silence, "rank 0 has waited in vain at `blk.0"),
        (End::Sleep(2 * PATIENCE), "for what rank 1 add"),
    ];
    for (end, says) in cases {
        let Some(inner) = Emulator::new() else { return };
        let mut all = devices(1).unwrap();
        all.push(Box::new(Ending { inner, left: AT_START + 4, end }));
        let options = CudaOptions { patience: [60 * PATIENCE, PATIENCE], ..exact() };
        let mut exec = on(all, &files("llama-f32")[0], 2, &options).unwrap();
        let (why, time) = ended(&mut exec);
        println!("{end:?} after {time:?}: {why}");
        assert!(why.contains(says), "{end:?}: {why}");
        assert!(time < 4 * PATIENCE, "{end:?}: {time:?}");
        // it stays broken, and says so at once
        assert!(step(&mut exec, 9).is_err());
    }
}

/// The same where a library sums, which waits for ever: it is given up, and everything comes to an end.
#[test]
fn a_rank_that_ends_ends_a_library_s_sums_too() {
    let cases = [
        (End::Error, "the card has fallen off the bus", Duration::from_secs(2)),
        (
            End::Panic,
            "rank 1 is gone: its thread has panicked: a fault of the program",
            Duration::from_secs(2),
        ),
        (
            End::Silence,
            "rank 0 is gone: its card has not answered in time; its sums are NCCL's",
            Duration::from_secs(14),
        ),
    ];
    for (end, says, most) in cases {
        let Some(mut group) = Emulator::group(2) else { return };
        let last = Ending { inner: group.pop().unwrap(), left: AT_START + 4, end };
        let mut all: Vec<Box<dyn Device>> = group.into_iter().map(|e| Box::new(e) as _).collect();
        all.push(Box::new(last));
        let options = CudaOptions { patience: [60 * PATIENCE, PATIENCE], nccl: true, ..exact() };
        let mut exec = on(all, &files("llama-f32")[0], 2, &options).unwrap();
        let (why, time) = ended(&mut exec);
        println!("{end:?} after {time:?}: {why}");
        assert!(why.contains(says), "{end:?}: {why}");
        assert!(time < most, "{end:?}: {time:?}");
        assert!(step(&mut exec, 9).is_err());
        let begun = Instant::now();
        drop(exec);
        assert!(begun.elapsed() < PATIENCE, "{end:?}: {:?} to the end", begun.elapsed());
    }
}

#[test]
fn devices_are_as_many_as_ranks() {
    let Some(two) = devices(2) else { return };
    let why = on(two, &files("glm-dsa-tp8-kq")[0], 4, &exact()).unwrap_err().to_string();
    assert!(why.contains("4 ranks on 2 devices"), "{why}");
}

#[test]
fn the_way_between_devices_is_tried() {
    for count in [2, 3] {
        let Some(mut all) = devices(count) else { return };
        for (bytes, sums) in [(16, 2), (4096, 6), (40_000, 3)] {
            let figure = measure(&mut all, bytes, sums).unwrap();
            assert!(figure.bytes == bytes && figure.time > Duration::ZERO, "{figure:?}");
        }
    }
}

#[test]
fn a_way_that_is_none_is_found() {
    for (end, says) in
        [(End::Silence, "for what rank 1 add"), (End::Error, "fallen off"), (End::Lie, "wrong bytes")]
    {
        let (Some(mut all), Some(inner)) = (devices(1), Emulator::new()) else { return };
        all.push(Box::new(Ending { inner, left: 3, end }));
        let why = measure(&mut all, 4096, 2).unwrap_err().to_string();
        assert!(why.contains(says), "{end:?}: {why}");
    }
}

/// Plans of a model of four ranks, and options whose programs are of one, four and many rows.
fn planned(wire: Wire, options: CudaOptions) -> (Vec<RankPlan>, CudaOptions) {
    let file = Reader::open(&files("glm-dsa-tp8-kq")[0]).unwrap();
    let trunk = described(&file, PLAIN.options).0;
    let ranks = Ranks { wire, check: true };
    let options = CudaOptions { tiles: vec![1, 4, 64], recorded: vec![1, 4, 12], ranks, ..options };
    (plan(&trunk, &|n| file.tensor(n), 4).unwrap(), options)
}

/// What a sum takes on a device that was made up: two legs cost more at the start, and less for each row.
fn made_up(sum: Sum) -> Result<Duration> {
    let nanoseconds = if sum.legs == 2 { 5500 + 10 * sum.rows } else { 3000 + 800 * sum.rows };
    Ok(Duration::from_nanos(nanoseconds as u64))
}

#[test]
fn the_way_that_takes_least_is_chosen() {
    let (plans, mut options) = planned(Wire::Bf16, fast());
    let chosen = ways::choose(&plans, &mut options, &mut made_up).unwrap();
    let of: Vec<_> = chosen.iter().map(|way| (way.tile, way.rows, way.legs)).collect();
    // of four rows two legs would take 5.5 us instead of 6.2, and a launch more
    assert_eq!(of, [(1, 1, 1), (4, 4, 1), (64, 256, 2)]);
    assert_eq!(options.two_legs, [64]);
    // what is chosen before does not stay
    ways::choose(&plans, &mut options, &mut |sum| Ok(Duration::from_micros(sum.legs as u64))).unwrap();
    assert!(options.two_legs.is_empty());
    let late = || Error::Driver("late".into());
    assert!(ways::choose(&plans, &mut options, &mut |_| Err(late())).is_err());
}

/// Where two legs would send as much as one, or nothing is sent at all, nothing is measured.
#[test]
fn there_is_not_always_a_choice() {
    let mut never = |_: Sum| -> Result<Duration> { panic!("nothing to measure") };
    let (plans, options) = planned(Wire::Bf16, fast());
    let cases = [(2, Wire::Bf16, false), (2, Wire::F32, false), (3, Wire::Bf16, false), (4, Wire::F32, true)];
    for (ranks, wire, alone) in cases {
        let plans: Vec<RankPlan> = plans[..ranks].iter().map(|p| RankPlan { ranks, ..p.clone() }).collect();
        let mut options = CudaOptions { ranks: Ranks { wire, check: true }, alone, ..options.clone() };
        let found = ways::choose(&plans, &mut options, &mut never).unwrap();
        assert!(found.is_empty(), "{ranks}, {wire:?}");
    }
}

/// Both ways give the same bits, also where a rank changes between them from step to step.
#[test]
fn either_way_gives_the_same_bits() {
    let name = "glm-dsa-tp8-kq";
    let ids = Gold::open(&format!("golden/{name}.npz")).unwrap().ids(0);
    for (wire, options) in [(Wire::Bf16, fast()), (Wire::F32, exact())] {
        let (_, options) = planned(wire, options);
        // steps of two rows stay with one
        let [one, two] = [vec![], vec![1, 8, 64]].map(|two_legs| {
            let options = CudaOptions { two_legs, ..options.clone() };
            Some(steps(&mut opened(name, 4, 4, &options)?, &ids))
        });
        assert!(one == two, "{wire:?}");
    }
}

/// The same by measuring, on devices that are then empty again.
#[test]
fn ways_are_measured() {
    let Some(mut all) = devices(4) else { return };
    let (plans, mut options) = planned(Wire::Bf16, fast());
    (options.rows, options.tiles) = (4, vec![1, 64]);
    let found = measured(&mut all, &plans, &mut options).unwrap();
    println!("{found:?}");
    assert!(found.wrong.is_none());
    let times = || found.ways.iter().flat_map(|way| way.times);
    assert!(found.ways.len() == 2 && times().all(|time| time > Duration::ZERO));
}

/// Where every device comes back.
fn measured(
    all: &mut [Box<dyn Device>],
    plans: &[RankPlan],
    options: &mut CudaOptions,
) -> Result<ways::Measured> {
    let mut devices: Vec<&mut dyn Device> = all.iter_mut().map(|device| &mut **device as _).collect();
    ways::measured(&mut devices, plans, options, &mut |e| panic!("{e}"))
}

/// The packet that arrives at rank 1 with a bit flipped.
const FLIPPED: usize = 20;

/// Devices of which that of rank 1 gets a bit of what this one sends flipped, in sums in so many legs.
fn flipping(count: usize, from: usize, broken: &[usize]) -> Option<Vec<Box<dyn Device>>> {
    let (mut all, broken) = (devices(count)?, broken.to_vec());
    let edit = move |unit: &Unit, source: String| {
        let legs = unit.defines.iter().find(|(name, _)| *name == "LEGS").map(|(_, legs)| legs.parse());
        if unit.stem != "exchange" || !legs.is_some_and(|legs| broken.contains(&legs.unwrap())) {
            return source;
        }
        let load = "p[r] = load_packet(inbox + (u64)r * CAPACITY + t);";
        let flips = format!("if (r == {from} && t == {FLIPPED} && !missing(p[r])) p[r].y ^= 1u << 20;");
        assert!(source.contains(load));
        source.replace(load, &format!("{{ {load} {flips} }}"))
    };
    let mut faulty = Emulator::new()?;
    faulty.edit = Some(Box::new(edit));
    all[1] = Box::new(faulty);
    Some(all)
}

#[test]
fn c1_a_bit_flipped_at_the_receiver_is_named() {
    for (wire, legs) in [(Wire::Bf16, 1), (Wire::Bf16, 2), (Wire::F32, 2)] {
        let Some(mut all) = flipping(4, 2, &[legs]) else { return };
        let (plans, mut options) = planned(wire, fast());
        options.rows = 16;
        let found = measured(&mut all, &plans, &mut options).unwrap();
        let wrong = found.wrong.unwrap();
        println!("{wire:?}: {wrong}");
        assert_eq!((&wrong.pairs[..], wrong.legs), (&[[2, 1]][..], legs), "{wire:?}: {wrong}");
        // of what is tried the least that has such a packet
        assert!(wrong.bytes > 16 * FLIPPED && wrong.bytes < 16 * 16 * FLIPPED, "{wire:?}: {wrong}");
        let says = format!("in {} of {} bytes", ["one leg", "two legs"][legs - 1], wrong.bytes);
        let text = wrong.to_string();
        assert!(text.contains(&says) && text.contains("what rank 2 sends to rank 1 arrives wrong"), "{text}");
        assert!(found.ways.is_empty());
        assert_eq!(options.two_legs, if legs == 1 { vec![1, 4, 64] } else { vec![] });
    }
}

#[test]
fn c1_the_other_way_is_gone_and_gives_right_answers() {
    let name = "deepseek2-v3-f32";
    let ids = Gold::open(&format!("golden/{name}.npz")).unwrap().ids(0);
    let Some(mut all) = flipping(3, 2, &[1]) else { return };
    let file = Reader::open(&files(name)[0]).unwrap();
    let plans = plan(&described(&file, PLAIN.options).0, &|n| file.tensor(n), 3).unwrap();
    let mut options = exact();
    let wrong = measured(&mut all, &plans, &mut options).unwrap().wrong.unwrap();
    assert_eq!((&wrong.pairs[..], wrong.legs), (&[[2, 1]][..], 1), "{wrong}");
    assert_eq!(options.two_legs, [8]);
    let mut own = on(all, &files(name)[0], 3, &options).unwrap();
    let mut shared = opened(name, 3, 1, &exact()).unwrap();
    assert!(steps(&mut own, &ids) == steps(&mut shared, &ids));
}

#[test]
fn c1_where_no_way_is_right_the_start_is_refused() {
    let refused = |ranks: usize, from, broken: &[usize]| {
        let mut all = flipping(ranks, from, broken)?;
        let (plans, mut options) = planned(Wire::Bf16, fast());
        let plans: Vec<RankPlan> = plans[..ranks].iter().map(|p| RankPlan { ranks, ..p.clone() }).collect();
        options.rows = 16;
        let why = measured(&mut all, &plans, &mut options).unwrap_err().to_string();
        println!("{why}");
        assert!(!why.contains('\n') && why.contains("shardwright doctor") && why.contains("--tp"), "{why}");
        Some(why)
    };
    let Some(both) = refused(4, 3, &[1, 2]) else { return };
    assert!(both.contains("in one leg") && both.contains("in two legs"), "{both}");
    assert_eq!(both.matches("what rank 3 sends to rank 1 arrives wrong").count(), 2, "{both}");
    // two ranks have no other way
    let one = refused(2, 0, &[1]).unwrap();
    assert!(one.contains("what rank 0 sends to rank 1 arrives wrong: in a sum in one leg"), "{one}");
}

#[test]
fn c2_a_rank_that_never_joins_is_named_in_time() {
    for end in [End::Never, End::Stuck(5 * PATIENCE / 2)] {
        let (Some(mut all), Some(inner)) = (devices(3), Emulator::new()) else { return };
        all.insert(1, Box::new(Ending { inner, left: usize::MAX, end }));
        let (plans, options) = planned(Wire::Bf16, fast());
        let mut options = CudaOptions { rows: 4, patience: [PATIENCE; 2], ..options };
        let (begun, mut told) = (Instant::now(), None);
        let mut devices: Vec<&mut dyn Device> = all.iter_mut().map(|device| &mut **device as _).collect();
        let mut lost = |e: Error| told = Some((e.to_string(), begun.elapsed()));
        let why = ways::measured(&mut devices, &plans, &mut options, &mut lost).unwrap_err();
        // what does not come back is told while it has not
        let (why, time) = told.unwrap_or((why.to_string(), begun.elapsed()));
        println!("{end:?} after {time:?}: {why}");
        assert!(why.contains("within 2 s: rank 0 and rank 2 and rank 3 arrived, rank 1 did not"), "{why}");
        assert!(time < 3 * PATIENCE, "{end:?}: {time:?}");
    }
}

#[test]
fn c1_kernels_that_are_shipped_have_those_of_the_check() {
    let (plans, options) = planned(Wire::Bf16, fast());
    let whole = |units: &[Unit]| {
        let width = |unit: &&Unit| unit.defines.iter().any(|(name, value)| *name == "WIDTH" && value == "8");
        units.iter().filter(width).count()
    };
    assert_eq!(whole(&ways::units(&plans[..1], &options)), 2);
    let two = RankPlan { ranks: 2, ..plans[0].clone() };
    assert_eq!(whole(&ways::units(&[two], &options)), 1);
}
