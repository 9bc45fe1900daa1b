//! The sampler on exact distributions: cases S3, S4, S5, and that candidates are as good as logits.
#![allow(clippy::unwrap_used)]

mod chain;

use chain::{Chain, candidates, complete, drain};
use proptest::prelude::*;
use shardwright_engine::Error;
use shardwright_engine::request::Request;
use shardwright_engine::sample::{History, Sampling};
use shardwright_model::exec::{RowOutput, Want};
use std::collections::{BTreeMap, BTreeSet};

fn xyz() -> Chain {
    let to = [("x", 0.5), ("y", 0.4), ("z", 0.1)];
    ["A", "x", "y", "z"].into_iter().fold(Chain::new(&[]), |chain, from| chain.fork(from, &to))
}

fn text(chain: &Chain, prompt: &str, n: usize, sampling: &Sampling) -> String {
    let request = Request { sampling: sampling.clone(), max_tokens: Some(n), ..chain.request(prompt, &[]) };
    complete(chain, request).done.message.content
}

#[test]
fn s3_penalties_count_what_was_generated() {
    let chain = xyz();
    let check = |sampling: Sampling, n: usize, expected: &str| {
        assert_eq!(text(&chain, "xA", n, &sampling), expected, "{sampling:?}");
    };
    check(Sampling { presence_penalty: 0.5, ..Sampling::default() }, 4, "xyxx");
    check(Sampling { frequency_penalty: 0.5, ..Sampling::default() }, 8, "xyxyxyxz");
    check(Sampling { repetition_penalty: 2.0, ..Sampling::default() }, 4, "yxxx");
    let bias = |id: u8, by: f32| BTreeMap::from([(u32::from(id), by)]);
    check(Sampling { logit_bias: bias(b'z', 3.0), ..Sampling::default() }, 2, "zz");
    check(Sampling { logit_bias: bias(b'x', -0.5), ..Sampling::default() }, 2, "yy");
    check(Sampling { never: [b'x', b'y'].map(u32::from).into(), ..Sampling::default() }, 2, "zz");
}

#[test]
fn s3_another_request_of_the_batch_has_no_effect() {
    let chain = xyz();
    let mut generator = chain.generator();
    let penalties = [(0.5, 0.0, 1.0), (0.0, 0.5, 1.0), (0.0, 0.0, 2.0), (0.0, 0.0, 1.0)];
    let ids = penalties.map(|(presence_penalty, frequency_penalty, repetition_penalty)| {
        let sampling =
            Sampling { presence_penalty, frequency_penalty, repetition_penalty, ..Sampling::default() };
        let request = Request { sampling, max_tokens: Some(4), ..chain.request("xA", &[]) };
        generator.submit(request).unwrap()
    });
    let mut outcomes = drain(&mut generator);
    let texts = ids.map(|id| outcomes.remove(&id).unwrap().unwrap().done.message.content);
    assert_eq!(texts, ["xyxx", "xyxy", "yxxx", "xxxx"]);
}

#[test]
fn s3_bias_is_clamped() {
    let logits = RowOutput::Logits(vec![150.0, 0.0, 20.0]);
    let check = |bias: &[(u32, f32)], expected: u32| {
        let sampling = Sampling { logit_bias: bias.iter().copied().collect(), ..Sampling::default() };
        assert_eq!(
            sampling.choose(&logits, &History::default()).unwrap().unwrap().token,
            expected,
            "{bias:?}"
        );
    };
    check(&[(1, 1e6)], 0);
    check(&[(0, -1e6), (1, 1e6)], 1);
    check(&[(0, -1e6)], 0);
    check(&[(99, 5.0)], 0);
}

/// The distinct tokens, as text, that 200 seeds give.
fn seen(sampling: &Sampling) -> String {
    let chain = xyz();
    let one = |seed| text(&chain, "A", 1, &Sampling { seed, ..sampling.clone() });
    (0..200).map(one).collect::<BTreeSet<_>>().into_iter().collect()
}

#[test]
fn s4_edge_values() {
    let hot = Sampling { temperature: 1.0, ..Sampling::default() };
    let check = |sampling: Sampling, expected: &str| assert_eq!(seen(&sampling), expected, "{sampling:?}");
    for temperature in [0.0, 1e-9, -0.0] {
        check(Sampling { temperature, ..Sampling::default() }, "x");
    }
    check(Sampling { top_k: 1, ..hot.clone() }, "x");
    check(Sampling { top_k: 2, ..hot.clone() }, "xy");
    check(Sampling { top_k: 0, ..hot.clone() }, "xyz");
    check(Sampling { top_k: 1_000_000, ..hot.clone() }, "xyz");
    check(Sampling { top_p: 0.0, ..hot.clone() }, "x");
    check(Sampling { top_p: 0.5, ..hot.clone() }, "x");
    check(Sampling { top_p: 0.51, ..hot.clone() }, "xy");
    check(Sampling { top_p: 0.9, ..hot.clone() }, "xy");
    check(Sampling { top_p: 1.0, ..hot.clone() }, "xyz");
    check(Sampling { min_p: 0.9, ..hot.clone() }, "x");
    check(Sampling { min_p: 0.7, ..hot.clone() }, "xy");
    check(Sampling { min_p: 1.0, ..hot.clone() }, "x");
    // min_p looks at the model's own distribution: heat lets nothing back in
    check(Sampling { temperature: 3.0, min_p: 0.5, ..hot.clone() }, "xy");
    check(Sampling { temperature: 3.0, ..hot }, "xyz");
}

#[test]
fn s4_draws_follow_the_distribution() {
    let chain = xyz();
    let check = |temperature: f32, expected: [f64; 3]| {
        let sampling = |seed| Sampling { temperature, seed, ..Sampling::default() };
        // half over seeds, half over the steps of one answer
        let over_seeds: String = (0..2000).map(|seed| text(&chain, "A", 1, &sampling(seed))).collect();
        let over_steps: String = (0..5).map(|seed| text(&chain, "A", 400, &sampling(seed))).collect();
        for texts in [over_seeds, over_steps] {
            for (letter, expected) in ["x", "y", "z"].into_iter().zip(expected) {
                let share = texts.matches(letter).count() as f64 / texts.len() as f64;
                assert!((share - expected).abs() < 0.03, "{letter} at {temperature}: {share} for {expected}");
            }
        }
    };
    check(1.0, [0.5, 0.4, 0.1]);
    let root = [0.5f64, 0.4, 0.1].map(|p| p.powf(0.5));
    check(2.0, root.map(|p| p / root.iter().sum::<f64>()));
}

#[test]
fn s4_senseless_values_are_refused_by_name() {
    let check = |sampling: Sampling, name: &str| match sampling.check() {
        Err(Error::Parameter { name: found, .. }) => assert_eq!(found, name),
        other => panic!("{name}: {other:?}"),
    };
    let d = Sampling::default;
    for bad in [-1.0, f32::NAN, f32::INFINITY] {
        check(Sampling { temperature: bad, ..d() }, "temperature");
        check(Sampling { top_p: bad, ..d() }, "top_p");
        check(Sampling { min_p: bad, ..d() }, "min_p");
        check(Sampling { repetition_penalty: bad, ..d() }, "repetition_penalty");
    }
    check(Sampling { repetition_penalty: 0.0, ..d() }, "repetition_penalty");
    check(Sampling { top_p: 1.1, ..d() }, "top_p");
    check(Sampling { presence_penalty: f32::NAN, ..d() }, "presence_penalty");
    check(Sampling { frequency_penalty: f32::NAN, ..d() }, "frequency_penalty");
    check(Sampling { logit_bias: BTreeMap::from([(1, f32::NAN)]), ..d() }, "logit_bias");
    d().check().unwrap();
}

#[test]
fn s5_a_seed_gives_the_same_text_alone_and_in_company() {
    let chain = xyz();
    let seeded = |seed| {
        let sampling = Sampling { temperature: 1.0, seed, ..Sampling::default() };
        Request { sampling, max_tokens: Some(16), ..chain.request("A", &[]) }
    };
    let mut texts: Vec<String> = (0..20).map(|_| complete(&chain, seeded(7)).done.message.content).collect();
    let mut generator = chain.generator();
    let ids: Vec<_> = (0..32)
        .map(|i| generator.submit(seeded(if i % 2 == 0 { 7 } else { i })).unwrap())
        .step_by(2)
        .collect();
    let mut outcomes = drain(&mut generator);
    texts.extend(ids.iter().map(|id| outcomes.remove(id).unwrap().unwrap().done.message.content));
    assert_eq!(texts.len(), 36);
    assert!(texts.iter().all(|t| *t == texts[0] && t.len() == 16), "{texts:?}");
    let others: BTreeSet<String> =
        outcomes.into_values().map(|o| o.unwrap().done.message.content).chain(texts).collect();
    assert!(others.len() > 10, "seeds should matter: {others:?}");
}

#[test]
fn logprobs_are_those_of_the_model() {
    let row: Vec<f32> = [0.5f32, 0.4, 0.1].map(f32::ln).to_vec();
    let check = |sampling: Sampling, token: u32, chosen: f32| {
        for row in [RowOutput::Logits(row.clone()), candidates(&row)] {
            if sampling.want() == Want::Logits && !matches!(row, RowOutput::Logits(_)) {
                continue;
            }
            let choice = sampling.choose(&row, &History::default()).unwrap().unwrap();
            let logprobs = choice.logprobs.unwrap();
            assert_eq!(choice.token, token);
            assert!((logprobs.chosen - chosen.ln()).abs() < 1e-6);
            let top: Vec<u32> = logprobs.top.iter().map(|t| t.0).collect();
            assert_eq!(top, [0, 1]);
            assert!((logprobs.top[1].1 - 0.4f32.ln()).abs() < 1e-6);
        }
    };
    let asked = Sampling { logprobs: Some(2), ..Sampling::default() };
    check(asked.clone(), 0, 0.5);
    check(Sampling { never: [0].into(), ..asked.clone() }, 1, 0.4);
    check(Sampling { logit_bias: BTreeMap::from([(2, 50.0)]), ..asked }, 2, 0.1);
}

#[test]
fn nothing_left_is_an_error() {
    let sampling = Sampling { never: [0, 1].into(), ..Sampling::default() };
    let row = RowOutput::Logits(vec![0.0, 1.0]);
    assert_eq!(sampling.choose(&row, &History::default()), Err(Error::NothingLeft));
}

proptest! {
    /// Where candidates are said to be enough, they give the token that all logits give.
    #[test]
    fn candidates_are_as_good_as_logits(
        row in prop::collection::vec(-8.0f32..8.0, 65..400),
        top_k in 1usize..=64,
        top_p in 0.0f32..=1.0,
        min_p in 0.0f32..0.3,
        temperature in prop_oneof![Just(0.0f32), 0.1f32..3.0],
        never in prop::collection::btree_set(0u32..400, 0..40),
        seed: u64,
    ) {
        let sampling = Sampling { temperature, top_k, top_p, min_p, never, seed, ..Sampling::default() };
        let choose = |row: &RowOutput| sampling.choose(row, &History::default()).unwrap();
        let whole = choose(&RowOutput::Logits(row.clone())).unwrap();
        prop_assert!(!sampling.never.contains(&whole.token));
        prop_assert_eq!(sampling.want(), Want::Candidates);
        match choose(&candidates(&row)) {
            Some(choice) => prop_assert_eq!(choice, whole),
            None => prop_assert!(top_k + sampling.never.len() > 64 && temperature > 0.0),
        }
    }

    /// The nucleus, found by looking at ever more candidates, is the one that sorting everything finds.
    #[test]
    fn the_nucleus_is_the_smallest(row in prop::collection::vec(-3.0f32..3.0, 1..3000), top_p in 0.0f32..1.0) {
        let mut sorted: Vec<f64> = row.iter().map(|l| f64::from(*l).exp()).collect();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let total: f64 = sorted.iter().sum();
        let mut sum = 0.0;
        let size = 1 + sorted.iter().position(|w| { sum += w; sum / total >= f64::from(top_p) - 1e-6 }).unwrap();
        let sampling = |seed| Sampling { temperature: 1e6, top_p, seed, ..Sampling::default() };
        let least = sorted[size - 1];
        for seed in 0..20 {
            let row_output = RowOutput::Logits(row.clone());
            let choice = sampling(seed).choose(&row_output, &History::default()).unwrap().unwrap();
            prop_assert!(f64::from(row[choice.token as usize]).exp() >= least);
        }
    }
}
