//! On how many cards a model fits: the search gives what trying everything gives, and soon.
#![allow(clippy::unwrap_used)]

mod util;

use proptest::prelude::*;
use shardwright_model::budget::{self, Demand};
use shardwright_model::op::Description;
use shardwright_model::plan::legal_ranks;
use shardwright_model::presets::{self, Header, RECIPES};
use shardwright_model::{arch, hyper};
use std::time::Instant;
use util::{header, preset};

#[test]
fn a_model_that_does_not_fit_names_the_cards_or_the_quant_that_would() {
    let h = header("glm-5.2", &[], "ud-q4_k_xl");
    let (d, draft) = (arch::describe(&h.hyper), arch::draft(&h.hyper));
    let demand = Demand { context: 32_768, rows: 64, element: 2 };
    let memory = budget::find_card("rtx pro 6000").unwrap().memory;
    let fewest =
        |memory| budget::fewest_ranks(&d, draft.as_ref(), &|n| h.tensor(n), &demand, memory).unwrap();
    // over 5 to 7 ranks, some hold two of the eight blocks of an expert: as much as over 4
    assert_eq!(fewest(memory), Some(8));
    assert_eq!(fewest(budget::find_card("H200").unwrap().memory), Some(4));
    assert_eq!(fewest(1 << 20), None);
    let bits = h.bytes() as f64 * 8.0 / h.params() as f64;
    let at4 = budget::held(&d, draft.as_ref(), &|n| h.tensor(n), 4, 2).unwrap();
    let room = memory - at4[0].working(&demand).iter().sum::<u64>();
    assert_eq!(budget::quant_that_fits(at4[0].weights(), bits, room).unwrap().0, "UD-Q2_K_XL");
    assert_eq!(budget::quant_that_fits(at4[0].weights(), bits, 1 << 30), None);
    assert!(budget::find_card("RTX 1").unwrap_err().to_string().contains("RTX PRO 6000"));
}

/// Every legal number in turn, all ranks of each.
fn tried(
    h: &Header,
    d: &Description,
    draft: Option<&Description>,
    demand: &Demand,
    memory: u64,
) -> Option<usize> {
    let find = |name: &str| h.tensor(name);
    let fits = |n: &usize| {
        let held = budget::held(d, draft, &find, *n, demand.element).unwrap();
        held.iter().all(|held| held.total(demand) <= memory)
    };
    legal_ranks(d, &find).unwrap().into_iter().find(fits)
}

/// A memory for which the answer is near this number of ranks: what one of them holds, or a little less.
fn near(h: &Header, d: &Description, demand: &Demand, ranks: prop::sample::Index, less: u64) -> u64 {
    let find = |name: &str| h.tensor(name);
    let legal = legal_ranks(d, &find).unwrap();
    let held = budget::held(d, None, &find, *ranks.get(&legal), demand.element).unwrap();
    held.iter().map(|held| held.total(demand)).max().unwrap() - less
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_search_finds_what_trying_everything_finds(
        name in prop::sample::select(presets::all().map(|p| p.0).collect::<Vec<_>>()),
        recipe in prop::sample::select(RECIPES.iter().map(|r| r.name).collect::<Vec<_>>()),
        layers in 1u32..6,
        heads in prop::sample::select(vec![None, Some((6, 3)), Some((12, 4)), Some((24, 2)), Some((40, 8))]),
        context in 1u64..100_000,
        ranks: prop::sample::Index,
        less in 0u64..2,
        drafts: bool,
    ) {
        let mut preset = preset(name, &[]);
        preset.set_layers(layers).ok();
        // heads that go round unevenly, where the architecture takes them
        if let Some((heads, kv)) = heads {
            for (key, value) in [("attention.head_count", heads), ("attention.head_count_kv", kv)] {
                preset.set(key, &value.to_string()).ok();
            }
        }
        let recipe = presets::Recipe::find(recipe).unwrap();
        let Ok(h) = preset.header(recipe, hyper::Options::default()) else { return Ok(()) };
        let d = arch::describe(&h.hyper);
        let draft = arch::draft(&h.hyper).filter(|_| drafts);
        let demand = Demand { context, rows: 64, element: 2 };
        let memory = near(&h, &d, &demand, ranks, less);
        let found = budget::fewest_ranks(&d, draft.as_ref(), &|n| h.tensor(n), &demand, memory).unwrap();
        prop_assert_eq!(found, tried(&h, &d, draft.as_ref(), &demand, memory));
    }
}

/// As large as the largest description that fuzzing has met: 8 s where all ranks of every number are planned.
#[test]
fn the_search_is_short() {
    let h = header("glm-5", &[("block_count", "207")], "ud-q4_k_xl");
    let d = arch::describe(&h.hyper);
    let demand = Demand { context: 32_768, rows: 64, element: 2 };
    assert!(d.ops.len() > 6500, "{} ops", d.ops.len());
    // what no rank could hold by its weights alone, what none could once all is counted, and what some number can
    for (memory, expected) in [(1 << 20, None), (80 << 30, None), (1 << 40, Some(2))] {
        let begun = Instant::now();
        let found = budget::fewest_ranks(&d, None, &|n| h.tensor(n), &demand, memory).unwrap();
        let took = begun.elapsed();
        println!("{} ops, {memory} bytes: {found:?} in {took:.1?}", d.ops.len());
        assert_eq!(found, expected, "{memory}");
        assert!(took.as_secs() < 4, "{took:?}");
    }
}
