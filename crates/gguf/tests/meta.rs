//! Typed look-up: as lenient as the readers that files are made for, and no further.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use shardwright_gguf::{Error, Meta, Strings, Value};

fn meta(value: impl Into<Value>) -> Meta {
    let mut meta = Meta::new();
    meta.set("key", value);
    meta
}

/// The error for `key`, with what was found and what was wanted.
fn refused<T: std::fmt::Debug>(result: shardwright_gguf::Result<T>, parts: &[&str]) {
    let error = result.unwrap_err();
    assert!(matches!(&error, Error::KeyValue { key, .. } if key == "key"), "{error}");
    assert!(parts.iter().all(|p| error.to_string().contains(p)), "{error}\nshould contain {parts:?}");
}

#[test]
fn integers_of_any_width_are_taken_if_they_fit() {
    let of_seven: [Value; 8] = [
        7u8.into(),
        7i8.into(),
        7u16.into(),
        7i16.into(),
        7u32.into(),
        7i32.into(),
        7u64.into(),
        7i64.into(),
    ];
    for value in of_seven {
        let meta = meta(value);
        assert_eq!(meta.need::<u32>("key").unwrap(), 7);
        assert_eq!(meta.need::<usize>("key").unwrap(), 7);
        assert_eq!(meta.need::<i64>("key").unwrap(), 7);
        assert_eq!(meta.may::<u64>("key").unwrap(), Some(7));
    }
    assert_eq!(meta(u64::MAX).need::<u64>("key").unwrap(), u64::MAX);
    refused(meta(-1i32).need::<u32>("key"), &["the i32 -1", "0 to 2^32 - 1"]);
    refused(meta(-1i64).need::<usize>("key"), &["the i64 -1"]);
    refused(meta(1u64 << 32).need::<u32>("key"), &["the u64 4294967296"]);
    refused(meta(u64::MAX).need::<i64>("key"), &["the u64 18446744073709551615"]);
    refused(meta(7.0f32).need::<u32>("key"), &["the f32 7"]);
    refused(meta(true).need::<u32>("key"), &["the bool true"]);
    refused(meta("7").need::<u32>("key"), &["the string \"7\""]);
}

#[test]
fn floats_must_be_finite() {
    assert_eq!(meta(0.5f32).need::<f64>("key").unwrap(), 0.5);
    assert_eq!(meta(0.1f64).need::<f32>("key").unwrap(), 0.1);
    refused(meta(f32::NAN).need::<f32>("key"), &["the f32 NaN", "finite"]);
    refused(meta(f64::INFINITY).need::<f64>("key"), &["the f64 inf"]);
    refused(meta(1e300f64).need::<f32>("key"), &["within the range of f32"]);
    refused(meta(1u32).need::<f32>("key"), &["the u32 1"]);
}

#[test]
fn strings_bools_and_lists() {
    assert_eq!(meta("ü").need::<String>("key").unwrap(), "ü");
    refused(meta(Value::String(vec![0xFF])).need::<String>("key"), &["UTF-8"]);
    assert!(meta(true).need::<bool>("key").unwrap());
    refused(meta(1u8).need::<bool>("key"), &["the u8 1", "a bool"]);
    assert_eq!(meta(vec![1i32, 2]).need::<Vec<u32>>("key").unwrap(), [1, 2]);
    assert_eq!(meta(vec![0.5f32]).need::<Vec<f64>>("key").unwrap(), [0.5]);
    refused(meta(vec![1i32, -2]).need::<Vec<u32>>("key"), &["the i32 -2 at index 1"]);
    refused(meta(1u32).need::<Vec<u32>>("key"), &["the u32 1", "an array"]);
    refused(meta(vec![1u32]).need::<u32>("key"), &["array of u32 of 1 elements"]);
    let texts: Strings = [&b"a"[..], &[0xFF]].into_iter().collect();
    assert_eq!(meta(texts.clone()).need_strings("key").unwrap().get(1), Some(&[0xFF][..]));
    refused(meta(texts).need::<Vec<String>>("key"), &["index 1"]);
    refused(meta(1u32).need_strings("key").map(Strings::len), &["an array of strings"]);
}

#[test]
fn one_value_per_layer() {
    let layers = |value: Value| meta(value).need_per_layer::<u32>("key", 3);
    assert_eq!(layers(5u32.into()).unwrap(), [5; 3]);
    assert_eq!(layers(vec![1i32, 2, 3].into()).unwrap(), [1, 2, 3]);
    assert_eq!(layers(vec![true, false, true].into()).unwrap(), [1, 0, 1]);
    refused(layers(vec![1i32, 2].into()), &["an array of 2 elements", "3 of them"]);
    refused(layers(vec![1i32, -2, 3].into()), &["the i32 -2 at index 1"]);
    refused(layers("x".into()), &["the string"]);
    let flags = |value: Value| meta(value).need_per_layer::<bool>("key", 2);
    assert_eq!(flags(vec![true, false].into()).unwrap(), [true, false]);
    assert_eq!(flags(vec![1u32, 0].into()).unwrap(), [true, false]);
    refused(flags(vec![1u32, 2].into()), &["the u32 2 at index 1"]);
    assert_eq!(Meta::new().may_per_layer::<u32>("key", 3).unwrap(), None);
}

#[test]
fn a_missing_key_is_named() {
    let empty = Meta::new();
    assert_eq!(empty.may::<u32>("llama.x").unwrap(), None);
    for error in [
        empty.need::<u32>("llama.x").unwrap_err(),
        empty.need_strings("llama.x").unwrap_err(),
        empty.need_per_layer::<u32>("llama.x", 2).unwrap_err(),
    ] {
        assert_eq!(error.to_string(), "the key `llama.x` is missing from the metadata");
    }
}

#[test]
fn order_is_kept_and_values_replaced() {
    let mut meta = Meta::new();
    ["b", "a", "c"].iter().for_each(|k| meta.set(k, 1u32));
    meta.set("a", 2u32);
    let records: Vec<_> = meta.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(records, ["b=1", "a=2", "c=1"]);
}

#[test]
fn values_are_shown_short() {
    let check = |value: Value, expected: &str| assert_eq!(value.to_string(), expected);
    check("a\nb".into(), "\"a\\nb\"");
    check("x".repeat(100).into(), &format!("\"{}\"…", "x".repeat(60)));
    check((0..9u32).collect::<Vec<_>>().into(), "[0, 1, 2, 3, 4, 5, … 9 in all]");
    check(Value::from(Vec::<f32>::new()), "[]");
}
