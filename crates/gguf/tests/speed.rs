//! How fast blocks are decoded and encoded, in GB of f32 a second: `cargo test --release -- --ignored --nocapture speed`.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::hint::black_box;
use std::time::Instant;

use shardwright_gguf::QuantType;

/// Elements of one run: the f32 side stays in the second-level cache, as a row of weights does.
const ELEMENTS: usize = 1 << 14;

fn rate(mut run: impl FnMut()) -> f64 {
    let mut best = 0f64;
    for _ in 0..5 {
        let (start, mut runs) = (Instant::now(), 0);
        while start.elapsed().as_secs_f64() < 0.03 {
            run();
            runs += 1;
        }
        best = best.max((runs * ELEMENTS * 4) as f64 / start.elapsed().as_secs_f64() / 1e9);
    }
    best
}

#[test]
#[ignore = "a measurement"]
fn speed_of_every_type() {
    let values: Vec<f32> =
        (0..ELEMENTS).map(|i| ((i * 2_654_435_761) as u32) as f32 / 2f32.powi(31) - 1.0).collect();
    println!("{:8} {:>8} {:>8}", "type", "decode", "encode");
    for &quant in QuantType::ALL {
        let mut bytes = vec![0x35; quant.row_bytes(ELEMENTS).unwrap()];
        let mut out = vec![0f32; ELEMENTS];
        let mut packed = Vec::with_capacity(bytes.len());
        let encoded = quant.encode(&values, &mut packed).is_ok();
        if encoded {
            bytes.copy_from_slice(&packed);
        }
        let decode = rate(|| quant.decode(black_box(&bytes), black_box(&mut out)));
        print!("{quant:8} {decode:8.2}");
        match encoded {
            false => println!(),
            true => println!(
                " {:8.3}",
                rate(|| {
                    packed.clear();
                    quant.encode(black_box(&values), &mut packed).unwrap();
                })
            ),
        }
    }
}
