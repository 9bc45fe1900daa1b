//! Will it fit? What a run takes of the host's memory, against what there is.

use crate::table::bytes;
use anyhow::bail;
use shardwright_gguf::Reader;
use shardwright_model::budget::{Demand, Held};
use shardwright_model::op::Description;
use shardwright_model::plan::RankPlan;
use std::collections::BTreeSet;

/// Bytes that a run takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    weights: u64,
    cache: u64,
    arena: u64,
}

impl std::fmt::Display for Needs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [weights, cache, arena] = [self.weights, self.cache, self.arena].map(bytes);
        write!(f, "{weights} of weights, {cache} of cache and {arena} of working memory")
    }
}

impl Needs {
    /// All ranks together. The weights are mapped: however many ranks read them, they are in memory once.
    pub(crate) fn of(reader: &Reader, part: &Description, plans: &[RankPlan], demand: &Demand) -> Needs {
        let names: BTreeSet<&str> = part.weights().map(|w| w.name.as_str()).collect();
        let tensors = names.iter().filter_map(|name| reader.tensor(name));
        let held = plans.iter().map(|p| Held::of(p, None, demand.element).working(demand));
        let add = |[a, b]: [u64; 2], [c, d]: [u64; 2]| [a.saturating_add(c), b.saturating_add(d)];
        let [cache, arena] = held.fold([0, 0], add);
        Needs { weights: tensors.map(|t| t.bytes).sum(), cache, arena }
    }

    /// Of so many replicas, which share the weights.
    pub(crate) fn times(self, replicas: usize) -> Needs {
        let [cache, arena] = [self.cache, self.arena].map(|bytes| bytes.saturating_mul(replicas as u64));
        Needs { cache, arena, ..self }
    }

    /// # Errors
    /// There is not so much.
    pub(crate) fn check_available(&self) -> anyhow::Result<()> {
        self.check(available_memory())
    }

    fn check(&self, available: Option<u64>) -> anyhow::Result<()> {
        let total = self.weights.saturating_add(self.cache).saturating_add(self.arena);
        match available {
            Some(available) if total > available => bail!(
                "not enough memory: {} needed ({self}), {} available; \
                 ask for a shorter context with `-c`, or go on anyway with `--no-memory-check`",
                bytes(total),
                bytes(available)
            ),
            _ => Ok(()),
        }
    }
}

/// What the system can give without swapping; None where it does not say.
fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_memory_is_refused_with_all_numbers() {
        let g = 1_000_000_000;
        let needs = Needs { weights: 3 * g, cache: 2 * g, arena: g };
        assert!(needs.check(Some(6 * g)).is_ok());
        assert!(needs.check(None).is_ok());
        let text = needs.check(Some(6 * g - 1)).unwrap_err().to_string();
        for number in ["6.00 GB needed", "3.00 GB of weights", "2.00 GB of cache", "available"] {
            assert!(text.contains(number), "{text}");
        }
        assert!(Needs { weights: u64::MAX, cache: 1, arena: 0 }.check(Some(g)).is_err());
    }
}
