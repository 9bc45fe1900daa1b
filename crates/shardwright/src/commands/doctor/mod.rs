//! `shardwright doctor`: what a box has, what it loses, and what would mend it.

mod findings;
mod host;

use crate::progress::Progress;
use crate::table::{Table, bytes};
use findings::{Card, Finding, Pair, SUMS, Way};
use host::{Host, Place};
use serde_json::{Value as Json, json};
use shardwright_cuda::device::Device;
use shardwright_cuda::driver::{self, Gpu, GpuInfo, Nccl};
use shardwright_cuda::jit::{Folders, Jit};
use shardwright_cuda::nvml::{Link, Nvml};
use shardwright_cuda::nvrtc::Nvrtc;
use shardwright_cuda::peers;
use shardwright_model::card::Card as Told;
use std::io::Write;
use std::sync::Arc;

/// Look for what slows models down here: driver, compiler, cards and where they sit, and the way between every two cards.
///
/// Every pair of cards sums real numbers, small and large, by each other's memory and through the host's, and the sums must be right:
/// what the driver says of a way between cards is not believed. Nothing is changed; what would mend a finding is printed.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shardwright doctor
  shardwright doctor --json
  CUDA_VISIBLE_DEVICES=0,1 shardwright doctor")]
pub(crate) struct Args {
    /// Print everything as JSON.
    #[arg(long)]
    json: bool,
}

/// Bytes of a row of GLM-5's stream as it goes from rank to rank, and of many.
const SMALL: usize = 12_288;
const LARGE: usize = 8 << 20;
pub(crate) const SUMMED: [usize; 2] = [SMALL, LARGE];
/// Sums in a recording.
const MANY: usize = 50;
const FEW: usize = 4;

/// All that was found.
pub(crate) struct Looked {
    host: Host,
    driver: Option<String>,
    compiler: Option<String>,
    nccl: Option<String>,
    cards: Vec<Card>,
    pairs: Vec<Pair>,
    findings: Vec<Finding>,
}

/// Does an IOMMU translate what cards write to each other?
pub(crate) fn iommu() -> bool {
    Host::read(&host::root()).iommu
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let looked = look();
    let mut out = std::io::stdout();
    if args.json {
        return Ok(writeln!(out, "{:#}", looked.json())?);
    }
    Ok(write!(out, "{}", looked.told())?)
}

/// Looks at the box.
pub(crate) fn look() -> Looked {
    let root = host::root();
    let host = Host::read(&root);
    let compiler = Nvrtc::find().map(|nvrtc| nvrtc.to_string()).ok();
    let nccl = Nccl::find().map(|nccl| nccl.to_string()).ok();
    let gpus = Gpu::list().map_err(|e| e.to_string());
    let driver = gpus
        .as_ref()
        .ok()
        .and_then(|all| all.first())
        .map(|gpu| format!("CUDA {}.{}", gpu.driver.0, gpu.driver.1));
    let jit = Arc::new(Jit::new(Nvrtc::find, Folders::find(), |_, _| {}));
    let nvml = Nvml::find();
    let card = |info| card(info, &root, &jit, nvml.as_ref().ok());
    let mut cards = gpus.map(|all| all.into_iter().map(card).collect::<Vec<Card>>());
    let pairs = cards.as_ref().map_or(vec![], |cards| pairs(cards, &jit, nvml.as_ref().ok()));
    // what has been sent meanwhile is what shows a bad link
    for card in cards.iter_mut().flatten() {
        let now = replays(&watched(nvml.as_ref().ok(), &card.bus, card.index));
        card.replayed = now.zip(replays(&card.told)).map_or(0, |(now, then)| now.saturating_sub(then));
    }
    let findings = findings::all(&host, &cards, &pairs);
    Looked { host, driver, compiler, nccl, cards: cards.unwrap_or_default(), pairs, findings }
}

impl Looked {
    pub(crate) fn json(&self) -> Json {
        let host = &self.host;
        json!({
            "host": { "cores": host.cores, "memory": host.memory, "nodes": host.nodes, "iommu": host.iommu, "governor": host.governor },
            "driver": self.driver,
            "compiler": self.compiler,
            "nccl": self.nccl,
            "cards": self.cards.iter().map(card_json).collect::<Vec<_>>(),
            "pairs": self.pairs.iter().map(pair_json).collect::<Vec<_>>(),
            "findings": self.findings.iter().map(Finding::json).collect::<Vec<_>>(),
        })
    }

    /// The same for people.
    pub(crate) fn told(&self) -> String {
        let programs = [self.driver.as_deref(), self.compiler.as_deref(), self.nccl.as_deref()];
        told(&self.host, programs, &self.cards, &self.pairs, &self.findings)
    }

    /// Cards that can be used, and their free bytes.
    pub(crate) fn usable(&self) -> Vec<(usize, u64)> {
        let ready = self.cards.iter().filter(|card| card.kernels.is_none());
        ready.filter_map(|card| Some((card.index, card.free?))).collect()
    }

    /// Why none can, if so: what was found first.
    pub(crate) fn obstacle(&self) -> String {
        self.findings.first().map_or("no GPU can be used".into(), |finding| finding.what.clone())
    }

    /// Seconds of a small sum over some cards: that of the two that take longest.
    pub(crate) fn sum(&self, cards: &[usize]) -> Option<f64> {
        let among = self.pairs.iter().filter(|pair| pair.cards.iter().all(|card| cards.contains(card)));
        let best = among.filter_map(|pair| pair.direct.as_ref().or(pair.host.as_ref()).ok());
        best.map(|way| way.small / 1e6).max_by(f64::total_cmp)
    }
}

fn card(info: GpuInfo, root: &std::path::Path, jit: &Arc<Jit>, nvml: Option<&Nvml>) -> Card {
    let free = Gpu::open(info.index, jit.clone()).and_then(|gpu| gpu.free_memory());
    let broken = free.as_ref().err().map(ToString::to_string);
    let at = Place::read(root, &info.place);
    let kernels = jit.architecture(info.capability).err().map(|e| e.to_string());
    let told = watched(nvml, &info.place, info.index);
    let (index, name, bus, memory) = (info.index, info.name, info.place, info.memory);
    Card { index, name, bus, memory, free: free.ok(), broken, kernels, told, replayed: 0, at }
}

/// What a card tells of itself.
fn watched(nvml: Option<&Nvml>, bus: &str, index: usize) -> Option<Result<Told, String>> {
    let mut card = nvml?.card(bus, index).ok()?;
    Some(card.read().map_err(|e| e.to_string()))
}

fn replays(told: &Option<Result<Told, String>>) -> Option<u64> {
    told.as_ref()?.as_ref().ok()?.replays
}

/// Every two cards.
fn pairs(cards: &[Card], jit: &Arc<Jit>, nvml: Option<&Nvml>) -> Vec<Pair> {
    let two = |i: usize| (0..i).map(move |j| [j, i]);
    let all: Vec<[usize; 2]> = (0..cards.len()).flat_map(two).collect();
    let places: Vec<[String; 2]> = all.iter().map(|two| two.map(|card| cards[card].bus.clone())).collect();
    let links = nvml.map_or_else(|| vec![Link::Unknown; all.len()], |nvml| nvml.links(&places));
    let mut progress = (!all.is_empty()).then(|| Progress::new("pairs of cards", all.len()));
    let mut found = vec![];
    for (cards, link) in all.into_iter().zip(links) {
        let [direct, host] = [driver::Way::Best, driver::Way::Host].map(|way| tried(cards, jit, way));
        found.push(Pair { cards, link, direct, host });
        if let Some(progress) = &mut progress {
            progress.at(found.len());
        }
    }
    found
}

/// How fast two cards sum by this way.
fn tried(cards: [usize; 2], jit: &Arc<Jit>, way: driver::Way) -> Result<Way, String> {
    let text = |e: shardwright_cuda::Error| e.to_string();
    let gpus = Gpu::group(&cards, jit, way).map_err(text)?;
    if let (driver::Way::Best, Some(why)) = (way, gpus[0].apart()) {
        return Err(why.to_owned());
    }
    let mut gpus: Vec<Box<dyn Device>> =
        gpus.into_iter().map(|gpu| Box::new(gpu) as Box<dyn Device>).collect();
    let small = peers::measure(&mut gpus, SMALL, MANY).map_err(text)?;
    let large = peers::measure(&mut gpus, LARGE, FEW).map_err(text)?;
    let rate = large.bytes as f64 / large.time.as_secs_f64().max(1e-9);
    Ok(Way { small: small.time.as_secs_f64() * 1e6, large: rate })
}

fn card_json(card: &Card) -> Json {
    let at = &card.at;
    let told = card.told.as_ref().and_then(|told| told.as_ref().ok()).map(|told| {
        json!({
            "watts": told.power, "usual_watts": told.power_usual, "clock_hz": told.clock, "memory_clock_hz": told.memory_clock,
            "celsius": told.temperature, "pcie_replays": told.replays, "memory_errors": told.errors, "slowed": told.slowed,
            "held": told.held, "worn": told.worn,
        })
    });
    json!({
        "index": card.index, "name": card.name, "bus": card.bus, "memory": card.memory, "free": card.free,
        "broken": card.broken, "lanes": at.lanes, "speed": at.speed, "window": at.window, "node": at.node, "redirects": at.redirects, "told": told,
    })
}

fn pair_json(pair: &Pair) -> Json {
    let way = |way: &Result<Way, String>| match way {
        Ok(way) => json!({ "us": way.small, "bytes_s": way.large }),
        Err(why) => json!({ "error": why }),
    };
    let link = known(pair.link);
    json!({ "cards": pair.cards, "link": link, "direct": way(&pair.direct), "host": way(&pair.host) })
}

/// How cards are joined, if anybody knows.
fn known(link: Link) -> Option<String> {
    (link != Link::Unknown).then(|| link.to_string())
}

/// All of it for people.
fn told(
    host: &Host,
    [driver, compiler, nccl]: [Option<&str>; 3],
    cards: &[Card],
    pairs: &[Pair],
    findings: &[Finding],
) -> String {
    let mut table = Table::pairs();
    table.pair("cores", format!("{}, on {} NUMA nodes", host.cores, host.nodes));
    table.pair("memory", host.memory.map_or("?".into(), bytes));
    table.pair("driver", driver.unwrap_or("none"));
    table.pair("kernel compiler", compiler.unwrap_or("none"));
    table.pair("library of sums", nccl.unwrap_or("none"));
    let tables = [(true, table), (!cards.is_empty(), of_cards(cards)), (!pairs.is_empty(), of_pairs(pairs))];
    let mut text: String = tables.iter().filter(|t| t.0).map(|(_, table)| format!("{table}\n")).collect();
    for finding in findings {
        let cost = finding.cost.map_or(String::new(), |us| format!(" (about {us:.0} us a step of GLM-5)"));
        text += &format!("- {}{cost}\n    {}\n", finding.what, finding.fix);
    }
    if findings.is_empty() {
        text += "Nothing was found that slows models down.\n";
    }
    text
}

fn of_cards(cards: &[Card]) -> Table {
    let mut table =
        Table::new(2, ["GPU", "bus", "memory", "free", "lanes", "speed", "window", "NUMA", "resent"]);
    let or = |text: Option<String>| text.unwrap_or_else(|| "?".into());
    for card in cards {
        let at = &card.at;
        table.row([
            format!("{} {}", card.index, card.name),
            card.bus.clone(),
            bytes(card.memory),
            or(card.free.map(bytes)),
            or(at.lanes.map(|[now, most]| format!("{now} of {most}"))),
            or(at.speed.clone()),
            or(at.window.map(bytes)),
            or(at.node.map(|n| n.to_string())),
            or(replays(&card.told).map(|n| n.to_string())),
        ]);
    }
    table
}

fn of_pairs(pairs: &[Pair]) -> Table {
    let names =
        ["GPUs", "link", "12 KB, us", "8 MB, GB/s", "us a step", "by the host: 12 KB, us", "8 MB, GB/s"];
    let mut table = Table::new(2, names);
    let cells = |way: &Result<Way, String>| match way {
        Ok(way) => [way.small, way.large / 1e9].map(|n| format!("{n:.1}")),
        Err(_) => ["-".into(), "-".into()],
    };
    for Pair { cards: [a, b], link, direct, host } in pairs {
        let best = direct.as_ref().or(host.as_ref()).ok();
        let step = best.map_or("-".into(), |way| format!("{:.0}", way.small * SUMS));
        let joined = vec![format!("{a} and {b}"), known(*link).unwrap_or_else(|| "?".into())];
        let row = [joined, cells(direct).into(), vec![step], cells(host).into()];
        table.row(row.into_iter().flatten());
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_cards_pairs_and_findings() {
        let at = Place { lanes: Some([8, 16]), node: Some(1), ..Place::default() };
        let card = Card {
            name: "NVIDIA H200".into(),
            bus: "0000:17:00.0".into(),
            memory: 2 << 30,
            at,
            ..Card::default()
        };
        let way = Way { small: 1.75, large: 3e11 };
        let host = Err("asked for nothing".into());
        let pair = Pair { cards: [0, 1], link: Link::Node, direct: Ok(way), host };
        let blind = Pair { cards: [0, 2], link: Link::Unknown, ..pair.clone() };
        assert_eq!(pair_json(&pair)["link"], "one NUMA node, across host bridges");
        assert!(pair_json(&blind)["link"].is_null());
        let finding = Finding { what: "too slow".into(), cost: Some(273.4), fix: "be faster".into() };
        let text = told(&Host::default(), [None, None, None], &[card], &[pair, blind], &[finding]);
        let joined = ["0 and 1  one NUMA node, across host bridges  ", "0 and 2  ?  "];
        let others = ["0 NVIDIA H200", "8 of 16", "1.8", "300.0", "273", "too slow", "be faster"];
        for part in joined.into_iter().chain(others) {
            assert!(text.contains(part), "{part}: {text}");
        }
        let nothing =
            told(&Host::default(), [Some("CUDA 13.0"), Some("NVRTC"), Some("NCCL 2.28.3")], &[], &[], &[]);
        assert!(nothing.contains("NCCL 2.28.3"), "{nothing}");
        assert!(nothing.contains("Nothing was found") && !nothing.contains("GPU"), "{nothing}");
    }
}
