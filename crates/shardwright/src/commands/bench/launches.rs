//! The launches of a step on a GPU: what each takes, and the share that it reaches of what the card's memory can give.

use super::How;
use crate::table::{Table, bytes};
use crate::wire::BackendArgs;
use anyhow::Context;
use serde_json::{Value as Json, json};
use shardwright_cuda::measure::reading;
use shardwright_cuda::{CudaExecutor, Profile};
use shardwright_model::exec::{BLOCK, Executor, StepBatch, Want};
use shardwright_model::watch;
use std::io::Write;
use std::time::Instant;

/// Steps for each repetition.
const STEPS: usize = 50;
/// Most bytes that are read to see how fast memory is.
const READ: usize = 3 << 30;

/// A step.
pub(super) struct Step {
    pub(super) rows: usize,
    /// Seconds from token to token, as they are without stamps.
    pub(super) wall: f64,
    pub(super) profile: Profile,
}

/// A card, and what it is judged by.
pub(super) struct Card {
    pub(super) name: String,
    /// Multiprocessors that are used, and whether it has more.
    pub(super) multiprocessors: u32,
    pub(super) part: bool,
    /// Bytes a second that its memory gives, and that its maker names.
    pub(super) speed: f64,
    pub(super) peak: f64,
}

/// A step of these tokens from this position on, many times.
pub(super) fn measure(
    executor: &mut CudaExecutor,
    at: usize,
    tokens: Vec<u32>,
    how: &How,
) -> anyhow::Result<Step> {
    let (rows, last) = (tokens.len(), at + tokens.len() - 1);
    let batch = StepBatch {
        tokens,
        positions: (at as u32..=last as u32).collect(),
        sequences: vec![0; rows],
        tables: vec![(0..=(last / BLOCK) as u32).collect()],
        wants: vec![Want::Candidates; rows],
        ..StepBatch::default()
    };
    let count = how.repetitions as usize * STEPS;
    // the first ones are for getting warm, and ranks compare what they have in common in them
    let warm = watch::STEPS as usize;
    let mut times = vec![];
    for _ in 0..warm + count {
        let begun = Instant::now();
        executor.step(&batch)?;
        times.push(begun.elapsed().as_secs_f64());
    }
    times.drain(..warm);
    times.sort_by(f64::total_cmp);
    let profile = executor.profile(&batch, count)?.1;
    Ok(Step { rows, wall: times[count / 2], profile })
}

impl Card {
    /// Nothing else may be on it. `part`: only so many of its multiprocessors read.
    pub(super) fn measured(index: usize, part: Option<u32>) -> anyhow::Result<Card> {
        let mut gpu = crate::gpu::open(&[index], part)?.swap_remove(0);
        let (name, peak) = (gpu.info().name.clone(), gpu.info().bandwidth as f64);
        let multiprocessors = gpu.info().multiprocessors;
        let free = usize::try_from(gpu.free_memory()?).context("free memory")?;
        let speed = reading(&mut gpu, READ.min(free / 2))?;
        Ok(Card { name, multiprocessors, part: part.is_some(), speed, peak })
    }

    fn json(&self) -> Json {
        json!({ "bytes_s": self.speed, "peak_bytes_s": self.peak, "multiprocessors": self.multiprocessors })
    }

    fn told(&self) -> String {
        let [speed, peak] = [self.speed, self.peak].map(|speed| speed / 1e12);
        let part = match self.part {
            true => format!(" {} of its multiprocessors,", self.multiprocessors),
            false => String::new(),
        };
        format!("{},{part} reads {speed:.2} TB/s of {peak:.2}", self.name)
    }

    /// By itself.
    pub(super) fn print(&self, as_json: bool) -> anyhow::Result<()> {
        let mut out = std::io::stdout();
        if as_json {
            return Ok(writeln!(out, "{}", super::report(Some(&self.name), vec![self.json()]))?);
        }
        Ok(writeln!(out, "{}", self.told())?)
    }
}

/// Launches of one name.
struct Line {
    name: String,
    count: usize,
    seconds: f64,
    bytes: u64,
}

impl Line {
    fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-9)
    }
}

impl Step {
    /// All launches, those that take most first.
    fn lines(&self) -> Vec<Line> {
        let mut lines: Vec<Line> = vec![];
        for launch in &self.profile.launches {
            let found = lines.iter().position(|line| line.name == launch.name).unwrap_or_else(|| {
                lines.push(Line { name: launch.name.clone(), count: 0, seconds: 0.0, bytes: 0 });
                lines.len() - 1
            });
            let line = &mut lines[found];
            (line.count, line.seconds) = (line.count + 1, line.seconds + launch.seconds);
            line.bytes += launch.bytes;
        }
        lines.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        lines
    }

    /// Seconds of all launches.
    fn launches(&self) -> f64 {
        self.profile.launches.iter().map(|launch| launch.seconds).sum()
    }

    /// Bytes of all launches.
    pub(super) fn bytes(&self) -> u64 {
        self.profile.launches.iter().map(|launch| launch.bytes).sum()
    }

    /// Seconds of a step in which no kernel of the model runs: the host has not yet asked for one, or reads what came of them.
    pub(super) fn gaps(&self) -> f64 {
        self.wall - self.profile.span
    }

    fn json(&self, card: &Card) -> Json {
        let all = self.launches();
        let line = |line: Line| {
            json!({ "name": line.name, "count": line.count, "us": line.seconds * 1e6, "bytes": line.bytes,
                    "us_each": line.seconds * 1e6 / line.count as f64,
                    "share_of_roofline": line.rate() / card.speed, "share_of_step": line.seconds / all })
        };
        let mut report = super::report(Some(&card.name), self.lines().into_iter().map(line).collect());
        report["memory"] = card.json();
        report["step"] = json!({ "rows": self.rows, "ms": self.wall * 1e3, "first_to_last_ms": self.profile.span * 1e3,
            "host_gaps_ms": self.gaps() * 1e3, "launches_ms": all * 1e3, "stamp_us": self.profile.stamp * 1e6,
            "bytes": self.bytes(), "share_of_roofline": self.bytes() as f64 / self.wall / card.speed });
        report
    }

    fn told(&self, card: &Card) -> String {
        let all = self.launches();
        let names = ["launch", "count", "us each", "us", "bytes", "GB/s", "% of memory", "% of launches"];
        let mut table = Table::new(1, names);
        for line in self.lines() {
            let (count, us, rate) = (line.count as f64, line.seconds * 1e6, line.rate());
            let reads = line.bytes > 0;
            let of = |text: String| if reads { text } else { "-".into() };
            let (size, speed) = (of(bytes(line.bytes)), of(format!("{:.0}", rate / 1e9)));
            let shares = [of(format!("{:.0}", rate / card.speed * 100.0)), format!("{:.1}", us / all / 1e4)];
            let figures =
                [line.count.to_string(), format!("{:.2}", us / count), format!("{us:.0}"), size, speed];
            table.row([line.name].into_iter().chain(figures).chain(shares));
        }
        let mut sums = Table::pairs();
        let us = |seconds: f64| format!("{:.0} us", seconds * 1e6);
        let count = self.profile.launches.len();
        sums.pair("launches, each by itself", format!("{}, {count} of them", us(all)));
        sums.pair("first kernel to last", us(self.profile.span));
        sums.pair("a step", format!("{}, {:.1} tok/s", us(self.wall), self.rows as f64 / self.wall));
        sums.pair("host gaps", format!("{}, {:.1} %", us(self.gaps()), self.gaps() / self.wall * 100.0));
        let least = self.bytes() as f64 / card.speed;
        let read =
            format!("{} in {}, {:.0} % of a step", bytes(self.bytes()), us(least), least / self.wall * 100.0);
        sums.pair("memory alone", read);
        format!("{}\n{table}\n{sums}", card.told())
    }
}

/// All of it, beside what the card that ran it can do.
pub(super) fn print(step: &Step, backend: &BackendArgs, how: &How) -> anyhow::Result<()> {
    let card = Card::measured(backend.gpus(backend.tp())?[0], how.multiprocessors)?;
    let mut out = std::io::stdout();
    if how.json {
        return Ok(writeln!(out, "{}", step.json(&card))?);
    }
    Ok(write!(out, "{}", step.told(&card))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardwright_cuda::Timed;

    #[test]
    fn launches_of_a_name_have_one_line() {
        let timed = |name: &str, bytes, us: f64| Timed { name: name.into(), bytes, seconds: us / 1e6 };
        let launches = vec![timed("a", 1000, 1.0), timed("b", 0, 5.0), timed("a", 3000, 3.0)];
        let profile = Profile { launches, span: 8e-6, stamp: 1e-6 };
        let step = Step { rows: 1, wall: 10e-6, profile };
        let card = Card { name: "a card".into(), multiprocessors: 48, part: true, speed: 2e9, peak: 3e9 };
        let json = step.json(&card);
        let near = |value: &Json, expected: f64| {
            let off = value.as_f64().map_or(1.0, |value| (value - expected).abs());
            assert!(off < 1e-6, "{value} for {expected}");
        };
        let [b, a] = [&json["results"][0], &json["results"][1]];
        assert_eq!([b["name"].as_str(), a["name"].as_str()], [Some("b"), Some("a")]);
        assert_eq!([a["count"].as_u64(), a["bytes"].as_u64()], [Some(2), Some(4000)]);
        near(&a["us"], 4.0);
        near(&a["us_each"], 2.0);
        near(&a["share_of_roofline"], 0.5);
        near(&b["share_of_step"], 5.0 / 9.0);
        near(&json["step"]["host_gaps_ms"], 2e-3);
        near(&json["step"]["launches_ms"], 9e-3);
        let text = step.told(&card);
        for part in [
            "a card, 48 of its multiprocessors, reads",
            "host gaps",
            "2 us, 20.0 %",
            "4.00 kB",
            "100000.0 tok/s",
            "20 % of a step",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
