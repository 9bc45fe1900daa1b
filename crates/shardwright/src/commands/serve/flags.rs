//! The flags of `serve`, under the names that vLLM and llama-server have for them.

use super::tokens::tokens;
use crate::commands::run::{Seed, seed};
use crate::usage;
use crate::wire::ROWS;
use anyhow::{Context, bail};
use serde_json::{Map, Value};
use shardwright_engine::engine;
use shardwright_engine::request::Pooling;
use shardwright_engine::sample::Sampling;
use shardwright_server::Patience;
use shardwright_server::options::{Options, Origins};
use shardwright_server::sampling::Defaults;
use shardwright_text::reply::Syntax;
use std::path::PathBuf;
use std::time::Duration;

/// Whether to test before serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum SelfTest {
    /// A model that fails stays closed.
    On,
    /// Serve whatever it computes.
    Off,
}

/// How vectors are pooled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum PoolingFlag {
    /// That of the last token.
    Last,
    /// Their mean.
    Mean,
}

/// How the log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Listening")]
pub(super) struct ListenArgs {
    /// Name or address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Port; 0 = any that is free.
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// A key that requests must bring; several may be given, also separated by commas.
    #[arg(long, value_name = "KEY", num_args = 1.., value_delimiter = ',', env = "SHARDWRIGHT_API_KEY", hide_env_values = true)]
    api_key: Vec<String>,
    /// A file with one key a line.
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Names by which this server may be asked while it listens on this machine only and has no key, beside `localhost`;
    /// `*` = any. For a proxy in front that passes its own name on.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    allowed_hosts: Vec<String>,
    /// Whose pages a browser lets ask: `*`, or origins as a JSON list or separated by commas [default: this machine's].
    #[arg(long, value_name = "ORIGINS")]
    allowed_origins: Option<String>,
    /// Most bytes of a request; they must arrive within two minutes.
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20)]
    max_body_bytes: usize,
    /// Most seconds for an answer; 0 = no limit.
    #[arg(long, visible_alias = "timeout", value_name = "SECONDS", default_value_t = 0)]
    request_timeout: u64,
    /// Seconds that running answers may go on after SIGTERM.
    #[arg(long, visible_alias = "shutdown-timeout", value_name = "SECONDS", default_value_t = 30)]
    shutdown_grace: u64,
    /// Begins the names of metrics; `vllm` serves dashboards made for vLLM.
    #[arg(long, value_name = "NAME", default_value = "shardwright")]
    metrics_prefix: String,
    /// How the log looks.
    #[arg(long, value_name = "text|json", default_value = "text")]
    pub(super) log_format: LogFormat,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Size")]
pub(super) struct SizeArgs {
    /// Most tokens of prompt and answer, such as 8192, 32k (32,000) or 32K (32,768); auto = as many as the model was made for.
    #[arg(short = 'c', long = "max-model-len", visible_alias = "ctx-size", value_name = "N", default_value = "auto",
          allow_negative_numbers = true, value_parser = tokens)]
    pub(super) context: u32,
    /// Tokens that the cache holds, of all sequences together [default: enough for a few of full length].
    #[arg(long, value_name = "N")]
    pub(super) cache_tokens: Option<usize>,
    /// Most tokens of a step, of prompts and answers together.
    #[arg(short, long = "max-num-batched-tokens", visible_aliases = ["batch-size", "ubatch-size"], value_name = "N", default_value_t = ROWS as u32,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) batch: u32,
    /// Copies of the model that run side by side, each with a cache and limits of its own. A request goes where its beginning
    /// is cached, else where the least is to do.
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(super) replicas: u32,
    /// Test what is computed before anybody is served.
    #[arg(long, value_name = "on|off", default_value = "on")]
    pub(super) self_test: SelfTest,
    /// Most requests that are answered at a time.
    #[arg(long, visible_alias = "parallel", value_name = "N", default_value_t = 256,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) max_num_seqs: u32,
    /// Find the beginnings of prompts in the cache; answers are the same either way. This is the default.
    #[arg(long, overrides_with = "no_enable_prefix_caching")]
    enable_prefix_caching: bool,
    /// Compute every prompt anew.
    #[arg(long, visible_alias = "no-cache-prompt")]
    no_enable_prefix_caching: bool,
    /// Most requests that wait for their turn; more are refused with 429.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub(super) max_queue: usize,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Model")]
pub(super) struct ChatArgs {
    /// What clients call the model; several may be given [default: the file's name].
    #[arg(short = 'a', long, visible_alias = "alias", value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    served_model_name: Vec<String>,
    /// A Jinja template, or a file with one, instead of the file's own.
    #[arg(long, visible_alias = "chat-template-file", value_name = "FILE|TEXT")]
    pub(super) chat_template: Option<String>,
    /// Variables for every conversation's template, such as '{"enable_thinking": false}'.
    #[arg(long, visible_alias = "default-chat-template-kwargs", value_name = "JSON", value_parser = object)]
    pub(super) chat_template_kwargs: Option<Map<String, Value>>,
    /// How a text's vector is made of those of its tokens, for /v1/embeddings.
    #[arg(long, value_name = "last|mean", default_value = "last")]
    pooling: PoolingFlag,
    /// How the model writes reasoning and tool calls [default: what its template teaches].
    #[arg(long, value_name = "NAME", value_parser = syntax)]
    pub(super) tool_call_parser: Option<Syntax>,
}

/// What requests leave open.
#[derive(clap::Args)]
#[command(next_help_heading = "Sampling, where a request does not say")]
pub(super) struct SamplingArgs {
    /// 0 = always the likeliest token. Comes last, when top-k, top-p and min-p have chosen.
    #[arg(
        long,
        visible_alias = "temperature",
        value_name = "X",
        default_value_t = 1.0,
        allow_negative_numbers = true
    )]
    temp: f32,
    /// Choose among the K likeliest tokens; 0 or -1 = all.
    #[arg(long, value_name = "K", default_value_t = 0, allow_negative_numbers = true)]
    top_k: i64,
    /// Choose among the likeliest tokens that have this probability together; 1 = all.
    #[arg(long, value_name = "P", default_value_t = 1.0, allow_negative_numbers = true)]
    top_p: f32,
    /// Choose among tokens at least this times as likely as the likeliest; 0 = all.
    #[arg(long, value_name = "P", default_value_t = 0.0, allow_negative_numbers = true)]
    min_p: f32,
    /// Divides the logits of all tokens so far; 1 = off.
    #[arg(long, value_name = "X", default_value_t = 1.0, allow_negative_numbers = true)]
    repeat_penalty: f32,
    /// Subtracted from the logits of tokens of the answer so far; 0 = off.
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    presence_penalty: f32,
    /// Subtracted from the logits of tokens of the answer as often as they occurred; 0 = off.
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    frequency_penalty: f32,
    /// The same seed gives the same answer; -1 = another each time.
    #[arg(long, value_name = "N", default_value = "-1", allow_negative_numbers = true, value_parser = seed)]
    seed: Seed,
    /// Most tokens of an answer; -1 = until the model ends or the context is full.
    #[arg(short = 'n', long, visible_alias = "n-predict", value_name = "N", default_value_t = -1, allow_negative_numbers = true,
          value_parser = clap::value_parser!(i64).range(-1..))]
    predict: i64,
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|e| format!("must be a JSON object: {e}"))
}

fn syntax(name: &str) -> Result<Syntax, String> {
    let names = || Syntax::names().collect::<Vec<_>>().join(", ");
    Syntax::by_name(name).ok_or_else(|| format!("must be one of {}", names()))
}

impl SizeArgs {
    /// What the engine is told.
    pub(super) fn engine(&self) -> engine::Options {
        engine::Options {
            queue: self.max_queue,
            sequences: self.max_num_seqs as usize,
            prefix_cache: self.enable_prefix_caching || !self.no_enable_prefix_caching,
            ..engine::Options::default()
        }
    }
}

impl ListenArgs {
    /// May everybody ask?
    pub(super) fn is_open(&self) -> bool {
        self.api_key.is_empty() && self.api_key_file.is_none()
    }

    fn keys(&self) -> anyhow::Result<Vec<String>> {
        let mut keys = self.api_key.clone();
        if let Some(path) = &self.api_key_file {
            let place = || path.display().to_string();
            let text = std::fs::read_to_string(path).with_context(place)?;
            let before = keys.len();
            keys.extend(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned));
            if keys.len() == before {
                bail!("{}: there is no key in it", place());
            }
        }
        match keys.iter().any(|key| key.trim().is_empty()) {
            true => bail!("an API key is empty: everybody could have it"),
            false => Ok(keys),
        }
    }

    fn origins(&self) -> anyhow::Result<Origins> {
        let Some(text) = self.allowed_origins.as_deref().map(str::trim) else { return Ok(Origins::Loopback) };
        let list: Vec<String> = match text.starts_with('[') {
            true => serde_json::from_str(text).context("--allowed-origins is no JSON list of texts")?,
            false => text.split(',').map(|origin| origin.trim().to_owned()).collect(),
        };
        Ok(if list.iter().any(|origin| origin == "*") { Origins::Any } else { Origins::Only(list) })
    }
}

impl SamplingArgs {
    /// Ends the program if one of them makes no sense.
    fn defaults(&self) -> Defaults {
        let sampling = Sampling {
            temperature: self.temp,
            top_k: usize::try_from(self.top_k).unwrap_or(0),
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repeat_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            ..Sampling::default()
        };
        if let Err(e) = sampling.check() {
            usage("serve", &e.to_string());
        }
        if self.predict == 0 {
            usage("serve", "-n must be at least 1, or -1");
        }
        Defaults { sampling, seed: self.seed, max_tokens: usize::try_from(self.predict).ok() }
    }
}

impl ChatArgs {
    /// How a text's vector is made.
    pub(super) fn pooling(&self) -> Pooling {
        match self.pooling {
            PoolingFlag::Last => Pooling::Last,
            PoolingFlag::Mean => Pooling::Mean,
        }
    }

    /// What clients may call the model; never nothing.
    pub(super) fn names(&self, title: String) -> Vec<String> {
        if self.served_model_name.is_empty() { vec![title] } else { self.served_model_name.clone() }
    }
}

/// What the server is told.
pub(super) fn options(
    listen: &ListenArgs,
    sampling: &SamplingArgs,
    chat: &ChatArgs,
    model: String,
) -> anyhow::Result<Options> {
    let seconds = |n: u64| Some(Duration::from_secs(n)).filter(|d| !d.is_zero());
    let standard = Options::default();
    Ok(Options {
        host: listen.host.clone(),
        port: listen.port,
        model,
        api_keys: listen.keys()?,
        hosts: listen.allowed_hosts.clone(),
        origins: listen.origins()?,
        max_body: listen.max_body_bytes,
        patience: Patience { whole: seconds(listen.request_timeout), ..standard.patience },
        grace: Duration::from_secs(listen.shutdown_grace),
        defaults: sampling.defaults(),
        pooling: chat.pooling(),
        metrics_prefix: listen.metrics_prefix.clone(),
        version: env!("SHARDWRIGHT_VERSION").into(),
        ..standard
    })
}
