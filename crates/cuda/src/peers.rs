//! The way between devices, tried: sums over them that must be right, and how long one takes.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use shardwright_model::exec::Wire;

use crate::device::{Device, Kernel, Launch, Recording};
use crate::exchange::Exchange;
use crate::group::first;
use crate::ops::sum::{self, packet};
use crate::unit::Unit;
use crate::{Error, Result};

/// How often everything is tried.
const TIMES: usize = 9;
/// As a step of a large model waits at its start.
const PATIENCE: Duration = Duration::from_secs(2);

/// A sum over all devices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// Bytes that each sends to each.
    pub bytes: usize,
    /// The median of how long one took, of `sums` in a recording, on the slowest device.
    pub time: Duration,
}

/// Rows that are summed over all devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// How many.
    pub rows: usize,
    /// Elements of each.
    pub width: usize,
    /// As what they travel.
    pub wire: Wire,
    /// One, or two: each device then sums a share for all.
    pub legs: usize,
}

impl Sum {
    /// So many bytes, as they are.
    fn of(bytes: usize) -> Sum {
        let width = (bytes / 4).next_multiple_of(packet(Wire::F32));
        Sum { rows: 1, width, wire: Wire::F32, legs: 1 }
    }

    pub(crate) fn elements(&self) -> usize {
        self.rows * self.width
    }

    pub(crate) fn packets(&self) -> usize {
        self.elements() / packet(self.wire)
    }

    /// The kernel by which so many ranks do it.
    pub(crate) fn unit(&self, ranks: usize) -> Unit {
        let unit = Unit::new("exchange").int("MAX_ROWS", self.rows).int("WIDTH", self.width);
        let unit = unit.int("ADDENDS", 1).int("RECEIVE", 1).int("LEGS", self.legs);
        let unit = unit.int("BLOCKS", sum::blocks(self.packets())).int("BLOCK", sum::BLOCK);
        let bf16 = u8::from(self.wire == Wire::Bf16);
        unit.int("RANKS", ranks).int("BF16", bf16).int("CAPACITY", self.packets())
    }

    /// What rank `rank` adds at element `k`; as bf16 it is the same.
    fn summand(&self, rank: usize, k: usize) -> f32 {
        let period = match self.wire {
            Wire::F32 => 8191,
            Wire::Bf16 => 13,
        };
        (1 + rank) as f32 * 0.125 + (k % period) as f32
    }
}

/// The kernel by which so many ranks sum so many bytes.
pub fn unit(ranks: usize, bytes: usize) -> Unit {
    Sum::of(bytes).unit(ranks)
}

/// Sums numbers of so many bytes over the devices, again and again, `sums` times (an even number) in each recording.
///
/// # Errors
/// If a device does not get what another one sends, or gets it wrong.
pub fn measure(devices: &mut [Box<dyn Device>], bytes: usize, sums: usize) -> Result<Figure> {
    let mut all: Vec<&mut dyn Device> = devices.iter_mut().map(|device| &mut **device as _).collect();
    Ok(Figure { bytes, time: time(&mut all, Sum::of(bytes), sums)? })
}

/// How long a sum takes on the slowest device, as the median of many in recordings of `sums` (an even number).
pub(crate) fn time(devices: &mut [&mut dyn Device], sum: Sum, sums: usize) -> Result<Duration> {
    let ranks = devices.len();
    let (ends, inboxes) = ends(devices, sum)?;
    let barrier = Barrier::new(ranks);
    let results: Vec<Result<Duration>> = thread::scope(|scope| {
        let mut threads = vec![];
        for (end, device) in ends.iter().zip(devices.iter_mut()) {
            let (inboxes, barrier) = (&inboxes, &barrier);
            threads.push(scope.spawn(move || end.run(&mut **device, inboxes, sums, barrier)));
        }
        let gone = || Error::Plan("a thread that sums over devices has panicked".into());
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err(gone()))).collect()
    });
    let (mut longest, mut failed) = (Duration::ZERO, None);
    for result in results {
        match result {
            Ok(time) => longest = longest.max(time),
            Err(e) => failed = Some(first(failed, e)),
        }
    }
    failed.map_or(Ok(longest), Err)
}

/// All devices' parts, and where their inboxes are.
pub(crate) fn ends(devices: &mut [&mut dyn Device], sum: Sum) -> Result<(Vec<End>, Vec<u64>)> {
    let ranks = devices.len();
    let made =
        devices.iter_mut().enumerate().map(|(rank, device)| End::new(&mut **device, [rank, ranks], sum));
    let ends = made.collect::<Result<Vec<End>>>()?;
    let inboxes = ends.iter().map(|end| end.exchange.inbox(0)).collect();
    Ok((ends, inboxes))
}

/// A device's part.
pub(crate) struct End {
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
    pub(crate) exchange: Exchange,
    kernel: Kernel,
    pub(crate) sum: Sum,
    /// How many rows there are.
    pub(crate) step: u64,
    pub(crate) from: u64,
    pub(crate) to: u64,
    op: u64,
}

impl End {
    pub(crate) fn new(device: &mut dyn Device, [rank, ranks]: [usize; 2], sum: Sum) -> Result<End> {
        let elements = sum.elements();
        let kernel = device.load(&[sum.unit(ranks)])?[0];
        let exchange = Exchange::new(device, [rank, ranks], sum.packets())?;
        let [step, from, to, op] = [32, 4 * elements, 4 * elements, 4];
        let (step, from) = (device.alloc(step)?, device.alloc(from)?);
        let (to, op) = (device.alloc(to)?, device.alloc(op)?);
        Ok(End { rank, ranks, exchange, kernel, sum, step, from, to, op })
    }

    fn run(
        &self,
        device: &mut dyn Device,
        inboxes: &[u64],
        sums: usize,
        barrier: &Barrier,
    ) -> Result<Duration> {
        let ready = self.ready(device, inboxes, sums);
        // all come here, whatever has happened: nobody waits for one who has gone
        barrier.wait();
        let recording = ready?;
        let mut times = vec![];
        // the first is for getting warm
        for _ in 0..=TIMES {
            let begun = Instant::now();
            device.replay(recording)?;
            device.download(self.to, &mut [0; 4])?;
            times.push(begun.elapsed() / sums.max(1) as u32);
            if let Some(late) = self.exchange.late(device) {
                let path = format!("a sum of {} numbers", self.sum.elements());
                return Err(Error::Late { op: 0, rank: self.rank, path, missing: late.ranks });
            }
        }
        self.check(device)?;
        times.remove(0);
        times.sort_unstable();
        Ok(times[times.len() / 2])
    }

    fn ready(&self, device: &mut dyn Device, inboxes: &[u64], sums: usize) -> Result<Recording> {
        self.exchange.meet(device, inboxes)?;
        self.exchange.patience(device, PATIENCE)?;
        let sum = &self.sum;
        device.upload(self.step, bytemuck::cast_slice(&[sum.rows as u32; 8]))?;
        let numbers: Vec<f32> = (0..sum.elements()).map(|k| sum.summand(self.rank, k)).collect();
        device.upload(self.from, bytemuck::cast_slice(&numbers))?;
        device.record(&(0..sums.next_multiple_of(2)).map(|n| self.launch(n)).collect::<Vec<_>>())
    }

    /// Sum number `n`: those that follow each other take turns with the two slots.
    pub(crate) fn launch(&self, n: usize) -> Launch {
        let [peers, inbox] = [self.exchange.peers(n % 2), self.exchange.inbox(n % 2)];
        let args = vec![self.step, self.from, 0, self.to, peers, inbox, self.exchange.wait(), self.op];
        let grid = [sum::blocks(self.sum.packets()) as u32, 1, 1];
        Launch { kernel: self.kernel, grid, block: sum::BLOCK, shared: 0, args }
    }

    fn check(&self, device: &mut dyn Device) -> Result<()> {
        let (sum, elements) = (&self.sum, self.sum.elements());
        let mut got = vec![0f32; elements];
        device.download(self.to, bytemuck::cast_slice_mut(&mut got))?;
        let want = |k: usize| (1..self.ranks).fold(sum.summand(0, k), |all, rank| all + sum.summand(rank, k));
        match (0..elements).find(|k| got[*k].to_bits() != want(*k).to_bits()) {
            Some(k) => {
                let why = format!("element {k} of a sum is {} instead of {}", got[k], want(k));
                Err(Error::Gone {
                    rank: self.rank,
                    why: format!("its card gets wrong bytes from the others: {why}"),
                })
            }
            None => Ok(()),
        }
    }
}
