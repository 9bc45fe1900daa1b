//! Encoding: how near the decoded values come, at the edges too.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use proptest::prelude::*;
use shardwright_gguf::QuantType::{self, *};

const WRITTEN: [QuantType; 13] = [F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K];

fn round_trip(quant: QuantType, x: &[f32]) -> Vec<f32> {
    let mut bytes = Vec::new();
    quant.encode(x, &mut bytes).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(Some(bytes.len()), quant.row_bytes(x.len()), "{quant}");
    let mut y = vec![f32::NAN; x.len()];
    quant.decode(&bytes, &mut y);
    y
}

/// Numbers of a normal distribution (sums of twelve uniform ones), always the same.
fn normal(n: usize) -> Vec<f32> {
    let mut x = 1u32;
    let mut uniform = || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 8) as f32 / (1 << 24) as f32
    };
    (0..n).map(|_| (0..12).map(|_| uniform()).sum::<f32>() - 6.0).collect()
}

fn relative_rms(x: &[f32], y: &[f32]) -> f64 {
    let sum =
        |f: &dyn Fn(f64, f64) -> f64| -> f64 { x.iter().zip(y).map(|(&x, &y)| f(x.into(), y.into())).sum() };
    (sum(&|x, y| (x - y) * (x - y)) / sum(&|x, _| x * x)).sqrt()
}

#[test]
fn normal_values_come_back_within_the_type_s_error() {
    let x = normal(256 * 256);
    let errors = LIMITS.map(|(quant, most)| (quant, most, relative_rms(&x, &round_trip(quant, &x))));
    println!("{errors:.5?}");
    for (quant, most, error) in errors {
        assert!(error <= most, "{quant}: relative RMS error {error:.5}, at most {most} expected");
        assert!(
            error >= most * 0.95,
            "{quant}: relative RMS error {error:.5} is far below its limit {most}: lower that"
        );
    }
}

/// As measured; for the types of 32 elements less than what the `gguf` Python package gives on the same numbers.
const LIMITS: [(QuantType, f64); 13] = [
    (F32, 0.0),
    (F16, 0.00021),
    (BF16, 0.00168),
    (Q8_0, 0.00525),
    (Q4_0, 0.0800),
    (Q4_1, 0.0697),
    (Q5_0, 0.0398),
    (Q5_1, 0.0338),
    (Q2_K, 0.268),
    (Q3_K, 0.145),
    (Q4_K, 0.0700),
    (Q5_K, 0.0346),
    (Q6_K, 0.0172),
];

#[test]
fn edges_come_back_finite_and_near() {
    let block = |f: &dyn Fn(usize) -> f32| (0..256).map(f).collect::<Vec<f32>>();
    let blocks = [
        block(&|_| 0.0),
        block(&|_| -0.0),
        block(&|_| 65504.0),
        block(&|_| -65504.0),
        block(&|i| if i % 2 == 0 { 65504.0 } else { -65504.0 }),
        block(&|i| if i == 100 { 65504.0 } else { 1e-3 }),
        block(&|_| 1e-30),
        block(&|i| f32::from_bits(i as u32)),
        block(&|i| i as f32 - 128.0),
    ];
    for quant in WRITTEN {
        for x in &blocks {
            let largest = x.iter().fold(0f32, |a, b| a.max(b.abs()));
            for (x, y) in x.iter().zip(round_trip(quant, x)) {
                assert!(
                    (x - y).abs() <= 0.5 * largest + 1e-5,
                    "{quant}: {x} became {y}, largest is {largest}"
                );
            }
        }
        assert_eq!(round_trip(quant, &blocks[0]), blocks[0], "{quant}: zeros");
    }
}

#[test]
fn what_cannot_be_encoded_is_refused() {
    let check = |quant: QuantType, x: &[f32], expected: &str| {
        let mut out = vec![1];
        let error = quant.encode(x, &mut out).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(quant.name()), "{error}");
        assert_eq!(out, [1], "nothing is appended");
    };
    check(Q4_K, &[0.0; 255], "255 values are no whole number of blocks of 256");
    check(IQ2_XXS, &[0.0; 256], "only read");
    let with = |bad: f32| {
        let mut x = [0.0; 256];
        x[77] = bad;
        x
    };
    for quant in WRITTEN.iter().copied().filter(|q| !matches!(q, F32 | BF16)) {
        for bad in [f32::NAN, f32::INFINITY, -1e6] {
            check(quant, &with(bad), &format!("value 77 is {bad}"));
        }
    }
    assert!(round_trip(F32, &with(f32::NAN))[77].is_nan());
    assert_eq!(round_trip(BF16, &with(f32::NEG_INFINITY))[77], f32::NEG_INFINITY);
}

/// The greatest error as a share of the block's greatest magnitude: half a step, and what the search may cut off.
fn share(quant: QuantType) -> f32 {
    match quant {
        F32 => 0.0,
        F16 => 0.0005,
        BF16 => 0.004,
        Q8_0 => 0.0045,
        Q6_K => 0.05,
        Q5_0 | Q5_1 | Q5_K => 0.1,
        Q4_0 | Q4_1 | Q4_K => 0.2,
        Q3_K => 0.4,
        _ => 0.6,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn errors_are_bounded(x in prop::collection::vec(-1f32..1.0, 256), power in -6i32..16, zero in 0usize..256) {
        let mut x: Vec<f32> = x.iter().map(|x| x * 2f32.powi(power)).collect();
        x[..zero].fill(0.0);
        let largest = x.iter().fold(0f32, |a, b| a.max(b.abs()));
        for quant in WRITTEN {
            for (x, y) in x.iter().zip(round_trip(quant, &x)) {
                prop_assert!((x - y).abs() <= share(quant) * largest, "{quant}: {x} became {y}, largest is {largest}");
            }
        }
    }
}
