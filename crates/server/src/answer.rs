//! Answers on their way from the engine to a client: all choices of a request in one stream.

use crate::app::Service;
use crate::error::ApiError;
use crate::metrics::{Metrics, Watch};
use axum::http::StatusCode;
use shardwright_engine::engine::{Flow, Sink, Ticket};
use shardwright_engine::request::{Done, Part, Request};
use shardwright_engine::sample::{Choice, Logprobs};
use shardwright_text::reply::Event;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Parts that lie ready for a client before its requests rest.
const BACKLOG: usize = 64;

/// Limits of time for a request.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// From the beginning to the end of all answers; None = for ever.
    pub whole: Option<Duration>,
    /// How long a client may take nothing of what lies ready.
    pub stalled: Duration,
}

/// What comes of one choice.
#[derive(Debug)]
pub(crate) enum News {
    /// The prompt is being read.
    Started,
    /// How likely the tokens of the prompt were, from the second on.
    Prompt(Vec<Logprobs>),
    /// A token, and the text that is certain with it.
    Token(Choice, Vec<Event>),
    /// The end.
    Done(Box<Done>),
}

/// The answers to one request. Dropping them cancels what is not over.
#[derive(Debug)]
pub(crate) struct Answers {
    tickets: Vec<Option<Ticket>>,
    parts: UnboundedReceiver<(usize, Part)>,
    backlog: Arc<AtomicUsize>,
    open: usize,
    deadline: Option<(Duration, tokio::time::Instant)>,
    watch: Vec<Watch>,
}

/// Takes parts from the engine's thread.
struct Pipe {
    choice: usize,
    to: UnboundedSender<(usize, Part)>,
    backlog: Arc<AtomicUsize>,
    full_since: Option<Instant>,
    stalled: Duration,
}

impl Sink for Pipe {
    fn put(&mut self, part: Part) -> Flow {
        // Counted before it is sent: it may be taken at once.
        let lying = self.backlog.fetch_add(1, Ordering::Relaxed) + 1;
        match lying < BACKLOG {
            _ if self.to.send((self.choice, part)).is_err() => Flow::Closed,
            true => Flow::Open,
            false => {
                self.full_since = Some(Instant::now());
                Flow::Full
            }
        }
    }

    fn ready(&mut self) -> Flow {
        let stalled = self.full_since.is_some_and(|since| since.elapsed() > self.stalled);
        match self.backlog.load(Ordering::Relaxed) < BACKLOG / 2 {
            _ if self.to.is_closed() || stalled => Flow::Closed,
            true => Flow::Open,
            false => Flow::Full,
        }
    }
}

impl Answers {
    /// Hands the requests to the engine, all or none.
    pub(crate) fn start(
        service: &Service,
        metrics: &Arc<Metrics>,
        requests: Vec<Request>,
    ) -> Result<Answers, ApiError> {
        let (to, parts) = unbounded_channel();
        let backlog = Arc::new(AtomicUsize::new(0));
        let mut answers = Answers {
            tickets: Vec::new(),
            parts,
            backlog: backlog.clone(),
            open: requests.len(),
            deadline: service.patience.whole.map(|whole| (whole, tokio::time::Instant::now() + whole)),
            watch: Vec::new(),
        };
        for (choice, request) in requests.into_iter().enumerate() {
            answers.watch.push(Watch::new(metrics, request.prompt.len()));
            let pipe = Pipe {
                choice,
                to: to.clone(),
                backlog: backlog.clone(),
                full_since: None,
                stalled: service.patience.stalled,
            };
            // Those before are cancelled if this one is refused.
            answers.tickets.push(Some(service.engine.submit(request, Box::new(pipe))?));
        }
        Ok(answers)
    }

    /// What happens next, and to which choice; None when all are over.
    pub(crate) async fn next(&mut self) -> Option<Result<(usize, News), ApiError>> {
        while self.open > 0 {
            let (choice, part) = match self.part().await {
                Ok(part) => part,
                Err(e) => {
                    self.open = 0;
                    return Some(Err(e));
                }
            };
            self.backlog.fetch_sub(1, Ordering::Relaxed);
            if self.tickets[choice].is_none() {
                continue;
            }
            let watch = &mut self.watch[choice];
            return Some(Ok(match part {
                Part::Started { reused } => {
                    watch.started(reused);
                    (choice, News::Started)
                }
                Part::Prompt(found) => (choice, News::Prompt(found)),
                Part::Token { choice: token, events } => {
                    watch.token();
                    (choice, News::Token(token, events))
                }
                Part::Done(done) => {
                    watch.done(done.message.finish);
                    self.over(choice);
                    (choice, News::Done(done))
                }
                Part::Failed(e) => {
                    watch.failed();
                    self.open = 0;
                    return Some(Err(e.into()));
                }
            }));
        }
        None
    }

    async fn part(&mut self) -> Result<(usize, Part), ApiError> {
        let part = match self.deadline {
            None => self.parts.recv().await,
            Some((whole, at)) => {
                tokio::time::timeout_at(at, self.parts.recv()).await.map_err(|_| ApiError {
                    code: Some("request_timeout"),
                    ..ApiError::new(
                        StatusCode::GATEWAY_TIMEOUT,
                        format!("the answer took longer than {whole:?}"),
                    )
                })?
            }
        };
        // Whatever happens to it, the engine says a last word; without one it is gone.
        part.ok_or_else(|| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the engine has gone"))
    }

    fn over(&mut self, choice: usize) {
        self.tickets[choice] = None;
        self.open -= 1;
    }

    /// Nothing more of this choice is wanted.
    pub(crate) fn enough(&mut self, choice: usize) {
        if self.tickets[choice].is_some() {
            self.watch[choice].done(shardwright_text::reply::Finish::ToolCalls);
            self.over(choice);
        }
    }

    /// Tokens of a choice so far: of its answer, and of its prompt those found in the cache.
    pub(crate) fn counts(&self, choice: usize) -> (usize, usize) {
        self.watch[choice].counts()
    }
}
