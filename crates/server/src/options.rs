//! What the operator of a server decides.

use crate::answer::Patience;
use crate::sampling::Defaults;
use shardwright_engine::request::Pooling;
use std::time::Duration;

/// Choices for a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name or address to listen on.
    pub host: String,
    /// Port; 0 = any that is free.
    pub port: u16,
    /// What the model is called in metrics.
    pub model: String,
    /// One of these must come with each request; none = everybody may ask.
    pub api_keys: Vec<String>,
    /// Names by which a server that only this machine reaches may be asked, beside those that mean this machine.
    pub hosts: Vec<String>,
    /// Whose pages a browser lets ask.
    pub origins: Origins,
    /// Most bytes of a body.
    pub max_body: usize,
    /// Most time for a body to arrive.
    pub body_timeout: Duration,
    /// Most time for the head of a request to arrive, and for a connection without one.
    pub idle: Duration,
    /// Limits of time for answers.
    pub patience: Patience,
    /// How long running answers may go on when the server is told to end.
    pub grace: Duration,
    /// What a request leaves open.
    pub defaults: Defaults,
    /// How one vector is made of those of a text's tokens.
    pub pooling: Pooling,
    /// Begins the names of metrics.
    pub metrics_prefix: String,
    /// Of the program.
    pub version: String,
}

/// Whose pages a browser lets ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origins {
    /// Pages from this machine.
    Loopback,
    /// Everybody's.
    Any,
    /// These, such as `https://chat.example.com`.
    Only(Vec<String>),
}

impl Default for Options {
    fn default() -> Options {
        Options {
            host: "127.0.0.1".into(),
            port: 8080,
            model: "model".into(),
            api_keys: Vec::new(),
            hosts: Vec::new(),
            origins: Origins::Loopback,
            max_body: 64 << 20,
            body_timeout: Duration::from_secs(120),
            idle: Duration::from_secs(75),
            patience: Patience { whole: None, stalled: Duration::from_secs(300) },
            grace: Duration::from_secs(30),
            defaults: Defaults::default(),
            pooling: Pooling::Last,
            metrics_prefix: "shardwright".into(),
            version: env!("CARGO_PKG_VERSION").into(),
        }
    }
}
