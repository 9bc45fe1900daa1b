//! The kept corpus, and random changes of it, on every target: no panic, no hang, no flood of memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use shardwright_fuzz::TARGETS;

/// The most processor time that any input may take; templates, rendered five times each, stop after about a second.
const SLOWEST: Duration = Duration::from_secs(10);

/// The most memory of the process, in bytes.
const MOST: u64 = 1 << 30;

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[test]
fn the_corpus_of_every_target() {
    for (name, target) in TARGETS {
        let start = Instant::now();
        let corpus = corpus(name);
        for (path, data) in &corpus {
            let start = busy();
            target(data);
            let took = busy() - start;
            assert!(took < SLOWEST, "{} took {took:?}", path.display());
        }
        println!("{name}: {} inputs in {:?}", corpus.len(), start.elapsed());
    }
    assert!(peak_memory() < MOST, "{} MiB at the peak", peak_memory() >> 20);
}

/// `FUZZ_SECONDS` for each target, one second if it is not set. A failing input is left in `found`.
#[test]
fn random_changes_of_the_corpus() {
    let seconds = std::env::var("FUZZ_SECONDS").map_or(1.0, |s| s.parse().expect("a number of seconds"));
    std::thread::scope(|s| {
        let halves = [TARGETS.iter().step_by(2), TARGETS[1..].iter().step_by(2)];
        for half in halves {
            s.spawn(move || {
                half.for_each(|(name, target)| vary(name, *target, Duration::from_secs_f64(seconds)))
            });
        }
    });
}

fn vary(name: &str, target: fn(&[u8]), time: Duration) {
    let corpus = corpus(name);
    let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ std::process::id() as u64);
    let (start, mut tried) = (Instant::now(), 0);
    while start.elapsed() < time {
        let data = random.change(&corpus);
        let before = busy();
        let died = std::panic::catch_unwind(|| target(&data)).is_err();
        if died || busy() - before > SLOWEST {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("found");
            let path = folder.join(format!("{name}-{:016x}", random.next()));
            fs::create_dir_all(&folder).and_then(|()| fs::write(&path, &data)).unwrap();
            panic!("{name}: see {}", path.display());
        }
        tried += 1;
    }
    println!("{name}: {tried} changed inputs");
    assert!(tried > 0);
}

/// Xorshift: quality does not matter here.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// An input with some bytes replaced, doubled, cut out, or the end of another behind it.
    fn change(&mut self, corpus: &[(PathBuf, Vec<u8>)]) -> Vec<u8> {
        let mut data = corpus[self.below(corpus.len())].1.clone();
        for _ in 0..=self.below(4) {
            let (a, b) = (self.below(data.len() + 1), self.below(data.len() + 1));
            let range = a.min(b)..a.max(b).min(a.min(b) + 64);
            match self.below(5) {
                0 => drop(data.drain(range)),
                1 => data.splice(a..a, data[range].to_vec()).for_each(drop),
                2 => {
                    let other = &corpus[self.below(corpus.len())].1;
                    data.truncate(a);
                    data.extend(&other[self.below(other.len() + 1)..]);
                }
                3 if a < data.len() => data[a] = [0, 1, 0x7f, 0x80, 0xff][self.below(5)],
                _ if a < data.len() => data[a] = self.next() as u8,
                _ => {}
            }
        }
        data
    }
}

/// Time that this thread spent on a processor, so that other work on the machine does not count.
fn busy() -> Duration {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

/// The most memory that this process ever had, in bytes.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}
