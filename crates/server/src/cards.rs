//! Numbers of the cards that run a model.

use crate::metrics::{Names, Number};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use shardwright_engine::stats::Card;
use std::sync::atomic::Ordering;

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Gpu {
    gpu: usize,
}

type Gauges = Family<Gpu, Number>;
type Counters = Family<Gpu, Counter>;

/// Each a number a card; one that a card does not tell is not there.
#[derive(Debug)]
pub(crate) struct Cards {
    power: [Gauges; 2],
    clock: [Gauges; 2],
    memory_clock: [Gauges; 2],
    temperature: Gauges,
    slowed: Gauges,
    worn: Gauges,
    replays: Counters,
    errors: [Counters; 2],
    xids: Counters,
}

impl Cards {
    pub(crate) fn new(n: &mut Names<'_>) -> Cards {
        let mut gauge = |name: &str, help: &str| n.add(name, help, Gauges::default());
        Cards {
            power: [
                gauge("gpu_power_watts", "What a GPU takes"),
                gauge("gpu_power_limit_watts", "What a GPU may take"),
            ],
            clock: [
                gauge("gpu_clock_hertz", "Clock of a GPU's multiprocessors"),
                gauge("gpu_clock_max_hertz", "The highest clock of a GPU's multiprocessors"),
            ],
            memory_clock: [
                gauge("gpu_memory_clock_hertz", "Clock of a GPU's memory"),
                gauge("gpu_memory_clock_max_hertz", "The highest clock of a GPU's memory"),
            ],
            temperature: gauge("gpu_temperature_celsius", "Temperature of a GPU"),
            slowed: gauge("gpu_slowed", "1 while heat or power hold a GPU's clock down"),
            worn: gauge(
                "gpu_memory_worn",
                "1 if broken rows of a GPU's memory wait for a reset or can't be put aside",
            ),
            replays: n.add(
                "gpu_pcie_replays",
                "Packets that a GPU's link has sent once more",
                Counters::default(),
            ),
            errors: [
                n.add("gpu_memory_errors_corrected", "Errors of a GPU's memory", Counters::default()),
                n.add("gpu_memory_errors_uncorrected", "Errors of a GPU's memory", Counters::default()),
            ],
            xids: n.add("gpu_xid_errors", "Critical errors of a GPU since the start", Counters::default()),
        }
    }

    pub(crate) fn set(&self, card: &Card) {
        let gpu = Gpu { gpu: card.index };
        let gauge = |family: &Gauges, value: Option<f64>| {
            if let Some(value) = value {
                family.get_or_create(&gpu).set(value);
            }
        };
        let counter = |family: &Counters, value: Option<u64>| {
            if let Some(value) = value {
                family.get_or_create(&gpu).inner().store(value, Ordering::Relaxed);
            }
        };
        let pairs =
            [(&self.power, card.power), (&self.clock, card.clock), (&self.memory_clock, card.memory_clock)];
        for (families, values) in pairs {
            families.iter().zip(values).for_each(|(family, value)| gauge(family, value));
        }
        gauge(&self.temperature, card.temperature);
        gauge(&self.slowed, card.slowed.map(|yes| f64::from(u8::from(yes))));
        gauge(&self.worn, card.worn.map(|yes| f64::from(u8::from(yes))));
        counter(&self.replays, card.replays);
        self.errors.iter().zip(card.errors).for_each(|(family, value)| counter(family, value));
        counter(&self.xids, Some(card.xids.0));
    }
}

#[cfg(test)]
mod tests {
    use crate::metrics::Metrics;
    use shardwright_engine::stats::{Card, Stats};

    #[test]
    fn cards_are_told_apart_and_silence_is_no_number() {
        let metrics = Metrics::new("shardwright", "demo");
        let card = |index| Card { index, power: [Some(612.5), None], xids: (2, Some(79)), ..Card::default() };
        let stats =
            Stats { cards: [card(0), Card { slowed: Some(true), ..card(3) }].into(), ..Stats::default() };
        let text = metrics.text(&[stats]);
        for line in [
            r#"shardwright:gpu_power_watts{model_name="demo",gpu="0"} 612.5"#,
            r#"shardwright:gpu_slowed{model_name="demo",gpu="3"} 1.0"#,
            r#"shardwright:gpu_xid_errors_total{model_name="demo",gpu="3"} 2"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        for absent in ["gpu_power_limit_watts{", "gpu_slowed{model_name=\"demo\",gpu=\"0\"}"] {
            assert!(!text.contains(absent), "{absent} is in\n{text}");
        }
    }
}
