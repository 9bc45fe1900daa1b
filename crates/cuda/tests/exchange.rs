//! The kernels by which ranks exchange summands, all ranks' threads at once in random order, their words late and in any order
//! (`emulator/world.rs`), against sums made here in rank order. `protocol.rs` tries every schedule of a model of it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod emulator;

use std::cell::RefCell;

use emulator::Emulator;
use emulator::world::{Call, Random, World};
use half::bf16;
use shardwright_cuda::device::{Device, Launch};
use shardwright_cuda::unit::Unit;
use shardwright_gguf::QuantType;

/// Most rows of an exchange.
const ROWS: usize = 3;
const OP: u32 = 7;

#[derive(Clone, Copy)]
struct Case {
    ranks: usize,
    width: usize,
    bf16: bool,
    /// Is the summand of two values?
    two: bool,
    /// Are some of its numbers none?
    odd: bool,
    slots: usize,
    legs: usize,
    /// Ticks that a wait may take.
    patience: u64,
}

const CASE: Case =
    Case { ranks: 2, width: 32, bf16: true, two: false, odd: true, slots: 2, legs: 1, patience: u64::MAX };

/// An exchange: rows, each rank's summands, and where its sum lies.
struct Epoch {
    rows: usize,
    parts: Vec<[Vec<f32>; 2]>,
    outs: Vec<u64>,
}

/// Ranks with their inboxes.
struct Group {
    case: Case,
    device: Emulator,
    world: World,
    random: Random,
    inboxes: Vec<u64>,
    waits: Vec<u64>,
    told: Vec<u64>,
    steps: Vec<u64>,
    op: u64,
    epochs: Vec<Epoch>,
}

impl Case {
    /// Elements of a packet.
    fn packet(&self) -> usize {
        if self.bf16 { 8 } else { 4 }
    }

    /// Packets of a sender's part of an inbox.
    fn capacity(&self) -> usize {
        ROWS * self.width / self.packet()
    }

    /// What both kernels must know of the group; `addends`: as each of them counts.
    fn define(&self, unit: Unit, addends: u8) -> Unit {
        let unit = unit.int("RANKS", self.ranks).int("BF16", u8::from(self.bf16)).int("ADDENDS", addends);
        let unit = unit.int("CAPACITY", self.capacity()).int("WIDTH", self.width);
        unit.int("MAX_ROWS", ROWS)
    }

    fn exchange(&self, receive: bool) -> Unit {
        let unit = Unit::new("exchange").int("RECEIVE", u8::from(receive)).int("LEGS", self.legs);
        self.define(unit.int("BLOCKS", 2).int("BLOCK", 32), 1 + u8::from(self.two))
    }

    /// Element `k` of an exchange's sum.
    fn sum(&self, epoch: &Epoch, k: usize) -> f32 {
        let sent = |v: f32| if self.bf16 { bf16::from_f32(v).to_f32() } else { v };
        let summand = |[x, y]: &[Vec<f32>; 2]| sent(if self.two { x[k] + y[k] } else { x[k] });
        epoch.parts.iter().map(summand).reduce(|a, b| a + b).unwrap()
    }
}

fn upload(device: &mut Emulator, data: &[u32]) -> u64 {
    let at = device.alloc(data.len() * 4).unwrap();
    device.upload(at, bytemuck::cast_slice(data)).unwrap();
    at
}

fn download(device: &mut Emulator, from: u64, words: usize) -> Vec<u32> {
    let mut out = vec![0u32; words];
    device.download(from, bytemuck::cast_slice_mut(&mut out)).unwrap();
    out
}

impl Group {
    fn new(case: Case, seed: u64) -> Option<Group> {
        let mut device = Emulator::new()?;
        let words = 2 * case.ranks * case.capacity() * 4;
        let mut fill = |words: usize| upload(&mut device, &vec![u32::MAX; words]);
        let inboxes: Vec<u64> = (0..case.ranks).map(|_| fill(words)).collect();
        let told: Vec<u64> = (0..case.ranks).map(|_| upload(&mut device, &[0; 3])).collect();
        let mut wait = |rank: usize, told: u64| {
            let [patience, told] = [case.patience, told].map(|v| [v as u32, (v >> 32) as u32]);
            upload(&mut device, &[patience[0], patience[1], told[0], told[1], rank as u32, 0])
        };
        let waits = told.iter().enumerate().map(|(rank, told)| wait(rank, *told)).collect();
        let steps = (0..=ROWS).map(|rows| upload(&mut device, &[rows as u32; 8])).collect();
        let op = upload(&mut device, &[OP]);
        let world = World::new(seed, inboxes.iter().map(|at| *at..at + words as u64 * 4).collect());
        let random = Random(seed + 1);
        Some(Group { case, device, world, random, inboxes, waits, told, steps, op, epochs: vec![] })
    }

    /// Where `from` finds its part, or all parts, of the inbox of `to`.
    fn inbox(&self, to: usize, from: usize) -> u64 {
        let slot = self.epochs.len() % self.case.slots;
        self.inboxes[to] + ((slot * self.case.ranks + from) * self.case.capacity() * 16) as u64
    }

    /// A number of any size; some have the bits of an empty word, or of half of one.
    fn number(&mut self) -> f32 {
        match self.random.below(50) + if self.case.odd { 0 } else { 2 } {
            0 => f32::from_bits(u32::MAX),
            1 => f32::from_bits(0xffff_0000),
            n => (self.random.below(1 << 20) as f32 - 5e5) * 10f32.powi(n as i32 % 9 - 4),
        }
    }

    /// The next exchange; `rank` does its part with these arguments, made of its summands, its sum, the peers and its inbox.
    fn epoch(&mut self, calls: impl Fn(&mut Group, usize, [u64; 5]) -> Vec<Call>) {
        let (rows, ranks) = (1 + self.random.below(ROWS), self.case.ranks);
        let mut epoch = Epoch { rows, parts: vec![], outs: vec![] };
        for rank in 0..ranks {
            let mut part = || (0..rows * self.case.width).map(|_| self.number()).collect::<Vec<f32>>();
            let parts = [part(), part()];
            let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            let [x, y] = [0, 1].map(|i| upload(&mut self.device, &bits(&parts[i])));
            let out = upload(&mut self.device, &vec![0; rows * self.case.width]);
            let to = (1..ranks)
                .map(|i| self.inbox((rank + i) % ranks, rank))
                .flat_map(|a| [a as u32, (a >> 32) as u32]);
            let to: Vec<u32> = to.collect();
            let to = upload(&mut self.device, &to);
            let args = [x, y, out, to, self.inbox(rank, 0)];
            epoch.outs.push(out);
            epoch.parts.push(parts);
            let step = self.steps[rows];
            for mut call in calls(self, rank, args) {
                call.args.insert(0, step);
                self.world.queue(rank, call);
            }
        }
        self.epochs.push(epoch);
    }

    /// The next exchange, as a kernel of its own.
    fn alone(&mut self) {
        self.epoch(|group, rank, [x, y, out, to, inbox]| {
            let args = vec![x, y, out, to, inbox, group.waits[rank], group.op];
            vec![Call { unit: group.case.exchange(true), grid: [2, 1, 1], block: 32, args }]
        });
    }

    /// The first exchange whose sum is not the one in rank order, or not the same on all ranks.
    fn wrong(&mut self) -> Option<String> {
        let case = self.case;
        for (n, epoch) in self.epochs.iter().enumerate() {
            let words = epoch.rows * case.width;
            let outs: Vec<Vec<u32>> =
                epoch.outs.iter().map(|at| download(&mut self.device, *at, words)).collect();
            for k in 0..words {
                let sum = case.sum(epoch, k);
                let got = f32::from_bits(outs[0][k]);
                let right = got.to_bits() == sum.to_bits() || (got.is_nan() && sum.is_nan());
                if !right || outs.iter().any(|out| out[k] != outs[0][k]) {
                    let got: Vec<f32> = outs.iter().map(|out| f32::from_bits(out[k])).collect();
                    return Some(format!("exchange {n}, element {k}: {got:?} instead of {sum}"));
                }
            }
        }
        None
    }

    fn told(&mut self) -> Vec<Vec<u32>> {
        self.told.iter().map(|at| download(&mut self.device, *at, 3)).collect()
    }
}

fn check(case: Case, epochs: usize) {
    for seed in 0..2 {
        let Some(mut group) = Group::new(case, seed) else { return };
        (0..epochs).for_each(|_| group.alone());
        let ticks = group.world.run();
        let Case { ranks, bf16, legs, .. } = case;
        let what = format!("{ranks} ranks, bf16 {bf16}, {legs} legs, seed {seed}");
        println!("{what}: {ticks} ticks");
        assert_eq!(group.wrong(), None, "{what}");
        assert!(group.told().iter().all(|t| t[0] == 0), "{what}");
    }
}

#[test]
fn sums_are_those_in_rank_order() {
    for (ranks, epochs) in [(2, 400), (3, 200), (4, 150), (8, 60)] {
        check(Case { ranks, bf16: true, two: false, ..CASE }, epochs);
        check(Case { ranks, bf16: false, two: true, ..CASE }, epochs);
    }
}

/// In two legs the same bits come out.
#[test]
fn sums_of_shares_are_the_same() {
    for (ranks, epochs) in [(3, 200), (4, 150), (8, 60)] {
        check(Case { ranks, legs: 2, bf16: true, two: true, ..CASE }, epochs);
        check(Case { ranks, legs: 2, bf16: false, two: false, ..CASE }, epochs);
    }
}

/// What a norm reads besides the sum, and how it is compiled without it.
struct Norm {
    unit: Unit,
    stream: u64,
    weight: u64,
    spoiled: u64,
}

impl Norm {
    /// Words of the stream, the norm, its codes and their scales for so many rows.
    fn room(rows: usize) -> [usize; 4] {
        let words = rows * CASE.width;
        [words, words, words / 4, words / 8]
    }

    fn new(group: &mut Group) -> Norm {
        let unit = Unit::new("norm").int("RUNS", 1).float("EPS", 1e-5).int("RMS", 1).int("SHARES", 1);
        let unit = unit.int("ROUND", 1).int("BLOCK", 64);
        let some = |n: usize| (0..n).map(|i| (i as f32 * 0.37).sin().to_bits()).collect::<Vec<_>>();
        let weight = upload(&mut group.device, &some(CASE.width));
        let stream = upload(&mut group.device, &some(ROWS * CASE.width));
        let spoiled = upload(&mut group.device, &[i32::MAX as u32; ROWS]);
        Norm { unit, stream, weight, spoiled }
    }

    /// A norm of the stream with what is added to it, and where it leaves everything.
    fn call(&self, group: &mut Group, unit: Unit, added: [u64; 2], from: [u64; 2]) -> (Call, [u64; 4]) {
        let outs = Norm::room(ROWS).map(|words| upload(&mut group.device, &vec![0; words]));
        let [next, normed, q, s] = outs;
        let [second, third] = added;
        let args =
            vec![next, self.weight, 0, normed, self.spoiled, group.op, self.stream, second, third, q, s];
        let args = [args, from.to_vec()].concat();
        (Call { unit, grid: [1, 1, ROWS as u32], block: 64, args }, outs)
    }
}

/// A norm that receives what was pushed before has the bits of a norm that adds the sum. `front` makes the call that pushes of the
/// rank's summands and where one may be put, the peers and the inbox; and says where the norm finds the summands.
fn check_received(case: Case, front: impl Fn(&mut Group, usize, [u64; 5]) -> (Call, [u64; 2])) {
    let Some(mut group) = Group::new(case, 5) else { return };
    let norm = Norm::new(&mut group);
    let received = RefCell::new(vec![]);
    for _ in 0..40 {
        group.epoch(|group, rank, args| {
            let (push, summand) = front(group, rank, args);
            let unit = case.define(norm.unit.clone().int("RECEIVE", 1), 2 + u8::from(case.two));
            let (call, outs) = norm.call(group, unit, summand, [args[4], group.waits[rank]]);
            received.borrow_mut().push(outs);
            vec![push, call]
        });
    }
    group.world.run();
    let ranks = case.ranks;
    for (n, made) in received.into_inner().chunks(ranks).enumerate() {
        let want = plain(&mut group, &norm, n);
        let rows = group.epochs[n].rows;
        for (rank, i) in (0..ranks).flat_map(|rank| (0..4).map(move |i| (rank, i))) {
            let words = Norm::room(rows)[i];
            let [got, want] = [made[rank][i], want[i]].map(|at| download(&mut group.device, at, words));
            // codes have no NaN
            let nan = |bits: &u32| i != 2 && f32::from_bits(*bits).is_nan();
            let same = got.iter().zip(&want).all(|(g, w)| g == w || (nan(g) && nan(w)));
            assert!(same, "{ranks} ranks, bf16 {}, exchange {n}, rank {rank}, output {i}", case.bf16);
        }
    }
}

#[test]
fn norms_receive() {
    for (ranks, bf16, two) in [(2, true, false), (3, false, true), (8, true, true)] {
        let case = Case { ranks, bf16, two, ..CASE };
        check_received(case, |group, rank, [x, y, _, to, inbox]| {
            let args = vec![x, y, 0, to, inbox, group.waits[rank], group.op];
            (Call { unit: case.exchange(false), grid: [2, 1, 1], block: 32, args }, [x, y])
        });
    }
}

/// Rows of a matrix that leaves all as it is, so that a product with it makes the summand.
fn unchanging() -> Vec<u32> {
    let n = CASE.width;
    (0..n * n).map(|at| if at / n == at % n { 1f32.to_bits() } else { 0 }).collect()
}

/// What both kinds of products are told, with rows of f32 dealt to blocks of two warps.
fn product(case: &Case, stem: &'static str) -> (Unit, String) {
    let unit = Unit::new(stem).int("BLOCK", 64).int("BLOCKS_HELD", 1).int("HELD_REGISTERS", 8).int("PUSH", 1);
    let mut unit = case.define(unit, 1);
    let kind = unit.matrix(QuantType::F32, 4 * case.width, case.width, false);
    (unit, kind)
}

/// Products that push what they make, each block when it has made it, the last of them fewer rows than the others.
#[test]
fn products_push() {
    for (ranks, bf16, tile) in [(2, true, 2), (2, false, 1), (3, true, 1), (4, false, 3), (8, true, 2)] {
        let case = Case { ranks, bf16, odd: false, ..CASE };
        let (unit, kind) = product(&case, "linear");
        let blocks = case.width.div_ceil(24);
        let unit = unit.int("TILE", tile).int("HEADS", 1).int("PARTS", 1).int("END0", blocks);
        let unit = unit.int("PART0", format!("{kind}, {kind}, {}, 24, PLAIN, 0", case.width));
        let unit = unit.int("PREPARE", "AS_IT_LIES").int("PREPARED", 0).int("ANSWER", 0).int("ADDED", 0);
        let unit = unit.int("STREAM", 0).int("NORM_ROUND", 0).int("HAS_LINES", 0);
        let grid = [blocks as u32, ROWS.div_ceil(tile) as u32, 1];
        check_received(case, |group, _, [x, _, out, to, _]| {
            let weights = upload(&mut group.device, &unchanging());
            let mut args = vec![0; 25];
            (args[0], args[3], args[11], args[24]) = (x, weights, out, to);
            (Call { unit: unit.clone(), grid, block: 64, args }, [out, 0])
        });
    }
}

/// The same of the experts' second half.
#[test]
fn experts_push() {
    for (ranks, bf16) in [(2, false), (3, false), (4, true), (8, true)] {
        let case = Case { ranks, bf16, odd: false, ..CASE };
        let (unit, _) = product(&case, "down");
        let unit =
            unit.int("FIRST", 3).int("COPIES", 1).int("OUTS", case.width).int("USED", 1).int("TEAMS", 2);
        let unit = unit.int("SHARED", 0).int("ROUND", 0).int("ROUND_H", 0).int("OWN", 8);
        let grid = [case.width.div_ceil(8) as u32, 1, ROWS as u32];
        check_received(case, |group, _, [x, _, out, to, _]| {
            let weights = upload(&mut group.device, &unchanging());
            let picked = upload(&mut group.device, &[3f32, 1.0].map(f32::to_bits).repeat(ROWS));
            let args = vec![picked, weights, x, 0, 0, 0, 0, 0, 0, out, to];
            (Call { unit: unit.clone(), grid, block: 64, args }, [out, 0])
        });
    }
}

/// What a norm makes of the sum of an exchange, when it is given.
fn plain(group: &mut Group, norm: &Norm, n: usize) -> [u64; 4] {
    let epoch = &group.epochs[n];
    let (step, words) = (group.steps[epoch.rows], epoch.rows * CASE.width);
    let sums: Vec<u32> = (0..words).map(|k| group.case.sum(epoch, k).to_bits()).collect();
    let sums = upload(&mut group.device, &sums);
    let unit = norm.unit.clone().int("RECEIVE", 0).int("ADDENDS", 2);
    let unit = unit.int("WIDTH", CASE.width).int("MAX_ROWS", ROWS);
    let (Call { unit, grid, block, mut args }, outs) = norm.call(group, unit, [sums, 0], [0, 0]);
    args.insert(0, step);
    let kernel = group.device.load(&[unit]).unwrap()[0];
    group.device.launch(&Launch { kernel, grid, block, shared: 0, args }).unwrap();
    outs
}

#[test]
fn one_slot_is_found_wrong() {
    let Some(mut group) = Group::new(Case { slots: 1, patience: 200_000, ..CASE }, 0) else { return };
    (0..200).for_each(|_| group.alone());
    group.world.run();
    let wrong = group.wrong();
    println!("{wrong:?}");
    assert!(wrong.is_some());
}

/// Its peers say who is missing, and at which op, and all that is queued behind ends at once.
#[test]
fn a_peer_that_never_writes_is_named() {
    for (ranks, dead) in [(2, 1), (4, 2)] {
        let patience = 400_000;
        let Some(mut group) = Group::new(Case { ranks, patience, ..CASE }, 3) else { return };
        (0..10).for_each(|_| group.alone());
        group.world.kill(dead);
        let ticks = group.world.run();
        for (rank, told) in group.told().iter().enumerate().filter(|(rank, _)| *rank != dead) {
            assert_eq!(*told, [1, OP, 1 << dead], "rank {rank} of {ranks}");
        }
        // ten waits, of which one is long
        assert!(ticks < 3 * patience, "{ticks} ticks");
    }
}
