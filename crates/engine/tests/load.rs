//! The engine under random load: disconnects, slow readers, a cache that is too small for all. Every answer that
//! somebody waited for is the one it would have been alone.
#![allow(clippy::unwrap_used)]

mod chain;

use chain::{Chain, complete};
use proptest::prelude::*;
use shardwright_engine::engine::{Engine, Flow, Sink, Ticket};
use shardwright_engine::options::Options;
use shardwright_engine::request::{Part, Request};
use shardwright_engine::sample::Sampling;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// What a client asks, and how it behaves.
#[derive(Clone, Debug)]
struct Client {
    kind: usize,
    /// Leaves after so many tokens.
    leaves: Option<usize>,
    /// Leaves by saying so, instead of dropping its ticket.
    says: bool,
    /// Is full after every so many tokens, and stays so for so many questions.
    slow: Option<(usize, usize)>,
}

fn clients() -> impl Strategy<Value = Vec<Client>> {
    let leaves = prop_oneof![2 => Just(None), 1 => (0..60usize).prop_map(Some)];
    let slow = prop_oneof![3 => Just(None), 1 => (1..9usize, 1..4usize).prop_map(Some)];
    let client = (0..KINDS, leaves, any::<bool>(), slow).prop_map(|(kind, leaves, says, slow)| Client {
        kind,
        leaves,
        says,
        slow,
    });
    prop::collection::vec(client, 1..40)
}

const KINDS: usize = 10;

/// Different prompts, some with a common beginning, with all sorts of sampling.
fn request(chain: &Chain, kind: usize) -> Request {
    let sampling = Sampling {
        temperature: if kind.is_multiple_of(3) { 0.0 } else { 1.0 },
        seed: kind as u64,
        presence_penalty: if kind.is_multiple_of(4) { 0.5 } else { 0.0 },
        logprobs: kind.is_multiple_of(2).then_some(1),
        ..Sampling::default()
    };
    let prompt = "B".repeat(40 * (kind % 5)) + &"C".repeat(kind) + "A";
    Request { sampling, max_tokens: Some(20 + 15 * kind), ..chain.request(&prompt, &[]) }
}

struct Pipe {
    client: Client,
    parts: Sender<Part>,
    tokens: usize,
    rests: usize,
}

impl Sink for Pipe {
    fn put(&mut self, part: Part) -> Flow {
        let token = matches!(part, Part::Token { .. });
        let last = matches!(part, Part::Done(_) | Part::Failed(_));
        assert!(last || self.rests == 0, "more for a full sink");
        self.tokens += usize::from(token);
        let _ = self.parts.send(part);
        match (self.client.leaves, self.client.slow) {
            (Some(most), _) if self.client.says && self.tokens >= most => Flow::Closed,
            (_, Some((every, rests))) if token && self.tokens.is_multiple_of(every) => {
                self.rests = rests;
                Flow::Full
            }
            _ => Flow::Open,
        }
    }

    fn ready(&mut self) -> Flow {
        self.rests = self.rests.saturating_sub(1);
        if self.rests == 0 { Flow::Open } else { Flow::Full }
    }
}

/// Reads an answer as its client does; None if it left.
fn read(client: &Client, ticket: Ticket, parts: &Receiver<Part>) -> Option<Vec<u32>> {
    let mut tokens = Vec::new();
    loop {
        if client.leaves.is_some_and(|most| tokens.len() >= most) {
            drop(ticket);
            return None;
        }
        match parts.recv_timeout(Duration::from_secs(60)).expect("an answer goes on, or ends") {
            Part::Token { choice, .. } => tokens.push(choice.token),
            Part::Started { .. } | Part::Prompt(_) => {}
            Part::Done(_) => return Some(tokens),
            Part::Failed(e) => panic!("{e}"),
        }
    }
}

fn chain() -> Chain {
    let d = [("x", 0.5), ("y", 0.3), ("z", 0.2)];
    Chain::new(&[]).fork("A", &d).fork("x", &d).fork("y", &d).fork("z", &d)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn every_answer_is_the_one_it_would_have_been_alone(
        clients in clients(),
        rows in 2..40usize,
        blocks in 6..30usize,
        sequences in 1..40usize,
        prefix_cache: bool,
    ) {
        let chain = chain();
        let solo: Vec<Vec<u32>> = (0..KINDS).map(|kind| complete(&chain, request(&chain, kind)).tokens).collect();
        let options = Options { sequences, prefix_cache, ..Options::default() };
        let ends = chain.tokenizer().end_tokens().to_vec();
        let engine = Engine::start(chain.executor(rows, blocks, 384), ends, options).unwrap();
        std::thread::scope(|scope| {
            for client in &clients {
                let (sender, parts) = channel();
                let pipe = Pipe { client: client.clone(), parts: sender, tokens: 0, rests: 0 };
                let ticket = engine.submit(request(&chain, client.kind), Box::new(pipe)).unwrap();
                let solo = &solo[client.kind];
                scope.spawn(move || {
                    if let Some(tokens) = read(client, ticket, &parts) {
                        assert_eq!(&tokens, solo, "{client:?}");
                    }
                });
            }
        });
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let stats = engine.stats();
            if stats.running == 0 && stats.waiting == 0 {
                prop_assert_eq!(stats.blocks_free, blocks);
                prop_assert_eq!(engine.failed(), None);
                break;
            }
            prop_assert!(Instant::now() < until, "still {:?}", stats);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
