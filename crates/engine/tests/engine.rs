//! The engine's thread: answers through sinks, cancellation, slow readers, stopping, failures; cases O1, O5, C5.
#![allow(clippy::unwrap_used)]

mod chain;

use chain::Chain;
use shardwright_engine::engine::{Engine, Flow, Options, Sink, Ticket};
use shardwright_engine::request::{Done, Finish, Part, Request};
use shardwright_engine::{Error, Result};
use shardwright_model::exec::{ExecError, Executor, Limits, Probe, StepBatch, StepOutput};
use shardwright_model::null::Null;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Hands everything on, and says what it is told to say.
struct Pipe {
    parts: Sender<Part>,
    says: Arc<Mutex<Flow>>,
}

impl Sink for Pipe {
    fn put(&mut self, part: Part) -> Flow {
        let sent = self.parts.send(part);
        if sent.is_err() { Flow::Closed } else { self.ready() }
    }
    fn ready(&mut self) -> Flow {
        *self.says.lock().unwrap()
    }
}

/// The other end of a [`Pipe`].
struct Answer {
    ticket: Option<Ticket>,
    parts: Receiver<Part>,
    says: Arc<Mutex<Flow>>,
}

fn submit(engine: &Engine, request: Request) -> Result<Answer> {
    submit_saying(engine, request, Flow::Open)
}

fn submit_saying(engine: &Engine, request: Request, says: Flow) -> Result<Answer> {
    let (sender, parts) = channel();
    let says = Arc::new(Mutex::new(says));
    let ticket = engine.submit(request, Box::new(Pipe { parts: sender, says: says.clone() }))?;
    Ok(Answer { ticket: Some(ticket), parts, says })
}

impl Answer {
    fn next(&self) -> Part {
        self.parts.recv_timeout(Duration::from_secs(20)).expect("a part comes")
    }

    /// All tokens and the end; nothing may follow it.
    fn end(&self) -> (Vec<u32>, Result<Done>) {
        let mut tokens = Vec::new();
        let end = loop {
            match self.next() {
                Part::Started { .. } | Part::Prompt(_) => {}
                Part::Token { choice, .. } => tokens.push(choice.token),
                Part::Done(done) => break Ok(*done),
                Part::Failed(e) => break Err(e),
            }
        };
        assert!(self.parts.recv_timeout(Duration::from_secs(20)).is_err(), "more after the last part");
        (tokens, end)
    }

    fn tokens(&self, n: usize) {
        let mut left = n;
        while left > 0 {
            left -= usize::from(matches!(self.next(), Part::Token { .. }));
        }
    }
}

fn limits(rows: usize, blocks: usize, context: usize) -> Limits {
    Limits { vocab: 1000, rows, blocks, context, width: 1, drafts: false, takes: 0 }
}

/// Says the same token for ever, a step every millisecond at most.
fn endless(rows: usize, blocks: usize, context: usize) -> Engine {
    let next = |token, _| {
        std::thread::sleep(Duration::from_micros(200));
        token
    };
    Engine::start(Box::new(Null::new(limits(rows, blocks, context), next)), [], Options::default()).unwrap()
}

fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !is() {
        assert!(Instant::now() < until, "not {what} after 20 s");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn is_free(engine: &Engine) -> bool {
    let stats = engine.stats();
    stats.running == 0 && stats.waiting == 0 && stats.blocks_free == stats.blocks
}

#[test]
fn answers_come_through_sinks() {
    let chain = Chain::new(&[]).script("A", &[b"Hi", b" you"]);
    let ends = chain.tokenizer().end_tokens().to_vec();
    let engine = Engine::start(chain.executor(32, 128, 512), ends, Options::default()).unwrap();
    let answers: Vec<_> = (0..40).map(|_| submit(&engine, chain.request("A", &[])).unwrap()).collect();
    for answer in &answers {
        let (tokens, done) = answer.end();
        let done = done.unwrap();
        assert_eq!(
            (done.message.content.as_str(), done.finish, tokens.len()),
            ("Hi you", Finish::EndToken, 2)
        );
    }
    eventually("free", || is_free(&engine));
    let stats = engine.stats();
    assert_eq!((stats.requests, stats.prompt_tokens, stats.answer_tokens), (40, 40, 120));
    assert!(stats.steps.count() >= 3);
}

#[test]
fn a_request_that_cannot_run_is_refused_at_once() {
    let engine = endless(4, 2, 512);
    let request = Request { max_tokens: Some(0), ..Request::new(vec![1]) };
    assert!(matches!(submit(&engine, request).err(), Some(Error::Parameter { name: "max_tokens", .. })));
    let error = submit(&engine, Request::new(vec![1])).err();
    assert_eq!(error, Some(Error::CacheTooSmall { needed: 8, blocks: 2 }));
    assert_eq!(engine.stats().requests, 0);
}

#[test]
fn more_than_may_wait_are_refused() {
    let executor = Box::new(Null::new(limits(1, 8, 512), |token, _| token));
    let engine = Engine::start(executor, [], Options { queue: 3, ..Options::default() }).unwrap();
    let request = || Request { max_tokens: Some(500), ..Request::new(vec![1]) };
    let first = submit_saying(&engine, request(), Flow::Full).unwrap();
    eventually("counted", || engine.stats().running == 1 && engine.stats().waiting == 0);
    let waiting: Vec<_> = (0..3).map(|_| submit(&engine, request()).unwrap()).collect();
    assert_eq!(submit(&engine, request()).err(), Some(Error::Busy { queued: 3 }));
    *first.says.lock().unwrap() = Flow::Open;
    for answer in [first].iter().chain(&waiting) {
        assert_eq!(answer.end().0.len(), 500);
    }
}

#[test]
fn o1_who_leaves_frees_its_slot_and_only_its_own() {
    let engine = endless(1, 1000, 60_000);
    let long = || Request { max_tokens: Some(50_000), ..Request::new(vec![1]) };
    let short = || Request { max_tokens: Some(1), ..Request::new(vec![2]) };
    let check = |mut leaver: Answer| {
        leaver.ticket = None;
        let started = Instant::now();
        assert_eq!(submit(&engine, short()).unwrap().end().0.len(), 1);
        assert!(started.elapsed() < Duration::from_secs(2));
        assert_eq!(leaver.end().1.unwrap().finish, Finish::Cancelled);
    };
    // in the middle of its answer; in the middle of its prompt
    let answering = submit(&engine, long()).unwrap();
    answering.tokens(2);
    check(answering);
    let reading = submit(&engine, Request::new(vec![1; 50_000])).unwrap();
    assert!(matches!(reading.next(), Part::Started { .. }));
    check(reading);
    // while it waits: the one before it goes on
    let first = submit(&engine, Request { max_tokens: Some(300), ..long() }).unwrap();
    let mut second = submit(&engine, long()).unwrap();
    second.ticket = None;
    assert_eq!((second.end().0.len(), first.end().0.len()), (0, 300));
    // nobody listens: no ticket is needed for that
    let deaf = submit(&engine, long()).unwrap();
    deaf.tokens(1);
    *deaf.says.lock().unwrap() = Flow::Closed;
    eventually("free", || is_free(&engine));
    for i in 0..1000 {
        let answer = submit(&engine, long()).unwrap();
        if i % 3 == 0 {
            answer.tokens(1);
        }
    }
    eventually("free", || is_free(&engine));
}

#[test]
fn a_slow_reader_gets_all_and_delays_nobody() {
    let engine = endless(4, 100, 512);
    let request = |n| Request { max_tokens: Some(n), ..Request::new(vec![7]) };
    let slow = submit(&engine, request(400)).unwrap();
    slow.tokens(1);
    *slow.says.lock().unwrap() = Flow::Full;
    let fast = submit(&engine, request(400)).unwrap();
    assert_eq!(fast.end().0.len(), 400);
    eventually("counted", || engine.stats().running == 1);
    let held = engine.stats().answer_tokens;
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(engine.stats().answer_tokens, held, "something went on");
    assert!(held < 800);
    *slow.says.lock().unwrap() = Flow::Open;
    assert_eq!(slow.end().0.len(), 399);
}

#[test]
fn o5_stopping_lets_running_answers_end_in_time() {
    let check = |drain: u64, tokens: usize, finishes: bool| {
        let engine = endless(1, 1000, 60_000);
        let running = submit(&engine, Request { max_tokens: Some(tokens), ..Request::new(vec![1]) }).unwrap();
        running.tokens(1);
        let waiting = submit(&engine, Request::new(vec![1])).unwrap();
        let started = Instant::now();
        engine.stop(Duration::from_millis(drain));
        assert!(started.elapsed() < Duration::from_millis(drain) + Duration::from_secs(2));
        let end = running.end().1;
        match finishes {
            true => assert_eq!(end.unwrap().finish, Finish::MaxTokens),
            false => assert_eq!(end.unwrap_err(), Error::Stopped),
        }
        assert_eq!(waiting.end().1.unwrap_err(), Error::Stopped);
        assert_eq!(submit(&engine, Request::new(vec![1])).err(), Some(Error::Stopped));
        assert_eq!(engine.failed(), None);
        engine.stop(Duration::MAX);
    };
    check(0, 50_000, false);
    check(50, 50_000, false);
    check(60_000, 100, true);
}

/// Takes a while for every row, and a little for every step.
struct Slow(Null, Duration);

impl Executor for Slow {
    fn limits(&self) -> Limits {
        self.0.limits()
    }
    fn step_probed(
        &mut self,
        batch: &StepBatch,
        probe: Option<&mut dyn Probe>,
    ) -> std::result::Result<StepOutput, ExecError> {
        std::thread::sleep(Duration::from_millis(1) + self.1 * batch.rows() as u32);
        self.0.step_probed(batch, probe)
    }
}

/// Four answers run; long prompts come, then a short one. A whole prompt takes 2 s.
#[test]
fn o2_long_prompts_do_not_stop_the_others() {
    let null = Null::new(limits(512, 4000, 30_000), |token, _| token);
    let slow = Slow(null, Duration::from_micros(100));
    let options = Options { prompt_time: Duration::from_millis(20), ..Options::default() };
    let engine = Engine::start(Box::new(slow), [], options).unwrap();
    let request = |prompt, n| Request { max_tokens: Some(n), ..Request::new(prompt) };
    let streams: Vec<_> = (0..4).map(|i| submit(&engine, request(vec![i], 20_000)).unwrap()).collect();
    streams.iter().for_each(|s| s.tokens(3));
    let long: Vec<_> = (10..13).map(|i| submit(&engine, request(vec![i; 20_000], 1)).unwrap()).collect();
    let started = Instant::now();
    let short = submit(&engine, request(vec![9; 50], 1)).unwrap();
    short.tokens(1);
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    // what has come meanwhile came without a long break: steps stay near 20 ms, not 51
    let steps = engine.stats().steps;
    while streams[0].parts.try_recv().is_ok() {}
    streams[0].tokens(20);
    let took = engine.stats().steps.sum().saturating_sub(steps.sum());
    let count = engine.stats().steps.count() - steps.count();
    assert!(took / (count.max(1) as u32) < Duration::from_millis(40), "{took:?} for {count} steps");
    assert_eq!(long[0].end().0.len(), 1);
    assert!(started.elapsed() < Duration::from_secs(30));
}

/// An executor that breaks when told, at the next step.
struct Breaks(Null, Arc<AtomicBool>, bool);

/// One that notices by itself.
struct Notices(Breaks);

impl Executor for Notices {
    fn limits(&self) -> Limits {
        self.0.limits()
    }
    fn check(&mut self) -> std::result::Result<(), ExecError> {
        match self.0.1.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(ExecError("rank 3 is gone".into())),
        }
    }
    fn step_probed(
        &mut self,
        batch: &StepBatch,
        probe: Option<&mut dyn Probe>,
    ) -> std::result::Result<StepOutput, ExecError> {
        self.0.step_probed(batch, probe)
    }
}

#[test]
fn c5_an_executor_that_breaks_while_nobody_asks_is_seen() {
    let broken = Arc::new(AtomicBool::new(false));
    let null = Null::new(limits(2, 10, 100), |token, _| token);
    let executor = Notices(Breaks(null, broken.clone(), false));
    let engine = Engine::start(Box::new(executor), [], Options::default()).unwrap();
    broken.store(true, Ordering::Relaxed);
    let begun = Instant::now();
    eventually("failed", || engine.failed().is_some());
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    assert!(engine.failed().unwrap().contains("rank 3 is gone"));
}

impl Executor for Breaks {
    fn limits(&self) -> Limits {
        self.0.limits()
    }
    fn step_probed(
        &mut self,
        batch: &StepBatch,
        probe: Option<&mut dyn Probe>,
    ) -> std::result::Result<StepOutput, ExecError> {
        match self.1.load(Ordering::Relaxed) {
            false => self.0.step_probed(batch, probe),
            true if self.2 => panic!("on fire"),
            true => Err(ExecError("rank 3 is gone".into())),
        }
    }
}

#[test]
fn c5_a_broken_executor_fails_everybody_loudly() {
    let check = |panics: bool, why: &str| {
        let broken = Arc::new(AtomicBool::new(false));
        let null = Null::new(limits(2, 1000, 60_000), |token, _| token);
        let engine =
            Engine::start(Box::new(Breaks(null, broken.clone(), panics)), [], Options::default()).unwrap();
        let answers: Vec<_> = (0..4).map(|_| submit(&engine, Request::new(vec![1])).unwrap()).collect();
        answers[0].tokens(3);
        broken.store(true, Ordering::Relaxed);
        for answer in &answers {
            let error = answer.end().1.unwrap_err();
            assert!(matches!(&error, Error::Broken(text) if text.contains(why)), "{error}");
        }
        eventually("failed", || engine.failed().is_some());
        assert!(engine.failed().unwrap().contains(why));
        assert!(matches!(submit(&engine, Request::new(vec![1])).err(), Some(Error::Broken(_))));
        engine.stop(Duration::from_secs(60));
    };
    check(false, "rank 3 is gone");
    check(true, "on fire");
}
