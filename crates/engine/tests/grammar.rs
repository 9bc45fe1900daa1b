//! Answers that keep to a grammar, whatever the model would rather say; case A4.
#![allow(clippy::unwrap_used)]

use serde_json::{Value as Json, json};
use shardwright_engine::generate::Generator;
use shardwright_engine::grammar::{Grammar, Grammars};
use shardwright_engine::reader::Reader;
use shardwright_engine::request::{Finish, Part, Request};
use shardwright_engine::sample::Sampling;
use shardwright_engine::{Error, Result};
use shardwright_model::exec::*;
use shardwright_text::tokenizer::{Special, Tokenizer};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Logits without any sense.
struct Noise(Limits);

impl Executor for Noise {
    fn limits(&self) -> Limits {
        self.0
    }
    fn step_probed(
        &mut self,
        batch: &StepBatch,
        _: Option<&mut dyn Probe>,
    ) -> std::result::Result<StepOutput, ExecError> {
        let logit = |i: usize, id: usize| {
            let mixed = (id as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(batch.positions[i]);
            (mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as f32 / (1 << 22) as f32
        };
        let row = |i: usize| match batch.wants[i] {
            Want::Nothing => RowOutput::Nothing,
            _ => RowOutput::Logits((0..self.0.vocab).map(|id| logit(i, id)).collect()),
        };
        Ok(StepOutput { rows: (0..batch.rows()).map(row).collect(), hidden: Vec::new() })
    }
}

/// The demo model's vocabulary, and grammars over it.
fn demo() -> &'static (Arc<Tokenizer>, Grammars, usize) {
    static DEMO: OnceLock<(Arc<Tokenizer>, Grammars, usize)> = OnceLock::new();
    DEMO.get_or_init(|| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/glm-dsa-demo-UD-Q4_K_XL.gguf");
        let tokenizer = Tokenizer::from_meta(shardwright_gguf::Reader::open(&path).unwrap().meta()).unwrap();
        // a few rows of the model have no token
        let vocab = tokenizer.vocab_len() + 5;
        // a machine that runs many tests may be slow
        let grammars = Grammars::new(&tokenizer, vocab, []).unwrap().patient(Duration::from_secs(60));
        (Arc::new(tokenizer), grammars, vocab)
    })
}

/// The text that follows a prompt, and how it ended.
fn answer(prompt: &str, grammar: &Grammar, seed: u64, max_tokens: usize) -> Result<(String, Finish)> {
    let (tokenizer, grammars, vocab) = demo();
    let limits =
        Limits { vocab: *vocab, rows: 8, blocks: 64, context: 4096, width: 1, drafts: false, takes: 0 };
    let mut generator = Generator::new(Box::new(Noise(limits)), tokenizer.end_tokens().iter().copied());
    generator.submit(Request {
        guide: Some(grammars.guide(grammar)?),
        sampling: Sampling { temperature: 1.0, seed, ..Sampling::default() },
        max_tokens: Some(max_tokens),
        reader: Reader::text(tokenizer.clone(), &[]),
        ..Request::new(tokenizer.encode(prompt, Special::AsText).unwrap())
    })?;
    loop {
        for reply in generator.step().unwrap() {
            match reply.part {
                Part::Done(done) => return Ok((done.message.content, done.finish)),
                Part::Failed(e) => return Err(e),
                Part::Started { .. } | Part::Prompt(_) | Part::Token { .. } => {}
            }
        }
    }
}

/// All finished answers of many seeds are right; some finish.
fn check(grammar: &Grammar, is_right: impl Fn(&str) -> bool) {
    let mut finished = 0;
    for seed in 0..20 {
        let (text, finish) = answer("Say:", grammar, seed, 200).unwrap();
        if finish == Finish::EndToken {
            assert!(is_right(&text), "{text:?}");
            finished += 1;
        }
    }
    assert!(finished > 0, "none of the answers ended");
}

fn schema(schema: &Json) -> Grammar {
    Grammar::JsonSchema(schema.clone())
}

#[test]
fn a4_schemas_with_references_are_kept() {
    let s1 = json!({"type": "object", "properties": {"k": {"$ref": "#/$defs/e"}, "l": {"type": "array",
        "items": {"$ref": "#/$defs/e"}, "minItems": 1, "maxItems": 2}}, "required": ["k", "l"],
        "additionalProperties": false, "$defs": {"e": {"enum": ["aa", "b\"b", "ü"]}}});
    let is_e = |e: &Json| ["aa", "b\"b", "ü"].iter().any(|text| e == text);
    check(&schema(&s1), |text| {
        let found: Json = serde_json::from_str(text).unwrap();
        let items = found["l"].as_array().unwrap();
        found.as_object().unwrap().len() == 2
            && is_e(&found["k"])
            && (1..=2).contains(&items.len())
            && items.iter().all(is_e)
    });
    let s2 = json!({"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"v": {"type": "integer"},
        "next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}}, "required": ["v", "next"],
        "additionalProperties": false}}});
    check(&schema(&s2), |text| {
        let mut at: &Json = &serde_json::from_str(text).unwrap();
        while !at.is_null() {
            assert!(at["v"].is_number() && at.as_object().unwrap().len() == 2, "{text}");
            at = &at["next"];
        }
        true
    });
    let s5 = json!({"$ref": "#/properties/a/items",
        "properties": {"a": {"type": "array", "items": {"type": "boolean"}}}});
    check(&schema(&s5), |text| matches!(text.trim(), "true" | "false"));
}

#[test]
fn a4_schemas_that_cannot_be_kept_are_refused() {
    let (_, grammars, _) = demo();
    let check = |schema: Json, says: &str| {
        let error = grammars.guide(&Grammar::JsonSchema(schema)).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("the JSON schema cannot be used: ") && text.contains(says), "{text}");
        assert!(!text.contains('\n') && text.len() < 400, "{text}");
    };
    check(json!({"$ref": "#/$defs/n", "$defs": {"n": {"$ref": "#/$defs/n"}}}), "`#/$defs/n/$ref`: ");
    check(json!({"type": "not-a-type"}), "`#/type`: `not-a-type`");
    check(json!({"$ref": "http://example.com/x"}), "`#/$ref`: `http://example.com/x`");
    check(json!({"enum": []}), "");
    check(json!({"type": "string", "minLength": 3, "maxLength": 2}), "");
    check((0..200).fold(json!({}), |inner, _| json!({"items": inner})), "nests");
}

#[test]
fn regular_expressions_are_kept() {
    let regex = |text: &str| Grammar::Regex(text.into());
    check(&regex("[a-c]{3}-[0-9]{2}"), |text| {
        let (letters, digits) = text.split_once('-').unwrap();
        letters.len() == 3 && digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_digit())
    });
    check(&regex("(ja|nein)"), |text| ["ja", "nein"].contains(&text));
    check(&regex("ü{1,3}/"), |text| ["ü/", "üü/", "üüü/"].contains(&text));
}

#[test]
fn lark_grammars_are_kept() {
    let lark = Grammar::Lark("start: \"(\" item (\",\" item)* \")\"\nitem: /[0-9]/ | start\n".into());
    check(&lark, |text| {
        let depth = text.bytes().try_fold(0i32, |depth, byte| match byte {
            b'(' => Some(depth + 1),
            b')' => Some(depth - 1),
            b',' | b'0'..=b'9' => Some(depth),
            _ => None,
        });
        depth == Some(0)
    });
}

/// A grammar is about the answer, from its first byte on, wherever the prompt was cut.
#[test]
fn the_prompt_may_end_anywhere() {
    for prompt in ["{\"na", "{\"name", "{\"name\": \"J", "The quick bro"] {
        let (text, finish) = answer(prompt, &Grammar::Regex("me\": 1}|wn".into()), 3, 50).unwrap();
        assert!(["me\": 1}", "wn"].contains(&text.as_str()), "{text:?}");
        assert_eq!(finish, Finish::EndToken);
    }
}

#[test]
fn a_cut_answer_is_the_beginning_of_a_right_one() {
    let (text, finish) = answer("Say:", &Grammar::Regex("(abc){100}".into()), 1, 20).unwrap();
    assert_eq!(finish, Finish::MaxTokens);
    assert!("abc".repeat(100).starts_with(&text) && text.len() >= 20);
}

/// Hostile or senseless grammars: one line of error, soon. Never a hang, never a panic.
#[test]
fn impossible_grammars_are_errors() {
    let (_, grammars, _) = demo();
    let check = |grammar: Grammar| {
        let started = Instant::now();
        let Err(error) = grammars.guide(&grammar) else {
            panic!("taken: {:.100}", format!("{grammar:?}"));
        };
        assert!(matches!(&error, Error::Grammar { why, .. } if !why.is_empty()), "{error}");
        let text = error.to_string();
        assert!(!text.contains('\n') && !text.contains("panic") && text.len() < 400, "{text}");
        assert!(started.elapsed() < Duration::from_secs(5), "{:?} for {text}", started.elapsed());
    };
    let regex = |text: &str| Grammar::Regex(text.into());
    let lark = |text: &str| Grammar::Lark(text.into());
    check(regex("[^\\s\\S]"));
    check(regex("a["));
    check(regex(&"(".repeat(100_000)));
    check(regex(&"a".repeat(2 << 20)));
    check(lark(""));
    check(lark("start: start \"a\"\n"));
    check(lark("start: nobody\n"));
    check(lark(&format!("start: {}", "(".repeat(100_000))));
    check(lark("start: <no_such_token>\n"));
    check(lark("start: /a/ %%%\n"));
}

/// Schemas made to exhaust something: taken or refused, but soon, and never by the end of the process.
#[test]
fn hostile_schemas_do_no_harm() {
    let (_, grammars, _) = demo();
    let chain = |n: usize, inner: &dyn Fn(String) -> Json| {
        let defs: serde_json::Map<String, Json> =
            (0..n).map(|i| (format!("d{i}"), inner(format!("#/$defs/d{}", i + 1)))).collect();
        let mut schema = json!({"$ref": "#/$defs/d0", "$defs": defs});
        schema["$defs"][format!("d{n}")] = json!({"type": "null"});
        schema
    };
    let check = |what: &str, schema: Json| {
        let started = Instant::now();
        let taken = grammars.guide(&Grammar::JsonSchema(schema)).err().map(|e| e.to_string());
        let took = started.elapsed();
        println!("{what}: {took:?} {taken:?}");
        assert!(took < Duration::from_secs(30), "{what} took {took:?}");
        assert!(taken.is_none_or(|text| !text.contains("panic") && text.len() < 400), "{what}");
    };
    check("too many references", chain(10_000, &|next| json!({"$ref": next})));
    check("references", chain(1_999, &|next| json!({"$ref": next})));
    check("references in arrays", chain(1_999, &|next| json!({"items": {"items": {"$ref": next}}})));
    check("references in choices", chain(1_999, &|next| json!({"anyOf": [{"$ref": next}, {"$ref": next}]})));
    check("all of references", chain(1_999, &|next| json!({"allOf": [{"$ref": next}, {"$ref": next}]})));
    check("one of references", chain(300, &|next| json!({"oneOf": [{"$ref": next}, {"$ref": next}]})));
    check("many items", json!({"type": "array", "items": {"type": "integer"}, "minItems": 1_000_000}));
    check("a long text", json!({"type": "string", "minLength": 1_000_000, "maxLength": 1_000_000_000}));
    check("a pattern", json!({"type": "string", "pattern": "((a{1,500}){1,500}){1,500}"}));
    let names: Vec<String> = (0..50_000).map(|i| format!("name{i}")).collect();
    check("many names", json!({"enum": names}));
    let fields: serde_json::Map<String, Json> =
        (0..5_000).map(|i| (format!("f{i}"), json!({"type": "integer"}))).collect();
    let fields = Grammar::JsonSchema(json!({"type": "object", "properties": fields}));
    let hasty = grammars.clone().patient(Duration::from_millis(100));
    let error = hasty.guide(&fields).unwrap_err().to_string();
    assert!(error.contains("longer than 100ms"), "{error}");
    check("a huge number", json!({"type": "number", "minimum": 1e300, "multipleOf": 1e-300}));
    check("integers", json!({"type": "integer", "minimum": -9_007_199_254_740_991i64, "multipleOf": 7919}));
}

/// What compiles must not take for ever to follow either.
#[test]
fn heavy_grammars_end_in_time() {
    let started = Instant::now();
    for grammar in [
        Grammar::Regex("(a?){50}a{50}".into()),
        Grammar::Regex("((((a{1,1000}){1,1000}){1,1000}){1,1000}){1,1000}b".into()),
        Grammar::Regex("(.*a){20}".into()),
        Grammar::Lark("start: a*\na: b*\nb: \"x\"?\n".into()),
        Grammar::Lark("start: start start | \"a\"\n".into()),
    ] {
        match answer("Say:", &grammar, 7, 60) {
            Ok(_) | Err(Error::Guide(_) | Error::Grammar { .. }) => {}
            Err(e) => panic!("{e}"),
        }
    }
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
}

/// And do not touch each other.
#[test]
fn a4_a_regular_expression_that_explodes_is_refused_soon() {
    let (tokenizer, _, vocab) = demo();
    // with the usual patience
    let grammars = Grammars::new(tokenizer, *vocab, []).unwrap();
    let begun = Instant::now();
    let regex = "((a?){50}){50}a{5000}";
    for grammar in
        [Grammar::Regex(regex.into()), schema(&json!({"items": {"type": "string", "pattern": regex}}))]
    {
        let e = grammars.guide(&grammar).unwrap_err();
        assert!(matches!(e, Error::Grammar { .. }) && e.to_string().contains("2500 times"), "{e}");
    }
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

#[test]
fn marks_are_no_text() {
    let (tokenizer, _, vocab) = demo();
    let mark = tokenizer.token_id("</think>").unwrap();
    let grammars = Grammars::new(tokenizer, *vocab, [mark]).unwrap();
    let begin = |grammar: &Grammar, said: &str| {
        let mut guide = grammars.guide(grammar).unwrap();
        for id in tokenizer.encode(said, Special::AsText).unwrap() {
            assert!(guide.allowed().unwrap().contains(id), "{said}");
            guide.accept(id).unwrap();
        }
        let allowed = guide.allowed().unwrap();
        (allowed.contains(mark), allowed.contains(tokenizer.token_id("a").unwrap()))
    };
    assert_eq!(begin(&schema(&json!({"type": "string"})), "\"x"), (false, true));
    assert_eq!(begin(&Grammar::Regex("x.*".into()), "x"), (false, true));
    assert_eq!(begin(&Grammar::Lark("start: \"x\" </think>".into()), "x"), (true, false));
}

#[test]
fn guided_and_free_requests_share_a_batch() {
    let (tokenizer, grammars, vocab) = demo();
    let limits =
        Limits { vocab: *vocab, rows: 8, blocks: 64, context: 512, width: 1, drafts: false, takes: 0 };
    let mut generator = Generator::new(Box::new(Noise(limits)), []);
    let request = |guide| Request {
        guide,
        max_tokens: Some(12),
        sampling: Sampling { temperature: 1.0, ..Sampling::default() },
        reader: Reader::text(tokenizer.clone(), &[]),
        ..Request::new(tokenizer.encode("Say:", Special::AsText).unwrap())
    };
    let guide = || Some(grammars.guide(&Grammar::Regex("[ab]{4}".into())).unwrap());
    let ids = [None, guide(), None, guide()].map(|guide| generator.submit(request(guide)).unwrap());
    let mut texts = vec![String::new(); 4];
    while !generator.is_idle() {
        for reply in generator.step().unwrap() {
            let which = ids.iter().position(|id| *id == reply.id).unwrap();
            match reply.part {
                Part::Done(done) => texts[which] = done.message.content,
                Part::Failed(e) => panic!("{e}"),
                Part::Started { .. } | Part::Prompt(_) | Part::Token { .. } => {}
            }
        }
    }
    assert_eq!((&texts[0], &texts[1]), (&texts[2], &texts[3]));
    assert!(texts[1].len() == 4 && texts[1].bytes().all(|b| matches!(b, b'a' | b'b')), "{texts:?}");
    assert!(texts[0].len() > 4);
}
