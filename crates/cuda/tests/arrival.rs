//! What comes to a device is what the file has, to the byte, in whatever order and however late pieces arrive; what can't be read is named.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod blank;
#[path = "../../cpu/tests/common/mod.rs"]
mod common;
mod emulator;
mod models;

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex};

use blank::{Blank, Taken};
use common::{PLAIN, described, files, goldens, legal};
use emulator::{Emulator, as_inner};
use models::fast;
use shardwright_cuda::device::{Device, Kernel, Launch, Piece, Recording};
use shardwright_cuda::planes::lay;
use shardwright_cuda::unit::Unit;
use shardwright_cuda::{CudaExecutor, CudaOptions, Error, Result};
use shardwright_gguf::{QuantType, Reader};
use shardwright_model::hyper::Options;
use shardwright_model::plan::{LocalWeight, RankPlan, plan};
use shardwright_model::presets::{Header, Preset, Recipe};
use shardwright_model::synth::{self, Layout};

/// What a device has seen of a load.
#[derive(Default)]
struct Seen {
    /// What lies in each piece of memory once all weights have come.
    memory: Vec<Vec<u8>>,
    lent: usize,
    returned: usize,
}

/// Brings weights and checks them, on the emulator, and does nothing else. Copies are done as late as their order allows.
struct Late {
    inner: Emulator,
    taken: Vec<(u64, usize)>,
    under_way: VecDeque<(u64, Piece, usize)>,
    arrived: VecDeque<Piece>,
    kernels: HashMap<usize, Kernel>,
    others: usize,
    seen: Arc<Mutex<Seen>>,
}

impl Late {
    fn new(seen: &Arc<Mutex<Seen>>) -> Option<Late> {
        let inner = Emulator::new()?;
        let (under_way, arrived) = (VecDeque::new(), VecDeque::new());
        let seen = Arc::clone(seen);
        Some(Late { inner, taken: vec![], under_way, arrived, kernels: HashMap::new(), others: 0, seen })
    }

    fn arrive(&mut self) {
        if let Some((to, piece, bytes)) = self.under_way.pop_front() {
            self.inner.upload(to, &piece[..bytes]).unwrap();
            self.arrived.push_back(piece);
        }
    }

    fn all_arrive(&mut self) {
        (0..self.under_way.len()).for_each(|_| self.arrive());
    }
}

impl Device for Late {
    as_inner!();

    fn alloc(&mut self, bytes: usize) -> Result<u64> {
        let address = self.inner.alloc(bytes)?;
        self.taken.push((address, bytes));
        Ok(address)
    }

    fn upload(&mut self, to: u64, data: &[u8]) -> Result<()> {
        self.all_arrive();
        self.inner.upload(to, data)
    }

    fn lend(&mut self, bytes: usize) -> Result<Piece> {
        self.seen.lock().unwrap().lent += bytes;
        // what is left of an earlier use
        Ok(Box::new(vec![0xa5; bytes]))
    }

    fn send(&mut self, to: u64, piece: Piece, bytes: usize) -> Result<Option<Piece>> {
        self.under_way.push_back((to, piece, bytes));
        Ok(None)
    }

    fn sent(&mut self) -> Result<Option<Piece>> {
        if self.arrived.is_empty() {
            self.arrive();
        }
        let piece = self.arrived.pop_front().map(|mut piece| {
            piece.fill(0x5a);
            piece
        });
        self.seen.lock().unwrap().returned += usize::from(piece.is_some());
        Ok(piece)
    }

    fn repeat(&mut self, to: u64, pattern: &[u8], bytes: usize) -> Result<()> {
        self.inner.repeat(to, pattern, bytes)
    }

    fn download(&mut self, from: u64, out: &mut [u8]) -> Result<()> {
        self.all_arrive();
        self.inner.download(from, out)
    }

    fn load(&mut self, units: &[Unit]) -> Result<Vec<Kernel>> {
        if units.iter().any(|unit| unit.stem == "held") {
            assert!(self.under_way.is_empty() && self.arrived.is_empty(), "pieces are still under way");
            let mut memory = vec![];
            for (address, bytes) in &self.taken {
                memory.push(vec![0; *bytes]);
                self.inner.download(*address, memory.last_mut().unwrap())?;
            }
            self.seen.lock().unwrap().memory = memory;
        }
        let mut kernel = |unit: &Unit| {
            self.others += 1;
            if ["lay", "held"].contains(&unit.stem) {
                self.kernels.insert(self.others, self.inner.load(std::slice::from_ref(unit))?[0]);
            }
            Ok(Kernel(self.others))
        };
        units.iter().map(&mut kernel).collect()
    }

    fn launch(&mut self, launch: &Launch) -> Result<()> {
        self.all_arrive();
        match self.kernels.get(&launch.kernel.0) {
            Some(kernel) => self.inner.launch(&Launch { kernel: *kernel, ..launch.clone() }),
            None => Ok(()),
        }
    }

    fn record(&mut self, _: &[Launch]) -> Result<Recording> {
        Ok(Recording(0))
    }

    fn replay(&mut self, _: Recording) -> Result<()> {
        Ok(())
    }
}

/// A weight as a device should have it.
fn expected(file: &Reader, w: &LocalWeight, decoded: bool) -> Vec<u8> {
    let whole = file.bytes(file.tensor(&w.name).unwrap());
    let (mut all, mut numbers) = (vec![], vec![0f32; w.cols.len()]);
    for (copy, row) in (0..w.copies.len()).flat_map(|copy| (0..w.rows.len()).map(move |row| (copy, row))) {
        let at = w.row(copy, row);
        let row = &whole[(at.start - w.offset) as usize..(at.end - w.offset) as usize];
        if decoded {
            w.quant.decode(row, &mut numbers);
            all.extend(numbers.iter().flat_map(|v| v.to_le_bytes()));
        } else {
            lay(w.quant, row, &mut all);
        }
    }
    all
}

/// Loads all ranks on one device, and looks at each byte. False where there is no emulator.
fn comes_as_it_is(path: &Path, ranks: usize, options: &CudaOptions) -> bool {
    let file = Arc::new(Reader::open(path).unwrap());
    let trunk = described(&file, PLAIN.options).0;
    let plans: Vec<RankPlan> = plan(&trunk, &|n| file.tensor(n), ranks).unwrap();
    let seen = Arc::default();
    let Some(device) = Late::new(&seen) else { return false };
    let devices: Vec<Box<dyn Device>> = vec![Box::new(device)];
    let mut told = 0;
    let made = CudaExecutor::new(devices, &file, (&trunk, plans.clone()), None, options, &mut |n| told += n);
    let what = format!("{} over {ranks}", path.display());
    // steps do nothing on this device
    assert!(!matches!(made, Err(Error::Slot { .. } | Error::Weight { .. })), "{what}: {made:?}");
    let (seen, mut bytes) = (seen.lock().unwrap(), 0);
    let mut held: HashMap<usize, Vec<&Vec<u8>>> = HashMap::new();
    seen.memory.iter().for_each(|memory| held.entry(memory.len()).or_default().push(memory));
    for (op, i) in
        plans.iter().flat_map(|p| &p.ops).flat_map(|op| (0..op.weights.len()).map(move |i| (op, i)))
    {
        let want = expected(&file, &op.weights[i], op.is_vector(i));
        let slots = held.get(&(want.len() + 64)).map_or(&[][..], |slots| slots);
        assert!(slots.iter().any(|slot| slot.starts_with(&want)), "{what}: `{}`", op.weights[i].name);
        bytes += want.len();
    }
    assert!(told > 0 && told <= bytes as u64, "{what}: {told} told of {bytes}");
    assert!(seen.returned > 0 && seen.lent <= 256 << 20, "{what}: {} lent", seen.lent);
    true
}

/// A small model of one layer, all its matrices of a type: `vocab` tokens.
fn model(vocab: &str, quant: QuantType) -> Header {
    let mut preset = Preset::find("llama-3-8b").unwrap();
    preset.set_layers(1).unwrap();
    let sizes = [
        ("embedding_length", "768"),
        ("feed_forward_length", "768"),
        ("vocab_size", vocab),
        ("rope.dimension_count", "256"),
        ("attention.head_count", "3"),
        ("attention.head_count_kv", "3"),
    ];
    for (key, value) in sizes {
        preset.set(key, value).unwrap();
    }
    let mut header = preset.header(Recipe::find("f32").unwrap(), Options::default()).unwrap();
    let matrices: Vec<String> =
        header.tensors().iter().filter(|t| t.dims().len() > 1).map(|t| t.name.clone()).collect();
    assert!(matrices.iter().all(|name| header.retype(name, quant).unwrap() > 0));
    header
}

#[test]
fn every_type_comes_as_the_file_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small.gguf");
    for quant in QuantType::ALL.iter().copied().filter(|q| q.is_weight()) {
        synth::random(&model("600", quant), &path, 1, &Layout::default(), &mut |_| {}).unwrap();
        for ranks in [1, 2, 3] {
            if !comes_as_it_is(&path, ranks, &fast()) {
                return;
            }
        }
    }
    // several pieces a weight
    for quant in [QuantType::F32, QuantType::Q8_0] {
        synth::random(&model("12000", quant), &path, 1, &Layout::default(), &mut |_| {}).unwrap();
        comes_as_it_is(&path, 1, &fast());
    }
}

#[test]
fn models_come_as_their_files_have_them() {
    for (name, _) in goldens() {
        let path = &files(&name)[0];
        for ranks in legal(path).into_iter().filter(|n| *n <= 4) {
            if !comes_as_it_is(path, ranks, &fast()) {
                return;
            }
        }
    }
}

/// A disk that is gone looks the same.
#[test]
fn a_file_that_ends_early_is_named_with_the_tensor() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("short.gguf");
    synth::random(&model("12000", QuantType::Q8_0), &path, 1, &Layout::default(), &mut |_| {}).unwrap();
    let file = Arc::new(Reader::open(&path).unwrap());
    let trunk = described(&file, PLAIN.options).0;
    let plans = plan(&trunk, &|n| file.tensor(n), 1).unwrap();
    let last = file.tensors().iter().max_by_key(|t| t.offset).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(last.offset + last.bytes / 2).unwrap();
    let devices: Vec<Box<dyn Device>> = vec![Box::new(Blank::new(Taken::default()))];
    let made = CudaExecutor::new(devices, &file, (&trunk, plans), None, &fast(), &mut |_| {});
    let why = made.unwrap_err().to_string();
    println!("{why}");
    assert!(why.contains(&format!("`{}`", last.name)) && why.contains("short.gguf"), "{why}");
    assert_eq!(why.lines().count(), 1, "{why}");
}
