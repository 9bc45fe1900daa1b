//! The ladder for people, for machines, and as a page.

use super::super::launches::Card;
use super::super::report;
use super::super::url::plot::escape;
use crate::commands::doctor::Looked;
use crate::table::{Table, bytes};
use serde_json::{Value as Json, json};

/// A way to run steps, and what came of it or why it was not measured.
pub(super) struct Rung {
    pub(super) name: &'static str,
    pub(super) outcome: Result<Measured, String>,
}

/// A step of one row.
pub(super) struct Measured {
    /// What measures the same.
    pub(super) command: String,
    pub(super) cards: usize,
    /// Seconds of a step, and of it those in which no kernel runs.
    pub(super) wall: f64,
    pub(super) gaps: f64,
    /// Bytes that the busiest card reads.
    pub(super) bytes: u64,
    /// Seconds that reading them takes, and summing.
    pub(super) planned: f64,
}

/// All of it.
pub(super) struct Report<'a> {
    pub(super) model: String,
    pub(super) card: Option<&'a Card>,
    pub(super) looked: &'a Looked,
    pub(super) rungs: Vec<Rung>,
}

const HEAD: [&str; 8] =
    ["", "GPUs", "ms", "tok/s", "times the first", "ms of host gaps", "ms by the plan", "% of that speed"];

impl Report<'_> {
    /// What the first measured rung takes.
    fn first(&self) -> f64 {
        self.rungs.iter().find_map(|rung| Some(rung.outcome.as_ref().ok()?.wall)).unwrap_or(0.0)
    }

    pub(super) fn json(&self) -> Json {
        let rung = |rung: &Rung| match &rung.outcome {
            Ok(m) => {
                json!({ "name": rung.name, "command": m.command, "gpus": m.cards, "ms": m.wall * 1e3, "tok_s": 1.0 / m.wall,
                             "host_gaps_ms": m.gaps * 1e3, "bytes": m.bytes, "planned_ms": m.planned * 1e3,
                             "share_of_roofline": m.planned / m.wall })
            }
            Err(why) => json!({ "name": rung.name, "not_measured": why }),
        };
        let name = self.card.map(|card| card.name.as_str());
        let mut all = report(name, self.rungs.iter().map(rung).collect());
        all["model"] = json!(self.model);
        all["memory"] =
            json!(self.card.map(|card| json!({ "bytes_s": card.speed, "peak_bytes_s": card.peak })));
        all["doctor"] = self.looked.json();
        all
    }

    /// The card and what it is measured with.
    fn heading(&self) -> String {
        let card = self.card.map(|card| format!("{}, reads {}/s; ", card.name, bytes(card.speed as u64)));
        format!("{}{}, random weights, one stream", card.unwrap_or_default(), self.model)
    }

    /// The cells of what was measured.
    fn cells(&self, m: &Measured) -> [String; 7] {
        [
            m.cards.to_string(),
            format!("{:.2}", m.wall * 1e3),
            format!("{:.1}", 1.0 / m.wall),
            format!("{:.2}", self.first() / m.wall),
            format!("{:.2}", m.gaps * 1e3),
            format!("{:.2}", m.planned * 1e3),
            format!("{:.0}", m.planned / m.wall * 100.0),
        ]
    }

    pub(super) fn told(&self) -> String {
        let mut table = Table::new(1, HEAD);
        let mut missing = String::new();
        for rung in &self.rungs {
            match &rung.outcome {
                Ok(m) => table.row([rung.name.to_owned()].into_iter().chain(self.cells(m))),
                Err(why) => missing += &format!("not measured: {}: {why}\n", rung.name),
            }
        }
        format!("{}\n{table}{missing}\n{}", self.heading(), self.looked.told())
    }

    /// A page that needs nothing else.
    pub(super) fn page(&self) -> String {
        let mut rows = String::new();
        for rung in &self.rungs {
            let name = escape(rung.name);
            rows += &match &rung.outcome {
                Ok(m) => {
                    // the longest step is the first one's, or nearly so
                    let wide = |seconds: f64| (seconds / self.first() * 100.0).clamp(0.0, 100.0);
                    let cells: String = self.cells(m).iter().map(|cell| format!("<td>{cell}</td>")).collect();
                    let [plan, wall] = [m.planned, m.wall].map(wide);
                    let bar = format!("<i style=\"width:{wall:.1}%\"></i><b style=\"width:{plan:.1}%\"></b>");
                    let command = escape(&m.command);
                    format!("<tr><th>{name}<div>{bar}</div><code>{command}</code></th>{cells}</tr>\n")
                }
                Err(why) => {
                    format!(
                        "<tr class=none><th>{name}</th><td colspan=7>not measured: {}</td></tr>\n",
                        escape(why)
                    )
                }
            };
        }
        let head: String = HEAD.iter().map(|name| format!("<td>{name}</td>")).collect();
        let (heading, doctor) = (escape(&self.heading()), lines(&self.looked.told()));
        let all = lines(&format!("{:#}", self.json()));
        format!(
            "<!doctype html>\n<html lang=en><meta charset=utf-8><title>shardwright bench ladder</title>\n<style>{STYLE}</style>\n\
             <h1>What makes steps faster here</h1>\n<p>{heading}</p>\n<table>\n<tr>{head}</tr>\n{rows}</table>\n\
             <p>Bars: what a step takes, and dark, what reading its bytes and summing takes at least.</p>\n\
             <h2>The box</h2>\n<pre>{doctor}</pre>\n<details><summary>Figures</summary><pre>{all}</pre></details>\n</html>\n"
        )
    }
}

/// Text of several lines.
fn lines(text: &str) -> String {
    text.lines().map(|line| escape(line) + "\n").collect()
}

const STYLE: &str = "body{font:15px system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color:#222;background:#fff}\
table{border-collapse:collapse;width:100%}td{text-align:right;padding:.4em .6em}th{text-align:left;font-weight:600}\
tr{border-bottom:1px solid #ddd}div{position:relative;height:.8em;margin:.3em 0;background:#f3f3f3}\
i,b{position:absolute;left:0;top:0;height:100%}i{background:#56b4e9}b{background:#0072b2}\
code{font-size:.75em;color:#666;font-weight:400}.none{color:#777}.none td{text-align:left}pre{overflow:auto;background:#f7f7f7;padding:1em}";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor;

    #[test]
    fn what_was_measured_and_what_not_is_in_all_forms() {
        let measured = |wall: f64| Measured {
            command: "shardwright bench <x>".into(),
            cards: 1,
            wall,
            gaps: 1e-3,
            bytes: 4_000_000,
            planned: 2e-3,
        };
        let rungs = vec![
            Rung { name: "slow", outcome: Ok(measured(10e-3)) },
            Rung { name: "fast", outcome: Ok(measured(4e-3)) },
            Rung { name: "with others", outcome: Err("there is one & no more".into()) },
        ];
        let card = Card { name: "a card".into(), multiprocessors: 8, part: false, speed: 2e9, peak: 3e9 };
        let looked = doctor::look();
        let report = Report { model: "a model".into(), card: Some(&card), looked: &looked, rungs };
        let json = report.json();
        assert_eq!(json["results"][1]["share_of_roofline"], 0.5);
        assert_eq!(json["results"][2]["not_measured"], "there is one & no more");
        assert_eq!([&json["card"], &json["model"]], ["a card", "a model"]);
        assert!(json["doctor"]["findings"].is_array());
        let text = report.told();
        for part in ["2.50", "250.0", "not measured: with others: there is one & no more", "kernel compiler"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        let page = report.page();
        for part in ["width:40.0%", "width:20.0%", "bench &lt;x&gt;", "one &amp; no more", "kernel compiler"]
        {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("src=") && !page.contains("href="), "{page}");
    }
}
