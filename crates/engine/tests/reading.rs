//! What can be asked about a prompt: how likely it was, and its hidden state.
#![allow(clippy::unwrap_used)]

mod chain;

use chain::{Chain, complete, drain};
use shardwright_engine::Error;
use shardwright_engine::generate::Generator;
use shardwright_engine::request::{Ending, Finish, Pooling, Request};
use shardwright_model::exec::BLOCK;

fn chain() -> Chain {
    let d = [("x", 0.5), ("y", 0.3), ("z", 0.2)];
    Chain::new(&[]).fork("A", &d).fork("x", &d).fork("y", &d).fork("z", &d)
}

#[test]
fn prompts_are_scored_token_by_token() {
    let chain = chain();
    let check = |max_tokens: usize| {
        let request =
            Request { prompt_logprobs: Some(2), max_tokens: Some(max_tokens), ..chain.request("Axyzq", &[]) };
        let out = complete(&chain, request);
        let found = out.prompt.unwrap();
        let chosen: Vec<f32> = found.iter().map(|l| l.chosen.exp()).collect();
        for (found, right) in chosen.iter().zip([0.5, 0.3, 0.2, 0.0]) {
            assert!((found - right).abs() < 1e-4, "{chosen:?}");
        }
        assert_eq!(found.len(), 4);
        let top: Vec<u32> = found[0].top.iter().map(|(id, _)| *id).collect();
        assert_eq!(top, [u32::from(b'x'), u32::from(b'y')]);
        assert_eq!((out.done.answered, out.done.finish == Finish::MaxTokens), (max_tokens, max_tokens == 0));
    };
    check(0);
    let once = Request { prompt_logprobs: Some(0), max_tokens: Some(1), ..chain.request("A", &[]) };
    assert_eq!(complete(&chain, once).prompt, Some(Vec::new()));
}

/// In whatever pieces, after whatever is in the cache, and when it has to begin anew.
#[test]
fn scores_do_not_depend_on_the_cache() {
    let chain = chain();
    let prompt = "Axyz".repeat(70);
    let request = || Request {
        prompt_logprobs: Some(1),
        max_tokens: Some(100),
        ending: Ending { ignore_eos: true, ..Ending::default() },
        ..chain.request(&prompt, &[])
    };
    let solo = complete(&chain, request());
    assert_eq!(solo.prompt.as_ref().unwrap().len(), prompt.len() - 1);
    let mut generator = Generator::new(chain.executor(90, 9, 512), []);
    let plain = || Request { max_tokens: Some(200), ..chain.request("A", &[]) };
    for _ in 0..3 {
        let ids = [request(), plain(), request()].map(|r| generator.submit(r).unwrap());
        let mut outcomes = drain(&mut generator);
        for id in [ids[0], ids[2]] {
            let found = outcomes.remove(&id).unwrap().unwrap();
            assert_eq!(
                (found.prompt, found.tokens, found.done.reused),
                (solo.prompt.clone(), solo.tokens.clone(), 0)
            );
        }
    }
    assert_eq!(generator.stats().blocks_free, 9);
}

#[test]
fn hidden_states_are_pooled() {
    let chain = chain();
    let mut generator = Generator::new(chain.executor(50, 16, 512), []);
    let prompt = "B".repeat(2 * BLOCK) + "Axy";
    let mean = prompt.bytes().map(f64::from).sum::<f64>() / prompt.len() as f64;
    let mut check = |pooling: Pooling, right: f32, reused: usize| {
        let request = Request { pooling: Some(pooling), ..chain.request(&prompt, &[]) };
        let id = generator.submit(request).unwrap();
        let answer = generator.submit(Request { max_tokens: Some(3), ..chain.request("A", &[]) }).unwrap();
        let mut outcomes = drain(&mut generator);
        let done = outcomes.remove(&id).unwrap().unwrap().done;
        assert_eq!((done.embedding, done.answered, done.reused), (Some(vec![right]), 0, reused));
        let other = outcomes.remove(&answer).unwrap().unwrap().done;
        assert_eq!((other.answered, other.embedding), (3, None));
    };
    check(Pooling::Mean, mean as f32, 0);
    check(Pooling::Last, f32::from(b'y'), 2 * BLOCK);
    check(Pooling::Mean, mean as f32, 0);
}

/// Without an answer a prompt may fill the context.
#[test]
fn a_prompt_that_is_only_read_may_be_as_long_as_the_context() {
    let chain = chain();
    let mut generator = Generator::new(chain.executor(50, 2, 128), []);
    let request = |n: usize| Request { pooling: Some(Pooling::Last), ..chain.request(&"A".repeat(n), &[]) };
    assert!(matches!(
        generator.submit(request(129)),
        Err(Error::PromptTooLong { prompt: 129, context: 128 })
    ));
    let id = generator.submit(request(128)).unwrap();
    assert!(drain(&mut generator).remove(&id).unwrap().is_ok());
    assert!(generator.submit(Request { pooling: None, ..request(128) }).is_err());
}
