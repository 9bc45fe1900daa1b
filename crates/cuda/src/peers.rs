//! The way between devices, tried: sums over them that must be right, and how long one takes.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::device::{Device, Kernel, Launch, Recording};
use crate::exchange::Exchange;
use crate::group::first;
use crate::unit::Unit;
use crate::{Error, Result};

/// Elements of a packet: sums of f32.
const PACKET: usize = 4;
const BLOCK: u32 = 128;
const BLOCKS: u32 = 48;
/// How often everything is tried.
const TIMES: usize = 9;
/// As a step of a large model waits at its start.
const PATIENCE: Duration = Duration::from_secs(2);

/// A sum over all devices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// Bytes that each sends to each.
    pub bytes: usize,
    /// The median of how long one took, of `sums` in a recording.
    pub time: Duration,
}

/// Sums numbers of so many bytes over the devices, again and again, `sums` times (an even number) in each recording.
///
/// # Errors
/// If a device does not get what another one sends, or gets it wrong.
pub fn measure(devices: &mut [Box<dyn Device>], bytes: usize, sums: usize) -> Result<Figure> {
    let ranks = devices.len();
    let made =
        devices.iter_mut().enumerate().map(|(rank, device)| End::new(&mut **device, [rank, ranks], bytes));
    let ends = made.collect::<Result<Vec<End>>>()?;
    let inboxes: Vec<u64> = ends.iter().map(|end| end.exchange.inbox(0)).collect();
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
    failed.map_or(Ok(Figure { bytes, time: longest }), Err)
}

/// A device's part.
struct End {
    rank: usize,
    ranks: usize,
    exchange: Exchange,
    kernel: Kernel,
    elements: usize,
    step: u64,
    from: u64,
    to: u64,
    op: u64,
}

/// What rank `rank` adds at element `k`.
fn summand(rank: usize, k: usize) -> f32 {
    (1 + rank) as f32 * 0.125 + (k % 8191) as f32
}

/// The kernel by which so many ranks sum so many bytes.
pub fn unit(ranks: usize, bytes: usize) -> Unit {
    let elements = (bytes / 4).next_multiple_of(PACKET);
    let unit = Unit::new("exchange").int("MAX_ROWS", 1).int("WIDTH", elements);
    let unit = unit.int("ADDENDS", 1).int("RECEIVE", 1).int("LEGS", 1).int("BLOCKS", BLOCKS);
    unit.int("BLOCK", BLOCK).int("RANKS", ranks).int("BF16", 0).int("CAPACITY", elements / PACKET)
}

impl End {
    fn new(device: &mut dyn Device, [rank, ranks]: [usize; 2], bytes: usize) -> Result<End> {
        let elements = (bytes / 4).next_multiple_of(PACKET);
        let packets = elements / PACKET;
        let kernel = device.load(&[unit(ranks, bytes)])?[0];
        let exchange = Exchange::new(device, [rank, ranks], packets)?;
        let [step, from, to, op] = [32, 4 * elements, 4 * elements, 4];
        let (step, from) = (device.alloc(step)?, device.alloc(from)?);
        let (to, op) = (device.alloc(to)?, device.alloc(op)?);
        device.upload(step, bytemuck::cast_slice(&[1u32; 8]))?;
        let numbers: Vec<f32> = (0..elements).map(|k| summand(rank, k)).collect();
        device.upload(from, bytemuck::cast_slice(&numbers))?;
        Ok(End { rank, ranks, exchange, kernel, elements, step, from, to, op })
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
                let path = format!("a sum of {} bytes", 4 * self.elements);
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
        let launch = |n: usize| {
            let [peers, inbox] = [self.exchange.peers(n % 2), self.exchange.inbox(n % 2)];
            let args = vec![self.step, self.from, 0, self.to, peers, inbox, self.exchange.wait(), self.op];
            Launch { kernel: self.kernel, grid: [BLOCKS, 1, 1], block: BLOCK, shared: 0, args }
        };
        device.record(&(0..sums.next_multiple_of(2)).map(launch).collect::<Vec<_>>())
    }

    fn check(&self, device: &mut dyn Device) -> Result<()> {
        let mut got = vec![0f32; self.elements];
        device.download(self.to, bytemuck::cast_slice_mut(&mut got))?;
        let want = |k: usize| (1..self.ranks).fold(summand(0, k), |sum, rank| sum + summand(rank, k));
        match (0..self.elements).find(|k| got[*k].to_bits() != want(*k).to_bits()) {
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
