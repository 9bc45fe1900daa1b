//! Case C4 on a real GPU, alone in its process, as all ask the same driver: it takes what was told, and nothing more once it runs.
//! Skipped where there is no GPU, unless `SHARDWRIGHT_REQUIRE_GPU` is set.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../cpu/tests/common/mod.rs"]
mod common;
mod models;

use std::sync::Arc;

use common::*;
use models::fast;
use shardwright_cuda::device::Device;
use shardwright_cuda::driver::Gpu;
use shardwright_cuda::jit::{Folders, Jit};
use shardwright_cuda::nvrtc::Nvrtc;
use shardwright_cuda::{CudaExecutor, CudaOptions, Needs};
use shardwright_gguf::Reader;
use shardwright_model::exec::{Executor, Want};
use shardwright_model::plan::plan;

#[test]
fn c4_a_gpu_takes_what_was_told() {
    if let Err(why) = Gpu::list() {
        assert!(std::env::var_os("SHARDWRIGHT_REQUIRE_GPU").is_none(), "{why}");
        eprintln!("SKIPPED: {why}");
        return;
    }
    let jit = Arc::new(Jit::new(Nvrtc::find, Folders::find(), |_, _| {}));
    let [mut gpu, eye] = [0; 2].map(|index| Gpu::open(index, jit.clone()).unwrap());
    let file = Arc::new(Reader::open(&files("glm-dsa-tp8-kq")[0]).unwrap());
    let trunk = described(&file, PLAIN.options).0;
    let plans = plan(&trunk, &|n| file.tensor(n), 4).unwrap();
    let recorded = vec![1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
    let options = CudaOptions { tiles: vec![1, 4, 8], recorded, ..fast() };
    let (needs, kernels) = Needs::of(&plans, &options).unwrap();
    gpu.load(&kernels.into_iter().collect::<Vec<_>>()).unwrap();
    let before = eye.free_memory().unwrap();
    gpu.reserve(needs.held()).unwrap();
    let devices: Vec<Box<dyn Device>> = vec![Box::new(gpu)];
    let mut exec = CudaExecutor::new(devices, &file, (&trunk, plans), None, &options, &mut |_| {}).unwrap();
    let started = eye.free_memory().unwrap();
    println!(
        "{} taken, of it {} beyond what is held; {needs:?}",
        before - started,
        before - started - needs.held()
    );
    assert!(before - started <= needs.total(), "{} taken, {} told", before - started, needs.total());
    for rows in [1, 2, 5, 64, 100, 256] {
        let ids: Vec<u32> = (0..rows).map(|i| i % 64).collect();
        exec.step(&step_of(&[(&ids, 0, &TABLE)], Want::Logits)).unwrap();
    }
    let after = eye.free_memory().unwrap();
    assert!(started - after <= 2 << 20, "{} taken by steps", started - after);
}
