//! Where a model runs, and by what its ranks sum, as it is named on the command line.

use anyhow::bail;
use std::str::FromStr;

/// `--device`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// A GPU to talk with a model, if there is one.
    Auto,
    Cpu,
    /// The GPUs with these numbers, or as many of the first as there are ranks.
    Cuda(Vec<u32>),
}

impl FromStr for Device {
    type Err = String;

    fn from_str(s: &str) -> Result<Device, String> {
        let indices = |list: &str| list.split(',').map(|i| i.parse().ok()).collect::<Option<Vec<u32>>>();
        let cuda = match s.split_once(':') {
            None if s == "auto" => return Ok(Device::Auto),
            None if s == "cpu" => return Ok(Device::Cpu),
            None if s == "cuda" => Some(vec![]),
            Some(("cuda", list)) => indices(list),
            _ => None,
        };
        cuda.map(Device::Cuda).ok_or_else(|| "must be auto, cpu, cuda or a list such as cuda:0,1".into())
    }
}

/// One rank of so many, as in `0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
}

impl FromStr for Slice {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Slice> {
        let parts = text.split_once('/').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        match parts {
            Some((rank, ranks)) if rank < ranks && ranks <= 1024 => Ok(Slice { rank, ranks }),
            _ => bail!("expected a rank and how many there are, such as 0/8, at most 1024"),
        }
    }
}

/// `--allreduce`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Sums {
    Auto,
    Push,
    Nccl,
}

impl Sums {
    /// Refuses a library where there is nothing that it could sum.
    pub(crate) fn check(self, apart: bool) -> anyhow::Result<()> {
        if self == Sums::Nccl && !apart {
            bail!(
                "`--allreduce nccl` sums over ranks that have a GPU each; add `--device cuda --tp N` for N GPUs that are there"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_a_rank_of_some() {
        let check = |text: &str, expected: Option<(usize, usize)>| {
            assert_eq!(text.parse::<Slice>().ok().map(|s| (s.rank, s.ranks)), expected, "{text}");
        };
        check("0/8", Some((0, 8)));
        check("7/8", Some((7, 8)));
        check("0/1", Some((0, 1)));
        for bad in ["8/8", "0/0", "0", "/8", "0/", "-1/8", "0/2000", ""] {
            check(bad, None);
        }
    }

    #[test]
    fn devices_are_few() {
        let check = |text: &str, expected: Option<Device>| {
            assert_eq!(text.parse::<Device>().ok(), expected, "{text}");
        };
        check("auto", Some(Device::Auto));
        check("cpu", Some(Device::Cpu));
        check("cuda", Some(Device::Cuda(vec![])));
        check("cuda:0,3", Some(Device::Cuda(vec![0, 3])));
        for bad in ["cuda:", "cuda:a", "cpu:0", "gpu", ""] {
            check(bad, None);
        }
    }
}
