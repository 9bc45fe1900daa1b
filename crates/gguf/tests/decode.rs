//! Decoding against digests and vectors that other programs made: equality of bits, no tolerance.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::fs::File;
use std::path::Path;

use npyz::npz::NpzArchive;
use sha2::{Digest, Sha256};
use shardwright_gguf::QuantType;

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

fn decode(quant: QuantType, bytes: &[u8]) -> Vec<f32> {
    let mut out = vec![f32::NAN; bytes.len() / quant.block_bytes() * quant.block_len()];
    quant.decode(bytes, &mut out);
    out
}

/// Values of f16 fields that keep random blocks sane.
const SCALE: u16 = 0x2E66;
const M: u16 = 0xB19A;
const DMIN: u16 = 0x319A;

/// 64 blocks of a linear congruential generator's bytes, with sane scales put in.
fn golden_bytes(quant: QuantType, halves: &[(usize, u16)]) -> Vec<u8> {
    let mut x = 1u32;
    let mut bytes: Vec<u8> = std::iter::repeat_with(|| {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 24) as u8
    })
    .take(64 * quant.block_bytes())
    .collect();
    for (n, block) in bytes.chunks_exact_mut(quant.block_bytes()).enumerate() {
        halves.iter().for_each(|&(at, v)| block[at..at + 2].copy_from_slice(&v.to_le_bytes()));
        match quant {
            QuantType::IQ1_M => {
                for (i, top) in [6, 6, 0xE, 2].into_iter().enumerate() {
                    block[49 + 2 * i] = block[49 + 2 * i] & 15 | top << 4;
                }
            }
            QuantType::MXFP4 => block[0] = 120 + (n % 16) as u8,
            QuantType::NVFP4 => block[..4].iter_mut().for_each(|b| *b &= 0x7F),
            _ => {}
        }
    }
    bytes
}

/// A type, its f16 fields (position, value), the start of the digest of the bytes, the digest of the values.
type Row = (QuantType, &'static [(usize, u16)], &'static str, &'static str);

#[rustfmt::skip]
const DIGESTS: &[Row] = {
    use QuantType::*;
    &[
        (Q4_0, &[(0, SCALE)], "b642589f265d67f1", "7a04ea8628414842ac61902678cfb973759c21c3303d5e147c1247194c9a03e2"),
        (Q4_1, &[(0, SCALE), (2, M)], "0e7a210defe28573", "f3560f5689047c6a32070e7c446ac493b30583192cb337b39a30952980995639"),
        (Q5_0, &[(0, SCALE)], "f3336c3f6b0389f0", "aebaa1a599a998e336c6b87d3970637c6ee3d5d28c52ea7ef4d0dbb37cee363d"),
        (Q5_1, &[(0, SCALE), (2, M)], "a34f6e16641931ca", "b4c7d96677a1fac025ace680c304e19b402cb14fc743bbb785b0776a972d9666"),
        (Q8_0, &[(0, SCALE)], "e2f3eaee90a6c342", "7b130783c9e2eacf4aee33ce774154f3d26763947ece554b4c6c4ee84f76186e"),
        (Q2_K, &[(80, SCALE), (82, DMIN)], "18e873b2883e9cbe", "7601d78411d43a58eac84a6bc5bb7e8c792fe5250af79fee490e1be939acf8ea"),
        (Q3_K, &[(108, SCALE)], "1db6a87f7c2083f0", "5efaa1a31635f5d4b2f8a9a482c644ab7ba2fcae704cdc30f95d54dac1e049f9"),
        (Q4_K, &[(0, SCALE), (2, DMIN)], "b0d10db7b1af104f", "06693e36591590fe1c494d190082fbddcdab467446d5e8eda84e5a563aaf5ab7"),
        (Q5_K, &[(0, SCALE), (2, DMIN)], "c146f9fc1ab5e582", "f3810fd583c315ac2a0eb21cf1772c99890147e82969f6600de7b6a0214e1100"),
        (Q6_K, &[(208, SCALE)], "9b5d4a415a53659a", "37c5e2483ab0f786a929250b6f5ac888ddc9adee33901c6c5433a4e55ff93928"),
        (TQ1_0, &[(52, SCALE)], "8bb3988eee4e7126", "c0d47228986d4c0c6b595bfe3fcf9b0a886491a6b8220ba796b298f00cd1f93a"),
        (TQ2_0, &[(64, SCALE)], "deb26fdd5a48f793", "fe481c9e2bec65364df5976ca0ef1aeca6e8d9403628325a0ae2cfa0eacf89e9"),
        (IQ2_XXS, &[(0, SCALE)], "1a1bf593b88e953c", "a9e2b29e70904ad6367b6e878db61c008676e4b5a4a1561ce331a419317bd005"),
        (IQ2_XS, &[(0, SCALE)], "fa828f14a0f06c56", "637845d589953664326b6be0fb4f60ef5ee9117865522b5b100892ac7ded39e8"),
        (IQ2_S, &[(0, SCALE)], "e40cdabf63d792f2", "95a9f3758ab0133d0f36da13eb6cf4ff029a8ce7224c13129d9f70d0ca27bfe3"),
        (IQ3_XXS, &[(0, SCALE)], "d0d77084da962920", "0087b93fe85d8df393df3e3a9e2c414ca672257b9ce617e9e3a536407ba27a6e"),
        (IQ3_S, &[(0, SCALE)], "313e055ec879c3db", "fc980998dd2d461e71a313f052a7c682d040fe3f9b18f49e0a959aacbaaed3b3"),
        (IQ1_S, &[(0, SCALE)], "8c12895449db0875", "61378e8e896b7650cea23ed437b039621d6af9b12d02f6af7700b992065cbf7b"),
        (IQ1_M, &[], "e4b6a6a0430f1139", "83af452f80c966cafe2d48573015e95ec9943a92ccf21f1af5f38bc944d57962"),
        (IQ4_NL, &[(0, SCALE)], "b642589f265d67f1", "87b26ebb52483e0f5d450396ac425314fcf68962410f62fccae35a72a80d263c"),
        (IQ4_XS, &[(0, SCALE)], "22353bd1c5950b87", "6c62c1c538cdfb00e730a9e3bac32981f547b5b2ee4405e7bca41c6aea7e6ccf"),
        (MXFP4, &[], "025b4a80b670975c", "b7962c41fec198083c1154e5afea20289d11f9bac43c5c9a90be01c60a5ea981"),
        (NVFP4, &[], "eaff1c47373dd03b", "5cb97da7e968cc03a04ff1c643528c4c340e54850292d6ea72db67d4a1f8f45b"),
    ]
};

#[test]
fn q4_every_type_decodes_to_its_digest() {
    for &(quant, halves, input, output) in DIGESTS {
        let bytes = golden_bytes(quant, halves);
        assert_eq!(&hex(&bytes)[..16], input, "{quant}: the generator's bytes");
        let values: Vec<u8> = decode(quant, &bytes).iter().flat_map(|y| (y + 0.0).to_le_bytes()).collect();
        assert_eq!(hex(&values), output, "{quant}: the decoded values");
    }
}

#[test]
fn q2_every_type_of_the_oracle_decodes_bit_for_bit() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/dequant/blocks.npz");
    let mut npz = NpzArchive::new(File::open(path).unwrap()).unwrap();
    let names: Vec<String> = npz.array_names().map(str::to_owned).collect();
    let types: Vec<&str> = names.iter().filter_map(|n| n.strip_suffix("_bytes")).collect();
    assert_eq!(types.len(), 25);
    for name in types {
        let quant = QuantType::from_name(name).unwrap();
        let bytes: Vec<u8> = npz.by_name(&format!("{name}_bytes")).unwrap().unwrap().into_vec().unwrap();
        let expected: Vec<f32> = npz.by_name(&format!("{name}_f32")).unwrap().unwrap().into_vec().unwrap();
        assert!(!bytes.is_empty() && bytes.len().is_multiple_of(quant.block_bytes()), "{name}");
        // Adding 0 makes one zero of the two: makers of vectors differ in the sign of a zero.
        let bits = |v: &[f32]| v.iter().map(|y| (y + 0.0).to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&decode(quant, &bytes)), bits(&expected), "{name}");
    }
}

/// Decoding may not depend on the address: files promise two bytes of alignment at best.
#[test]
fn q2_decoding_works_at_any_address() {
    for &(quant, halves, ..) in DIGESTS {
        let bytes = golden_bytes(quant, halves);
        for shift in 1..4 {
            let mut moved = vec![0; shift];
            moved.extend(&bytes);
            assert_eq!(decode(quant, &moved[shift..]), decode(quant, &bytes), "{quant} at offset {shift}");
        }
    }
}

/// Blocks whose scales are zero are zero, whatever their other bytes say.
#[test]
fn q4_zero_scales_decode_to_zero_never_nan() {
    for &(quant, halves, ..) in DIGESTS {
        let mut block = vec![0xFF; quant.block_bytes()];
        halves.iter().for_each(|&(at, _)| block[at..at + 2].fill(0));
        match quant {
            QuantType::IQ1_M => (0..4).for_each(|i| block[49 + 2 * i] = 0x0F),
            QuantType::NVFP4 => block[..4].fill(0),
            QuantType::MXFP4 => continue, // its scale is a power of two, never zero
            _ => {}
        }
        assert!(decode(quant, &block).iter().all(|&y| y == 0.0), "{quant}");
    }
}

/// The two types that the digests leave out, by their formulas.
#[test]
fn q2_one_and_two_bit_types_follow_their_formulas() {
    let bytes = golden_bytes(QuantType::Q1_0, &[(0, SCALE)]);
    for quant in [QuantType::Q1_0, QuantType::Q2_0] {
        let values = decode(quant, &bytes);
        for (block, y) in bytes.chunks_exact(18).zip(values.chunks_exact(quant.block_len())) {
            let qs = u128::from_le_bytes(block[2..].try_into().unwrap());
            let q = |i: usize| match quant {
                QuantType::Q1_0 => ((qs >> i) & 1) as i32 * 2 - 1,
                _ => ((qs >> (2 * i)) & 3) as i32 - 1,
            };
            let d = half::f16::from_bits(SCALE).to_f32();
            y.iter().enumerate().for_each(|(i, &y)| assert_eq!(y, d * q(i) as f32, "{quant} {i}"));
        }
    }
}

#[test]
fn q2_the_exponents_of_mxfp4_reach_the_denormals() {
    for (e, d) in [
        (0u8, 2f64.powi(-128)),
        (1, 2f64.powi(-127)),
        (2, 2f64.powi(-126)),
        (127, 0.5),
        (254, 2f64.powi(126)),
    ] {
        let mut block = [0x21; 17];
        block[0] = e;
        let y = decode(QuantType::MXFP4, &block);
        assert_eq!((f64::from(y[0]), f64::from(y[16])), (d, 2.0 * d), "e = {e}");
    }
}

#[test]
fn q2_plain_types_decode_as_named() {
    let check = |quant: QuantType, bytes: &[u8], expected: &[f32]| {
        assert_eq!(decode(quant, bytes), expected, "{quant}")
    };
    check(QuantType::F32, &[1.5f32, -0.25].map(f32::to_le_bytes).concat(), &[1.5, -0.25]);
    check(QuantType::F16, &[0x00, 0x3C, 0x01, 0x00, 0x00, 0xFC], &[1.0, 2f32.powi(-24), f32::NEG_INFINITY]);
    check(QuantType::BF16, &[0x80, 0x3F, 0x01, 0x00], &[1.0, f32::from_bits(1 << 16)]);
    check(QuantType::F64, &(-2.5f64).to_le_bytes(), &[-2.5]);
    check(QuantType::I8, &[0x80, 5], &[-128.0, 5.0]);
    check(QuantType::I16, &(-300i16).to_le_bytes(), &[-300.0]);
    check(QuantType::I32, &7i32.to_le_bytes(), &[7.0]);
    check(QuantType::I64, &(-7i64).to_le_bytes(), &[-7.0]);
}

#[test]
fn q2_ids_without_a_decoder_are_refused_by_name() {
    let check = |id: u32, expected: &str| {
        let text = QuantType::from_id(id).unwrap_err().to_string();
        assert!(text.contains(expected), "{id}: {text}");
    };
    for (id, name) in [(4, "Q4_2"), (5, "Q4_3"), (31, "Q4_0_4_4"), (32, "Q4_0_4_8"), (33, "Q4_0_8_8")] {
        check(id, &format!("{id} = {name} (removed"));
    }
    for (id, name) in [(36, "IQ4_NL_4_4"), (37, "IQ4_NL_4_8"), (38, "IQ4_NL_8_8")] {
        check(id, &format!("{id} = {name} (removed"));
    }
    for (id, name) in
        [(133, "Q6_0"), (153, "IQ2_KT"), (144, "IQ4_KS"), (139, "IQ4_K"), (157, "IQ2_KL"), (212, "Q4_K_R4")]
    {
        check(id, &format!("{id} = {name} (known to ik_llama.cpp only"));
    }
    check(200, "200 (unknown");
    check(u32::MAX, "unknown");
}

#[test]
fn q2_the_table_of_types_is_consistent() {
    for &quant in QuantType::ALL {
        assert_eq!(QuantType::from_id(quant.id()).unwrap(), quant);
        assert_eq!(QuantType::from_name(&quant.name().to_lowercase()).unwrap(), quant);
        assert_eq!(quant.row_bytes(3 * quant.block_len()), Some(3 * quant.block_bytes()));
        assert_eq!(quant.row_bytes(quant.block_len() + 1).is_some(), quant.block_len() == 1);
    }
    assert_eq!(QuantType::I8.row_bytes(usize::MAX), Some(usize::MAX));
    assert_eq!(QuantType::F32.row_bytes(usize::MAX), None);
    assert_eq!(QuantType::ALL.iter().filter(|q| !q.is_weight()).count(), 7);
}
