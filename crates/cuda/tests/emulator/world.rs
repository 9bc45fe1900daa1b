//! Kernels of several ranks at once on the emulator. Whose thread goes on, and which word of those on their way arrives next, is
//! drawn by lot; words for one place arrive in the order in which they were sent, and a kernel ends when its own memory has
//! what it stored there.
#![allow(unsafe_code, clippy::unwrap_used, reason = "a test's device: any failure is the test's")]

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use libloading::Library;
use shardwright_cuda::unit::Unit;

use super::library;

/// Bytes of a thread's stack, as the shim divides them.
const STACK: usize = 64 << 10;

/// A small generator.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) ^ (self.0 >> 12 & 0xffff)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// A word on its way.
struct Store {
    to: u64,
    word: u32,
    from: usize,
}

/// What the kernels of this thread see of the others and of time.
#[derive(Default)]
struct Network {
    rank: usize,
    clock: u64,
    flying: Vec<Store>,
    /// Ranks whose stores never arrive.
    dead: Vec<usize>,
}

thread_local! {
    static NETWORK: RefCell<Network> = RefCell::default();
}

extern "C" fn store(to: *mut u32, words: *const u32) {
    NETWORK.with_borrow_mut(|net| {
        let from = net.rank;
        for i in 0..4 {
            // SAFETY: the shim passes four words.
            let word = unsafe { *words.add(i) };
            net.flying.push(Store { to: to as u64 + 4 * i as u64, word, from });
        }
    });
}

extern "C" fn clock() -> u64 {
    NETWORK.with_borrow(|net| net.clock + 1)
}

#[repr(C)]
struct Outside {
    store: extern "C" fn(*mut u32, *const u32),
    clock: extern "C" fn() -> u64,
}

static OUTSIDE: Outside = Outside { store, clock };

type Begin = unsafe extern "C" fn(*const u32, *const u32, u32, *const u64, *mut u128, *const Outside) -> i32;
type Resume = unsafe extern "C" fn(u32) -> i32;

/// A block with memory of its own.
struct Block {
    _library: Library,
    begin: Begin,
    resume: Resume,
    stacks: Vec<u128>,
    args: Vec<u64>,
    live: Vec<u32>,
}

impl Block {
    fn new(unit: &Unit, threads: u32) -> Block {
        let library = library(unit);
        // SAFETY: the shim's functions have these types.
        let (begin, resume) = unsafe { (*library.get(b"begin").unwrap(), *library.get(b"resume").unwrap()) };
        let stacks = vec![0; threads as usize * STACK / 16];
        Block { _library: library, begin, resume, stacks, args: vec![], live: vec![] }
    }

    fn start(&mut self, at: u32, call: &Call) {
        self.args.clone_from(&call.args);
        self.live = (0..call.block).collect();
        let (grid, block) = (call.grid, call.at(at));
        // SAFETY: there is an address for each parameter, and a stack for each thread; all of it lives until the block has ended.
        let status = unsafe {
            let stacks = self.stacks.as_mut_ptr();
            (self.begin)(grid.as_ptr(), block.as_ptr(), call.block, self.args.as_ptr(), stacks, &OUTSIDE)
        };
        assert_eq!(status, 0, "a block of {} threads", call.block);
    }

    /// Lets one of its threads go on.
    fn go_on(&mut self, random: &mut Random) {
        let at = random.below(self.live.len());
        // SAFETY: the thread has not ended.
        if unsafe { (self.resume)(self.live[at]) } != 0 {
            self.live.swap_remove(at);
        }
    }
}

/// A launch.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) unit: Unit,
    pub(crate) grid: [u32; 3],
    pub(crate) block: u32,
    pub(crate) args: Vec<u64>,
}

impl Call {
    fn blocks(&self) -> u32 {
        self.grid.iter().product()
    }

    fn at(&self, n: u32) -> [u32; 3] {
        let [x, y, _] = self.grid;
        [n % x, n / x % y, n / x / y]
    }
}

/// A rank: what it is still to do, and what runs.
struct Stream {
    /// What its own stores do not have to travel to.
    own: Range<u64>,
    left: VecDeque<Call>,
    running: Vec<(Unit, u32)>,
    /// It stands still until then.
    asleep: u64,
}

/// All ranks.
pub(crate) struct World {
    random: Random,
    streams: Vec<Stream>,
    blocks: HashMap<(usize, Unit, u32), Block>,
    /// Of a hundred turns so many let a word arrive.
    speed: usize,
}

impl World {
    /// `own`: each rank's inbox.
    pub(crate) fn new(seed: u64, own: Vec<Range<u64>>) -> World {
        NETWORK.set(Network::default());
        let stream = |own| Stream { own, left: VecDeque::new(), running: vec![], asleep: 0 };
        let streams = own.into_iter().map(stream).collect();
        World { random: Random(seed), streams, blocks: HashMap::new(), speed: 50 }
    }

    /// Lets nothing that this rank stores arrive from now on.
    pub(crate) fn kill(&mut self, rank: usize) {
        NETWORK.with_borrow_mut(|net| net.dead.push(rank));
    }

    pub(crate) fn queue(&mut self, rank: usize, call: Call) {
        self.streams[rank].left.push_back(call);
    }

    /// Until everybody has done everything. Gives the time that it took.
    pub(crate) fn run(&mut self) -> u64 {
        while self.streams.iter().any(|s| !s.left.is_empty() || !s.running.is_empty()) {
            NETWORK.with_borrow_mut(|net| net.clock += 1);
            match self.random.below(2000) {
                0 => self.speed = 5 + self.random.below(90),
                1 => self.sleep(),
                n if n % 100 < self.speed => self.deliver(),
                _ => self.turn(),
            }
        }
        NETWORK.with_borrow(|net| net.clock)
    }

    fn sleep(&mut self) {
        let (rank, ticks) = (self.random.below(self.streams.len()), self.random.below(5000));
        self.streams[rank].asleep = NETWORK.with_borrow(|net| net.clock) + ticks as u64;
    }

    /// Lets a word arrive: the first of those for its place.
    fn deliver(&mut self) {
        NETWORK.with_borrow_mut(|net| {
            if let Some(any) = net.flying.len().checked_sub(1) {
                let to = net.flying[self.random.below(any + 1)].to;
                let first = net.flying.iter().position(|s| s.to == to).unwrap();
                net.arrive(first);
            }
        });
    }

    fn turn(&mut self) {
        let rank = self.random.below(self.streams.len());
        let now = NETWORK.with_borrow(|net| net.clock);
        let stream = &mut self.streams[rank];
        if stream.asleep > now {
            return;
        }
        if stream.running.is_empty() {
            let Some(call) = stream.left.pop_front() else { return };
            for n in 0..call.blocks() {
                let key = (rank, call.unit.clone(), n);
                let block = self.blocks.entry(key).or_insert_with(|| Block::new(&call.unit, call.block));
                block.start(n, &call);
                stream.running.push((call.unit.clone(), n));
            }
        }
        let at = self.random.below(stream.running.len());
        let (unit, n) = stream.running[at].clone();
        let block = self.blocks.get_mut(&(rank, unit, n)).unwrap();
        NETWORK.with_borrow_mut(|net| net.rank = rank);
        block.go_on(&mut self.random);
        if block.live.is_empty() {
            stream.running.swap_remove(at);
        }
        if stream.running.is_empty() {
            NETWORK.with_borrow_mut(|net| net.settle(&stream.own));
        }
    }
}

impl Network {
    fn arrive(&mut self, at: usize) {
        let Store { to, word, from } = self.flying.remove(at);
        if !self.dead.contains(&from) {
            // SAFETY: kernels store into memory that the test holds.
            unsafe { std::ptr::write_volatile(to as *mut u32, word) };
        }
    }

    /// All that lies ahead of whom it belongs to.
    fn settle(&mut self, own: &Range<u64>) {
        let rank = self.rank;
        while let Some(at) = self.flying.iter().position(|s| s.from == rank && own.contains(&s.to)) {
            self.arrive(at);
        }
    }
}
