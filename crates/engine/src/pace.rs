//! How many rows of prompts a step may have beside answers, so that nobody sees the answers stand still.

use std::time::Duration;

/// Fewest rows of prompts in a step, and in a step that counts as a measurement.
const LEAST: usize = 16;

/// How much a new measurement counts.
const WEIGHT: f64 = 0.25;

/// Learns from the duration of steps.
#[derive(Debug)]
pub(crate) struct Pace {
    /// How much longer a step may take because of prompts, in seconds.
    target: f64,
    /// What a step of answers takes.
    answers: f64,
    /// What a row of a prompt adds; None before the first.
    row: Option<f64>,
}

impl Pace {
    pub(crate) fn new(target: Duration) -> Pace {
        Pace { target: target.as_secs_f64(), answers: 0.0, row: None }
    }

    /// A step has been run.
    pub(crate) fn saw(&mut self, answers: usize, prompt_rows: usize, took: Duration) {
        let took = took.as_secs_f64();
        if prompt_rows == 0 {
            self.answers += WEIGHT * (took - self.answers);
        } else if prompt_rows >= LEAST {
            let base = if answers > 0 { self.answers } else { 0.0 };
            let row = (took - base).max(0.0) / prompt_rows as f64;
            let before = self.row.unwrap_or(row);
            self.row = Some(before + WEIGHT * (row - before));
        }
    }

    /// Rows of prompts beside so many answers.
    pub(crate) fn chunk(&self, answers: usize) -> usize {
        match self.row {
            _ if answers == 0 => usize::MAX,
            None => LEAST,
            // Beyond all numbers it is the largest.
            Some(row) => ((self.target / row) as usize).max(LEAST),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_take_what_answers_can_spare() {
        let ms = Duration::from_millis;
        let mut pace = Pace::new(ms(50));
        assert_eq!((pace.chunk(0), pace.chunk(1)), (usize::MAX, 16));
        for _ in 0..50 {
            pace.saw(4, 0, ms(20));
        }
        // 0.5 ms a row
        for rows in [16, 100, 60] {
            pace.saw(4, rows, ms(20) + ms(rows as u64) / 2);
        }
        assert!((98..=102).contains(&pace.chunk(4)), "{}", pace.chunk(4));
        assert_eq!(pace.chunk(0), usize::MAX);
        // the prompt grows long: 5 ms a row, then 50
        for _ in 0..50 {
            pace.saw(4, 16, ms(20) + ms(80));
        }
        assert_eq!(pace.chunk(4), 16);
        // too few to tell
        pace.saw(4, 1, ms(1000));
        for _ in 0..50 {
            pace.saw(0, 64, ms(64));
        }
        assert!((48..=52).contains(&pace.chunk(1)), "{}", pace.chunk(1));
        assert_eq!(Pace { row: Some(0.0), ..pace }.chunk(1), usize::MAX);
    }
}
