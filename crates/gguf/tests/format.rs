//! Cases G3 and G4, truncation at every byte, oddities that are accepted, and arbitrary bytes.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;

use std::fs;
use std::path::Path;

use common::{Raw, number, record, string, tensor, text};
use proptest::prelude::*;
use shardwright_gguf::{Array, Error, QuantType, Reader, Value, parse_header};

fn open(folder: &Path, bytes: &[u8]) -> shardwright_gguf::Result<Reader> {
    let path = folder.join("model.gguf");
    fs::write(&path, bytes).unwrap();
    Reader::open(&path)
}

fn decode(reader: &Reader, name: &str) -> Vec<f32> {
    let tensor = reader.tensor(name).unwrap();
    let mut out = vec![f32::NAN; tensor.elements() as usize];
    tensor.quant.decode(reader.bytes(tensor), &mut out);
    out
}

/// Three tensors of four numbers under an alignment, after a name that moves the end of the header.
fn aligned(align: usize, name_len: usize, declared: u32) -> Vec<u8> {
    let step = 16usize.next_multiple_of(align);
    let data = (1..=3).flat_map(|i| {
        let mut one = [i as f32; 4].map(f32::to_le_bytes).concat();
        one.resize(step, 0);
        one
    });
    let mut raw = Raw { align, data: data.collect(), ..Raw::default() };
    raw.records.push(number("general.alignment", declared));
    raw.records.push(text("general.name", &"n".repeat(name_len)));
    raw.tensors =
        ["a", "b", "c"].iter().enumerate().map(|(i, n)| tensor(n, &[4], 0, (i * step) as u64)).collect();
    raw.bytes()
}

#[test]
fn g3_the_declared_alignment_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let mut off_32 = 0;
    for align in [8, 16, 64, 4096] {
        for name_len in 0..32 {
            let reader = open(folder.path(), &aligned(align, name_len, align as u32)).unwrap();
            for (name, value) in [("a", 1.0), ("b", 2.0), ("c", 3.0)] {
                assert_eq!(
                    decode(&reader, name),
                    [value; 4],
                    "alignment {align}, name of {name_len}, tensor {name}"
                );
            }
            off_32 += u32::from(!reader.tensor("a").unwrap().offset.is_multiple_of(32));
        }
    }
    assert!(off_32 > 0, "some data must start off a multiple of 32, or the test cannot fail");
}

#[test]
fn g3_senseless_alignments_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for declared in [0, 3, 24, 1 << 31, 1 << 21] {
        let error = open(folder.path(), &aligned(8, 5, declared)).err().unwrap().to_string();
        assert!(error.contains(&format!("`general.alignment` is the u32 {declared}")), "{error}");
    }
}

fn small() -> Raw {
    let mut raw = Raw { tensors: vec![tensor("a", &[32], 8, 0)], data: vec![1; 34], ..Raw::default() };
    raw.records.push(record(
        "tokens",
        9,
        &[&8u32.to_le_bytes()[..], &2u64.to_le_bytes(), &string("x"), &string([0xFF])].concat(),
    ));
    raw.records.push(record(
        "scores",
        9,
        &[&6u32.to_le_bytes()[..], &1u64.to_le_bytes(), &1f32.to_le_bytes()].concat(),
    ));
    raw
}

#[test]
fn g4_versions_and_byte_order() {
    let folder = tempfile::tempdir().unwrap();
    for version in [2, 3] {
        let reader = open(folder.path(), &Raw { version, ..small() }.bytes()).unwrap();
        assert_eq!((reader.version(), reader.tensors().len()), (version, 1));
    }
    for version in [0, 1, 4, 70_000] {
        let error = open(folder.path(), &Raw { version, ..small() }.bytes()).err().unwrap();
        assert!(matches!(error.cause(), Error::Version(v) if *v == version), "{error}");
        assert!(error.to_string().contains(&format!("version {version} ")), "{error}");
    }
    let mut big = small().bytes();
    big[4..24].copy_from_slice(&[[0, 0, 0, 3].as_slice(), &1u64.to_be_bytes(), &1u64.to_be_bytes()].concat());
    let error = open(folder.path(), &big).err().unwrap().to_string();
    assert!(error.contains("big-endian"), "{error}");
}

#[test]
fn g4_files_that_are_no_gguf_are_recognised() {
    let folder = tempfile::tempdir().unwrap();
    let pointer =
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0123456789abcdef\nsize 402000000000\n";
    let rows: &[(&[u8], &str, &str)] = &[
        (b"", "the file is empty", "none"),
        (b"GGU", "ends within the first four bytes", "47 47 55, as text `GGU`"),
        (b"ggjt\x03\0\0\0", "older than GGUF", "67 67 6a 74 03"),
        (b"<!DOCTYPE html><html>", "web page", "as text `<!DOCTYPE html><`"),
        (b"\n <HTML><body>", "web page", "3c 48"),
        (pointer, "a pointer to a file that was not downloaded", "`version https://`"),
        (b"FUGU\0\0\0\x03", "byte order", "46 55 47 55"),
        (b"PK\x03\x04zzzz", "zip archive", "50 4b"),
        (b"\x40\0\0\0\0\0\0\0{\"__metadata__\":", "safetensors", "40 00"),
        (b"\x00\x01\x02\x03garbage", "starts with the four letters GGUF", "00 01 02 03"),
    ];
    for (bytes, hint, first) in rows {
        let error = open(folder.path(), bytes).err().unwrap().to_string();
        assert!(
            error.contains("not a GGUF file") && error.contains(hint) && error.contains(first),
            "{error}"
        );
    }
}

#[test]
fn paths_that_are_no_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let check = |path: &Path, expected: &str| {
        let error = Reader::open(path).err().unwrap().to_string();
        assert!(error.contains(expected) && error.contains(&*path.to_string_lossy()), "{error}");
    };
    check(folder.path(), "is a folder");
    check(Path::new("/dev/null"), "is a device or a pipe");
    check(&folder.path().join("none.gguf"), "cannot open the file: No such file");
}

#[test]
fn a_file_cut_at_any_byte_is_refused() {
    let bytes = small().bytes();
    for cut in 0..bytes.len() {
        assert!(parse_header(&bytes[..cut]).is_err(), "cut at {cut} of {}", bytes.len());
    }
    assert!(parse_header(&bytes).is_ok());
}

#[test]
fn oddities_are_accepted_and_told() {
    let warned = |raw: &Raw, expected: &str| {
        let header = parse_header(&raw.bytes()).unwrap();
        assert!(header.warnings.iter().any(|w| w.contains(expected)), "{:?}", header.warnings);
    };
    let mut raw = small();
    raw.records.push(record("flag", 7, &[7]));
    warned(&raw, "`flag`");
    assert_eq!(parse_header(&raw.bytes()).unwrap().meta.get("flag"), Some(&Value::Bool(true)));
    let longer = Raw { data: vec![1; 64 + 100], ..small() };
    warned(&longer, "100 bytes follow the last tensor");
    // The padding after the last tensor may be missing or there, and a file without tensors may end anywhere.
    for data in [34, 64] {
        assert!(parse_header(&Raw { data: vec![1; data], ..small() }.bytes()).unwrap().warnings.is_empty());
    }
    let bare = Raw { align: 1, ..Raw::default() };
    assert!(parse_header(&bare.bytes()).unwrap().warnings.is_empty());
}

#[test]
fn values_are_kept_as_they_are() {
    let header = parse_header(&small().bytes()).unwrap();
    let Some(Value::Array(Array::Strings(tokens))) = header.meta.get("tokens") else { panic!("no tokens") };
    assert_eq!(tokens.iter().collect::<Vec<_>>(), [&b"x"[..], &[0xFF]]);
    assert_eq!(header.meta.get("scores"), Some(&Value::Array(Array::F32(vec![1.0]))));
    assert_eq!(
        header.meta.iter().map(|(k, _)| k).collect::<Vec<_>>(),
        ["general.architecture", "tokens", "scores"]
    );
}

#[test]
fn q2_unknown_types_are_listed_together() {
    let row = |i: u64, id: u32| tensor(&format!("blk.{i}.w"), &[32], id, i * 128);
    let tensors = vec![row(0, 0), row(1, 200), row(2, 153), row(3, 200), row(4, 4)];
    let raw = Raw { tensors, data: vec![0; 640], ..Raw::default() };
    let folder = tempfile::tempdir().unwrap();
    let error = open(folder.path(), &raw.bytes()).err().unwrap();
    let Error::TensorTypes(list) = error.cause() else { panic!("{error}") };
    let seen: Vec<_> = list.iter().map(|u| (u.id.id, u.count, u.tensor.as_str())).collect();
    assert_eq!(seen, [(4, 1, "blk.4.w"), (153, 1, "blk.2.w"), (200, 2, "blk.1.w")]);
    let text = error.to_string();
    for part in ["4 = Q4_2", "153 = IQ2_KT", "200 (unknown", "in 2 tensors, first `blk.1.w`"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn every_known_type_is_read_with_its_size() {
    for &quant in QuantType::ALL {
        let (len, bytes) = (quant.block_len() as u64, quant.block_bytes());
        let ne = [2 * len, 3, 2];
        let raw = Raw {
            tensors: vec![tensor("t", &ne, quant.id(), 0)],
            data: vec![0; 12 * bytes],
            ..Raw::default()
        };
        let header = parse_header(&raw.bytes()).unwrap();
        assert_eq!(header.tensors[0].bytes, 12 * bytes as u64, "{quant}");
        assert_eq!(header.tensors[0].ne, [2 * len, 3, 2, 1], "{quant}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_never_panic(records in 0u64..4, tensors in 0u64..4, rest in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut bytes = [&b"GGUF\x03\0\0\0"[..], &tensors.to_le_bytes(), &records.to_le_bytes()].concat();
        bytes.extend(rest);
        let _ = parse_header(&bytes);
    }

    /// Bytes changed in a good file reach further into the parser than noise does.
    #[test]
    fn damaged_files_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = small().bytes();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(header) = parse_header(&bytes) {
            for t in &header.tensors {
                prop_assert!(t.offset + t.bytes <= bytes.len() as u64);
            }
        }
    }
}
