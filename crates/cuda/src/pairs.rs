//! Whether what devices send each other arrives, tried before anything is loaded: sums of every size that must be right to the bit, and
//! if one is not, or does not end, which pair of ranks is at fault.

use std::any::Any;
use std::fmt::{self, Display, Formatter};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use half::bf16;
use shardwright_model::exec::Wire;

use crate::device::{Abort, Device};
use crate::error::ranks;
use crate::group::first;
use crate::ops::sum::packet;
use crate::peers::{End, Sum, ends};
use crate::{Error, Result};

/// Rounds of each size, every one with numbers of its own.
const ROUNDS: usize = 3;

/// Bytes that are always tried, as far as they fit: a packet, and what is known to be where libraries change their ways.
const BYTES: [usize; 4] = [PACKET, 12 << 10, 512 << 10, 16 << 20];

/// Bytes of a packet.
const PACKET: usize = 16;

/// Numbers come again after so many: a prime, so that what has gone to another place is seen.
const PERIOD: usize = 8191;

/// How much longer than a kernel's patience a device may take to say that it has ended.
const GRACE: Duration = Duration::from_secs(2);

/// What does not arrive as it was sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Wrong {
    /// Who sends, and who gets it, for each pair that was found.
    pub pairs: Vec<[usize; 2]>,
    /// In how many legs the sum went.
    pub legs: usize,
    /// Bytes that each sent to each.
    pub bytes: usize,
    /// An element, what it is and what it should be.
    pub element: (usize, f32, f32),
}

impl Display for Wrong {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let pairs: Vec<String> =
            self.pairs.iter().map(|[from, to]| format!("rank {from} sends to rank {to}")).collect();
        let (k, got, want) = self.element;
        let (legs, bytes) = (if self.legs == 1 { "one leg" } else { "two legs" }, self.bytes);
        write!(
            f,
            "what {} arrives wrong: in a sum in {legs} of {bytes} bytes element {k} is {got:e} instead of {want:e}",
            pairs.join(", and ")
        )
    }
}

/// Ranks that do not find each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the first sums over GPUs have not ended within {} s: {}", patience.as_secs_f32(), self.told())]
pub struct Absent {
    /// Who came.
    pub arrived: Vec<usize>,
    /// Who did not.
    pub absent: Vec<usize>,
    /// If all came: who sent, and who got nothing of it.
    pub pairs: Vec<[usize; 2]>,
    /// How long they waited.
    pub patience: Duration,
}

impl Absent {
    fn told(&self) -> String {
        let came = if self.arrived.is_empty() { "nobody".into() } else { ranks(&self.arrived) };
        if !self.absent.is_empty() {
            return format!("{came} arrived, {} did not", ranks(&self.absent));
        }
        let pair = |[from, to]: &[usize; 2]| format!("what rank {from} sends does not reach rank {to}");
        format!("{came} arrived, but {}", self.pairs.iter().map(pair).collect::<Vec<_>>().join(", and "))
    }
}

/// A sum that is tried.
#[derive(Clone, Copy, Debug)]
struct Trial {
    packets: usize,
    seed: usize,
    /// The only rank whose summand is not zero, if it is one.
    alone: Option<usize>,
}

impl Trial {
    /// What a rank adds, until it comes again, as it travels. Of numbers of few sizes some bits are lost in a sum, in rank order always
    /// the same. What one adds alone is so large that a flipped bit of the others' zeros is lost in it.
    fn summand(&self, rank: usize, wire: Wire) -> Vec<f32> {
        let least = if self.alone.is_some() { 222 } else { 120 };
        let zero = self.alone.is_some_and(|alone| alone != rank);
        let number = |k: usize| {
            let random = mixed((self.seed as u64) << 40 | (rank as u64) << 32 | k as u64);
            let [sign, exponent] = [random & 1, least + (random >> 1 & 15)].map(|part| part as u32);
            let number = f32::from_bits(sign << 31 | exponent << 23 | (random >> 41) as u32);
            match wire {
                _ if zero => 0.0,
                Wire::F32 => number,
                Wire::Bf16 => bf16::from_f32(number).to_f32(),
            }
        };
        (0..PERIOD.min(self.packets * packet(wire))).map(number).collect()
    }

    /// The sum in rank order, until it comes again.
    fn want(&self, ranks: usize, wire: Wire) -> Vec<f32> {
        let mut sum = self.summand(0, wire);
        for rank in 1..ranks {
            sum.iter_mut().zip(self.summand(rank, wire)).for_each(|(sum, x)| *sum += x);
        }
        sum
    }
}

/// A number that looks like chance (splitmix64).
fn mixed(n: u64) -> u64 {
    let n = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

/// The first element that a rank has wrong, in the first trial that has one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bad {
    pub(crate) trial: usize,
    pub(crate) element: usize,
    pub(crate) got: f32,
    pub(crate) want: f32,
}

/// What a rank says.
enum Event {
    /// It has done another sum.
    Went,
    Ended(Result<Vec<Bad>>),
}

/// Tries a way with these sizes, in packets, and those that are always tried, as far as they fit: what is wrong, if something is. Devices
/// are empty afterwards.
pub(crate) fn tried(
    devices: &mut [&mut dyn Device],
    sum: Sum,
    sizes: &[usize],
    patience: Duration,
    lost: &mut dyn FnMut(Error),
) -> Result<Option<Wrong>> {
    let (ranks, most) = (devices.len(), sum.packets());
    let mut sizes: Vec<usize> =
        BYTES.iter().map(|bytes| bytes / PACKET).chain(sizes.iter().copied()).collect();
    sizes.extend([most - 1, most]);
    sizes.retain(|packets| (1..=most).contains(packets) && taken(&sum, *packets, ranks) <= most);
    sizes.sort_unstable();
    sizes.dedup();
    let rounds = sizes.iter().flat_map(|packets| [*packets; ROUNDS]).enumerate();
    let trials: Vec<Trial> = rounds.map(|(seed, packets)| Trial { packets, seed, alone: None }).collect();
    let bad = all(devices, sum, &trials, patience, lost)?;
    let Some(worst) = bad.iter().flatten().min_by_key(|bad| (bad.trial, bad.element)).copied() else {
        return Ok(None);
    };
    let packets = trials[worst.trial].packets;
    // each twice: for both slots
    let alone = (0..2 * ranks).map(|n| Trial { packets, seed: trials.len() + n, alone: Some(n / 2) });
    let alone: Vec<Trial> = alone.collect();
    let found = all(devices, sum, &alone, patience, lost)?;
    let mut pairs: Vec<[usize; 2]> =
        (0..alone.len()).flat_map(|n| blamed(&sum, &alone[n], n, &found)).collect();
    if pairs.is_empty() {
        // not seen again: anybody may have sent it
        let senders = (0..ranks).map(|from| Trial { alone: Some(from), ..trials[worst.trial] });
        pairs = senders.flat_map(|trial| blamed(&sum, &trial, worst.trial, &bad)).collect();
    }
    pairs.sort_unstable();
    pairs.dedup();
    let element = (worst.element, worst.got, worst.want);
    Ok(Some(Wrong { pairs, legs: sum.legs, bytes: packets * PACKET, element }))
}

/// Packets of a sender's part of an inbox that a sum of so many takes.
fn taken(sum: &Sum, packets: usize, ranks: usize) -> usize {
    match sum.legs {
        1 => packets,
        _ => packets.div_ceil(ranks) * (1 + packet(sum.wire) / packet(Wire::F32)),
    }
}

/// The pairs by which a sum of what one rank adds alone can have become wrong.
fn blamed(sum: &Sum, trial: &Trial, n: usize, bad: &[Vec<Bad>]) -> Vec<[usize; 2]> {
    let here = |rank: usize| bad[rank].iter().find(|bad| bad.trial == n).map(|bad| bad.element);
    let all: Vec<(usize, usize)> = (0..bad.len()).filter_map(|rank| Some((rank, here(rank)?))).collect();
    let from = trial.alone.unwrap_or(0);
    let receivers = all.iter().map(|(to, element)| {
        if sum.legs == 1 {
            return [from, *to];
        }
        // who adds this share for all has it wrong like all if it came to it so, and else it goes wrong on its way from there
        let owner = element / packet(sum.wire) / trial.packets.div_ceil(bad.len()).max(1);
        let came_so = here(owner).is_some_and(|own| own <= *element);
        if came_so { [from, owner] } else { [owner, *to] }
    });
    receivers.filter(|[from, to]| from != to).collect()
}

/// Does these sums on all devices, which are empty afterwards: what each has wrong.
fn all(
    devices: &mut [&mut dyn Device],
    sum: Sum,
    trials: &[Trial],
    patience: Duration,
    lost: &mut dyn FnMut(Error),
) -> Result<Vec<Vec<Bad>>> {
    let (ends, inboxes) = ends(devices, sum)?;
    let barrier = Barrier::new(devices.len());
    together(devices, patience, lost, &|rank, device, went| {
        let end = &ends[rank];
        let met = end.exchange.meet(device, &inboxes);
        let met = met.and_then(|()| end.exchange.patience(device, patience));
        // all come here, whatever has happened
        barrier.wait();
        met.and_then(|()| sums(end, device, trials, went))
    })
}

/// What a rank does of some sums, on its device; it tells of each that has ended.
pub(crate) type Do<'a> = &'a (dyn Fn(usize, &mut dyn Device, &dyn Fn()) -> Result<Vec<Bad>> + Sync);

/// Lets all devices do their part at once; they are empty afterwards. What each has wrong.
pub(crate) fn together(
    devices: &mut [&mut dyn Device],
    patience: Duration,
    lost: &mut dyn FnMut(Error),
    part: Do<'_>,
) -> Result<Vec<Vec<Bad>>> {
    let ranks = devices.len();
    let mut aborts: Vec<Abort> = devices.iter().filter_map(|device| device.abort()).collect();
    let results = thread::scope(|scope| {
        let (tell, told) = channel();
        for (rank, device) in devices.iter_mut().enumerate() {
            let tell = tell.clone();
            scope.spawn(move || {
                // nobody listens only if the start has ended
                let went = || drop(tell.send((rank, Event::Went)));
                let run = AssertUnwindSafe(|| part(rank, &mut **device, &went));
                let ended = catch_unwind(run).unwrap_or_else(|e| Err(gone(rank, &*e)));
                let _ = tell.send((rank, Event::Ended(ended)));
            });
        }
        ended(&told, ranks, patience, &mut aborts, lost)
    });
    let cleared = devices.iter_mut().try_for_each(|device| device.clear());
    let all = judged(results, patience)?;
    cleared.map(|()| all)
}

fn gone(rank: usize, panic: &(dyn Any + Send)) -> Error {
    Error::Gone { rank, why: crate::group::said(panic) }
}

/// What all have ended with. A library's sums end where one rank fails or does not come; if one does not end all the same, `lost` is told, as
/// nothing can be done about it here.
fn ended(
    told: &Receiver<(usize, Event)>,
    ranks: usize,
    patience: Duration,
    aborts: &mut Vec<Abort>,
    lost: &mut dyn FnMut(Error),
) -> Vec<Option<Result<Vec<Bad>>>> {
    let mut results: Vec<Option<Result<Vec<Bad>>>> = (0..ranks).map(|_| None).collect();
    let mut most = patience + GRACE;
    while results.iter().any(Option::is_none) {
        match told.recv_timeout(most) {
            Ok((_, Event::Went)) => {}
            Ok((rank, Event::Ended(result))) => {
                if result.is_err() {
                    most = GRACE;
                    aborts.drain(..).for_each(|abort| abort());
                }
                results[rank] = Some(result);
            }
            Err(_) if !aborts.is_empty() => {
                most = GRACE;
                aborts.drain(..).for_each(|abort| abort());
            }
            Err(_) => {
                lost(Error::Absent(absent(&results, patience)));
                break;
            }
        }
    }
    results
}

/// What all have wrong, or why it is not known.
fn judged(results: Vec<Option<Result<Vec<Bad>>>>, patience: Duration) -> Result<Vec<Vec<Bad>>> {
    let absent = absent(&results, patience);
    let (mut failed, mut all) = (None, vec![]);
    for result in results {
        match result {
            Some(Ok(bad)) => all.push(bad),
            Some(Err(e)) => failed = Some(first(failed, e)),
            None => return Err(absent.into()),
        }
    }
    match failed {
        Some(Error::Late { .. }) => Err(absent.into()),
        Some(e) => Err(e),
        None => Ok(all),
    }
}

/// Who came, and who did not, by what those who have waited say.
fn absent(results: &[Option<Result<Vec<Bad>>>], patience: Duration) -> Absent {
    let waited = |rank: usize| match &results[rank] {
        Some(Err(Error::Late { missing, .. })) => Some(missing),
        _ => None,
    };
    let all = || 0..results.len();
    let pairs = all().flat_map(|to| waited(to).into_iter().flatten().map(move |from| [*from, to]));
    let pairs: Vec<[usize; 2]> = pairs.collect();
    let missed = |rank: &usize| pairs.iter().any(|[from, _]| from == rank);
    // who has waited was there, whoever has missed it
    let gone = |rank: &usize| match pairs.is_empty() {
        true => results[*rank].is_none(),
        false => missed(rank) && waited(*rank).is_none(),
    };
    Absent {
        arrived: all().filter(|rank| !gone(rank)).collect(),
        absent: all().filter(gone).collect(),
        pairs,
        patience,
    }
}

/// A rank's part of all sums.
fn sums(end: &End, device: &mut dyn Device, trials: &[Trial], went: &dyn Fn()) -> Result<Vec<Bad>> {
    let (wire, mut bad) = (end.sum.wire, vec![]);
    let mut memory = vec![0f32; end.sum.elements()];
    for (n, trial) in trials.iter().enumerate() {
        let got = &mut memory[..trial.packets * packet(wire)];
        device.upload(end.step, bytemuck::cast_slice(&[trial.packets as u32; 8]))?;
        let own = trial.summand(end.rank, wire);
        device.repeat(end.from, bytemuck::cast_slice(&own), 4 * got.len())?;
        device.launch(&end.launch(n))?;
        device.download(end.to, bytemuck::cast_slice_mut(got))?;
        if let Some(late) = end.exchange.late(device) {
            let path = format!("a sum of {} packets", trial.packets);
            return Err(Error::Late { op: n, rank: end.rank, path, missing: late.ranks });
        }
        bad.extend(different(got, &trial.want(end.ranks, wire), n));
        went();
    }
    Ok(bad)
}

/// The first element that is not as it should be.
fn different(got: &[f32], want: &[f32], trial: usize) -> Option<Bad> {
    let bits = |number: &f32| number.to_bits();
    let parts = got.chunks(want.len().max(1)).enumerate();
    let (part, got) =
        parts.into_iter().find(|(_, got)| !got.iter().map(bits).eq(want[..got.len()].iter().map(bits)))?;
    let k = (0..got.len()).find(|k| got[*k].to_bits() != want[*k].to_bits())?;
    Some(Bad { trial, element: part * want.len() + k, got: got[k], want: want[k] })
}
