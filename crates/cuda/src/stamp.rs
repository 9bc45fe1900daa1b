//! How long launches take in a recording: the device's clock, read between them by a kernel of one thread.

use crate::Result;
use crate::device::{Device, Launch, Recording};
use crate::unit::Unit;

/// Launches in groups, recorded with a stamp in front of each group and two behind the last.
#[derive(Debug)]
pub(crate) struct Stamped {
    recording: Recording,
    at: u64,
    /// Nanoseconds of each group, and of no group at all, in every replay.
    seen: Vec<Vec<u64>>,
}

/// Seconds of each group of launches, without the stamp's own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Times {
    pub(crate) groups: Vec<f64>,
    /// What the stamp takes, edge and all.
    pub(crate) stamp: f64,
}

impl Stamped {
    /// Its kernel.
    pub(crate) fn unit() -> Unit {
        Unit::new("stamp")
    }

    pub(crate) fn new(device: &mut dyn Device, groups: &[&[Launch]]) -> Result<Stamped> {
        let kernel = device.load(&[Stamped::unit()])?[0];
        let at = device.alloc(8 * (groups.len() + 2))?;
        let stamp =
            |n: usize| Launch { kernel, grid: [1, 1, 1], block: 1, shared: 0, args: vec![at + 8 * n as u64] };
        let mut all = vec![];
        for (n, group) in groups.iter().enumerate() {
            all.push(stamp(n));
            all.extend_from_slice(group);
        }
        all.extend([stamp(groups.len()), stamp(groups.len() + 1)]);
        Ok(Stamped { recording: device.record(&all)?, at, seen: vec![vec![]; groups.len() + 1] })
    }

    /// Runs all of it once more.
    pub(crate) fn replay(&mut self, device: &mut dyn Device) -> Result<()> {
        device.replay(self.recording)?;
        let mut stamps = vec![0u64; self.seen.len() + 1];
        device.download(self.at, bytemuck::cast_slice_mut(&mut stamps))?;
        for (seen, two) in self.seen.iter_mut().zip(stamps.windows(2)) {
            seen.push(two[1].saturating_sub(two[0]));
        }
        Ok(())
    }

    /// What the replays have shown.
    pub(crate) fn times(self) -> Times {
        let mut groups: Vec<f64> = self.seen.into_iter().map(middle).collect();
        let stamp = groups.pop().unwrap_or(0.0);
        groups.iter_mut().for_each(|time| *time = (*time - stamp).max(0.0));
        Times { groups, stamp }
    }
}

/// Seconds: the mean of the middle half. A median would be a whole number of ticks, and some cards' clocks tick each microsecond.
fn middle(mut nanoseconds: Vec<u64>) -> f64 {
    nanoseconds.sort_unstable();
    let quarter = nanoseconds.len() / 4;
    let half = &nanoseconds[quarter..nanoseconds.len() - quarter];
    half.iter().sum::<u64>() as f64 / half.len().max(1) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_odd_counts_for_nothing() {
        let check = |times: &[u64], expected: f64| assert_eq!(middle(times.to_vec()), expected, "{times:?}");
        check(&[], 0.0);
        check(&[1_000_000_000], 1.0);
        check(&[2_000_000_000, 1_000_000_000], 1.5);
        // the first replay, and one that somebody disturbed
        check(&[90_000_000_000, 1_000_000_000, 2_000_000_000, 0], 1.5);
    }
}
