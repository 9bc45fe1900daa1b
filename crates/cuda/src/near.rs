//! Which cores are near a card: on a box of several sockets memory and cards of the other one are farther away.

use std::path::Path;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Where the system tells of what is plugged in, by its place on the bus.
const BUS: &str = "/sys/bus/pci/devices";

/// Keeps this thread, and those that it will start, on the cores near the card at this place, as far as they are its to use. Where the
/// system tells of no node, or none of its cores is left, all stays as it is.
pub(crate) fn stay(place: &str) {
    let near = cores(Path::new(BUS), place);
    let (Some(near), Ok(mine)) = (near, sched_getaffinity(None)) else { return };
    let (mut set, mut any) = (CpuSet::new(), false);
    for core in near.into_iter().filter(|core| *core < CpuSet::MAX_CPU && mine.is_set(*core)) {
        set.set(core);
        any = true;
    }
    if any && let Err(e) = sched_setaffinity(None, &set) {
        log::debug!("the thread of the card at {place} may run anywhere: {e}");
    }
}

/// The cores of the node at which a card is plugged in.
fn cores(bus: &Path, place: &str) -> Option<Vec<usize>> {
    let line = |name: &str| std::fs::read_to_string(bus.join(place.to_lowercase()).join(name)).ok();
    // without nodes it is -1
    let node: i32 = line("numa_node")?.trim().parse().ok()?;
    listed(line("local_cpulist").filter(|_| node >= 0)?.trim())
}

/// Numbers as the system lists them: `0-3,8,10-11`.
fn listed(text: &str) -> Option<Vec<usize>> {
    let mut all = vec![];
    for run in text.split(',') {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        all.extend(first..=last.min(first.saturating_add(CpuSet::MAX_CPU)));
    }
    Some(all)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn cores_are_those_of_the_cards_node() {
        assert_eq!(listed("0-3,8,10-11"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(listed("7"), Some(vec![7]));
        for wrong in ["", "a-b", "1-", "-1"] {
            assert_eq!(listed(wrong), None, "{wrong}");
        }
        let bus = tempfile::tempdir().unwrap();
        let check = |node: &str, wanted: Option<Vec<usize>>| {
            let card = bus.path().join("0000:a7:00.0");
            std::fs::create_dir_all(&card).unwrap();
            std::fs::write(card.join("numa_node"), node).unwrap();
            std::fs::write(card.join("local_cpulist"), "2-3\n").unwrap();
            // the driver writes it in capitals
            assert_eq!(cores(bus.path(), "0000:A7:00.0"), wanted, "{node}");
        };
        check("1\n", Some(vec![2, 3]));
        check("-1\n", None);
        assert_eq!(cores(bus.path(), "0000:01:00.0"), None);
    }

    #[test]
    fn a_thread_stays_where_it_may_be() {
        let before = sched_getaffinity(None).unwrap();
        stay("0000:00:00.0 is no place");
        assert!(sched_getaffinity(None).unwrap() == before);
    }
}
