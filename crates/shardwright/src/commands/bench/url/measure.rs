//! Streams side by side, and what is read off them.

use super::client::{Answer, Ask, Client};
use super::prompt::{Scale, Words};
use anyhow::Context;
use std::collections::BTreeMap;
use std::thread;

/// What is measured at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cell {
    /// Tokens of a prompt, about.
    pub(super) context: u32,
    /// Has the server seen the prompts' beginning?
    pub(super) warm: bool,
    pub(super) streams: u32,
}

/// Measures one server.
pub(super) struct Bench<'a> {
    pub(super) client: &'a Client,
    pub(super) words: Words,
    pub(super) scale: Scale,
    /// Of an answer.
    pub(super) tokens: u32,
    pub(super) rounds: u32,
}

/// What was measured; times in seconds, all lists sorted.
pub(super) struct Row {
    pub(super) cell: Cell,
    pub(super) requests: usize,
    /// What went wrong, and how often.
    pub(super) failures: BTreeMap<String, usize>,
    /// From sending a request to its first text.
    pub(super) first: Vec<f64>,
    /// Between pieces of text.
    pub(super) gaps: Vec<f64>,
    /// Tokens a second of each stream, after its first token.
    pub(super) rates: Vec<f64>,
    /// Tokens a second of all streams of a round, from the first request to the last token.
    pub(super) totals: Vec<f64>,
    pub(super) answered: Vec<f64>,
    /// Pieces in which those came.
    pub(super) pieces: usize,
    /// Tokens of prompts, where the server counts.
    pub(super) prompts: Vec<f64>,
    pub(super) cached: Vec<f64>,
}

type Outcome = anyhow::Result<Answer>;

impl Bench<'_> {
    /// Measures one cell.
    pub(super) fn measure(&mut self, cell: Cell) -> anyhow::Result<Row> {
        let length = self.scale.words(cell.context);
        let mut row = Row::new(cell);
        let shared = cell.warm.then(|| self.words.text(length));
        if let Some(text) = &shared {
            // Its failure would be that of all streams, which are counted.
            let _ = self.client.ask(&Ask { prompt: text.clone(), tokens: 1 });
        }
        for _ in 0..self.rounds {
            let prompts = (0..cell.streams).map(|_| match &shared {
                Some(text) => format!("{text} {}", self.words.text(8)),
                None => self.words.text(length),
            });
            let asks = prompts.map(|prompt| Ask { prompt, tokens: self.tokens }).collect();
            row.add(self.round(asks)?);
        }
        row.sort();
        log::debug!("{cell:?}: {} of {} answered", row.first.len(), row.requests);
        Ok(row)
    }

    /// All at once.
    fn round(&self, asks: Vec<Ask>) -> anyhow::Result<Vec<Outcome>> {
        thread::scope(|scope| {
            let start = |ask: Ask| {
                let stream = thread::Builder::new().stack_size(1 << 20);
                stream.spawn_scoped(scope, move || self.client.ask(&ask)).context("no thread for a stream")
            };
            let streams: Vec<_> = asks.into_iter().map(start).collect::<anyhow::Result<_>>()?;
            let end = |stream: thread::ScopedJoinHandle<'_, Outcome>| {
                stream.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            Ok(streams.into_iter().map(end).collect())
        })
    }
}

impl Row {
    fn new(cell: Cell) -> Row {
        let list = Vec::new;
        Row {
            cell,
            requests: 0,
            failures: BTreeMap::new(),
            first: list(),
            gaps: list(),
            rates: list(),
            totals: list(),
            answered: list(),
            pieces: 0,
            prompts: list(),
            cached: list(),
        }
    }

    /// One round's outcomes.
    fn add(&mut self, outcomes: Vec<Outcome>) {
        self.requests += outcomes.len();
        let mut answers = Vec::new();
        for outcome in outcomes {
            match outcome {
                Ok(answer) => answers.push(answer),
                Err(why) => *self.failures.entry(format!("{why:#}")).or_default() += 1,
            }
        }
        answers.iter().for_each(|answer| self.note(answer));
        let begun = answers.iter().map(|a| a.sent).min();
        let ended = answers.iter().filter_map(|a| a.pieces.last()).max();
        if let (Some(begun), Some(ended)) = (begun, ended) {
            let tokens: u64 = answers.iter().map(Answer::tokens).sum();
            self.totals.push(tokens as f64 / (*ended - begun).as_secs_f64());
        }
    }

    fn note(&mut self, answer: &Answer) {
        let (Some(first), Some(last)) = (answer.pieces.first(), answer.pieces.last()) else { return };
        self.first.push((*first - answer.sent).as_secs_f64());
        self.gaps.extend(answer.pieces.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()));
        let (tokens, time) = (answer.tokens() as f64, (*last - *first).as_secs_f64());
        if time > 0.0 && tokens > 1.0 {
            self.rates.push((tokens - 1.0) / time);
        }
        self.answered.push(tokens);
        self.pieces += answer.pieces.len();
        if let Some(usage) = answer.usage {
            self.prompts.push(usage.prompt as f64);
            self.cached.extend(usage.cached.map(|n| n as f64));
        }
    }

    fn sort(&mut self) {
        let Row { first, gaps, rates, totals, answered, prompts, cached, .. } = self;
        for list in [first, gaps, rates, totals, answered, prompts, cached] {
            list.sort_by(f64::total_cmp);
        }
    }

    /// Requests without an answer.
    pub(super) fn failed(&self) -> usize {
        self.failures.values().sum()
    }
}

/// The value that this share of a sorted list does not exceed.
pub(super) fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// The middle of a sorted list.
pub(super) fn median(sorted: &[f64]) -> Option<f64> {
    quantile(sorted, 0.5)
}

#[cfg(test)]
mod tests {
    use super::super::client::Usage;
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn quantiles_are_values_of_the_list() {
        let check = |n: usize, share: f64, expected: Option<f64>| {
            let list: Vec<f64> = (1..=n).map(|i| i as f64).collect();
            assert_eq!(quantile(&list, share), expected, "{n} {share}");
        };
        check(0, 0.5, None);
        check(1, 0.99, Some(1.0));
        check(4, 0.5, Some(2.0));
        check(5, 0.5, Some(3.0));
        check(100, 0.99, Some(99.0));
        check(10, 0.99, Some(10.0));
    }

    #[test]
    fn rates_follow_the_pieces() {
        let sent = Instant::now();
        let at = |ms: u64| sent + Duration::from_millis(ms);
        let usage = Usage { prompt: 9, cached: Some(4), answer: 5 };
        let one = Answer { sent, pieces: vec![at(100), at(200), at(400)], usage: Some(usage) };
        let two = Answer { sent: at(50), pieces: vec![at(500)], usage: None };
        let mut row = Row::new(Cell { context: 0, warm: false, streams: 3 });
        row.add(vec![Ok(one), Err(anyhow::anyhow!("cut")), Ok(two)]);
        row.sort();
        assert_eq!((row.requests, row.failed(), row.pieces), (3, 1, 4));
        assert_eq!((row.first, row.gaps), (vec![0.1, 0.45], vec![0.1, 0.2]));
        // five tokens in three pieces; four of them after the first
        assert_eq!((row.rates, row.answered), (vec![4.0 / 0.3], vec![1.0, 5.0]));
        assert_eq!((row.totals, row.prompts, row.cached), (vec![6.0 / 0.5], vec![9.0], vec![4.0]));
    }
}
