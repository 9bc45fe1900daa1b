//! The figures, for people and for machines.

use super::super::How;
use super::client::Client;
use super::measure::{Row, median, quantile};
use crate::table::Table;
use serde_json::{Value, json};
use std::fmt;

/// What was measured, and how.
pub(super) struct Report<'a> {
    pub(super) url: &'a str,
    pub(super) client: &'a Client,
    pub(super) how: &'a How,
    pub(super) rows: &'a [Row],
}

fn spread(sorted: &[f64]) -> Value {
    json!({
        "median": median(sorted),
        "p99": quantile(sorted, 0.99),
        "least": sorted.first(),
        "most": sorted.last(),
    })
}

impl Report<'_> {
    /// Times in seconds.
    pub(super) fn json(&self) -> Value {
        let one = |row: &Row| {
            json!({
                "context": row.cell.context,
                "prefix": prefix(row),
                "concurrency": row.cell.streams,
                "requests": row.requests,
                "failed": row.failed(),
                "failures": row.failures,
                "prompt_tokens": median(&row.prompts),
                "cached_tokens": median(&row.cached),
                "tokens": median(&row.answered),
                "first_token_s": spread(&row.first),
                "inter_token_s": spread(&row.gaps),
                "tok_s_stream": spread(&row.rates),
                "tok_s_total": spread(&row.totals),
            })
        };
        json!({
            "commit": env!("SHARDWRIGHT_VERSION"),
            "url": self.url,
            "model": self.client.model(),
            "tokens_wanted": self.how.predict,
            "repetitions": self.how.repetitions,
            "counted_by": if self.counts() { "usage" } else { "pieces" },
            "notes": self.notes(),
            "results": self.rows.iter().map(one).collect::<Vec<_>>(),
        })
    }

    /// Did the server say how many tokens there were?
    fn counts(&self) -> bool {
        self.rows.iter().any(|row| !row.prompts.is_empty())
    }

    /// What a reader of the figures should know.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.counts() {
            notes.push("the server does not tell tokens: pieces of the stream are counted, and prompts are a word a token".into());
        }
        if !self.client.manners().ignore_eos {
            notes.push("the server does not know `ignore_eos`: answers may end early".into());
        }
        let wanted = f64::from(self.how.predict);
        if let Some(least) = self.rows.iter().filter_map(|r| r.answered.first()).copied().reduce(f64::min)
            && least < wanted
        {
            notes.push(format!("some answers ended early: the shortest has {least} of {wanted} tokens"));
        }
        let (tokens, pieces) = self
            .rows
            .iter()
            .fold((0.0, 0), |(t, p), row| (t + row.answered.iter().sum::<f64>(), p + row.pieces));
        let a_piece = tokens / (pieces as f64).max(1.0);
        if a_piece > 1.05 {
            notes.push(format!(
                "a piece of the stream has {a_piece:.2} tokens: times between pieces are of so many"
            ));
        }
        for row in self.rows {
            for (why, n) in &row.failures {
                let (cell, all) = (row.cell, row.requests);
                let (context, streams) = (cell.context, cell.streams);
                notes.push(format!("{context} {} x {streams}: {n} of {all} failed: {why}", prefix(row)));
            }
        }
        notes
    }
}

fn prefix(row: &Row) -> &'static str {
    if row.cell.warm { "warm" } else { "cold" }
}

fn ms(seconds: Option<f64>) -> String {
    seconds
        .map_or("-".into(), |s| if s < 0.1 { format!("{:.1}", s * 1e3) } else { format!("{:.0}", s * 1e3) })
}

fn rate(rate: Option<f64>) -> String {
    rate.map_or("-".into(), |r| format!("{r:.1}"))
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            "prompt",
            "prefix",
            "streams",
            "first ms",
            "p99",
            "between ms",
            "p99",
            "tok/s each",
            "all",
            "failed",
        ];
        let mut table = Table::new(0, names);
        for row in self.rows {
            let prompt = median(&row.prompts).unwrap_or(f64::from(row.cell.context));
            table.row([
                format!("{prompt}"),
                prefix(row).into(),
                row.cell.streams.to_string(),
                ms(median(&row.first)),
                ms(quantile(&row.first, 0.99)),
                ms(median(&row.gaps)),
                ms(quantile(&row.gaps, 0.99)),
                rate(median(&row.rates)),
                rate(median(&row.totals)),
                if row.failed() > 0 { format!("{} of {}", row.failed(), row.requests) } else { "0".into() },
            ]);
        }
        write!(f, "{table}")?;
        for note in self.notes() {
            writeln!(f, "  {}", crate::table::printable(&note))?;
        }
        Ok(())
    }
}
