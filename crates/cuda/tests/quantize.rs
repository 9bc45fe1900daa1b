//! Rows rounded to 8 bits, against the definition.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod emulator;

use emulator::Emulator;
use shardwright_cuda::device::{Device, Launch};
use shardwright_cuda::unit::Unit;

#[test]
fn rows_are_rounded_as_defined() {
    let Some(mut device) = Emulator::new() else { return };
    let (rows, width) = (3, 96);
    let x: Vec<f32> =
        (0..rows * width).map(|i| ((i * 37 % 101) as f32 - 50.0) * if i < 32 { 0.0 } else { 0.7 }).collect();
    let unit = Unit::new("quantize")
        .int("WIDTH", width)
        .int("RUN", width)
        .int("UNIT", width)
        .int("START", 0)
        .int("MAX_ROWS", rows);
    let kernel = device.load(&[unit]).unwrap()[0];
    let step = device.alloc(1024).unwrap();
    device.upload(step, bytemuck::bytes_of(&(rows as u32))).unwrap();
    let [xs, q, s] = [x.len() * 4, x.len(), x.len() / 2].map(|n| device.alloc(n).unwrap());
    device.upload(xs, bytemuck::cast_slice(&x)).unwrap();
    device
        .launch(&Launch {
            kernel,
            grid: [1, 1, rows as u32],
            block: 256,
            shared: 0,
            args: vec![step, xs, q, s],
        })
        .unwrap();
    let (mut codes, mut scales) = (vec![0i8; x.len()], vec![[0f32; 4]; x.len() / 32]);
    device.download(q, bytemuck::cast_slice_mut(&mut codes)).unwrap();
    device.download(s, bytemuck::cast_slice_mut(&mut scales)).unwrap();
    for (g, group) in x.chunks(32).enumerate() {
        let most = group.iter().fold(0f32, |m, v| m.max(v.abs()));
        let codes = &codes[g * 32..][..32];
        assert_eq!(scales[g][0], most / 127.0);
        for (code, v) in codes.iter().zip(group) {
            assert!((f32::from(*code) * scales[g][0] - v).abs() <= scales[g][0] * 0.500_01, "{code} {v}");
        }
        for half in 0..2 {
            let sum: i32 = codes[half * 16..][..16].iter().map(|c| i32::from(*c)).sum();
            assert_eq!(scales[g][2 * half..][..2], [scales[g][0], scales[g][0] * sum as f32]);
        }
    }
}
