//! A card that is lost while nobody asks anything: the server says so and ends, so that a supervisor starts it anew.
#![allow(clippy::unwrap_used)]

#[path = "../../cuda/tests/nvml/mod.rs"]
mod nvml;

use nvml::{Fake, PLACE};
use shardwright_cuda::health::Guarded;
use shardwright_engine::engine::{self, Engine};
use shardwright_model::exec::Limits;
use shardwright_model::null::Null;
use std::time::{Duration, Instant};

#[test]
fn an_engine_at_rest_fails_with_its_card() {
    let Some(fake) = Fake::new() else { return };
    let limits = Limits { vocab: 4, rows: 4, blocks: 4, context: 64, width: 1, drafts: false, takes: 0 };
    let card = fake.open().card(PLACE, 0).unwrap();
    let guarded = Guarded::new(Box::new(Null::new(limits, |_, _| 1)), vec![card], |_| {}).unwrap();
    let engine = Engine::start(Box::new(guarded), [2], engine::Options::default()).unwrap();
    let wait = |what: &str, until: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !until() {
            assert!(begun.elapsed() < Duration::from_secs(5), "{what}: {:?}", engine.failed());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait("its numbers are published", &|| engine.stats().cards.first().is_some_and(|c| c.replays == Some(3)));
    assert_eq!(engine.failed(), None);
    fake.is("lost");
    // what becomes of a server whose engine has failed is tested with it
    wait("it fails", &|| engine.failed().is_some_and(|why| why.contains("GPU 0 is lost")));
}
