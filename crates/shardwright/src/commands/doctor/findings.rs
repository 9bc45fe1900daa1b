//! What of a box slows a model down, or could, and what would mend it.

use super::host::{Host, Place};
use serde_json::{Value as Json, json};
use shardwright_cuda::nvml::Link;
use shardwright_model::card::Card as Told;

/// Sums over ranks in a step of GLM-5: two a layer.
pub(super) const SUMS: f64 = 156.0;

/// A card, where it is, and how much of it is free.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Card {
    pub(super) index: usize,
    pub(super) name: String,
    pub(super) bus: String,
    pub(super) memory: u64,
    pub(super) free: Option<u64>,
    /// Why it can't be used.
    pub(super) broken: Option<String>,
    /// Why it has no kernels.
    pub(super) kernels: Option<String>,
    /// What it tells of itself, or that it is lost.
    pub(super) told: Option<Result<Told, String>>,
    /// Packets that it sent once more while cards were tried.
    pub(super) replayed: u64,
    pub(super) at: Place,
}

/// Two cards and the ways between them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pair {
    pub(super) cards: [usize; 2],
    /// How they are joined.
    pub(super) link: Link,
    /// Each card's memory, and the host's.
    pub(super) direct: Result<Way, String>,
    pub(super) host: Result<Way, String>,
}

/// How fast it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Way {
    /// Microseconds of a small sum.
    pub(super) small: f64,
    /// Bytes a second each way in a large one.
    pub(super) large: f64,
}

/// Something worth knowing.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Finding {
    pub(super) what: String,
    /// Microseconds of a step of GLM-5, where they were measured.
    pub(super) cost: Option<f64>,
    /// What would mend it.
    pub(super) fix: String,
}

impl Finding {
    fn new(what: String, fix: impl Into<String>) -> Finding {
        Finding { what, cost: None, fix: fix.into() }
    }

    pub(super) fn json(&self) -> Json {
        json!({ "what": self.what, "us_a_step": self.cost, "fix": self.fix })
    }
}

/// All of a box; `gpus` says what is missing, if it is.
pub(super) fn all(host: &Host, gpus: &Result<Vec<Card>, String>, pairs: &[Pair]) -> Vec<Finding> {
    let cards = match gpus {
        Ok(cards) => cards,
        Err(why) => {
            let fix = "install NVIDIA's driver; without a GPU everything runs on the CPU";
            return vec![Finding::new(why.clone(), fix)];
        }
    };
    let several = cards.len() > 1;
    let mut all: Vec<Finding> = vec![];
    all.extend(cards.iter().flat_map(|card| of_card(card, several)));
    all.extend(cards.iter().filter_map(|card| replays(card, host.uptime)));
    all.extend(of_host(host, cards));
    all.extend(pairs.iter().flat_map(of_pair));
    all
}

fn of_card(card: &Card, several: bool) -> Vec<Finding> {
    let (i, at) = (card.index, &card.at);
    let broken = card.broken.as_ref().map(|why| {
        Finding::new(
            format!("GPU {i} can't be used: {why}"),
            "nvidia-smi tells who uses it, and in which mode it is",
        )
    });
    let kernels = card
        .kernels
        .as_ref()
        .map(|why| Finding::new(format!("GPU {i} has no kernels: {why}"), "pip install nvidia-cuda-nvrtc"));
    let mut all: Vec<Finding> = broken.into_iter().chain(kernels).collect();
    all.extend(card.told.iter().flat_map(|told| of_itself([&i.to_string(), &card.bus], told)));
    if let Some([now, most]) = at.lanes.filter(|[now, most]| now < most) {
        let fix = "seat the card anew or take another slot; look for bifurcation in the BIOS";
        all.push(Finding::new(format!("GPU {i} has {now} of its {most} lanes"), fix));
    }
    if let Some(window) = at.window.filter(|window| several && *window < card.memory / 2) {
        let what = format!("others reach only {} MiB of GPU {i}'s memory at a time", window >> 20);
        all.push(Finding::new(what, "turn on Resizable BAR and Above 4G Decoding in the BIOS"));
    }
    if several && !at.redirects.is_empty() {
        let bridges = at.redirects.join(", ");
        let what =
            format!("what GPU {i} writes to others goes up to the processor first, by bridge {bridges}");
        let fix = at.redirects.iter().map(|b| format!("setpci -s {b} ECAP_ACS+6.w=0000")).collect::<Vec<_>>();
        all.push(Finding::new(what, fix.join("; ")));
    }
    all
}

/// What a card tells that slows it down, or will. It has a number here, and a place by which `nvidia-smi` knows it whatever order the
/// cards are in.
fn of_itself([i, bus]: [&str; 2], told: &Result<Told, String>) -> Vec<Finding> {
    let told = match told {
        Ok(told) => told,
        Err(why) => {
            let fix = format!("nvidia-smi --gpu-reset -i {bus}, or a restart; `dmesg` tells why");
            return vec![Finding::new(why.clone(), fix)];
        }
    };
    let mut all = vec![];
    let mut find = |what: String, fix: &str| all.push(Finding::new(what, fix.replace("GPU", bus)));
    if told.slowed == Some(true) {
        find(
            format!("heat or power hold the clock of GPU {i} down"),
            "nvidia-smi -q -d PERFORMANCE -i GPU tells which; look for cooling and cables",
        );
    }
    if told.held == Some(true) {
        find(format!("the clock of GPU {i} is set lower than it could be"), "nvidia-smi -i GPU -rac -rgc");
    }
    if let ([_, Some(limit)], Some(usual)) = (told.power, told.power_usual)
        && limit < 0.95 * usual
    {
        let fix = format!("nvidia-smi -i GPU -pl {usual:.0}");
        find(format!("GPU {i} may take {limit:.0} W, {usual:.0} are usual"), &fix);
    }
    if told.errors[1].is_some_and(|n| n > 0) || told.worn == Some(true) {
        find(
            format!("the memory of GPU {i} has errors that can't be corrected"),
            "nvidia-smi --gpu-reset -i GPU; if they come back, replace the card",
        );
    }
    all
}

/// Packets sent once more, where they are many: a sound link has a few in months. The card counts from when its driver was loaded, which is
/// later than the host's start, so the true rate is no lower.
fn replays(card: &Card, uptime: Option<u64>) -> Option<Finding> {
    let told = card.told.as_ref()?.as_ref().ok()?;
    let (count, hours) = (told.replays?, uptime.map(|seconds| (seconds as f64 / 3600.0).max(1.0)));
    let i = card.index;
    let what = match hours {
        _ if card.replayed > 0 => {
            format!("the link of GPU {i} has just sent {} packets once more, {count} in all", card.replayed)
        }
        Some(hours) if count as f64 > hours => {
            format!("the link of GPU {i} has sent {count} packets once more within {hours:.0} h")
        }
        _ => return None,
    };
    Some(Finding::new(what, "seat card and riser anew; one PCIe generation less in the BIOS"))
}

fn of_host(host: &Host, cards: &[Card]) -> Vec<Finding> {
    let several = cards.len() > 1;
    let mut all = vec![];
    if host.iommu && several {
        let what = "an IOMMU translates what cards write to each other".to_owned();
        all.push(Finding::new(what, "add iommu=pt to the kernel's command line, or turn it off in the BIOS"));
    }
    if let Some(governor) = host.governor.as_ref().filter(|g| *g != "performance") {
        let what = format!("the processors' clock is chosen by `{governor}`, so steps may start late");
        all.push(Finding::new(what, "cpupower frequency-set -g performance"));
    }
    let mut nodes: Vec<i32> = cards.iter().filter_map(|c| c.at.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    if let [_, _, ..] = nodes[..] {
        let what = format!("the cards are spread over {} NUMA nodes", nodes.len());
        let fix =
            format!("--replicas {0} --tp {1}: no sum crosses them", nodes.len(), cards.len() / nodes.len());
        all.push(Finding::new(what, fix));
    }
    all
}

fn of_pair(pair: &Pair) -> Option<Finding> {
    let [a, b] = pair.cards;
    let between = format!("GPU {a} and GPU {b}");
    match (&pair.direct, &pair.host) {
        (Ok(_), _) => None,
        (Err(why), Ok(host)) => Some(Finding {
            what: format!("{between} sum through the host's memory: {why}"),
            cost: Some(SUMS * host.small),
            fix: "let the cards reach each other: BIOS (Resizable BAR, ACS, IOMMU) and driver decide".into(),
        }),
        (Err(why), Err(other)) => Some(Finding::new(
            format!("{between} can't work together: {why}; through the host's memory: {other}"),
            "use one of them: CUDA_VISIBLE_DEVICES",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(index: usize, at: Place) -> Card {
        Card { index, memory: 96 << 30, at, ..Card::default() }
    }

    fn found(host: &Host, cards: Vec<Card>, pairs: &[Pair]) -> Vec<Finding> {
        all(host, &Ok(cards), pairs)
    }

    fn says(all: &[Finding], what: &str, fix: &str) {
        let fits = all.iter().any(|f| f.what.contains(what) && f.fix.contains(fix));
        assert!(fits, "{what}, {fix}: {all:?}");
    }

    #[test]
    fn a_good_box_has_nothing() {
        let host = Host { governor: Some("performance".into()), nodes: 1, ..Host::default() };
        let at = Place { lanes: Some([16, 16]), window: Some(128 << 30), node: Some(0), ..Place::default() };
        let way = Way { small: 2.0, large: 4e11 };
        let pair = Pair { cards: [0, 1], link: Link::Bridge, direct: Ok(way), host: Err("not asked".into()) };
        assert_eq!(found(&host, vec![card(0, at.clone()), card(1, at)], &[pair]), []);
        // one card meets no other
        let alone = Host { iommu: true, ..host };
        let at = Place { window: Some(1), redirects: vec!["a".into()], ..Place::default() };
        assert_eq!(found(&alone, vec![card(0, at)], &[]), []);
    }

    #[test]
    fn what_is_wrong_is_told_with_what_mends_it() {
        let host = Host { governor: Some("powersave".into()), nodes: 2, iommu: true, ..Host::default() };
        let left = Place { lanes: Some([8, 16]), node: Some(0), ..Place::default() };
        let redirects = vec!["0000:16:01.0".into()];
        let right = Place { window: Some(256 << 20), node: Some(1), redirects, ..Place::default() };
        let pair = |direct, host| Pair { cards: [0, 1], link: Link::Bridge, direct, host };
        let slow = pair(Err("GPU 0 does not reach GPU 1".into()), Ok(Way { small: 5.0, large: 1e10 }));
        let none = pair(Err("silence".into()), Err("wrong bytes".into()));
        let all = found(&host, vec![card(0, left), card(1, right)], &[slow, none]);
        says(&all, "GPU 0 has 8 of its 16 lanes", "slot");
        says(&all, "256 MiB of GPU 1's memory", "Resizable BAR");
        says(&all, "bridge 0000:16:01.0", "setpci -s 0000:16:01.0 ECAP_ACS+6.w=0000");
        says(&all, "IOMMU", "iommu=pt");
        says(&all, "`powersave`", "cpupower");
        says(&all, "2 NUMA nodes", "--replicas 2 --tp 1");
        says(&all, "through the host's memory: GPU 0 does not reach", "BIOS");
        says(&all, "silence; through the host's memory: wrong bytes", "CUDA_VISIBLE_DEVICES");
        assert_eq!(all.iter().filter_map(|f| f.cost).collect::<Vec<_>>(), [780.0]);
        assert_eq!(all.len(), 8);
    }

    #[test]
    fn what_a_card_tells_of_itself_is_judged() {
        let bus = || "0000:01:00.0".to_owned();
        let found = |told| {
            found(&Host::default(), vec![Card { told: Some(told), bus: bus(), ..Card::default() }], &[])
        };
        let well = Told { power: [Some(300.0), Some(700.0)], power_usual: Some(700.0), ..Told::default() };
        let well = Told { slowed: Some(false), held: Some(false), replays: Some(0), ..well };
        assert_eq!(found(Ok(well.clone())), []);
        assert_eq!(found(Ok(Told::default())), []);
        let ill = Told {
            power: [None, Some(450.0)],
            slowed: Some(true),
            held: Some(true),
            replays: Some(12),
            errors: [Some(9), Some(1)],
            ..well
        };
        let all = found(Ok(ill));
        says(&all, "heat or power", "-i 0000:01:00.0");
        says(&all, "set lower", "-rgc");
        says(&all, "may take 450 W, 700 are usual", "-pl 700");
        says(&all, "can't be corrected", "reset");
        assert_eq!(all.len(), 4);
        says(&found(Err("GPU 0 is lost: gone".into())), "GPU 0 is lost", "--gpu-reset -i 0000:01:00.0");
    }

    #[test]
    fn packets_sent_once_more_count_where_they_are_many() {
        let check = |count, replayed, hours: Option<u64>, expected: Option<&str>| {
            let told = Some(Ok(Told { replays: count, ..Told::default() }));
            let card = Card { told, replayed, ..Card::default() };
            let host = Host { uptime: hours.map(|hours| hours * 3600), ..Host::default() };
            let all = found(&host, vec![card], &[]);
            match expected {
                Some(what) => says(&all, what, "riser"),
                None => assert_eq!(all, [], "{count:?} in {hours:?} hours"),
            }
        };
        check(None, 0, Some(1), None);
        check(Some(0), 0, Some(1), None);
        check(Some(12), 0, Some(2000), None);
        // while it starts a link may try again once
        check(Some(1), 0, Some(0), None);
        check(Some(12), 0, None, None);
        check(Some(12), 0, Some(0), Some("12 packets once more within 1 h"));
        check(Some(2001), 0, Some(2000), Some("2001 packets once more within 2000 h"));
        check(Some(12), 3, Some(2000), Some("just sent 3 packets once more, 12 in all"));
    }

    #[test]
    fn without_gpu_or_kernels_that_is_what_is_told() {
        let card = Card { broken: Some("exclusive mode".into()), ..Card::default() };
        says(&found(&Host::default(), vec![card], &[]), "GPU 0 can't be used: exclusive mode", "nvidia-smi");
        let none = all(&Host::default(), &Err("no driver".into()), &[]);
        says(&none, "no driver", "CPU");
        assert_eq!(none.len(), 1);
        let blind = Card { kernels: Some("nowhere".into()), ..Card::default() };
        says(&found(&Host::default(), vec![blind], &[]), "nowhere", "pip install nvidia-cuda-nvrtc");
    }
}
