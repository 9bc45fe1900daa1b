//! Numbers about an engine, for those who watch it.

pub use shardwright_model::card::Card;
use std::sync::Arc;
use std::time::Duration;

/// A snapshot: how things stand, and sums since the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Requests that have begun and not ended.
    pub running: usize,
    /// Requests that wait for their turn.
    pub waiting: usize,
    /// Cache blocks in all.
    pub blocks: usize,
    /// Cache blocks that nobody holds.
    pub blocks_free: usize,
    /// Those of them whose content can be found again.
    pub blocks_cached: usize,
    /// Requests taken.
    pub requests: u64,
    /// Tokens of the prompts that were started.
    pub prompt_tokens: u64,
    /// Those of them that were found in the cache.
    pub reused_tokens: u64,
    /// Tokens of answers.
    pub answer_tokens: u64,
    /// Requests that ended because the model computed a NaN or an infinity.
    pub non_finite: u64,
    /// Requests that were cancelled.
    pub cancelled: u64,
    /// How often a request gave its blocks back to others and waited once more.
    pub preemptions: u64,
    /// How long steps took.
    pub steps: Histogram,
    /// How the cards were when last seen.
    pub cards: Arc<[Card]>,
}

impl std::iter::Sum for Stats {
    fn sum<I: Iterator<Item = Stats>>(all: I) -> Stats {
        all.fold(Stats::default(), |a, b| Stats {
            running: a.running + b.running,
            waiting: a.waiting + b.waiting,
            blocks: a.blocks + b.blocks,
            blocks_free: a.blocks_free + b.blocks_free,
            blocks_cached: a.blocks_cached + b.blocks_cached,
            requests: a.requests + b.requests,
            prompt_tokens: a.prompt_tokens + b.prompt_tokens,
            reused_tokens: a.reused_tokens + b.reused_tokens,
            answer_tokens: a.answer_tokens + b.answer_tokens,
            non_finite: a.non_finite + b.non_finite,
            cancelled: a.cancelled + b.cancelled,
            preemptions: a.preemptions + b.preemptions,
            steps: a.steps.and(&b.steps),
            cards: a.cards.iter().chain(&*b.cards).cloned().collect(),
        })
    }
}

/// Durations, counted by their length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    counts: [u64; Histogram::BOUNDS.len() + 1],
    sum: Duration,
}

impl Histogram {
    /// Upper ends of the classes, in seconds; one more class holds all that is longer.
    pub const BOUNDS: [f64; 14] =
        [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0];

    /// One more duration.
    pub fn add(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        self.counts[Self::BOUNDS.partition_point(|bound| *bound < seconds)] += 1;
        self.sum += duration;
    }

    /// Both together.
    fn and(mut self, other: &Histogram) -> Histogram {
        self.counts.iter_mut().zip(other.counts).for_each(|(a, b)| *a += b);
        self.sum += other.sum;
        self
    }

    /// How many were counted in each class; the last class has no upper end.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All durations together.
    pub fn sum(&self) -> Duration {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_their_classes() {
        let mut histogram = Histogram::default();
        for micros in [0, 500, 501, 1000, 4_999_999, 5_000_000, 5_000_001] {
            histogram.add(Duration::from_micros(micros));
        }
        let mut expected = [0; 15];
        for class in [0, 0, 1, 1, 13, 13, 14] {
            expected[class] += 1;
        }
        assert_eq!(histogram.counts(), expected);
        assert_eq!((histogram.count(), histogram.sum()), (7, Duration::from_micros(15_002_001)));
    }
}
