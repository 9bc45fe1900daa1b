//! `shardwright plan`: how a model is cut over ranks, what it needs and what it reads, from the header alone.

use crate::table::{Table, bytes, count, parse_bytes, parse_microseconds};
use crate::wire::{ModelArgs, Opened};
use anyhow::{anyhow, bail};
use serde_json::{Map, Value as Json, json};
use shardwright_cuda::predict::{self, Prediction};
use shardwright_cuda::wave::MULTIPROCESSORS;
use shardwright_gguf::TensorInfo;
use shardwright_model::budget::{self, Balance, Card, Demand, Held};
use shardwright_model::cost::{self, Component, Cost};
use shardwright_model::hyper::Hyper;
use shardwright_model::op::Description;
use shardwright_model::plan::{RankPlan, legal_ranks, plan};
use shardwright_model::presets::{Header, Preset, Recipe};
use shardwright_model::{arch, dump};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::time::Duration;

/// Show how a model is cut over ranks: memory per rank, bytes a token, sums over ranks, what would fit.
///
/// Only the header is read; no weights and no GPU are needed. Well-known models can be planned without a file.
#[derive(clap::Args)]
#[command(mut_group("Which", |g| g.arg("like_preset")))]
#[command(after_help = "\
Examples:
  shardwright plan model.gguf --tp 8 --card \"RTX PRO 6000\" -c 131072
  shardwright plan --like-preset glm-5.2:ud-q4_k_xl --tp 4 --card H200
  shardwright plan --like-preset deepseek-v3 --tp 8 --memory 80GiB --bandwidth 2T
  shardwright plan --like-preset glm-5:q4_k-experts --tp 8 --card H200 -c 128 --exchange-us 5
  shardwright plan model.gguf --stage description    every step of the model
  shardwright plan model.gguf --tp 2 --stage rank-plan --rank 1

`shardwright synth --list` shows presets and recipes.")]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// A well-known model in place of a file, quantized by RECIPE [default: ud-q4_k_xl].
    #[arg(long, value_name = "NAME[:RECIPE]")]
    like_preset: Option<String>,
    /// Only so many of its layers [default: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    layers: Option<u32>,
    /// Ranks to cut the model over.
    #[arg(long, value_name = "N", default_value_t = 1)]
    tp: usize,
    /// Tokens in the cache [default: the model's context, 32768 at most].
    #[arg(short, long = "ctx-size", value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    ctx: Option<u64>,
    /// Most rows of a step.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    rows: u64,
    /// Bytes of a cache element: 2 (f16, on GPUs) or 4 (f32, on the CPU).
    #[arg(long, value_name = "2|4", default_value_t = 2, value_parser = cache_bytes)]
    cache_bytes: u64,
    /// The card of each rank, such as H200 or "RTX PRO 6000".
    #[arg(long, value_name = "NAME", value_parser = |s: &str| budget::find_card(s).map_err(|e| e.to_string()))]
    card: Option<Card>,
    /// Memory of each rank, in place of the card's.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    memory: Option<u64>,
    /// Bytes a second that a rank's memory gives, in place of the card's.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    bandwidth: Option<u64>,
    /// Multiprocessors of a rank's card, in place of the card's [default: 132].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    multiprocessors: Option<u32>,
    /// What a sum over ranks takes, in microseconds; without it a step is predicted without its sums.
    #[arg(long, value_name = "US", default_value = "0", value_parser = parse_microseconds)]
    exchange_us: Duration,
    /// Memory of each rank that drivers, libraries and graphs take.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "1GiB")]
    reserve: u64,
    /// Print one stage of planning instead: hyper, description or rank-plan.
    #[arg(long, value_name = "STAGE", value_parser = ["hyper", "description", "rank-plan"])]
    stage: Option<String>,
    /// With --stage rank-plan: whose.
    #[arg(long, value_name = "R", default_value_t = 0)]
    rank: usize,
    /// With --stage: of the next-token layer.
    #[arg(long)]
    draft: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn cache_bytes(text: &str) -> Result<u64, &'static str> {
    match text {
        "2" => Ok(2),
        "4" => Ok(4),
        _ => Err("must be 2 or 4"),
    }
}

/// A model with its tensors, in a file or not.
enum Model {
    File(Box<Opened>),
    Preset(Box<Header>),
}

impl Model {
    fn open(args: &Args) -> anyhow::Result<Model> {
        let Some(name) = &args.like_preset else {
            if args.layers.is_some() {
                bail!("`--layers` is for well-known models, which `--like-preset` names");
            }
            let opened = args.model.open().map_err(|e| match args.model.no_file_but_a_name() {
                Some(name) if Preset::find(name).is_ok() => {
                    anyhow!("{e:#}; for the well-known model of this name say `--like-preset {name}`")
                }
                _ => e,
            })?;
            return Ok(Model::File(Box::new(opened)));
        };
        let (preset, recipe) = name.split_once(':').unwrap_or((name, "ud-q4_k_xl"));
        let mut preset = Preset::find(preset)?;
        if let Some(layers) = args.layers {
            preset.set_layers(layers)?;
        }
        let header = preset.header(Recipe::find(recipe)?, args.model.options())?;
        Ok(Model::Preset(Box::new(header)))
    }

    fn hyper(&self) -> &Hyper {
        match self {
            Model::File(o) => &o.hyper,
            Model::Preset(h) => &h.hyper,
        }
    }

    fn tensors(&self) -> &[TensorInfo] {
        match self {
            Model::File(o) => o.reader.tensors(),
            Model::Preset(h) => h.tensors(),
        }
    }

    fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        match self {
            Model::File(o) => o.reader.tensor(name),
            Model::Preset(h) => h.tensor(name),
        }
    }

    fn name(&self) -> String {
        let meta = match self {
            Model::File(o) => o.reader.meta(),
            Model::Preset(h) => &h.meta,
        };
        meta.may::<String>("general.name").ok().flatten().unwrap_or_else(|| self.hyper().arch.into())
    }
}

impl Args {
    /// What only a prediction takes is not left out in silence.
    fn check(&self) -> anyhow::Result<()> {
        if self.bandwidth == Some(0) {
            bail!("`--bandwidth 0`: memory that gives nothing runs no step; such as 1.8T is meant");
        }
        let predicts = self.bandwidth.is_some() || self.card.is_some();
        if !predicts && (self.multiprocessors.is_some() || !self.exchange_us.is_zero()) {
            bail!(
                "`--multiprocessors` and `--exchange-us` are for the step that is predicted, which takes `--card` or `--bandwidth` too"
            );
        }
        Ok(())
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    args.check()?;
    let model = Model::open(args)?;
    let trunk = arch::describe(model.hyper());
    let draft = arch::draft(model.hyper());
    let mut out = std::io::stdout().lock();
    if let Some(stage) = &args.stage {
        let wanted = match (args.draft, &draft) {
            (false, _) => &trunk,
            (true, Some(draft)) => draft,
            (true, None) => bail!("the model has no next-token layer"),
        };
        write!(out, "{}", self::stage(args, &model, wanted, stage)?)?;
        return Ok(());
    }
    let report = Report::new(args, &model, &trunk, draft.as_ref())?;
    if args.json {
        serde_json::to_writer_pretty(&mut out, &report.json())?;
        return Ok(writeln!(out)?);
    }
    Ok(report.print(&mut out)?)
}

fn stage(args: &Args, model: &Model, d: &Description, stage: &str) -> anyhow::Result<String> {
    Ok(match stage {
        "hyper" => dump::hyper(model.hyper()),
        "description" => dump::description(d),
        _ => {
            let plans = plan(d, &|n| model.tensor(n), args.tp)?;
            match plans.get(args.rank) {
                Some(p) => dump::rank_plan(d, p),
                None => bail!("there is no rank {} of {}; the first is 0", args.rank, args.tp),
            }
        }
    })
}

/// What a token costs in one component.
struct Line {
    component: Component,
    /// The whole model, every weight once.
    whole: Cost,
    /// The rank that reads most.
    rank: Cost,
}

/// All that is known of a model on its ranks.
struct Report {
    name: String,
    hyper: Hyper,
    weights: u64,
    file: u64,
    sums: usize,
    legal: Vec<usize>,
    demand: Demand,
    lines: Vec<Line>,
    held: Vec<Held>,
    balance: Balance,
    /// Tensors that no step reads, and their bytes.
    unused: (usize, u64),
    verdict: Option<Verdict>,
    bandwidth: Option<f64>,
    predicted: Option<Predicted>,
}

/// How long a step of one row takes on the rank that reads most, or why nobody can say.
struct Predicted {
    card: predict::Card,
    /// What each sum over ranks takes, and whether there are any.
    exchange: Duration,
    many: bool,
    step: Result<Prediction, shardwright_cuda::Error>,
}

/// Does it fit?
struct Verdict {
    card: String,
    memory: u64,
    reserve: u64,
    fits: bool,
    /// The fewest such cards.
    fewest: Option<usize>,
    /// A published quantization that would fit on as many as asked for, with its weights a rank.
    quant: Option<(&'static str, u64)>,
}

impl Report {
    fn new(
        args: &Args,
        model: &Model,
        trunk: &Description,
        draft: Option<&Description>,
    ) -> anyhow::Result<Report> {
        let hyper = model.hyper();
        let find = |n: &str| model.tensor(n);
        let context = args.ctx.unwrap_or(hyper.context.min(32_768) as u64);
        let demand = Demand { context, rows: args.rows, element: args.cache_bytes };
        let plans = plan(trunk, &find, args.tp)?;
        let drafts = draft.map(|d| plan(d, &find, args.tp)).transpose()?;
        let of = |p: &RankPlan| Held::of(p, drafts.as_ref().map(|d| &d[p.rank]), demand.element);
        let held: Vec<Held> = plans.iter().map(of).collect();
        let one = plan(trunk, &find, 1)?;
        let lines = lines(trunk, &one[0], &plans, &demand);
        let used: BTreeSet<&str> =
            trunk.weights().chain(draft.iter().flat_map(|d| d.weights())).map(|w| w.name.as_str()).collect();
        let unused = model.tensors().iter().filter(|t| !used.contains(t.name.as_str()));
        let mut report = Report {
            name: model.name(),
            hyper: hyper.clone(),
            weights: model.tensors().iter().map(TensorInfo::elements).sum(),
            file: model.tensors().iter().map(|t| t.bytes).sum(),
            sums: trunk.sums(),
            legal: legal_ranks(trunk, &find)?,
            demand,
            lines,
            held,
            balance: budget::balance(trunk, &plans),
            unused: unused.fold((0, 0), |(n, b), t| (n + 1, b + t.bytes)),
            verdict: None,
            bandwidth: args.bandwidth.map(|b| b as f64).or(args.card.map(|c| c.bandwidth)),
            predicted: None,
        };
        report.predicted =
            report.bandwidth.map(|bandwidth| predicted(args, model, (trunk, &plans), bandwidth));
        if let Some(memory) = args.memory.or(args.card.map(|c| c.memory)) {
            let room = memory.saturating_sub(args.reserve);
            let fits = report.most() <= room;
            let fewest = match fits {
                true => None,
                false => budget::fewest_ranks(trunk, draft, &find, &demand, room)?,
            };
            let card = args.card.filter(|_| args.memory.is_none()).map_or("rank", |c| c.name);
            let quant = if fits { None } else { report.smaller(room) };
            let card = card.to_owned();
            report.verdict = Some(Verdict { card, memory, reserve: args.reserve, fits, fewest, quant });
        }
        Ok(report)
    }

    /// Bytes of the rank that needs most.
    fn most(&self) -> u64 {
        self.held.iter().map(|h| h.total(&self.demand)).max().unwrap_or(0)
    }

    fn smaller(&self, room: u64) -> Option<(&'static str, u64)> {
        let fullest = self.held.iter().max_by_key(|h| h.total(&self.demand))?;
        let [cache, arena] = fullest.working(&self.demand);
        let room = room.saturating_sub(cache).saturating_sub(arena);
        let bits = self.file as f64 * 8.0 / self.weights.max(1) as f64;
        budget::quant_that_fits(fullest.weights(), bits, room)
    }

    fn total(&self) -> (Cost, Cost) {
        let mut all = (Cost::default(), Cost::default());
        self.lines.iter().for_each(|l| {
            all.0 += l.whole;
            all.1 += l.rank;
        });
        all
    }

    /// Seconds that reading the busiest rank's bytes takes at least.
    fn floor(&self) -> Option<f64> {
        let (_, rank) = self.total();
        self.bandwidth.map(|b| (rank.weights + rank.cache) as f64 / b)
    }
}

/// The step after the context that was asked for, on the rank that reads most.
fn predicted(
    args: &Args,
    model: &Model,
    (trunk, plans): (&Description, &[RankPlan]),
    bandwidth: f64,
) -> Predicted {
    let context = args.ctx.unwrap_or(model.hyper().context.min(32_768) as u64);
    let own = args.multiprocessors.map(|n| n as usize).or(args.card.map(|c| c.multiprocessors));
    let card = predict::Card { bandwidth, multiprocessors: own.unwrap_or(MULTIPROCESSORS) };
    // as a GPU runs it unless told otherwise
    let fast = model.tensors().iter().any(|t| t.quant.block_len() > 1);
    let (context, last) = (context as usize, context as usize - 1);
    let asked = predict::Asked { context, last, fast, exchange: args.exchange_us };
    let reads = |plan: &&RankPlan| {
        let all = cost::total(&cost::by_component(trunk, plan, last as u64, args.cache_bytes));
        all.weights + all.cache
    };
    let none = || shardwright_cuda::Error::Zero("rank");
    let plan = plans.iter().max_by_key(reads).ok_or_else(none);
    let step = plan.and_then(|plan| predict::step(trunk, plan, &asked, &card));
    Predicted { card, exchange: args.exchange_us, many: plans.len() > 1, step }
}

/// Costs by component, of the whole model and of the rank that reads most.
fn lines(d: &Description, one: &RankPlan, plans: &[RankPlan], demand: &Demand) -> Vec<Line> {
    let at = |p: &RankPlan| cost::by_component(d, p, demand.context - 1, demand.element);
    let reads = |parts: &BTreeMap<Component, Cost>| {
        let all = cost::total(parts);
        all.weights + all.cache
    };
    let whole = at(one);
    let rank = plans.iter().map(at).max_by_key(reads).unwrap_or_default();
    let line = |c: Component| {
        let of = |m: &BTreeMap<Component, Cost>| m.get(&c).copied().unwrap_or_default();
        Line { component: c, whole: of(&whole), rank: of(&rank) }
    };
    Component::ALL.into_iter().filter(|c| whole.contains_key(c)).map(line).collect()
}

impl Report {
    fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        writeln!(out, "{}", self.summary())?;
        writeln!(out, "one token, with {} in the cache\n{}", self.demand.context, self.token_table())?;
        writeln!(out, "memory of each rank\n{}", self.memory_table())?;
        self.remarks().iter().try_for_each(|r| writeln!(out, "{r}"))
    }

    fn summary(&self) -> Table {
        let mut t = Table::pairs();
        let bits = self.file as f64 * 8.0 / self.weights.max(1) as f64;
        let (whole, _) = self.total();
        t.pair("model", format!("{} ({})", self.name, self.hyper.arch));
        t.pair("weights", format!("{}, {} ({bits:.2} bits each)", count(self.weights), bytes(self.file)));
        t.pair("a token reads", format!("{} weights, {}", count(whole.params), bytes(whole.weights)));
        t.pair("sums over ranks", format!("{} a token", self.sums));
        t.pair("ranks", format!("{}; legal: {}", self.held.len(), ranges(&self.legal)));
        self.hyper.notes.iter().for_each(|n| t.pair("note", n));
        if self.unused.0 > 0 {
            t.pair("unused", format!("{} tensors, {}", self.unused.0, bytes(self.unused.1)));
        }
        t
    }

    fn token_table(&self) -> Table {
        let names = ["component", "weights", "bytes", "bytes a rank", "cache a rank", "operations a rank"];
        let mut t = Table::new(1, names);
        let mut row = |name: &str, whole: Cost, rank: Cost| {
            let sizes =
                [bytes(whole.weights), bytes(rank.weights), bytes(rank.cache), count(rank.operations)];
            t.row([name.to_owned(), count(whole.params)].into_iter().chain(sizes));
        };
        self.lines.iter().for_each(|l| row(l.component.name(), l.whole, l.rank));
        let (whole, rank) = self.total();
        row("all", whole, rank);
        t
    }

    /// One row a run of ranks that hold the same.
    fn memory_table(&self) -> Table {
        let present = |c: &Component| self.held.iter().any(|h| h.weights.contains_key(c));
        let components: Vec<Component> = Component::ALL.into_iter().filter(present).collect();
        let names = components.iter().map(|c| c.name());
        let names = ["rank"].into_iter().chain(names).chain(["weights", "cache", "values", "total"]);
        let mut t = Table::new(1, names);
        let mut first = 0;
        while first < self.held.len() {
            let held = &self.held[first];
            let same = self.held[first..].iter().take_while(|h| *h == held).count();
            let name = if same == 1 { first.to_string() } else { format!("{first}-{}", first + same - 1) };
            let parts = components.iter().map(|c| bytes(held.weights.get(c).copied().unwrap_or(0)));
            let [cache, values] = held.working(&self.demand);
            let sums = [held.weights(), cache, values, held.total(&self.demand)].map(bytes);
            t.row([name].into_iter().chain(parts).chain(sums));
            first += same;
        }
        t
    }

    fn remarks(&self) -> Vec<String> {
        let mut all = vec![];
        let a_token = self.held.iter().map(|h| h.cache_a_token).max().unwrap_or(0);
        all.push(format!("a cached token takes {} on the fullest rank", bytes(a_token)));
        let weights = || self.held.iter().map(Held::weights);
        let (most, least) = (weights().max().unwrap_or(0), weights().min().unwrap_or(0));
        if most as f64 > 1.05 * least as f64 {
            all.push(format!("lopsided: ranks hold from {} to {} of weights", bytes(least), bytes(most)));
        }
        for (component, ranks) in &self.balance.idle {
            all.push(format!("ranks {} hold nothing of: {}", ranges(ranks), component.name()));
        }
        let whole = &self.balance.expert_parallel;
        if !whole.is_empty() {
            all.push(format!(
                "whole experts are dealt in layers {}; a rank reads its share on average",
                ranges(whole)
            ));
        }
        if let (Some(seconds), Some(bandwidth)) = (self.floor(), self.bandwidth) {
            let (ms, rate) = (seconds * 1e3, 1.0 / seconds);
            let speed = bytes(bandwidth as u64);
            all.push(format!(
                "reading alone takes {ms:.1} ms a token at {speed}/s: {rate:.0} tokens/s at most"
            ));
        }
        all.extend(self.predicted.iter().map(|p| p.told(self.sums)));
        all.extend(self.verdict.iter().map(|v| self.verdict_line(v)));
        all
    }

    fn verdict_line(&self, v: &Verdict) -> String {
        let (n, most) = (self.held.len(), bytes(self.most()));
        let room = format!("{} less {} of reserve", bytes(v.memory), bytes(v.reserve));
        if v.fits {
            return format!("fits: {most} on the fullest of {n} x {} ({room})", v.card);
        }
        let cards = match v.fewest {
            Some(fewest) => format!("{fewest} such ranks would do"),
            None => "no legal number of such ranks would do".into(),
        };
        let quant = match v.quant {
            Some((name, size)) => {
                format!("; on {n}, a file of about {name} would ({} of weights a rank)", bytes(size))
            }
            None => format!("; on {n}, none of the published quantizations would"),
        };
        format!("does not fit: {most} on the fullest of {n} x {} ({room}); {cards}{quant}", v.card)
    }

    fn json(&self) -> Json {
        let cost = |c: &Cost| json!({ "weights": c.params, "bytes": c.weights, "cache_bytes": c.cache, "operations": c.operations });
        let (whole, rank) = self.total();
        let components: Map<String, Json> = self
            .lines
            .iter()
            .map(|l| (l.component.name().into(), json!({ "whole": cost(&l.whole), "rank": cost(&l.rank) })))
            .collect();
        let held = self.held.iter().map(|h| {
            let [cache, values] = h.working(&self.demand);
            let parts: Map<String, Json> =
                h.weights.iter().map(|(c, n)| (c.name().into(), json!(n))).collect();
            json!({ "weights": h.weights(), "by_component": parts, "cache": cache, "values": values,
                    "total": h.total(&self.demand), "cache_a_token": h.cache_a_token })
        });
        let idle: Map<String, Json> =
            self.balance.idle.iter().map(|(c, ranks)| (c.name().into(), json!(ranks))).collect();
        let verdict = self.verdict.as_ref().map(|v| {
            json!({ "fits": v.fits, "memory": v.memory, "reserve": v.reserve, "fewest_ranks": v.fewest,
                    "quant": v.quant.map(|q| q.0), "quant_weights_a_rank": v.quant.map(|q| q.1) })
        });
        json!({
            "model": self.name, "architecture": self.hyper.arch, "weights": self.weights, "bytes": self.file,
            "ranks": self.held.len(), "legal_ranks": self.legal, "sums_a_token": self.sums,
            "context": self.demand.context, "rows": self.demand.rows,
            "token": { "whole": cost(&whole), "rank": cost(&rank), "components": components },
            "memory": held.collect::<Vec<_>>(), "idle": idle, "expert_parallel_layers": self.balance.expert_parallel,
            "unused": { "tensors": self.unused.0, "bytes": self.unused.1 },
            "floor_seconds": self.floor(), "prediction": self.predicted.as_ref().and_then(Predicted::json),
            "verdict": verdict, "notes": self.hyper.notes,
        })
    }
}

impl Predicted {
    /// For people, of a step with so many sums over ranks.
    fn told(&self, sums: usize) -> String {
        let step = match &self.step {
            Ok(step) => step,
            Err(e) => return format!("a step on GPUs can't be predicted: {e}"),
        };
        let us = |seconds: f64| format!("{:.0} us", seconds * 1e6);
        let (all, cards) = (step.seconds(), self.card.multiprocessors);
        let mut parts = vec![
            format!("{} to read {}", us(step.reading), bytes(step.read[0])),
            format!("{} for {} weights on {cards} multiprocessors", us(step.computing), count(step.read[1])),
            format!("{} from launch to launch, {} of them", us(step.latency), step.launches),
        ];
        if step.sums > 0 {
            let each = self.exchange.as_secs_f64() * 1e6;
            parts.push(format!("{} for {} sums of {each} us", us(step.exchanges), step.sums));
        } else if self.many && sums > 0 {
            parts.push(format!("without its {sums} sums over ranks, whose time `--exchange-us` names"));
        }
        format!("a step is predicted to take {}, {:.1} tokens/s: {}", us(all), 1.0 / all, parts.join("; "))
    }

    fn json(&self) -> Option<Json> {
        let step = self.step.as_ref().ok()?;
        let us = |seconds: f64| seconds * 1e6;
        Some(json!({
            "us": us(step.seconds()), "tok_s": 1.0 / step.seconds(), "reading_us": us(step.reading), "bytes": step.read[0],
            "computing_us": us(step.computing), "weights": step.read[1], "latency_us": us(step.latency),
            "launches": step.launches, "exchanges_us": us(step.exchanges), "exchanges": step.sums,
            "exchange_us": self.exchange.as_secs_f64() * 1e6, "bandwidth": self.card.bandwidth,
            "multiprocessors": self.card.multiprocessors,
        }))
    }
}

/// `1-4, 8` for 1, 2, 3, 4, 8.
fn ranges(all: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = vec![];
    for n in all {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *n => *last = *n,
            _ => runs.push((*n, *n)),
        }
    }
    let run = |(a, b): &(usize, usize)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    runs.iter().map(run).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_short() {
        let check = |all: &[usize], want: &str| assert_eq!(ranges(all), want);
        check(&[], "");
        check(&[1, 2, 3, 4, 8], "1-4, 8");
        check(&[5], "5");
    }
}
