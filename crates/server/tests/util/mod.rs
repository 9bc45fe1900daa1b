//! A server over a real socket, on a chain instead of a model, and a client that hides nothing.
#![allow(dead_code, clippy::unwrap_used)] // each test file uses its part

#[path = "../../../engine/tests/chain/mod.rs"]
mod chain;

pub(crate) use chain::Chain;
use serde_json::{Map, Value, json};
use shardwright_engine::engine::{self, Engine};
use shardwright_engine::replicas::Replicas;
use shardwright_model::exec::Executor;
use shardwright_server::app::{App, Shared};
use shardwright_server::host::Host;
use shardwright_server::model::{Model, Parts};
use shardwright_server::options::Options;
use shardwright_server::serve;
use shardwright_text::reply::Syntax;
use shardwright_text::template::ChatTemplate;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;
use tokio::runtime::Runtime;

/// What the case files' template does: the last message is the prompt.
pub(crate) const LAST: &str = "{{ messages[-1]['content'] }}";

/// How a server is set up.
pub(crate) struct Setup {
    pub(crate) template: &'static str,
    pub(crate) syntax: Option<Syntax>,
    pub(crate) options: Options,
    /// Cache blocks, tokens of a sequence.
    pub(crate) room: (usize, usize),
    /// Most requests that wait.
    pub(crate) queue: usize,
    /// Most requests that run.
    pub(crate) sequences: usize,
}

impl Default for Setup {
    fn default() -> Setup {
        let options = Options { model: "chain".into(), ..Options::default() };
        Setup { template: LAST, syntax: None, options, room: (256, 512), queue: 1024, sequences: 64 }
    }
}

/// Calls of tools in GLM's words, as case J1 has them.
pub(crate) fn j1() -> Chain {
    Chain::new(&["<tool_call>", "</tool_call>"])
        .script("A", &[b"<tool_call>", b"get_time", b"</tool_call>"])
        .script(
            "B",
            &[
                b"Sure. <tool_",
                b"call>look",
                b"up<arg_key>order_id</arg_key><arg_va",
                b"lue>00123</arg_value><arg_key>max</arg_key>\n",
                b"<arg_value>10</arg_value><arg_key>tags</arg_key><arg_value>[\"a\"]</arg_value><arg_key>ok</arg_key><arg_value>true</arg_value>",
                b"</tool_call>",
            ],
        )
        .script("C", &[b"a < b and <tool", b" is a word"])
}

/// GLM's syntax.
pub(crate) fn glm() -> Setup {
    Setup { syntax: Syntax::by_name("glm"), ..Setup::default() }
}

/// A model that thinks unless told not to, as case J2 has it.
pub(crate) fn j2() -> Server {
    let chain = Chain::new(&["<think>", "</think>", "<|assistant|>"])
        .script("<think>", &[b"Let me", b" see</thi", b"nk>The an", b"swer"])
        .script("</think>", &[b"Direct"]);
    let template = "{{ messages[-1]['content'] }}<|assistant|>{{ '</think>' if enable_thinking is defined and not enable_thinking else '<think>' }}";
    Server::start(&chain, Setup { template, ..glm() })
}

/// A server that runs until it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) engine: Replicas,
    pub(crate) app: Shared,
    runtime: Option<Runtime>,
    host: Option<Host>,
}

impl Server {
    pub(crate) fn start(chain: &Chain, setup: Setup) -> Server {
        let executor = chain.executor(32, setup.room.0, setup.room.1);
        Server::on(executor, chain, setup)
    }

    /// On another executor with the chain's vocabulary.
    pub(crate) fn on(executor: Box<dyn Executor>, chain: &Chain, setup: Setup) -> Server {
        Server::on_all(vec![executor], chain, setup)
    }

    /// On several executors side by side.
    pub(crate) fn on_all(executors: Vec<Box<dyn Executor>>, chain: &Chain, setup: Setup) -> Server {
        let tokenizer = chain.tokenizer();
        let context = executors[0].limits().context;
        let start = |executor| {
            let options = engine::Options {
                queue: setup.queue,
                sequences: setup.sequences,
                ..engine::Options::default()
            };
            Engine::start(executor, tokenizer.end_tokens().iter().copied(), options).unwrap()
        };
        let engine = Replicas::new(executors.into_iter().map(start).collect()).unwrap();
        let template = ChatTemplate::from_source(setup.template).unwrap();
        let model =
            Model::new(Parts { template: Some(template), syntax: setup.syntax, ..parts(chain, context) });
        let runtime = Runtime::new().unwrap();
        let (address, app, host) = runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let app = App::new(setup.options, address);
            app.install(engine.clone(), model);
            serve::open(&app, &engine, None).await;
            let host = Host::new(&app, listener);
            (address, app, host)
        });
        Server { address, engine, app, runtime: Some(runtime), host: Some(host) }
    }

    /// With the defaults.
    pub(crate) fn of(chain: &Chain) -> Server {
        Server::start(chain, Setup::default())
    }

    /// A connection on which a request has been sent.
    pub(crate) fn send(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> TcpStream {
        let mut socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let length = body.len();
        let host = if headers.starts_with("host:") { "" } else { "host: localhost\r\n" };
        let head = format!(
            "{method} {path} HTTP/1.1\r\n{host}connection: close\r\ncontent-length: {length}\r\n{headers}\r\n"
        );
        socket.write_all(head.as_bytes()).unwrap();
        // A server that refuses early may have closed its side.
        let _ = socket.write_all(body);
        socket
    }

    pub(crate) fn ask(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
        Answer::read(self.send(method, path, headers, body))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "", b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, JSON, body.to_string().as_bytes())
    }

    /// A chat of one message, greedy, with more fields.
    pub(crate) fn chat(&self, text: &str, more: Value) -> Answer {
        self.post("/v1/chat/completions", &chat(text, more))
    }

    /// The answer's first choice, which must be there.
    pub(crate) fn choice(&self, text: &str, more: Value) -> Value {
        let answer = self.chat(text, more);
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()["choices"][0].clone()
    }

    /// A streamed chat, put together as clients do.
    pub(crate) fn streamed(&self, text: &str, more: Value) -> Streamed {
        let mut body = chat(text, more);
        body["stream"] = true.into();
        let answer = self.post("/v1/chat/completions", &body);
        assert_eq!(answer.status, 200, "{}", answer.text);
        Streamed::new(answer.events())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let (Some(runtime), Some(host)) = (self.runtime.take(), self.host.take()) {
            runtime.block_on(host.end(Duration::ZERO));
            runtime.shutdown_background();
        }
    }
}

/// A model of the chain's vocabulary that cannot chat.
pub(crate) fn model(chain: &Chain, context: usize) -> Model {
    Model::new(parts(chain, context))
}

fn parts(chain: &Chain, context: usize) -> Parts {
    Parts {
        names: vec!["chain".into(), "other".into()],
        tokenizer: chain.tokenizer(),
        template: None,
        syntax: None,
        context,
        vocab: chain.vocab(),
        kwargs: Map::new(),
    }
}

pub(crate) const JSON: &str = "content-type: application/json\r\n";

/// A greedy chat of one message, with more fields.
pub(crate) fn chat(text: &str, more: Value) -> Value {
    let mut body =
        json!({"model": "chain", "temperature": 0, "messages": [{"role": "user", "content": text}]});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

/// A whole response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn read(mut socket: TcpStream) -> Answer {
        let mut bytes = Vec::new();
        socket.read_to_end(&mut bytes).unwrap();
        let _ = socket.shutdown(Shutdown::Both);
        let mut rest = &bytes[..];
        let (head, body) = loop {
            let end = rest.windows(4).position(|w| w == b"\r\n\r\n").expect("a head");
            let head = String::from_utf8(rest[..end].to_vec()).unwrap().to_ascii_lowercase();
            rest = &rest[end + 4..];
            // interim responses are skipped, as clients do
            if !head.starts_with("http/1.1 1") {
                break (head, rest);
            }
        };
        let status = head[9..12].parse().unwrap();
        let chunked = head.contains("transfer-encoding: chunked");
        let body = if chunked { joined(body) } else { body.to_vec() };
        Answer { status, head, text: String::from_utf8(body).unwrap() }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    /// The field that an error names; the body must have the form of an error.
    pub(crate) fn error(&self) -> Value {
        let error = self.json()["error"].clone();
        assert!(error["message"].is_string() && error["type"].is_string(), "{}", self.text);
        assert!(error.get("code").is_some() && error.get("param").is_some(), "{}", self.text);
        error
    }

    /// The data of all events but the last, which must be `[DONE]`.
    pub(crate) fn events(&self) -> Vec<Value> {
        let mut data: Vec<&str> = self.text.lines().filter_map(|l| l.strip_prefix("data: ")).collect();
        assert_eq!(data.pop(), Some("[DONE]"), "{}", self.text);
        data.into_iter().map(|d| serde_json::from_str(d).unwrap()).collect()
    }
}

/// The chunks of a chunked body.
fn joined(mut body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let end = body.windows(2).position(|w| w == b"\r\n").expect("the size of a chunk");
        let size = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            return out;
        }
        out.extend_from_slice(&body[end + 2..end + 2 + size]);
        body = &body[end + 4 + size..];
    }
}

/// A streamed chat, put together.
#[derive(Debug, Default)]
pub(crate) struct Streamed {
    pub(crate) events: Vec<Value>,
    pub(crate) content: String,
    pub(crate) reasoning: String,
    /// Name and arguments.
    pub(crate) calls: Vec<(String, String)>,
    pub(crate) finish: Option<String>,
}

impl Streamed {
    fn new(events: Vec<Value>) -> Streamed {
        let mut all = Streamed::default();
        for choice in events.iter().filter_map(|e| e["choices"].get(0)) {
            let delta = &choice["delta"];
            all.content += delta["content"].as_str().unwrap_or_default();
            all.reasoning += delta["reasoning_content"].as_str().unwrap_or_default();
            for call in delta["tool_calls"].as_array().into_iter().flatten() {
                if let Some(name) = call["function"]["name"].as_str() {
                    assert_eq!(call["index"], all.calls.len());
                    assert!(call["id"].is_string() && call["type"] == "function");
                    all.calls.push((name.into(), String::new()));
                }
                all.calls.last_mut().unwrap().1 += call["function"]["arguments"].as_str().unwrap();
            }
            if let Some(finish) = choice["finish_reason"].as_str() {
                assert!(all.finish.replace(finish.into()).is_none(), "two ends: {events:?}");
            }
        }
        all.events = events;
        all
    }
}
