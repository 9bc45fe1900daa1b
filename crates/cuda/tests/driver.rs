//! A real GPU keeps the promises of a device. Skipped where there is none, unless `SHARDWRIGHT_REQUIRE_GPU` is set.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod compiler;

use std::sync::Arc;
use std::time::Instant;

use compiler::nvrtc;
use shardwright_cuda::Error;
use shardwright_cuda::device::{Device, Launch};
use shardwright_cuda::driver::Gpu;
use shardwright_cuda::jit::{Folders, Jit};
use shardwright_cuda::measure::reading;
use shardwright_cuda::nvrtc::Nvrtc;
use shardwright_cuda::unit::Unit;

fn jit() -> Option<Arc<Jit>> {
    nvrtc().map(|_| Arc::new(Jit::new(Nvrtc::find, Folders::default(), |_, _| {})))
}

/// The first GPU. None where there is none, which is said; a failure if there must be one.
fn gpu() -> Option<Gpu> {
    let required = std::env::var_os("SHARDWRIGHT_REQUIRE_GPU").is_some();
    match Gpu::list() {
        Ok(_) => Some(Gpu::open(0, jit()?).unwrap()),
        Err(why) if !required => {
            eprintln!("SKIPPED: {why}");
            None
        }
        Err(why) => panic!("SHARDWRIGHT_REQUIRE_GPU is set, and {why}"),
    }
}

/// Bytes without a pattern that a wrong offset would keep.
fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

fn read(gpu: &mut Gpu, from: u64, bytes: usize) -> Vec<u8> {
    let mut out = vec![0xaa; bytes];
    gpu.download(from, &mut out).unwrap();
    out
}

/// A kernel that copies with a change, for 3 rows of 96 numbers, and its launch.
fn quantize(gpu: &mut Gpu) -> (Launch, u64) {
    let (rows, width) = (3, 96);
    let unit = Unit::new("quantize")
        .int("WIDTH", width)
        .int("RUN", width)
        .int("UNIT", width)
        .int("START", 0)
        .int("MAX_ROWS", rows);
    let kernel = gpu.load(&[unit.clone(), unit]).unwrap();
    assert_eq!(kernel[0], kernel[1], "the same kernel twice");
    let [step, x, q, s] =
        [1024, rows * width * 4, rows * width, rows * width / 2].map(|n| gpu.alloc(n).unwrap());
    gpu.upload(step, &(rows as u32).to_le_bytes()).unwrap();
    let args = vec![step, x, q, s];
    (Launch { kernel: kernel[0], grid: [1, 1, rows as u32], block: 256, shared: 0, args }, q)
}

/// What `quantize` makes of rows whose largest magnitude is 127: the numbers themselves.
fn whole_numbers(seed: i32) -> (Vec<u8>, Vec<u8>) {
    let numbers: Vec<i8> =
        (0..288).map(|i| if i % 32 == 0 { 127 } else { ((i * seed) % 120 - 60) as i8 }).collect();
    let floats = numbers.iter().flat_map(|v| f32::from(*v).to_le_bytes()).collect();
    (floats, numbers.iter().map(|v| *v as u8).collect())
}

#[test]
fn gpu_says_what_it_is() {
    let Some(gpu) = gpu() else { return };
    println!(
        "{:?}, {} bytes free, kernels for {}",
        gpu.info(),
        gpu.free_memory().unwrap(),
        gpu.architecture().unwrap()
    );
    let info = gpu.info();
    assert!(!info.name.is_empty() && info.multiprocessors > 0 && info.l2 > 0 && info.shared >= 48 << 10);
    assert!(gpu.free_memory().unwrap() <= info.memory);
    assert!(gpu.architecture().unwrap().starts_with(&format!("sm_{}", info.capability.0)));
}

#[test]
fn gpu_that_is_not_there_is_refused() {
    if gpu().is_none() {
        return;
    }
    let why = Gpu::open(1000, jit().unwrap()).unwrap_err();
    assert!(matches!(why, Error::Driver(_)) && why.to_string().contains("GPU 1000 of"), "{why}");
}

#[test]
fn gpu_memory_begins_as_zero_and_comes_back() {
    let Some(mut gpu) = gpu() else { return };
    let bytes = 256 << 20;
    for _ in 0..2 {
        let memory = gpu.alloc(bytes).unwrap();
        assert_eq!(memory % 256, 0);
        assert!(read(&mut gpu, memory, bytes).iter().all(|b| *b == 0));
        gpu.upload(memory, &noise(bytes, 1)).unwrap();
    }
    assert_ne!(gpu.alloc(0).unwrap(), 0);
    // a second one on the same GPU is at home in the same context
    let mut other = Gpu::open(0, jit().unwrap()).unwrap();
    drop(gpu);
    let memory = other.alloc(bytes).unwrap();
    assert!(read(&mut other, memory, bytes).iter().all(|b| *b == 0), "what was there before shows through");
    match other.alloc(1 << 50) {
        Err(Error::Cuda { what, why }) => {
            assert!(
                what.contains("1125899906842624 bytes") && why.contains("OUT_OF_MEMORY"),
                "{what}: {why}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn gpu_copies_keep_every_byte_in_order() {
    let Some(mut gpu) = gpu() else { return };
    let bytes = (500 << 20) + 13;
    let memory = gpu.alloc(bytes).unwrap();
    let mut expected = noise(bytes, 7);
    for _ in 0..3 {
        let start = Instant::now();
        gpu.upload(memory, &expected).unwrap();
        read(&mut gpu, memory, 1);
        println!("upload: {:.1} GB/s", bytes as f64 / start.elapsed().as_secs_f64() / 1e9);
    }
    assert!(read(&mut gpu, memory, bytes) == expected, "one large piece");
    // many small ones, the later over the earlier, that go round both halves of the staging memory
    for (i, size) in [1usize, 255, 256, 257, 4097, 3 << 20, 33 << 20].into_iter().cycle().take(50).enumerate()
    {
        let at = (i * 977_777) % (bytes - size);
        let piece = noise(size, i as u64 + 100);
        gpu.upload(memory + at as u64, &piece).unwrap();
        expected[at..at + size].copy_from_slice(&piece);
    }
    assert!(read(&mut gpu, memory, bytes) == expected, "many pieces");
    assert!(read(&mut gpu, memory + 5, 1000) == expected[5..1005], "a piece of them");
    for bytes in [0, 60, 100, 250, 1001, 1 << 20] {
        gpu.repeat(memory, &expected[..100], bytes).unwrap();
        let mut repeated: Vec<u8> = expected[..100].iter().copied().cycle().take(bytes).collect();
        repeated.extend(&read(&mut gpu, memory + bytes as u64, 100));
        assert!(read(&mut gpu, memory, bytes + 100) == repeated, "{bytes} bytes of a pattern");
        gpu.upload(memory, &expected[..bytes + 100]).unwrap();
    }
    assert!(read(&mut gpu, memory, 0).is_empty());
}

#[test]
fn gpu_launches_and_replays_in_order() {
    let Some(mut gpu) = gpu() else { return };
    let (launch, q) = quantize(&mut gpu);
    let x = launch.args[1];
    for seed in [7, 11] {
        let (floats, numbers) = whole_numbers(seed);
        gpu.upload(x, &floats).unwrap();
        gpu.launch(&launch).unwrap();
        assert_eq!(read(&mut gpu, q, 288), numbers);
    }
    let recording = gpu.record(&[launch.clone(), launch.clone()]).unwrap();
    assert_eq!(read(&mut gpu, q, 288), whole_numbers(11).1, "recording runs nothing");
    let nothing = gpu.record(&[]).unwrap();
    for seed in [13, 17, 19] {
        let (floats, numbers) = whole_numbers(seed);
        gpu.upload(x, &floats).unwrap();
        gpu.replay(nothing).unwrap();
        gpu.replay(recording).unwrap();
        assert_eq!(read(&mut gpu, q, 288), numbers);
    }
    // from another thread
    let (floats, numbers) = whole_numbers(23);
    let mut gpu = std::thread::spawn(move || {
        gpu.upload(x, &floats).unwrap();
        gpu.replay(recording).unwrap();
        gpu
    })
    .join()
    .unwrap();
    assert_eq!(read(&mut gpu, q, 288), numbers);
}

#[test]
fn gpu_refusals_name_the_kernel() {
    let Some(mut gpu) = gpu() else { return };
    let (launch, q) = quantize(&mut gpu);
    let refused = |result: Result<(), Error>| match result {
        Err(Error::Cuda { what, why }) => {
            assert!(what.contains("`quantize WIDTH=96") && why.contains("INVALID"), "{what}: {why}")
        }
        other => panic!("{other:?}"),
    };
    let much = Launch { shared: 1 << 20, ..launch.clone() };
    refused(gpu.launch(&much));
    assert!(gpu.record(&[launch.clone(), much]).is_err());
    refused(gpu.launch(&Launch { block: 2048, ..launch.clone() }));
    // and it still works, with all the shared memory that a block may have
    let (floats, numbers) = whole_numbers(29);
    gpu.upload(launch.args[1], &floats).unwrap();
    let shared = gpu.info().shared;
    gpu.launch(&Launch { shared, ..launch }).unwrap();
    assert_eq!(read(&mut gpu, q, 288), numbers);
}

/// What is read in a recording is read by the part that recorded it: eight multiprocessors are slower than all.
#[test]
fn gpu_part_is_all_that_there_is() {
    let Some(mut whole) = gpu() else { return };
    let all = whole.info().multiprocessors;
    let speed = reading(&mut whole, 1 << 30).unwrap();
    drop(whole);
    let open = |some: u32| Gpu::open_part(0, jit().unwrap(), Some(some));
    // a multiprocessor reads much: 24 of an H200's 132 read 3.7 TB/s of 4.5, eight 1.3
    let some = 8;
    let mut part = open(some).unwrap();
    assert_eq!((part.info().multiprocessors, part.multiprocessors()), (some, some));
    let slow = reading(&mut part, 1 << 30).unwrap();
    println!("{all} multiprocessors read {:.2} TB/s, {some} {:.2}", speed / 1e12, slow / 1e12);
    assert!(slow < 0.5 * speed, "{slow} of {speed}");
    // it is a device as any other
    let (launch, codes) = quantize(&mut part);
    let (numbers, expected) = whole_numbers(7);
    part.upload(launch.args[1], &numbers).unwrap();
    part.launch(&launch).unwrap();
    assert!(read(&mut part, codes, expected.len()) == expected, "launched");
    part.upload(codes, &vec![0; expected.len()]).unwrap();
    let recording = part.record(&[launch]).unwrap();
    part.replay(recording).unwrap();
    assert!(read(&mut part, codes, expected.len()) == expected, "recorded");
    drop(part);
    let refused = |some: u32, words: &str| {
        let why = open(some).unwrap_err().to_string();
        assert!(why.contains(words) && why.lines().count() == 1, "{why}");
    };
    refused(all + 1, &format!("has {all} multiprocessors"));
    refused(9, "by groups");
    // and the whole is there again
    assert!(reading(&mut gpu().unwrap(), 1 << 30).unwrap() > 1.2 * slow);
}

#[test]
fn gpu_delay_takes_its_time() {
    let Some(mut gpu) = gpu() else { return };
    let (count, us) = (100, 50.0);
    let kernel = gpu.load(&[Unit::new("delay").int("NANOSECONDS", 50_000)]).unwrap()[0];
    let delay = Launch { kernel, grid: [1; 3], block: 1, shared: 0, args: vec![] };
    let recording = gpu.record(&vec![delay; count]).unwrap();
    let mark = gpu.alloc(4).unwrap();
    let mut times = vec![];
    for _ in 0..5 {
        let begun = Instant::now();
        gpu.replay(recording).unwrap();
        read(&mut gpu, mark, 4);
        times.push(begun.elapsed().as_secs_f64() * 1e6 / count as f64);
    }
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    println!("{least:.2} us for a delay of {us}");
    // a tick of the clock less, or a launch more
    assert!((us - 1.1..us + 4.0).contains(&least), "{times:?}");
}
