//! `shardwright bench ladder`: what each thing that makes steps faster brings on this box, from kernels launched one by one to
//! recorded steps on all cards, beside what `doctor` finds and `plan` expects.

mod report;

use super::How;
use super::launches::Card;
use super::local::{self, LocalArgs};
use crate::commands::doctor::{self, Looked};
use anyhow::{Context, bail};
use clap::Parser;
use report::{Measured, Report, Rung};
use serde_json::Value as Json;
use shardwright_cuda::driver::Nccl;
use shardwright_model::arch;
use shardwright_model::hyper::Options;
use shardwright_model::plan::legal_ranks;
use shardwright_model::presets::{Header, Preset, Recipe};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Measure on this box what each thing that makes steps faster brings.
///
/// A model of a well-known shape with made-up weights is run in steps of one row: its kernels launched one by one, recorded, and over all
/// cards by sums of NCCL and of our own. What can't be measured here is listed with the reason. No model is downloaded; all of it takes some minutes.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The model's shape [default: the largest of some that fits on a card].
    #[arg(long, value_name = "PRESET")]
    dummy: Option<String>,
    /// Types of its weights.
    #[arg(long, value_name = "NAME", default_value = "ud-q4_k_xl")]
    recipe: String,
    /// Its layers [default: all].
    #[arg(long, value_name = "N", requires = "dummy", value_parser = clap::value_parser!(u32).range(1..))]
    layers: Option<u32>,
    /// Tokens taken to be in the cache already.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1 << 24))]
    depth: u32,
    /// How often everything is measured.
    #[arg(short, long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repetitions: u32,
    /// Print the figures as JSON.
    #[arg(long)]
    json: bool,
    /// Write a page with all of it to this file.
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
}

/// Shapes and their layers, the largest first. The last is taken where none fits.
const MODELS: [(&str, Option<u32>); 4] =
    [("glm-5", Some(7)), ("glm-4.7-flash", None), ("llama-3-8b", None), ("llama-3-8b", Some(4))];

/// Bytes of a card that are left for cache, values and the driver.
const ROOM: u64 = 2 << 30;

/// Variables by which NCCL is told to do what suits small sums: the protocol of least latency, the algorithms that have it, and writing from card to
/// card across sockets too.
const TUNED: [(&str, &str); 3] =
    [("NCCL_PROTO", "LL"), ("NCCL_ALGO", "Ring,Tree"), ("NCCL_P2P_LEVEL", "SYS")];

/// How a rung runs its steps.
#[derive(Clone, Copy)]
struct Way {
    eager: bool,
    /// By what several cards sum.
    sums: Sums,
}

#[derive(Clone, Copy)]
enum Sums {
    Own,
    /// With these variables.
    Nccl(&'static [(&'static str, &'static str)]),
}

/// A rung as a command line of `bench`.
#[derive(Parser)]
struct Line {
    #[command(flatten)]
    bench: super::Args,
}

/// A shape and how many cards could share it.
struct Model {
    name: String,
    layers: Option<u32>,
    recipe: String,
    header: Header,
}

impl Model {
    fn of(args: &Args, name: &str, layers: Option<u32>) -> anyhow::Result<Model> {
        let mut preset = Preset::find(name)?;
        if let Some(layers) = layers {
            preset.set_layers(layers)?;
        }
        let header = preset.header(Recipe::find(&args.recipe)?, Options::default())?;
        Ok(Model { name: name.to_owned(), layers, recipe: args.recipe.clone(), header })
    }

    /// The one that was asked for, or the largest that so many free bytes hold.
    fn chosen(args: &Args, free: u64) -> anyhow::Result<Model> {
        if let Some(name) = &args.dummy {
            return Model::of(args, name, args.layers);
        }
        let [rest @ .., (last, few)] = MODELS;
        for (name, layers) in rest {
            let model = Model::of(args, name, layers)?;
            if model.header.bytes() + ROOM <= free {
                return Ok(model);
            }
        }
        Model::of(args, last, few)
    }

    /// The most ranks that it can be cut over, of so many.
    fn ranks(&self, cards: usize) -> anyhow::Result<usize> {
        let legal = legal_ranks(&arch::describe(&self.header.hyper), &|name| self.header.tensor(name))?;
        Ok(legal.into_iter().filter(|n| *n <= cards).max().unwrap_or(1))
    }

    fn title(&self) -> String {
        let layers = self.layers.map_or(String::new(), |n| format!(", {n} layers"));
        format!("{}{layers}, {}", self.name, self.recipe)
    }

    /// The words of a rung's command line.
    fn words(&self, depth: u32, cards: &[usize], way: Way) -> Vec<String> {
        let list: Vec<String> = cards.iter().map(usize::to_string).collect();
        let mut words = vec!["bench".to_owned()];
        let mut say = |flag: &str, value: &str| words.extend([flag.to_owned(), value.to_owned()]);
        say("--dummy", &self.name);
        if let Some(layers) = self.layers {
            say("--layers", &layers.to_string());
        }
        say("--recipe", &self.recipe);
        say("--device", &format!("cuda:{}", list.join(",")));
        say("--tp", &cards.len().to_string());
        if cards.len() > 1 {
            say("--allreduce", if matches!(way.sums, Sums::Own) { "push" } else { "nccl" });
        }
        say("-p", "1");
        say("--depth", &depth.to_string());
        words.push("--per-kernel".to_owned());
        words.extend(way.eager.then(|| "--enforce-eager".to_owned()));
        words
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    // what can't be written is known before minutes of measuring
    let open = |path: &PathBuf| std::fs::File::create(path).with_context(|| path.display().to_string());
    let page = args.html.as_ref().map(open).transpose()?;
    let looked = doctor::look();
    let usable = looked.usable();
    let free = usable.iter().map(|(_, free)| *free).min().unwrap_or(0);
    let model = Model::chosen(args, free)?;
    let cards: Vec<usize> = usable.iter().map(|(index, _)| *index).collect();
    let card = cards.first().map(|first| Card::measured(*first, None)).transpose()?;
    let ladder = Ladder { args, model: &model, looked: &looked, card: card.as_ref(), cards: &cards };
    let rungs = ladder.rungs()?;
    let report = Report { model: model.title(), card: card.as_ref(), looked: &looked, rungs };
    if let Some(mut page) = page {
        page.write_all(report.page().as_bytes())?;
    }
    let mut out = std::io::stdout();
    if args.json {
        return Ok(writeln!(out, "{:#}", report.json())?);
    }
    Ok(write!(out, "{}", report.told())?)
}

/// What the rungs are measured with.
struct Ladder<'a> {
    args: &'a Args,
    model: &'a Model,
    looked: &'a Looked,
    card: Option<&'a Card>,
    cards: &'a [usize],
}

impl Ladder<'_> {
    fn rungs(&self) -> anyhow::Result<Vec<Rung>> {
        let most = self.model.ranks(self.cards.len())?;
        let several = &self.cards[..if most > 1 { most } else { 0 }];
        let one = &self.cards[..self.cards.len().min(1)];
        let way = |eager, sums| Way { eager, sums };
        let (plain, tuned) = (Sums::Nccl(&[]), Sums::Nccl(&TUNED));
        Ok(vec![
            self.rung("one GPU, launched one by one", one, way(true, Sums::Own)),
            self.rung("one GPU, recorded", one, way(false, Sums::Own)),
            self.rung("several GPUs, sums of NCCL, launched one by one", several, way(true, plain)),
            self.rung("several GPUs, sums of NCCL, recorded", several, way(false, plain)),
            self.rung(
                "several GPUs, sums of NCCL with its variables set, recorded",
                several,
                way(false, tuned),
            ),
            self.rung("several GPUs, own sums, launched one by one", several, way(true, Sums::Own)),
            self.rung("several GPUs, own sums, recorded", several, way(false, Sums::Own)),
        ])
    }

    /// Why there is nothing over several cards.
    fn too_few(&self) -> String {
        match self.cards.len() {
            0 => self.looked.obstacle(),
            1 => "there is one GPU, and sums take two".into(),
            n => format!("the model can't be cut over {n} GPUs or fewer"),
        }
    }

    fn rung(&self, name: &'static str, cards: &[usize], way: Way) -> Rung {
        let outcome = match (cards, self.card) {
            ([], _) | (_, None) => Err(self.left_out(way)),
            (cards, Some(card)) => self.measured(cards, way, card).map_err(|e| format!("{e:#}")),
        };
        Rung { name, outcome }
    }

    /// Why a rung has nothing to be measured on.
    fn left_out(&self, way: Way) -> String {
        match (self.too_few(), way.sums) {
            (why, Sums::Nccl(_)) if self.cards.len() == 1 => {
                format!("{why}: NCCL over one rank adds nothing up")
            }
            (why, _) => why,
        }
    }

    fn measured(&self, cards: &[usize], way: Way, card: &Card) -> anyhow::Result<Measured> {
        let words = self.model.words(self.args.depth, cards, way);
        let variables = if let Sums::Nccl(variables) = way.sums { variables } else { &[] };
        let set: String = variables.iter().map(|(name, value)| format!("{name}={value} ")).collect();
        let command = format!("{set}shardwright {}", words.join(" "));
        log::info!("{command}");
        let bench = Line::try_parse_from(&words)?.bench;
        let local: &LocalArgs = &bench.local;
        let how = How { repetitions: self.args.repetitions, ..bench.how };
        let planned = local::planned(local, &bench.model)?;
        let [wall, gaps] = match way.sums {
            Sums::Own => {
                let step = local::step(local, &bench.model, &how)?;
                [step.wall, step.gaps()]
            }
            Sums::Nccl(variables) => {
                Nccl::find()?;
                apart(&words, variables, self.args.repetitions)?
            }
        };
        let sum = if cards.len() > 1 { self.looked.sum(cards) } else { None };
        Ok(Measured {
            command,
            cards: cards.len(),
            wall,
            gaps,
            bytes: planned.bytes,
            planned: planned.bytes as f64 / card.speed + sum.unwrap_or(0.0) * planned.sums as f64,
        })
    }
}

/// The same by a process of its own: NCCL reads its variables once, and what does not end there ends with it. Seconds of a step and of its
/// gaps.
fn apart(words: &[String], variables: &[(&str, &str)], repetitions: u32) -> anyhow::Result<[f64; 2]> {
    let mut child = Command::new(std::env::current_exe()?);
    child.args(words).args(["--json", "-r", &repetitions.to_string()]);
    // what it is to be measured by is what the rung says, and its output is a report alone
    for name in ["NCCL_PROTO", "NCCL_ALGO", "NCCL_P2P_LEVEL", "NCCL_DEBUG"] {
        child.env_remove(name);
    }
    let out = child.envs(variables.iter().copied()).stdin(Stdio::null()).output()?;
    if !out.status.success() {
        bail!("{}", last_line(&String::from_utf8_lossy(&out.stderr)));
    }
    let all: Json = serde_json::from_slice(&out.stdout).context("what `bench --json` told")?;
    let of =
        |name: &str| all["step"][name].as_f64().map(|ms| ms / 1e3).with_context(|| format!("no `{name}`"));
    Ok([of("ms")?, of("host_gaps_ms")?])
}

/// What a process said last.
fn last_line(told: &str) -> &str {
    let last = told.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it ended without a word");
    last.strip_prefix("error: ").unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        ladder: Args,
    }

    #[test]
    fn rungs_are_commands_that_anybody_can_give() {
        for flags in [vec![], vec!["--dummy", "glm-5", "--layers", "5"]] {
            let args = Alone::parse_from([vec!["ladder"], flags].concat()).ladder;
            let model = Model::chosen(&args, 200 << 30).unwrap();
            assert_eq!(model.name, "glm-5");
            let (own, nccl) = (Sums::Own, Sums::Nccl(&TUNED));
            for (cards, eager, sums, says) in [
                (vec![0], true, own, None),
                (vec![1, 3], false, own, Some("push")),
                (vec![1, 3], true, nccl, Some("nccl")),
            ] {
                let words = model.words(7, &cards, Way { eager, sums });
                assert_eq!(words.contains(&"--enforce-eager".to_owned()), eager);
                let named =
                    words.iter().position(|word| word == "--allreduce").map(|at| words[at + 1].as_str());
                assert_eq!(named, says);
                let bench = Line::try_parse_from(words).unwrap().bench;
                let planned = local::planned(&bench.local, &bench.model).unwrap();
                assert!(planned.bytes > 1 << 30 && planned.sums > 0, "{}", planned.bytes);
            }
        }
    }

    #[test]
    fn a_process_that_fails_says_why() {
        let check = |told: &str, expected: &str| assert_eq!(last_line(told), expected, "{told:?}");
        check("note: loading\nerror: NCCL: a sum: wrong\n\n", "NCCL: a sum: wrong");
        check("Killed\n", "Killed");
        check("", "it ended without a word");
        let why = apart(&["bench".into(), "--no-such-flag".into()], &[], 1).unwrap_err().to_string();
        assert!(!why.is_empty(), "{why}");
    }

    #[test]
    fn the_model_is_one_that_fits() {
        let args = Alone::parse_from(["ladder"]).ladder;
        let name = |gigabytes: u64| Model::chosen(&args, gigabytes << 30).unwrap().title();
        assert_eq!(name(140), "glm-5, 7 layers, ud-q4_k_xl");
        assert_eq!(name(12), "llama-3-8b, ud-q4_k_xl");
        assert_eq!(name(0), "llama-3-8b, 4 layers, ud-q4_k_xl");
        let ranks = |cards| Model::chosen(&args, 0).unwrap().ranks(cards).unwrap();
        assert_eq!([0, 1, 2, 3, 8].map(ranks).map(|n| n > 1), [false, false, true, true, true]);
    }
}
