//! Life under load: cases O1, O4, O5; queues, slow readers, time limits.
#![allow(clippy::unwrap_used)]

mod util;

use serde_json::json;
use shardwright_engine::engine::{self, Engine};
use shardwright_model::exec::{ExecError, Executor, Limits, Probe, StepBatch, StepOutput};
use shardwright_model::null::Null;
use shardwright_server::Patience;
use shardwright_server::gate::Phase;
use shardwright_server::options::Options;
use shardwright_server::serve::{self, Loaded, serve};
use std::io::Read;
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};
use util::{Answer, Chain, JSON, Server, Setup, chat};

/// Says x for ever, to one client at a time.
fn endless(queue: usize, options: Options) -> Server {
    let chain = Chain::new(&[]);
    let limits = Limits {
        vocab: chain.vocab(),
        rows: 32,
        blocks: 1024,
        context: 65_536,
        width: 1,
        drafts: false,
        takes: 0,
    };
    // Slowly enough that a request of 60,000 tokens outlives its test.
    let next = |_, _| {
        std::thread::sleep(Duration::from_micros(100));
        u32::from(b'x')
    };
    let executor = Box::new(Null::new(limits, next));
    Server::on(executor, &chain, Setup { queue, options, sequences: 1, ..Setup::default() })
}

fn begin(server: &Server, prompt: &str, stream: bool) -> TcpStream {
    let body = chat(prompt, json!({"stream": stream, "max_tokens": 60_000}));
    server.send("POST", "/v1/chat/completions", JSON, body.to_string().as_bytes())
}

fn first_chunk(socket: &mut TcpStream) {
    let mut some = [0; 4096];
    while !String::from_utf8_lossy(&some).contains("data:") {
        assert!(socket.read(&mut some).unwrap() > 0);
    }
}

/// A request that needs the whole cache's rest answers soon.
fn answers_soon(server: &Server) {
    let begun = Instant::now();
    let answer = server.chat("A", json!({"max_tokens": 1}));
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

fn is_idle(server: &Server) {
    let begun = Instant::now();
    loop {
        let stats = server.engine.stats();
        if (stats.running, stats.waiting, stats.blocks_free) == (0, 0, stats.blocks) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{stats:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn o1_a_client_that_leaves_frees_its_place() {
    let server = endless(1024, Setup::default().options);
    let mut streamed = begin(&server, "A", true);
    first_chunk(&mut streamed);
    drop(streamed);
    answers_soon(&server);
    let whole = begin(&server, "A", false);
    std::thread::sleep(Duration::from_millis(200));
    drop(whole);
    answers_soon(&server);
    is_idle(&server);
    assert_eq!(server.engine.stats().cancelled, 2);
}

#[test]
fn o1_who_leaves_the_queue_disturbs_nobody() {
    let server = endless(1024, Setup::default().options);
    let mut first = begin(&server, "A", true);
    first_chunk(&mut first);
    let second = begin(&server, "A", false);
    while server.engine.stats().waiting == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(second);
    let begun = Instant::now();
    while server.engine.stats().waiting > 0 {
        assert!(begun.elapsed() < Duration::from_secs(5));
        std::thread::sleep(Duration::from_millis(5));
    }
    first_chunk(&mut first);
    drop(first);
    is_idle(&server);
}

#[test]
fn o1_who_has_no_more_to_say_may_still_listen() {
    let server = endless(1024, Setup::default().options);
    for tokens in [1, 3000] {
        let body = chat("A", json!({"max_tokens": tokens})).to_string();
        let socket = server.send("POST", "/v1/chat/completions", JSON, body.as_bytes());
        socket.shutdown(Shutdown::Write).unwrap();
        let answer = Answer::read(socket);
        assert_eq!((answer.status, &answer.json()["usage"]["completion_tokens"]), (200, &json!(tokens)));
    }
}

#[test]
fn a_full_queue_says_when_to_come_again() {
    let server = endless(1, Setup::default().options);
    let mut running = begin(&server, "A", true);
    first_chunk(&mut running);
    let _waiting = begin(&server, "A", true);
    while server.engine.stats().waiting == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let refused = server.chat("A", json!({"max_tokens": 60_000}));
    assert_eq!((refused.status, &refused.error()["code"]), (429, &json!("queue_full")));
    assert!(refused.head.contains("retry-after: "), "{}", refused.head);
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn an_answer_that_takes_too_long_is_ended() {
    let patience = Patience { whole: Some(Duration::from_millis(300)), stalled: Duration::from_secs(60) };
    let server = endless(8, Options { patience, ..Setup::default().options });
    let whole = server.chat("A", json!({"max_tokens": 60_000}));
    assert_eq!((whole.status, &whole.error()["code"]), (504, &json!("request_timeout")));
    let streamed = server.streamed("A", json!({"max_tokens": 60_000}));
    assert_eq!(streamed.events.last().unwrap()["error"]["code"], "request_timeout");
    is_idle(&server);
}

#[test]
fn who_reads_nothing_is_not_served_for_ever() {
    let patience = Patience { whole: None, stalled: Duration::from_millis(300) };
    let server = endless(8, Options { patience, ..Setup::default().options });
    let stalled = begin(&server, "A", true);
    let begun = Instant::now();
    while server.engine.stats().cancelled == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", server.engine.stats());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(server.engine.stats().answer_tokens < 60_000);
    drop(stalled);
    is_idle(&server);
}

#[test]
fn o4_health_follows_the_phase() {
    let server = endless(8, Setup::default().options);
    let check = |path: &str, status: u16| assert_eq!(server.get(path).status, status, "{path}");
    ["/health", "/ready", "/live", "/v1/models"].iter().for_each(|path| check(path, 200));
    server.engine.stop(Duration::ZERO);
    let stopped = server.chat("A", json!({"max_tokens": 1}));
    assert_eq!(stopped.status, 503);
    assert!(stopped.head.contains("retry-after: "));
}

/// Works for some steps, then never again.
struct Breaks(Null, usize);

impl Executor for Breaks {
    fn limits(&self) -> Limits {
        self.0.limits()
    }

    fn step_probed(
        &mut self,
        batch: &StepBatch,
        probe: Option<&mut dyn Probe>,
    ) -> Result<StepOutput, ExecError> {
        self.1 = self.1.checked_sub(1).ok_or_else(|| ExecError("the device is lost".into()))?;
        self.0.step_probed(batch, probe)
    }
}

/// What a server comes to whose executor breaks after so many steps.
fn life(steps: usize, fault: Option<&str>) -> (Result<(), serve::Error>, Phase) {
    let limits = Limits { vocab: 300, rows: 8, blocks: 8, context: 64, width: 1, drafts: false, takes: 0 };
    let (tell, told) = std::sync::mpsc::channel();
    let fault = fault.map(str::to_owned);
    let load = move |gate: &shardwright_server::gate::Gate| {
        tell.send(gate.clone()).unwrap();
        let engine = Engine::start(
            Box::new(Breaks(Null::new(limits, |_, _| 1), steps)),
            [256],
            engine::Options::default(),
        );
        Ok(Loaded { engine: engine.unwrap().into(), model: util::model(&Chain::new(&[]), 64), fault })
    };
    let options = Options { port: 0, ..Options::default() };
    let running = std::thread::spawn(move || serve(options, |_| (), load));
    let gate = told.recv().unwrap();
    let begun = Instant::now();
    while !running.is_finished() && !matches!(gate.phase(), Phase::Ready | Phase::Failed(_)) {
        assert!(begun.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(5));
    }
    match running.is_finished() || steps == 0 {
        true => (running.join().unwrap(), gate.phase()),
        // it would go on until a signal comes
        false => (Ok(()), gate.phase()),
    }
}

#[test]
fn a_broken_executor_ends_the_server() {
    let (result, phase) = life(0, None);
    assert!(
        matches!(&result, Err(serve::Error::Engine(why)) if why.contains("the device is lost")),
        "{result:?}"
    );
    assert!(matches!(phase, Phase::Failed(_)), "{phase:?}");
}

#[test]
fn replicas_are_one_service() {
    let chain = Chain::new(&[]).script("A", &[b"some", b" words"]);
    let executors = (0..2).map(|_| chain.executor(32, 64, 512)).collect();
    let server = Server::on_all(executors, &chain, Setup::default());
    // the first token of each was tested
    assert!(server.engine.all().iter().all(|e| e.stats().requests == 1));
    let said = |text: &str| {
        let answer = server.chat(text, json!({}));
        let answer = answer.json();
        let found = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
        (answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned(), found)
    };
    let long = |letter: &str| letter.repeat(100) + "A";
    let begun = |letter| said(&long(letter));
    for letter in ["x", "y", "z", "w"] {
        assert_eq!(begun(letter), ("some words".into(), 0));
    }
    for letter in ["w", "x", "z", "y"] {
        assert_eq!(begun(letter), ("some words".into(), 64));
    }
    assert!(server.engine.all().iter().all(|e| e.stats().requests == 5));
    let metrics = server.get("/metrics").text;
    for part in ["num_requests_running{model_name=", "replica=\"0\"", "replica=\"1\""] {
        assert!(metrics.contains(part), "{metrics}");
    }
}

#[test]
fn what_fails_its_test_stays_closed() {
    assert_eq!(life(9, None).1, Phase::Ready);
    assert_eq!(life(9, Some("it is mad")).1, Phase::Failed("it is mad".into()));
}
