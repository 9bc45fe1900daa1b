//! Several engines behind one handle: the answers of one, requests near their cache, and the load spread.
#![allow(clippy::unwrap_used)]

mod chain;

use chain::Chain;
use shardwright_engine::engine::{Engine, Flow, Sink, Ticket};
use shardwright_engine::options::Options;
use shardwright_engine::replicas::Replicas;
use shardwright_engine::request::{Part, Request};
use shardwright_engine::{Error, Result};
use shardwright_model::exec::{BLOCK, ExecError, Executor, Limits, Probe, StepBatch, StepOutput};
use shardwright_model::null::Null;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

struct Pipe(Sender<Part>);

impl Sink for Pipe {
    fn put(&mut self, part: Part) -> Flow {
        if self.0.send(part).is_err() { Flow::Closed } else { Flow::Open }
    }
}

/// A request on its way, and what comes of it.
struct Answer(#[allow(dead_code)] Ticket, Receiver<Part>);

fn submit(replicas: &Replicas, request: Request) -> Result<Answer> {
    let (sender, parts) = channel();
    Ok(Answer(replicas.submit(request, Box::new(Pipe(sender)))?, parts))
}

impl Answer {
    fn next(&self) -> Part {
        self.1.recv_timeout(Duration::from_secs(20)).unwrap()
    }

    /// Once it has begun: tokens that were found in the cache.
    fn begun(&self) -> usize {
        match self.next() {
            Part::Started { reused } => reused,
            other => panic!("{other:?}"),
        }
    }

    /// All tokens, and why it ended if it failed.
    fn end(&self) -> (Vec<u32>, Option<Error>) {
        let mut tokens = vec![];
        loop {
            match self.next() {
                Part::Token { choice, .. } => tokens.push(choice.token),
                Part::Done(_) => return (tokens, None),
                Part::Failed(e) => return (tokens, Some(e)),
                Part::Started { .. } | Part::Prompt(_) => {}
            }
        }
    }
}

/// Says the last token for ever, until told that it is broken.
struct Endless(Null, Arc<AtomicBool>);

impl Executor for Endless {
    fn limits(&self) -> Limits {
        self.0.limits()
    }
    fn step_probed(
        &mut self,
        batch: &StepBatch,
        probe: Option<&mut dyn Probe>,
    ) -> std::result::Result<StepOutput, ExecError> {
        std::thread::sleep(Duration::from_micros(200));
        match self.1.load(Ordering::Relaxed) {
            true => Err(ExecError("on fire".into())),
            false => self.0.step_probed(batch, probe),
        }
    }
}

fn endless(count: usize, options: &Options) -> (Replicas, Vec<Arc<AtomicBool>>) {
    let broken: Vec<_> = (0..count).map(|_| Arc::new(AtomicBool::new(false))).collect();
    let limits =
        Limits { vocab: 1000, rows: 64, blocks: 4000, context: 60_000, width: 1, drafts: false, takes: 0 };
    let start = |broken: &Arc<AtomicBool>| {
        let executor = Endless(Null::new(limits, |token, _| token), broken.clone());
        Engine::start(Box::new(executor), [], options.clone()).unwrap()
    };
    (Replicas::new(broken.iter().map(start).collect()).unwrap(), broken)
}

fn running(replicas: &Replicas) -> Vec<usize> {
    replicas.all().iter().map(|e| e.stats().running).collect()
}

/// A prompt of so many tokens that begins like no other of another kind.
fn prompt(kind: u32, len: usize) -> Request {
    Request { max_tokens: Some(2), ..Request::new(vec![kind; len]) }
}

#[test]
fn the_answers_are_those_of_one() {
    let chain = Chain::new(&[]).script("A", &[b"some", b" words"]).script("B", &[b"other"]);
    let start = || {
        Engine::start(
            chain.executor(32, 64, 512),
            chain.tokenizer().end_tokens().iter().copied(),
            Options::default(),
        )
    };
    let one = Replicas::from(start().unwrap());
    let three = Replicas::new((0..3).map(|_| start().unwrap()).collect()).unwrap();
    let ask = |replicas: &Replicas| {
        let prompts = ["A", "B", "xxxA", "A", "yB", "B"];
        let answers: Vec<_> =
            prompts.iter().map(|p| submit(replicas, chain.request(p, &[])).unwrap()).collect();
        answers.iter().map(|a| a.end().0).collect::<Vec<_>>()
    };
    assert_eq!(ask(&three), ask(&one));
    assert_eq!(three.stats().requests, 6);
    assert!(three.all().iter().all(|e| e.stats().requests > 0), "all of them work");
}

#[test]
fn a_conversation_goes_where_its_beginning_is() {
    let (replicas, _) = endless(3, &Options::default());
    let begin = |kind, len| submit(&replicas, prompt(kind, len)).unwrap();
    for kind in 0..6 {
        let first = begin(kind, 5 * BLOCK);
        assert_eq!(first.begun(), 0);
        first.end();
    }
    let requests = || replicas.all().iter().map(|e| e.stats().requests).collect::<Vec<_>>();
    assert_eq!(requests(), [2, 2, 2], "one with less in its cache comes first");
    for kind in (0..6).rev() {
        let again = begin(kind, 6 * BLOCK);
        assert_eq!(again.begun(), 5 * BLOCK, "kind {kind}");
        again.end();
    }
    assert_eq!(replicas.stats().reused_tokens, 30 * BLOCK as u64);
    assert_eq!(requests(), [4, 4, 4]);
}

#[test]
fn load_is_spread_even_if_all_begin_alike() {
    let (replicas, _) = endless(2, &Options::default());
    let long =
        |prompt: Vec<u32>| submit(&replicas, Request { max_tokens: Some(50_000), ..Request::new(prompt) });
    let answers: Vec<_> = (0..8).map(|kind| long(vec![kind]).unwrap()).collect();
    answers.iter().for_each(|a| assert_eq!(a.begun(), 0));
    assert_eq!(running(&replicas), [4, 4]);
    drop(answers);
    let begun = Instant::now();
    while running(&replicas) != [0, 0] {
        assert!(begun.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(1));
    }
    submit(&replicas, prompt(7, 2 * BLOCK + 1)).unwrap().end();
    let alike = |last| [vec![7; 2 * BLOCK], vec![last; 9]].concat();
    let answers: Vec<_> = (0..8).map(|kind| long(alike(kind)).unwrap()).collect();
    answers.iter().for_each(|a| {
        a.begun();
    });
    let mut all = running(&replicas);
    all.sort_unstable();
    assert!(all[0] >= 3, "{all:?}");
}

#[test]
fn a_full_queue_is_passed_by() {
    let options = Options { queue: 1, sequences: 1, ..Options::default() };
    let (replicas, _) = endless(2, &options);
    let conversation = || prompt(5, 40 * BLOCK);
    submit(&replicas, conversation()).unwrap().end();
    let long = || Request { max_tokens: Some(30_000), ..conversation() };
    let mut answers = vec![];
    // one runs and one waits at each, whatever is cached where
    while answers.len() < 4 {
        answers.push(submit(&replicas, long()).unwrap());
        let running = answers.len().div_ceil(2);
        let begun = Instant::now();
        while replicas.stats().running < running.min(answers.len())
            && begun.elapsed() < Duration::from_millis(500)
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert!(matches!(submit(&replicas, long()).err(), Some(Error::Busy { .. })));
    assert_eq!((running(&replicas), replicas.stats().waiting), (vec![1, 1], 2));
}

#[test]
fn one_that_breaks_is_named_and_all_can_be_stopped() {
    let (replicas, broken) = endless(2, &Options::default());
    let long = |kind| submit(&replicas, Request { max_tokens: Some(50_000), ..Request::new(vec![kind]) });
    let answers = [long(1).unwrap(), long(2).unwrap()];
    answers.iter().for_each(|a| assert_eq!(a.begun(), 0));
    assert_eq!(replicas.failed(), None);
    broken[1].store(true, Ordering::Relaxed);
    assert!(matches!(answers[1].end().1, Some(Error::Broken(_))));
    let begun = Instant::now();
    while replicas.failed().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
    assert!(replicas.failed().unwrap().starts_with("replica 1: "), "{:?}", replicas.failed());
    replicas.stop(Duration::ZERO);
    assert!(answers[0].end().1.is_some());
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(Replicas::new(vec![]).is_err());
}
