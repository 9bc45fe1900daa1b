//! The life of a server: it listens from the first moment, loads, tests itself, answers, drains, ends.

use crate::app::{App, Shared};
use crate::gate::{Gate, Phase};
use crate::host::{self, Host};
use crate::model::Model;
use crate::options::Options;
use shardwright_engine::engine::{Engine, Flow, Sink};
use shardwright_engine::replicas::Replicas;
use shardwright_engine::request::{Part, Request};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// How often the engine is asked whether it still lives.
const PULSE: Duration = Duration::from_millis(200);

/// Time for the last bytes to leave, after all answers are over.
const GOODBYE: Duration = Duration::from_millis(1500);

/// For so long a service that broke still says why, to those who ask about its health.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What loading a model comes to.
#[derive(Debug)]
pub struct Loaded {
    /// Run it.
    pub engine: Replicas,
    /// Knows its words.
    pub model: Model,
    /// What is wrong with it, if it did not pass a test: the service then stays closed and says so.
    pub fault: Option<String>,
}

/// Why a server ended that should not have.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refuses something.
    #[error("{what}: {why}")]
    System {
        /// What was tried.
        what: String,
        /// The system's words.
        why: std::io::Error,
    },
    /// The model could not be loaded.
    #[error("{0}")]
    Load(String),
    /// The engine is broken.
    #[error("the engine has failed: {0}")]
    Engine(String),
}

/// Serves until a signal (SIGTERM or Ctrl-C) ends it. `load` runs in a thread of its own while the server already
/// listens; `bound` is told the address.
///
/// # Errors
/// It cannot listen, the model cannot be loaded, or the engine broke.
pub fn serve(
    options: Options,
    bound: impl FnOnce(SocketAddr),
    load: impl FnOnce(&Gate) -> Result<Loaded, String> + Send + 'static,
) -> Result<(), Error> {
    let system = |what: &str| {
        let what = what.to_owned();
        move |why| Error::System { what, why }
    };
    // texts are read and rendered off the runtime's own threads: more of them than cores only take turns, and each keeps memory
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    let runtime = threads.max_blocking_threads((2 * cores).max(4)).enable_all().build();
    let runtime = runtime.map_err(system("no threads to be had"))?;
    let result = runtime.block_on(async {
        let mut signals = Signals::new().map_err(system("cannot listen for signals"))?;
        let place = format!("cannot listen on {}:{}", options.host, options.port);
        let listener = host::listen(&options.host, options.port).await.map_err(system(&place))?;
        let address = listener.local_addr().map_err(system("cannot see the own address"))?;
        bound(address);
        let app = App::new(options, address);
        let host = Host::new(&app, listener);
        let result = live(&app, load, &mut signals).await;
        tokio::select! {
            () = host.end(GOODBYE) => {}
            () = signals.next() => {}
        }
        result
    });
    // A load that still runs is not waited for.
    runtime.shutdown_background();
    result
}

/// From loading to the end.
async fn live(
    app: &Shared,
    load: impl FnOnce(&Gate) -> Result<Loaded, String> + Send + 'static,
    signals: &mut Signals,
) -> Result<(), Error> {
    let loaded = tokio::select! {
        loaded = run_load(app.gate.clone(), load) => loaded,
        () = signals.next() => {
            tracing::info!("ended while the model was being loaded");
            return Ok(());
        }
    };
    let Loaded { engine, model, fault } = loaded.map_err(|why| {
        app.gate.advance(Phase::Failed(why.clone()));
        Error::Load(why)
    })?;
    app.install(engine.clone(), model);
    tokio::select! {
        opened = open(app, &engine, fault) => opened,
        () = signals.next() => {}
    }
    tokio::select! {
        why = failure(&engine) => {
            app.gate.advance(Phase::Failed(why.clone()));
            // replicas that could go on do not: half a service is worse than none
            let _ = tokio::task::spawn_blocking(move || engine.stop(Duration::ZERO)).await;
            tokio::time::sleep(LAST_WORDS).await;
            return Err(Error::Engine(why));
        }
        () = signals.next() => {}
    }
    drain(app, &engine, signals).await
}

/// Runs `load` in a thread.
async fn run_load(
    gate: Gate,
    load: impl FnOnce(&Gate) -> Result<Loaded, String> + Send + 'static,
) -> Result<Loaded, String> {
    let (done, loaded) = oneshot::channel();
    let thread = std::thread::Builder::new().name("load".into());
    // If nobody waits for it any more, the process ends.
    thread.spawn(move || drop(done.send(load(&gate)))).map_err(|e| format!("no thread to be had: {e}"))?;
    loaded.await.unwrap_or_else(|_| Err("a fault of the program ended the load".into()))
}

/// Opens the service once a real token has been computed; else says why it stays closed.
pub async fn open(app: &App, engine: &Replicas, fault: Option<String>) {
    app.gate.testing();
    let fault = match fault {
        Some(fault) => Some(fault),
        None => first_tokens(engine).await.err(),
    };
    match fault {
        None => {
            app.gate.advance(Phase::Ready);
            tracing::info!("ready");
        }
        Some(why) => {
            tracing::error!("the service stays closed: {why}");
            app.gate.advance(Phase::Failed(why));
        }
    }
}

/// Tells how an answer ended.
struct Last(Option<oneshot::Sender<Result<(), String>>>);

impl Sink for Last {
    fn put(&mut self, part: Part) -> Flow {
        let result = match part {
            Part::Done(_) => Ok(()),
            Part::Failed(e) => Err(e.to_string()),
            _ => return Flow::Open,
        };
        self.0.take().map(|tell| tell.send(result));
        Flow::Open
    }
}

async fn first_tokens(engine: &Replicas) -> Result<(), String> {
    for replica in engine.all() {
        first_token(replica).await?;
    }
    Ok(())
}

async fn first_token(engine: &Engine) -> Result<(), String> {
    let request = Request { max_tokens: Some(1), ..Request::new(vec![0]) };
    let (tell, told) = oneshot::channel();
    let ticket = engine.submit(request, Box::new(Last(Some(tell)))).map_err(|e| e.to_string())?;
    let result = told.await.unwrap_or_else(|_| Err("the engine has gone".into()));
    drop(ticket);
    result
}

/// Returns when the engine has failed.
async fn failure(engine: &Replicas) -> String {
    loop {
        if let Some(why) = engine.failed() {
            return why;
        }
        tokio::time::sleep(PULSE).await;
    }
}

/// Lets running answers end within the grace; a second signal ends them at once.
async fn drain(app: &App, engine: &Replicas, signals: &mut Signals) -> Result<(), Error> {
    app.gate.advance(Phase::Draining);
    let grace = app.options.grace;
    let running = engine.stats().running;
    tracing::info!(
        "shutting down: {running} requests have {grace:?} to finish; a second signal ends them at once"
    );
    let stopping = engine.clone();
    let mut stopped = tokio::task::spawn_blocking(move || stopping.stop(grace));
    tokio::select! {
        _ = &mut stopped => {}
        () = signals.next() => {
            let stopping = engine.clone();
            let _ = tokio::task::spawn_blocking(move || stopping.stop(Duration::ZERO)).await;
        }
    }
    engine.failed().map_or(Ok(()), |why| Err(Error::Engine(why)))
}

/// The signals that end a server.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
