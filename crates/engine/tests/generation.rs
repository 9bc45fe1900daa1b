//! The generation loop: stop rules, limits, batching, chunks, the cache; cases S1, S2, S6, N2.
#![allow(clippy::unwrap_used)]

mod chain;

use chain::{Chain, Outcome, complete, drain};
use shardwright_engine::Error;
use shardwright_engine::generate::Generator;
use shardwright_engine::options::Options;
use shardwright_engine::reader::Reader;
use shardwright_engine::request::{Ending, Finish, Part, Reply, Request};
use shardwright_engine::sample::Sampling;
use shardwright_model::exec::{BLOCK, Limits};
use shardwright_model::null::Null;
use shardwright_text::reply::{self, Event, Syntax};

#[test]
fn s1_characters_that_span_tokens_arrive_whole() {
    let chain = Chain::new(&[])
        .script("A", &[b"ok ", b"\xf0\x9f", b"\x98", b"\x80", b"!", b"\xe8\xb5", b"\x8b"])
        .script("B", &[b"x", b"\xff", b"y"])
        .script("C", &[b"z", b"\xe2\x82"]);
    let check = |prompt: &str, max_tokens: Option<usize>, expected: &str| {
        let out = complete(&chain, Request { max_tokens, ..chain.request(prompt, &[]) });
        assert_eq!(out.done.message.content, expected);
        let bad = |d: &String| d.contains('\u{fffd}');
        assert_eq!(out.deltas.iter().any(bad), expected.contains('\u{fffd}'), "{:?}", out.deltas);
    };
    check("A", None, "ok 😀!赋");
    check("B", None, "x\u{fffd}y");
    check("C", None, "z\u{fffd}");
    check("A", Some(2), "ok \u{fffd}");
}

#[test]
fn s2_stop_strings_work_across_tokens() {
    let chain = Chain::new(&[]).script("A", &[b"The quick br", b"own f", b"ox jumps", b" over"]);
    let check = |stops: &[&str], max_tokens: Option<usize>, text: &str, finish: Finish| {
        let out = complete(&chain, Request { max_tokens, ..chain.request("A", stops) });
        assert_eq!((out.done.message.content.as_str(), out.done.finish), (text, finish), "{stops:?}");
    };
    check(&["own fox"], None, "The quick br", Finish::StopString);
    check(&["fox j"], None, "The quick brown ", Finish::StopString);
    check(&["ox jumps over!"], None, "The quick brown fox jumps over", Finish::EndToken);
    check(&["own fox"], Some(2), "The quick brown f", Finish::MaxTokens);
    check(&["jumps", "quick"], None, "The ", Finish::StopString);
    check(&["The"], None, "", Finish::StopString);
    check(&[""], None, "The quick brown fox jumps over", Finish::EndToken);
    check(&[], None, "The quick brown fox jumps over", Finish::EndToken);
    let out = complete(&chain, chain.request("A", &["jumps", "quick"]));
    assert_eq!(out.done.message.stop.as_deref(), Some("quick"));
    // text that cannot become the stop string is not delayed
    let out = complete(&chain, chain.request("A", &["own fox"]));
    assert_eq!(out.deltas[0], "The quick br");
}

#[test]
fn s6_every_end_token_ends_an_answer() {
    let chain = Chain::new(&["<|user|>", "<|observation|>"])
        .script("A", &[b"hi", b"<|user|>", b"LEAK"])
        .script("B", &[b"yo", b"<|observation|>", b"MORE"])
        .end("tokenizer.ggml.eot_token_id", "<|user|>")
        .end("tokenizer.ggml.eom_token_id", "<|observation|>");
    let check = |prompt: &str, ignore_eos: bool, text: &str, finish: Finish, answered: usize| {
        let ending = Ending { ignore_eos, ..Ending::default() };
        let request = Request { ending, max_tokens: Some(6), ..chain.request(prompt, &[]) };
        let done = complete(&chain, request).done;
        assert_eq!((done.message.content.as_str(), done.finish, done.answered), (text, finish, answered));
    };
    check("A", false, "hi", Finish::EndToken, 2);
    check("B", false, "yo", Finish::EndToken, 2);
    check("A", true, "hiLEAK", Finish::MaxTokens, 6);
}

#[test]
fn an_answer_can_be_told_where_it_may_end() {
    let chain =
        Chain::new(&[]).fork("A", &[("x", 0.6), ("<eos>", 0.4)]).fork("x", &[("<eos>", 0.9), ("y", 0.1)]);
    let mut chain = chain.fork("y", &[("x", 0.8), ("z", 0.2)]);
    let [x, y] = [b"x", b"y"].map(|piece| chain.id(piece));
    let check = |min_tokens: usize, tokens: &[u32], stops: &[&str], text: &str, finish: Finish| {
        let ending = Ending { min_tokens, tokens: tokens.iter().copied().collect(), ..Ending::default() };
        let request = Request { ending, max_tokens: Some(6), ..chain.request("A", stops) };
        let out = complete(&chain, request);
        let told = (out.done.message.content.as_str(), out.done.finish);
        assert_eq!(told, (text, finish), "{min_tokens} {tokens:?} {stops:?}");
    };
    use Finish::{EndToken, MaxTokens, StopString};
    check(0, &[], &[], "x", EndToken);
    check(1, &[], &[], "x", EndToken);
    // the end token is the likeliest, and does not come
    check(2, &[], &[], "xyx", EndToken);
    check(6, &[], &[], "xyxyxy", MaxTokens);
    // other tokens end it, and are no part of it
    check(0, &[x], &[], "", EndToken);
    check(0, &[y], &[], "x", EndToken);
    check(4, &[], &["yx"], "xyx", StopString);
    check(0, &[], &["x"], "", StopString);
    check(1, &[], &["x"], "x", EndToken);
    check(3, &[], &["x"], "xyx", EndToken);
}

#[test]
fn n2_a_nan_ends_one_request_and_harms_no_other() {
    let chain = Chain::new(&[]).script("A", &[b"Hi", b" you"]).nan("N");
    // Few blocks, so that all of them are used again and again.
    let mut generator =
        Generator::new(chain.executor(8, 6, 128), chain.tokenizer().end_tokens().iter().copied());
    let bad = generator.submit(chain.request(&"N".repeat(100), &[])).unwrap();
    let good: Vec<_> = (0..201).map(|_| generator.submit(chain.request("A", &[])).unwrap()).collect();
    let mut outcomes = drain(&mut generator);
    let error = outcomes.remove(&bad).unwrap().unwrap_err();
    assert!(matches!(error, Error::NonFinite { .. }));
    let text = error.to_string();
    assert!(text.contains("non-finite") && text.contains("layer 3"), "{text}");
    for id in good {
        assert_eq!(outcomes.remove(&id).unwrap().unwrap().done.message.content, "Hi you");
    }
    assert_eq!((generator.stats().blocks_free, generator.stats().non_finite), (6, 1));
}

#[test]
fn prompts_cut_into_any_chunks_give_the_same() {
    let chain = Chain::new(&[]).script("A", &[b"Hi", b" you"]);
    let prompt = "B".repeat(200) + "A";
    for rows in [1, 2, 63, 64, 65, 200, 201, 202, 1000] {
        let executor = chain.executor(500, 8, 512);
        let options = Options { rows, ..Options::default() };
        let mut generator =
            Generator::with(executor, chain.tokenizer().end_tokens().iter().copied(), &options);
        let id = generator.submit(chain.request(&prompt, &[])).unwrap();
        let out = drain(&mut generator).remove(&id).unwrap().unwrap();
        assert_eq!(out.done.message.content, "Hi you", "{rows}");
    }
}

#[test]
fn prompts_that_do_not_fit_are_refused_with_numbers() {
    let chain = Chain::new(&[]).fork("A", &[("x", 1.0)]).fork("x", &[("x", 1.0)]);
    let check = |prompt: &str, max_tokens: Option<usize>, expected: &str| {
        let mut generator = Generator::new(chain.executor(64, 8, 512), []);
        let request = Request { max_tokens, ..chain.request(prompt, &[]) };
        let found = match generator.submit(request) {
            Err(e) => e.to_string(),
            Ok(id) => {
                let done = drain(&mut generator).remove(&id).unwrap().unwrap().done;
                assert!(matches!(done.finish, Finish::ContextFull | Finish::MaxTokens));
                done.answered.to_string()
            }
        };
        assert!(found.contains(expected), "{found}");
    };
    let a = |n: usize| "B".repeat(n - 1) + "A";
    check(&a(600), None, "600 tokens");
    check(&a(600), None, "512");
    check(&a(512), None, "512 tokens");
    check(&a(511), None, "1");
    for limit in [None, Some(100), Some(2_000_000), Some(usize::MAX)] {
        check(&a(500), limit, "12");
    }
    check(&a(500), Some(3), "3");
    check(&a(500), Some(0), "max_tokens");
    check("", None, "empty");
}

#[test]
fn unknown_ids_and_small_caches_are_refused() {
    let chain = Chain::new(&[]);
    let mut generator = Generator::new(chain.executor(8, 2, 512), []);
    let error = generator.submit(Request::new(vec![1, 90_000])).unwrap_err();
    assert!(matches!(error, Error::UnknownToken { id: 90_000, .. }));
    let error = generator.submit(Request::new(vec![1])).unwrap_err();
    assert_eq!(error, Error::CacheTooSmall { needed: 8, blocks: 2 });
    let sampling = Sampling { top_p: 2.0, ..Sampling::default() };
    let error = generator.submit(Request { sampling, ..Request::new(vec![1]) }).unwrap_err();
    assert!(matches!(error, Error::Parameter { name: "top_p", .. }));
    assert!(generator.is_idle());
}

/// More requests than sequences, rows or blocks at a time: all are answered, the first come first.
#[test]
fn requests_wait_for_room_in_order() {
    let limits = Limits { vocab: 1000, rows: 3, blocks: 4, context: 128, width: 1, drafts: false, takes: 0 };
    let mut generator = Generator::new(Box::new(Null::new(limits, |token, _| token + 1)), []);
    let ids: Vec<_> = (0..9)
        .map(|i| {
            let request = Request { max_tokens: Some(70), ..Request::new(vec![100 * i; 5]) };
            generator.submit(request).unwrap()
        })
        .collect();
    let mut ends = Vec::new();
    let mut tokens = 0;
    while !generator.is_idle() {
        for reply in generator.step().unwrap() {
            match reply.part {
                Part::Started { reused } => assert_eq!(reused, 0),
                Part::Token { .. } => tokens += 1,
                Part::Done(done) => {
                    assert_eq!((done.answered, done.finish), (70, Finish::MaxTokens));
                    ends.push(reply.id);
                }
                Part::Prompt(_) => panic!("nobody asked for it"),
                Part::Failed(e) => panic!("{e}"),
            }
        }
    }
    assert_eq!(ends, ids);
    assert_eq!((tokens, generator.stats().blocks_free), (9 * 70, 4));
}

/// Short requests pass a long one that has no room, but no more tokens than it has itself.
#[test]
fn o2_who_waits_for_room_is_passed_for_a_while() {
    let limits =
        Limits { vocab: 1000, rows: 256, blocks: 16, context: 1024, width: 1, drafts: false, takes: 0 };
    let mut generator = Generator::new(Box::new(Null::new(limits, |token, _| token + 1)), []);
    let submit = |generator: &mut Generator, token, length, most| {
        let request = Request { max_tokens: Some(most), ..Request::new(vec![token; length]) };
        generator.submit(request).unwrap()
    };
    let first = submit(&mut generator, 1, 9 * BLOCK, BLOCK);
    let long = submit(&mut generator, 2, 10 * BLOCK, 1);
    let short: Vec<_> = (3..15).map(|i| submit(&mut generator, i, BLOCK, 1)).collect();
    let mut begun = Vec::new();
    while !generator.is_idle() {
        let started = |reply: &Reply| matches!(reply.part, Part::Started { .. });
        begun.extend(generator.step().unwrap().iter().filter(|reply| started(reply)).map(|reply| reply.id));
    }
    let expected = [&[first], &short[..10], &[long], &short[10..]].concat();
    assert_eq!(begun, expected);
}

/// All candidates are excluded: the row is asked again for all logits.
#[test]
fn too_few_candidates_are_made_up_for() {
    let chain = Chain::new(&[]).fork("A", &[("x", 1.0)]).fork("Z", &[("y", 1.0)]);
    // the best 64 after A are x and, all alike, the lowest ids
    let never = (0..80).chain(b"x".map(u32::from)).collect();
    let sampling = Sampling { never, ..Sampling::default() };
    let out = complete(&chain, Request { sampling, max_tokens: Some(1), ..chain.request("A", &[]) });
    assert_eq!(out.tokens, [80]);
}

#[test]
fn what_begins_like_an_earlier_request_is_found_in_the_cache() {
    let chain = Chain::new(&[]).script("A", &[b"Hi", b" you"]).script("B", &[b"yes"]);
    let mut generator = chain.generator();
    let mut run = |request: Request| -> Outcome {
        let id = generator.submit(request).unwrap();
        drain(&mut generator).remove(&id).unwrap().unwrap()
    };
    let mut check = |prompt: &str, answer: &str, reused: usize| {
        let done = run(chain.request(prompt, &[])).done;
        let found = (done.message.content.as_str(), done.reused, done.prompt);
        assert_eq!(found, (answer, reused, prompt.len()));
    };
    let c = |n: usize| "C".repeat(n);
    check(&(c(128) + "A"), "Hi you", 0);
    check(&(c(128) + "A"), "Hi you", 128);
    check(&(c(128) + "DB"), "yes", 128);
    // the last token is always run
    check(&c(128), "", 64);
    check(&(c(100) + "A"), "Hi you", 64);
    check(&("D".to_owned() + &c(128)), "", 0);
    // what was answered is found too
    let first = run(chain.request(&(c(190) + "A"), &[]));
    let begun = chain.request(&(c(190) + "A"), &[]).prompt;
    let prompt = [begun, first.tokens, vec![u32::from(b'B')]].concat();
    let request = Request { reader: chain.request("", &[]).reader, ..Request::new(prompt) };
    let second = run(request).done;
    assert_eq!((second.message.content.as_str(), second.reused, second.prompt), ("yes", 192, 194));
    assert_eq!(generator.stats().blocks_free, 128);
    assert!(generator.stats().reused_tokens > 0);
}

/// The second of two alike waits for what the first computes, and shares it.
#[test]
fn requests_that_begin_alike_compute_it_once() {
    let chain = Chain::new(&[]).script("A", &[b"Hi"]);
    let mut generator = chain.generator();
    let prompt = "C".repeat(300) + "A";
    let ids: Vec<_> = (0..5).map(|_| generator.submit(chain.request(&prompt, &[])).unwrap()).collect();
    let outcomes = drain(&mut generator);
    let reused: Vec<usize> = ids.iter().map(|id| outcomes[id].as_ref().unwrap().done.reused).collect();
    assert_eq!(reused, [0, 256, 256, 256, 256]);
    assert!(outcomes.values().all(|o| o.as_ref().unwrap().done.message.content == "Hi"));
}

/// What a request with a NaN has computed is never found by another.
#[test]
fn poisoned_blocks_are_not_found() {
    let chain = Chain::new(&[]).script("A", &[b"Hi"]).nan("N");
    let mut generator = chain.generator();
    let prompt = "C".repeat(70) + "N" + &"C".repeat(200);
    for _ in 0..3 {
        let id = generator.submit(chain.request(&prompt, &[])).unwrap();
        let error = drain(&mut generator).remove(&id).unwrap().unwrap_err();
        assert!(matches!(error, Error::NonFinite { .. }));
    }
    // the block before it is good
    let id = generator.submit(chain.request(&("C".repeat(70) + "A"), &[])).unwrap();
    let done = drain(&mut generator).remove(&id).unwrap().unwrap().done;
    assert_eq!((done.message.content.as_str(), done.reused), ("Hi", 64));
}

/// Answers grow until the cache is full: the last come gives way, and goes on later as if nothing had been.
#[test]
fn who_gives_way_loses_nothing() {
    let d = [("x", 0.5), ("y", 0.3), ("z", 0.2)];
    let chain = Chain::new(&[]).fork("A", &d).fork("x", &d).fork("y", &d).fork("z", &d);
    let request = |i: usize| {
        let sampling = Sampling {
            temperature: 1.0,
            seed: i as u64,
            presence_penalty: 0.3,
            logprobs: Some(2),
            ..Sampling::default()
        };
        let prompt = "B".repeat(40 * i) + "A";
        Request { sampling, max_tokens: Some(250 + i), ..chain.request(&prompt, &[]) }
    };
    let solo: Vec<Outcome> = (0..6).map(|i| complete(&chain, request(i))).collect();
    for prefix_cache in [true, false] {
        let options = Options { prefix_cache, ..Options::default() };
        let mut generator = Generator::with(chain.executor(16, 8, 512), [], &options);
        let ids: Vec<_> = (0..6).map(|i| generator.submit(request(i)).unwrap()).collect();
        let outcomes = drain(&mut generator);
        for (id, solo) in ids.iter().zip(&solo) {
            let together = outcomes[id].as_ref().unwrap();
            assert_eq!((&together.tokens, &together.deltas), (&solo.tokens, &solo.deltas));
        }
        let stats = generator.stats();
        assert!(stats.preemptions > 0, "nobody had to give way");
        assert_eq!((stats.blocks_free, stats.requests), (8, 6));
    }
}

/// A request that is set aside gives its blocks to whoever waits.
#[test]
fn who_is_set_aside_delays_nobody() {
    let chain = Chain::new(&[]).fork("A", &[("x", 1.0)]).fork("x", &[("x", 1.0)]);
    let mut generator = Generator::new(chain.executor(8, 2, 128), []);
    let request = || Request { max_tokens: Some(100), ..chain.request("A", &[]) };
    let slow = generator.submit(request()).unwrap();
    for _ in 0..70 {
        generator.step().unwrap();
    }
    generator.hold(slow, true);
    assert!(generator.is_resting());
    let other = generator.submit(request()).unwrap();
    assert!(!generator.is_resting());
    let mut ends = Vec::new();
    let mut step = |generator: &mut Generator| {
        let replies = generator.step().unwrap().into_iter();
        ends.extend(replies.filter_map(|r| match r.part {
            Part::Done(done) => Some((r.id, done.answered, done.message.content.len())),
            _ => None,
        }));
    };
    while !generator.is_resting() {
        step(&mut generator);
    }
    generator.hold(slow, false);
    while !generator.is_idle() {
        step(&mut generator);
    }
    assert_eq!(ends, [(other, 100, 100), (slow, 100, 100)]);
    assert_eq!(generator.stats().preemptions, 1);
}

#[test]
fn cancelled_requests_keep_their_text_and_free_their_blocks() {
    let chain = Chain::new(&[]).fork("A", &[("x", 1.0)]).fork("x", &[("x", 1.0)]);
    let mut generator = Generator::new(chain.executor(8, 1, 512), []);
    let request = || Request { max_tokens: Some(60), ..chain.request("A", &[]) };
    let [running, waiting, last] = [(); 3].map(|()| generator.submit(request()).unwrap());
    for _ in 0..3 {
        generator.step().unwrap();
    }
    let mut cancel = |id| match generator.cancel(id).map(|reply| reply.part) {
        Some(Part::Done(done)) => Some((done.message.content, done.finish)),
        None => None,
        other => panic!("{other:?}"),
    };
    assert_eq!(cancel(waiting), Some((String::new(), Finish::Cancelled)));
    assert_eq!(cancel(running), Some(("xxx".into(), Finish::Cancelled)));
    assert_eq!(cancel(running), None);
    let done = drain(&mut generator).remove(&last).unwrap().unwrap().done;
    assert_eq!((done.answered, done.finish), (60, Finish::MaxTokens));
    drop(done);
    assert_eq!((generator.stats().blocks_free, BLOCK), (1, 64));
}

#[test]
fn j2_reasoning_is_told_apart_from_the_answer() {
    let chain = Chain::new(&["<think>", "</think>"])
        .script("<think>", &[b"Let me", b" see</thi", b"nk>The an", b"swer"]);
    let mut generator = chain.generator();
    let prompt = vec![chain.tokenizer().token_id("<think>").unwrap()];
    let syntax = Syntax::by_name("glm").unwrap();
    let reader = Reader::reply(chain.tokenizer(), syntax, "<think>", reply::Options::default());
    generator.submit(Request { reader, ..Request::new(prompt) }).unwrap();
    let (mut streamed, mut message) = ([String::new(), String::new()], None);
    while !generator.is_idle() {
        for reply in generator.step().unwrap() {
            let events = match reply.part {
                Part::Started { .. } | Part::Prompt(_) => continue,
                Part::Token { events, .. } => events,
                Part::Done(mut done) => {
                    let events = std::mem::take(&mut done.events);
                    message = Some(done.message);
                    events
                }
                Part::Failed(e) => panic!("{e}"),
            };
            for event in events {
                match event {
                    Event::Reasoning(text) => streamed[0] += &text,
                    Event::Content(text) => streamed[1] += &text,
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    let message = message.unwrap();
    assert_eq!([message.reasoning, message.content], ["Let me see", "The answer"]);
    assert_eq!(streamed, ["Let me see", "The answer"]);
}
