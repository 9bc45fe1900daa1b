//! Faults planted between the backend and its device: each must be named at the load, at the start or in the step that
//! it spoils. `docs/faults.md` says which net finds which.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../cpu/tests/common/mod.rs"]
mod common;
mod emulator;
mod models;

use std::collections::HashMap;

use common::*;
use emulator::{Emulator, as_inner};
use models::{exact, tried};
use shardwright_cuda::device::{Device, Kernel, Launch, Recording};
use shardwright_cuda::planes::lay;
use shardwright_cuda::unit::Unit;
use shardwright_cuda::{CudaExecutor, CudaOptions, Result};
use shardwright_gguf::Reader;
use shardwright_model::exec::{ExecError, Executor, Ranks, StepOutput, Want};
use shardwright_model::hash::Hash;
use shardwright_model::watch::STEPS;

const NAME: &str = "glm-dsa-tp8-kq";

/// What is done wrong.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// A bit of a tensor's bytes is flipped on the way to the device.
    Upload(&'static str),
    /// A row of a tensor is laid where another belongs.
    Astray(&'static str),
    /// Two tensors lie in each other's place.
    Exchanged([&'static str; 2]),
    /// A recording is empty: this one of those that are made.
    Dead(usize),
    /// The sums of recordings read a buffer that nobody writes any more.
    Stale,
    /// What sum number `.0`, of those launched, brings to rank `.1` is changed.
    Sum(usize, usize, fn(&mut [f32])),
    /// The same for every sum and all ranks alike.
    Sums(usize, fn(&mut [f32])),
}

/// The emulator with a fault.
struct Faulty {
    inner: Emulator,
    fault: Fault,
    stems: HashMap<usize, &'static str>,
    /// Addresses by the first bytes that went there, as the file has them.
    uploaded: Vec<(u64, Vec<u8>)>,
    sums: usize,
    recordings: usize,
    width: usize,
}

/// The bytes of a tensor of the model's file, and of a row of it as it lies on a device.
fn bytes(name: &str) -> (Vec<u8>, impl Fn(&[u8]) -> Vec<u8>) {
    let reader = Reader::open(&files(NAME)[0]).unwrap();
    let tensor = reader.tensor(name).unwrap();
    let (quant, row) = (tensor.quant, tensor.quant.row_bytes(tensor.ne[0] as usize).unwrap());
    let laid = move |bytes: &[u8]| {
        let mut laid = vec![];
        bytes.chunks(row).for_each(|row| lay(quant, row, &mut laid));
        laid
    };
    (reader.bytes(tensor).to_vec(), laid)
}

impl Faulty {
    fn of(model: &str, fault: Fault) -> Option<Faulty> {
        let width = open(&files(model)[0], over(1)).limits().width;
        let inner = Emulator::new()?;
        Some(Faulty { inner, fault, stems: HashMap::new(), uploaded: vec![], sums: 0, recordings: 0, width })
    }

    fn place(&self, name: &str) -> u64 {
        let (bytes, _) = bytes(name);
        self.uploaded.iter().find(|(_, first)| bytes.starts_with(first)).unwrap().0
    }

    fn exchange(&mut self, names: [&str; 2]) {
        let n = names.map(|name| bytes(name).0.len()).into_iter().min().unwrap();
        let places = names.map(|name| self.place(name));
        let held = places.map(|place| {
            let mut held = vec![0; n];
            self.inner.download(place, &mut held).unwrap();
            held
        });
        self.inner.upload(places[0], &held[1]).unwrap();
        self.inner.upload(places[1], &held[0]).unwrap();
    }

    /// The addresses in a list on the device.
    fn list(&mut self, at: u64, n: usize) -> Vec<u64> {
        let mut bytes = vec![0; 8 * n];
        self.inner.download(at, &mut bytes).unwrap();
        bytes.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().unwrap())).collect()
    }

    fn change(&mut self, at: u64, change: fn(&mut [f32])) {
        let mut bytes = vec![0; 4 * self.width];
        self.inner.download(at, &mut bytes).unwrap();
        let mut row: Vec<f32> =
            bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        change(&mut row);
        let bytes: Vec<u8> = row.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.inner.upload(at, &bytes).unwrap();
    }
}

impl Device for Faulty {
    as_inner!();

    fn alloc(&mut self, bytes: usize) -> Result<u64> {
        self.inner.alloc(bytes)
    }

    fn upload(&mut self, to: u64, data: &[u8]) -> Result<()> {
        let mut data = data.to_vec();
        if data.len() > 64 {
            self.uploaded.push((to, data[..64].to_vec()));
        }
        if let Fault::Upload(name) = self.fault
            && data == bytes(name).0
        {
            data[1000] ^= 4;
        }
        self.inner.upload(to, &data)
    }

    fn repeat(&mut self, to: u64, pattern: &[u8], bytes: usize) -> Result<()> {
        self.inner.repeat(to, pattern, bytes)
    }

    fn download(&mut self, from: u64, out: &mut [u8]) -> Result<()> {
        self.inner.download(from, out)
    }

    fn load(&mut self, units: &[Unit]) -> Result<Vec<Kernel>> {
        if let Fault::Exchanged(names) = self.fault
            && units.iter().any(|unit| unit.stem == "held")
        {
            self.exchange(names);
        }
        let kernels = self.inner.load(units)?;
        self.stems.extend(kernels.iter().zip(units).map(|(k, u)| (k.0, u.stem)));
        Ok(kernels)
    }

    fn launch(&mut self, launch: &Launch) -> Result<()> {
        let mut launch = launch.clone();
        if self.stems.get(&launch.kernel.0) == Some(&"lay") {
            // what was sent last is laid where it belongs
            let (at, first) = self.uploaded.pop().unwrap();
            assert_eq!(at, launch.args[0]);
            self.uploaded.push((launch.args[3], first.clone()));
            if let Fault::Astray(name) = self.fault
                && bytes(name).0.starts_with(&first)
            {
                let row = launch.args[1] - at;
                launch.args[2] -= row;
                launch.args[3] += row;
            }
        }
        self.inner.launch(&launch)?;
        if self.stems.get(&launch.kernel.0) == Some(&"sum") {
            self.sums += 1;
            match self.fault {
                Fault::Sum(n, rank, change) if n == self.sums => {
                    let outs = self.list(launch.args[2], rank + 1);
                    self.change(outs[rank], change);
                }
                Fault::Sums(ranks, change) => {
                    let outs = self.list(launch.args[2], ranks);
                    outs.into_iter().for_each(|out| self.change(out, change));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn record(&mut self, launches: &[Launch]) -> Result<Recording> {
        let mut launches = launches.to_vec();
        match self.fault {
            Fault::Dead(n) if n == self.recordings => launches.clear(),
            Fault::Stale => {
                let stale = self.inner.alloc(1 << 20)?;
                for launch in launches.iter_mut().filter(|l| self.stems[&l.kernel.0] == "sum") {
                    let parts = self.inner.alloc(16)?;
                    self.inner.upload(parts, &[stale, stale].map(u64::to_le_bytes).concat())?;
                    launch.args[1] = parts;
                }
            }
            _ => {}
        }
        self.recordings += 1;
        self.inner.record(&launches)
    }

    fn replay(&mut self, recording: Recording) -> Result<()> {
        self.inner.replay(recording)
    }
}

/// Over two ranks, its steps launched kernel by kernel unless some are to be recorded.
fn opened(fault: Fault, recorded: Vec<u32>) -> Option<Result<CudaExecutor>> {
    let device = Box::new(Faulty::of(NAME, fault)?);
    Some(tried(device, &files(NAME)[0], 2, &CudaOptions { recorded, ..exact() }))
}

/// An executor that must not come to be, and why.
fn refused(fault: Fault, recorded: Vec<u32>, named: &[&str]) {
    let Some(made) = opened(fault, recorded) else { return };
    let why = made.expect_err("the fault was not found").to_string();
    assert!(named.iter().all(|part| why.contains(part)) && !why.contains('\n'), "{fault:?}: {why}");
}

/// Where a bit lies that is flipped at byte 1000 of a tensor.
fn flipped(name: &str) -> String {
    let (bytes, laid) = bytes(name);
    let mut other = bytes.clone();
    other[1000] ^= 4;
    let at = laid(&bytes).iter().zip(laid(&other)).position(|(a, b)| *a != b).unwrap();
    format!("bytes {at}..{} of its {} differ", at + 1, bytes.len())
}

#[test]
fn a_bit_that_flips_on_its_way_to_a_card_is_named_at_the_load() {
    let mut moved = 0;
    for name in ["blk.1.attn_q_a.weight", "blk.1.attn_kv_a_mqa.weight"] {
        let (tensor, bytes) = (format!("`{name}` on rank 0"), flipped(name));
        moved += usize::from(!bytes.starts_with("bytes 1000"));
        refused(Fault::Upload(name), vec![], &[&tensor, &bytes]);
    }
    assert!(moved > 0, "none of these lies in planes");
}

/// The kernel that lays rows and the one that checks them do not share what they could both get wrong.
#[test]
fn a_row_that_is_laid_astray_is_named_at_the_load() {
    let name = "blk.1.attn_q_a.weight";
    refused(Fault::Astray(name), vec![], &["`blk.1.attn_q_a.weight` on rank 0", "bytes 0.."]);
}

#[test]
fn slots_that_changed_places_are_named_at_the_load() {
    let names = ["blk.0.attn_q_a.weight", "blk.0.attn_kv_a_mqa.weight"];
    refused(
        Fault::Exchanged(names),
        vec![],
        &["`blk.0.attn_q_a.weight` on rank 0", "is not what the file has"],
    );
}

#[test]
fn a_recording_that_is_not_the_step_is_found_at_the_start() {
    // the first is of the short tier, the second of the long one
    for fault in [Fault::Dead(0), Fault::Dead(1), Fault::Stale] {
        refused(fault, vec![2], &["the recorded step of 2 rows gives other bits"]);
    }
}

fn step(exec: &mut CudaExecutor) -> std::result::Result<StepOutput, ExecError> {
    exec.step(&step_of(&[(&[5], 0, &TABLE)], Want::Logits))
}

/// A flipped bit at the receiver, one at the sender on its way out (what the other rank gets is wrong, and what the sender adds is not),
/// a sum that never came (its place is as it was), one that was added twice.
#[test]
fn a_sum_that_is_wrong_on_one_rank_ends_the_service() {
    let flipped: fn(&mut [f32]) = |x| x[3] = f32::from_bits(x[3].to_bits() ^ 1 << 20);
    let skipped: fn(&mut [f32]) = |x| x.fill(0.0);
    let doubled: fn(&mut [f32]) = |x| x.iter_mut().for_each(|v| *v *= 2.0);
    // two sums a layer
    for (sum, rank, change, value) in [
        (1, 1, flipped, "in layer 0 `blk.0.ffn_inp` of rank 1"),
        (1, 0, flipped, "in layer 0 `blk.0.ffn_inp` of rank 1"),
        (4, 1, skipped, "in layer 1 `blk.1.l_out` of rank 1"),
        (3, 1, doubled, "in layer 1 `blk.1.ffn_inp` of rank 1"),
    ] {
        let Some(made) = opened(Fault::Sum(sum, rank, change), vec![]) else { return };
        let mut exec = made.unwrap();
        let why = step(&mut exec).expect_err("named in the step that it spoils");
        assert!(why.0.contains(value), "{why}");
        assert_eq!(step(&mut exec).unwrap_err(), why, "nothing is answered any more");
    }
}

/// After the first steps ranks are compared only where that was asked for.
#[test]
fn the_first_steps_are_compared_and_all_where_it_is_asked_for() {
    let flipped: fn(&mut [f32]) = |x| x[3] = f32::from_bits(x[3].to_bits() ^ 1 << 20);
    let sums = described(&Reader::open(&files("llama-f32")[0]).unwrap(), PLAIN.options).0.sums();
    let found_in = |step_of_fault: usize, check: bool| -> Option<bool> {
        let device = Faulty::of("llama-f32", Fault::Sum((step_of_fault - 1) * sums + 1, 1, flipped))?;
        let options = CudaOptions { recorded: vec![], ranks: Ranks { check, ..Ranks::default() }, ..exact() };
        let mut exec = tried(Box::new(device), &files("llama-f32")[0], 2, &options).unwrap();
        let done = (0..STEPS as usize + 2).take_while(|_| step(&mut exec).is_ok()).count();
        assert!(done + 1 == step_of_fault || done == STEPS as usize + 2, "{done}");
        Some(done + 1 == step_of_fault)
    };
    let last = STEPS as usize;
    for (at, check, found) in [(last, false, true), (last + 1, false, false), (last + 1, true, true)] {
        let Some(was) = found_in(at, check) else { return };
        assert_eq!(was, found, "step {at}, asked for: {check}");
    }
}

/// No comparison of ranks can see this, but one of values with another execution does: that is `verify`.
#[test]
fn sums_that_are_wrong_on_all_ranks_alike_differ_from_the_reference() {
    let doubled: fn(&mut [f32]) = |x| x.iter_mut().for_each(|v| *v *= 2.0);
    let Some(made) = opened(Fault::Sums(2, doubled), vec![]) else { return };
    let mut exec = made.unwrap();
    step(&mut exec).expect("the ranks agree");
    let batch = step_of(&[(&[5], 0, &TABLE)], Want::Logits);
    let (mut ours, mut theirs) = (Taps::default(), Taps::default());
    exec.step_probed(&batch, Some(&mut ours)).unwrap();
    open(&files(NAME)[0], over(1)).step_probed(&batch, Some(&mut theirs)).unwrap();
    let off = |path: &str| {
        let pairs = ours.row(path, 0).iter().zip(theirs.row(path, 0));
        pairs.map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max)
    };
    assert!(off("blk.0.attn_norm") < 1e-4 && off("blk.0.attn_out") > 1e-3);
}

#[test]
fn kernels_hash_as_the_host_does() {
    let Some(mut device) = Emulator::new() else { return };
    let kernel = device.load(&[Unit::new("hash").int("WIDTH", 1)]).unwrap()[0];
    for (bytes, blocks) in [(4, 1), (4096, 1), (4100, 3), (100_001, 5)] {
        let data: Vec<u8> = (0..bytes as u32).map(|i| (i.wrapping_mul(i) ^ i >> 7) as u8).collect();
        let [words, count, out] = [bytes + 64, 4, 8].map(|n| device.alloc(n).unwrap());
        device.upload(words, &data).unwrap();
        device.upload(count, &(bytes.div_ceil(4) as u32).to_le_bytes()).unwrap();
        let args = vec![count, words, out];
        device.launch(&Launch { kernel, grid: [blocks, 1, 1], block: 256, shared: 0, args }).unwrap();
        let mut found = [0; 8];
        device.download(out, &mut found).unwrap();
        let mut hash = Hash::default();
        hash.add(&data);
        assert_eq!(u64::from_le_bytes(found), hash.finish(), "{bytes} bytes");
    }
}
