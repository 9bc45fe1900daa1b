//! On a real GPU: goldens, recorded steps against launched ones, bit for bit. Skipped where there is none, unless
//! `SHARDWRIGHT_REQUIRE_GPU` is set.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../cpu/tests/common/mod.rs"]
mod common;
mod models;

use std::sync::{Arc, LazyLock};

use common::*;
use models::{exact, fast, on, open, steps};
use shardwright_cuda::device::{Device, Launch};
use shardwright_cuda::driver::{Gpu, Nccl, Way};
use shardwright_cuda::jit::{Folders, Jit};
use shardwright_cuda::nvrtc::Nvrtc;
use shardwright_cuda::unit::Unit;
use shardwright_cuda::{CudaExecutor, CudaOptions, library};
use shardwright_gguf::Reader;
use shardwright_model::exec::{Executor, Ranks, RowOutput, Want, Wire};
use shardwright_model::plan::plan;

static JIT: LazyLock<Option<Arc<Jit>>> = LazyLock::new(|| {
    let made = Gpu::list();
    match made {
        Ok(_) => Some(Arc::new(Jit::new(Nvrtc::find, Folders::find(), |_, _| {}))),
        Err(e) => {
            assert!(std::env::var_os("SHARDWRIGHT_REQUIRE_GPU").is_none(), "{e}");
            eprintln!("SKIPPED: no GPU was used: {e}");
            None
        }
    }
});

fn on_gpu(name: &str, ranks: usize, options: &CudaOptions) -> Option<CudaExecutor> {
    let gpu: Box<dyn Device> = Box::new(Gpu::open(0, JIT.clone()?).unwrap());
    Some(open(gpu, &files(name)[0], ranks, options))
}

#[test]
fn gpu_logits_are_those_of_the_reference() {
    for (name, gold) in goldens() {
        for tiles in [vec![8], vec![1]] {
            let Some(mut exec) = on_gpu(&name, 1, &CudaOptions { tiles, ..exact() }) else { return };
            check_logits(&name, &gold, "logits", &mut exec, &name);
        }
    }
}

#[test]
fn gpu_ranks_give_the_same_logits() {
    for (name, gold) in goldens() {
        for ranks in legal(&files(&name)[0]).into_iter().filter(|n| *n > 1 && *n <= 8) {
            let Some(mut exec) = on_gpu(&name, ranks, &exact()) else { return };
            check_logits(&name, &gold, "logits", &mut exec, &format!("{name} over {ranks} ranks"));
        }
    }
}

/// With f32 the card's virtual ranks are the CPU's within class exact; with bf16 both are of class bf16.
#[test]
fn gpu_ranks_are_those_of_the_cpu() {
    for (name, gold) in goldens() {
        for ranks in legal(&files(&name)[0]).into_iter().filter(|n| [2, 3, 4, 6, 8].contains(n)) {
            for wire in [Wire::F32, Wire::Bf16] {
                let options = CudaOptions { ranks: Ranks { wire, check: true }, ..exact() };
                let Some(mut exec) = on_gpu(&name, ranks, &options) else { return };
                if wire == Wire::Bf16 {
                    check_class(&name, &gold, &mut exec, gold.prompts(), "bf16");
                    continue;
                }
                let mut cpu = common::open(&files(&name)[0], over(ranks));
                for p in 0..gold.prompts() {
                    let [ours, theirs] =
                        [&mut exec as &mut dyn Executor, &mut cpu].map(|e| forward(e, &gold.ids(p)));
                    let theirs: Vec<f64> = theirs.concat().into_iter().map(f64::from).collect();
                    let off = apart(&ours.concat(), &theirs);
                    assert!(off <= limit(&name), "{name} over {ranks} p{p}: {off}");
                }
            }
        }
    }
}

#[test]
fn gpu_activations_of_8_bits_are_as_good_as_the_class_allows() {
    for (name, gold) in goldens().into_iter().filter(|g| g.0.ends_with("-kq")) {
        let Some(mut exec) = on_gpu(&name, 1, &fast()) else { return };
        check_a8(&name, &gold, &mut exec, gold.prompts(), true);
    }
}

/// Prompts by tensor cores.
#[test]
fn gpu_many_rows_are_as_good_as_the_class_allows() {
    let many = CudaOptions { tiles: vec![1, 2, 3, 4, 8, 64], ..fast() };
    for (name, gold) in goldens().into_iter().filter(|g| g.0.ends_with("-kq")) {
        let Some(mut exec) = on_gpu(&name, 1, &many) else { return };
        check_a8(&name, &gold, &mut exec, gold.prompts(), true);
    }
}

#[test]
fn gpu_drafts_are_those_of_the_reference() {
    for (name, _) in goldens().into_iter().filter(|g| data().join(format!("golden/{}-mtp.npz", g.0)).exists())
    {
        let Some(mut exec) = on_gpu(&name, 1, &exact()) else { return };
        check_draft(&name, &mut exec);
    }
}

#[test]
fn gpu_greedy_tokens_are_those_of_the_reference() {
    for (name, gold) in goldens() {
        let Some(mut exec) = on_gpu(&name, 1, &exact()) else { return };
        check_greedy(&gold, &mut exec, &name);
    }
}

/// All tokens with summands of f32; with those of bf16 up to the first that rounding may choose.
#[test]
fn gpu_ranks_say_the_same_tokens() {
    let mut others = 0;
    for (name, gold) in goldens() {
        for ranks in legal(&files(&name)[0]).into_iter().filter(|n| [2, 3, 4, 6, 8].contains(n)) {
            let what = format!("{name} over {ranks} ranks");
            let wired =
                |wire| on_gpu(&name, ranks, &CudaOptions { ranks: Ranks { wire, check: true }, ..exact() });
            let Some(mut plain) = wired(Wire::F32) else { return };
            check_greedy(&gold, &mut plain, &what);
            let mut rounded = wired(Wire::Bf16).unwrap();
            others += check_bound_greedy(&name, &gold, &mut rounded, || wired(Wire::F32).unwrap(), &what);
        }
    }
    // as few as on the CPU
    assert!(others <= 2, "{others} continuations have other tokens where another choice was made");
}

fn bits(rows: &[RowOutput]) -> Vec<u32> {
    let logits = |r: &RowOutput| match r {
        RowOutput::Logits(l) => l.iter().map(|v| v.to_bits()).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    rows.iter().flat_map(logits).collect()
}

/// One and the same step, recorded and launched kernel by kernel, fused and not, in every tile, a thousand times.
#[test]
fn gpu_recorded_steps_have_the_bits_of_launched_ones() {
    for (name, gold) in goldens() {
        for options in [exact(), fast()] {
            let ids = gold.ids(1);
            let first: Vec<u32> = ids[..32].to_vec();
            let mut all: Option<Vec<u32>> = None;
            for (fuse, recorded, tile, times) in [
                (true, vec![1], 8, 1000),
                (true, vec![], 8, 3),
                (false, vec![], 8, 3),
                (true, vec![1], 1, 1000),
            ] {
                let options = CudaOptions { fuse, recorded, tiles: vec![tile], ..options.clone() };
                let Some(mut exec) = on_gpu(&name, 1, &options) else { return };
                exec.step(&step_of(&[(&first, 0, &TABLE)], Want::Nothing)).unwrap();
                let next = step_of(&[(&ids[32..33], 32, &TABLE)], Want::Logits);
                for n in 0..times {
                    let found = bits(&exec.step(&next).unwrap().rows);
                    let first = all.get_or_insert_with(|| found.clone());
                    let off = first.iter().zip(&found).filter(|(a, b)| a != b).count();
                    assert_eq!(off, 0, "{name}, step {n}: {options:?}");
                }
            }
        }
    }
}

/// How many GPUs there are, if several.
fn several() -> Option<usize> {
    let there = Gpu::list().unwrap().len();
    if there < 2 {
        eprintln!("SKIPPED: this takes two GPUs, and there is one");
    }
    (there > 1).then_some(there)
}

/// A rank on each of several GPUs, by their own memory and through the host's.
#[test]
fn gpu_devices_give_the_bits_of_virtual_ranks() {
    let Some(jit) = JIT.clone() else { return };
    let Some(there) = several() else { return };
    for (name, gold) in goldens() {
        let path = &files(&name)[0];
        for ranks in legal(path).into_iter().filter(|n| (2..=there).contains(n)) {
            for (wire, way) in [(Wire::F32, Way::Best), (Wire::Bf16, Way::Best), (Wire::Bf16, Way::Host)] {
                let options = CudaOptions { ranks: Ranks { wire, check: true }, ..fast() };
                let Some(mut shared) = on_gpu(&name, ranks, &options) else { return };
                let gpus = Gpu::group(&(0..ranks).collect::<Vec<_>>(), &jit, way).unwrap();
                let gpus = gpus.into_iter().map(|gpu| Box::new(gpu) as Box<dyn Device>).collect();
                let mut own = on(gpus, path, ranks, &options).unwrap();
                let what = format!("{name} over {ranks}, {wire:?}, {way:?}");
                assert!(steps(&mut own, &gold.ids(0)) == steps(&mut shared, &gold.ids(0)), "{what}");
                println!("{what}");
            }
        }
    }
}

/// NCCL, if it is there.
fn nccl() -> Option<Nccl> {
    match Nccl::find() {
        Ok(nccl) => {
            println!("{nccl}");
            Some(nccl)
        }
        Err(e) => {
            eprintln!("SKIPPED: {e}");
            None
        }
    }
}

/// One rank's sum by NCCL is what it adds: launched, and recorded between kernels of ours, that is what comes out, bit for bit.
#[test]
fn gpu_one_rank_s_sums_by_nccl_are_what_it_adds() {
    let (Some(jit), Some(nccl)) = (JIT.clone(), nccl()) else { return };
    let mut gpus = Gpu::group(&[0], &jit, Way::Best).unwrap();
    Gpu::join(&mut gpus, &nccl).unwrap();
    let mut gpu = gpus.pop().unwrap();
    let (width, rows) = (6144, 3);
    let copy = Unit::new("pointwise").int("MAX_ROWS", rows).int("WIDTH", width).int("WHAT", "COPY");
    let numbers: Vec<u32> = (0..width * rows).map(|k| 0x3f80_0000 + 7919 * k as u32).collect();
    for wire in [Wire::F32, Wire::Bf16] {
        let kernels = gpu.load(&[copy.clone(), Unit::all_reduce(width, wire)]).unwrap();
        let step = gpu.alloc(4 * 64).unwrap();
        gpu.upload(step, bytemuck::cast_slice(&[rows as u32; 4])).unwrap();
        let [from, between, summed, to] = [(); 4].map(|()| gpu.alloc(4 * width * rows).unwrap());
        gpu.upload(from, bytemuck::cast_slice(&numbers)).unwrap();
        let copied = |from, to| {
            let (args, grid) = (vec![step, from, 0, to], [width as u32 / 256, 1, rows as u32]);
            Launch { kernel: kernels[0], grid, block: 256, shared: 0, args }
        };
        // of bf16 twice as many numbers are as many bytes
        let count = if wire == Wire::F32 { rows } else { 2 * rows } as u32;
        let sum = Launch {
            kernel: kernels[1],
            grid: [1, 1, count],
            block: 1,
            shared: 0,
            args: vec![between, summed],
        };
        let all = [copied(from, between), sum, copied(summed, to)];
        let recording = gpu.record(&all).unwrap();
        let check = |gpu: &mut Gpu, what: &str| {
            let mut got = vec![0u32; numbers.len()];
            gpu.download(to, bytemuck::cast_slice_mut(&mut got)).unwrap();
            assert!(got == numbers, "{what}, {wire:?}");
            gpu.repeat(to, &[0], 4 * numbers.len()).unwrap();
            gpu.repeat(summed, &[0], 4 * numbers.len()).unwrap();
            gpu.repeat(between, &[0], 4 * numbers.len()).unwrap();
        };
        all.iter().for_each(|launch| gpu.launch(launch).unwrap());
        check(&mut gpu, "launched");
        for _ in 0..3 {
            gpu.replay(recording).unwrap();
            check(&mut gpu, "replayed");
        }
    }
    // given up, it does nothing more, and everything ends
    gpu.abort().unwrap()();
    std::thread::sleep(std::time::Duration::from_millis(200));
    let some = gpu.alloc(4).unwrap();
    let why = gpu.download(some, &mut [0; 4]).unwrap_err().to_string();
    assert!(why.contains("given up on rank 0"), "{why}");
}

/// A rank on each of several GPUs that sum by NCCL: of two, and f32, the bits of virtual ranks.
#[test]
fn gpu_devices_sum_by_nccl() {
    let (Some(jit), Some(nccl)) = (JIT.clone(), nccl()) else { return };
    let Some(there) = several() else { return };
    for (name, gold) in goldens() {
        let path = &files(&name)[0];
        for ranks in legal(path).into_iter().filter(|n| (2..=there).contains(n)) {
            for wire in [Wire::F32, Wire::Bf16] {
                let options =
                    CudaOptions { ranks: Ranks { wire, check: true }, nccl: true, rows: 64, ..exact() };
                let mut gpus = Gpu::group(&(0..ranks).collect::<Vec<_>>(), &jit, Way::Best).unwrap();
                Gpu::join(&mut gpus, &nccl).unwrap();
                let file = Reader::open(path).unwrap();
                let trunk = described(&file, PLAIN.options).0;
                let plans = plan(&trunk, &|n| file.tensor(n), ranks).unwrap();
                let mut devices: Vec<&mut dyn Device> = gpus.iter_mut().map(|gpu| gpu as _).collect();
                library::tried(&mut devices, &plans, &options, &mut |e| panic!("{e}")).unwrap();
                let gpus = gpus.into_iter().map(|gpu| Box::new(gpu) as Box<dyn Device>).collect();
                let mut own = on(gpus, path, ranks, &options).unwrap();
                let what = format!("{name} over {ranks}, {wire:?}");
                if wire == Wire::Bf16 {
                    check_class(&name, &gold, &mut own, 1, "bf16");
                } else if ranks == 2 {
                    let mut shared = on_gpu(&name, ranks, &CudaOptions { nccl: false, ..options }).unwrap();
                    assert!(steps(&mut own, &gold.ids(0)) == steps(&mut shared, &gold.ids(0)), "{what}");
                } else {
                    check_logits(&name, &gold, "logits", &mut own, &what);
                }
                println!("{what}");
            }
        }
    }
}
