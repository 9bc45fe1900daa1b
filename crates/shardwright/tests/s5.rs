//! Greedy answers of a real model, alone and in company.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod tiny;

use shardwright_engine::options::Options;
use shardwright_engine::request::Id;
use tiny::{answers, generator, greedy};

#[test]
fn s5_greedy_answers_are_the_same_alone_and_all_at_once() {
    // lengths around the sparse attention's 24 positions, and longer than a step
    let prompts = [3, 9, 17, 24, 25, 41, 60, 90]
        .map(|n: u32| (0..n).map(|i| (i * i + 7 * n) % 250).collect::<Vec<_>>());
    let mut together = generator(16, &Options::default());
    let ids: Vec<Id> = prompts.iter().map(|p| together.submit(greedy(p.clone())).unwrap()).collect();
    let all = answers(&mut together);
    for (prompt, id) in prompts.iter().zip(ids) {
        let mut alone = generator(16, &Options::default());
        let only = alone.submit(greedy(prompt.clone())).unwrap();
        let expected = answers(&mut alone).remove(&only).unwrap();
        assert_eq!(expected.len(), 24);
        assert_eq!(all[&id], expected, "prompt of {}", prompt.len());
    }
}
