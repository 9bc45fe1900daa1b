//! Greedy answers of a real model are the same with the prefix cache and without, and when caches run out.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod tiny;

use shardwright_engine::options::Options;
use shardwright_engine::request::Request;
use tiny::{answers, generator, greedy};

/// Conversations that go on, and others that begin like them.
fn prompts() -> Vec<Vec<u32>> {
    let begin: Vec<u32> = (0..70).map(|i| (i * i + 3) % 250).collect();
    let tails = [3, 30, 64, 3, 90, 10].map(|n: u32| (0..n).map(|i| (i * 31 + n) % 250).collect::<Vec<_>>());
    let mut prompts: Vec<Vec<u32>> = tails.iter().map(|tail| [&begin[..], tail].concat()).collect();
    prompts.push(begin[..64].to_vec());
    prompts.push([&begin[..], &tails[4], &tails[0]].concat());
    prompts
}

/// Long enough that answers, too, need more blocks as they grow.
fn long(prompt: Vec<u32>) -> Request {
    Request { max_tokens: Some(80), ..greedy(prompt) }
}

#[test]
fn answers_do_not_depend_on_what_is_found_in_the_cache() {
    let off = Options { prefix_cache: false, ..Options::default() };
    let solo: Vec<Vec<u32>> = prompts()
        .into_iter()
        .map(|prompt| {
            let mut alone = generator(16, &off);
            let id = alone.submit(long(prompt)).unwrap();
            answers(&mut alone).remove(&id).unwrap()
        })
        .collect();
    let check = |blocks: usize, at_once: bool, reuses: bool| {
        let mut cached = generator(blocks, &Options::default());
        let mut found = Vec::new();
        let mut submitted: Vec<_> = Vec::new();
        for prompt in prompts().into_iter().chain(prompts()) {
            submitted.push(cached.submit(long(prompt)).unwrap());
            if !at_once {
                found.extend(answers(&mut cached));
            }
        }
        found.extend(answers(&mut cached));
        found.sort();
        assert_eq!(found.len(), 2 * solo.len());
        for ((id, tokens), solo) in found.iter().zip(solo.iter().chain(&solo)) {
            assert_eq!(tokens, solo, "{id:?}, {blocks} blocks");
        }
        assert_eq!(cached.stats().reused_tokens > 0, reuses);
        cached.stats()
    };
    check(32, false, true);
    check(32, true, true);
    // hardly more than one of them needs
    check(4, false, true);
    let set_back: u64 = [5, 7, 8, 9].map(|blocks| check(blocks, true, true).preemptions).iter().sum();
    assert!(set_back > 0, "nobody had to give way");
}

#[test]
fn what_is_found_is_reported() {
    let mut generator = generator(16, &Options::default());
    let request = |n: u32| Request { max_tokens: Some(1), ..Request::new((0..n).collect()) };
    for (n, total) in [(100, 0), (100, 64), (128, 128), (129, 256), (129, 384)] {
        generator.submit(request(n)).unwrap();
        answers(&mut generator);
        assert_eq!(generator.stats().reused_tokens, total, "{n}");
    }
}
