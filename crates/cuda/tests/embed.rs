//! Rows of the vocabulary in every block format, against the decoder.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod emulator;

use emulator::{Emulator, Random};
use shardwright_cuda::device::{Device, Launch};
use shardwright_cuda::planes::lay;
use shardwright_cuda::unit::Unit;
use shardwright_gguf::QuantType;

/// Rows that the step has room for, and tokens of the three that it has: held, not held, held.
const MAX_ROWS: usize = 4;
const TOKENS: [u32; 3] = [12, 7, 10];
/// The part of the vocabulary that is held.
const FIRST: u32 = 10;
const ROWS: usize = 3;

/// What the kernel makes of the step, from rows that lie `offset` bytes behind a multiple of 256.
fn embed(device: &mut Emulator, quant: QuantType, rows: &[u8], width: usize, offset: usize) -> Vec<f32> {
    let unit = Unit::new("embed")
        .quant(quant)
        .int("WIDTH", width)
        .int("ROWS", ROWS)
        .int("FIRST", FIRST)
        .int("ROW_BYTES", quant.row_bytes(width).unwrap())
        .int("MAX_ROWS", MAX_ROWS);
    let kernel = device.load(&[unit]).unwrap()[0];
    let mut words = vec![TOKENS.len() as u32, 0, 0, 0];
    words.extend(TOKENS);
    let mut values = vec![f32::NAN; MAX_ROWS * width];
    let [step, out] = [1024, values.len() * 4].map(|n| device.alloc(n).unwrap());
    device.upload(step, bytemuck::cast_slice(&words)).unwrap();
    device.upload(out, bytemuck::cast_slice(&values)).unwrap();
    let w = device.alloc(offset + rows.len()).unwrap() + offset as u64;
    device.upload(w, rows).unwrap();
    let threads = if quant.group().is_some() { width / 32 } else { width };
    device
        .launch(&Launch {
            kernel,
            grid: [threads.div_ceil(128) as u32, 1, MAX_ROWS as u32],
            block: 128,
            shared: 0,
            args: vec![step, w, out],
        })
        .unwrap();
    device.download(out, bytemuck::cast_slice_mut(&mut values)).unwrap();
    values
}

#[test]
fn every_format_is_decoded_as_on_the_host() {
    let Some(mut device) = Emulator::new() else { return };
    let mut random = Random(1);
    for &quant in QuantType::ALL.iter().filter(|q| q.is_weight()) {
        let block = quant.block_len().max(32);
        for blocks in [1, 8448 / block] {
            let width = blocks * block;
            let rows = random.rows(quant, ROWS, width, f32::MAX);
            // A shard of rows may begin at any block.
            let bytes = quant.row_bytes(width).unwrap();
            let mut laid = vec![];
            rows.chunks(bytes).for_each(|row| lay(quant, row, &mut laid));
            // those that lie otherwise than in the file begin where wide loads may
            let offsets = if laid == rows { [0, 1, 3] } else { [0; 3] };
            for offset in offsets.map(|n| n * quant.block_bytes()) {
                let values = embed(&mut device, quant, &laid, width, offset);
                let mut decoded = vec![0.0; ROWS * width];
                quant.decode(&rows, &mut decoded);
                let (mut found, none) = values.split_at(TOKENS.len() * width);
                for token in TOKENS {
                    let held = token.checked_sub(FIRST).map(|n| &decoded[n as usize * width..][..width]);
                    let (row, rest) = found.split_at(width);
                    // Equal but for the sign of zero.
                    assert!(row == held.unwrap_or(&vec![0.0; width]), "{quant} {width} {offset} {token}");
                    found = rest;
                }
                assert!(none.iter().all(|v| v.is_nan()), "{quant}: the step has {} rows", TOKENS.len());
            }
        }
    }
}
