//! One rank of several, named on the command line.

use anyhow::bail;
use std::str::FromStr;

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
            _ => bail!("expected a rank and how many there are, such as 0/8"),
        }
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
}
