//! The integer form of blocks: it multiplies out to the decoded values, exactly, for every type.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::fs::File;
use std::panic::catch_unwind;
use std::path::Path;

use npyz::npz::NpzArchive;
use shardwright_gguf::QuantType::{self, *};
use shardwright_gguf::quant::Codes;

/// A type, its group, and the least and greatest code that its format has.
type Row = (QuantType, usize, i8, i8);

#[rustfmt::skip]
const TYPES: [Row; 27] = [
    (Q4_0, 32, -8, 7), (Q4_1, 32, 0, 15), (Q5_0, 32, -16, 15), (Q5_1, 32, 0, 31),
    (Q8_0, 32, -128, 127), (Q8_1, 32, -128, 127), (Q8_K, 32, -128, 127),
    (Q2_K, 16, 0, 3), (Q3_K, 16, -4, 3), (Q4_K, 32, 0, 15), (Q5_K, 32, 0, 31), (Q6_K, 16, -32, 31),
    (IQ1_S, 32, -9, 9), (IQ1_M, 16, -9, 9),
    (IQ2_XXS, 32, -43, 43), (IQ2_XS, 16, -43, 43), (IQ2_S, 16, -43, 43),
    (IQ3_XXS, 32, -62, 62), (IQ3_S, 32, -15, 15), (IQ4_NL, 32, -127, 113), (IQ4_XS, 32, -127, 113),
    (TQ1_0, 32, -1, 1), (TQ2_0, 32, -1, 2), (Q1_0, 32, -1, 1), (Q2_0, 32, -1, 2),
    (MXFP4, 32, -12, 12), (NVFP4, 16, -12, 12),
];

/// What the entries that a block does not have are filled with.
const UNTOUCHED: Codes = Codes { codes: [99; 256], scale: [-99.0; 16], min: [-99.0; 16] };

/// The codes of a block, after a look at the entries that are not its own.
fn codes(quant: QuantType, block: &[u8]) -> Codes {
    let mut out = UNTOUCHED;
    quant.codes(block, &mut out);
    let (len, groups) = (quant.block_len(), quant.block_len() / quant.group().unwrap());
    assert!(out.codes[len..] == UNTOUCHED.codes[len..], "{quant}: codes beyond the block");
    assert!(out.scale[groups..] == UNTOUCHED.scale[groups..], "{quant}: scales beyond the block");
    assert!(out.min[groups..] == UNTOUCHED.min[groups..], "{quant}: minima beyond the block");
    out
}

/// The codes of whole blocks must multiply out to `values`: the same f32, or both no number.
fn check(quant: QuantType, bytes: &[u8], values: &[f32]) {
    let (len, group) = (quant.block_len(), quant.group().unwrap());
    assert_eq!(bytes.len() / quant.block_bytes() * len, values.len());
    for (block, values) in bytes.chunks_exact(quant.block_bytes()).zip(values.chunks_exact(len)) {
        let c = codes(quant, block);
        for (j, &y) in values.iter().enumerate() {
            let product = c.scale[j / group] * f32::from(c.codes[j]) + c.min[j / group];
            assert!(product == y || product.is_nan() && y.is_nan(), "{quant} {j}: {product} and {y}");
        }
        let none = c.min[..len / group].iter().all(|&m| m == 0.0);
        assert!(quant.has_min() || none, "{quant}: a minimum where the type has none");
    }
}

/// Bytes of a linear congruential generator, scales and all: large, tiny, infinite, no numbers.
fn random(n: usize) -> Vec<u8> {
    let mut x = 1u32;
    let byte = || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 24) as u8
    };
    std::iter::repeat_with(byte).take(n).collect()
}

#[test]
fn codes_of_random_blocks_give_what_decoding_gives() {
    for (quant, ..) in TYPES {
        let bytes = random(2000 * quant.block_bytes());
        let mut values = vec![0.0; 2000 * quant.block_len()];
        quant.decode(&bytes, &mut values);
        assert!(values.iter().filter(|y| y.is_finite() && **y != 0.0).count() > values.len() / 3, "{quant}");
        check(quant, &bytes, &values);
    }
}

#[test]
fn codes_of_the_oracle_s_blocks_give_its_values() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/dequant/blocks.npz");
    let mut npz = NpzArchive::new(File::open(path).unwrap()).unwrap();
    let names: Vec<String> = npz.array_names().map(str::to_owned).collect();
    let types = names.iter().filter_map(|n| n.strip_suffix("_bytes"));
    let coded: Vec<_> = types.filter(|name| QuantType::from_name(name).unwrap().group().is_some()).collect();
    assert_eq!(coded.len(), 23);
    for name in coded {
        let bytes: Vec<u8> = npz.by_name(&format!("{name}_bytes")).unwrap().unwrap().into_vec().unwrap();
        let values: Vec<f32> = npz.by_name(&format!("{name}_f32")).unwrap().unwrap().into_vec().unwrap();
        assert!(!bytes.is_empty());
        check(QuantType::from_name(name).unwrap(), &bytes, &values);
    }
}

#[test]
fn codes_have_the_range_of_their_type_and_all_of_it() {
    for (quant, _, low, high) in TYPES {
        let bytes = random(2000 * quant.block_bytes());
        let blocks = bytes.chunks_exact(quant.block_bytes());
        let all: Vec<i8> =
            blocks.flat_map(|block| codes(quant, block).codes[..quant.block_len()].to_vec()).collect();
        let range = (*all.iter().min().unwrap(), *all.iter().max().unwrap());
        assert_eq!(range, (low, high), "{quant}");
    }
}

#[test]
fn groups_and_minima_are_as_the_formats_say() {
    let with_min = [Q4_1, Q5_1, Q2_K, Q4_K, Q5_K];
    for &quant in QuantType::ALL {
        let row = TYPES.iter().find(|row| row.0 == quant);
        assert_eq!(quant.group(), row.map(|row| row.1), "{quant}");
        assert_eq!(quant.group().is_some(), quant.block_len() > 1, "{quant}");
        assert_eq!(quant.has_min(), with_min.contains(&quant), "{quant}");
    }
}

/// What is no single block of a type with codes is the caller's mistake, as in decoding.
#[test]
fn codes_of_anything_but_one_block_panic() {
    let panics = |quant: QuantType, n: usize| {
        catch_unwind(|| quant.codes(&vec![0; n], &mut Codes::default())).is_err()
    };
    for &quant in QuantType::ALL {
        let bytes = quant.block_bytes();
        assert_eq!(panics(quant, bytes), quant.group().is_none(), "{quant}");
        assert!(panics(quant, 2 * bytes) && panics(quant, bytes - 1) && panics(quant, 0), "{quant}");
    }
}
