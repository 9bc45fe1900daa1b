//! The tokenizer against llama.cpp's ids and against the field cases, on metadata alone: no weights, no server.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;
use serde_json::Value;
use shardwright_gguf::{Meta, Reader};
use shardwright_text::template::Segment;
use shardwright_text::tokenizer::{Special, Tokenizer, TokenizerOptions};

mod common;
use common::{Vocabulary, busy};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data")
}

fn open(model: &Path) -> Tokenizer {
    Tokenizer::from_meta(Reader::open(model).unwrap().meta()).unwrap()
}

fn ids(v: &Value) -> Vec<u32> {
    v.as_array().unwrap().iter().map(|i| u32::try_from(i.as_u64().unwrap()).unwrap()).collect()
}

/// Every string of a vector file must give the same ids, with and without markers, and must come back.
fn check_vectors(vectors: &Path, model: &Path) {
    let start = busy();
    let tokenizer = open(model);
    println!("{}: {} tokens in {:?}", model.display(), tokenizer.vocab_len(), busy() - start);
    let doc: Value = serde_json::from_slice(&std::fs::read(vectors).unwrap()).unwrap();
    let rows = doc["vectors"].as_array().unwrap();
    assert_eq!(rows.len(), 321);
    let mut wrong = Vec::new();
    for row in rows {
        let text = row["text"].as_str().unwrap();
        let plain = ids(&row["ids"]);
        let parsed = row.get("ids_parse_special").map_or_else(|| plain.clone(), ids);
        for (special, expected) in [(Special::AsText, plain), (Special::Parse, parsed)] {
            let got = tokenizer.encode(text, special).unwrap();
            assert!(tokenizer.least(text) <= got.len(), "{text:?} {special:?}");
            if got != expected {
                wrong.push(format!("{text:?} {special:?}: {got:?}, expected {expected:?}"));
            }
            let back = tokenizer.decode(&expected, true).unwrap();
            let pieces =
                row.get("pieces_hex").map_or_else(|| text.as_bytes().to_vec(), |h| hex(h.as_str().unwrap()));
            if back != pieces {
                wrong.push(format!("{text:?}: comes back as {:?}", String::from_utf8_lossy(&back)));
            }
        }
    }
    for (text, expected) in doc["with_bos_eos"].as_object().unwrap() {
        let got = tokenizer.with_bos_eos(tokenizer.encode(text, Special::Parse).unwrap());
        if got != ids(expected) {
            wrong.push(format!("{text:?} with begin and end: {got:?}, expected {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}: {} wrong\n{}", vectors.display(), wrong.len(), wrong.join("\n"));
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

#[test]
fn vectors_of_the_tiny_vocabularies() {
    for (name, model) in [
        ("glm", "glm-dsa-tp8-kq"),
        ("deepseek", "deepseek2-v3-f32"),
        ("llama", "llama-f32"),
        ("qwen", "qwen3-bf16"),
    ] {
        check_vectors(
            &data().join(format!("tokenizer/tiny-{name}.json")),
            &data().join(format!("models/{model}.gguf")),
        );
    }
}

/// `SHARDWRIGHT_ORACLE` is the folder with `tokenizer/NAME.json`, `SHARDWRIGHT_MODELS` holds the files of those names.
#[test]
fn vectors_of_real_vocabularies() {
    let (Some(oracle), Some(models)) =
        (std::env::var_os("SHARDWRIGHT_ORACLE"), std::env::var_os("SHARDWRIGHT_MODELS"))
    else {
        println!("skipped: SHARDWRIGHT_ORACLE or SHARDWRIGHT_MODELS is not set");
        return;
    };
    for (name, file) in [
        ("smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
        ("gemma3", "gemma-3-270m-q4_k_m.gguf"),
        ("deepseek_v3", "vocab-deepseek_v3.gguf"),
        ("llama3", "vocab-llama3.gguf"),
        ("qwen3", "vocab-qwen3.gguf"),
    ] {
        check_vectors(
            &Path::new(&oracle).join(format!("tokenizer/{name}.json")),
            &Path::new(&models).join(file),
        );
    }
}

fn count(pre: &str, text: &str) -> usize {
    let merges = [("5", "0"), ("50", "1"), ("3", "4"), ("'", "T"), (".", "g"), ("(", "x")];
    Vocabulary::new(pre).merges(&merges).tokenizer().encode(text, Special::Parse).unwrap().len()
}

#[test]
fn t1_counts_follow_the_named_pre_tokenizer() {
    for (text, expected) in [
        ("rfid501.go", [7, 9, 8]),
        ("1234567", [7, 7, 6]),
        ("DON'T", [4, 4, 5]),
        ("f(x)=2", [5, 5, 6]),
        ("日本語501年", [13, 15, 13]),
    ] {
        assert_eq!(["glm4", "qwen2", "gpt-2"].map(|pre| count(pre, text)), expected, "{text}");
    }
}

#[test]
fn t1_an_unknown_pre_tokenizer_is_refused_unless_replaced() {
    let meta = Vocabulary::new("no-such-name").meta();
    let message = Tokenizer::from_meta(&meta).unwrap_err().to_string();
    assert!(message.contains("no-such-name") && message.contains("tokenizer.ggml.pre"), "{message}");
    let options = TokenizerOptions { pre: Some("glm4".to_owned()) };
    assert!(Tokenizer::from_meta_with(&meta, &options).is_ok());
}

#[test]
fn t2_untrusted_text_never_becomes_a_marker() {
    let tokenizer = Vocabulary::new("glm4").specials(&["<|user|>", "<|assistant|>", "<think>"]).tokenizer();
    let segment = |text: &str, trusted| Segment { text: text.to_owned(), trusted };
    let split = [segment("<|user|>A", true), segment("<", false), segment("|user|>B", true)];
    assert_eq!(tokenizer.encode_segments(&split).unwrap().len(), 11);
    assert_eq!(tokenizer.encode("A<|user|>B", Special::Parse).unwrap().len(), 3);
    assert_eq!(tokenizer.encode("A<|user|>B", Special::AsText).unwrap().len(), 10);
    let whole =
        [segment("<|us", true), segment("er|>", true), segment("<think>", false), segment("<think>", true)];
    assert_eq!(tokenizer.encode_segments(&whole).unwrap().len(), 1 + 7 + 1);
}

#[test]
fn t2_segments_do_not_change_how_text_is_split() {
    let tokenizer = open(&data().join("models/glm-dsa-tp8-kq.gguf"));
    let text = "In the beginning God created the heaven and the earth.\n\n  And";
    let whole = tokenizer.encode(text, Special::Parse).unwrap();
    for at in (0..text.len()).filter(|&i| text.is_char_boundary(i)) {
        let segment = |text: &str, trusted| Segment { text: text.to_owned(), trusted };
        let parts = [segment(&text[..at], true), segment(&text[at..], false)];
        assert_eq!(tokenizer.encode_segments(&parts).unwrap(), whole, "cut at {at}");
    }
}

#[test]
fn t3_long_inputs_take_near_linear_time() {
    let tiny = open(&data().join("models/glm-dsa-tp8-kq.gguf"));
    let chain = Vocabulary::new("glm4").merges(&[("a", "a"), ("aa", "aa"), ("1", "1")]).tokenizer();
    let kimi = Vocabulary::new("kimi-k2").merges(&[("a", "a"), ("aa", "aa")]).without_merges().tokenizer();
    let spm = Vocabulary::new("default").sentence_piece(&["aa", "aaaa", "▁▁"]).tokenizer();
    let gpt2 = Vocabulary::new("gpt-2").merges(&[(" ", " ")]).tokenizer();
    let deepseek = Vocabulary::new("deepseek-llm").tokenizer();
    let inputs = [
        "a".repeat(1_000_000),
        " ".repeat(1_000_000),
        " ".repeat(1_000_000) + "x",
        "\n".to_owned() + &" ".repeat(1_000_000) + "x",
        "/".repeat(300_000),
        "é".repeat(200_000),
        "1".repeat(500_000),
        "a\n".repeat(500_000),
        "A".repeat(1_000_000),
        " \t".repeat(200_000) + "漢",
    ];
    let mut all = vec![
        ("tiny", tiny),
        ("chain", chain),
        ("kimi", kimi),
        ("spm", spm),
        ("gpt2", gpt2),
        ("deepseek-llm", deepseek),
    ];
    if let Some(models) = std::env::var_os("SHARDWRIGHT_MODELS") {
        all.push(("llama3", open(&Path::new(&models).join("vocab-llama3.gguf"))));
    }
    for (name, tokenizer) in all {
        for text in &inputs {
            let start = busy();
            let ids = tokenizer.encode(text, Special::Parse).unwrap();
            let spent = busy() - start;
            let least = tokenizer.least(text);
            // Llama 3 has the longest tokens, of 128 letters
            let longest = text.chars().count().div_ceil(128);
            assert!((longest..=ids.len()).contains(&least), "{name}: {least} of {}", ids.len());
            let head: String = text.chars().take(3).collect();
            println!("{name}: {} bytes of {head:?} in {spent:?}", text.len());
            assert!(spent < Duration::from_secs(3), "{name}: {} x {head:?} took {spent:?}", text.len());
            assert_eq!(tokenizer.decode(&ids, true).unwrap(), text.as_bytes(), "{name} {head:?}");
        }
    }
}

#[test]
fn the_least_number_of_tokens_is_known_beforehand() {
    let check = |tokenizer: &Tokenizer, text: &str, least: usize| {
        assert_eq!(tokenizer.least(text), least, "{text}");
        assert!(tokenizer.encode(text, Special::Parse).unwrap().len() >= least, "{text}");
    };
    let vocabulary = Vocabulary::new("glm4").merges(&[("a", "a"), ("aa", "aa"), ("b", "é")]);
    let tokenizer = vocabulary.specials(&["<|x|>"]).tokenizer();
    check(&tokenizer, "", 0);
    check(&tokenizer, "aaaaaaaa", 2);
    check(&tokenizer, "aaaaaaaaa", 3);
    check(&tokenizer, "bébé", 2);
    check(&tokenizer, "cccc", 4);
    check(&tokenizer, "<|x|><|x|>", 2);
    let spm = Vocabulary::new("default").sentence_piece(&["▁▁", "▁▁▁▁"]).tokenizer();
    check(&spm, "▁▁▁▁▁▁▁▁", 2);
    check(&spm, "a", 1);
}

#[test]
fn s6_every_end_token_of_the_file_is_one() {
    let vocabulary =
        Vocabulary::new("glm4").specials(&["<|user|>", "<|observation|>", "<|stop|>", "<|im_end|>"]);
    let id = |t: &str| vocabulary.tokenizer().token_id(t).unwrap();
    let with = |f: &dyn Fn(&mut Meta)| {
        let mut meta = vocabulary.meta();
        f(&mut meta);
        Tokenizer::from_meta(&meta).unwrap().end_tokens().to_vec()
    };
    let by_text = [id("<eos>"), id("<|user|>"), id("<|observation|>"), id("<|im_end|>")];
    assert_eq!(with(&|_| ()), by_text);
    let stop = id("<|stop|>");
    let mut all = [&by_text[..], &[stop]].concat();
    all.sort_unstable();
    assert_eq!(with(&|m| m.set("tokenizer.ggml.eom_token_id", stop)), all);
    let glm = open(&data().join("models/glm-dsa-tp8-kq.gguf"));
    assert_eq!(glm.end_tokens(), [496, 503, 505]);
    assert_eq!((glm.prefix(), glm.suffix()), (None, None));
}

#[test]
fn broken_vocabularies_are_refused_by_key() {
    let check = |change: &dyn Fn(&mut Meta), expected: &str| {
        let mut meta = Vocabulary::new("glm4").specials(&["<|user|>"]).meta();
        change(&mut meta);
        let message = Tokenizer::from_meta(&meta).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}, expected to name {expected}");
    };
    check(&|m| m.set("tokenizer.ggml.model", "wordpiece"), "wordpiece");
    // found by fuzzing: a name went to the terminal as it was
    check(&|m| m.set("tokenizer.ggml.model", "\u{1b}[2J\n"), "`\\u{1b}[2J\\n`");
    check(&|m| m.set("tokenizer.ggml.pre", "\u{1b}[2J\n"), "`\\u{1b}[2J\\n`");
    check(&|m| m.set("tokenizer.ggml.token_type", vec![1i32; 3]), "tokenizer.ggml.token_type");
    check(&|m| m.set("tokenizer.ggml.token_type", vec![9i32; 258]), "is 9 for token 0");
    check(&|m| m.set("tokenizer.ggml.eos_token_id", 258u32), "tokenizer.ggml.eos_token_id");
    check(&|m| m.set("tokenizer.ggml.merges", 1u32), "tokenizer.ggml.merges");
    check(&|m| *m = Meta::new(), "tokenizer.ggml.model");
}

#[test]
fn oddities_are_counted_and_survived() {
    let mut meta = Vocabulary::new("glm4").merges(&[("a", "b")]).doubles(&["x", "[PAD7]"]).meta();
    meta.set("tokenizer.ggml.merges", common::strings(&["a b", "a nosuch", "broken", "", " ", "a c"]));
    let tokenizer = Tokenizer::from_meta(&meta).unwrap();
    let warnings = tokenizer.warnings().join("\n");
    assert!(warnings.contains("5 of 6 merges") && warnings.contains("repeat the text"), "{warnings}");
    assert_eq!(tokenizer.encode("abx", Special::Parse).unwrap().len(), 2);
    assert_eq!(tokenizer.token_id("x"), Some(u32::from(b'x')));
    assert_eq!(tokenizer.unusable_tokens(), [tokenizer.token_id("[PAD7]").unwrap()]);
}

#[test]
fn a_missing_byte_is_named() {
    let mut meta = Vocabulary::new("glm4").meta();
    meta.set("tokenizer.ggml.tokens", common::strings(&["a", "b"]));
    meta.set("tokenizer.ggml.token_type", vec![1i32, 1]);
    meta.set("tokenizer.ggml.eos_token_id", 1u32);
    let tokenizer = Tokenizer::from_meta(&meta).unwrap();
    assert_eq!(tokenizer.encode("ab", Special::Parse).unwrap(), [0, 1]);
    assert!(tokenizer.encode("abc", Special::Parse).unwrap_err().to_string().contains("0x63"));
}

proptest! {
    #[test]
    fn text_comes_back(text in ".{0,80}", spaced in "[ \\n\\t\\ra-c1é漢'.]{0,80}") {
        thread_local! {
            static ALL: Vec<Tokenizer> = ["glm-dsa-tp8-kq", "deepseek2-v3-f32", "llama-f32", "qwen3-bf16"]
                .map(|m| open(&data().join(format!("models/{m}.gguf"))))
                .into_iter()
                .chain(["gpt-2", "smollm", "deepseek-llm", "deepseek-coder", "chatglm-bpe"].map(|p| Vocabulary::new(p).tokenizer()))
                .chain([Vocabulary::new("kimi-k2").merges(&[("a", "b"), ("1", "1")]).without_merges().tokenizer()])
                .chain([Vocabulary::new("default").sentence_piece(&["ab", "▁a"]).tokenizer()])
                .collect();
        }
        ALL.with(|all| {
            for tokenizer in all {
                for text in [&text, &spaced] {
                    let marked = format!("{text}▁▁a▁");
                    assert!(tokenizer.least(&marked) <= tokenizer.encode(&marked, Special::Parse).unwrap().len());
                    // SentencePiece cannot tell its own mark from a space.
                    let text = text.replace('▁', "_");
                    for special in [Special::AsText, Special::Parse] {
                        let ids = tokenizer.encode(&text, special).unwrap();
                        assert!(tokenizer.least(&text) <= ids.len());
                        assert_eq!(tokenizer.decode(&ids, true).unwrap(), text.as_bytes());
                    }
                }
            }
        });
    }
}
