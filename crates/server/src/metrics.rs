//! Numbers for Prometheus, under vLLM's names: dashboards differ in the prefix only.

use crate::cards::Cards;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};
use shardwright_engine::stats::Stats;
use shardwright_text::reply::Finish;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Upper ends of the classes, in seconds.
const SHORT: [f64; 14] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5];
const LONG: [f64; 16] =
    [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0];
/// Of numbers of tokens.
const TOKENS: [f64; 14] =
    [1.0, 4.0, 16.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 65536.0, 262144.0];

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Reason {
    finished_reason: Ended,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Ended {
    Stop,
    Length,
    Abort,
    Error,
}

impl EncodeLabelValue for Ended {
    fn encode(
        &self,
        encoder: &mut prometheus_client::encoding::LabelValueEncoder<'_>,
    ) -> Result<(), std::fmt::Error> {
        let word = match self {
            Ended::Stop => "stop",
            Ended::Length => "length",
            Ended::Abort => "abort",
            Ended::Error => "error",
        };
        EncodeLabelValue::encode(&word, encoder)
    }
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Answered {
    handler: String,
    method: String,
    status: u16,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Replica {
    replica: usize,
}

pub(crate) type Number = Gauge<f64, AtomicU64>;

/// All numbers of a server.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    running: Number,
    waiting: Number,
    cache: Number,
    /// Of each replica, where there are several: running, waiting, share of the cache.
    replicas: [Family<Replica, Number>; 3],
    prompt_tokens: Counter,
    reused_tokens: Counter,
    answer_tokens: Counter,
    non_finite: Counter,
    cancelled: Counter,
    preemptions: Counter,
    endings: Family<Reason, Counter>,
    first_token: Histogram,
    next_token: Histogram,
    whole: Histogram,
    queued: Histogram,
    prompt: Histogram,
    answer: Histogram,
    http: Family<Answered, Counter>,
    cards: Cards,
}

/// Registers metrics under one prefix.
pub(crate) struct Names<'a> {
    registry: Registry,
    prefix: &'a str,
}

impl Names<'_> {
    pub(crate) fn add<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.registry.register(format!("{}:{name}", self.prefix), help, metric.clone());
        metric
    }
}

impl Metrics {
    pub(crate) fn new(prefix: &str, model: &str) -> Metrics {
        let label = (Cow::Borrowed("model_name"), Cow::Owned(model.to_owned()));
        let n = &mut Names { registry: Registry::with_labels([label].into_iter()), prefix };
        let histogram = |bounds: &[f64]| Histogram::new(bounds.iter().copied());
        Metrics {
            running: n.add(
                "num_requests_running",
                "Requests that have begun and not ended",
                Number::default(),
            ),
            waiting: n.add("num_requests_waiting", "Requests that wait for their turn", Number::default()),
            cache: n.add("kv_cache_usage_perc", "Share of cache blocks in use, 0 to 1", Number::default()),
            replicas: [
                n.add("replica_requests_running", "The same of one replica", Family::default()),
                n.add("replica_requests_waiting", "The same of one replica", Family::default()),
                n.add("replica_kv_cache_usage_perc", "The same of one replica", Family::default()),
            ],
            prompt_tokens: n.add("prompt_tokens", "Tokens of prompts", Counter::default()),
            reused_tokens: n.add(
                "prefix_cache_hits",
                "Tokens of prompts that were found in the cache",
                Counter::default(),
            ),
            answer_tokens: n.add("generation_tokens", "Tokens of answers", Counter::default()),
            non_finite: n.add(
                "non_finite_requests",
                "Requests that ended because the model computed a NaN or an infinity",
                Counter::default(),
            ),
            cancelled: n.add("cancelled_requests", "Requests that were cancelled", Counter::default()),
            preemptions: n.add(
                "num_preemptions",
                "How often a request gave its cache blocks back to others",
                Counter::default(),
            ),
            endings: n.add("request_success", "Requests that ended, by how", Family::default()),
            first_token: n.add(
                "time_to_first_token_seconds",
                "From a request to its first token",
                histogram(&LONG),
            ),
            next_token: n.add(
                "inter_token_latency_seconds",
                "Between the tokens of an answer",
                histogram(&SHORT),
            ),
            whole: n.add("e2e_request_latency_seconds", "From a request to its end", histogram(&LONG)),
            queued: n.add("request_queue_time_seconds", "From a request to its beginning", histogram(&LONG)),
            prompt: n.add("request_prompt_tokens", "Tokens of a prompt", histogram(&TOKENS)),
            answer: n.add("request_generation_tokens", "Tokens of an answer", histogram(&TOKENS)),
            http: n.add("http_requests", "Requests by path and status", Family::default()),
            cards: Cards::new(n),
            registry: std::mem::take(&mut n.registry),
        }
    }

    /// A request was answered.
    pub(crate) fn answered(&self, handler: &str, method: &str, status: u16) {
        let (handler, method) = (handler.to_owned(), method.to_owned());
        self.http.get_or_create(&Answered { handler, method, status }).inc();
    }

    /// The exposition, with the numbers of the engines that run.
    pub(crate) fn text(&self, replicas: &[Stats]) -> String {
        let gauges = |s: &Stats| {
            let used = 1.0 - s.blocks_free as f64 / (s.blocks as f64).max(1.0);
            [s.running as f64, s.waiting as f64, used]
        };
        if !replicas.is_empty() {
            let s: &Stats = &replicas.iter().cloned().sum();
            [&self.running, &self.waiting, &self.cache].iter().zip(gauges(s)).for_each(|(g, n)| {
                g.set(n);
            });
            let sums = [
                (&self.prompt_tokens, s.prompt_tokens),
                (&self.reused_tokens, s.reused_tokens),
                (&self.answer_tokens, s.answer_tokens),
                (&self.non_finite, s.non_finite),
                (&self.cancelled, s.cancelled),
                (&self.preemptions, s.preemptions),
            ];
            sums.iter().for_each(|(counter, sum)| counter.inner().store(*sum, Ordering::Relaxed));
        }
        for (replica, s) in replicas.iter().enumerate().filter(|_| replicas.len() > 1) {
            for (family, n) in self.replicas.iter().zip(gauges(s)) {
                family.get_or_create(&Replica { replica }).set(n);
            }
        }
        replicas.iter().flat_map(|s| s.cards.iter()).for_each(|card| self.cards.set(card));
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a text takes everything");
        text
    }

    fn ended(&self, how: Ended) {
        self.endings.get_or_create(&Reason { finished_reason: how }).inc();
    }
}

/// Follows one answer, and counts it once it is over; one that is dropped before was given up.
#[derive(Debug)]
pub(crate) struct Watch {
    metrics: Arc<Metrics>,
    prompt: usize,
    begun: Instant,
    last: Option<Instant>,
    tokens: usize,
    reused: usize,
    started: bool,
    over: bool,
}

impl Watch {
    pub(crate) fn new(metrics: &Arc<Metrics>, prompt: usize) -> Watch {
        Watch {
            metrics: metrics.clone(),
            prompt,
            begun: Instant::now(),
            last: None,
            tokens: 0,
            reused: 0,
            started: false,
            over: false,
        }
    }

    /// It waits no longer. One that gave its blocks back to others starts more than once.
    pub(crate) fn started(&mut self, reused: usize) {
        if std::mem::replace(&mut self.started, true) {
            return;
        }
        self.reused = reused;
        self.metrics.queued.observe(self.begun.elapsed().as_secs_f64());
    }

    /// One more token.
    pub(crate) fn token(&mut self) {
        let now = Instant::now();
        match self.last {
            None => self.metrics.first_token.observe((now - self.begun).as_secs_f64()),
            Some(last) => self.metrics.next_token.observe((now - last).as_secs_f64()),
        }
        self.last = Some(now);
        self.tokens += 1;
    }

    pub(crate) fn done(&mut self, finish: Finish) {
        let cut = finish == Finish::Length;
        self.end(if cut { Ended::Length } else { Ended::Stop });
    }

    pub(crate) fn failed(&mut self) {
        self.end(Ended::Error);
    }

    /// Tokens of the answer, and those of the prompt that were found in the cache.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.tokens, self.reused)
    }

    fn end(&mut self, how: Ended) {
        if !std::mem::replace(&mut self.over, true) {
            self.metrics.ended(how);
            self.metrics.whole.observe(self.begun.elapsed().as_secs_f64());
            self.metrics.prompt.observe(self.prompt as f64);
            self.metrics.answer.observe(self.tokens as f64);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end(Ended::Abort);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_counted_once() {
        let metrics = Arc::new(Metrics::new("shardwright", "demo"));
        let mut watch = Watch::new(&metrics, 3);
        watch.started(2);
        watch.token();
        watch.done(Finish::Length);
        drop(watch);
        drop(Watch::new(&metrics, 1));
        let stats = Stats { blocks: 4, blocks_free: 1, prompt_tokens: 7, ..Stats::default() };
        let text = metrics.text(&[stats]);
        for line in [
            r#"shardwright:request_success_total{model_name="demo",finished_reason="length"} 1"#,
            r#"shardwright:request_success_total{model_name="demo",finished_reason="abort"} 1"#,
            r#"shardwright:kv_cache_usage_perc{model_name="demo"} 0.75"#,
            r#"shardwright:prompt_tokens_total{model_name="demo"} 7"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn replicas_are_added_and_told_apart() {
        let metrics = Metrics::new("shardwright", "demo");
        let stats = |running, blocks_free| Stats { running, blocks: 4, blocks_free, ..Stats::default() };
        let text = metrics.text(&[stats(1, 4), stats(2, 0)]);
        for line in [
            r#"shardwright:num_requests_running{model_name="demo"} 3.0"#,
            r#"shardwright:kv_cache_usage_perc{model_name="demo"} 0.5"#,
            r#"shardwright:replica_requests_running{model_name="demo",replica="1"} 2.0"#,
            r#"shardwright:replica_kv_cache_usage_perc{model_name="demo",replica="0"} 0.0"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert!(!Metrics::new("x", "demo").text(&[stats(1, 4)]).contains("replica=\""));
    }

    #[test]
    fn the_dashboard_asks_for_what_is_there() {
        let metrics = Arc::new(Metrics::new("shardwright", "demo"));
        Watch::new(&metrics, 1).done(Finish::Stop);
        metrics.answered("/", "GET", 200);
        let text = metrics.text(&[Stats::default()]);
        let names: Vec<&str> =
            text.lines().filter_map(|l| l.strip_prefix("shardwright:")?.split('{').next()).collect();
        let dashboard = include_str!("../../../deploy/grafana.json");
        let asked: Vec<&str> = dashboard
            .split("${prefix}:")
            .skip(1)
            .filter_map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next())
            .collect();
        assert!(asked.len() > 20, "{asked:?}");
        for name in asked {
            assert!(names.contains(&name), "the dashboard asks for {name}; there are {names:?}");
        }
        for label in dashboard.split(" by (").skip(1).filter_map(|rest| rest.split(')').next()) {
            assert!(text.contains(&format!("{label}=\"")), "the dashboard asks for the label {label}");
        }
    }
}
