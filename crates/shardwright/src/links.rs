//! How the GPUs of ranks are joined, for those who read that what one sends does not reach another.

use shardwright_cuda::Error;
use shardwright_cuda::driver::Gpu;
use shardwright_cuda::nvml::{Link, Nvml};
use shardwright_cuda::pairs::Wrong;

/// The number and the place of each rank's GPU.
pub(crate) struct Seats(Vec<(usize, String)>);

impl Seats {
    pub(crate) fn of(gpus: &[Gpu]) -> Seats {
        Seats(gpus.iter().map(|gpu| (gpu.info().index, gpu.info().place.clone())).collect())
    }

    /// How the ranks are joined that this error is about, and then this; nothing if it is about no two.
    pub(crate) fn told(&self, e: &Error) -> String {
        self.joined(&at_fault(e, self.0.len()))
    }

    /// The same for one way of several.
    pub(crate) fn told_of(&self, wrong: &Wrong) -> String {
        self.joined(&wrong.pairs)
    }

    fn joined(&self, pairs: &[[usize; 2]]) -> String {
        let pairs = unordered(pairs);
        if pairs.is_empty() {
            return String::new();
        }
        let places: Vec<[String; 2]> =
            pairs.iter().map(|pair| pair.map(|rank| self.0[rank].1.clone())).collect();
        let links = Nvml::find().inspect_err(|e| log::debug!("{e}")).map(|nvml| nvml.links(&places));
        let indices: Vec<usize> = self.0.iter().map(|seat| seat.0).collect();
        words(&pairs, &links.unwrap_or_else(|_| vec![Link::Unknown; pairs.len()]), &indices)
    }
}

/// Between which of so many ranks something does not arrive, or may not: who has come does not know what keeps the others.
fn at_fault(e: &Error, ranks: usize) -> Vec<[usize; 2]> {
    let two = |one: &[usize], other: &[usize]| -> Vec<[usize; 2]> {
        one.iter().flat_map(|a| other.iter().map(move |b| [*a, *b])).collect()
    };
    let all: Vec<usize> = (0..ranks).collect();
    match e {
        Error::Wrong(wrong) => wrong.iter().flat_map(|wrong| wrong.pairs.clone()).collect(),
        Error::Absent(who) if who.absent.is_empty() => who.pairs.clone(),
        Error::Absent(who) if who.arrived.is_empty() => two(&all, &all),
        Error::Absent(who) => two(&who.arrived, &who.absent),
        Error::GivenUp { rank } => two(&[*rank], &all),
        _ => vec![],
    }
}

/// Each pair once, whoever sends, in order.
fn unordered(pairs: &[[usize; 2]]) -> Vec<[usize; 2]> {
    let mut pairs: Vec<[usize; 2]> = pairs.iter().map(|[a, b]| [*a.min(b), *a.max(b)]).collect();
    pairs.retain(|[a, b]| a != b);
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// Pairs of ranks whose GPUs have these numbers, and how each is joined: those that are joined alike together.
fn words(pairs: &[[usize; 2]], links: &[Link], indices: &[usize]) -> String {
    let mut kinds: Vec<Link> = vec![];
    links.iter().for_each(|link| {
        if !kinds.contains(link) {
            kinds.push(*link);
        }
    });
    let of = |kind: Link| {
        let alike = pairs.iter().zip(links).filter(|(_, link)| **link == kind);
        let pair =
            |[a, b]: &[usize; 2]| format!("rank {a} and rank {b} (GPU {}, GPU {})", indices[*a], indices[*b]);
        let all: Vec<String> = alike.map(|(two, _)| pair(two)).collect();
        let every = indices.len() * (indices.len() - 1) / 2;
        let who = if all.len() > 1 && all.len() == every { "all ranks".into() } else { all.join(", ") };
        let by = if kind == Link::Sockets { "" } else { "by " };
        format!("{who} are joined {by}{kind}")
    };
    kinds.into_iter().map(of).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardwright_cuda::pairs::Absent;
    use std::time::Duration;

    #[test]
    fn c2_pairs_at_fault_are_those_of_who_came_and_who_did_not() {
        let check = |arrived: &[usize], absent: &[usize], pairs: &[[usize; 2]], expected: &[[usize; 2]]| {
            let (arrived, absent, pairs) = (arrived.to_vec(), absent.to_vec(), pairs.to_vec());
            let e = Error::Absent(Absent { arrived, absent, pairs, patience: Duration::from_secs(30) });
            assert_eq!(unordered(&at_fault(&e, 3)), expected, "{e}");
        };
        check(&[0, 2], &[1], &[[1, 0], [1, 2]], &[[0, 1], [1, 2]]);
        check(&[0, 1, 2], &[], &[[2, 0], [0, 2]], &[[0, 2]]);
        check(&[], &[0, 1, 2], &[], &[[0, 1], [0, 2], [1, 2]]);
        assert_eq!(unordered(&at_fault(&Error::GivenUp { rank: 1 }, 3)), [[0, 1], [1, 2]]);
        assert_eq!(at_fault(&Error::Zero("rank"), 3), [[0; 2]; 0]);
    }

    #[test]
    fn c1_pairs_at_fault_are_those_of_every_way_once() {
        let wrong = |pairs: &[[usize; 2]], legs| Wrong {
            pairs: pairs.to_vec(),
            legs,
            bytes: 16,
            element: (0, 1.0, 2.0),
        };
        let e = Error::Wrong(vec![wrong(&[[1, 0]], 1), wrong(&[[0, 1], [2, 1]], 2)]);
        assert_eq!(unordered(&at_fault(&e, 3)), [[0, 1], [1, 2]]);
    }

    #[test]
    fn pairs_are_told_with_their_gpus_and_links() {
        let check = |pairs: &[[usize; 2]], links: &[Link], indices: &[usize], expected: &str| {
            assert_eq!(words(pairs, links, indices), expected);
        };
        let one = [[0, 1]];
        check(&one, &[Link::NvLink], &[0, 1], "rank 0 and rank 1 (GPU 0, GPU 1) are joined by NVLink");
        let apart = "rank 0 and rank 1 (GPU 6, GPU 3) are joined across sockets";
        check(&one, &[Link::Sockets], &[6, 3], apart);
        let mixed = "rank 0 and rank 1 (GPU 0, GPU 1), rank 1 and rank 3 (GPU 1, GPU 3) are joined by an unknown link; \
                     rank 1 and rank 2 (GPU 1, GPU 2) are joined by one PCIe switch";
        let links = [Link::Unknown, Link::Switch, Link::Unknown];
        check(&[[0, 1], [1, 2], [1, 3]], &links, &[0, 1, 2, 3], mixed);
        let all = "all ranks are joined by several PCIe switches";
        check(&[[0, 1], [0, 2], [1, 2]], &[Link::Switches; 3], &[0, 1, 2], all);
    }
}
