//! What an executor takes of a device is known beforehand, and once it runs it takes nothing more, neither there nor here. The
//! device is a blank: it keeps account and computes nothing.
#![allow(unsafe_code, clippy::unwrap_used, reason = "a test may panic, and an allocator is unsafe")]

mod blank;
#[path = "../../cpu/tests/common/mod.rs"]
mod common;
mod models;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use blank::{Blank, Taken};
use common::*;
use models::fast;
use shardwright_cuda::device::Device;
use shardwright_cuda::unit::Unit;
use shardwright_cuda::{CudaExecutor, CudaOptions, Error, Needs};
use shardwright_gguf::Reader;
use shardwright_model::exec::{Executor, StepBatch, Want};
use shardwright_model::plan::plan;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which counts what each thread asks for.
struct Counting;

// SAFETY: all is left to the system.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What an executor was said to take of a device.
type Told = (Needs, BTreeSet<Unit>);

/// A model over ranks on so many blank devices, what each has taken, and what it was said to need.
fn opened(name: &str, ranks: usize, devices: usize) -> (CudaExecutor, Vec<Taken>, Vec<Told>) {
    let file = Arc::new(Reader::open(&files(name)[0]).unwrap());
    let trunk = described(&file, PLAIN.options).0;
    let plans = plan(&trunk, &|n| file.tensor(n), ranks).unwrap();
    let options =
        CudaOptions { dummy: true, tiles: vec![1, 2, 3, 4, 8, 64], recorded: vec![1, 2, 12], ..fast() };
    let needs = plans.chunks(ranks / devices).map(|plans| Needs::of(plans, &options).unwrap()).collect();
    let taken: Vec<Taken> = (0..devices).map(|_| Taken::default()).collect();
    let blank = |taken: &Taken| Box::new(Blank::new(taken.clone())) as Box<dyn Device>;
    let devices = taken.iter().map(blank).collect();
    let exec = CudaExecutor::new(devices, &file, (&trunk, plans), None, &options, &mut |_| {}).unwrap();
    (exec, taken, needs)
}

const CASES: [(&str, usize, usize); 6] = [
    ("glm-dsa-tp8-kq", 1, 1),
    ("glm-dsa-tp8-kq", 4, 1),
    ("glm-dsa-tp8-kq", 4, 4),
    ("deepseek2-v3-f32", 1, 1),
    ("llama-f32", 2, 2),
    ("qwen3-bf16", 1, 1),
];

#[test]
fn c4_what_is_taken_was_told() {
    for (name, ranks, devices) in CASES {
        let (_exec, taken, needs) = opened(name, ranks, devices);
        for (taken, (needs, kernels)) in taken.iter().zip(&needs) {
            let loaded = taken.kernels.lock().unwrap();
            assert!(loaded.is_subset(kernels) && !loaded.is_empty(), "{name}: kernels that nobody knew of");
            let [memory, inboxes] = &*taken.bytes.lock().unwrap();
            let sum: u64 = memory.iter().map(|bytes| bytes.max(&1).next_multiple_of(256)).sum();
            let told = needs.held();
            println!("{name} over {ranks} on {devices}: {sum} taken, {told} told, {needs:?}");
            assert!(sum <= told && told - sum <= 16 << 10, "{name}: {sum} taken, {told} told");
            assert_eq!(inboxes.iter().sum::<u64>(), needs.inbox, "{name}");
            assert!(needs.driver > 64 << 20, "recordings are left out");
        }
    }
}

/// Also of weights that are not made up: where they are laid, and what they are checked with.
#[test]
fn c4_what_loading_takes_was_told() {
    for (name, ranks) in [("glm-dsa-tp8-kq", 1), ("glm-dsa-tp8-kq", 4), ("llama-f32", 2)] {
        let file = Arc::new(Reader::open(&files(name)[0]).unwrap());
        let trunk = described(&file, PLAIN.options).0;
        let plans = plan(&trunk, &|n| file.tensor(n), ranks).unwrap();
        let (needs, kernels) = Needs::of(&plans, &fast()).unwrap();
        let dummy = Needs::of(&plans, &CudaOptions { dummy: true, ..fast() }).unwrap().0;
        let taken = Taken::default();
        let device: Vec<Box<dyn Device>> = vec![Box::new(Blank::new(taken.clone()))];
        let made = CudaExecutor::new(device, &file, (&trunk, plans), None, &fast(), &mut |_| {});
        // a blank has no hashes to show: everything is there by then but what steps take
        assert!(matches!(made, Err(Error::Slot { .. })), "{made:?}");
        let sum: u64 =
            taken.bytes.lock().unwrap()[0].iter().map(|bytes| bytes.max(&1).next_multiple_of(256)).sum();
        let (told, staging) = (needs.held(), needs.working - dummy.working);
        println!("{name} over {ranks}: {sum} taken, {told} told, {staging} of it for loading");
        assert!(sum <= told && told - sum <= 16 << 10, "{name}: {sum} taken, {told} told");
        assert!(taken.kernels.lock().unwrap().is_subset(&kernels), "{name}: kernels that nobody knew of");
    }
}

/// Kernels that are shipped serve every context that is long enough for all of them.
#[test]
fn kernels_do_not_know_the_context() {
    let file = Arc::new(Reader::open(&files("glm-dsa-tp8-kq")[0]).unwrap());
    let trunk = described(&file, PLAIN.options).0;
    let plans = plan(&trunk, &|n| file.tensor(n), 4).unwrap();
    for plans in [&plans[..], &plans[..1]] {
        let of = |context| Needs::of(plans, &CudaOptions { context, ..fast() }).unwrap().1;
        assert!(of(8192) == of(10_000) && of(8192) == of(200_000));
    }
}

fn batches() -> Vec<StepBatch> {
    // replayed, and launched one by one; with and without answers
    let rows = [
        (1, Want::Candidates),
        (2, Want::Nothing),
        (5, Want::Nothing),
        (5, Want::Candidates),
        (20, Want::Nothing),
    ];
    rows.map(|(rows, want)| step_of(&[(&[1, 2, 3, 4, 5].repeat(4)[..rows], 0, &TABLE)], want)).to_vec()
}

#[test]
fn c4_nothing_is_taken_once_it_runs() {
    for (name, ranks, devices) in CASES {
        let (mut exec, taken, _) = opened(name, ranks, devices);
        let count = || {
            taken.iter().map(|t| t.bytes.lock().unwrap().iter().map(Vec::len).sum::<usize>()).sum::<usize>()
        };
        let before = count();
        // also the steps in which ranks are compared, and those after them
        for batch in batches().iter().cycle().take(120) {
            exec.step(batch).unwrap();
        }
        assert_eq!(count(), before, "{name} over {ranks} on {devices}");
    }
}

/// Of the host's memory a step takes what it answers with, however long the model.
#[test]
fn a_step_allocates_its_answer() {
    for (name, ..) in CASES.iter().filter(|case| case.1 == 1) {
        let (mut exec, ..) = opened(name, 1, 1);
        let all = batches();
        all.iter().for_each(|batch| drop(exec.step(batch).unwrap()));
        for batch in &all {
            let before = ALLOCATIONS.get();
            let answer = exec.step(batch).unwrap();
            let count = ALLOCATIONS.get() - before;
            let answers = batch.wants.iter().filter(|want| **want != Want::Nothing).count();
            println!("{name}: {count} allocations in a step of {} rows, {answers} answers", batch.rows());
            // the rows; their ids and logits, as they are merged and as they are handed out
            assert!(count <= 2 + 4 * answers, "{name}: {count} for {answers} answers");
            drop(answer);
        }
    }
}
