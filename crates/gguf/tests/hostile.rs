//! Case G2: hostile and damaged headers are refused at once, in one line, within little memory.
//!
//! This binary has one test only, so that its peak memory is that of the reader.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;

use std::fs;
use std::time::{Duration, Instant};

use common::{Raw, number, peak_memory, record, string, tensor, text};
use shardwright_gguf::Reader;

/// Name, bytes, and two pieces of the message: where and what.
type Case = (&'static str, Vec<u8>, &'static str, &'static str);

fn with_tensors(tensors: Vec<Vec<u8>>, data: usize) -> Vec<u8> {
    Raw { tensors, data: vec![0; data], ..Raw::default() }.bytes()
}

fn with_records(records: Vec<Vec<u8>>) -> Vec<u8> {
    Raw { records, ..Raw::default() }.bytes()
}

fn long(n: u64) -> [u8; 8] {
    n.to_le_bytes()
}

/// The value of an array record: element type, count, bytes.
fn array(id: u32, n: u64, bytes: &[u8]) -> Vec<u8> {
    [&id.to_le_bytes()[..], &long(n), bytes].concat()
}

fn counts() -> Vec<Case> {
    let start = "start of the header";
    vec![
        (
            "kv_2e60",
            Raw { n_records: Some(1 << 60), ..Raw::default() }.bytes(),
            start,
            "1152921504606846976 metadata records",
        ),
        (
            "kv_negative",
            Raw { n_records: Some(u64::MAX), ..Raw::default() }.bytes(),
            start,
            "metadata records",
        ),
        (
            "kv_too_many_for_file",
            Raw { n_records: Some(60_000), ..Raw::default() }.bytes(),
            start,
            "room for",
        ),
        (
            "tensors_2e60",
            Raw { n_tensors: Some(1 << 60), ..Raw::default() }.bytes(),
            start,
            "1152921504606846976 tensors",
        ),
        (
            "tensors_too_many_for_file",
            Raw { n_tensors: Some(900_000), ..Raw::default() }.bytes(),
            start,
            "room for",
        ),
    ]
}

fn values() -> Vec<Case> {
    let nested = [&9u32.to_le_bytes()[..], &long(1)].concat().repeat(100_000);
    vec![
        (
            "string_1e15",
            with_records(vec![record("general.name", 8, &long(1_000_000_000_000_000))]),
            "key `general.name`",
            "1000000000000000 bytes",
        ),
        (
            "string_2e63",
            with_records(vec![record("general.name", 8, &long(1 << 63))]),
            "key `general.name`",
            "9223372036854775808 bytes",
        ),
        (
            "string_past_end",
            with_records(vec![record("general.name", 8, &long(1_000_000))]),
            "key `general.name`",
            "the file ends here",
        ),
        (
            "array_1e15",
            with_records(vec![record("a.b", 9, &array(4, 1_000_000_000_000_000, &[]))]),
            "key `a.b`",
            "1000000000000000 elements",
        ),
        (
            "array_past_end",
            with_records(vec![record("a.b", 9, &array(12, 1 << 30, &[]))]),
            "key `a.b`",
            "the file ends here",
        ),
        (
            "strings_past_end",
            with_records(vec![record("a.b", 9, &array(8, 1 << 30, &[]))]),
            "key `a.b`",
            "the file ends here",
        ),
        (
            "array_2e64",
            with_records(vec![record("a.b", 9, &array(0, u64::MAX, &[]))]),
            "key `a.b`",
            "elements",
        ),
        ("nested_1e5", with_records(vec![record("a.b", 9, &nested)]), "key `a.b`", "array of arrays"),
        (
            "array_type_13",
            with_records(vec![record("a.b", 9, &array(13, 1, &[0; 8]))]),
            "key `a.b`",
            "unknown element type 13",
        ),
        ("kv_type_99", with_records(vec![record("k", 99, &[])]), "key `k`", "unknown value type 99"),
        ("kv_type_negative", with_records(vec![record("k", u32::MAX, &[])]), "key `k`", "unknown value type"),
    ]
}

fn keys() -> Vec<Case> {
    let twice = vec![number("k", 1), number("k", 2)];
    vec![
        ("empty_key", with_records(vec![number("", 1)]), "metadata record 0", "the key is empty"),
        (
            "long_key",
            with_records(vec![number(&"k".repeat(65_536), 1)]),
            "metadata record 0",
            "at most 65535",
        ),
        (
            "key_not_utf8",
            with_records(vec![[&string([0xFF, 0xFE])[..], &[4, 0, 0, 0, 1, 0, 0, 0]].concat()]),
            "metadata record 0",
            "no valid UTF-8",
        ),
        (
            "long_key_of_controls",
            with_records(vec![record(&"\n\u{1b}[31m".repeat(9000), 99, &[])]),
            "key `\\n\\u{1b}[31m",
            "unknown value type 99",
        ),
        ("duplicate_key", with_records(twice), "key `k`", "occurs twice"),
        (
            "alignment_u64",
            with_records(vec![record("general.alignment", 10, &long(32))]),
            "`general.alignment`",
            "u32 power of two",
        ),
    ]
}

fn tensor_records() -> Vec<Case> {
    let a =
        |ne: &[u64], id: u32, offset: u64, data: usize| with_tensors(vec![tensor("a", ne, id, offset)], data);
    let long_name = "n".repeat(64);
    let dims_1e6 = [&string("a")[..], &1_000_000u32.to_le_bytes(), &[0; 40]].concat();
    let pair = |second: &str, offset| vec![tensor("a", &[32], 0, 0), tensor(second, &[32], 0, offset)];
    let mut cut = a(&[32], 0, 0, 128);
    cut.truncate(70);
    // found by fuzzing: each unknown type got its line
    let many_types = (0..1000).map(|i| tensor(&i.to_string(), &[32], 200 + i, 0)).collect();
    let mut short = a(&[32], 0, 0, 128);
    short.pop();
    vec![
        ("zero_dim", a(&[32, 0], 0, 0, 0), "tensor `a`", "dimension 1 is 0"),
        ("dims_1e6", with_tensors(vec![dims_1e6], 0), "tensor `a`", "1000000 dimensions"),
        ("dims_5", a(&[1; 5], 0, 0, 64), "tensor `a`", "5 dimensions"),
        ("dims_0", a(&[], 0, 0, 64), "tensor `a`", "0 dimensions"),
        ("wrap_32", a(&[1 << 32, (1 << 32) + 1], 0, 0, 64), "tensor `a`", "multiply to more than 2^63"),
        ("wrap_63", a(&[1 << 63, 2], 0, 0, 64), "tensor `a`", "dimension 0 is -9223372036854775808"),
        ("size_overflow", a(&[i64::MAX as u64], 28, 0, 64), "tensor `a`", "more than 2^64 bytes"),
        ("offset_past_end", a(&[32], 0, 1 << 40, 128), "tensor `a`", "gap"),
        ("offset_near_2e64", a(&[32], 0, u64::MAX - 31, 128), "tensor `a`", "offset"),
        ("offset_not_aligned", a(&[32], 0, 4, 160), "tensor `a`", "not a multiple of the alignment 32"),
        ("offset_off_by_32", a(&[32], 0, 32, 160), "tensor `a`", "is 32, expected 0"),
        ("overlap", with_tensors(pair("b", 64), 192), "tensor `b`", "overlaps"),
        ("gap", with_tensors(pair("b", 256), 512), "tensor `b`", "gap"),
        ("same_offset", with_tensors(pair("b", 0), 256), "tensor `b`", "overlaps"),
        ("one_byte_short", short, "tensor `a`", "past the end of the file"),
        ("larger_than_file", a(&[1 << 40], 0, 0, 128), "tensor `a`", "past the end of the file"),
        ("type_200", a(&[32], 200, 0, 128), "`a`", "200 (unknown"),
        ("types_1000", with_tensors(many_types, 0), "`0`", "and 996 more types"),
        ("type_removed", a(&[32], 4, 0, 128), "`a`", "4 = Q4_2 (removed"),
        ("type_of_a_fork", a(&[32], 153, 0, 128), "`a`", "153 = IQ2_KT (known to ik_llama.cpp only"),
        (
            "row_not_whole_blocks",
            a(&[33], 8, 0, 128),
            "tensor `a`",
            "33 elements is not a multiple of the 32 of a Q8_0 block",
        ),
        (
            "name_of_64",
            with_tensors(vec![tensor(&long_name, &[32], 0, 0)], 128),
            "tensor record 0",
            "at most 63",
        ),
        (
            "name_empty",
            with_tensors(vec![tensor("", &[32], 0, 0)], 128),
            "tensor record 0",
            "the name is empty",
        ),
        ("name_twice", with_tensors(pair("a", 128), 256), "tensor `a`", "occurs twice"),
        ("cut_in_header", cut, "tensor", "the file ends here"),
    ]
}

#[test]
fn g2_hostile_headers_are_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes, place, what) in [counts(), values(), keys(), tensor_records()].concat() {
        let path = folder.path().join(format!("bad_{name}.gguf"));
        fs::write(&path, bytes).unwrap();
        let start = Instant::now();
        let error = Reader::open(&path).err().unwrap_or_else(|| panic!("{name} was accepted")).to_string();
        assert!(start.elapsed() < Duration::from_secs(1), "{name} took {:?}", start.elapsed());
        assert!(error.contains(place) && error.contains(what), "{name}: {error}");
        assert!(error.contains(&format!("bad_{name}.gguf")), "{name} does not name the file: {error}");
        assert!(
            error.len() < 500 + folder.path().as_os_str().len() && !error.contains('\n'),
            "{name}: {error}"
        );
    }
    // Many records that only lie at the end: the reader has parsed them all by then.
    let records: Vec<Vec<u8>> = (0..200_000).map(|i| tensor(&format!("{i:06}"), &[32], 0, 1 << 40)).collect();
    let path = folder.path().join("many.gguf");
    fs::write(&path, with_tensors(records, 0)).unwrap();
    assert!(Reader::open(&path).is_err());
    assert!(peak_memory() < 100 << 20, "peak memory {} MiB", peak_memory() >> 20);
    let good = Raw { records: vec![text("general.architecture", "llama")], ..Raw::default() };
    fs::write(&path, good.bytes()).unwrap();
    assert!(Reader::open(&path).is_ok(), "the builder itself makes good files");
}
